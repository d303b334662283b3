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
    #: When the newest of what is kept beside the position of a partition was written.
    _kept_ms: dict[TopicPartition, int] = attrs.field(factory=dict)

    def take(self, record: Kept, timestamp_ms: int | None) -> None:
        """Take a *record* of the connector, in the log's order."""
        found = self.stored.take(record)
        source = found.source if isinstance(found, Position) else found
        if isinstance(source, TopicPartition):
            self.written_ms[source] = max(self.written_ms.get(source, 0), timestamp_ms or 0)
        elif isinstance(found, KeptChunk):
            self._kept_ms[found.source] = max(self._kept_ms.get(found.source, 0), timestamp_ms or 0)

    def chunks_of(self, source: TopicPartition) -> Iterator[KeptChunk]:
        """Return where records of a partition went."""
        return (kept for (partition, _), kept in self.stored.chunks.items() if partition == source)

    def standing(self, source: TopicPartition) -> Position | None:
        """Return the position of a partition, with the producer that was claimed for it last."""
        position, claim = self.stored.positions.get(source), self.stored.claims.get(source)
        return position if position is None or claim is None else attrs.evolve(position, producer=claim.claimed)

    def at(self, source: TopicPartition) -> int:
        """Return when the position of a partition was written or removed; -1 if that is not known."""
        # Compaction takes away that it was removed, and leaves what is kept beside it.
        kept_ms = self._kept_ms.get(source, -1) if source in self.stored.removed else -1
        return max(self.written_ms.get(source, -1), kept_ms)

    @property
    def sources(self) -> set[TopicPartition]:
        """The partitions that have or had a position."""
        return self.written_ms.keys() | self.stored.removed

    def is_of_mm2py(self, source: TopicPartition) -> bool:
        """Whether mm2py has written, or an operator removed, the position of a partition."""
        position = self.stored.positions.get(source)
        # Java writes only how far it has come.
        return source in self.sources if position is None else position != Position(source, position.next_upstream)

    def without_mm2py(self) -> LeftPositions:
        """Return what Java has left: mm2py's is about what it copied to this cluster."""
        of_java = [it for it in self.stored.positions.values() if not self.is_of_mm2py(it.source)]
        stored = PositionsTopic(self.stored.cluster, self.stored.connector)
        stored.positions = {position.source: position for position in of_java}
        return LeftPositions(stored, {source: self.at(source) for source in stored.positions})


def newest(lefts: Iterable[LeftPositions]) -> dict[TopicPartition, LeftPositions]:
    """Return which of several connectors has written, or removed, the position of each partition last."""
    found: dict[TopicPartition, LeftPositions] = {}
    for left in lefts:
        for source in left.sources:
            if source not in found or left.at(source) > found[source].at(source):
                found[source] = left
    return found


def taken_over(ours: LeftPositions, others: Iterable[LeftPositions]) -> dict[TopicPartition, LeftPositions]:
    """
    Return the partitions whose position is to be one of the *others*', or removed as there, and which one's.

    What mm2py has written as *ours* counts, whatever the clocks of the nodes say that wrote them, unless one of the
    others has gone on from there; what Java has written does unless theirs is newer.
    """
    return {source: left for source, left in newest(others).items() if _is_ahead(left, ours, source)}


def _is_ahead(theirs: LeftPositions, ours: LeftPositions, source: TopicPartition) -> bool:
    if not ours.is_of_mm2py(source):
        return theirs.at(source) > ours.at(source) or source not in ours.sources
    one, own = theirs.stored.positions.get(source), ours.stored.positions.get(source)
    if one is None or own is None or not theirs.is_of_mm2py(source):
        return False
    if one.producer is None or own.producer is None or one.producer.producer_id != own.producer.producer_id:
        return theirs.at(source) > ours.at(source) and one.next_upstream > own.next_upstream
    # Who takes over a position renews its producer. Within an epoch copying only goes on.
    return (one.producer.producer_epoch, one.next_upstream) > (own.producer.producer_epoch, own.next_upstream)
