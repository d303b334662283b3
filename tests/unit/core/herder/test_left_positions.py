"""Which of several connectors' positions counts."""

from __future__ import annotations

import attrs
import pytest

from mm2py.core.herder.left_positions import LeftPositions, taken_over
from mm2py.model.epoch import ProducerMark
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position, encode_position, position_key
from mm2py.model.positions_topic import PositionsTopic, owner_of
from mm2py.model.run_chunk import HAD_POSITION, chunk_key, encode_chunk
from mm2py.wire.topic_log import LogRecord


ORDERS = TopicPartition("orders", 0)
OF_JAVA, OF_MM2PY = Position(ORDERS, 10), Position(ORDERS, 20, 19, producer=ProducerMark(1, 0, 20))


def left(name: str, position: Position | None = None, at_ms: int = 0, *, is_removed: bool = False) -> LeftPositions:
    """Return what connector *name* has left."""
    found = LeftPositions(PositionsTopic("A", name))
    if position is not None:
        found.take(LogRecord(*encode_position("A", position, name)), at_ms)
    if is_removed:
        found.take(LogRecord(position_key("A", ORDERS, name), None), at_ms)
    return found


@pytest.mark.parametrize(
    ("ours", "is_taken"),
    [
        (left("ours"), True),
        (left("ours", OF_JAVA, 4), True),
        (left("ours", OF_JAVA, 6), False),
        (left("ours", OF_MM2PY, 4), False),
        (left("ours", is_removed=True, at_ms=4), False),
    ],
    ids=["none", "Java's, older", "Java's, newer", "mm2py's, by a slow clock", "removed"],
)
def test_what_a_connector_has_itself_counts_unless_java_s_is_older(ours: LeftPositions, *, is_taken: bool) -> None:
    """Java was there before mm2py, which then kept positions under the class's name; or after it."""
    former = left("MirrorSourceConnector", OF_MM2PY, 5)

    assert taken_over(ours, [former]) == ({ORDERS: former} if is_taken else {})


def test_the_newest_of_several_counts() -> None:
    """Connectors that came and went one after the other."""
    first, last = left("one", OF_MM2PY, 5), left("two", OF_JAVA, 7)

    assert taken_over(left("ours"), [last, first]) == {ORDERS: last}


def test_one_that_was_removed_last_is_removed_here_too() -> None:
    """Otherwise a reset would be undone when the connector gets another name, by what a former one had."""
    former, reset = left("one", OF_MM2PY, 5), left("two", is_removed=True, at_ms=9)

    assert taken_over(left("ours"), [former, reset]) == {ORDERS: reset}
    assert taken_over(left("ours", OF_JAVA, 4), [former, reset]) == {ORDERS: reset}
    assert not taken_over(left("ours", OF_MM2PY, 4), [former, reset])


def test_a_connector_that_gets_its_former_name_again_goes_on_where_the_other_stood() -> None:
    """The other took over its producer, and renewed it: whose epoch is the later one, or who came further in one."""
    later = attrs.evolve(OF_MM2PY, next_upstream=30, producer=ProducerMark(1, 1, 10))
    last_words = attrs.evolve(OF_MM2PY, next_upstream=30, producer=ProducerMark(1, 0, 30))
    ours = left("ours", OF_MM2PY, 5)

    for position in (later, last_words):
        other = left("other", position, 4)
        assert taken_over(ours, [other]) == {ORDERS: other}
        assert not taken_over(left("ours", position, 3), [left("other", OF_MM2PY, 5)])


@pytest.mark.parametrize(("at_ms", "upstream", "is_taken"), [(9, 30, True), (4, 30, False), (9, 20, False)])
def test_positions_of_no_common_producer_are_compared_by_time_and_place(
    at_ms: int, upstream: int, *, is_taken: bool
) -> None:
    """Transactions have none. A clock that is fast takes none back."""
    ours = left("ours", Position(ORDERS, 20, 19), 5)
    other = left("other", Position(ORDERS, upstream, 19), at_ms)

    assert taken_over(ours, [other]) == ({ORDERS: other} if is_taken else {})


def test_a_removal_that_compaction_forgot_is_known_by_what_is_beside_it() -> None:
    """Where there is an index, there was a position."""
    ours = LeftPositions(PositionsTopic("A", "ours"))
    ours.take(LogRecord(chunk_key("A", ORDERS, 0, "ours"), encode_chunk(HAD_POSITION, None)), 1)

    assert not taken_over(ours, [left("former", OF_MM2PY, 5)])
    assert taken_over(left("new"), [ours]) == {ORDERS: ours}


def test_a_removal_that_compaction_forgot_counts_against_older_positions_of_other_names() -> None:
    """The last one of several was reset, and deleted. A new one does not go on where the first one stood."""
    first, reset = left("one", OF_MM2PY, 5), LeftPositions(PositionsTopic("A", "two"))
    reset.take(LogRecord(chunk_key("A", ORDERS, 0, "two"), encode_chunk(HAD_POSITION, None)), 9)
    later = left("three", OF_MM2PY, 11)

    assert taken_over(left("new"), [first, reset]) == {ORDERS: reset}
    assert taken_over(left("new"), [first, reset, later]) == {ORDERS: later}


def test_a_position_that_has_only_topic_ids_is_mm2py_s() -> None:
    """So one begins whose remote topic has records."""
    assert not left("ours", Position(ORDERS, 0, None, "AAAAAAAAAAAAAAAAAAAAAA"), 5).without_mm2py().stored.positions


def test_of_java_alone_nothing_of_mm2py_is_left() -> None:
    """Its offsets at another target mean nothing here."""
    of_mm2py, of_java = (left("ours", it, 5).without_mm2py() for it in (OF_MM2PY, OF_JAVA))

    assert (of_mm2py.stored.positions, of_java.stored.positions) == ({}, {ORDERS: OF_JAVA})


@pytest.mark.parametrize("name", ["MirrorSourceConnector", "a mirror", "mm2py", 'quo"ted'])
def test_whose_a_record_is(name: str) -> None:
    """By its key, of a position and of where records went."""
    keys = position_key("A", ORDERS, name), chunk_key("A", ORDERS, 3, name)

    assert [owner_of(key) for key in keys] == [(name, "A")] * 2


@pytest.mark.parametrize(
    "key", [None, b"", b"{", b'["file",{"filename":"x"}]', b'["us-west",{"topic":"t","partition":1}]']
)
def test_what_is_no_mirrormaker_s_is_of_none(key: bytes | None) -> None:
    """Other connectors of a worker keep their offsets in the same topic."""
    assert owner_of(key) is None
