"""A flow in Kafka Connect's format: its task groups are connectors, its copy tasks are their tasks. The names of
fields and states are those of Connect's `org.apache.kafka.connect.runtime.rest.entities`, so that tools for Connect can
show and control a flow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import mm2py
from mm2py.config.importers.mirus import SOURCE_CLASS
from mm2py.core.herder.overrides import CONNECTORS, SOURCE
from mm2py.model.health import IssueCode, failures_of, flow_issues
from mm2py.model.herder.overrides import Overrides, Wanted
from mm2py.model.state import FlowState, FlowView, GroupView, PartitionStage, TaskState, TaskView
from mm2py.rest.plugin_definitions import MIRROR_PACKAGE, PLUGINS, VERSION
from mm2py.rest.schemas import Json


PACKAGE: Final = MIRROR_PACKAGE
_STATES: Final = {
    FlowState.STARTING: "UNASSIGNED",
    FlowState.RUNNING: "RUNNING",
    FlowState.DRAINING: "RUNNING",
    FlowState.DRAINED: "STOPPED",
    FlowState.RESTARTING: "RESTARTING",
    FlowState.FAILED: "FAILED",
    FlowState.PAUSED: "PAUSED",
    FlowState.STOPPED: "STOPPED",
    FlowState.STANDBY: "UNASSIGNED",
}
_TASK_STATES: Final = {
    TaskState.IDLE: "RUNNING",
    TaskState.RUNNING: "RUNNING",
    TaskState.WAITING_FOR_SLOT: "UNASSIGNED",
    TaskState.BACKING_OFF: "RESTARTING",
    TaskState.LATE: "RESTARTING",
}
_NO_TASKS: Final = (FlowState.STOPPED, FlowState.DRAINED)


def connectors(flow: FlowView, overrides: Overrides) -> tuple[GroupView, ...]:
    """Return the task groups that are listed as connectors."""
    return tuple(group for group in flow.groups if overrides.wanted(group.connector) is not Wanted.DELETED)


def short_name(name: str) -> str:
    """Return a connector's name without the Java package."""
    short = name.removeprefix(PACKAGE)
    return f"{short}Connector" if f"{short}Connector" in CONNECTORS else short


def state_info(flow: FlowView, group: GroupView, worker_id: str) -> Json:
    """Show a connector as Connect's ConnectorStateInfo; *worker_id* is this node's."""
    this = next((node for node in flow.nodes if node.is_this), None)
    if this is not None and sum(node.rest == this.rest for node in flow.nodes) > 1:
        worker_id = this.worker_id
    return {
        "name": group.connector,
        "connector": _state(_STATES[group.state], group.node or worker_id, _group_trace(flow, group)),
        "tasks": list(task_states(flow, group, worker_id)),
        "type": "source",
    }


def task_states(flow: FlowView, group: GroupView, worker_id: str) -> Iterator[Json]:
    """Show a connector's tasks as Connect's TaskState; a stopped one has none."""
    if group.state in _NO_TASKS:
        return
    if group.connector != SOURCE:
        yield {"id": 0, **_state(_STATES[group.state], group.node or worker_id, _group_trace(flow, group))}
        return
    for task in flow.tasks:
        # A task of another node goes by its own state, unless all are to rest: the connector's here may differ.
        is_running = group.state is FlowState.RUNNING or (bool(task.node) and group.wanted is Wanted.RUNNING)
        state = _TASK_STATES[task.state] if is_running else _STATES[group.state]
        yield {"id": task.task, **_state(state, task.node or worker_id, _task_trace(flow, task))}


def mark_restarted(state: Json, *, include_tasks: bool, only_failed: bool) -> None:
    """Mark in a connector's state what is being restarted, as Connect does, with RESTARTING; a stopped one stays so,
    which Connect shows at the next look only.
    """
    for one in (state["connector"], *(state["tasks"] if include_tasks else ())):
        if one["state"] == "FAILED" or not (only_failed or one["state"] == "STOPPED"):
            one["state"] = "RESTARTING"


def _group_trace(flow: FlowView, group: GroupView) -> str:
    """Return why a connector does not do its work. Connect has no state for one whose cluster is away; what stopped
    partitions is in the traces of their tasks.
    """
    if group.last_error or group.node:
        return _trace(group.last_error, group.hint)
    found = failures_of(flow, group, flow_issues(flow)) if group.state is FlowState.RUNNING else []
    return "\n".join(_trace(it.sentence, it.hint) for it in found if it.code is not IssueCode.PARTITIONS_STOPPED)


def _task_trace(flow: FlowView, task: TaskView) -> str:
    """Return why a copy task cannot copy all of its partitions."""
    stuck = [
        f"{it.source}: {_trace(it.failure.message, it.failure.hint)}"
        for it in flow.partitions
        if not task.node and it.task == task.task and it.stage is PartitionStage.STOPPED and it.failure is not None
    ]
    return "\n".join([task.last_error, *stuck] if task.last_error else stuck)


def _state(state: str, worker_id: str, trace: str) -> Json:
    shown = {"state": state, "worker_id": worker_id, "version": mm2py.__version__}
    return {**shown, "trace": trace} if trace else shown


def _trace(error: str, hint: str) -> str:
    return f"{error}\n{hint}" if error and hint else error


def task_ids(flow: FlowView, group: GroupView) -> list[int]:
    """Return the task numbers of a connector."""
    if group.state in _NO_TASKS:
        return []
    return [task.task for task in flow.tasks] if group.connector == SOURCE else [0]


def connector_info(name: str, config: Mapping[str, str], tasks: Iterable[int]) -> Json:
    """Show a connector as Connect's ConnectorInfo."""
    numbered = [{"connector": name, "task": number} for number in tasks]
    return {"name": name, "config": dict(config), "tasks": numbered, "type": "source"}


def task_infos(name: str, config: Mapping[str, str], tasks: Iterable[int]) -> list[Json]:
    """Show a connector's tasks as Connect's TaskInfo."""
    return [{"id": {"connector": name, "task": number}, "config": config} for number in tasks]


def as_text(value: object) -> str | None:
    """Return a JSON value as text of a properties file; None if it cannot be one."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return value if isinstance(value, str) else None


# Plugins.


def plugins(*, has_mirus: bool, are_all: bool) -> list[Json]:
    """List the connectors as Connect's PluginInfo; if they *are_all* wanted, what a connector can name as well."""
    return [
        {"class": name, "type": kind, "version": mm2py.__version__ if name == SOURCE_CLASS else VERSION}
        for name, kind in PLUGINS
        if (are_all or kind == "source") and (has_mirus or name != SOURCE_CLASS)
    ]
