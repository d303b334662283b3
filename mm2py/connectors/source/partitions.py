"""The source task group: what each copy task copies. It passes plans to the copy tasks, and reassigns partitions when
that is worth it; `flow.source.outcomes` accounts for what came of them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from mm2py.connectors.context import SourceContext
from mm2py.connectors.measures import FlowMeasures, paused
from mm2py.connectors.plugins import transforms_of
from mm2py.connectors.source.copy_task import CopyTask
from mm2py.connectors.source.doubts import Doubts
from mm2py.connectors.source.holders import Holders
from mm2py.connectors.source.ledger import Ledger
from mm2py.connectors.source.outcomes import Outcomes
from mm2py.connectors.source.rates import RateShares
from mm2py.connectors.topics.remote_topics import Mirrored
from mm2py.core.source import due, progress
from mm2py.core.source.due import Plans
from mm2py.core.source.progress import PartitionState
from mm2py.model.epoch import EpochPlan, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.overrides import Overrides
from mm2py.model.positions import Position
from mm2py.model.rates import RateShare
from mm2py.model.state import PartitionStage, PartitionView, TaskState, TaskView
from mm2py.pipeline.epoch_jobs import EpochRunner


#: How often loads are compared.
_BALANCE_EVERY_S = 30.0
#: Poll interval for pauses that end while their copy task is busy with other partitions.
_RETRY_TICK_S = 0.5
#: How many views are made in one turn of the event loop.
_VIEWS_AT_ONCE = 1_000
#: How often in a producer's life its age is checked: once a minute.
_RENEWALS_IN_A_LIFE = 720


class SourceTasks:
    """
    The source tasks of one flow: what they are assigned and what they plan.

    `holders` has the assignment: a partition is held by at most one copy task. `ledger` has the states of partitions
    and their positions, `doubts` those whose history is in question; `outcomes` accounts for epochs.
    """

    def __init__(self, context: SourceContext, epochs: EpochRunner, measures: FlowMeasures | None = None) -> None:
        self._measures = measures or FlowMeasures(context.clock)
        self._config = config = context.config
        self._clock = context.clock
        #: Whether no epoch is planned.
        self.is_suspended = False
        self.limits = RateShares(context.clock)
        transforms = transforms_of(config)
        self.holders = Holders(config, transforms, context.events)
        self.ledger = Ledger(config, transforms, self.holders, context.clock)
        self.doubts = Doubts(context, self.ledger, self.holders, poke=self._poke_holder)
        self.outcomes = Outcomes(context, self.ledger, self.doubts, limits=self.limits, measures=self._measures)
        #: When `renew` last saw the partitions of each copy task; wall time.
        self._renewed_ms: dict[int, int] = {}
        self._states = self.ledger.states
        self._changes = self._states.changes()
        #: What each copy task planned last, of which partitions and under which overrides, and what changed since.
        self._plans: dict[int, tuple[Sequence[TopicPartition], Overrides, Plans]] = {}
        self._changed: dict[int, set[TopicPartition]] = {}
        self._tasks = [
            CopyTask(
                context,
                task,
                transform,
                planner=self,
                accounts=self.outcomes,
                epochs=epochs,
                name_by_policy=transforms.name_by_policy,
            )
            for task, transform in enumerate([*transforms.tasks, *([None] * config.copying.tasks_max)])
        ]

    # What there is to copy.

    @property
    def copy_tasks(self) -> int:
        return self.holders.copy_tasks

    def adopt(
        self,
        mirrored: Mirrored,
        positions: Mapping[TopicPartition, Position],
        unwritten: Collection[TopicPartition] = (),
    ) -> None:
        """Copy the partitions of *mirrored* from now on; new ones begin at *positions*: see `Ledger`."""
        self.ledger.adopt(mirrored, positions, unwritten)
        for state in self.ledger.mirrored():
            place = mirrored.places[state.source]
            self.doubts.compare(state, place.topic_id, place.remote_topic_id)
        self._assign()

    # Who copies it.

    def suspend(self, *, is_suspended: bool) -> None:
        """Plan no epoch while *is_suspended*, and end those that run."""
        if is_suspended != self.is_suspended:
            self.is_suspended = is_suspended
            self._poke(range(len(self._tasks)))

    def _assign(self) -> None:
        self._poke(self.holders.assign({state.source: state.bytes_per_s for state in self.ledger.mirrored()}))

    def _poke(self, tasks: Iterable[int]) -> None:
        for task in sorted(tasks):
            self._tasks[task].poke()

    def _poke_holder(self, source: TopicPartition) -> None:
        holder = self.holders.holder_of(source)
        if holder is not None:
            self._poke([holder])

    def _own(self, task: int) -> list[PartitionState]:
        overrides, own = self.ledger.overrides, self.holders.of_task(task)
        if not overrides.has_pauses:
            return [self._states[it] for it in own]
        return [self._states[it] for it in own if not overrides.is_paused(it)]

    def take_partitions(self, task: int) -> tuple[PartitionPlan, ...]:
        if self.is_suspended:
            return ()
        self._renew(task)
        plans = self._plans_of(task)
        partitions = plans.next(self._states, self._changed.pop(task, ()), now=self._clock.monotonic())
        if not all(self._states[it].is_fenced for it in plans.left):
            self.ledger.has_unfenced.set()
        if partitions:
            self.holders.hold(task, plans.by_source.keys())
        return partitions

    def _plans_of(self, task: int) -> Plans:
        """Return what *task* planned last, unless it is assigned other partitions now, or others are paused."""
        owners = self.holders.owners
        for source in self._changes:
            if source in owners:
                self._changed.setdefault(owners[source], set()).add(source)
        self._changes.clear()
        own, overrides = self.holders.of_task(task), self.ledger.overrides
        found = self._plans.get(task)
        if found is None or found[0] is not own or found[1] is not overrides:
            found = self._plans[task] = own, overrides, Plans(state.source for state in self._own(task))
        return found[2]

    def _renew(self, task: int) -> None:
        """Have producers replaced that brokers may have forgotten; a machine that was suspended shows by the time."""
        wall_ms = self._clock.wall_ms()
        if abs(wall_ms - self._renewed_ms.get(task, -math.inf)) >= progress.PRODUCER_LIFE_MS / _RENEWALS_IN_A_LIFE:
            self._renewed_ms[task] = wall_ms
            self.ledger.renew(self.holders.of_task(task))

    def rates(self, task: int, partitions: tuple[PartitionPlan, ...]) -> tuple[RateShare, ...]:
        if not self.limits.has_limits:
            return ()
        busy = {it: owner for it, owner in self.holders.owners.items() if not self.ledger.overrides.is_paused(it)}
        return self.limits.plan(task, [plan.source for plan in partitions], busy)

    def next_retry_at(self, task: int) -> float | None:
        if self.is_suspended:
            return None
        return due.next_retry_at(self._own(task))

    def put_back(self, plan: EpochPlan) -> None:
        self.limits.put_back(plan)
        self._poke(self.holders.put_back(plan.task))

    def note_fenced(self, positions: Collection[Position]) -> None:
        """Copy the partitions whose *positions* are written now, as soon as possible."""
        for position in positions:
            if position.source in self._states:
                self._states[position.source] = due.fence(self._states[position.source], position)
        self._poke(self.holders.heirs(position.source for position in positions))

    # What operators ask for.

    def apply_overrides(self, overrides: Overrides) -> None:
        """Apply the pauses and rate limits of *overrides* as soon as possible."""
        before, self.ledger.overrides = self.ledger.overrides, overrides
        owners = self.holders.owners
        changed = {it for it in self.ledger.places if before.is_paused(it) != overrides.is_paused(it)}
        holders = {it: self.holders.holder_of(it) for it in changed}
        tasks = {owners.get(it, -1) if holder is None else holder for it, holder in holders.items()} - {-1}
        if self.limits.apply_overrides(overrides):
            tasks |= set(self.holders.held)
        if changed:
            self.doubts.has_questions.set()
        self._poke(tasks)

    def restart(self, task: int) -> None:
        """Have a copy task end its epoch, and try or check at once what is pausing of its partitions."""
        now = self._clock.monotonic()
        for state in self._own(task):
            self._states[state.source] = progress.hasten(state, now=now)
        self.doubts.has_questions.set()
        self._tasks[task].restart()

    def ailing(self) -> tuple[int, ...]:
        """Return the copy tasks whose epoch was lost, or which have partitions that are pausing or stopped."""
        return tuple(
            task
            for task in self.holders.running
            if self._tasks[task].view(0).state in (TaskState.BACKING_OFF, TaskState.LATE)
            or any(state.stage is not PartitionStage.COPYING for state in self._own(task))
        )

    # Running.

    async def run(self) -> None:
        """Run all copy tasks until they are drained."""
        async with asyncio.TaskGroup() as tasks:
            others = [
                tasks.create_task(self._balance_forever(), name=f"{self._config.flow}/source/balance"),
                tasks.create_task(self._retry_forever(), name=f"{self._config.flow}/source/retry"),
            ]
            async with asyncio.TaskGroup() as copying:
                for task in self._tasks:
                    copying.create_task(task.run(), name=f"{self._config.flow}/source/{task.task}")
            for other in others:
                other.cancel()

    def drain(self) -> None:
        """End all epochs in good order and run no further ones."""
        for task in self._tasks:
            task.drain()

    def reopen(self) -> None:
        """Let `run` run epochs again that a drain had ended."""
        for task in self._tasks:
            task.reopen()

    async def _balance_forever(self) -> None:
        """Compare loads again and again; while nothing is copied they stay what they were."""
        was_loaded = True
        while True:
            await self._clock.sleep(_BALANCE_EVERY_S)
            is_loaded = any(self._states[it].bytes_per_s for it in self._states.moving)
            if is_loaded or was_loaded:
                self._assign()
            was_loaded = is_loaded

    async def _retry_forever(self) -> None:
        """Have partitions whose pause is over planned at once, not only when the epoch of the others ends."""
        while True:
            await self._clock.sleep(_RETRY_TICK_S)
            now = self._clock.monotonic()
            over = {partition for partition in self.ledger.pausing if self._states[partition].retry_at <= now}
            self.ledger.pausing -= over
            self._poke(self.holders.heirs(over))

    # Looking at it.

    @property
    def stopped(self) -> int:
        """How many partitions are stopped; one that an operator paused is only until no copy task holds it."""
        ledger = self.ledger
        found = [it.source for it in self._states.of_notable() if it.stage is PartitionStage.STOPPED]
        return sum(it in ledger.places and (ledger.is_wanted(it) or self.holders.is_held(it)) for it in found)

    def task_views(self) -> tuple[TaskView, ...]:
        owned = self.holders.owned
        return tuple(self._measures.task(self._tasks[task].view(owned(task))) for task in self.holders.running)

    async def prepare_views(self) -> None:
        """Make those views that are kept, those of partitions that stand still, in turns with all other work."""
        states = self.ledger.mirrored()
        for at in range(0, len(states), _VIEWS_AT_ONCE):
            self._measures.partitions(states[at : at + _VIEWS_AT_ONCE], self.holders.owners)
            await self._clock.sleep(0)

    def partition_views(self) -> tuple[PartitionView, ...]:
        views = self._measures.partitions(self.ledger.mirrored(), self.holders.owners)
        if not self.ledger.overrides.has_pauses:
            return views
        is_paused, is_held = self.ledger.overrides.is_paused, self.holders.is_held
        return tuple(paused(it, is_held=is_held(it.source)) if is_paused(it.source) else it for it in views)
