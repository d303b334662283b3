"""An epoch over two simulated clusters, run as a daemon would run it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

import attrs

from mm2py.model.epoch import (
    CopyLimits,
    EpochOutcome,
    EpochPlan,
    PartitionFailure,
    PartitionOutcome,
    PartitionPlan,
    ProducerMark,
)
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.rates import RateShare
from mm2py.pipeline.copy.epoch import copy_epoch
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.pipeline.copy.worker_state import WorkerState
from tests.support.batches import START_MS, Content, build_batch
from tests.support.clocks import LoopClock
from tests.support.in_process import InProcessCluster, InProcessPartition


TOPIC, REMOTE = "orders", "A.orders"
#: Ids of topics: they are created with the first one.
OLD_ID, NEW_ID = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
EPOCH_MS, DRAIN_MS = 1_000, 2_000
T = TypeVar("T")
_LEADER_EPOCH, _LEADER_EPOCH_AT = struct.Struct(">i"), 12


@attrs.define
class CopyRig:
    """Two simulated clusters and a worker that copies between them."""

    source: InProcessCluster
    target: InProcessCluster
    worker: WorkerState
    plans: dict[int, PartitionPlan]
    limits: CopyLimits = attrs.field(factory=CopyLimits)
    outcomes: list[EpochOutcome] = attrs.field(factory=list)
    _planned: tuple[PartitionPlan, ...] = ()

    async def epoch(
        self,
        *,
        epoch_ms: int = EPOCH_MS,
        drain_ms: int = DRAIN_MS,
        stop_file: str | None = None,
        is_lost: bool = False,
        rates: tuple[RateShare, ...] = (),
    ) -> EpochOutcome:
        """Run an epoch; of a lost one the plans learn nothing but who wrote."""
        plan = attrs.evolve(self.plan(), epoch_ms=epoch_ms, drain_ms=drain_ms, stop_file=stop_file, rates=rates)
        outcome = await copy_epoch(plan, LoopClock(), self.worker)
        await asyncio.sleep(0)  # a worker waits for the next plan
        self.outcomes.append(outcome)
        if not is_lost:
            self._account(outcome)
        return outcome

    async def epochs_until(self, watch: Coroutine[Any, Any, T], *, epoch_ms: int) -> T:
        """Run epochs until *watch*, which runs beside them, is done, and return its result."""
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch)
            while not watching.done():
                await self.epoch(epoch_ms=epoch_ms)
        return watching.result()

    async def arrives(self, number: int, end: int) -> float:
        """Wait until the target's partition ends at *end*, and return how long it took."""
        loop, partition = asyncio.get_running_loop(), self.remote(number)
        begun = loop.time()
        while partition.end < end:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.0005)
        return loop.time() - begun

    def fetched_by(self) -> dict[int, set[int]]:
        """Return the partitions in the session of each fetcher."""
        return {
            fetcher_id: {position.partition for topic in session._wanted.values() for position in topic.values()}
            for (_, _, fetcher_id), session in self.worker.sessions.items()
        }

    def upstream(self, number: int = 0) -> InProcessPartition:
        return self.source.partition(TOPIC, number)

    def remote(self, number: int = 0) -> InProcessPartition:
        return self.target.partition(REMOTE, number)

    def plan(self) -> EpochPlan:
        """Plan the next epoch: the same partitions as before, if nothing is new of any."""
        self._fence()
        if tuple(map(id, self.plans.values())) != tuple(map(id, self._planned)):
            self._planned = tuple(self.plans.values())
        clusters, epoch = (self.source.endpoint, self.target.endpoint), len(self.outcomes)
        return EpochPlan(Flow("A", "B"), 0, epoch, *clusters, self._planned, self.limits, EPOCH_MS, DRAIN_MS)

    def untouched(self) -> dict[TopicPartition, PartitionCopy]:
        """Return what the worker keeps, of partitions to which nothing has happened in the last epoch."""
        return {copy.plan.source: copy for kept in self.worker.untouched.values() for copy in kept.copies}

    def _account(self, outcome: EpochOutcome) -> None:
        for partition in outcome.partitions:
            number = partition.source.partition
            self.plans[number] = attrs.evolve(
                self.plans[number],
                position=partition.position,
                downstream=partition.downstream,
                is_unsure=partition.is_unsure,
                producer=partition.producer,
                leader=partition.leader,
            )

    def _fence(self) -> None:
        """Name a producer in those plans that have none, as the daemon does before it plans a partition."""
        nameless = [number for number, plan in self.plans.items() if plan.producer is None]
        if nameless:
            self.target.simulated.producer_ids += 1
            mark = ProducerMark(self.target.simulated.producer_ids, 0, 0)
            self.plans |= {number: attrs.evolve(self.plans[number], producer=mark) for number in nameless}

    def doubt(self) -> None:
        """Plan every partition as after a crash, in another process."""
        self.plans = {number: attrs.evolve(plan, is_unsure=True) for number, plan in self.plans.items()}
        self.worker = worker_of(self.source, self.target)

    def load(self, number: int, batches: int, *, records: int = 3, size: int = 10, leader_epoch: int = 0) -> None:
        """Write batches to the source whose values are their upstream offsets."""
        partition = self.upstream(number)
        for _ in range(batches):
            contents = [
                Content(n, START_MS, b"k", b"%d" % (partition.end + n) + b"." * (size - 10)) for n in range(records)
            ]
            batch = bytearray(build_batch(contents, base_offset=partition.end, producer=(99, 0, 0)))
            _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_AT, leader_epoch)
            partition.load(bytes(batch))

    def values(self, number: int = 0) -> list[int]:
        """Return the upstream offsets of what the target holds."""
        return [int((r.value or b"").rstrip(b".")) for r in self.remote(number).records()]


def worker_of(source: InProcessCluster, target: InProcessCluster) -> WorkerState:
    """Make a worker that knows the simulated clusters instead of connecting to real ones."""
    return WorkerState(clusters=cast("Any", {source.endpoint: source, target.endpoint: target}))


def rig_of(partitions: int = 2, *, brokers: int = 1, **limits: Any) -> CopyRig:
    """Make a topic at both clusters and plans to copy it from its start."""
    source = InProcessCluster.of("A", TOPIC, partitions, brokers=brokers)
    target = InProcessCluster.of("B", REMOTE, partitions, brokers=brokers)
    ids = {"topic_id": OLD_ID, "remote_topic_id": OLD_ID}
    plans = {
        number: PartitionPlan(TopicPartition(TOPIC, number), REMOTE, 0, -1, is_unsure=False, **ids)
        for number in range(partitions)
    }
    return CopyRig(source, target, worker_of(source, target), plans, CopyLimits(**limits))


def of(outcome: EpochOutcome, number: int = 0) -> PartitionOutcome:
    """Return what an *outcome* says of the partition with that number."""
    return next(p for p in outcome.partitions if p.source.partition == number)


def known(failure: PartitionFailure | None) -> PartitionFailure:
    """Return the failure that there must be."""
    assert failure is not None
    return failure
