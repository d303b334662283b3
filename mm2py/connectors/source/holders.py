"""
Which copy task each partition is assigned to, and which one holds it.

A partition changes hands only between two epochs: it may be reassigned at any time, but its holder keeps it until it
returns it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from mm2py.config.connector import MirrorSourceConfig
from mm2py.core.herder.sharing import flow_tasks
from mm2py.core.source.assignment import Assignment, assign_beside
from mm2py.core.transform.matching import TopicTransforms
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.share import Share, whole_share
from mm2py.telemetry.events import AssignmentChanged
from mm2py.telemetry.journal import EventLog


class Holders:
    """The assignment of one flow, and which copy task may be writing a partition."""

    def __init__(self, config: MirrorSourceConfig, transforms: TopicTransforms, events: EventLog) -> None:
        #: What each copy task that runs an epoch holds: the partitions that it may be writing.
        self.held: dict[int, AbstractSet[TopicPartition]] = {}
        #: What is held by another copy task than the one that it is assigned to now, and by which one.
        self._strays: dict[TopicPartition, int] = {}
        self._everything = whole_share(flow_tasks(config)[0])
        #: What this node runs of the flow, from the next assignment on.
        self.share: Share = self._everything
        #: Set when a task returned partitions.
        self._returned = asyncio.Event()
        self._config = config
        self._transforms = transforms
        self._events = events
        self._assignment: Assignment | None = None

    @property
    def copy_tasks(self) -> int:
        return self._assignment.copy_tasks if self._assignment else 0

    @property
    def running(self) -> tuple[int, ...]:
        """Return the numbers of the tasks that run here."""
        return self._assignment.tasks if self._assignment else ()

    @property
    def owners(self) -> Mapping[TopicPartition, int]:
        """Which copy task each partition is assigned to."""
        return self._assignment.task_of if self._assignment else {}

    def is_held(self, source: TopicPartition) -> bool:
        """Whether a copy task may be writing the partition."""
        return self.holder_of(source) is not None

    def holder_of(self, source: TopicPartition) -> int | None:
        """Return the copy task that may be writing the partition, None if there is none."""
        return next((task for task, held in self.held.items() if source in held), None)

    @property
    def is_alone(self) -> bool:
        """Whether no other node runs a task of the flow: one with all slots may leave record tasks to others."""
        return self.share == self._everything

    def is_ours(self, source: TopicPartition) -> bool:
        """Whether a partition is part of our share: its record task, or else its hash slot, if a copy task is here.
        Slots and tasks are given separately, as their former nodes release them.
        """
        task = self._transforms.task_of(source.topic)
        if task is not None:
            return task in self.share.tasks
        first = len(self._transforms.tasks)
        return self.share.has(source) and any(task >= first for task in self.share.tasks)

    def hold(self, task: int, partitions: AbstractSet[TopicPartition]) -> None:
        """Note that *task* may be writing *partitions* until it puts them back."""
        self.held[task] = partitions

    def put_back(self, task: int) -> set[int]:
        """Note that *task* holds nothing any more; return the copy tasks that may take over partitions from it."""
        self.held.pop(task, None)
        returned = [source for source, holder in self._strays.items() if holder == task]
        for source in returned:
            del self._strays[source]
        self._returned.set()
        return self.heirs(returned)

    async def until_returned(self, partitions: Collection[TopicPartition]) -> None:
        """Wait until no task holds any of *partitions*."""
        while any(self.is_held(it) for it in partitions):
            self._returned.clear()
            await self._returned.wait()

    def of_task(self, task: int) -> Sequence[TopicPartition]:
        """Return what *task* may copy now: its own partitions that no other one holds; the same object as before if
        that is the same.
        """
        own = self._assignment.of_task(task) if self._assignment else ()
        if not self._strays:
            return own
        return [partition for partition in own if partition not in self._strays]

    def owned(self, task: int) -> int:
        """Return how many partitions are assigned to *task*."""
        return len(self._assignment.of_task(task)) if self._assignment else 0

    def heirs(self, partitions: Iterable[TopicPartition]) -> set[int]:
        """Return the copy tasks that may take those of *partitions* without a holder."""
        owners = self.owners
        return {owners[it] for it in partitions if it in owners and not self.is_held(it)}

    def assign(self, rates: Mapping[TopicPartition, float | None]) -> set[int]:
        """
        Assign the partitions that have *rates* again; give the copy tasks that have to plan again.

        Those that lose partitions end their epochs, those that gain some follow.
        """
        before, partitions = self._assignment, list(rates)
        now = assign_beside(
            partitions,
            {partition: rate for partition, rate in rates.items() if rate is not None},
            before,
            tasks=self.share.tasks,
            record_task_of={it: task for it in partitions if (task := self._transforms.task_of(it.topic)) is not None},
            record_tasks=len(self._transforms.tasks),
        )
        if before is not None and now.task_of == before.task_of:
            return set()
        self._assignment = now
        self._events.emit(
            AssignmentChanged(self._config.flow, now.copy_tasks, len(now.task_of), now.moves, now.reason.value)
        )
        was = before.task_of if before else {}
        changed = [it for it in {*was, *now.task_of} if was.get(it) != now.task_of.get(it)]
        holders = {it: holder for it in changed if (holder := self.holder_of(it)) is not None}
        strays = {**self._strays, **holders}
        self._strays = {it: holder for it, holder in strays.items() if holder != now.task_of.get(it)}
        return set(holders.values()) | self.heirs(changed)
