"""What the positions topic says of one source cluster, whatever else other clients write there."""

from __future__ import annotations

from array import array

from mm2py.model.flow import TopicPartition
from mm2py.model.foreign import UnreadableRecord
from mm2py.model.positions import Position, encode_position, position_key
from mm2py.model.positions_topic import PositionsTopic
from mm2py.model.run_chunk import RunChunk, chunk_key, encode_chunk
from mm2py.wire.topic_log import LogRecord


ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 3)
CHUNK = RunChunk(
    0, 10, 0, 10, is_origin=True, starts=array("q", [0]), downs=array("q", [0]), spans=array("q", [10]),
    counts=array("q", [10]),
)  # fmt: skip


def position(source: TopicPartition, next_upstream: int, *, cluster: str = "A") -> LogRecord:
    key, value, headers = encode_position(cluster, Position(source, next_upstream, next_upstream - 1))
    return LogRecord(key, value, tuple(headers))


def removed(source: TopicPartition) -> LogRecord:
    return LogRecord(position_key("A", source), None)


def runs(source: TopicPartition, *, cluster: str = "A", is_there: bool = True) -> LogRecord:
    return LogRecord(chunk_key(cluster, source, 0), encode_chunk(CHUNK, None) if is_there else None)


def read(*records: LogRecord) -> PositionsTopic:
    stored = PositionsTopic("A")
    for record in records:
        stored.take(record)
    return stored


def test_the_last_record_of_a_key_counts() -> None:
    """Positions replace each other, and one that was removed and written again is there."""
    stored = read(position(ORDERS, 5), position(BILLS, 7), position(ORDERS, 9), removed(BILLS), removed(ORDERS))
    again = read(removed(ORDERS), position(ORDERS, 3))

    assert (stored.positions, stored.removed) == ({}, {ORDERS, BILLS})
    assert (list(again.positions.values()), again.removed) == ([Position(ORDERS, 3, 2)], set())


def test_what_cannot_be_read_is_as_if_it_were_not_there() -> None:
    """A record that only looks like a position leaves the one before it, and is returned as what it is."""
    stored = read(position(ORDERS, 5))
    found = stored.take(LogRecord(position_key("A", ORDERS), b'{"offset":"many"}'))

    assert isinstance(found, UnreadableRecord)
    assert stored.positions[ORDERS].next_upstream == 5


def test_other_flows_and_connectors_may_share_the_topic() -> None:
    """Positions and runs of another cluster, and what Connect's connectors keep, are nothing of ours."""
    other = LogRecord(b'["MirrorCheckpointConnector",{"group":"g"}]', b'{"offset":0}')
    stored = PositionsTopic("A")

    assert [stored.take(it) for it in (position(ORDERS, 5, cluster="C"), runs(ORDERS, cluster="C"), other)] == [
        None
    ] * 3
    assert (stored.positions, stored.chunks, stored.removed) == ({}, {}, set())


def test_positions_of_other_connectors_are_known_by_their_partitions() -> None:
    """Not what they stand at, nor what they have of another source; runs are no position."""
    key, value, headers = encode_position("A", Position(ORDERS, 5, 4), "other")
    theirs = LogRecord(key, value, tuple(headers))
    gone = LogRecord(position_key("A", ORDERS, "other"), None)
    index = LogRecord(chunk_key("A", BILLS, 0, "other"), encode_chunk(CHUNK, None))

    assert read(theirs, index, position(BILLS, 1, cluster="C")).of_others == {"other": {ORDERS}}
    assert read(theirs, gone).of_others == {"other": set()}


def test_runs_without_a_position_tell_that_it_was_removed() -> None:
    """Compaction forgets a removal in time; the runs beside it stay, until they are removed themselves."""
    assert read(runs(ORDERS)).removed == {ORDERS}
    assert read(runs(ORDERS), position(ORDERS, 10)).removed == set()
    assert read(runs(ORDERS), runs(ORDERS, is_there=False)).removed == set()
