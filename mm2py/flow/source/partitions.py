"""The source task group: what each copy task copies, and the outcomes. It has the state of every mirrored
topic-partition, passes plans to the copy tasks, accounts for their outcomes, and reassigns partitions when that is
worth it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.core.lag import tells_end
from mm2py.core.sharing import flow_tasks
from mm2py.core.source import due, progress
from mm2py.core.source.progress import Occurrence, PartitionState, RetryPauses
from mm2py.flow.measures import FlowMeasures, paused
from mm2py.flow.plugins import transforms_of
from mm2py.flow.source.copy_task import CopyTask, Epochs
from mm2py.flow.source.doubts import Doubts
from mm2py.flow.source.epoch_events import epoch_ended, partition_news
from mm2py.flow.source.holders import Holders
from mm2py.flow.source.ledger import Ledger
from mm2py.flow.source.rates import RateShares
from mm2py.flow.topics.remote_topics import Mirrored
from mm2py.model.epoch import (
    EpochOutcome,
    EpochPlan,
    PartitionFailure,
    PartitionOutcome,
    PartitionPlan,
)
from mm2py.model.flow import TopicPartition
from mm2py.model.overrides import Overrides
from mm2py.model.positions import Position
from mm2py.model.rates import RateShare
from mm2py.model.share import Share, whole_share
from mm2py.model.state import PartitionStage, PartitionView, TaskState, TaskView
from mm2py.model.topic import is_other_topic
from mm2py.telemetry.journal import EventLog


#: How often loads are compared.
_BALANCE_EVERY_S = 30.0
#: Poll interval for pauses that end while their copy task is busy with other partitions.
_RETRY_TICK_S = 0.5
#: Outcomes that are accounted for in one turn of the event loop.
_ACCOUNTED_A_TURN = 500

#: Called with an epoch's outcome for a partition, and its first upstream offset.
Listener = Callable[[PartitionOutcome, int], None]


@attrs.frozen
class _EndedEpoch:
    """An epoch that has come back, and when."""

    plan: EpochPlan
    outcome: EpochOutcome
    took_s: float
    at: float
    jitter: float


class SourceTasks:
    """
    The source tasks of one flow: assignment and outcomes.

    `holders` has the assignment: a partition is held by at most one copy task. `ledger` has the states of partitions
    and their positions, `doubts` those whose history is in question.
    """

    def __init__(
        self,
        settings: FlowSettings,
        epochs: Epochs,
        *,
        clock: Clock,
        events: EventLog,
        jitter: Callable[[], float],
        measures: FlowMeasures | None = None,
    ) -> None:
        #: What is counted and outlives this life of the group.
        self.measures = measures or FlowMeasures(clock)
        self.is_interrupted = asyncio.Event()
        #: New refusals of clusters to copy tasks, one of each kind.
        self.refusals: dict[tuple[str, str], PartitionFailure] = {}
        #: Called for each outcome of a partition, once it is accounted for.
        self.listeners: list[Listener] = []
        self._settings = settings
        self._clock = clock
        self._events = events
        self._jitter = jitter
        self._pauses = RetryPauses()
        self._pausing: set[TopicPartition] = set()
        #: Whether no epoch is planned.
        self.is_suspended = False
        #: What of the flow is copied here.
        self.share = whole_share(flow_tasks(settings)[0])
        #: Set when a task returned partitions.
        self._returned = asyncio.Event()
        self._rates = RateShares(clock)
        self._transforms = transforms_of(settings)
        self.holders = Holders(settings, self._transforms, events)
        self.ledger = Ledger(settings, self._transforms, self.holders, clock)
        self.doubts = Doubts(
            settings.flow,
            self.ledger,
            self.holders,
            pausing=self._pausing,
            poke=self._poke_holder,
            clock=clock,
            events=events,
            jitter=jitter,
        )
        self._holder, self._states = self.holders.holder, self.ledger.states
        self._tasks = [
            CopyTask(settings, task, transform, planner=self, epochs=epochs, clock=clock, events=events, jitter=jitter)
            for task, transform in enumerate([*self._transforms.tasks, *([None] * settings.copying.tasks_max)])
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
            self.doubts.compare(state, mirrored.places[state.source])
        self._assign()

    # Who copies it.

    def take_share(self, share: Share) -> None:
        """Run the tasks of *share* from the next `adopt` on."""
        self.share, self.holders.tasks = share, share.tasks

    def is_ours(self, source: TopicPartition) -> bool:
        """Whether a partition is part of our share: its record task, or else its hash slot."""
        task = self._transforms.task_of(source.topic)
        return self.share.has(source) if task is None else task in self.share.tasks

    async def until_returned(self, partitions: Collection[TopicPartition]) -> None:
        """Wait until no task holds any of *partitions*, and nothing can write them any more."""
        while any(self.holders.is_held(it) for it in partitions):
            self._returned.clear()
            await self._returned.wait()
        quiet = max((self._states[it].quiet_until for it in partitions if it in self._states), default=0.0)
        await self._clock.sleep(max(0.0, quiet - self._clock.monotonic()))

    def take_part(self, everything: Collection[TopicPartition]) -> None:
        """Use this node's part of the flow's rate limits; the flow mirrors *everything*."""
        self._rates.take_part([it for it in everything if self.is_ours(it)], everything)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop what is known of *partitions*, which another node copies from now on."""
        for source in partitions:
            self._states.pop(source, None)
            self._pausing.discard(source)

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
        if source in self._holder:
            self._poke([self._holder[source]])

    def _own(self, task: int) -> list[PartitionState]:
        overrides, own = self.ledger.overrides, self.holders.of_task(task)
        if not overrides.has_pauses:
            return [self._states[it] for it in own]
        return [self._states[it] for it in own if not overrides.is_paused(it)]

    def take_partitions(self, task: int) -> tuple[PartitionPlan, ...]:
        if self.is_suspended:
            return ()
        self.ledger.renew(self.holders.of_task(task))
        own = self._own(task)
        if not all(state.is_fenced for state in own):
            self.ledger.has_unfenced.set()
        plans = due.next_plans(own, now=self._clock.monotonic())
        self._holder |= {plan.source: task for plan in plans}
        return plans

    def rates(self, task: int, partitions: tuple[PartitionPlan, ...]) -> tuple[RateShare, ...]:
        if not self._rates.has_limits:
            return ()
        busy = {it: owner for it, owner in self.holders.owners.items() if not self.ledger.overrides.is_paused(it)}
        return self._rates.plan(task, [plan.source for plan in partitions], busy)

    def next_retry_at(self, task: int) -> float | None:
        if self.is_suspended:
            return None
        return due.next_retry_at(self._own(task))

    def put_back(self, plan: EpochPlan) -> None:
        self._rates.put_back(plan)
        sources = [partition.source for partition in plan.partitions]
        for source in sources:
            self._holder.pop(source, None)
        self._returned.set()
        self._poke(self.holders.heirs(sources) - {plan.task})

    def note_fenced(self, positions: Collection[Position]) -> None:
        """Copy the partitions whose *positions* are written now, as soon as possible."""
        for position in positions:
            if position.source in self._states:
                self._states[position.source] = due.fence(self._states[position.source], position)
        self._poke(self.holders.heirs(position.source for position in positions))

    # What became of it.

    async def account(self, plan: EpochPlan, outcome: EpochOutcome, *, took_s: float) -> None:
        # One moment for all: what failed together comes back together.
        ended = _EndedEpoch(plan, outcome, took_s, self._clock.monotonic(), self._jitter())
        self.measures.account(plan, outcome, took_s)
        self._rates.account(plan, outcome, took_s)
        outcomes = {partition.source: partition for partition in outcome.partitions}
        left = iter(plan.partitions)
        try:
            # Others have a turn of the event loop now and then: these partitions are held until they are put back.
            for _ in range(len(plan.partitions) // _ACCOUNTED_A_TURN):
                for planned in itertools.islice(left, _ACCOUNTED_A_TURN):
                    self._account(ended, planned, outcomes.get(planned.source))
                await self._clock.sleep(0)
        finally:
            for planned in left:
                self._account(ended, planned, outcomes.get(planned.source))
        lag = sum(self._states[planned.source].lag or 0 for planned in plan.partitions)
        self._events.emit(epoch_ended(plan, outcome, took_s, lag))

    def _account(self, ended: _EndedEpoch, planned: PartitionPlan, partition: PartitionOutcome | None) -> None:
        """Take over what became of one partition; None if nothing was learnt but that the end is where it was."""
        before, fetches = self._states[planned.source], ended.outcome.fetches
        if is_other_topic(planned.topic_id, before.topic_id):
            return  # its outcome belongs to an earlier topic with the name
        if partition is None and not before.bytes_per_s and before.retry_at <= ended.at:
            # As it is with most of very many.
            if tells_end(None, before, fetches=fetches):
                self.measures.look(before)
            return
        accounted = progress.account(
            before, partition, elapsed_s=ended.took_s, now=ended.at, jitter=ended.jitter, pauses=self._pauses
        )
        after = self._states[planned.source] = accounted.state
        if partition is not None and partition.records:
            self.ledger.note_produced(planned.source)
        if ended.plan.transactions is not None and after.position > before.position:
            self.ledger.note_committed(after)
        if tells_end(partition, after, fetches=fetches):
            self.measures.look(after)
        if after.retry_at > ended.at:
            self._pausing.add(planned.source)
        for occurrence in accounted.occurrences:
            self._tell(occurrence, before, after)
        self._pass_on(partition, before.position)

    def _pass_on(self, partition: PartitionOutcome | None, begun_at: int) -> None:
        if partition is not None:
            for listener in self.listeners:
                listener(partition, begun_at)

    def account_lost(self, plan: EpochPlan, cause: str, *, retry_at: float, quiet_until: float) -> None:
        self.measures.lose(plan, cause)
        for planned in plan.partitions:
            state = self._states[planned.source]
            self._states[planned.source] = progress.lose(state, retry_at=retry_at, cause=cause, quiet_until=quiet_until)

    def _tell(self, occurrence: Occurrence, before: PartitionState, after: PartitionState) -> None:
        event = partition_news(self._settings.flow, occurrence, before, after, now=self._clock.monotonic())
        if event is not None:
            self._events.emit(event)
        if occurrence is Occurrence.INTERRUPTED:
            if after.failure is not None and after.failure.cluster:
                self.refusals[after.failure.cluster, after.failure.hint] = after.failure
            self.is_interrupted.set()
        elif occurrence is Occurrence.QUESTIONED:
            self.doubts.has_questions.set()

    # What operators ask for.

    def apply_overrides(self, overrides: Overrides) -> None:
        """Apply the pauses and rate limits of *overrides* as soon as possible."""
        before, self.ledger.overrides = self.ledger.overrides, overrides
        owners = self.holders.owners
        changed = {it for it in self.ledger.places if before.is_paused(it) != overrides.is_paused(it)}
        tasks = {self._holder.get(partition, owners.get(partition, -1)) for partition in changed} - {-1}
        if self._rates.apply_overrides(overrides):
            tasks |= set(self._holder.values())
        if changed:
            self.doubts.has_questions.set()
        self._poke(tasks)

    def restart(self, task: int) -> None:
        """Have a copy task end its epoch, and try at once what is pausing of its partitions."""
        now = self._clock.monotonic()
        for state in self._own(task):
            self._states[state.source] = progress.hasten(state, now=now)
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
                tasks.create_task(self._balance_forever(), name=f"{self._settings.flow}/source/balance"),
                tasks.create_task(self._retry_forever(), name=f"{self._settings.flow}/source/retry"),
            ]
            async with asyncio.TaskGroup() as copying:
                for task in self._tasks:
                    copying.create_task(task.run(), name=f"{self._settings.flow}/source/{task.task}")
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
        while True:
            await self._clock.sleep(_BALANCE_EVERY_S)
            self._assign()

    async def _retry_forever(self) -> None:
        """Have partitions whose pause is over planned at once, not only when the epoch of the others ends."""
        while True:
            await self._clock.sleep(_RETRY_TICK_S)
            now = self._clock.monotonic()
            over = {partition for partition in self._pausing if self._states[partition].retry_at <= now}
            self._pausing -= over
            self._poke(self.holders.heirs(over))

    # Looking at it.

    def task_views(self) -> tuple[TaskView, ...]:
        owned: dict[int, int] = {}
        for task in self.holders.owners.values():
            owned[task] = owned.get(task, 0) + 1
        return tuple(self.measures.task(self._tasks[task].view(owned.get(task, 0))) for task in self.holders.running)

    def partition_views(self) -> tuple[PartitionView, ...]:
        views = self.measures.partitions(self.ledger.mirrored(), self.holders.owners)
        if not self.ledger.overrides.has_pauses:
            return views
        is_paused, held = self.ledger.overrides.is_paused, self._holder
        return tuple(paused(it, is_held=it.source in held) if is_paused(it.source) else it for it in views)
