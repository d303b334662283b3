"""Which of several connectors' positions counts."""

from __future__ import annotations

import pytest

from mm2py.core.herder.left_positions import LeftPositions, taken_over
from mm2py.model.epoch import ProducerMark
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position, encode_position, position_key
from mm2py.model.positions_topic import PositionsTopic, owner_of
from mm2py.model.run_chunk import chunk_key
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

    assert taken_over(left("ours"), [last, first, left("three", is_removed=True, at_ms=9)]) == {ORDERS: last}


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
