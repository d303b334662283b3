"""What a source connector takes over of others of its pair."""

from __future__ import annotations

from array import array

import attrs
import pytest

from mm2py.connectors.source.left_by_others import taken_from_others
from mm2py.core.source.due import RemotePartition
from mm2py.model.epoch import ProducerMark
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.positions import Position, encode_position
from mm2py.model.run_chunk import RunChunk, chunk_key, encode_chunk
from mm2py.wire.topic_log import LogRecord


ORDERS = TopicPartition("orders", 0)
TOPIC_ID, REMOTE_ID, OTHER_ID = ("A" * 22, "B" * 22, "C" * 22)
CHUNK = RunChunk(0, 60, 0, 60, True, *(array("q", [it]) for it in (0, 0, 60, 60)))
PLACE = RemotePartition("A.orders", TOPIC_ID, 1000, REMOTE_ID)
STOOD = Position(ORDERS, 60, 59, TOPIC_ID, ProducerMark(7, 1, 60), REMOTE_ID)


def _kept(name: str, position: Position, at_ms: int = 1) -> LogRecord:
    return attrs.evolve(LogRecord(*encode_position("A", position, name)), timestamp_ms=at_ms)


@pytest.mark.parametrize(
    ("stood", "is_taken"),
    [
        pytest.param(STOOD, True, id="the same topics"),
        pytest.param(attrs.evolve(STOOD, remote_topic_id=OTHER_ID), False, id="another remote topic"),
        pytest.param(attrs.evolve(STOOD, topic_id=OTHER_ID), False, id="a former topic of the name"),
        pytest.param(Position(ORDERS, 60), False, id="Java's, which may have gone elsewhere"),
    ],
)
def test_a_partition_goes_on_where_another_connector_stood(stood: Position, *, is_taken: bool) -> None:
    """With that one's producer, and where its records went."""
    chunk = LogRecord(chunk_key("A", ORDERS, 0, "first"), encode_chunk(CHUNK, TOPIC_ID))
    taken = taken_from_others([chunk, _kept("first", stood)], Flow("A", "B"), "second", {"first"}, {ORDERS: PLACE})

    assert taken.positions == ((stood,) if is_taken else ())
    assert [it.key for it in taken.chunks] == ([chunk_key("A", ORDERS, 0, "second")] if is_taken else [])


def test_what_a_connector_has_copied_since_it_took_over_stays() -> None:
    """The other one has left its position where it stood."""
    ours = attrs.evolve(STOOD, next_upstream=70, downstream=69, producer=ProducerMark(7, 1, 70))
    records = [_kept("first", STOOD), _kept("second", ours, at_ms=2)]

    assert not taken_from_others(records, Flow("A", "B"), "second", {"first"}, {ORDERS: PLACE}).positions
