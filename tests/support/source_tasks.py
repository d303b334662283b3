"""The source group's tasks over epochs that only pretend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import attrs

from mm2py.connectors.source.partitions import SourceTasks
from mm2py.connectors.topics.remote_topics import Mirrored
from mm2py.core.source.due import RemotePartition
from mm2py.model.epoch import (
    EpochOutcome,
    EpochPlan,
    LogOffsets,
    PartitionOutcome,
    ProducerMark,
)
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.positions import Position
from mm2py.pipeline.epoch_jobs import LostEpochs
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock
from tests.support.flow_rig import SETTINGS, changed, source_context


MARK = ProducerMark(7, 0, 0)
Answer = EpochOutcome | Exception
Script = Callable[[EpochPlan], Answer]


def copied(plan: EpochPlan, records: int = 10, **changes: object) -> EpochOutcome:
    """Make the outcome of an epoch in which every partition copied so many records."""
    return EpochOutcome(
        plan.flow,
        plan.task,
        plan.epoch,
        tuple(
            attrs.evolve(
                PartitionOutcome(
                    planned.source,
                    position=planned.position + records,
                    downstream=(planned.downstream or 0) + records,
                    is_unsure=False,
                    records=records,
                    bytes=records * 100,
                    log=LogOffsets(high_watermark=planned.position + records),
                    producer=planned.producer,
                ),
                **changes,
            )
            for planned in plan.partitions
        ),
    )


@attrs.define
class PretendedEpochs:
    """Epochs that take their time and then answer as the script says. Two writers of a partition are an error."""

    script: Script = copied
    plans: list[tuple[float, EpochPlan]] = attrs.field(factory=list)
    nudged: dict[int, asyncio.Event] = attrs.field(factory=dict)
    writers: dict[TopicPartition, int] = attrs.field(factory=dict)
    refusals: list[Exception] = attrs.field(factory=list)
    late: set[int] = attrs.field(factory=set)
    starts_s: float = 0.0
    lost: LostEpochs = attrs.field(factory=lambda: LostEpochs(LoopClock()))

    async def ready(self) -> None:
        if self.starts_s:
            await asyncio.sleep(self.starts_s)
            self.starts_s = 0.0
        if self.refusals:
            raise self.refusals.pop(0)

    async def run(self, plan: EpochPlan) -> EpochOutcome:
        self.plans.append((asyncio.get_running_loop().time(), plan))
        for planned in plan.partitions:
            assert self.writers.setdefault(planned.source, plan.task) == plan.task, f"two writers: {planned.source}"
        self.nudged[plan.task] = asyncio.Event()
        try:
            async with asyncio.timeout(plan.epoch_ms / 1000):
                await self.nudged[plan.task].wait()
        except TimeoutError:
            pass
        for planned in plan.partitions:
            del self.writers[planned.source]
        answer = self.script(plan)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def nudge(self, _flow: Flow, task: int) -> bool:
        if task in self.nudged:
            self.nudged[task].set()
        return task in self.nudged

    def is_waiting(self, _flow: Flow, _task: int) -> bool:
        return False

    def is_late(self, _flow: Flow, task: int) -> bool:
        return task in self.late

    async def settle(self, _flow: Flow) -> None:
        return

    def of_task(self, task: int) -> list[tuple[float, EpochPlan]]:
        return [(at, plan) for at, plan in self.plans if plan.task == task]


@attrs.define
class Group:
    """A source task group and what belongs to it."""

    tasks: SourceTasks
    epochs: PretendedEpochs
    events: EventLog


def mirrored(*partitions: int, topic: str = "t", topic_id: str | None = None) -> Mirrored:
    place = RemotePartition(f"A.{topic}", topic_id, 1_048_588)
    return Mirrored({TopicPartition(topic, number): place for number in partitions}, is_settled=True)


def positions(look: Mirrored, next_upstream: int = 0) -> dict[TopicPartition, Position]:
    return {it: Position(it, next_upstream, next_upstream - 1, "id-1", MARK) for it in look.places}


@asynccontextmanager
async def running(
    script: Script = copied,
    *,
    partitions: int = 4,
    tasks_max: int = 2,
    refusals: Sequence[Exception] = (),
    starts_s: float = 0.0,
) -> AsyncIterator[Group]:
    """Run a group over topic t and drain it at the end; Spark is up after *starts_s*, *refusals* come before that."""
    clock = LoopClock()
    events, epochs = EventLog(clock), PretendedEpochs(script, refusals=list(refusals), starts_s=starts_s)
    settings = changed(SETTINGS, copying=attrs.evolve(SETTINGS.source_connector.copying, tasks_max=tasks_max))
    tasks = SourceTasks(source_context(clock, events, settings), epochs)
    look = mirrored(*range(partitions))
    tasks.adopt(look, positions(look))
    async with asyncio.TaskGroup() as group:
        group.create_task(tasks.run())
        yield Group(tasks, epochs, events)
        tasks.drain()
