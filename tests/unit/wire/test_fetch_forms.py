"""Requests and answers of a fetch, byte for byte: what is sent, what is understood, and damage."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.errors import BrokerConnectionError
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.fetch import FetchSession
from mm2py.wire.fetch_forms import FetchPosition, FetchSizes
from tests.support.fetch_broker import SIZES, FetchBroker, position, row, session_with


@pytest.fixture(params=[10, 12, 18])
def broker(request: pytest.FixtureRequest) -> FetchBroker:
    return FetchBroker(request.param)


@pytest.fixture
def session(broker: FetchBroker) -> FetchSession:
    return session_with(broker)


async def test_request_by_name_is_this_to_the_byte() -> None:
    """A session's first request spells out version 11 of Fetch with session 0 and epoch 0."""
    broker = FetchBroker(version=12)
    session = FetchSession(cast("BrokerConnection", broker))
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
    broker = FetchBroker()
    session = session_with(broker)
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


async def test_isolation_level_and_wait_are_passed_on(broker: FetchBroker, session: FetchSession) -> None:
    """Committed reading is one bit of the request; the broker's wait is added to ours."""
    session.want(position(0, 1))
    await session.fetch(FetchSizes(2, 3, 4, reads_committed=True), 1500)
    request = broker.request

    assert (request.isolation_level, request.min_bytes, request.max_bytes, request.max_wait_time) == (1, 2, 3, 1500)
    assert broker.waits == [1.5]


async def test_answer_is_taken_apart(broker: FetchBroker, session: FetchSession) -> None:
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
    broker = FetchBroker(version)
    session = session_with(broker)
    session.want(position(0, 10))
    broker.answers.append(bytes.fromhex(answer))
    (only,) = (await session.fetch(SIZES, 500)).partitions

    assert (only.high_watermark, only.aborted, bytes(only.record_set)) == (9, (), b"")


async def test_tagged_fields_are_passed_over() -> None:
    """A leader that moved, named in a partition's tags, or what brokers may add elsewhere hides nothing after it."""
    broker = FetchBroker()
    session = session_with(broker)
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
    broker = FetchBroker(data.draw(st.sampled_from([12, 18])))
    session = session_with(broker)
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
    """An answer without its last byte closes the connection: nothing after it would be where it should be."""
    broker = FetchBroker(version)
    session = session_with(broker)
    session.want(position(0, 10))
    broker.will_answer(("orders", [row(0, b"records")]))
    broker.answers.append(broker.answers.pop()[:-1])

    with pytest.raises(BrokerConnectionError, match="its answer to a fetch cannot be read"):
        await session.fetch(SIZES, 500)

    assert broker.given_up
