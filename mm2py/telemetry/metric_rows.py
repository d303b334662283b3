"""
Every metric that a node exports: name, kind, labels, meaning, and its name in Java MirrorMaker or Mirus.

`telemetry.metrics` fills them, `telemetry.metric_docs` generates docs/metrics.md from them. A name is never reused for
anything else.
"""

from __future__ import annotations

import enum

import attrs


class MetricType(enum.Enum):
    """Prometheus's types. Java's counters are gauges in the JMX exporter, and so they are here."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@attrs.frozen
class Metric:
    """One metric. `java` is its name in other mirrors."""

    name: str
    kind: MetricType
    labels: tuple[str, ...]
    doc: str
    java: str = ""


@attrs.frozen
class Chapter:
    """Metrics on one subject."""

    title: str
    text: str
    metrics: tuple[Metric, ...]


_C, _G, _H = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM
_FLOW = ("source", "target")
_JMX = ("source", "target", "destination")
_JAVA_PARTITION = (*_JMX, "topic", "partition")
_JAVA_GROUP = (*_JMX, "group", "topic", "partition")
_JAVA_CONNECTOR = (*_JMX, "connector")
_JAVA_TASK = (*_JAVA_CONNECTOR, "task")
_PARTITION = (*_FLOW, "topic", "partition")
_CONNECTOR = (*_FLOW, "connector")
_TASK = (*_FLOW, "task")
_EACH_NODE = (*_FLOW, "node", "host", "id")

_SOURCE = "kafka_connect_mirror_source_connector_"
_CHECKPOINT = "kafka_connect_mirror_checkpoint_connector_"
_MBEAN = "MirrorSourceConnector: "


def _times(prefix: str, name: str, labels: tuple[str, ...], doc: str, java: str) -> tuple[Metric, ...]:
    words = {"": "the last one", "_min": "the least", "_max": "the greatest", "_avg": "the mean"}
    return tuple(
        Metric(f"{prefix}{name}{ending}", _G, labels, f"{doc}: {word}.", f"{java}{ending.replace('_', '-')}")
        for ending, word in words.items()
    )


_JAVA_SOURCE = Chapter(
    "As Java MirrorMaker: copying",
    "The names are those of the JMX exporter for Java's metrics, see [above](#how-to-read-them). Minima, maxima, means "
    "and rates cover about the last minute (two samples of 30 s, as in Java); `NaN` if nothing was copied then.",
    (
        Metric(f"{_SOURCE}record_count", _G, _JAVA_PARTITION,
               "Records copied since the daemon started.", f"{_MBEAN}record-count"),
        Metric(f"{_SOURCE}record_rate", _G, _JAVA_PARTITION, "Records copied per second.", f"{_MBEAN}record-rate"),
        Metric(f"{_SOURCE}byte_count", _G, _JAVA_PARTITION,
               "Bytes copied since the daemon started: of whole record batches as written to the target, compressed.",
               f"{_MBEAN}byte-count"),
        Metric(f"{_SOURCE}byte_rate", _G, _JAVA_PARTITION,
               "Bytes of record batches copied per second.", f"{_MBEAN}byte-rate"),
        *_times(_SOURCE, "record_age_ms", _JAVA_PARTITION,
                "Milliseconds from a record's timestamp until it was read from the source", f"{_MBEAN}record-age-ms"),
        *_times(_SOURCE, "replication_latency_ms", _JAVA_PARTITION,
                "Milliseconds from a record's timestamp until the target acknowledged it",
                f"{_MBEAN}replication-latency-ms"),
    ),
)  # fmt: skip

_JAVA_CHECKPOINTS = Chapter(
    "As Java MirrorMaker: checkpoints",
    "",
    _times(_CHECKPOINT, "checkpoint_latency_ms", _JAVA_GROUP,
           "Milliseconds from reading a consumer group until its checkpoint was written",
           "MirrorCheckpointConnector: checkpoint-latency-ms"),
)  # fmt: skip

_TASK_STATES = ("total", "running", "paused", "failed", "unassigned", "destroyed")

_JAVA_CONNECT = Chapter(
    "As Kafka Connect: connectors and their tasks",
    "A connector is a task group of a flow, under Java's name for it; on a Connect worker, under its own name. Records "
    "count as polled once they are written, so both have one figure; of the other connectors they are checkpoints and "
    "heartbeats. A source connector that never came up has one task here, in the connector's state. Of a task there is "
    "what the node that runs it knows.",
    (
        Metric("kafka_connect_connector_status", _G, (*_JAVA_TASK, "status"),
               "1 for each task of this node, with its state as a label.", "connector-task-metrics: status"),
        Metric("kafka_connect_connector_task_status", _G, (*_JAVA_TASK, "status"),
               "The same, by the name that Strimzi's rules for Kafka Connect write.", "connector-task-metrics: status"),
        *(
            Metric(f"kafka_connect_connector_connector_{what}", _G, (*_JAVA_CONNECTOR, f"connector_{what}"),
                   f"1 for each connector, with its {what} as a label.", f"connector-metrics: connector-{what}")
            for what in ("class", "type", "version")
        ),
        *(
            Metric(f"kafka_connect_worker_connector_{state}_task_count", _G, _JAVA_CONNECTOR,
                   "Tasks of the connector." if state == "total" else f"Tasks of the connector that are {state}.",
                   f"connect-worker-metrics: connector-{state}-task-count")
            for state in _TASK_STATES
        ),
        *(
            Metric(f"kafka_connect_source_task_source_record_{step}_{ending}", kind, _JAVA_TASK, doc,
                   f"source-task-metrics: source-record-{step}-{ending}")
            for step in ("poll", "write")
            for ending, kind, doc in (
                ("total", _C, "Records that the task copied since the daemon started."),
                ("rate", _G, "Records per second that the copy task copied in its last epoch."),
            )
        ),
        Metric("kafka_connect_source_task_source_record_active_count", _G, _JAVA_TASK,
               "Records that the source has, by its last answer, and the target has not acknowledged, of the copy "
               "task's partitions, paused and stopped ones included: an upper bound of those that were read and not "
               "acknowledged. 0 means that nothing is on its way; `NaN` that it is unknown of a partition.",
               "source-task-metrics: source-record-active-count"),
        *(
            Metric(f"kafka_connect_connector_task_offset_commit_{what}", _G, _JAVA_TASK, doc,
                   f"connector-task-metrics: offset-commit-{what.replace('_', '-')}")
            for what, doc in (
                ("avg_time_ms", "Mean time of the node's writes of positions; one without any takes 0, as in Java."),
                ("max_time_ms", "Greatest time of these writes."),
                ("success_percentage", "Which part of these writes succeeded, from 0 to 1, as in Java."),
                ("failure_percentage", "Which part of them failed, from 0 to 1, as in Java."),
            )
        ),
        *(
            Metric(f"kafka_connect_task_error_{what}", _G, _JAVA_TASK, doc,
                   f"task-error-metrics: {what.replace('_', '-')}")
            for what, doc in (
                ("total_record_errors", "Records that a transform could not process and `errors.tolerance` tolerates."),
                ("total_record_failures", "The same: none of them is tried again."),
                ("total_records_skipped", "The same: each of them is left out."),
                ("total_errors_logged", "The same: each of them is logged."),
                ("total_retries", "Pauses after which a partition of the task was retried."),
            )
        ),
        Metric("kafka_connect_worker_connector_count", _G, (), "Connectors of the node.",
               "connect-worker-metrics: connector-count"),
        Metric("kafka_connect_worker_task_count", _G, (), "Tasks of the node's connectors.",
               "connect-worker-metrics: task-count"),
        Metric("kafka_connect_coordinator_assigned_connectors", _G, (),
               "Connectors that this node has of its flows: those of the flows that it owns.",
               "connect-coordinator-metrics: assigned-connectors"),
        Metric("kafka_connect_coordinator_assigned_tasks", _G, (), "Tasks that this node has of its flows.",
               "connect-coordinator-metrics: assigned-tasks"),
        Metric("kafka_connect_worker_rebalance_rebalancing", _G, _JMX,
               "1 while it is being decided which node runs what of the flow, or a part is on its way to another node.",
               "connect-worker-rebalance-metrics: rebalancing"),
        Metric("kafka_connect_worker_rebalance_completed_rebalances_total", _C, _JMX,
               "How often this node got its part of the flow.",
               "connect-worker-rebalance-metrics: completed-rebalances-total"),
        *(
            Metric(f"kafka_connect_worker_rebalance_rebalance_{what}_time_ms", _G, _JMX, doc,
                   f"connect-worker-rebalance-metrics: rebalance-{what}-time-ms")
            for what, doc in (("avg", "How long that took: the mean."), ("max", "How long that took: the greatest."))
        ),
        Metric("kafka_connect_worker_rebalance_time_since_last_rebalance_ms", _G, _JMX, "Time since the last one.",
               "connect-worker-rebalance-metrics: time-since-last-rebalance-ms"),
    ),
)  # fmt: skip

_FLOWS = Chapter(
    "Flows",
    "`mm2py_flow_state` and `mm2py_connector_state`: 0 starting, 1 running, 2 draining, 3 drained, 4 restarting, "
    "5 failed, 6 paused, 7 stopped, 8 standby; of what would run, 9 unreachable, 10 has failures.",
    (
        Metric("mm2py_flow_state", _G, _FLOW, "State of the flow, as a number."),
        Metric("mm2py_flow_records_total", _C, _FLOW, "Records copied, including those of topics deleted since."),
        Metric("mm2py_flow_bytes_total", _C, _FLOW, "Bytes of record batches copied."),
        Metric("mm2py_flow_batches_total", _C, (*_FLOW, "handling"),
               "Record batches by handling: unopened, rebuilt, or dropped (control and aborted ones)."),
        Metric("mm2py_flow_resumed_records_total", _C, _FLOW,
               "Records that a resume found already at the target."),
        Metric("mm2py_flow_foreign_records_total", _C, _FLOW,
               "Records in remote topics from other writers."),
        Metric("mm2py_flow_topics", _G, _FLOW, "Topics that are mirrored."),
        Metric("mm2py_flow_partitions", _G, (*_FLOW, "stage"),
               "Topic-partitions by stage: copying, backing_off, stopped, paused."),
        Metric("mm2py_flow_issues", _G, (*_FLOW, "severity"),
               "What is wrong with the flow, as in mm2py status. Severities: error, warning, note."),
        Metric("mm2py_flow_missing_destination_partitions", _G, _FLOW,
               "Partitions that the target should have and does not.", "Mirus: missing-dest-partitions-count"),
        Metric("mm2py_flow_lag_records", _G, _FLOW,
               "Records not copied yet, of all partitions together; `NaN` if that is not known of one of them."),
        Metric("mm2py_flow_unknown_lags", _G, _FLOW,
               "Partitions of which it is unknown how many records are left to copy."),
        Metric("mm2py_flow_lag_seconds", _G, _FLOW,
               "How long the oldest record not copied yet has waited, of all partitions; `NaN` if one is unknown."),
        Metric("mm2py_flow_catch_up_seconds", _G, _FLOW,
               "Seconds until nothing is left to copy, at the rates of the last minutes; 0 if all partitions are "
               "level, `NaN` while that is unknown: what is left does not shrink, or is paused, or stopped."),
        Metric("mm2py_flow_retention_loss_seconds", _G, _FLOW,
               "Seconds until the source may delete a record that is not copied yet: the minimum of all partitions."),
        Metric("mm2py_flow_throttled_seconds_total", _C, _FLOW,
               "Time for which quotas of source and target throttled the copy tasks, in total."),
        Metric("mm2py_replication_latency_seconds", _H, _FLOW,
               "From a record's timestamp until the target acknowledged it; counted in records.",
               "Mirus: replication-latency-histogram"),
        Metric("mm2py_record_age_seconds", _H, _FLOW,
               "From a record's timestamp until it was read from the source; counted in records."),
        Metric("mm2py_cluster_reachable", _G, (*_FLOW, "cluster"),
               "1 while the flow reaches the cluster, else 0, by what any flow of the node has learnt last; none of one"
               " that it has not asked yet."),
        Metric("mm2py_last_success_timestamp_seconds", _G, (*_FLOW, "step"),
               "Time of a step's last success, or of finding nothing to do; steps are named as in the log."),
        Metric("mm2py_step_failures_total", _C, (*_FLOW, "step"), "How often a step failed."),
    ),
)  # fmt: skip

_NODES = Chapter(
    "Nodes that run the same flow",
    "All other metrics are of the node that is scraped. `node` is the `worker_id` of a node: the address of its REST "
    "interface, and its host, if several nodes have the same. `id` is that of the process, which no other has.",
    (
        Metric("mm2py_flow_nodes", _G, _FLOW, "Nodes that run the flow and answer, this one included."),
        Metric("mm2py_flow_owner", _G, _FLOW,
               "1 on the node that owns the flow: it also creates topics, synchronises configs and ACLs, and writes "
               "checkpoints. 0 on its other nodes; none where it stands by for Java MirrorMaker."),
        Metric("mm2py_flow_differing_settings", _G, _FLOW,
               "Settings of the flow in this node's file that are not the owner's."),
        Metric("mm2py_node_bytes_per_second", _G, _EACH_NODE,
               "What each node copies of the flow, this one included; of another one as of its last report, while it "
               "answers."),
        Metric("mm2py_node_last_heard_seconds", _G, _EACH_NODE,
               "Time since another node reported; one that left in good order has no series."),
        Metric("mm2py_node_tasks", _G, _EACH_NODE,
               "Copy tasks that each node has by the flow's assignment, this one included."),
    ),
)  # fmt: skip

_PARTITIONS = Chapter(
    "Topic-partitions",
    "`topic` is the remote topic. `mm2py_partition_stage`: 0 copying, 1 backing off, 2 stopped, 3 paused.",
    (
        Metric("mm2py_partition_lag_records", _G, _PARTITION,
               "End offset at the source minus position, as of the last fetch; `NaN` if that is not known."),
        Metric("mm2py_partition_lag_seconds", _G, _PARTITION,
               "How long, at most, the oldest record not copied yet has waited; 0 if there is none, `NaN` if unknown."),
        Metric("mm2py_partition_retention_loss_seconds", _G, _PARTITION,
               "Seconds until, at the earliest, the source may delete a record that is not copied yet."),
        Metric("mm2py_partition_end_offset", _G, _PARTITION, "End offset (high watermark) at the source."),
        Metric("mm2py_partition_position", _G, _PARTITION, "The next offset to read from the source."),
        Metric("mm2py_partition_stage", _G, _PARTITION, "Stage of the partition, as a number."),
    ),
)  # fmt: skip

_HEARTBEATS = Chapter(
    "Heartbeats",
    "",
    (
        Metric("mm2py_heartbeats_sent_total", _C, _FLOW, "Heartbeats of the flow that this node has written."),
        Metric("mm2py_heartbeat_emit_age_seconds", _G, _FLOW,
               "Time since this node wrote the last one, if it is the one that emits them."),
        Metric("mm2py_heartbeat_age_seconds", _G, (*_FLOW, "topic"),
               "Age of the newest heartbeat that the flow copied, for each heartbeats topic it copies, by the remote "
               "name: `A.heartbeats` is one hop away, `A.B.heartbeats` two."),
    ),
)  # fmt: skip

_CONNECTORS = Chapter(
    "Connectors and copy tasks",
    "`mm2py_task_state`: 0 idle, 1 running, 2 waiting for a Spark slot, 3 backing off, 4 late: its epoch "
    "did not return in time. `task` is the copy task's number.",
    (
        Metric("mm2py_connector_state", _G, _CONNECTOR, "State of the task group, as a number."),
        Metric("mm2py_connector_tasks", _G, (*_CONNECTOR, "state"),
               "Tasks by state: running, paused, failed, unassigned, destroyed.",
               "Mirus: running-task-count, failed-task-count, paused-task-count, unassigned-task-count, "
               "destroyed-task-count"),
        Metric("mm2py_connector_failed_restart_attempts_total", _C, _CONNECTOR,
               "How often the task group, or a loop beside its tasks, failed and was restarted.",
               "Mirus: connector-failed-restart-attempts-count"),
        Metric("mm2py_connector_task_failed_restart_attempts_total", _C, _CONNECTOR,
               "How often one of its tasks was restarted.",
               "Mirus: task-failed-restart-attempts-count (connector-metrics)"),
        Metric("mm2py_task_failed_restart_attempts_total", _C, _TASK,
               "How often the copy task lost an epoch and was restarted.",
               "Mirus: task-failed-restart-attempts-count (connector-task-metrics)"),
        Metric("mm2py_task_state", _G, _TASK, "State of the copy task, as a number."),
        Metric("mm2py_task_partitions", _G, _TASK, "Partitions that the copy task copies."),
        Metric("mm2py_task_records_total", _C, _TASK, "Records that the copy task copied."),
        Metric("mm2py_task_bytes_total", _C, _TASK, "Bytes of record batches that it copied."),
        Metric("mm2py_task_epochs_total", _C, _TASK, "Epochs that ended normally."),
        Metric("mm2py_task_epoch_seconds_total", _C, _TASK, "Time in epochs."),
        Metric("mm2py_task_boundary_seconds_total", _C, _TASK,
               "Time between an epoch's submission and its outcome in which nothing was copied."),
        Metric("mm2py_task_cpu_seconds_total", _C, _TASK, "CPU time of the Python worker in epochs."),
        Metric("mm2py_task_resident_memory_bytes", _G, _TASK, "Memory of the Python worker after the last epoch."),
        Metric("mm2py_task_fetch_requests_total", _C, _TASK, "Fetch requests answered by the source."),
        Metric("mm2py_task_produce_requests_total", _C, _TASK, "Produce requests sent to the target."),
        Metric("mm2py_task_retries_total", _C, _TASK, "Pauses after which a partition was retried."),
        Metric("mm2py_task_throttled_seconds_total", _C, _TASK, "Time for which quotas throttled it."),
        Metric("mm2py_task_paced_seconds_total", _C, _TASK,
               "Time in which partitions that were behind waited for the target (catch.up.latency.ms)."),
    ),
)  # fmt: skip

_GROUPS = Chapter(
    "Consumer groups",
    "",
    (
        Metric("mm2py_consumer_groups", _G, (*_FLOW, "at_target"),
               "Translated groups by their state at the target: idle, active, in_use, watched, "
               "other_protocol, unknown, refused; not_synced if their offsets are not written there."),
        Metric("mm2py_consumer_group_distance_records", _G, (*_FLOW, "group"),
               "Records that a group has left to read at the target from its translated offsets on."),
        Metric("mm2py_consumer_group_untranslated_partitions", _G, (*_FLOW, "group"),
               "Partitions whose offset has no translation yet."),
        Metric("mm2py_group_sync_errors_total", _C, _FLOW,
               "How often the target started to refuse a group's offsets, or the group could not be described."),
    ),
)  # fmt: skip

_EVENTS = Chapter(
    "What happened",
    "All counters exist from the start, at 0, so that every increase after the first scrape is visible; what is found "
    "at the start may count before that. What is logged once counts once.",
    (
        Metric("mm2py_events_total", _C, (*_FLOW, "event"),
               "Events by their name in the log; only those that have happened."),
        Metric("mm2py_source_truncations_total", _C, _FLOW, "Partitions whose source lost records that were copied."),
        Metric("mm2py_source_recreations_total", _C, _FLOW,
               "Partitions whose source topic was deleted and created again."),
        Metric("mm2py_source_expirations_total", _C, _FLOW,
               "Partitions of which retention deleted records before they were copied."),
        Metric("mm2py_target_rewinds_total", _C, _FLOW, "Partitions whose remote topic lost records."),
        Metric("mm2py_target_recreations_total", _C, _FLOW,
               "Partitions whose remote topic was deleted and created again."),
        Metric("mm2py_target_deletions_total", _C, _FLOW, "Remote topics that were deleted."),
        Metric("mm2py_lost_records_total", _C, _FLOW,
               "Records that will never be at the target, for any of these reasons (offsets, so an upper bound)."),
        Metric("mm2py_resumes_total", _C, (*_FLOW, "outcome"),
               "Resumes after a crash, exact or unproven (at least once)."),
        Metric("mm2py_partition_stops_total", _C, _FLOW, "How often a partition stopped because it needs attention."),
        Metric("mm2py_partition_interruptions_total", _C, _FLOW,
               "How often a partition was interrupted and retried by itself."),
        Metric("mm2py_topic_sync_errors_total", _C, (*_FLOW, "step"),
               "Refusals in topic creation, configs and ACLs, by step."),
        Metric("mm2py_authentication_errors_total", _C, (*_FLOW, "cluster"),
               "How often a cluster started to refuse the flow's login."),
        Metric("mm2py_cluster_outages_total", _C, (*_FLOW, "cluster"), "How often a cluster stopped responding."),
        Metric("mm2py_positions_written_total", _C, _FLOW, "Positions written."),
        Metric("mm2py_offset_syncs_written_total", _C, _FLOW, "Offset syncs written."),
        Metric("mm2py_checkpoints_written_total", _C, _FLOW, "Checkpoints written."),
        Metric("mm2py_group_offsets_written_total", _C, _FLOW, "Offsets of groups written at the target."),
    ),
)  # fmt: skip

_NODE = Chapter(
    "The node",
    "`process_*` come from prometheus-client and cover the daemon's own process; copy tasks have their own above.",
    (
        Metric("mm2py_build_info", _G, ("version", "python", "spark"), "1; the versions are labels."),
        Metric("mm2py_healthy", _G, (), "1 if mm2py status --check would succeed: no issue is more than a note."),
        Metric("mm2py_settings_refused", _G, (), "1 while the settings file, as it was read last, is refused."),
        Metric("mm2py_ready", _G, (), "1 once Spark accepts epochs, or is not needed."),
        Metric("mm2py_start_time_seconds", _G, (), "When the daemon started; all counters began at 0 then."),
        Metric("mm2py_spark_up", _G, (), "1 while Spark runs."),
        Metric("mm2py_spark_slots", _G, (), "Slots for Spark tasks; absent if the cluster manager decides."),
        Metric("mm2py_spark_slots_used", _G, (), "Slots with an epoch in them."),
        Metric("mm2py_spark_slots_free", _G, (), "Slots without one."),
        Metric("mm2py_spark_epochs_waiting", _G, (), "Epochs that wait for a slot."),
        Metric("mm2py_partitions_rolled_up", _G, (), "Partitions without series of their own."),
        Metric("process_virtual_memory_bytes", _G, (), "Virtual memory size in bytes."),
        Metric("process_resident_memory_bytes", _G, (), "Resident memory size in bytes."),
        Metric("process_start_time_seconds", _G, (), "Start time of the process since unix epoch in seconds."),
        Metric("process_cpu_seconds_total", _C, (), "Total user and system CPU time spent in seconds."),
        Metric("process_open_fds", _G, (), "Number of open file descriptors."),
        Metric("process_max_fds", _G, (), "Maximum number of open file descriptors."),
    ),
)  # fmt: skip

CHAPTERS = (
    _JAVA_SOURCE,
    _JAVA_CHECKPOINTS,
    _JAVA_CONNECT,
    _FLOWS,
    _NODES,
    _PARTITIONS,
    _HEARTBEATS,
    _CONNECTORS,
    _GROUPS,
    _EVENTS,
    _NODE,
)
METRICS: dict[str, Metric] = {metric.name: metric for chapter in CHAPTERS for metric in chapter.metrics}
