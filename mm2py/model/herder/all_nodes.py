"""One view of a flow from what all of its nodes report: each node can show the whole flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from mm2py.model.behind import Behind
from mm2py.model.herder.node_status import NodeStatus
from mm2py.model.herder.share import SharedFlow
from mm2py.model.state import (
    NOT_HERE,
    FlowState,
    FlowView,
    GroupView,
    MirrorView,
    NodeView,
    TaskStatus,
    TaskView,
    working_elsewhere,
)


_RUNNING: Final = (FlowState.RUNNING, FlowState.HAS_FAILURES)
#: A report of a node as old as this, which reports every ten seconds or more often, says nothing of its lag now. Nodes
#: that cannot write reports themselves do not read those of others, and none counts as silent for that.
_OLD_MS: Final = 30_000


def node_view(
    status: NodeStatus,
    shared: SharedFlow | None,
    *,
    name: str = "",
    is_this: bool = False,
    heard_s: float | None,
    answers: bool,
) -> NodeView:
    """Return the view of a node from its last *status*, *heard_s* seconds old, and from the assignment. *name* is what
    sets it apart from the others, if its `worker_id` does not.
    """
    node = status.node
    member = _member_of(shared, node.id)
    is_member = shared is None or member is not None
    share = status.share if shared is None else shared.share_of(member or "")
    told = _told(status, shared) if is_member else NodeStatus(node, status.at_ms)
    return NodeView(
        node.id,
        name or node.worker_id,
        node.host,
        node.pid,
        node.rest,
        node.started_ms,
        is_this=is_this,
        is_owner=share.is_owner,
        is_member=is_member,
        answers=answers,
        is_drained=status.is_drained,
        heard_ms=None if heard_s is None else round(heard_s * 1000),
        state=told.state,
        assigned=tuple(sorted(share.tasks)),
        tasks_for_ms=_age_ms(status, status.tasks_since_ms, heard_s) if status.share.tasks == share.tasks else None,
        owner_for_ms=_age_ms(status, status.owner_since_ms, heard_s) if share.is_owner else None,
        tasks=told.tasks,
        connectors=told.connectors,
        topics=told.topics,
        partitions=told.partitions,
        stopped_partitions=told.stopped_partitions,
        unknown_lags=told.unknown_lags,
        mirrored=told.mirrored,
        records=told.records,
        bytes=told.bytes,
        records_per_s=told.records_per_s,
        bytes_per_s=told.bytes_per_s,
        lag=told.lag,
        lag_s=told.lag_s,
        seconds_until_level=told.seconds_until_level,
        differs=status.differs if shared is None or member is None else shared.differences.get(member, ()),
        issues=told.issues,
    )


def _told(status: NodeStatus, shared: SharedFlow | None) -> NodeStatus:
    """Return what a member's *status* says now. By another assignment than this node's it may be about partitions that
    another node has by now, and counts, too.
    """
    if shared is None or status.generation == shared.generation:
        return status
    return attrs.evolve(status, unknown_lags=status.partitions, lag=None, lag_s=None, seconds_until_level=None)


def _age_ms(status: NodeStatus, since_ms: int | None, heard_s: float | None) -> int | None:
    """Return the age of something that began at *since_ms*, by the clock that the node's *status* has, too."""
    if since_ms is None or heard_s is None:
        return None
    return max(0, status.at_ms - since_ms) + round(heard_s * 1000)


def _member_of(shared: SharedFlow | None, node_id: str) -> str | None:
    nodes = shared.nodes if shared is not None else {}
    return next((member for member, node in nodes.items() if node.id == node_id), None)


def of_all_nodes(view: MirrorView) -> MirrorView:
    """Return *view* with each flow as all of its nodes together run it."""
    return attrs.evolve(view, flows=tuple(map(flow_of_all_nodes, view.flows)))


def flow_of_all_nodes(view: FlowView) -> FlowView:
    """
    Return the flow with the tasks, connectors and totals of all nodes that answer.

    Partitions stay those of this node; of the others they are counted. Times from record to record are its own, too.
    """
    others = [it for it in view.nodes if not it.is_this and it.is_counted]
    if all(it.is_this for it in view.nodes):
        return view
    uncounted = _uncounted(view, others)
    return attrs.evolve(
        view,
        topics=max([view.topics, *(it.topics for it in others)]),
        partitions_elsewhere=sum(it.partitions for it in others) + uncounted,
        unknown_lags_elsewhere=sum(it.unknown_lags for it in others) + uncounted,
        tasks=_tasks(view, others),
        groups=tuple(_group(group, others) for group in view.groups),
        records=view.records + sum(it.records for it in others),
        bytes=view.bytes + sum(it.bytes for it in others),
        records_per_s=view.records_per_s + sum(it.records_per_s for it in others),
        bytes_per_s=view.bytes_per_s + sum(it.bytes_per_s for it in others),
        **attrs.asdict(_behind(view, others, uncounted)),
        seconds_until_level=None if uncounted else _until_all_are_level(view, others),
    )


def _uncounted(view: FlowView, others: Sequence[NodeView]) -> int:
    """Return how many mirrored partitions no node counts: on their way from one to another they belong to neither."""
    mirrored = max((it for it in (view.mirrored, *(other.mirrored for other in others)) if it is not None), default=0)
    return max(0, mirrored - view.partition_count - sum(it.partitions for it in others))


def _behind(view: FlowView, others: Sequence[NodeView], uncounted: int) -> Behind:
    """Return how far all nodes are behind that copy anything; that of one that is silent, or has read no positions yet,
    is not known, nor that of partitions that are *uncounted*, or of topics that are missing or hidden.
    """
    each = [Behind.of(view)] if view.partition_count or view.lacks_topics else []
    each += [
        Behind.at_least(it.lag, it.lag_s) if it.unknown_lags else Behind(it.lag, it.lag_s)
        for it in others
        if it.partitions
    ]
    each += [Behind() for it in view.nodes if not _tells_lag(view, it)]
    return Behind.together([*each, Behind()] if uncounted else each)


def _tells_lag(view: FlowView, node: NodeView) -> bool:
    """Whether it is known how far a node is behind, if it copies; one that runs without partitions has none to copy."""
    if not node.assigned:
        return True
    if node.heard_ms is not None and node.heard_ms > _OLD_MS:
        return False
    state, partitions = (view.state, view.partition_count) if node.is_this else (node.state, node.partitions)
    return (node.is_this or node.is_counted) and (partitions > 0 or state in _RUNNING)


def _until_all_are_level(view: FlowView, others: Sequence[NodeView]) -> float | None:
    """Return when the last of the nodes will have caught up; None if one of those that copy does not know, or say."""
    if not all(_tells_lag(view, it) for it in view.nodes):
        return None
    each = [
        (view.partition_count, view.seconds_until_level),
        *((it.partitions, it.seconds_until_level) for it in others),
    ]
    times = [time for partitions, time in each if partitions]
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None


def _tasks(view: FlowView, others: Sequence[NodeView]) -> tuple[TaskView, ...]:
    """Return each task once: while one moves, two nodes may report it."""
    found = {task.task: _task(task, node) for node in others for task in node.tasks}
    for task in view.tasks:
        if task.task not in found or not any(task.task in node.assigned for node in others):
            found[task.task] = task
    return tuple(found[number] for number in sorted(found))


def _task(task: TaskStatus, node: NodeView) -> TaskView:
    return TaskView(
        task.task,
        task.state,
        0,
        task.partitions,
        task.records_per_s,
        task.bytes_per_s,
        worker=task.worker,
        last_error=task.last_error,
        node=node.worker_id,
    )


def _group(group: GroupView, others: Sequence[NodeView]) -> GroupView:
    """Return a connector as reported by the node that runs it; what a flow has once is run by its owner."""
    if group.state not in NOT_HERE:
        return group
    found = working_elsewhere(group.connector, others)
    if found is None:
        return group
    node, status = found
    return attrs.evolve(group, state=status.state, last_error=status.last_error, hint="", node=node.worker_id)
