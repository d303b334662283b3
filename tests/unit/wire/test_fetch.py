"""Fetch sessions: what is asked byte for byte, what is understood, and what an answer changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import pytest
from aiokafka.protocol.fetch import FetchRequest_v10, FetchRequest_v11, FetchResponse_v10, FetchResponse_v11
from hypothesis import given
from hypothesis import strategies as st

from mm2py.errors import BrokerConnectionError
from mm2py.wire import fetch
from mm2py.wire.connection import BrokerConnection, Buffer
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.fetch import FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FetchSession, fetch_once
from mm2py.wire.fetch_forms import FetchPosition, FetchSizes
from mm2py.wire.requests import MetadataRequest_v11, id_bytes
from tests.support.fetch_v13 import FetchRequest_v13, FetchResponse_v13


SIZES = FetchSizes(min_bytes=1, max_bytes=8_000_000, partition_max_bytes=1_000_000, reads_committed=False)
SESSION = 77
IDS = {
    "orders": "AAAAAAAAAAAAAAAAAAAAAQ",
    "users": "AAAAAAAAAAAAAAAAAAAAAg",
    "unknown": "AAAAAAAAAAAAAAAAAAAAAw",
}
NAMES = {topic_id: name for name, topic_id in IDS.items()}


class Asked(NamedTuple):
    """A request as the broker reads it: per topic what is named and what is forgotten."""

    session: tuple[int, int]
    named: dict[str, dict[int, tuple[int, int]]]
    forgotten: dict[str, list[int]]


class Broker:
    """
    Stands for a connection to a broker that takes Fetch up to *version*.

    It keeps what was sent, answers with what was queued, and names the topics in `topic_ids` where it is asked.
    """

    def __init__(self, version: int = 18) -> None:
        self.versions = {1: (4, version)}
        self.version = 13 if version >= 13 else min(version, 11)
        self.topic_ids: dict[str, str | None] = dict(IDS)
        self.asked_for_topics = 0
        self.given_up = ""
        self.requests: list[bytes] = []
        self.waits: list[float] = []
        self.answers: deque[bytes | BrokerConnectionError] = deque()

    async def request_raw(
        self, api_key: int, api_version: int, pieces: Sequence[Buffer], *, extra_wait_s: float = 0.0
    ) -> memoryview:
        assert (api_key, api_version) == (1, self.version)
        self.requests.append(b"".join(pieces))
        self.waits.append(extra_wait_s)
        answer = self.answers.popleft()
        if isinstance(answer, BrokerConnectionError):
            raise answer
        return memoryview(answer)

    async def send(self, request: Any) -> Any:
        self.asked_for_topics += 1
        known = [(0, topic, self.topic_ids[topic], False, [], 0, {}) for topic in request._topics]
        return MetadataRequest_v11.RESPONSE_TYPE(0, [], None, -1, known, {})

    def give_up(self, cause: str) -> BrokerConnectionError:
        self.given_up = cause
        return BrokerConnectionError("A", "a:1", cause)

    @property
    def request(self) -> Any:
        """The last request, decoded."""
        kinds = {10: FetchRequest_v10, 11: FetchRequest_v11, 13: FetchRequest_v13}
        return kinds[self.version].decode(self.requests[-1])

    @property
    def asked(self) -> Asked:
        request = self.request
        named = {
            NAMES.get(topic, topic): {number: (offset, epoch) for number, epoch, offset, *_ in partitions}
            for topic, partitions, *_ in request.topics
        }
        forgotten = {NAMES.get(topic, topic): numbers for topic, numbers, *_ in request.forgotten_topics_data}
        return Asked((request.session_id, request.session_epoch), named, forgotten)

    def will_answer(
        self, *topics: tuple[str, Sequence[tuple[Any, ...]]], session: int = SESSION, error: int = 0, throttle: int = 0
    ) -> None:
        if self.version == 10:
            named = [(topic, [(*it[:-2], it[-1]) for it in rows]) for topic, rows in topics]
            body = FetchResponse_v10(throttle, error, session, named).encode()
        elif self.version < 13:
            body = FetchResponse_v11(throttle, error, session, list(topics)).encode()
        else:
            tagged = [(IDS[topic], [_tagged(row) for row in rows], {}) for topic, rows in topics]
            body = FetchResponse_v13({}, throttle, error, session, tagged, {}).encode()
        self.answers.append(b"\x00\x00\x00\x01" + body)


def _tagged(row: tuple[Any, ...]) -> tuple[Any, ...]:
    *most, aborted, replica, records = row
    return (*most, [(*it, {}) for it in aborted], replica, records, {})


@pytest.fixture(params=[10, 12, 18])
def broker(request: pytest.FixtureRequest) -> Broker:
    return Broker(request.param)


@pytest.fixture
def session(broker: Broker) -> FetchSession:
    return FetchSession(cast("BrokerConnection", broker), has_ids=True)


def position(number: int, offset: int, *, topic: bytes = b"orders", epoch: int = 3) -> FetchPosition:
    return FetchPosition(topic, number, offset, epoch, None, topic_id=id_bytes(IDS[topic.decode()]))


def row(number: int, records: bytes = b"", *, error: int = 0, aborted: Any = ()) -> tuple[Any, ...]:
    return (number, error, 900, 800, 100, list(aborted), -1, records)


async def test_request_by_name_is_this_to_the_byte() -> None:
    """A session's first request spells out version 11 of Fetch with session 0 and epoch 0."""
    broker = Broker(version=12)
    session = FetchSession(cast("BrokerConnection", broker))
    broker.will_answer()
    session.want(FetchPosition(b"ab", 5, 0x1122334455, 7, None))
    await session.fetch(SIZES, 500)

    assert broker.requests[0] == bytes.fromhex(
        "ffffffff 000001f4 00000001 007a1200 00"  # replica, max wait, min bytes, max bytes, isolation
        "00000000 00000000"  # session id and epoch
        "00000001 0002 6162 00000001"  # one topic, its name, one partition
        "00000005 00000007 0000001122334455 ffffffffffffffff 000f4240"
        "00000000 0000"  # nothing forgotten, no rack
    )


async def test_request_by_id_is_this_to_the_byte() -> None:
    """Where the broker takes ids, version 13 has the id in place of the name, and ends each part with no tags."""
    broker = Broker()
    session = FetchSession(cast("BrokerConnection", broker), has_ids=True)
    broker.will_answer()
    session.want(position(5, 0x1122334455, epoch=7))
    await session.fetch(SIZES, 500)

    assert broker.requests[0] == bytes.fromhex(
        "00"  # no tags in the header
        "ffffffff 000001f4 00000001 007a1200 00"  # replica, max wait, min bytes, max bytes, isolation
        "00000000 00000000"  # session id and epoch
        "02 00000000000000000000000000000001 02"  # one topic, its id, one partition
        "00000005 00000007 0000001122334455 ffffffff ffffffffffffffff 000f4240 00"
        "00 01 01 00"  # nothing forgotten, no rack
    )


async def test_isolation_level_and_wait_are_passed_on(broker: Broker, session: FetchSession) -> None:
    """Committed reading is one bit of the request; the broker's wait is added to ours."""
    broker.will_answer()
    session.want(position(0, 1))
    await session.fetch(FetchSizes(2, 3, 4, reads_committed=True), 1500)
    request = broker.request

    assert (request.isolation_level, request.min_bytes, request.max_bytes, request.max_wait_time) == (1, 2, 3, 1500)
    assert broker.waits == [1.5]


async def test_later_requests_name_only_what_changed(broker: Broker, session: FetchSession) -> None:
    """Once the broker has given a session, a request names the partitions whose position moved, and no others."""
    zero, one, other = position(0, 10), position(1, 20), position(0, 30, topic=b"users")
    for each in (zero, one, other):
        session.want(each)
    for _ in range(4):
        broker.will_answer()
    await session.fetch(SIZES, 500)
    first = broker.asked
    one.offset = 25
    session.want(one)
    await session.fetch(SIZES, 500)
    second = broker.asked
    await session.fetch(SIZES, 500)
    third = broker.asked

    assert first == Asked((0, 0), {"orders": {0: (10, 3), 1: (20, 3)}, "users": {0: (30, 3)}}, {})
    assert second == Asked((SESSION, 1), {"orders": {1: (25, 3)}}, {})
    assert third == Asked((SESSION, 2), {}, {})


async def test_dropped_partitions_are_forgotten_once(broker: Broker, session: FetchSession) -> None:
    """A dropped partition is named as forgotten in the next request, and never again."""
    zero, one = position(0, 10), position(1, 20)
    for _ in range(3):
        broker.will_answer()
    session.want(zero)
    session.want(one)
    await session.fetch(SIZES, 500)
    zero.offset = 11
    session.want(zero)
    session.drop(zero)
    session.drop(zero)
    await session.fetch(SIZES, 500)
    second = broker.asked
    await session.fetch(SIZES, 500)

    assert second == Asked((SESSION, 1), {}, {"orders": [0]})
    assert broker.asked == Asked((SESSION, 2), {}, {})
    assert not session.is_empty


async def test_dropped_and_wanted_again_is_not_forgotten(broker: Broker, session: FetchSession) -> None:
    """A partition dropped and wanted again between two requests is only named with its position."""
    zero = position(0, 10)
    for _ in range(2):
        broker.will_answer()
    session.want(zero)
    await session.fetch(SIZES, 500)
    session.drop(zero)

    assert session.is_empty
    session.want(zero)
    await session.fetch(SIZES, 500)

    assert broker.asked == Asked((SESSION, 1), {"orders": {0: (10, 3)}}, {})


@pytest.mark.parametrize("error", [FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH])
async def test_session_error_starts_a_new_session_with_everything(
    broker: Broker, session: FetchSession, error: int
) -> None:
    """When the broker forgot the session, the next request starts another one with all that is wanted."""
    zero, one = position(0, 10), position(1, 20)
    session.want(zero)
    session.want(one)
    broker.will_answer()
    await session.fetch(SIZES, 500)
    zero.offset = 15
    session.want(zero)
    session.drop(one)
    broker.will_answer(error=error, session=0)
    answer = await session.fetch(SIZES, 500)
    broker.will_answer(session=99)
    await session.fetch(SIZES, 500)
    renewed = broker.asked
    broker.will_answer(session=99)
    await session.fetch(SIZES, 500)

    assert (answer.error_code, answer.partitions) == (error, [])
    assert renewed == Asked((0, 0), {"orders": {0: (15, 3)}}, {})
    assert broker.asked == Asked((99, 1), {}, {})


async def test_without_room_for_sessions_every_request_is_full(broker: Broker, session: FetchSession) -> None:
    """A broker whose session cache is full answers with session 0: then everything is named each time."""
    session.want(position(0, 10))
    for _ in range(2):
        broker.will_answer(session=0)
        await session.fetch(SIZES, 500)

        assert broker.asked == Asked((0, 0), {"orders": {0: (10, 3)}}, {})


async def test_epochs_wrap_to_one(broker: Broker, session: FetchSession) -> None:
    """The session's epoch goes from the greatest integer to 1: 0 would start a new session."""
    session.want(position(0, 10))
    broker.will_answer()
    await session.fetch(SIZES, 500)
    session._epoch = 0x7FFFFFFF
    for expected in (0x7FFFFFFF, 1):
        broker.will_answer()
        await session.fetch(SIZES, 500)

        assert broker.asked.session == (SESSION, expected)


async def test_answer_is_taken_apart(broker: Broker, session: FetchSession) -> None:
    """An answer gives each partition its owner's position, offsets, aborted transactions and records in place."""
    zero, two, other = position(0, 10), position(2, 20), position(0, 5, topic=b"users")
    for each in (zero, two, other):
        session.want(each)
    broker.will_answer(
        ("orders", [row(2, b"records of two", aborted=[(7, 12), (8, 30)]), row(0, error=6)]),
        ("users", [row(0, b"x" * 70)]),
        throttle=250,
    )
    answer = await session.fetch(SIZES, 500)
    first, second, third = answer.partitions

    assert (answer.error_code, answer.throttle_ms) == (0, 250)
    assert [p.position for p in answer.partitions] == [two, zero, other]
    assert (first.high_watermark, first.last_stable_offset, first.log_start_offset) == (900, 800, 100)
    assert first.aborted == ((7, 12), (8, 30))
    assert bytes(first.record_set) == b"records of two"
    assert (second.error_code, bytes(second.record_set), second.aborted) == (6, b"", ())
    assert bytes(third.record_set) == b"x" * 70
    assert third.record_set.obj is first.record_set.obj


@pytest.mark.parametrize(
    ("version", "answer"),
    [
        (
            12,
            (
                "00000001 00000000 0000 0000004d 00000001 0006 6f7264657273 00000001"
                "00000000 0000 0000000000000009 0000000000000008 0000000000000007 ffffffff ffffffff ffffffff"
            ),
        ),
        (
            18,
            (
                "00000001 00 00000000 0000 0000004d 02 00000000000000000000000000000001 02"
                "00000000 0000 0000000000000009 0000000000000008 0000000000000007 00 ffffffff 00 00 00 00"
            ),
        ),
    ],
)
async def test_null_record_sets_and_null_lists_are_empty(version: int, answer: str) -> None:
    """Brokers write null where there is no record set or no list of aborted transactions."""
    broker = Broker(version)
    session = FetchSession(cast("BrokerConnection", broker), has_ids=True)
    session.want(position(0, 10))
    broker.answers.append(bytes.fromhex(answer))
    (only,) = (await session.fetch(SIZES, 500)).partitions

    assert (only.high_watermark, only.aborted, bytes(only.record_set)) == (9, (), b"")


async def test_tagged_fields_are_passed_over() -> None:
    """A leader that moved, told in a partition's tags, or what brokers may add elsewhere hides nothing behind it."""
    broker = Broker()
    session = FetchSession(cast("BrokerConnection", broker), has_ids=True)
    one, two = position(0, 10), position(1, 20)
    session.want(one)
    session.want(two)
    broker.answers.append(
        bytes.fromhex(
            "00000001 00 00000000 0000 0000004d 02 00000000000000000000000000000001 03"
            "00000000 0006 0000000000000009 0000000000000008 0000000000000007"
            "02 0000000000000005 0000000000000006 01 07 01 ff"  # an aborted transaction, with a tagged field
            "ffffffff 00 02 00 02 abcd 01 09 00000001 00000002 00"  # tags 0 and 1
            "00000001 0000 0000000000000009 0000000000000008 0000000000000007 00 ffffffff 04 616263 00"
            "01 05 03 010203  01 00 00"
        )
    )
    first, second = (await session.fetch(SIZES, 500)).partitions

    assert (first.position, first.error_code, first.aborted) == (one, 6, ((5, 6),))
    assert (second.position, bytes(second.record_set)) == (two, b"abc")


@given(st.data())
async def test_an_answer_that_is_damaged_costs_the_connection(data: st.DataObject) -> None:
    """An answer cut short or overwritten is read, or closes the connection with an error of ours, at once."""
    broker = Broker(data.draw(st.sampled_from([12, 18])))
    session = FetchSession(cast("BrokerConnection", broker), has_ids=True)
    for number in range(3):
        session.want(position(number, 10))
    broker.will_answer(("orders", [row(number, b"r" * 40, aborted=[(7, 12)]) for number in range(3)]))
    answer = bytearray(broker.answers.pop())
    for at, byte in data.draw(st.lists(st.tuples(st.integers(4, len(answer) - 1), st.integers(0, 255)), max_size=8)):
        answer[at] = byte
    broker.answers.append(bytes(answer[: data.draw(st.integers(4, len(answer)))]))

    try:
        found = await session.fetch(SIZES, 500)
    except BrokerConnectionError:
        assert broker.given_up
    else:
        assert all(it.position.topic == b"orders" for it in found.partitions)


@pytest.mark.parametrize("version", [12, 18])
async def test_a_short_answer_is_said_to_be_unreadable(version: int) -> None:
    """An answer without its last byte closes the connection: nothing behind it would be where it should be."""
    broker = Broker(version)
    session = FetchSession(cast("BrokerConnection", broker), has_ids=True)
    session.want(position(0, 10))
    broker.will_answer(("orders", [row(0, b"records")]))
    broker.answers.append(broker.answers.pop()[:-1])

    with pytest.raises(BrokerConnectionError, match="its answer to a fetch cannot be read"):
        await session.fetch(SIZES, 500)

    assert broker.given_up


# Older brokers are asked by name: which topic that is, they say afterwards.


def old_session(broker: Broker) -> FetchSession:
    return FetchSession(cast("BrokerConnection", broker), has_ids=True)


async def test_records_of_another_topic_of_the_name_are_none() -> None:
    """Where the name stands for another topic once records came, these are taken away, and the reason is told."""
    broker = Broker(version=12)
    session = old_session(broker)
    session.want(position(0, 10))
    session.want(position(1, 10, topic=b"users"))
    broker.topic_ids["orders"] = IDS["unknown"]
    broker.will_answer(("orders", [row(0, b"new")]), ("users", [row(1, b"old")]))
    orders, users = (await session.fetch(SIZES, 500)).partitions

    assert (orders.error_code, bytes(orders.record_set)) == (ErrorCode.INCONSISTENT_TOPIC_ID, b"")
    assert (users.error_code, bytes(users.record_set)) == (0, b"old")


@pytest.mark.parametrize(("gap_s", "expected"), [(3600.0, [1, 1, 1, 2, 3, 3]), (-1.0, [1, 2, 2, 3, 4, 4])])
async def test_the_name_is_asked_about_again_after_trouble(
    monkeypatch: pytest.MonkeyPatch, gap_s: float, expected: list[int]
) -> None:
    """With the first records of a position the name is looked up, and with those after an error or after a gap."""
    monkeypatch.setattr(fetch, "_UNWATCHED_S", gap_s)
    broker = Broker(version=12)
    session, zero = old_session(broker), position(0, 10)
    session.want(zero)
    asked = []
    for step in ("records", "records", "error", "records", "dropped", "records", "nothing"):
        if step == "dropped":
            session.drop(zero)
            session.want(zero)
            continue
        broker.will_answer(("orders", [row(0, b"x" if step == "records" else b"", error=6 if step == "error" else 0)]))
        await session.fetch(SIZES, 500)
        asked.append(broker.asked_for_topics)

    assert asked == expected


async def test_a_broker_that_tells_no_ids_is_believed() -> None:
    """If a broker does not know topic ids, records are taken without a check of the topic's id."""
    broker = Broker(version=12)
    session = old_session(broker)
    session.want(position(0, 10))
    broker.topic_ids["orders"] = None
    broker.will_answer(("orders", [row(0, b"data")]))
    (only,) = (await session.fetch(SIZES, 500)).partitions

    assert (only.error_code, bytes(only.record_set)) == (0, b"data")


async def test_answers_for_dropped_partitions_are_left_out(broker: Broker, session: FetchSession) -> None:
    """An answer for a partition dropped while the request was under way is discarded; others are returned."""
    session.want(position(1, 20))
    broker.will_answer(
        ("orders", [row(0, b"aaa"), row(1, b"bbb")]),
        ("unknown", [row(0, b"ccc")]),
    )
    answer = await session.fetch(SIZES, 500)

    assert [bytes(p.record_set) for p in answer.partitions] == [b"bbb"]


async def test_adopting_the_same_place_says_nothing(broker: Broker, session: FetchSession) -> None:
    """An epoch that goes on where the last one stopped names nothing; one that goes elsewhere names that."""
    for each in (position(0, 10), position(1, 20), position(2, 30), position(3, 40)):
        session.want(each)
    for _ in range(2):
        broker.will_answer(("orders", [row(0, b"news")]))
    await session.fetch(SIZES, 500)
    same, moved, led_anew = position(0, 10), position(1, 21), position(2, 30, epoch=4)
    session.keep_only([same, moved, led_anew])
    for each in (same, moved, led_anew):
        session.adopt(each)
    answer = await session.fetch(SIZES, 500)

    assert broker.asked == Asked((SESSION, 1), {"orders": {1: (21, 3), 2: (30, 4)}}, {"orders": [3]})
    assert answer.partitions[0].position is same


async def test_adopting_what_was_not_yet_told_tells_it(broker: Broker, session: FetchSession) -> None:
    """A position that moved after the last request is not known to the broker, so adopting it names it."""
    old = position(0, 10)
    session.want(old)
    for _ in range(2):
        broker.will_answer()
    await session.fetch(SIZES, 500)
    old.offset = 15
    session.want(old)
    session.adopt(position(0, 15))
    await session.fetch(SIZES, 500)

    assert broker.asked.named == {"orders": {0: (15, 3)}}


async def test_keep_only_drops_whole_topics(broker: Broker, session: FetchSession) -> None:
    """Topics that the next epoch does not have are forgotten."""
    session.want(position(0, 10))
    session.want(position(0, 10, topic=b"users"))
    for _ in range(2):
        broker.will_answer()
    await session.fetch(SIZES, 500)
    session.keep_only([position(0, 10, topic=b"users")])
    await session.fetch(SIZES, 500)

    assert broker.asked == Asked((SESSION, 1), {}, {"orders": [0]})


async def test_fetching_once_leaves_no_session(broker: Broker) -> None:
    """A fetch outside any session says so with epoch -1, and gives its one partition."""
    broker.will_answer(("orders", [row(0, b"data")]), session=0)
    wanted = position(0, 10)
    answer = await fetch_once(cast("BrokerConnection", broker), wanted, SIZES, 300)

    assert broker.asked == Asked((0, -1), {"orders": {0: (10, 3)}}, {})
    assert (answer.position, bytes(answer.record_set)) == (wanted, b"data")


async def test_fetching_once_tells_an_error_of_the_whole_answer(broker: Broker) -> None:
    """An answer without the partition has its error code, and no records."""
    broker.will_answer(error=35, session=0)
    answer = await fetch_once(cast("BrokerConnection", broker), position(0, 10), SIZES, 300)

    assert (answer.error_code, len(answer.record_set)) == (35, 0)


steps = st.lists(
    st.tuples(st.sampled_from(["want", "move", "drop", "fetch", "fail"]), st.integers(0, 4)), min_size=1, max_size=40
)


@given(steps)
async def test_broker_always_knows_what_is_wanted(plan: list[tuple[str, int]]) -> None:
    """Whatever is wanted, moved, dropped and forgotten, after each request the broker's view is ours (invariant b)."""
    broker = Broker()
    session = FetchSession(cast("BrokerConnection", broker), has_ids=True)
    wanted: dict[int, FetchPosition] = {}
    known: dict[int, tuple[int, int]] = {}
    for step, number in [*plan, ("fetch", 0)]:
        if step == "want":
            wanted.setdefault(number, position(number, 0))
            session.want(wanted[number])
        elif step == "move" and number in wanted:
            wanted[number].offset += 1
            session.want(wanted[number])
        elif step == "drop" and number in wanted:
            session.drop(wanted.pop(number))
        elif step in {"fetch", "fail"}:
            broker.will_answer(error=0 if step == "fetch" else FETCH_SESSION_ID_NOT_FOUND)
            await session.fetch(SIZES, 500)
            if broker.asked.session == (0, 0):
                known = {}
            for gone in broker.asked.forgotten.get("orders", []):
                known.pop(gone, None)
            known.update(broker.asked.named.get("orders", {}))
            if step == "fetch":
                assert known == {number: place.places[:2] for number, place in wanted.items()}
    assert session.is_empty == (not wanted)
