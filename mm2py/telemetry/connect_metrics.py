"""Metrics of flows under the names that Kafka Connect's worker has for its connectors and tasks: dashboards and alerts
that were made for Java's workers read them. An unknown figure is not a number; it has a series, because what such a
dashboard adds up without one looks like 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import mm2py
from mm2py.model.connector_offset import CHECKPOINT, HEARTBEAT, SOURCE
from mm2py.model.state import NOT_HERE, FlowState, FlowView, GroupView, TaskState
from mm2py.telemetry.metric_text import Family
from mm2py.telemetry.partition_metrics import known_lag
from mm2py.telemetry.series import Labels, ends_of, labels
from mm2py.telemetry.tally import EventTally


TASK_STATES: Final = ("running", "paused", "failed", "unassigned", "destroyed")
#: State of tasks while their connector is not running; otherwise each has its own.
_BY_GROUP: Final = {
    FlowState.STARTING: "unassigned",
    FlowState.DRAINED: "destroyed",
    FlowState.RESTARTING: "failed",
    FlowState.FAILED: "failed",
    FlowState.PAUSED: "paused",
    FlowState.STOPPED: "destroyed",
    FlowState.STANDBY: "unassigned",
}
_BY_TASK: Final = {
    TaskState.IDLE: "running",
    TaskState.RUNNING: "running",
    TaskState.WAITING_FOR_SLOT: "unassigned",
    TaskState.BACKING_OFF: "failed",
    TaskState.LATE: "failed",
}
#: States of a source connector that has something to copy, which may not be known yet.
_IS_DUE: Final = (FlowState.STARTING, FlowState.RESTARTING, FlowState.FAILED, FlowState.PAUSED)
_PACKAGE: Final = "org.apache.kafka.connect.mirror."
_LEFT_OUT: Final = ("total_record_errors", "total_record_failures", "total_records_skipped", "total_errors_logged")
_NAN: Final = math.nan

Book = Mapping[str, Family]


def task_states(flow: FlowView, group: GroupView) -> dict[int, str]:
    """
    Return the states of a connector's tasks by number, in Connect's terms: its copy tasks, or its single task.

    A source connector that never came up has no copy tasks yet. Without any it would look healthy, so it has one.
    """
    if group.connector == SOURCE:
        found = {task.task: _BY_GROUP.get(group.state) or _BY_TASK[task.state] for task in flow.tasks}
        return found or ({0: _BY_GROUP[group.state]} if group.state in _IS_DUE else {})
    return {0: _BY_GROUP.get(group.state, "running")}


def fill_connect(book: Book, flow: FlowView, tally: EventTally, wall_ms: int) -> None:
    """Put what Connect's worker has of a flow's connectors into *book*."""
    ends = {**ends_of(flow.flow), "destination": flow.flow.target}
    for group in flow.groups:
        connector = {**ends, "connector": group.name or group.connector}
        states = task_states(flow, group)
        _fill_connector(book, connector, group, states)
        if group.connector == SOURCE:
            _fill_source(book, connector, flow, states, tally)
        elif group.state not in NOT_HERE:
            written = _written(flow, group, tally)
            for step in ("poll", "write"):
                name = f"kafka_connect_source_task_source_record_{step}_total"
                book[name].add(labels(**connector, task="0"), written)
    _fill_rebalances(book, labels(**ends), flow, wall_ms)


def _fill_connector(book: Book, connector: Mapping[str, str], group: GroupView, states: Mapping[int, str]) -> None:
    own, counts = labels(**connector), Counter(states.values())
    book["kafka_connect_worker_connector_total_task_count"].add(own, len(states))
    for state in TASK_STATES:
        book[f"kafka_connect_worker_connector_{state}_task_count"].add(own, counts[state])
    # Of several nodes each has only some of the numbers.
    for task, state in states.items():
        for name in ("kafka_connect_connector_status", "kafka_connect_connector_task_status"):
            book[name].add(labels(**connector, task=str(task), status=state), 1)
    for what, value in (("class", _PACKAGE + group.connector), ("type", "source"), ("version", mm2py.__version__)):
        it = labels(**connector, **{f"connector_{what}": value})
        book[f"kafka_connect_connector_connector_{what}"].add(it, 1)


def _written(flow: FlowView, group: GroupView, tally: EventTally) -> int:
    """Return how many records a connector without copy tasks has written."""
    if group.connector == CHECKPOINT:
        return tally.amount("checkpoints_written", flow.flow)
    return flow.heartbeats.sent if flow.heartbeats is not None and group.connector == HEARTBEAT else 0


def _fill_source(
    book: Book, connector: Mapping[str, str], flow: FlowView, states: Iterable[int], tally: EventTally
) -> None:
    active = _active(flow, states)
    left_out = Counter[int]()
    by_partition = tally.details("record_left_out", flow.flow)
    for partition in flow.partitions if by_partition else ():
        left_out[_task_of(partition.task, active)] += by_partition.get(str(partition.source), 0)
    tasks = {task.task: task for task in flow.tasks}
    for number, waiting in active.items():
        it, task = labels(**connector, task=str(number)), tasks.get(number)
        book["kafka_connect_source_task_source_record_active_count"].add(it, waiting)
        for step in ("poll", "write"):
            name = f"kafka_connect_source_task_source_record_{step}"
            book[f"{name}_total"].add(it, 0 if task is None else task.records)
            book[f"{name}_rate"].add(it, 0 if task is None else task.records_per_s)
        for what in _LEFT_OUT:
            book[f"kafka_connect_task_error_{what}"].add(it, left_out[number])
        book["kafka_connect_task_error_total_retries"].add(it, 0 if task is None else task.retries)
        _fill_commits(book, it, flow)


def _active(flow: FlowView, tasks: Iterable[int]) -> dict[int, float]:
    """Return how many records the target has not acknowledged yet, by task; not a number if it is not known of all."""
    if not flow.tasks:
        return dict.fromkeys(tasks, _NAN)
    found: dict[int, float] = dict.fromkeys(tasks, 0)
    for partition in flow.partitions if found else ():
        found[_task_of(partition.task, found)] += known_lag(partition)[0]
    return found


def _task_of(task: int | None, tasks: Mapping[int, object]) -> int:
    """Return the task that a partition counts with: between two of them, and while no task has it, the first."""
    return task if task is not None and task in tasks else next(iter(tasks))


def _fill_commits(book: Book, it: Labels, flow: FlowView) -> None:
    commits = flow.commits
    for name, value in (
        ("avg_time_ms", commits.avg_ms),
        ("max_time_ms", commits.max_ms),
        ("success_percentage", None if commits.failed is None else 1 - commits.failed),
        ("failure_percentage", commits.failed),
    ):
        book[f"kafka_connect_connector_task_offset_commit_{name}"].add(it, _NAN if value is None else value)


def _fill_rebalances(book: Book, it: Labels, flow: FlowView, wall_ms: int) -> None:
    rebalances = flow.rebalances
    for name, value in (
        ("rebalancing", int(rebalances.is_under_way)),
        ("completed_rebalances_total", rebalances.count),
        ("rebalance_avg_time_ms", _NAN if rebalances.avg_ms is None else rebalances.avg_ms),
        ("rebalance_max_time_ms", _NAN if rebalances.max_ms is None else rebalances.max_ms),
        ("time_since_last_rebalance_ms", _NAN if rebalances.ended_ms is None else wall_ms - rebalances.ended_ms),
    ):
        book[f"kafka_connect_worker_rebalance_{name}"].add(it, value)


def fill_worker(book: Book, flows: Iterable[FlowView]) -> None:
    """Put what Connect's worker has of all connectors together into *book*."""
    found = [(flow, group, task_states(flow, group)) for flow in flows for group in flow.groups]
    here = [(flow, states) for flow, group, states in found if group.state not in NOT_HERE]
    nothing = labels()
    for name, value in (
        ("worker_connector_count", len(found)),
        ("worker_task_count", sum(len(states) for _, _, states in found)),
        ("coordinator_assigned_connectors", sum(_is_owner(flow) for flow, _ in here)),
        ("coordinator_assigned_tasks", sum(len(states) for _, states in here)),
    ):
        book[f"kafka_connect_{name}"].add(nothing, value)


def _is_owner(flow: FlowView) -> bool:
    return next((node.is_owner for node in flow.nodes if node.is_this), True)
