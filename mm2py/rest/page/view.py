"""The status page's messages: views as compact JSON values. A flow's summary is small and goes to every page each
second. Data that grows with topics and groups goes only to viewers of that flow, as *tables*: keyed rows, of which only
those are sent that changed in the last second.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import attrs

import mm2py
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.group_move import GroupMove, PartitionMove, by_source, moves_of
from mm2py.model.health import node_issues
from mm2py.model.herder.overrides import Overrides
from mm2py.model.herder.share import Elsewhere
from mm2py.model.state import (
    ClusterView,
    FlowView,
    GroupOffsetsView,
    MirrorView,
    NodeView,
    PartitionStage,
    PartitionView,
    SparkView,
    TaskView,
)
from mm2py.policy.selection import GroupSelection
from mm2py.rest.page.history import History, rounded
from mm2py.rest.shapes import flow_figures, issues_json, limit_json
from mm2py.telemetry.events import SparkEnded, SparkStarted


Row = TypeVar("Row")

#: An enum's name is slow to look up, and there are thousands of partitions.
_STAGES = {stage: stage.name.lower() for stage in PartitionStage}
#: Points in the sparkline of a flow's rate.
_SPARKLINE_POINTS = 60

#: The columns of a partition's row.
PARTITION_COLUMNS = (
    "topic",
    "partition",
    "remote_topic",
    "task",
    "stage",
    "position",
    "downstream",
    "end_offset",
    "lag",
    "lag_is_least",
    "lag_s",
    "age_ms",
    "latency_ms",
    "records_per_s",
    "bytes_per_s",
    "records",
    "seconds_until_loss",
    "seconds_until_level",
    "retry_in_s",
    "message",
    "hint",
    "error",
)


def overview(
    view: MirrorView, history: History, spark: SparkStarted | SparkEnded | None, worker_id: str
) -> dict[str, Any]:
    """Return the overview of this node, all flows and Spark, without values that change every second anyway."""
    return {
        "version": mm2py.__version__,
        "node": {"worker_id": worker_id, "host": view.host, "id": view.node_id},
        "is_ready": view.is_ready,
        "started_ms": view.started_ms,
        "spark": _spark(view.spark, spark),
        "issues": issues_json(node_issues(view)),
        "flows": [{**summary(flow), "recent": history.rates(flow.flow, _SPARKLINE_POINTS)} for flow in view.flows],
    }


def summary(flow: FlowView) -> dict[str, Any]:
    """Return the summary line of one flow."""
    figures = flow_figures(flow)
    return {
        **{name: rounded(one) if isinstance(one, float) else one for name, one in figures.items()},
        "records": flow.records,
        "bytes": flow.bytes,
        "age_p50_ms": rounded(flow.age_p50_ms),
        "clusters": [_cluster(cluster) for cluster in flow.clusters],
        "connectors": [
            {
                "connector": group.connector,
                "state": figures["connectors"][group.connector],
                "restarts": group.restarts,
                "last_error": group.last_error,
                "hint": group.hint,
            }
            for group in flow.groups
        ],
        "copy_tasks": len(flow.tasks),
    }


def details(flow: FlowView) -> dict[str, Any]:
    """Return the part of a flow's page besides the summary and the tables."""
    return {
        "flow": str(flow.flow),
        "tasks": [_task(task) for task in flow.tasks],
        "heartbeats": None if flow.heartbeats is None else attrs.asdict(flow.heartbeats),
        "lag_s": _whole(flow.lag_s),
        "lag_s_is_least": flow.lag_s_is_least,
        "seconds_until_loss": _whole(flow.seconds_until_loss),
        "seconds_until_level": _whole(flow.seconds_until_level),
        "missing_partitions": flow.missing_partitions,
        "throttled_ms": flow.throttled_ms,
        "batches": [flow.batches_unopened, flow.batches_rebuilt, flow.batches_dropped],
        "resumed_records": flow.resumed_records,
        "foreign_records": flow.foreign_records,
        "steps": [attrs.asdict(step) for step in flow.steps],
        "nodes": [_node(node) for node in flow.nodes],
    }


def ordered(overrides: Overrides) -> dict[str, Any]:
    """Return the overrides of a flow."""
    return {
        "connectors": {name: wanted.value for name, wanted in overrides.groups.items()},
        "topics": sorted(overrides.topics),
        "partitions": sorted([it.topic, it.partition] for it in overrides.partitions),
        "limit": limit_json(overrides.limit),
        "topic_limits": {topic: limit_json(limit) for topic, limit in overrides.topic_limits.items()},
        "settings": {name: sorted(lines) for name, lines in overrides.config.items() if lines},
        "pauses": {what: attrs.asdict(pause) for what, pause in overrides.pauses.items()},
    }


PartitionRows = dict[TopicPartition, tuple[PartitionView, list[Any]]]


def partition_rows(flow: FlowView, before: PartitionRows | None = None) -> PartitionRows:
    """Return the view of each partition with its row; a row of *before* if that was made of the same view."""
    if not before:
        return {it.source: (it, _partition(it)) for it in flow.partitions}
    found: PartitionRows = {}
    for view in flow.partitions:
        known = before.get(view.source)
        found[view.source] = known if known is not None and known[0] is view else (view, _partition(view))
    return found


def partition_changes(before: PartitionRows, after: PartitionRows) -> tuple[list[list[Any]], list[str]]:
    """Return new and changed rows, and the names of the partitions that are gone."""
    changed: list[list[Any]] = []
    for source, one in after.items():
        known = before.get(source)
        if known is not one and (known is None or known[1] != one[1]):
            changed.append(one[1])
    return changed, [str(source) for source in before if source not in after]


def group_rows(flow: FlowView) -> dict[str, dict[str, Any]]:
    """Return a row for each consumer group, by its name."""
    moves = moves_of(flow.consumer_groups, by_source(flow.partitions))
    return {group.group: _group(group, move, each) for group, move, each in moves}


def elsewhere_rows(elsewhere: Mapping[TopicPartition, Elsewhere]) -> dict[str, list[Any]]:
    """Return a row for each topic of which other nodes copy partitions: how many each of them copies, by its name."""
    nodes: dict[tuple[str, str], Counter[str]] = {}
    for source, place in elsewhere.items():
        nodes.setdefault((source.topic, place.remote_topic), Counter())[place.node] += 1
    return {topic: [topic, remote, sorted(many.items())] for (topic, remote), many in sorted(nodes.items())}


def missing_rows(flow: FlowView) -> dict[str, list[Any]]:
    """Return a row for each topic of which the target lacks partitions: how many, and why, by its name."""
    rows: dict[str, list[Any]] = {}
    for it in flow.missing_topics:
        why = ("", "") if it.failure is None else (it.failure.message, it.failure.hint)
        rows[it.topic] = [it.topic, it.remote_topic, it.partitions, *why]
    return rows


def changes(before: Mapping[str, Row], after: Mapping[str, Row]) -> tuple[list[Row], list[str]]:
    """Return new and changed rows, and the keys of removed ones."""
    changed = [row for key, row in after.items() if before.get(key) != row]
    gone = [key for key in before if key not in after]
    return changed, gone


def _spark(slots: SparkView | None, said: SparkStarted | SparkEnded | None) -> dict[str, Any] | None:
    if slots is None:
        return None
    is_known = slots.is_up and isinstance(said, SparkStarted)
    return {
        **attrs.asdict(slots),
        "master": said.master if is_known and isinstance(said, SparkStarted) else "",
        "ui": said.ui if is_known and isinstance(said, SparkStarted) else "",
        "reason": said.reason if isinstance(said, SparkEnded) else "",
    }


def _task(task: TaskView) -> dict[str, Any]:
    return {
        "task": task.task,
        "state": task.state.name.lower(),
        "epoch": task.epoch,
        "partitions": task.partitions,
        "records_per_s": rounded(task.records_per_s),
        "bytes_per_s": rounded(task.bytes_per_s),
        "boundary_ms": rounded(task.boundary_ms),
        "lost_epochs": task.lost_epochs,
        "worker": task.worker,
        "node": task.node,
        "last_error": task.last_error,
        "cpu_s": rounded(task.cpu_s),
        "elapsed_s": rounded(task.elapsed_s),
        "rss_bytes": task.rss_bytes,
        "retries": task.retries,
        "throttled_ms": task.throttled_ms,
        "epochs": [
            [it.epoch, it.ended_ms, it.records, it.bytes, rounded(it.elapsed_s), rounded(it.boundary_ms), it.outcome]
            for it in task.epochs
        ],
    }


def _node(node: NodeView) -> dict[str, Any]:
    return {
        "id": node.id,
        "worker_id": node.worker_id,
        "rest": node.rest,
        "host": node.host,
        "pid": node.pid,
        "started_ms": node.started_ms,
        "is_this": node.is_this,
        "is_owner": node.is_owner,
        "is_member": node.is_member,
        "answers": node.answers,
        "is_drained": node.is_drained,
        "state": node.state.name.lower(),
        "heard_s": None if node.heard_ms is None else node.heard_ms // 1000,
        "assigned": list(node.assigned),
        "partitions": node.partitions,
        "records_per_s": rounded(node.records_per_s),
        "bytes_per_s": rounded(node.bytes_per_s),
        "lag": node.lag,
        "lag_is_least": node.unknown_lags > 0,
        "differs": list(node.differs),
        "issues": list(node.issues),
    }


def _cluster(cluster: ClusterView) -> dict[str, Any]:
    return attrs.asdict(cluster)


def _partition(it: PartitionView) -> list[Any]:
    failure = it.failure
    return [
        it.source.topic,
        it.source.partition,
        it.remote_topic,
        it.task,
        _STAGES[it.stage],
        it.position,
        it.downstream,
        it.end_offset,
        it.lag,
        it.lag_is_least,
        _whole(it.lag_s),
        None if it.age is None else _whole(it.age.avg_ms),
        None if it.latency is None else _whole(it.latency.avg_ms),
        rounded(it.record_rate),
        _whole(it.byte_rate),
        it.records,
        _whole(it.seconds_until_loss),
        _whole(it.seconds_until_level),
        _whole(it.retry_in_s),
        failure.message if failure else "",
        failure.hint if failure else "",
        failure.error if failure else "",
    ]


def _whole(number: float | None) -> int | None:
    """Round: decimals would change every row each second."""
    return None if number is None or not math.isfinite(number) else round(number)


def _group(group: GroupOffsetsView, move: GroupMove | None, each: Sequence[PartitionMove]) -> dict[str, Any]:
    distances = [offset.distance for offset in group.offsets if offset.distance is not None]
    return {
        "group": group.group,
        "why": group.why,
        # Of Connect's workers, and of the nodes of flows, which are members as those are.
        "is_inner": group.why == GroupSelection.OTHER_PROTOCOL.value,
        "at_target": group.at_target,
        "at_target_why": group.at_target_why,
        "synced_ms": group.synced_ms,
        "move": "" if move is None else move.words,
        "due_ms": move.due_ms if move is not None and move.is_due else None,
        "distance": sum(distances) if distances else None,
        "offsets": [
            [
                offset.source.topic,
                offset.source.partition,
                offset.remote.topic,
                offset.upstream,
                offset.downstream,
                offset.distance,
                offset.is_exact,
                offset.why,
                offset.committed,
                one.words,
                one.is_due,
            ]
            for offset, one in zip(group.offsets, each, strict=True)
        ],
    }


def find_flow(view: MirrorView, flow: Flow) -> FlowView | None:
    """Return a flow's view, None if this node does not run it."""
    return next((one for one in view.flows if one.flow == flow), None)
