"""A source, and a target of which it is not known what has arrived: what tests of resuming share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import attrs

from mm2py.model.epoch import Ended, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.log_walk import LogWalker
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.pipeline.copy.resume import Resumer, Walks
from mm2py.pipeline.copy.slow_lines import SlowLines
from tests.support.batches import START_MS, Content, build_batch
from tests.support.clocks import LoopClock
from tests.support.in_process import InProcessCluster, InProcessPartition


TOPIC, REMOTE = "orders", "A.orders"


def record(number: int, *, delta: int = 0) -> Content:
    return Content(delta, START_MS + number, b"k%d" % number, b"%d" % number, (("h", None),))


@attrs.define
class ResumeRig:
    """A source, and a target of which it is not known what has arrived."""

    source: InProcessCluster
    target: InProcessCluster
    walks: Walks = attrs.field(factory=dict)
    resolved: list[PartitionCopy] = attrs.field(factory=list)

    @property
    def upstream(self) -> InProcessPartition:
        return self.source.partition(TOPIC)

    @property
    def downstream(self) -> InProcessPartition:
        return self.target.partition(REMOTE)

    async def known(self) -> None:
        """Have both clusters' leaders looked up."""
        await self.source.ensure_known([TOPIC])
        await self.target.ensure_known([REMOTE])

    async def resolve(
        self,
        copies: Sequence[PartitionCopy],
        resolved: Callable[[PartitionCopy], None] | None = None,
        *,
        reads_committed: bool = False,
    ) -> None:
        """Resolve partitions of clusters whose leaders are known, as an epoch does."""
        await self.known()
        logs = LogWalker(
            self.source, self.target, reads_committed=reads_committed, slow_lines=SlowLines(), epoch_ms=5_000
        )
        resumer = Resumer(self.source, self.target, LoopClock(), self.walks, logs)
        await resumer.resolve(copies, resolved or self.resolved.append)

    async def resume(
        self, position: int, downstream: int | None, *, reads_committed: bool = False, within_s: float = 20.0
    ) -> PartitionCopy:
        """Resume partition 0 from a position that is unsure."""
        copy = copy_of(0, position, downstream)
        try:
            async with asyncio.timeout(within_s):
                await self.resolve([copy], reads_committed=reads_committed)
        except TimeoutError:
            pass
        return copy

    def write_source(self, numbers: Sequence[int], *, batch: int = 3, gap: int = 0, codec: int = 0) -> None:
        """Write numbered records in batches with *gap* offsets of nothing after each."""
        for first in range(0, len(numbers), batch):
            some = numbers[first : first + batch]
            base = self.upstream.end
            records = [record(number, delta=delta) for delta, number in enumerate(some)]
            self.upstream.load(
                build_batch(records, base_offset=base, codec=codec, last_offset_delta=len(some) - 1 + gap)
            )

    def compact_source(self, kept: Sequence[int]) -> None:
        """Leave of the source's records only those at these offsets, whose numbers are their offsets."""
        self.upstream.truncate(0)
        for offset in kept:
            self.upstream.load(build_batch([record(offset)], base_offset=offset))

    def write_target(self, numbers: Sequence[int], *, batch: int = 4, attributes: int = 0) -> None:
        for first in range(0, len(numbers), batch):
            records = [record(number, delta=delta) for delta, number in enumerate(numbers[first : first + batch])]
            raw = build_batch(records, base_offset=self.downstream.end, attributes=attributes, max_timestamp=9)
            self.downstream.load(raw)


def copy_of(number: int, position: int, downstream: int | None) -> PartitionCopy:
    return PartitionCopy.of(PartitionPlan(TopicPartition(TOPIC, number), REMOTE, position, downstream, is_unsure=True))


def rig_of(partitions: int = 1, brokers: int = 1) -> ResumeRig:
    return ResumeRig(
        InProcessCluster.of("A", TOPIC, partitions, brokers=brokers),
        InProcessCluster.of("B", REMOTE, partitions, brokers=brokers),
    )


def known_pairs(copy: PartitionCopy) -> list[tuple[int, int]]:
    """Return upstream and downstream offset of every record whose place is known."""
    return [(run.upstream + n, run.downstream + n) for run in copy.runs for n in range(run.length)]


def assert_resumed(rig: ResumeRig, copy: PartitionCopy, *, position: int, downstream: int, records: int) -> None:
    assert rig.resolved == [copy]
    assert (copy.is_unsure, copy.retried_failure, copy.ended) == (False, None, Ended.OK)
    assert (copy.position, copy.fetching.position.offset, copy.downstream) == (position, position, downstream)
    assert copy.resumed_records == records
