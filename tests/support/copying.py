"""A copy task without Spark and without a daemon: epoch after epoch in this process, accounted for as a daemon does."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import attrs

from mm2py.clock import SystemClock
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import (
    CopyLimits,
    Ended,
    EpochOutcome,
    EpochPlan,
    PartitionFailure,
    PartitionOutcome,
    PartitionPlan,
    Run,
)
from mm2py.model.flow import Flow, TopicPartition
from mm2py.pipeline.copy.epoch import copy_epoch
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.wire.cluster import Cluster
from mm2py.wire.produce import init_producer_id
from tests.support.eventually import scaled
from tests.support.mirrored import await_arrived
from tests.support.topics import create_topic, end_offsets, leaders, list_topics, topic_configs


K = TypeVar("K")

FLOW = Flow("A", "B")

#: Short, so that every test crosses a few boundaries.
EPOCH_MS = 700
DRAIN_MS = 5_000

#: A partition that ended like this is not planned again here; a daemon would wait for an operator.
_STOPPED = frozenset(Ended) - {Ended.OK, Ended.INTERRUPTED}


def endpoint(alias: str, cluster: KafkaCluster, **settings: Any) -> ClusterEndpoint:
    """Return how to reach *cluster*."""
    return ClusterEndpoint(alias, tuple(cluster.bootstrap_servers.split(",")), **settings)


@attrs.define(eq=False, repr=False)
class Copying:
    """
    A copy task: what it is to copy, and what became of it so far.

    `plans` holds what the next epoch is told of each partition, `stopped` those that are not planned any more.
    """

    source: ClusterEndpoint
    target: ClusterEndpoint
    plans: dict[TopicPartition, PartitionPlan]
    limits: CopyLimits = attrs.field(factory=CopyLimits)
    epoch_ms: int = EPOCH_MS
    drain_ms: int = DRAIN_MS
    #: Ends an epoch early once it is there.
    stop_file: str | None = None
    outcomes: list[EpochOutcome] = attrs.field(factory=list)
    stopped: dict[TopicPartition, PartitionOutcome] = attrs.field(factory=dict)
    worker: WorkerState = attrs.field(factory=WorkerState)

    @classmethod
    async def of(cls, source: KafkaCluster, target: KafkaCluster, topics: Mapping[str, str], **settings: Any) -> Self:
        """
        Prepare to copy *topics*, source name to remote name, from their start.

        Remote topics that are not there are created with the source's partitions.
        """
        request_timeout_ms = settings.pop("request_timeout_ms", 30_000)
        replication = settings.pop("replication", 1)
        configs = settings.pop("configs", None)
        there = await list_topics(target.bootstrap_servers)
        plans = {}
        for topic, remote in topics.items():
            numbers = await leaders(source.bootstrap_servers, topic)
            if remote not in there:
                await create_topic(
                    target.bootstrap_servers, remote, partitions=len(numbers), replication=replication, configs=configs
                )
            limit = int((await topic_configs(target.bootstrap_servers, remote))["max.message.bytes"])
            for number in sorted(numbers):
                tp = TopicPartition(topic, number)
                plans[tp] = PartitionPlan(
                    tp, remote, 0, -1, is_unsure=False, max_message_bytes=limit, keeps_timestamps=True
                )
        return cls(
            endpoint("A", source, request_timeout_ms=request_timeout_ms),
            endpoint("B", target, request_timeout_ms=request_timeout_ms),
            plans,
            **settings,
        )

    def __repr__(self) -> str:
        return f"Copying({self.describe()})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.worker.close()

    async def epoch(self, *, epoch_ms: int | None = None) -> EpochOutcome:
        """Run one epoch and take over what it did."""
        outcome = await self.lost_epoch(epoch_ms=epoch_ms)
        for partition in outcome.partitions:
            self._account(partition)
        return outcome

    async def lost_epoch(self, *, epoch_ms: int | None = None) -> EpochOutcome:
        """Run one epoch of which the plans learn nothing but who wrote, as when the daemon was killed meanwhile."""
        self.plans = await fenced(self.plans, self.worker.cluster(self.target, SystemClock()))
        plan = EpochPlan(
            flow=FLOW,
            task=0,
            epoch=len(self.outcomes),
            source=self.source,
            target=self.target,
            partitions=tuple(plan for tp, plan in self.plans.items() if tp not in self.stopped),
            limits=self.limits,
            epoch_ms=epoch_ms or self.epoch_ms,
            drain_ms=self.drain_ms,
            stop_file=self.stop_file,
        )
        outcome = await copy_epoch(plan, SystemClock(), self.worker)
        self.outcomes.append(outcome)
        return outcome

    async def lose(self, remote: str, count: int) -> None:
        """Run an epoch that is lost once a remote topic holds so many records."""
        with tempfile.TemporaryDirectory() as folder:
            stop_file = Path(folder) / "stop"
            self.stop_file = str(stop_file)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.lost_epoch(epoch_ms=600_000))
                await await_arrived(",".join(self.target.bootstrap_servers), remote, count)
                stop_file.touch()
        self.stop_file = None

    def doubt(self, **changes: object) -> None:
        """Plan every partition as after a crash: what the target holds is to be found out."""
        self.plan(is_unsure=True, **changes)

    def plan(self, **changes: object) -> None:
        """Plan every partition with *changes* from now on."""
        self.plans = {tp: attrs.evolve(plan, **changes) for tp, plan in self.plans.items()}

    async def new_worker(self) -> None:
        """Forget connections, sessions and producer ids, as a new process would."""
        await self.worker.close()
        self.worker = WorkerState()

    async def run(self, until: Callable[[], bool], *, within_s: float = 60.0) -> None:
        """Run epochs until *until* holds, asked at each boundary."""
        deadline = asyncio.get_running_loop().time() + scaled(within_s)
        while not until():
            if asyncio.get_running_loop().time() > deadline:
                message = f"not copied within {within_s:g} s: {self.describe()}"
                raise AssertionError(message)
            await self.epoch()

    async def catch_up(self, *, within_s: float = 60.0) -> None:
        """Run epochs until everything that is in the source now has been copied, except for stopped partitions."""
        ends = await self.source_ends()
        await self.run(lambda: self.is_at(ends), within_s=within_s)

    async def source_ends(self) -> dict[TopicPartition, int]:
        """Return the end of each partition at the source."""
        bootstrap = ",".join(self.source.bootstrap_servers)
        return {
            TopicPartition(topic, number): end
            for topic in {tp.topic for tp in self.plans}
            for number, end in (await end_offsets(bootstrap, topic)).items()
        }

    def is_at(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether every partition that goes on has reached *ends* for sure."""
        return all(
            tp in self.stopped or (plan.position >= ends[tp] and not plan.is_unsure) for tp, plan in self.plans.items()
        )

    def runs(self, tp: TopicPartition) -> list[Run]:
        """Return what all epochs together told of where the records of a partition went."""
        return [run for o in self.outcomes for p in o.partitions if p.source == tp for run in p.runs]

    def total(self, fact: str) -> int:
        """Add up a count of the partitions' outcomes, such as ``batches_rebuilt``."""
        return sum(getattr(partition, fact) for outcome in self.outcomes for partition in outcome.partitions)

    def failure(self, tp: TopicPartition) -> PartitionFailure:
        """Return why a partition was stopped."""
        failure = self.stopped[tp].failure
        assert failure is not None, f"{tp} ended {self.stopped[tp].ended} without a reason"
        return failure

    def describe(self) -> str:
        """Report in a few lines how far it got, for a test that fails."""
        last = self.outcomes[-1] if self.outcomes else None
        lines = [f"{len(self.outcomes)} epochs, {sum(o.records for o in self.outcomes)} records"]
        lines += [f"{plan.source} at {plan.position} unsure={plan.is_unsure}" for plan in self.plans.values()]
        if last is not None:
            lines += [f"{p.source}: {p.ended.name} {p.failure}" for p in last.partitions if p.ended is not Ended.OK]
        return "\n".join(lines)

    def _account(self, outcome: PartitionOutcome) -> None:
        tp = outcome.source
        before = self.plans[tp]
        assert outcome.position >= before.position, f"{tp} went back from {before.position} to {outcome.position}"
        self.plans[tp] = attrs.evolve(
            before,
            position=outcome.position,
            downstream=outcome.downstream,
            is_unsure=outcome.is_unsure,
            producer=outcome.producer,
            leader=outcome.leader,
        )
        if outcome.ended in _STOPPED:
            self.stopped[tp] = outcome


async def fenced(plans: Mapping[K, PartitionPlan], target: Cluster) -> dict[K, PartitionPlan]:
    """Return those of *plans* that have none a producer, as the daemon does before it plans a partition."""
    if all(plan.producer is not None for plan in plans.values()):
        return dict(plans)
    await target.connect()
    mark = await init_producer_id(target)
    return {key: attrs.evolve(plan, producer=plan.producer or mark) for key, plan in plans.items()}


@asynccontextmanager
async def copying(
    source: KafkaCluster, target: KafkaCluster, topics: Mapping[str, str], **settings: Any
) -> AsyncIterator[Copying]:
    """Hold a copy task ready whose epochs the test runs; for *settings* see `Copying`."""
    task = await Copying.of(source, target, topics, **settings)
    async with task:
        yield task


async def copy_topics(
    source: KafkaCluster,
    target: KafkaCluster,
    topics: Mapping[str, str],
    *,
    until: Callable[[Copying], bool] | None = None,
    within_s: float = 60.0,
    **settings: Any,
) -> Copying:
    """Copy *topics* until everything that is there now has arrived or has stopped its partition, or *until* holds."""
    async with copying(source, target, topics, **settings) as task:
        if until is None:
            await task.catch_up(within_s=within_s)
        else:
            await task.run(lambda: until(task), within_s=within_s)
    return task


def assert_exactly_once(task: Copying) -> None:
    """Check what the outcomes say of the way: every run follows the one before it on both sides."""
    for tp in task.plans:
        runs = task.runs(tp)
        for before, after in itertools.pairwise(runs):
            assert after.upstream >= before.upstream + before.length, f"{tp}: {after} overlaps {before}"
            assert after.downstream >= before.downstream + before.length, f"{tp}: {after} overlaps {before}"
