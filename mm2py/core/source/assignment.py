"""
Which copy task gets which topic-partition.

Partitions are weighted by their measured bytes per second, and stay where they are unless a copy task has clearly more
than its share: a move costs the partition's connections and batches in flight, so it has to be worth it.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Collection, Mapping

import attrs

from mm2py.model.flow import TopicPartition


#: A copy task may carry this many times the mean before partitions move away from it.
TOLERATED_RATIO = 1.25
#: Below this surplus nothing moves: one copy task handles a hundred times as much.
TOLERATED_SURPLUS_BYTES_PER_S = 1024.0 * 1024.0
#: Weight of every partition besides its bytes, so that idle ones spread as well.
_BASE_WEIGHT = 1024.0
#: Each move makes the loads more equal, so moving ends by itself; this only bounds what rounding might do.
_MOVES_PER_PARTITION = 16


class AssignmentReason(enum.Enum):
    """Why the assignment is what it is, in the words of the log."""

    UNCHANGED = "every copy task carries its share"
    FIRST = "partitions were assigned for the first time"
    PARTITIONS_CHANGED = "partitions came or went"
    COPY_TASKS_CHANGED = "the number of copy tasks changed"
    UNBALANCED = "a copy task carried clearly more than its share"


@attrs.frozen
class Assignment:
    """The copy task of each topic-partition. `moves` counts partitions that had another copy task before. `tasks` are
    the numbers of all tasks, `copy_tasks` how many there are.
    """

    task_of: Mapping[TopicPartition, int]
    copy_tasks: int
    moves: int
    reason: AssignmentReason
    tasks: tuple[int, ...] = ()

    def of_task(self, task: int) -> tuple[TopicPartition, ...]:
        """Return the partitions of *task*, in order."""
        return self._of_tasks.get(task, ())

    @functools.cached_property
    def _of_tasks(self) -> Mapping[int, tuple[TopicPartition, ...]]:
        found: dict[int, list[TopicPartition]] = {}
        for partition, task in sorted(self.task_of.items()):
            found.setdefault(task, []).append(partition)
        return {task: tuple(partitions) for task, partitions in found.items()}


@attrs.define
class _Load:
    """The load of one copy task so far."""

    weight: float = 0.0
    partitions: list[TopicPartition] = attrs.field(factory=list)

    def take(self, partition: TopicPartition, weight: float) -> None:
        self.weight += weight
        self.partitions.append(partition)

    def give(self, partition: TopicPartition, weight: float) -> None:
        self.weight -= weight
        self.partitions.remove(partition)


def assign(
    partitions: Collection[TopicPartition],
    rates: Mapping[TopicPartition, float],
    previous: Assignment | None,
    *,
    tasks_max: int,
) -> Assignment:
    """
    Return each of *partitions* to one of ``min(tasks_max, number of partitions)`` copy tasks.

    *rates* are bytes per second; a partition that is not in it counts as an average one.
    """
    copy_tasks = min(tasks_max, len(partitions))
    weights = _weights(partitions, rates)
    loads = [_Load() for _ in range(copy_tasks)]
    homeless = []
    before = previous.task_of if previous else {}
    for partition in sorted(partitions):
        task = before.get(partition)
        if task is None or task >= copy_tasks:
            homeless.append(partition)
        else:
            loads[task].take(partition, weights[partition])
    for partition in sorted(homeless, key=lambda homeless: -weights[homeless]):
        _lightest(loads).take(partition, weights[partition])
    is_rebalanced = _balance(loads, weights)
    task_of = {partition: task for task, load in enumerate(loads) for partition in load.partitions}
    moves = sum(1 for partition, task in task_of.items() if before.get(partition, task) != task)
    reason = _reason(previous, copy_tasks, set(task_of), is_rebalanced=is_rebalanced)
    return Assignment(task_of, copy_tasks, moves, reason, tuple(range(copy_tasks)))


def assign_beside(
    partitions: Collection[TopicPartition],
    rates: Mapping[TopicPartition, float],
    previous: Assignment | None,
    *,
    tasks: Collection[int],
    record_task_of: Mapping[TopicPartition, int],
    record_tasks: int,
) -> Assignment:
    """
    Assign like `assign`, except partitions of a record task.

    *tasks* are the numbers of those that run here. Record tasks have the numbers before all copy tasks.
    """
    plain = [partition for partition in partitions if partition not in record_task_of]
    numbers = sorted(task for task in tasks if task >= record_tasks)
    before = previous
    if previous is not None:
        index = {number: at for at, number in enumerate(numbers)}
        task_of = {it: index[task] for it, task in previous.task_of.items() if task in index}
        before = attrs.evolve(
            previous, task_of=task_of, copy_tasks=sum(task >= record_tasks for task in previous.tasks)
        )
    now = assign(plain, rates, before, tasks_max=len(numbers))
    running = (*(task for task in sorted(tasks) if task < record_tasks), *numbers[: now.copy_tasks])
    of_records = {it: record_task_of[it] for it in partitions if it in record_task_of}
    task_of = {it: numbers[at] for it, at in now.task_of.items()} | of_records
    has_changed = record_tasks and previous is not None and set(previous.task_of) != set(task_of)
    reason = AssignmentReason.PARTITIONS_CHANGED if has_changed else now.reason
    return Assignment(task_of, len(running), now.moves, reason, running)


def _weights(
    partitions: Collection[TopicPartition], rates: Mapping[TopicPartition, float]
) -> dict[TopicPartition, float]:
    known = [rates[partition] for partition in partitions if partition in rates]
    mean = sum(known) / len(known) if known else 0.0
    return {partition: _BASE_WEIGHT + rates.get(partition, mean) for partition in partitions}


def _lightest(loads: list[_Load]) -> _Load:
    return min(loads, key=lambda load: (load.weight, len(load.partitions)))


def _balance(loads: list[_Load], weights: Mapping[TopicPartition, float]) -> bool:
    """Balance the loads, empty copy tasks first; return whether anything moved."""
    if not loads:
        return False
    has_moved = False
    mean = sum(load.weight for load in loads) / len(loads)
    for _ in range(_MOVES_PER_PARTITION * len(weights)):
        heaviest = max(loads, key=lambda load: (len(load.partitions) > 1, load.weight))
        lightest = _lightest(loads)
        surplus = heaviest.weight - mean
        is_tolerable = heaviest.weight <= mean * TOLERATED_RATIO or surplus < TOLERATED_SURPLUS_BYTES_PER_S
        if is_tolerable and lightest.partitions:
            break
        gap = heaviest.weight - lightest.weight
        # A partition as heavy as the gap would only reverse the imbalance.
        heaviest_worth = gap - (TOLERATED_SURPLUS_BYTES_PER_S if lightest.partitions else 0.0)
        movable = [partition for partition in heaviest.partitions if weights[partition] < heaviest_worth]
        if not movable or len(heaviest.partitions) < 2:  # noqa: PLR2004 (the last one stays)
            break
        chosen = min(movable, key=lambda partition: (abs(weights[partition] - gap / 2), partition))
        heaviest.give(chosen, weights[chosen])
        lightest.take(chosen, weights[chosen])
        has_moved = True
    return has_moved


def _reason(
    previous: Assignment | None, copy_tasks: int, partitions: set[TopicPartition], *, is_rebalanced: bool
) -> AssignmentReason:
    if previous is None:
        return AssignmentReason.FIRST
    if previous.copy_tasks != copy_tasks:
        return AssignmentReason.COPY_TASKS_CHANGED
    if set(previous.task_of) != partitions:
        return AssignmentReason.PARTITIONS_CHANGED
    return AssignmentReason.UNBALANCED if is_rebalanced else AssignmentReason.UNCHANGED
