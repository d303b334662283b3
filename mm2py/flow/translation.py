"""
The offset translations of one flow: filled by the source group, asked by the checkpoint group.

What is asked lies in memory, so that asking needs no cluster. It is kept on the target beside the positions (see
`mm2py.flow.translation_keeper`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from mm2py.core.sync_store import Sync, SyncSlots
from mm2py.core.translation import RunIndex, Translated, Translation, Untranslated
from mm2py.model.epoch import PartitionOutcome
from mm2py.model.flow import TopicPartition
from mm2py.model.offset_sync import OffsetSync
from mm2py.model.positions import Position


@attrs.define
class _Known:
    """What is known of one source partition; None where no index could be begun yet."""

    topic_id: str | None = None
    index: RunIndex | None = None
    syncs: SyncSlots | None = None


class Translations:
    """
    Translates offsets that groups commit: always that of the next record to read.

    Partitions are asked for by their name at the side that the offset is of. There are at most *flow_runs* runs, and
    *partition_runs* of one partition; beyond that old ones are put together (`RunIndex.coarsen`).
    """

    def __init__(self, *, flow_runs: int, partition_runs: int) -> None:
        self._flow_runs = flow_runs
        self._partition_runs = partition_runs
        self._known: dict[TopicPartition, _Known] = {}
        self._source_of: dict[TopicPartition, TopicPartition] = {}
        self._is_ready = False
        self._runs = 0

    @property
    def runs(self) -> int:
        """Say how many runs are in memory."""
        return self._runs

    # Asking.

    def downstream(self, source: TopicPartition, upstream: int) -> Translation:
        """Translate an offset of the *source* partition."""
        known = self._known.get(source)
        if known is None:
            return self._unknown()
        index, syncs = known.index, known.syncs
        answer = index.downstream(upstream) if index is not None else self._unknown()
        if syncs is not None and (index is None or index.is_unknown(upstream)):
            answer = _better(answer, syncs.downstream(upstream), index.end if index is not None else None)
        return answer

    def upstream(self, remote: TopicPartition, downstream: int) -> Translation:
        """Translate an offset of the *remote* partition."""
        source = self._source_of.get(remote)
        known = self._known.get(source) if source is not None else None
        if known is None:
            return self._unknown()
        index, syncs = known.index, known.syncs
        answer = index.upstream(downstream) if index is not None else self._unknown()
        if syncs is not None and (index is None or index.is_unknown_at_target(downstream)):
            answer = _better(answer, syncs.upstream(downstream), index.covered_to if index is not None else None)
        return answer

    def source_of(self, remote: TopicPartition) -> TopicPartition | None:
        """Give the source partition of a *remote* one, None for one that the flow does not write."""
        return self._source_of.get(remote)

    def _unknown(self) -> Untranslated:
        return Untranslated.NOT_MIRRORED if self._is_ready else Untranslated.NOT_READY

    # Learning, which is the source group's.

    def adopt(self, positions: Mapping[TopicPartition, Position], remote_of: Mapping[TopicPartition, str]) -> None:
        """
        Translate for the partitions of *remote_of* from now on, which are copied from *positions* on.

        What is known of a topic that was deleted and created again is forgotten.
        """
        for source, remote_topic in remote_of.items():
            self._source_of[TopicPartition(remote_topic, source.partition)] = source
            position = positions.get(source)
            if position is None:
                continue
            known = self._known.get(source)
            if known is None or (known.topic_id and position.topic_id and known.topic_id != position.topic_id):
                self.forget(source)
                known = self._known[source] = _Known()
            known.topic_id = position.topic_id or known.topic_id
            if known.index is None and position.downstream is not None:
                is_origin = position.downstream < 0
                known.index = RunIndex(position.next_upstream, position.downstream + 1, is_origin=is_origin)
        self._is_ready = True

    def restore(self, source: TopicPartition, index: RunIndex, topic_id: str | None) -> None:
        """Take over what was known of a source partition in an earlier life."""
        self.forget(source)
        self._known[source] = _Known(topic_id, index)
        self._runs += len(index)

    def take(self, outcome: PartitionOutcome, *, begun_at: int) -> None:
        """Learn from what an epoch did, which began at upstream offset *begun_at*."""
        known = self._known.get(outcome.source)
        if known is None:
            return
        begun_at = begun_at if outcome.known_from is None else outcome.known_from
        end = None if outcome.downstream is None or outcome.is_unsure else outcome.downstream + 1
        if known.index is None:
            if not outcome.runs and end is None:
                return
            first = outcome.runs[0].downstream if outcome.runs else end
            known.index = RunIndex(begun_at, first or 0)
        index, before = known.index, len(known.index)
        index.take(begun_at, outcome.runs, outcome.position, end)
        self._runs += len(index) - before
        self._bound(index)

    def learn(self, sync: OffsetSync) -> None:
        """Take an offset sync that somebody wrote, in the order of the log."""
        known = self._known.setdefault(sync.source, _Known())
        point = Sync(sync.upstream, sync.downstream)
        if known.syncs is None:
            known.syncs = SyncSlots(point)
        else:
            known.syncs.add(point)

    def forget(self, source: TopicPartition) -> None:
        """Forget what is known of a source partition: its topic, or its remote one, is another now."""
        known = self._known.pop(source, None)
        if known is not None and known.index is not None:
            self._runs -= len(known.index)

    def _bound(self, index: RunIndex) -> None:
        while len(index) > self._partition_runs and self._coarsen(index):
            continue
        while self._runs > self._flow_runs:
            longest = max((known.index for known in self._known.values() if known.index is not None), key=len)
            if not self._coarsen(longest):
                return  # a run or two for each of very many partitions, which cannot be fewer

    def _coarsen(self, index: RunIndex) -> bool:
        before = len(index)
        index.coarsen()
        self._runs += len(index) - before
        return len(index) < before

    # Keeping, which is the keeper's.

    def indexes(self) -> Iterable[tuple[TopicPartition, RunIndex, str | None]]:
        """Give every index with the source topic's id."""
        for source, known in self._known.items():
            if known.index is not None:
                yield source, known.index, known.topic_id


def _better(ours: Translation, by_syncs: Translation, limit: int | None) -> Translation:
    """Give the one that says more: neither is ever ahead, so the greater is nearer."""
    if not isinstance(by_syncs, Translated):
        return ours
    if limit is not None and by_syncs.offset > limit:
        by_syncs = attrs.evolve(by_syncs, offset=limit)
    if isinstance(ours, Translated) and ours.offset >= by_syncs.offset:
        return ours
    return by_syncs
