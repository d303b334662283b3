"""
Offsets of a source cluster to those of its mirror, and back, from what the mirror keeps on the clusters.

A picture of one moment: what was known when it was read. mm2py's flows leave positions, with the offset at the
target; Java MirrorMaker 2 and mm2py leave offset syncs. Where several sources know an offset the one that is exact
counts, else the greatest, because none is ever ahead. Nothing beyond the present end of the remote partition is given
(MirrorMaker gives such offsets, and groups then have negative lag).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import attrs

from mm2py.client.records import KeptRuns, MirrorRecord, Removed, SourcePosition
from mm2py.core.offsets.stored_runs import put_together
from mm2py.core.offsets.sync_store import Sync, SyncSlots
from mm2py.core.offsets.translation import Precision, RunIndex, Translated, Translation, Untranslated
from mm2py.model.flow import TopicPartition
from mm2py.model.offset_sync import OffsetSync
from mm2py.model.positions import Position, decode_position
from mm2py.model.run_chunk import KeptChunk, decode_chunk
from mm2py.model.topic import is_other_topic
from mm2py.policy.replication import ReplicationPolicy


@attrs.define(eq=False)
class _Known:
    """What is known of one source partition. `synced_ms` is when its newest offset sync was written."""

    syncs: SyncSlots | None = None
    synced_ms: int = -1
    index: RunIndex | None = None


class KnownPartitions:
    """Gathers what lies in topics, record by record, until an `OffsetTranslation` is made of it."""

    def __init__(self, source_alias: str) -> None:
        self.source_alias = source_alias
        self._syncs: list[dict[TopicPartition, _Known]] = []
        self._positions: dict[TopicPartition, Position] = {}
        self._chunks: dict[TopicPartition, dict[int, KeptChunk]] = {}

    def begin_syncs(self) -> None:
        """Report that a topic of offset syncs begins; one that moved to the other cluster has two."""
        self._syncs.append({})

    def take_sync(self, record: MirrorRecord) -> None:
        """Learn an offset sync, in the order of the log."""
        if not isinstance(record.content, OffsetSync):
            return
        sync = Sync(record.content.upstream, record.content.downstream)
        known = self._syncs[-1].setdefault(record.content.source, _Known())
        if known.syncs is None:
            known.syncs = SyncSlots(sync)
        else:
            known.syncs.add(sync)
        known.synced_ms = record.timestamp_ms

    def take_position(self, record: MirrorRecord) -> None:
        """Learn a position, or a part of our index that lies beside it; what was removed is forgotten."""
        match record.content:
            case SourcePosition(self.source_alias, position):
                self._positions[position.source] = position
            case KeptRuns(self.source_alias, kept):
                self._chunks.setdefault(kept.source, {})[kept.number] = kept
            case Removed():
                match decode_position(record.key, None), decode_chunk(record.key, None):
                    case (self.source_alias, TopicPartition() as source), _:
                        self._positions.pop(source, None)
                    case _, (self.source_alias, KeptChunk() as kept):
                        self._chunks.get(kept.source, {}).pop(kept.number, None)

    def forget_other_topics(self, ids: Mapping[str, str | None]) -> None:
        """Forget what was kept of topics that have been deleted and created again; *ids* are the present ones."""

        def is_other(topic: str, kept_id: str | None) -> bool:
            return is_other_topic(kept_id, ids.get(topic))

        for source, position in list(self._positions.items()):
            if is_other(source.topic, position.topic_id):
                del self._positions[source]
        for source, chunks in self._chunks.items():
            self._chunks[source] = {at: one for at, one in chunks.items() if not is_other(source.topic, one.topic_id)}

    def partitions(self) -> frozenset[TopicPartition]:
        """Name the source partitions of which anything is known."""
        synced = {source for topic in self._syncs for source in topic}
        return frozenset(synced | {source for source in self._positions if self._index(source) is not None})

    def known(self) -> dict[TopicPartition, _Known]:
        """Put together what is known of each source partition."""
        found: dict[TopicPartition, _Known] = {}
        for topic in self._syncs:
            for source, known in topic.items():
                if source not in found or found[source].synced_ms < known.synced_ms:
                    found[source] = known
        for source in self.partitions():
            known = found.setdefault(source, _Known())
            known.index = self._index(source)
        return found

    def _index(self, source: TopicPartition) -> RunIndex | None:
        """
        Put together the index of a source partition.

        It is of no use without a position, nor where that shows another topic of the name, or a target that has lost
        records since. Java's position leaves the index as it is: what Java copied lies behind its end.
        """
        position = self._positions.get(source)
        if position is None:
            return None
        kept = self._chunks.get(source, {}).values()
        index = put_together(one for one in kept if one.topic_id in (None, position.topic_id or one.topic_id))
        if position.downstream is None:
            return index
        end = position.downstream + 1
        if index is None or (index.covered_to <= position.next_upstream and index.end > end):
            return RunIndex(position.next_upstream, end, is_origin=position.downstream < 0)
        index.take(position.next_upstream, (), position.next_upstream, end)
        return index


class OffsetTranslation:
    """
    Translates offsets as groups commit them: of the next record to read. Nothing is asked of a cluster any more.

    A translation is `Translated`, an offset and how precise it is, or `Untranslated`, the reason why there is none. It
    is never ahead: a group that goes on there may read records again, but skips none.
    """

    def __init__(
        self, gathered: KnownPartitions, policy: ReplicationPolicy, remote_ends: Mapping[TopicPartition, int]
    ) -> None:
        self.source_alias = gathered.source_alias
        self._known = gathered.known()
        self._remote_ends = dict(remote_ends)
        self._remote_of = remote_partitions(self._known, gathered.source_alias, policy)
        self._source_of = {remote: source for source, remote in self._remote_of.items()}

    @property
    def partitions(self) -> Mapping[TopicPartition, TopicPartition]:
        """The source partitions that something is known of, with the remote ones."""
        return dict(self._remote_of)

    def remote_of(self, source: TopicPartition) -> TopicPartition | None:
        """Return the remote partition of a *source* partition, None where nothing is known of it."""
        return self._remote_of.get(source)

    def source_of(self, remote: TopicPartition) -> TopicPartition | None:
        """Return the source partition of a *remote* one, None where nothing is known of it."""
        return self._source_of.get(remote)

    def downstream(self, source: TopicPartition, offset: int) -> Translation:
        """Translate an *offset* of a *source* partition to the remote one."""
        _check(offset)
        known = self._known.get(source)
        if known is None:
            return Untranslated.NOT_MIRRORED
        answers = []
        if known.index is not None:
            answers.append(known.index.downstream(offset))
        if known.syncs is not None:
            answers.append(known.syncs.downstream(offset))
        return _limited(_best(answers), self._remote_ends.get(self._remote_of[source]))

    def upstream(self, remote: TopicPartition, offset: int) -> Translation:
        """Translate an *offset* of a *remote* partition back to the source's, for the way back after a failover."""
        _check(offset)
        source = self._source_of.get(remote)
        if source is None:
            return Untranslated.NOT_MIRRORED
        known = self._known[source]
        answers = []
        if known.index is not None:
            answers.append(known.index.upstream(offset))
        if known.syncs is not None:
            answers.append(known.syncs.upstream(offset))
        return _best(answers)


def remote_partitions(
    sources: Collection[TopicPartition], alias: str, policy: ReplicationPolicy
) -> dict[TopicPartition, TopicPartition]:
    """Name the remote partition of each of *sources*."""
    return {tp: TopicPartition(policy.format_remote_topic(alias, tp.topic), tp.partition) for tp in sources}


def _best(answers: Iterable[Translation]) -> Translation:
    """Return the exact answer, else the greatest, else the reason why there is none."""
    reason: Translation = Untranslated.NOT_MIRRORED
    best: Translated | None = None
    for answer in answers:
        if not isinstance(answer, Translated):
            reason = answer
        elif best is None or (answer.is_exact, answer.offset) > (best.is_exact, best.offset):
            best = answer
    return reason if best is None else best


def _limited(answer: Translation, end: int | None) -> Translation:
    if end is not None and isinstance(answer, Translated) and answer.offset > end:
        return Translated(end, Precision.END)
    return answer


def _check(offset: int) -> None:
    if offset < 0:
        raise ValueError(f"offset must not be negative, as {offset} is")
