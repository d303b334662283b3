"""
What a flow stores of where records went: checkpoints of groups, and the index of runs beside the positions. Each is
held against what the target has when it is written; offset syncs, which nothing fences, at peace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mm2py.model.checkpoint import Checkpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.run_chunk import KeptChunk
from tests.simulated.log import Batch, Partition


if TYPE_CHECKING:
    from tests.simulated.checks import Checker
    from tests.simulated.copied import Copied


#: offset.lag.max by default.
_LAG_MAX = 100


class Translated:
    """Judges what is committed to a flow's topics."""

    def __init__(self, checker: Checker) -> None:
        self.checkpoints_seen = self.runs_seen = 0
        self._checker = checker
        #: The last checkpoint, by group and remote partition: upstream and downstream, and the batch that it was in.
        self._last: dict[tuple[str, TopicPartition], tuple[int, int, Batch]] = {}

    def checkpoint(self, said: Checkpoint, batch: Batch) -> None:
        """
        A translated offset skips nothing that the group has not read, exists, and does not go back: unless a node that
        was replaced writes it, and it or the one that took over had no transactional id, which it has reported.
        """
        checker = self._checker
        remote = checker.remote(said.remote.topic, said.remote.partition)
        if remote is None or checker.is_unclean or checker.copied(remote).is_young:
            return
        self.checkpoints_seen += 1
        copied = checker.copied(remote)
        checker.read_source(copied)
        read = max(copied.before(said.upstream), copied.upto(remote.start))  # what is removed there cannot be read
        skipped = copied.upto(said.downstream)
        what = f"the checkpoint of {said.group} says {said.upstream} is {said.downstream} of {remote}"
        if said.downstream > remote.high_watermark:
            checker.fail(f"{what}, which ends at {remote.high_watermark}")
        elif skipped > read:
            checker.fail(f"{what}: it skips {skipped - read} records")
        key = said.group, said.remote
        upstream, downstream, last = self._last.get(key, (-1, -1, batch))
        self._last[key] = said.upstream, said.downstream, batch
        is_guarded = batch.writer == last.writer or (batch.is_transactional and last.is_transactional)
        if is_guarded and said.upstream >= upstream and said.downstream < downstream:
            checker.fail(f"{what}, and {upstream} was {downstream} before")

    def by_syncs(self, source: TopicPartition, offset: int) -> int:
        """
        Return what an offset is at least at the target by the last sync, and one more if it is past it. Of those before
        a store keeps some (`SyncSlots`).
        """
        found = [sync for sync in self._checker.syncs() if sync.source == source][-1:]
        return max((it.downstream + (offset > it.upstream) for it in found if it.upstream <= offset), default=0)

    def late_syncs(self, source: TopicPartition, copied: Copied) -> int:
        """
        Return how many copied records of a partition lie behind its last offset sync; 0 for no more than MirrorMaker's
        `offset.lag.max`. A nearer one is written for a partition at rest, but a few faults still keep it from that.
        """
        found = [sync for sync in self._checker.syncs() if sync.source == source]
        told = copied.before(found[-1].upstream + 1) if found else 0
        missing = copied.upto(copied.remote.high_watermark) - told
        return missing if missing > _LAG_MAX else 0

    def runs(self, kept: KeptChunk) -> None:
        """Each run of the index leads from records to the same ones. Of other ranges it claims nothing exact."""
        checker = self._checker
        if kept.chunk is None or checker.is_unclean:
            return
        remote = checker.remote_of(kept.source)
        if remote is None or not checker.is_about_now(kept.source):
            return
        copied, chunk = checker.copied(remote), kept.chunk
        if copied.may_repeat:
            return  # what came again is in two places
        checker.read_source(copied)
        for start, down, span, count in zip(chunk.starts, chunk.downs, chunk.spans, chunk.counts, strict=True):
            if span == count:
                self.runs_seen += 1
                self._run(copied, remote, start, down, count)

    def _run(self, copied: Copied, remote: Partition, start: int, down: int, count: int) -> None:
        wanted, there = copied.before(start + count), copied.upto(down + count)
        what = f"the index of {copied.source} says {count} records from {start} on are at {down} of {remote}"
        if wanted != there:
            self._checker.fail(f"{what}: {wanted} records lie before the end of the one, {there} before the other's")
        elif wanted - copied.before(start) != count:
            self._checker.fail(f"{what}: the source has {wanted - copied.before(start)} there")
