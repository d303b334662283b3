"""Fetch sessions: what each request names, what an answer changes, and which topic a name stands for."""

from __future__ import annotations

from typing import cast

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.wire import fetch
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.fetch import FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FetchSession, fetch_once
from mm2py.wire.fetch_forms import FetchPosition
from tests.support.fetch_broker import IDS, SESSION, SIZES, Asked, FetchBroker, position, row, session_with


@pytest.fixture(params=[10, 12, 18])
def broker(request: pytest.FixtureRequest) -> FetchBroker:
    return FetchBroker(request.param)


@pytest.fixture
def session(broker: FetchBroker) -> FetchSession:
    return session_with(broker)


async def test_later_requests_name_only_what_changed(broker: FetchBroker, session: FetchSession) -> None:
    """Once the broker has given a session, a request names the partitions whose position moved, and no others."""
    zero, one, other = position(0, 10), position(1, 20), position(0, 30, topic=b"users")
    for each in (zero, one, other):
        session.want(each)
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


async def test_dropped_partitions_are_forgotten_once(broker: FetchBroker, session: FetchSession) -> None:
    """A dropped partition is named as forgotten in the next request, and never again."""
    zero, one = position(0, 10), position(1, 20)
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


async def test_dropped_and_wanted_again_is_not_forgotten(broker: FetchBroker, session: FetchSession) -> None:
    """A partition dropped and wanted again between two requests is only named with its position."""
    zero = position(0, 10)
    session.want(zero)
    await session.fetch(SIZES, 500)
    session.drop(zero)

    assert session.is_empty
    session.want(zero)
    await session.fetch(SIZES, 500)

    assert broker.asked == Asked((SESSION, 1), {"orders": {0: (10, 3)}}, {})


@pytest.mark.parametrize("error", [FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH])
async def test_session_error_starts_a_new_session_with_everything(
    broker: FetchBroker, session: FetchSession, error: int
) -> None:
    """When the broker forgot the session, the next request starts another one with all that is wanted."""
    zero, one = position(0, 10), position(1, 20)
    session.want(zero)
    session.want(one)
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


async def test_without_room_for_sessions_every_request_is_full(broker: FetchBroker, session: FetchSession) -> None:
    """A broker whose session cache is full answers with session 0: then everything is named each time."""
    session.want(position(0, 10))
    for _ in range(2):
        broker.will_answer(session=0)
        await session.fetch(SIZES, 500)

        assert broker.asked == Asked((0, 0), {"orders": {0: (10, 3)}}, {})


async def test_a_session_that_begins_again_names_everything(broker: FetchBroker, session: FetchSession) -> None:
    """The broker drops the session that such a request names."""
    zero = position(0, 10)
    session.want(zero)
    await session.fetch(SIZES, 500)
    session.begin_again()
    session.enter([zero])
    broker.will_answer(session=99)
    await session.fetch(SIZES, 500)
    first = broker.asked
    await session.fetch(SIZES, 500)

    assert first == Asked((SESSION, 0), {"orders": {0: (10, 3)}}, {})
    assert broker.asked == Asked((99, 1), {}, {})


async def test_epochs_wrap_to_one(broker: FetchBroker, session: FetchSession) -> None:
    """The session's epoch goes from the greatest integer to 1: 0 would start a new session."""
    session.want(position(0, 10))
    await session.fetch(SIZES, 500)
    session._epoch = 0x7FFFFFFF
    for expected in (0x7FFFFFFF, 1):
        await session.fetch(SIZES, 500)

        assert broker.asked.session == (SESSION, expected)


# Older brokers are asked by name; which topic has it is asked for afterwards.


async def test_records_of_another_topic_of_the_name_are_none() -> None:
    """If the name is another topic's once records came, these are taken away, and the error code says why."""
    broker = FetchBroker(version=12)
    session = session_with(broker)
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
    broker = FetchBroker(version=12)
    session, zero = session_with(broker), position(0, 10)
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
    broker = FetchBroker(version=12)
    session = session_with(broker)
    session.want(position(0, 10))
    broker.topic_ids["orders"] = None
    broker.will_answer(("orders", [row(0, b"data")]))
    (only,) = (await session.fetch(SIZES, 500)).partitions

    assert (only.error_code, bytes(only.record_set)) == (0, b"data")


async def test_answers_for_dropped_partitions_are_left_out(broker: FetchBroker, session: FetchSession) -> None:
    """An answer for a partition dropped while the request was under way is discarded; others are returned."""
    session.want(position(1, 20))
    broker.will_answer(
        ("orders", [row(0, b"aaa"), row(1, b"bbb")]),
        ("unknown", [row(0, b"ccc")]),
    )
    answer = await session.fetch(SIZES, 500)

    assert [bytes(p.record_set) for p in answer.partitions] == [b"bbb"]


async def test_entering_at_the_same_place_says_nothing(broker: FetchBroker, session: FetchSession) -> None:
    """An epoch that goes on where the last one stopped names nothing; one that goes elsewhere names that."""
    for each in (position(0, 10), position(1, 20), position(2, 30), position(3, 40)):
        session.want(each)
    for _ in range(2):
        broker.will_answer(("orders", [row(0, b"news")]))
    await session.fetch(SIZES, 500)
    same, moved, led_again = position(0, 10), position(1, 21), position(2, 30, epoch=4)
    session.enter([same, moved, led_again])
    answer = await session.fetch(SIZES, 500)

    assert broker.asked == Asked((SESSION, 1), {"orders": {1: (21, 3), 2: (30, 4)}}, {"orders": [3]})
    assert answer.partitions[0].position is same


async def test_entering_where_nothing_was_told_yet_tells_it(broker: FetchBroker, session: FetchSession) -> None:
    """A position that moved after the last request is not known to the broker, so entering names it."""
    old = position(0, 10)
    session.want(old)
    await session.fetch(SIZES, 500)
    old.offset = 15
    session.want(old)
    session.enter([position(0, 15)])
    await session.fetch(SIZES, 500)

    assert broker.asked.named == {"orders": {0: (15, 3)}}


async def test_entering_drops_whole_topics(broker: FetchBroker, session: FetchSession) -> None:
    """Topics that the next epoch does not have are forgotten."""
    session.want(position(0, 10))
    session.want(position(0, 10, topic=b"users"))
    await session.fetch(SIZES, 500)
    session.enter([position(0, 10, topic=b"users")])
    await session.fetch(SIZES, 500)

    assert broker.asked == Asked((SESSION, 1), {}, {"orders": [0]})


async def test_topics_that_come_and_go_leave_nothing(broker: FetchBroker, session: FetchSession) -> None:
    """A session lasts for weeks, and each request that begins it again walks over all topics that it has."""
    before, now = position(0, 10), position(0, 10, topic=b"users")
    session.want(before)
    await session.fetch(SIZES, 500)
    session.enter([now])
    await session.fetch(SIZES, 500)

    assert broker.asked.named == {"users": {0: (10, 3)}}
    assert len(session._wanted) == 1
    session.drop(now)
    assert session.is_empty


async def test_fetching_once_leaves_no_session(broker: FetchBroker) -> None:
    """A fetch outside any session says so with epoch -1, and gives its one partition."""
    broker.will_answer(("orders", [row(0, b"data")]), session=0)
    wanted = position(0, 10)
    answer = await fetch_once(cast("BrokerConnection", broker), wanted, SIZES, 300)

    assert broker.asked == Asked((0, -1), {"orders": {0: (10, 3)}}, {})
    assert (answer.position, bytes(answer.record_set)) == (wanted, b"data")


async def test_fetching_once_tells_an_error_of_the_whole_answer(broker: FetchBroker) -> None:
    """An answer without the partition has its error code, and no records."""
    broker.will_answer(error=35, session=0)
    answer = await fetch_once(cast("BrokerConnection", broker), position(0, 10), SIZES, 300)

    assert (answer.error_code, len(answer.record_set)) == (35, 0)


steps = st.lists(
    st.tuples(st.sampled_from(["want", "move", "drop", "enter", "fetch", "fail"]), st.integers(0, 4)),
    min_size=1,
    max_size=40,
)


@given(steps)
async def test_broker_always_knows_what_is_wanted(plan: list[tuple[str, int]]) -> None:
    """Whatever is wanted, moved, dropped and forgotten, after each request the broker's view is ours (invariant b)."""
    broker = FetchBroker()
    session = session_with(broker)
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
        elif step == "enter":
            made = {it: attrs.evolve(place) for it, place in wanted.items() if it == number - 1}
            wanted = {it: place for it, place in (wanted | made).items() if it != number}
            session.enter(wanted.values())
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
