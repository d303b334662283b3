"""A record task whose jobs, clusters and transactions are made up: what tests of micro-batches share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import attrs

from mm2py.clock import Clock
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import (
    CopyLimits,
    EpochOutcome,
    EpochPlan,
    PartitionOutcome,
    PartitionPlan,
    ProducerMark,
    Run,
    Transactions,
)
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.positions import Position
from mm2py.model.transform import Transform
from mm2py.pipeline.transform.micro_batch import MicroBatch, RecordTask
from mm2py.pipeline.transform.results import MicroBatchResult, RangeOutcome
from mm2py.pipeline.transform.transaction import Committer
from mm2py.pipeline.transform.transactional_micro_batch import TransactionalMicroBatch
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of
from tests.support.clocks import LoopClock


FLOW, TERMS = Flow("A", "B"), Transactions("mm2py-A->B-x", "positions", 60_000)
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
MARK = ProducerMark(7, 3, 40)
#: The source ends there; the target has records up to 49 and a marker after them.
SOURCE_END, TARGET_END = 110, 51
#: After the source's end, records of transactions that are open.
OPEN_END = 150


@attrs.define
class PretendedCommitter:
    """A committer that notes what is asked of it, and fails as the test decides."""

    stored: dict[TopicPartition, Position]
    fails_to_begin: Exception | None = None
    fails_to_commit: Exception | None = None
    fails_to_append: Exception | None = None
    is_open: bool = False
    is_begun: bool = False
    is_overdue: bool = False
    terms: Transactions = TERMS
    done: list[object] = attrs.field(factory=list)
    #: What another producer has committed since it was opened, if any.
    committed_since: dict[TopicPartition, Position] | None = None
    #: The remote partitions that each transaction began with.
    begun: list[list[TopicPartition]] = attrs.field(factory=list)

    async def open(self) -> Mapping[TopicPartition, Position]:
        self.done.append("open")
        self.is_open, self.is_begun = True, False
        return self.stored

    async def begin(self, remotes: Collection[TopicPartition], _sources: Collection[TopicPartition]) -> None:
        self.done.append("begin")
        self.begun.append(sorted(remotes))
        self.is_open, self.is_begun = False, True
        if self.fails_to_begin is not None:
            raise self.fails_to_begin

    def mark(self, _remote: TopicPartition) -> ProducerMark:
        return MARK

    def wrote(self, remote: TopicPartition, mark: ProducerMark) -> None:
        self.done.append((remote.partition, mark.sequence))

    async def append(self, _log: object, records: Sequence[object]) -> None:
        assert self.is_begun
        if self.fails_to_append is not None:
            raise self.fails_to_append
        self.done.append(("letters", len(records)))

    async def commit(self, positions: Collection[Position]) -> None:
        self.done.append([(it.source.partition, it.next_upstream, it.downstream, it.producer) for it in positions])
        if self.fails_to_commit is not None:
            raise self.fails_to_commit
        self.is_open, self.is_begun = True, False

    async def committed(self) -> Mapping[TopicPartition, Position]:
        self.done.append("committed")
        return self.committed_since if self.committed_since is not None else self.stored

    def give_way(self) -> None:
        self.is_open = self.is_begun = False

    async def undo(self) -> None:
        self.done.append("undo")
        self.is_begun = False


@attrs.define
class PretendedCluster:
    """Both clusters: every source partition ends at SOURCE_END, every remote one at TARGET_END. Some have no leader."""

    leaderless: Collection[TopicPartition] = ()

    async def ensure_metadata(self, _topics: Collection[str]) -> None:
        return

    async def list_offsets(
        self,
        partitions: Collection[TopicPartition],
        _when: int,
        *,
        reads_committed: bool = False,
        patience_s: float = 30.0,
    ) -> dict[Any, Any]:
        source_end = SOURCE_END if reads_committed else OPEN_END
        missing = {it for it in partitions if it in self.leaderless}
        if missing:
            await asyncio.sleep(patience_s)
        error = error_of(ErrorCode.LEADER_NOT_AVAILABLE, "A", "ListOffsets")
        ends = {it: TARGET_END if it.topic.startswith("A.") else source_end for it in partitions}
        return ends | dict.fromkeys(missing, error)


@attrs.define
class PretendedJobs:
    """Jobs that return what the test decides, and note the plans that they got."""

    answer: Callable[[EpochPlan], MicroBatchResult]
    plans: list[EpochPlan] = attrs.field(factory=list)
    alone: list[set[TopicPartition]] = attrs.field(factory=list)

    async def run(self, plan: EpochPlan, _clock: object, alone: Collection[TopicPartition]) -> MicroBatchResult:
        self.plans.append(plan)
        self.alone.append(set(alone))
        return self.answer(plan)

    async def stop(self, _clock: Clock) -> None:
        return


def planned(source: TopicPartition, *, downstream: int = 50) -> PartitionPlan:
    return PartitionPlan(source, "A.t", 100, downstream, is_unsure=False)


def written(one: PartitionPlan, **changes: Any) -> RangeOutcome:
    """Report that ten records of a partition were written after its end."""
    at = (one.downstream or 0) + 1
    outcome = PartitionOutcome(
        one.source, 110, at + 9, is_unsure=False, records=10, runs=(Run(100, at, 10),), producer=ProducerMark(7, 3, 50)
    )
    return RangeOutcome(attrs.evolve(outcome, **changes))


def unanswered(one: PartitionPlan) -> RangeOutcome:
    return written(one, is_unsure=True, position=100, downstream=50, records=0, runs=())


def failed(plan: EpochPlan, words: str, *, is_late: bool = False) -> MicroBatchResult:
    """Report that all ranges of a plan failed."""
    return MicroBatchResult((), {one.source: words for one in plan.partitions}, is_late)


@attrs.define
class MicroBatchRig:
    """A record task, and what its epochs find around them."""

    task: RecordTask
    committer: PretendedCommitter
    asked: PretendedJobs
    events: EventLog
    clock: LoopClock
    plans: Sequence[PartitionPlan]
    clusters: PretendedCluster = attrs.field(factory=PretendedCluster)

    async def run(self, kind: type[MicroBatch] = TransactionalMicroBatch) -> EpochOutcome:
        plan = EpochPlan(FLOW, 0, 0, ENDPOINT, ENDPOINT, tuple(self.plans), LIMITS, 500, 500, transactions=TERMS)
        return await kind(cast("Any", self), self.task, plan).run()

    async def outcomes(self, kind: type[MicroBatch] = TransactionalMicroBatch) -> dict[int, PartitionOutcome]:
        return {it.source.partition: it for it in (await self.run(kind)).partitions}

    async def jobs(self, _task: RecordTask, _plan: EpochPlan) -> PretendedJobs:
        return self.asked

    def cluster(self, _endpoint: ClusterEndpoint) -> Cluster:
        return cast("Cluster", self.clusters)


ENDPOINT = ClusterEndpoint("B", ("nowhere:1",))
LIMITS = CopyLimits(reads_committed=True)


def micro_batch_rig(
    answer: Callable[[EpochPlan], MicroBatchResult] | None = None, *plans: PartitionPlan
) -> MicroBatchRig:
    """Return a rig whose partitions are at 100, committed so, and whose jobs write what they get."""
    plans = plans or (planned(FIRST), planned(SECOND))
    committer = PretendedCommitter({it.source: Position(it.source, it.position, it.downstream) for it in plans})
    task = RecordTask(Transform("x", sql="SELECT 1"), committer=cast("Committer", committer))
    clock = LoopClock()
    jobs = PretendedJobs(answer or (lambda plan: MicroBatchResult(tuple(map(written, plan.partitions)))))
    return MicroBatchRig(task, committer, jobs, EventLog(clock), clock, plans)
