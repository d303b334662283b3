"""
The source task group: what each copy task copies, and what became of it.

It holds the state of every mirrored topic-partition, hands plans to the copy tasks, takes over their outcomes, and
gives partitions to other copy tasks when that is worth it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.core.lag import tells_end
from mm2py.core.source import due, progress
from mm2py.core.source.progress import Occurrence, PartitionState, RetryPauses
from mm2py.flow.measures import FlowMeasures, paused
from mm2py.flow.plugins import transforms_of
from mm2py.flow.source.copy_task import CopyTask, Epochs
from mm2py.flow.source.epoch_events import epoch_ended, partition_news
from mm2py.flow.source.holders import Holders
from mm2py.flow.source.rates import RateShares
from mm2py.flow.topics.remote_topics import Mirrored, Place
from mm2py.model.epoch import (
    RECREATED,
    Ended,
    EpochOutcome,
    EpochPlan,
    PartitionFailure,
    PartitionOutcome,
    PartitionPlan,
)
from mm2py.model.flow import TopicPartition
from mm2py.model.overrides import NO_OVERRIDES, Overrides
from mm2py.model.positions import Position
from mm2py.model.rates import RateShare
from mm2py.model.state import PartitionStage, PartitionView, TaskState, TaskView
from mm2py.model.topic import is_other_topic
from mm2py.telemetry.journal import EventLog


#: How often loads are compared.
_BALANCE_EVERY_S = 30.0
#: Poll interval for pauses that end while their copy task is busy with other partitions.
_RETRY_TICK_S = 0.5

#: Is told what an epoch did to a partition, and at which upstream offset it had begun.
Listener = Callable[[PartitionOutcome, int], None]
#: Is told that a partition's history broke, and the position from which it is copied now.
BreakListener = Callable[[PartitionState], None]
#: After so many interruptions in a row it is asked whether the topics still exist.
_SUSPECT_FAILURES = 3


class SourceTasks:
    """
    The source tasks of one flow.

    a. A partition is held by at most one copy task.
    b. A state changes only through `core.source.progress`.
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
        self.states: dict[TopicPartition, PartitionState] = {}
        self.is_interrupted = asyncio.Event()
        #: What clusters refused to copy tasks since it was looked at last, one of each kind.
        self.refusals: dict[tuple[str, str], PartitionFailure] = {}
        #: Called for each outcome of a partition, once it is accounted for.
        self.listeners: list[Listener] = []
        #: Called where what was copied before says nothing about what is copied now.
        self.break_listeners: list[BreakListener] = []
        #: Set when a partition waits for a position of its own to be written: see `unfenced`.
        self.has_unfenced = asyncio.Event()
        #: Set when a partition is in question: see `questions`.
        self.has_questions = asyncio.Event()
        self._settings = settings
        self._clock = clock
        self._events = events
        self._jitter = jitter
        self._pauses = RetryPauses()
        self._places: Mapping[TopicPartition, Place] = {}
        self._in_order: list[TopicPartition] = []
        self._pausing: set[TopicPartition] = set()
        self._committed: set[TopicPartition] = set()
        self._overrides = NO_OVERRIDES
        self._rates = RateShares(clock)
        self._transforms = transforms_of(settings)
        self._holders = Holders(settings, self._transforms, events)
        self._holder = self._holders.holder
        self._tasks = [
            CopyTask(settings, task, transform, planner=self, epochs=epochs, clock=clock, events=events, jitter=jitter)
            for task, transform in enumerate([*self._transforms.tasks, *([None] * settings.tasks_max)])
        ]

    # What there is to copy.

    @property
    def copy_tasks(self) -> int:
        return self._holders.copy_tasks

    @property
    def topics(self) -> int:
        return len({partition.topic for partition in self._places})

    def unknown(self, mirrored: Mirrored) -> dict[TopicPartition, Place]:
        """Return those of the mirrored partitions that have no state yet."""
        return {partition: place for partition, place in mirrored.places.items() if partition not in self.states}

    def adopt(
        self,
        mirrored: Mirrored,
        positions: Mapping[TopicPartition, Position],
        unwritten: Collection[TopicPartition] = (),
    ) -> None:
        """
        Copy what *mirrored* says from now on; *positions* say where to begin with what is new, be they *unwritten* yet.

        What is no longer mirrored keeps its state, so that its position is still written.
        """
        self._places, self._in_order = mirrored.places, sorted(mirrored.places)
        for partition, place in mirrored.places.items():
            state = self.states.get(partition)
            if state is None and partition in positions:
                state = due.begin(
                    positions[partition],
                    remote_topic=place.remote_topic,
                    topic_id=place.topic_id,
                    remote_topic_id=place.remote_topic_id,
                    is_written=partition not in unwritten,
                )
            if state is not None:
                self.states[partition] = self._at_place(state, place)
        self.has_unfenced.set()
        self._assign()

    def _at_place(self, state: PartitionState, place: Place) -> PartitionState:
        state = attrs.evolve(
            state,
            remote_topic=place.remote_topic,
            is_transformed=self._transforms.has_task(state.source.topic),
            max_message_bytes=place.max_message_bytes,
        )
        if state.is_questioned:
            return state
        now, ended, failure = self._clock.monotonic(), Ended.RECREATED, RECREATED
        if not is_other_topic(state.topic_id, place.topic_id):
            if not is_other_topic(state.remote_topic_id, place.remote_topic_id):
                return state
            ended = Ended.TARGET_REWOUND
            failure = PartitionFailure(f"{state.remote_topic} at the target is another topic of that name")
        self.has_questions.set()
        if state.source in self._holder:
            self._poke([self._holder[state.source]])
        return progress.question(state, ended, failure, now=now)

    # Who copies it.

    def _assign(self) -> None:
        there = (self.states[partition] for partition in self._places if partition in self.states)
        self._poke(self._holders.assign({state.source: state.bytes_per_s for state in there}))

    def _poke(self, tasks: Iterable[int]) -> None:
        for task in sorted(tasks):
            self._tasks[task].poke()

    def _own(self, task: int) -> list[PartitionState]:
        return [self.states[it] for it in self._holders.of_task(task) if not self._overrides.is_paused(it)]

    def take_partitions(self, task: int) -> tuple[PartitionPlan, ...]:
        own = self._own(task)
        if not all(state.is_fenced for state in own):
            self.has_unfenced.set()
        plans = due.next_plans(own, now=self._clock.monotonic())
        self._holder |= {plan.source: task for plan in plans}
        return plans

    def rates(self, task: int, partitions: tuple[PartitionPlan, ...]) -> tuple[RateShare, ...]:
        busy = {it: owner for it, owner in self._holders.owners.items() if not self._overrides.is_paused(it)}
        return self._rates.plan(task, [plan.source for plan in partitions], busy)

    def next_retry_at(self, task: int) -> float | None:
        return due.next_retry_at(self._own(task))

    def put_back(self, plan: EpochPlan) -> None:
        self._rates.put_back(plan)
        sources = [partition.source for partition in plan.partitions]
        for source in sources:
            self._holder.pop(source, None)
        self._poke(self._holders.heirs(sources) - {plan.task})

    # What became of it.

    def account(self, plan: EpochPlan, outcome: EpochOutcome, *, took_s: float) -> None:
        now, jitter = self._clock.monotonic(), self._jitter()  # one for all: what failed together comes back together
        self.measures.take(plan, outcome, took_s)
        self._rates.take(plan, outcome, took_s)
        told = {partition.source: partition for partition in outcome.partitions}
        for planned in plan.partitions:
            before, partition = self.states[planned.source], told.get(planned.source)
            if is_other_topic(planned.topic_id, before.topic_id):
                continue  # what it says is of a topic that had the name before
            accounted = progress.account(
                before,
                partition,
                elapsed_s=took_s,
                now=now,
                jitter=jitter,
                pauses=self._pauses,
            )
            self.states[planned.source] = accounted.state
            if plan.transactions is not None and accounted.state.position > before.position:
                self.note_written([accounted.state.standing])  # it was committed with the records
                self._committed.add(planned.source)
            if tells_end(partition, accounted.state, fetches=outcome.fetches):
                self.measures.look(accounted.state)
            if accounted.state.retry_at > now:
                self._pausing.add(planned.source)
            for occurrence in accounted.occurrences:
                self._tell(occurrence, before, accounted.state)
            if partition is not None:
                for listener in self.listeners:
                    listener(partition, before.position)
        lag = sum(self.states[planned.source].lag or 0 for planned in plan.partitions)
        self._events.emit(epoch_ended(plan, outcome, took_s, lag))

    def account_lost(self, plan: EpochPlan, cause: str, *, retry_at: float, quiet_until: float) -> None:
        self.measures.lose(plan, cause)
        for planned in plan.partitions:
            state = self.states[planned.source]
            self.states[planned.source] = progress.lose(state, retry_at=retry_at, cause=cause, quiet_until=quiet_until)

    def _tell(self, occurrence: Occurrence, before: PartitionState, after: PartitionState) -> None:
        event = partition_news(self._settings.flow, occurrence, before, after, now=self._clock.monotonic())
        if event is not None:
            self._events.emit(event)
        if occurrence is Occurrence.INTERRUPTED:
            if after.failure is not None and after.failure.cluster:
                self.refusals[after.failure.cluster, after.failure.hint] = after.failure
            self.is_interrupted.set()
        elif occurrence is Occurrence.QUESTIONED:
            self.has_questions.set()

    # What operators ask for.

    def apply_overrides(self, overrides: Overrides) -> None:
        """Copy nothing of what *orders* pause, and all else no faster than they say, as soon as may be."""
        before, self._overrides = self._overrides, overrides
        owners = self._holders.owners
        changed = {
            partition for partition in self._places if before.is_paused(partition) != overrides.is_paused(partition)
        }
        tasks = {self._holder.get(partition, owners.get(partition, -1)) for partition in changed} - {-1}
        if self._rates.apply_overrides(overrides):
            tasks |= set(self._holder.values())
        if changed:
            self.has_questions.set()
        self._poke(tasks)

    def restart(self, task: int) -> None:
        """Have a copy task end its epoch, and try at once what is pausing of its partitions."""
        now = self._clock.monotonic()
        for state in self._own(task):
            self.states[state.source] = progress.hasten(state, now=now)
        self._tasks[task].restart()

    def in_trouble(self) -> tuple[int, ...]:
        """Name the copy tasks whose epoch was lost, or which have partitions that are pausing or stopped."""
        return tuple(
            task
            for task in range(self.copy_tasks)
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
            over = {partition for partition in self._pausing if self.states[partition].retry_at <= now}
            self._pausing -= over
            self._poke(self._holders.heirs(over))

    # What both clusters say of it: see `mm2py.flow.source.broken_history`.

    def questions(self) -> tuple[PartitionState, ...]:
        """Return partitions whose history is in doubt and that no task is copying."""
        now = self._clock.monotonic()
        return tuple(
            state
            for partition in self._places
            if (state := self.states.get(partition)) is not None
            and state.is_questioned
            and state.look_at <= now
            and partition not in self._holder
            and not self._overrides.is_paused(partition)
        )

    def wanted(self) -> tuple[PartitionState, ...]:
        """Return those partitions that are mirrored and not paused."""
        states = (self.states[partition] for partition in self._places if partition in self.states)
        return tuple(state for state in states if not self._overrides.is_paused(state.source))

    def suspects(self) -> tuple[PartitionState, ...]:
        """Return those partitions that are interrupted again and again."""
        return tuple(
            state
            for state in self.wanted()
            if state.stage is PartitionStage.BACKING_OFF
            and state.failures >= _SUSPECT_FAILURES
            and not state.is_questioned
        )

    def of_topic(self, topic: str) -> tuple[PartitionState, ...]:
        """Return the mirrored partitions of a source topic."""
        return tuple(
            state
            for partition in self._places
            if partition.topic == topic and (state := self.states.get(partition)) is not None
        )

    def is_held(self, source: TopicPartition) -> bool:
        """Whether a copy task may be writing the partition."""
        return source in self._holder

    def question(self, state: PartitionState, ended: Ended, failure: PartitionFailure) -> None:
        """Have somebody look at both clusters before the partition is planned again."""
        if not state.is_questioned:
            self.states[state.source] = progress.question(state, ended, failure, now=self._clock.monotonic())
            self.has_questions.set()
            if state.source in self._holder:
                self._poke([self._holder[state.source]])

    def look_later(self, source: TopicPartition, pause_s: float) -> None:
        """Look again at a partition in question, after a pause."""
        self.states[source] = attrs.evolve(self.states[source], look_at=self._clock.monotonic() + pause_s)

    def clear_doubt(self, source: TopicPartition) -> None:
        """Go on with a partition: both clusters are what its position is about."""
        now = self._clock.monotonic()
        self.states[source] = progress.clear_doubt(
            self.states[source], now=now, jitter=self._jitter(), pauses=self._pauses
        )
        self._pausing.add(source)

    def stop(self, source: TopicPartition, failure: PartitionFailure) -> None:
        """Copy nothing of a partition while both clusters are as they are."""
        before, now = self.states[source], self._clock.monotonic()
        after = progress.stop(before, failure, now=now, jitter=self._jitter(), pauses=self._pauses)
        self.states[source] = after
        if before.stage is not PartitionStage.STOPPED:
            self._tell(Occurrence.STOPPED, before, after)

    def reset(self, state: PartitionState, *, breaks_history: bool) -> None:
        """Go on from another position, which is stored already unless it is a guess."""
        self.states[state.source] = state
        self.has_unfenced.set()
        self._pausing.add(state.source)
        for listener in self.break_listeners if breaks_history else ():
            listener(state)

    # Positions.

    def unfenced(self) -> tuple[PartitionState, ...]:
        """Return those partitions that may not be planned before their position is written: see `Positions.fence`."""
        states = (self.states[it] for it in self._in_order if it in self.states and it not in self._holder)
        return tuple(state for state in states if not state.is_fenced and not state.is_questioned)

    def note_fenced(self, positions: Collection[Position]) -> None:
        """Copy those partitions whose *positions* are written now, as soon as may be."""
        for position in positions:
            self.states[position.source] = due.fence(self.states[position.source], position)
        self._poke(self._holders.heirs(position.source for position in positions))

    def note_unfenced(self, states: Iterable[PartitionState], failure: PartitionFailure) -> None:
        """Note why the positions of *states* could not be written."""
        for source in (state.source for state in states):
            self.states[source] = progress.hold_back(self.states[source], failure, now=self._clock.monotonic())

    def due_positions(self, *, is_interval_over: bool) -> tuple[Position, ...]:
        """Return the positions to be written now."""
        return due.due_positions(
            self.states.values(),
            is_interval_over=is_interval_over,
            is_transformed=self._transforms.has_task,
            is_exactly_once=self._settings.is_exactly_once,
        )

    def take_committed(self) -> set[TopicPartition]:
        """Return those partitions whose position was committed in a transaction since this was last asked."""
        committed, self._committed = self._committed, set()
        return committed

    def note_written(self, positions: Iterable[Position]) -> None:
        """Note that the positions topic holds *positions*."""
        for position in positions:
            self.states[position.source] = due.write(self.states[position.source], position)

    # Looking at it.

    def task_views(self) -> tuple[TaskView, ...]:
        owned: dict[int, int] = {}
        for task in self._holders.owners.values():
            owned[task] = owned.get(task, 0) + 1
        return tuple(self.measures.task(self._tasks[task].view(owned.get(task, 0))) for task in range(self.copy_tasks))

    def partition_views(self) -> tuple[PartitionView, ...]:
        states = (self.states[partition] for partition in self._in_order if partition in self.states)
        views = self.measures.partitions(states, self._holders.owners)
        is_paused, held = self._overrides.is_paused, self._holder
        return tuple(paused(it, is_held=it.source in held) if is_paused(it.source) else it for it in views)
