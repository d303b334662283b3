"""Which copy task gets which topic-partition."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.core.source.assignment import Assignment, AssignmentReason, assign, assign_beside
from mm2py.model.flow import TopicPartition


MIB = 1024.0 * 1024.0


def partitions(count: int, topic: str = "t") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def counts(assignment: Assignment) -> list[int]:
    return [len(assignment.of_task(task)) for task in range(assignment.copy_tasks)]


@pytest.mark.parametrize(
    ("count", "tasks_max", "expected"),
    [
        pytest.param(0, 4, [], id="nothing to copy"),
        pytest.param(3, 4, [1, 1, 1], id="fewer partitions than tasks.max"),
        pytest.param(8, 2, [4, 4], id="even"),
        pytest.param(7, 3, [3, 2, 2], id="uneven"),
    ],
)
def test_first_assignment_spreads(count: int, tasks_max: int, expected: list[int]) -> None:
    """As many copy tasks as tasks.max and partitions allow share the partitions evenly while no rate is known."""
    assignment = assign(partitions(count), {}, None, tasks_max=tasks_max)

    assert expected == sorted(counts(assignment), reverse=True)
    assert AssignmentReason.FIRST is assignment.reason


def test_heavy_partitions_are_kept_apart() -> None:
    """Bytes per second are balanced, not the number of partitions."""
    rates = dict(zip(partitions(4), [30 * MIB, 30 * MIB, 1 * MIB, 1 * MIB], strict=True))

    assignment = assign(partitions(4), rates, None, tasks_max=2)

    assert assignment.task_of[TopicPartition("t", 0)] != assignment.task_of[TopicPartition("t", 1)]
    assert counts(assignment) == [2, 2]


def hot_and_cold(hot: float, cold: float) -> tuple[Assignment, Mapping[TopicPartition, float]]:
    """Four partitions on two copy tasks; both of the first one's became *hot*."""
    before = assign(partitions(4), {}, None, tasks_max=2)
    rates = {it: hot if task == 0 else cold for it, task in before.task_of.items()}
    return before, rates


@pytest.mark.parametrize(
    ("hot", "cold", "moves", "reason"),
    [
        pytest.param(20 * MIB, 1 * MIB, 1, AssignmentReason.UNBALANCED, id="worth a move"),
        pytest.param(20 * MIB, 16 * MIB, 0, AssignmentReason.UNCHANGED, id="ratio tolerated"),
        pytest.param(0.5 * MIB, 0.0, 0, AssignmentReason.UNCHANGED, id="surplus too small to matter"),
    ],
)
def test_moves_have_to_be_worth_it(hot: float, cold: float, moves: int, reason: AssignmentReason) -> None:
    """A partition moves away from a copy task only where that carries clearly more than its share."""
    before, rates = hot_and_cold(hot, cold)

    after = assign(partitions(4), rates, before, tasks_max=2)

    assert (moves, reason) == (after.moves, after.reason)


def test_one_giant_does_not_wander() -> None:
    """A single partition that outweighs all others stays, since moving it would only turn the imbalance round."""
    before = assign(partitions(4), {}, None, tasks_max=2)
    giant = before.of_task(0)[0]
    rates = dict.fromkeys(partitions(4), 0.0) | {giant: 100 * MIB}

    after = assign(partitions(4), rates, before, tasks_max=2)

    assert after.task_of[giant] == 0


def test_new_partitions_leave_the_others_alone() -> None:
    """Partitions that appear go to the lightest copy tasks, those that are there stay."""
    before = assign(partitions(4), {}, None, tasks_max=2)

    after = assign(partitions(6), {}, before, tasks_max=2)

    assert after.moves == 0
    assert counts(after) == [3, 3]
    assert AssignmentReason.PARTITIONS_CHANGED is after.reason


def test_a_new_copy_task_gets_work() -> None:
    """A copy task that comes with a new partition does not stay empty, however small the loads are."""
    before = assign(partitions(2), {}, None, tasks_max=4)

    after = assign(partitions(4), {}, before, tasks_max=4)

    assert counts(after) == [1, 1, 1, 1]
    assert AssignmentReason.COPY_TASKS_CHANGED is after.reason


@given(
    count=st.integers(0, 30),
    tasks_max=st.integers(1, 8),
    rates=st.lists(st.floats(0, 1e9), min_size=30, max_size=30),
    gone=st.sets(st.integers(0, 29)),
)
def test_every_partition_has_one_copy_task(count: int, tasks_max: int, rates: list[float], gone: set[int]) -> None:
    """Whatever happens, each partition has one copy task, no copy task is empty, and a repeat moves nothing."""
    known = dict(zip(partitions(30), rates, strict=True))
    before = assign([it for it in partitions(30) if it.partition not in gone], known, None, tasks_max=tasks_max)

    after = assign(partitions(count), known, before, tasks_max=tasks_max)
    again = assign(partitions(count), known, after, tasks_max=tasks_max)

    assert set(partitions(count)) == set(after.task_of)
    assert all(counts(after))
    assert again.moves == 0


def test_the_same_rates_move_nothing_twice() -> None:
    """A partition as heavy as what two copy tasks differ by stays: its move would only turn the imbalance round."""
    known = dict(zip(partitions(4), [1e9, 1e9, 0.0, 1e9], strict=True))
    crowded = Assignment(dict(zip(partitions(4), [0, 0, 0, 1], strict=True)), 2, 0, AssignmentReason.FIRST)
    once = assign(partitions(4), known, crowded, tasks_max=2)
    twice = assign(partitions(4), known, once, tasks_max=2)

    assert counts(once) == [2, 2]
    assert (twice.moves, twice.reason) == (0, AssignmentReason.UNCHANGED)


def test_record_tasks_come_before_copy_tasks_and_keep_their_partitions() -> None:
    """A partition with a transform has its record task; the others share the copy tasks behind those, and stay."""
    plain, transformed = partitions(4), partitions(2, "masked")
    of_records = dict.fromkeys(transformed, 1)
    facts = {"tasks": range(4), "record_task_of": of_records, "record_tasks": 2}
    first = assign_beside([*plain, *transformed], {}, None, **facts)  # type: ignore[arg-type]
    again = assign_beside([*plain, *transformed], {}, first, **facts)  # type: ignore[arg-type]

    assert (counts(first), first.of_task(1)) == ([0, 2, 2, 2], tuple(transformed))
    assert (again.task_of, again.moves, again.copy_tasks) == (first.task_of, 0, 4)


def test_a_node_runs_only_the_tasks_of_its_share() -> None:
    """Where several nodes share a flow, tasks keep their numbers; what is left keeps its task."""
    plain = partitions(6)
    first = assign_beside(plain, {}, None, tasks={0, 1, 3}, record_task_of={}, record_tasks=1)
    fewer = assign_beside(plain, {}, first, tasks={3}, record_task_of={}, record_tasks=1)
    again = assign_beside(plain[:3], {}, fewer, tasks={2, 3}, record_task_of={}, record_tasks=1)

    assert (first.tasks, set(first.task_of.values())) == ((0, 1, 3), {1, 3})
    assert (fewer.tasks, set(fewer.task_of.values())) == ((3,), {3})
    assert all(fewer.task_of[it] == first.task_of[it] for it in plain if first.task_of[it] == 3)
    assert (again.tasks, set(again.task_of.values())) == ((2, 3), {2, 3})


def test_more_tasks_than_partitions_leave_some_without_any() -> None:
    assert assign_beside(partitions(1), {}, None, tasks={2, 5}, record_task_of={}, record_tasks=0).tasks == (2,)
