"""The offset translations of one flow: filled by the source group, used by the checkpoint group. They are in memory,
so that translating needs no cluster.

They are stored on the target, in the positions topic, right before the positions that depend on them, or with them. So
after a crash everything before a position is known, and the resume finds the records after it, one by one. Translations
beyond the position do no harm: the resume finds the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import attrs

from mm2py.core.offsets.known_offsets import KnownOffsets, follow_back, is_void, stored_index
from mm2py.core.offsets.translation import RunIndex, Translation, Untranslated, changed_chunks, chunk_count, cut_chunk
from mm2py.model.epoch import Ended, PartitionOutcome
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.offset_sync import OffsetSync
from mm2py.model.positions import Position
from mm2py.model.run_chunk import KeptChunk, chunk_key, encode_chunk
from mm2py.model.topic import is_other_topic
from mm2py.wire.topic_log import LogRecord


#: How many runs are kept in memory, of a flow and of one partition.
FLOW_RUNS: Final = 2_000_000
PARTITION_RUNS: Final = 200_000


def chunk_record(flow: Flow, kept: KeptChunk, connector: str) -> LogRecord:
    """Return the record of the positions topic in which *connector* keeps a chunk, or removes it if it is None."""
    key = chunk_key(flow.source, kept.source, kept.number, connector)
    return LogRecord(key, None if kept.chunk is None else encode_chunk(kept.chunk, kept.topic_id))


@attrs.frozen
class CopiedTopics:
    """Of which topics a translation is: the ids of source and remote topic, as far as they are known."""

    source_id: str | None = None
    remote_id: str | None = None


@attrs.define(eq=False)
class _Known(KnownOffsets):
    """What is known of one source partition, and of which topics of its names."""

    topic_id: str | None = None
    remote_topic_id: str | None = None


class Translations:
    """
    Translates offsets that groups commit: always that of the next record to read.

    Partitions have their name on the side of the offset. There are at most *flow_runs* runs, of 32 bytes each, and
    *partition_runs* of one partition; beyond that old ones are merged (`RunIndex.coarsen`).
    """

    def __init__(
        self,
        *,
        flow_runs: int = FLOW_RUNS,
        partition_runs: int = PARTITION_RUNS,
        unknown: Untranslated = Untranslated.NOT_MIRRORED,
    ) -> None:
        """Create them; *unknown* is the answer for partitions of which nothing is known once all has been read."""
        self._unknown_why = unknown
        self._flow_runs = flow_runs
        self._partition_runs = partition_runs
        self._known: dict[TopicPartition, _Known] = {}
        self._source_of: dict[TopicPartition, TopicPartition] = {}
        self._kept: dict[TopicPartition, list[KeptChunk]] = {}
        self._written: dict[TopicPartition, int] = {}
        self._is_ready = False
        #: How many runs are in memory.
        self._runs = 0

    # Queries.

    def downstream(self, source: TopicPartition, upstream: int) -> Translation:
        """Translate an offset of the *source* partition."""
        known = self._known.get(source)
        if known is None:
            return self._unknown()
        return known.downstream(upstream, self._unknown(), is_whole=True)

    def by_runs(self, source: TopicPartition, upstream: int) -> Translation:
        """Translate an offset of the *source* partition by what was copied by runs alone."""
        known = self._known.get(source)
        return self._unknown() if known is None or known.index is None else known.index.downstream(upstream)

    def upstream(self, remote: TopicPartition, downstream: int) -> Translation:
        """Translate an offset of the *remote* partition."""
        source = self._source_of.get(remote)
        known = self._known.get(source) if source is not None else None
        if known is None:
            return self._unknown()
        return known.upstream(downstream, self._unknown(), is_whole=True)

    def source_of(self, remote: TopicPartition) -> TopicPartition | None:
        """Return the source partition of a *remote* one, None for one that the flow does not write."""
        return self._source_of.get(remote)

    def knows(self, source: TopicPartition) -> bool:
        """Whether anything is known of a *source* partition."""
        return source in self._known

    def covered_to(self, source: TopicPartition) -> int:
        """Return up to which upstream offset it is known where records of a partition went; -1 if not at all."""
        known = self._known.get(source)
        return -1 if known is None or known.index is None else known.index.covered_to

    def topics_of(self, source: TopicPartition) -> CopiedTopics:
        """Return of which topics the translations of a *source* partition are."""
        known = self._known.get(source)
        return CopiedTopics() if known is None else CopiedTopics(known.topic_id, known.remote_topic_id)

    @property
    def is_ready(self) -> bool:
        """Whether what is stored has been read, at some time."""
        return self._is_ready

    def _unknown(self) -> Untranslated:
        return self._unknown_why if self._is_ready else Untranslated.NOT_READY

    # Updates by the source group.

    def load(self, kept: Iterable[KeptChunk]) -> None:
        """Add the records of the positions topic, before `adopt` selects the relevant ones."""
        self._kept, self._written = {source: [] for source in self._known}, {}
        for one in kept:
            if one.chunk is not None:
                self._kept.setdefault(one.source, []).append(one)
                self._written[one.source] = max(one.number + 1, self._written.get(one.source, 0))

    def adopt(self, positions: Mapping[TopicPartition, Position], remote_of: Mapping[TopicPartition, str]) -> None:
        """Translate for the partitions of *remote_of* from now on, which are copied from *positions* on. Translations
        of a re-created topic, on either side, are dropped.
        """
        for source, remote_topic in remote_of.items():
            self._source_of[TopicPartition(remote_topic, source.partition)] = source
            position = positions.get(source)
            if position is None:
                continue
            known, kept = self._known.get(source), self._kept.pop(source, None)
            if known is not None and position.is_of_others(known.topic_id, known.remote_topic_id):
                self.forget(source)
            known = self._known.setdefault(source, _Known())
            known.topic_id = position.topic_id or known.topic_id
            known.remote_topic_id = position.remote_topic_id or known.remote_topic_id
            if known.index is None or (kept is not None and _is_newer(kept, known.index, position)):
                self._runs -= len(known.index) if known.index is not None else 0
                known.index = stored_index(kept or (), position)
                self._runs += len(known.index) if known.index is not None else 0
            else:
                before = len(known.index)
                follow_back(known.index, position)
                self._runs += len(known.index) - before
        self._is_ready = True

    def account(self, outcome: PartitionOutcome, begun_at: int) -> None:
        """Add the runs of an epoch that began at upstream offset *begun_at*."""
        known = self._known.get(outcome.source)
        if known is None:
            return
        is_unproven = outcome.ended is Ended.UNPROVEN
        begun_at = begun_at if outcome.known_from is None or is_unproven else outcome.known_from
        end = None if outcome.downstream is None or outcome.is_unsure else outcome.downstream + 1
        if known.index is None:
            if not outcome.runs and end is None:
                return
            first = outcome.runs[0].downstream if outcome.runs else end
            known.index = RunIndex(begun_at, first or 0)
        index, before = known.index, len(known.index)
        index.take(begun_at, outcome.runs, outcome.position, end)
        if is_unproven and outcome.known_from is not None and outcome.downstream is not None:
            index.go_on(outcome.known_from, outcome.downstream + 1)
        self._runs += len(index) - before
        self._bound(index)

    def needs_syncs(self, source: TopicPartition) -> bool:
        """Whether offset syncs are useful for a source partition in addition to runs."""
        known = self._known.get(source)
        return known is None or known.index is None or not known.index.is_complete

    def learn(self, sync: OffsetSync) -> None:
        """Add an existing offset sync, in the order of the log."""
        self._known.setdefault(sync.source, _Known()).learn(sync)

    def note_remote(self, source: TopicPartition, remote_topic_id: str | None) -> None:
        """Note of which topic at the target the syncs of a *source* partition are."""
        self._known.setdefault(source, _Known()).remote_topic_id = remote_topic_id

    def go_back(self, position: Position) -> None:
        """Drop the translations of a partition from *position* on: the source has other records there now."""
        known = self._known.get(position.source)
        if known is not None and known.index is not None and position.downstream is not None:
            before = len(known.index)
            known.index.go_back(position.next_upstream, position.downstream + 1)
            self._runs += len(known.index) - before

    def forget(self, source: TopicPartition) -> None:
        """Drop the translations of a source partition: its topic, or its remote one, was re-created."""
        self._kept.pop(source, None)
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

    # Storage.

    def renew(self, source: TopicPartition, changed: Collection[KeptChunk], position: Position, remote: str) -> None:
        """Take over what another node, which copies a partition, has stored of it since."""
        known = self._known.get(source)
        chunks = {chunk.number: chunk for chunk in changed if chunk.chunk is not None}
        removed = {chunk.number for chunk in changed if chunk.chunk is None}
        is_same = known is not None and not position.is_of_others(known.topic_id, known.remote_topic_id)
        if known is not None and known.index is not None and is_same:
            left = set(range(chunk_count(known.index))) - removed - chunks.keys()
            chunks |= {it: KeptChunk(source, it, known.topic_id, cut_chunk(known.index, it)) for it in left}
        self.forget(source)
        self._kept[source] = list(chunks.values())
        self._written[source] = max(chunks, default=-1) + 1
        self.adopt({source: position}, {source: remote})

    def take_changes(self, sources: Collection[TopicPartition] | None = None) -> list[KeptChunk]:
        """Return the changes to write since the last call: first removals, then changed chunks, of *sources* or of all
        partitions. If they could not be written, they are returned to `put_back`.
        """
        removed: list[KeptChunk] = []
        changed: list[KeptChunk] = []
        for source in self._changed() if sources is None else sources:
            known = self._known.get(source)
            index = known.index if known is not None else None
            if index is None and source in self._kept:
                continue  # of a topic that is not mirrored at present
            count, written = chunk_count(index) if index is not None else 0, self._written.get(source, 0)
            removed += [KeptChunk(source, number) for number in range(count, written)]
            if index is not None and known is not None:
                changed += [
                    KeptChunk(source, number, known.topic_id, cut_chunk(index, number))
                    for number in changed_chunks(index)
                ]
                index.first_changed = None
            self._written[source] = count
        return removed + changed

    def _changed(self) -> list[TopicPartition]:
        """Return the partitions that may have changes, in order."""
        written = self._written
        found = [source for source, count in written.items() if count and source not in self._known]
        for source, known in self._known.items():
            index, count = known.index, written.get(source, 0)
            is_due = count > 0 if index is None else index.first_changed is not None or chunk_count(index) != count
            if is_due:
                found.append(source)
        return sorted(found)

    def everything(self) -> list[KeptChunk]:
        """Return the full content for the topic, keeping unwritten changes pending."""
        kept = [one for some in self._kept.values() for one in some]
        known = [(source, it.topic_id, it.index) for source, it in self._known.items() if it.index is not None]
        return [
            *kept,
            *(
                KeptChunk(source, number, topic_id, cut_chunk(index, number))
                for source, topic_id, index in known
                for number in range(chunk_count(index))
            ),
        ]

    def put_back(self, changes: Iterable[KeptChunk]) -> None:
        """Record that *changes* may not have been written."""
        for change in changes:
            self._written[change.source] = max(change.number + 1, self._written.get(change.source, 0))
            known = self._known.get(change.source)
            if known is not None and known.index is not None:
                known.index.first_changed = 0


def _is_newer(kept: Iterable[KeptChunk], index: RunIndex, position: Position) -> bool:
    """Whether another node has copied since *index* was in memory: what was *kept* reaches further, or by the
    *position* the target has lost records meanwhile.
    """
    valid = (one.chunk for one in kept if one.chunk is not None and not is_other_topic(one.topic_id, position.topic_id))
    return is_void(index, position) or max((it.covered_to for it in valid), default=-1) > index.covered_to
