"""Which of the positions that a worker's connectors have left a source connector goes on at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position
from mm2py.model.positions_topic import Kept, PositionsTopic
from mm2py.model.run_chunk import KeptChunk


@attrs.define(eq=False)
class LeftPositions:
    """The positions of one connector, and when each was written, or removed, last."""

    stored: PositionsTopic
    written_ms: dict[TopicPartition, int] = attrs.field(factory=dict)

    def take(self, record: Kept, timestamp_ms: int | None) -> None:
        """Take a *record* of the connector, in the log's order."""
        found = self.stored.take(record)
        source = found.source if isinstance(found, Position) else found
        if isinstance(source, TopicPartition):
            self.written_ms[source] = max(self.written_ms.get(source, 0), timestamp_ms or 0)

    def chunks_of(self, source: TopicPartition) -> Iterator[KeptChunk]:
        """Return where records of a partition went."""
        return (kept for (partition, _), kept in self.stored.chunks.items() if partition == source)

    def is_of_mm2py(self, source: TopicPartition) -> bool:
        """Whether mm2py has written, or an operator removed, the position of a partition."""
        position = self.stored.positions.get(source)
        if position is None:
            return source in self.written_ms
        return position.producer is not None or position.downstream is not None

    def without_mm2py(self) -> LeftPositions:
        """Return what Java has left: mm2py's is about what it copied to this cluster."""
        for source in list(filter(self.is_of_mm2py, self.stored.positions)):
            del self.stored.positions[source]
        return self


def newest(lefts: Iterable[LeftPositions]) -> dict[TopicPartition, LeftPositions]:
    """Return which of several connectors has the newest position of each partition."""
    found: dict[TopicPartition, LeftPositions] = {}
    for left in lefts:
        for source in left.stored.positions:
            if source not in found or left.written_ms[source] > found[source].written_ms[source]:
                found[source] = left
    return found


def taken_over(ours: LeftPositions, others: Iterable[LeftPositions]) -> dict[TopicPartition, LeftPositions]:
    """
    Return the partitions whose position is to be one of the *others*', and which one's.

    What mm2py has written as *ours* counts, whatever the clocks of the nodes say that wrote them; what Java has written
    does unless theirs is newer.
    """
    return {
        source: left
        for source, left in newest(others).items()
        if not ours.is_of_mm2py(source) and left.written_ms[source] > ours.written_ms.get(source, -1)
    }
