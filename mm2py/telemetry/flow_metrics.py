"""Metrics of flows, their connectors, tasks and events. All of them come from a view and from the tally of events;
nothing is measured here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Final

from mm2py.model.connector_offset import SOURCE
from mm2py.model.health import Severity, flow_issues, shown
from mm2py.model.state import FlowState, FlowView, PartitionStage, TaskView
from mm2py.telemetry.connect_metrics import TASK_STATES, fill_connect, task_states
from mm2py.telemetry.metric_text import Family
from mm2py.telemetry.partition_metrics import known_lag
from mm2py.telemetry.series import Labels, ends_of, labels
from mm2py.telemetry.tally import EventTally


#: Counters of events, there from the start.
_EVENTS: Final = {
    "mm2py_source_truncations_total": "source_truncated",
    "mm2py_source_recreations_total": "source_topic_recreated",
    "mm2py_source_expirations_total": "source_records_expired",
    "mm2py_target_rewinds_total": "remote_topic_rewound",
    "mm2py_target_recreations_total": "remote_topic_recreated",
    "mm2py_target_deletions_total": "remote_topic_deleted",
    "mm2py_partition_stops_total": "partition_stopped",
    "mm2py_partition_interruptions_total": "partition_interrupted",
}
_AMOUNTS: Final = {
    "mm2py_positions_written_total": ("positions_written",),
    "mm2py_offset_syncs_written_total": ("offset_syncs_written",),
    "mm2py_checkpoints_written_total": ("checkpoints_written",),
    "mm2py_group_offsets_written_total": ("group_offsets_synced",),
    "mm2py_lost_records_total": (
        "source_truncated",
        "source_topic_recreated",
        "source_records_expired",
        "remote_topic_rewound",
        "remote_topic_recreated",
    ),
}
_SYNC_STEPS: Final = (
    "create remote topics with their source's configs",
    "synchronise topic ACLs",
    "synchronise topic configs",
)
_RESUMES: Final = {"exact": "resumed_exactly", "unproven": "resume_unproven"}
_SYNC_ERRORS: Final = ("refused", "unknown")
_AT_TARGET: Final = ("idle", "active", "in_use", "watched", "other_protocol", "unknown", "refused")

Book = Mapping[str, Family]


def fill_flow(book: Book, flow: FlowView, tally: EventTally, wall_ms: int) -> None:
    """Put one flow's metrics into *book*, except those of partitions and groups."""
    ends = ends_of(flow.flow)
    whole = labels(**ends)
    issues = flow_issues(flow)
    as_shown = shown(flow, issues)
    _fill_whole(book, as_shown, whole)
    for handling, count in (
        ("unopened", flow.batches_unopened),
        ("rebuilt", flow.batches_rebuilt),
        ("dropped", flow.batches_dropped),
    ):
        _put(book, "mm2py_flow_batches_total", labels(**ends, handling=handling), count)
    stages = Counter(view.stage for view in flow.partitions)
    for stage in PartitionStage:
        _put(book, "mm2py_flow_partitions", labels(**ends, stage=stage.name.lower()), stages[stage])
    severities = Counter(issue.severity for issue in issues)
    for severity in Severity:
        _put(book, "mm2py_flow_issues", labels(**ends, severity=severity.name.lower()), severities[severity])
    for cluster in (it for it in flow.clusters if it.is_asked):
        _put(book, "mm2py_cluster_reachable", labels(**ends, cluster=cluster.alias), int(cluster.is_reachable))
    for step in flow.steps:
        it = labels(**ends, step=step.step)
        _put(book, "mm2py_step_failures_total", it, step.failures)
        if step.succeeded_ms is not None:
            _put(book, "mm2py_last_success_timestamp_seconds", it, step.succeeded_ms / 1000)
    _fill_heartbeats(book, flow, whole, wall_ms)
    _fill_nodes(book, flow, ends)
    for group in as_shown.groups:
        _put(book, "mm2py_connector_state", labels(**ends, connector=group.connector), group.state.value)
    _fill_connectors(book, flow, tally)
    fill_connect(book, flow, tally, wall_ms)
    for task in flow.tasks:
        _fill_task(book, labels(**ends, task=str(task.task)), task)
    _fill_groups(book, flow, ends)
    _fill_events(book, flow, tally)


def _put(book: Book, name: str, it: Labels, value: float) -> None:
    book[name].add(it, value)


def _fill_whole(book: Book, flow: FlowView, it: Labels) -> None:
    for name, value in (
        ("state", flow.state.value),
        ("records_total", flow.records),
        ("bytes_total", flow.bytes),
        ("resumed_records_total", flow.resumed_records),
        ("foreign_records_total", flow.foreign_records),
        ("topics", flow.topics),
        ("missing_destination_partitions", flow.missing_partitions),
        ("unknown_lags", flow.unknown_lags),
        ("retention_loss_seconds", flow.seconds_until_loss),
        ("throttled_seconds_total", flow.throttled_ms / 1000),
    ):
        if value is not None:
            _put(book, f"mm2py_flow_{name}", it, value)
    if flow.partition_count:
        lag, lag_s = known_lag(flow)
        _put(book, "mm2py_flow_lag_records", it, lag)
        _put(book, "mm2py_flow_lag_seconds", it, lag_s)
        level_s = flow.seconds_until_level
        _put(book, "mm2py_flow_catch_up_seconds", it, math.nan if level_s is None else level_s)
    book["mm2py_replication_latency_seconds"].histograms.append((it, flow.latency))
    book["mm2py_record_age_seconds"].histograms.append((it, flow.age))


def _fill_nodes(book: Book, flow: FlowView, ends: Mapping[str, str]) -> None:
    whole = labels(**ends)
    this = next((node for node in flow.nodes if node.is_this), None)
    _put(book, "mm2py_flow_nodes", whole, max(1, sum(node.is_counted for node in flow.nodes)))
    if this is None:
        if flow.state is not FlowState.STANDBY:
            _put(book, "mm2py_flow_owner", whole, 1)
        return
    if any(node.is_owner or node.assigned for node in flow.nodes):
        _put(book, "mm2py_flow_owner", whole, int(this.is_owner))
    _put(book, "mm2py_flow_differing_settings", whole, len(this.differs))
    for node in flow.nodes:
        it = labels(**ends, node=node.worker_id, host=node.host, id=node.id)
        _put(book, "mm2py_node_tasks", it, len(node.assigned))
        if node.is_counted:
            _put(book, "mm2py_node_bytes_per_second", it, node.bytes_per_s)
        if not node.is_this and node.heard_ms is not None:
            _put(book, "mm2py_node_last_heard_seconds", it, node.heard_ms / 1000)


def _fill_heartbeats(book: Book, flow: FlowView, it: Labels, wall_ms: int) -> None:
    if flow.heartbeats is not None:
        _put(book, "mm2py_heartbeats_sent_total", it, flow.heartbeats.sent)
        if flow.heartbeats.last_ms is not None:
            _put(book, "mm2py_heartbeat_emit_age_seconds", it, max(0, wall_ms - flow.heartbeats.last_ms) / 1000)
    for copied in flow.copied_heartbeats:
        where = labels(**ends_of(flow.flow), topic=copied.topic)
        _put(book, "mm2py_heartbeat_age_seconds", where, max(0, wall_ms - copied.last_ms) / 1000)


# Connectors and tasks.


def _fill_connectors(book: Book, flow: FlowView, tally: EventTally) -> None:
    ends = ends_of(flow.flow)
    for group in flow.groups:
        own = labels(**ends, connector=group.connector)
        _put(book, "mm2py_connector_failed_restart_attempts_total", own, group.falls)
        # From the events: copy tasks that are no longer needed are in no view.
        lost = tally.count("copy_task_lost", flow.flow) if group.connector == SOURCE else 0
        _put(book, "mm2py_connector_task_failed_restart_attempts_total", own, lost)
        counts = Counter(task_states(flow, group).values())
        for state in TASK_STATES:
            _put(book, "mm2py_connector_tasks", labels(**ends, connector=group.connector, state=state), counts[state])


def _fill_task(book: Book, it: Labels, task: TaskView) -> None:
    for name, value in (
        ("failed_restart_attempts_total", task.lost_epochs),
        ("state", task.state.value),
        ("partitions", task.partitions),
        ("records_total", task.records),
        ("bytes_total", task.bytes),
        ("epochs_total", task.epochs_ended),
        ("epoch_seconds_total", task.elapsed_s),
        ("boundary_seconds_total", task.boundary_s),
        ("cpu_seconds_total", task.cpu_s),
        ("resident_memory_bytes", task.rss_bytes),
        ("fetch_requests_total", task.fetches),
        ("produce_requests_total", task.produces),
        ("retries_total", task.retries),
        ("throttled_seconds_total", task.throttled_ms / 1000),
        ("paced_seconds_total", task.paced_ms / 1000),
    ):
        _put(book, f"mm2py_task_{name}", it, value)


# Groups and events.


def _fill_groups(book: Book, flow: FlowView, ends: Mapping[str, str]) -> None:
    followed = Counter(group.at_target or "not_synced" for group in flow.consumer_groups if not group.why)
    for state in (*_AT_TARGET, "not_synced"):
        _put(book, "mm2py_consumer_groups", labels(**ends, at_target=state), followed[state])


def _fill_events(book: Book, flow: FlowView, tally: EventTally) -> None:
    this = flow.flow
    ends = ends_of(this)
    whole = labels(**ends)
    for name, event in _EVENTS.items():
        _put(book, name, whole, tally.count(event, this))
    for name, events in _AMOUNTS.items():
        _put(book, name, whole, sum(tally.amount(event, this) for event in events))
    for outcome, event in _RESUMES.items():
        _put(book, "mm2py_resumes_total", labels(**ends, outcome=outcome), tally.count(event, this))
    skipped = tally.details("group_sync_skipped", this)
    _put(book, "mm2py_group_sync_errors_total", whole, sum(skipped.get(state, 0) for state in _SYNC_ERRORS))
    for name, event, details in (
        ("mm2py_authentication_errors_total", "authentication_failed", (this.source, this.target)),
        ("mm2py_cluster_outages_total", "cluster_unreachable", (this.source, this.target)),
        ("mm2py_topic_sync_errors_total", "topic_sync_failed", _SYNC_STEPS),
    ):
        label = "step" if event == "topic_sync_failed" else "cluster"
        counts = dict.fromkeys(details, 0) | dict(tally.details(event, this))
        for detail, count in counts.items():
            _put(book, name, labels(**ends, **{label: detail}), count)


def fill_events(book: Book, tally: EventTally) -> None:
    """Add the count of each event, of flows and of the daemon itself."""
    for (event, flow), count in sorted(tally.counts.items(), key=lambda it: (it[0][0], str(it[0][1] or ""))):
        ends = ends_of(flow) if flow is not None else {}
        _put(book, "mm2py_events_total", labels(**ends, event=event), count)
