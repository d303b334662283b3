"""An immutable snapshot of a flow, for the REST interface, the metrics and the demo. The numbers of the states are
used in metrics and never change.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from mm2py.model.counters import Counters
from mm2py.model.epoch import Histogram, PartitionFailure
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.group import OffsetAtTarget
from mm2py.model.herder.overrides import NO_LIMIT, Pause, RateLimit, Wanted
from mm2py.model.rounds import NO_ROUNDS, RoundsView
from mm2py.model.topic import MissingTopic, Unmatched, have_records_waiting


class FlowState(enum.Enum):
    """The state of a flow, or of one of its task groups."""

    STARTING = 0
    RUNNING = 1
    DRAINING = 2
    DRAINED = 3
    #: It failed and restarts after a pause.
    RESTARTING = 4
    #: It failed permanently and needs attention.
    FAILED = 5
    #: Paused by an operator; it will continue from where it was.
    PAUSED = 6
    STOPPED = 7
    #: Another node runs the flow; this one takes over when that one leaves.
    STANDBY = 8
    #: What is shown of what would run: a cluster does not answer, or a part of it has failed; see `health.shown`.
    UNREACHABLE = 9
    HAS_FAILURES = 10


class TaskState(enum.Enum):
    """What a copy task is doing."""

    #: Nothing to copy, or everything is backing off.
    IDLE = 0
    RUNNING = 1
    WAITING_FOR_SLOT = 2
    #: Its epoch was lost; it runs again once the lost one can no longer write.
    BACKING_OFF = 3
    #: Its epoch did not return in time and is killed; it runs again as after any other loss.
    LATE = 4


class PartitionStage(enum.Enum):
    """The stage of a topic-partition."""

    COPYING = 0
    #: Retried within seconds.
    BACKING_OFF = 1
    #: It needs attention; retried at long intervals.
    STOPPED = 2
    #: Paused by an operator.
    PAUSED = 3


@attrs.frozen
class TimesView:
    """Measured times, in milliseconds. `last_ms` stays until there is a newer one; the others cover about the last
    minute, as in Java MirrorMaker, and are None without measurements.
    """

    last_ms: float
    min_ms: float | None = None
    max_ms: float | None = None
    avg_ms: float | None = None


@attrs.frozen
class PartitionView:
    """
    One topic-partition. Counts are those since the daemon started.

    `bytes_per_s` follows the last few epochs; `record_rate` and `byte_rate` are means over the last minute or so, as in
    Java MirrorMaker. `lag_s` is how long, at most, the oldest record that is not copied yet has waited, and
    `seconds_until_loss` after what time, at the earliest, the source may delete it; None if unknown, the latter also if
    the source deletes nothing. `seconds_until_level` is when nothing will be left to copy, at the rates of the last
    minutes; None while what is left does not shrink.
    """

    source: TopicPartition
    remote_topic: str
    task: int | None
    stage: PartitionStage
    position: int
    downstream: int | None
    lag: int | None
    records: int
    bytes: int
    bytes_per_s: float
    retry_in_s: float | None = None
    failure: PartitionFailure | None = None
    end_offset: int | None = None
    log_start_offset: int | None = None
    record_rate: float = 0.0
    byte_rate: float = 0.0
    #: Age of a record by its timestamp, when it was read and when the target had it; None before the first.
    age: TimesView | None = None
    latency: TimesView | None = None
    lag_s: float | None = None
    seconds_until_loss: float | None = None
    seconds_until_level: float | None = None
    #: The timestamp of the last record copied.
    last_timestamp_ms: int | None = None
    #: Whether an operator paused it or its topic.
    is_paused: bool = False
    #: Whether `lag` and `lag_s` are the least that they can be: see `Behind`.
    lag_is_least: bool = False
    lag_s_is_least: bool = False


@attrs.frozen
class EpochView:
    """One of a copy task's last epochs. `outcome` is ``ok``, or why it was lost."""

    epoch: int
    ended_ms: int
    records: int
    bytes: int
    elapsed_s: float
    boundary_ms: float
    partitions: int
    outcome: str = "ok"


@attrs.frozen
class TaskView:
    """One copy task. Rates are those of its last epoch; records, times, requests and epochs add up since the daemon
    started.
    """

    task: int
    state: TaskState
    epoch: int
    partitions: int
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    boundary_ms: float = 0.0
    lost_epochs: int = 0
    worker: str = ""
    last_error: str = ""
    #: The name of the node that runs it; empty if it is this one.
    node: str = ""
    #: CPU time of the worker process in this task's epochs, and its memory after the last one.
    cpu_s: float = 0.0
    rss_bytes: int = 0
    #: Time in epochs, and between them.
    elapsed_s: float = 0.0
    boundary_s: float = 0.0
    epochs_ended: int = 0
    records: int = 0
    bytes: int = 0
    fetches: int = 0
    produces: int = 0
    retries: int = 0
    throttled_ms: int = 0
    paced_ms: int = 0
    #: The last few, oldest first.
    epochs: tuple[EpochView, ...] = ()


@attrs.frozen
class ClusterView:
    """One of a flow's two clusters, as seen by the flow."""

    alias: str
    is_reachable: bool
    error: str = ""
    #: The hint, if it is unreachable.
    hint: str = ""
    #: Whether the flow has asked it anything: one that only emits heartbeats needs no source.
    is_asked: bool = True


@attrs.frozen
class GroupView:
    """One of a flow's task groups. `connector` is Java's name for it; `restarts` are those since the daemon started,
    `falls` how often it, or a loop beside its tasks, failed and was restarted.
    """

    connector: str
    state: FlowState
    last_error: str = ""
    hint: str = ""
    restarts: int = 0
    #: The operator's target state; `state` follows.
    wanted: Wanted = Wanted.RUNNING
    falls: int = 0
    #: The name of the node whose state this is; empty if it is this one.
    node: str = ""
    #: The connector's own name in a Connect worker; empty elsewhere.
    name: str = ""
    #: The cluster that `last_error` is about; empty if that is unknown.
    cluster: str = ""


@attrs.frozen
class TaskStatus:
    """One copy task, as its node reports it to the others."""

    task: int
    state: TaskState
    partitions: int = 0
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    worker: str = ""
    last_error: str = ""


@attrs.frozen
class ConnectorStatus:
    """One task group, as its node reports it to the others."""

    connector: str
    state: FlowState
    last_error: str = ""


@attrs.frozen
class NodeView:
    """
    One node of those that run a flow, as this node knows it. `is_this` marks this one. `worker_id` is its name: where
    its REST interface is, with its host, or its id instead, if other nodes of the flow have the same address.

    `assigned` are the numbers of the tasks that it has by the flow's assignment, `tasks` those that it reports; both
    are empty of a node that `is_member` no longer. A node that does not answer has not reported for half a minute;
    `heard_ms` is how long ago it did, None if it never has. `tasks_for_ms` is for how long it has had just these tasks,
    `owner_for_ms` for how long it has owned the flow, by its own reports, None if they do not say. `differs` are
    settings that are not the owner's.
    """

    id: str
    worker_id: str
    host: str
    pid: int
    rest: str = ""
    started_ms: int = 0
    is_this: bool = False
    is_owner: bool = False
    is_member: bool = True
    answers: bool = True
    is_drained: bool = False
    heard_ms: int | None = None
    #: Of what it runs of the flow, as it is shown.
    state: FlowState = FlowState.STARTING
    assigned: tuple[int, ...] = ()
    tasks_for_ms: int | None = None
    owner_for_ms: int | None = None
    tasks: tuple[TaskStatus, ...] = ()
    connectors: tuple[ConnectorStatus, ...] = ()
    topics: int = 0
    partitions: int = 0
    stopped_partitions: int = 0
    unknown_lags: int = 0
    #: How many partitions the flow mirrors, on whichever node; None if the node does not say.
    mirrored: int | None = None
    records: int = 0
    bytes: int = 0
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    lag: int | None = None
    lag_s: float | None = None
    seconds_until_level: float | None = None
    differs: tuple[str, ...] = ()
    issues: tuple[str, ...] = ()

    @property
    def is_counted(self) -> bool:
        """Whether what it reports belongs to the flow's totals."""
        return self.is_member and self.answers


#: States of a connector on a node that does not work on it; another node may.
NOT_HERE: Final = (FlowState.STARTING, FlowState.STANDBY)


def working_elsewhere(connector: str, nodes: Iterable[NodeView]) -> tuple[NodeView, ConnectorStatus] | None:
    """Return the node that works on a connector, the owner first, and its report of it; None if none does."""
    others = [node for node in nodes if not node.is_this and node.is_counted]
    for node in sorted(others, key=lambda it: not it.is_owner):
        for status in node.connectors:
            if status.connector == connector and status.state not in NOT_HERE:
                return node, status
    return None


@attrs.frozen
class HeartbeatsView:
    """The heartbeats that this node has written since it started; `last_ms` is the wall time of the last one, None
    before the first, and while another node of the flow writes them.
    """

    sent: int
    last_ms: int | None


@attrs.frozen
class CopiedHeartbeatsView:
    """A heartbeats topic that a flow copies, by its remote name, and the time of the newest heartbeat copied."""

    topic: str
    last_ms: int


@attrs.frozen
class GroupOffsetView:
    """
    How far a consumer group has read one topic-partition, at the source and, translated, at the target.

    `distance` is what is left to read from there, in offsets. A translation that is not exact is `behind` the group by
    so many offsets of the source, at most; None if that is unknown. `why` is the reason if there is no translation.
    `committed` is what the group has committed at the target, None if it has not, or that is unknown.
    """

    source: TopicPartition
    remote: TopicPartition
    upstream: int
    downstream: int | None
    distance: int | None
    is_exact: bool
    why: str = ""
    behind: int | None = None
    #: From reading the group until its checkpoint was written; None before the first.
    latency: TimesView | None = None
    committed: int | None = None
    at_target: OffsetAtTarget = OffsetAtTarget.UNKNOWN
    #: Whether its records came from the target.
    is_back: bool = False


@attrs.frozen
class GroupOffsetsView:
    """One consumer group. `why` is the reason if its offsets are not translated at all. `at_target` is the group's
    state there, empty if its offsets are not synced, and `at_target_why` its explanation; `synced_ms` is when they were
    last written, `sync_due_ms` when they are written next, as wall time. If that is None, `unsynced_why` is the reason.
    """

    group: str
    offsets: tuple[GroupOffsetView, ...] = ()
    why: str = ""
    at_target: str = ""
    at_target_why: str = ""
    synced_ms: int | None = None
    sync_due_ms: int | None = None
    unsynced_why: str = ""


#: The step without which a restart copies again, or compares, what was copied since its last success.
WRITE_POSITIONS: Final = "write positions"


@attrs.frozen
class StepView:
    """A periodic step of a flow besides copying, named as in the log. `succeeded_ms` is the wall time of the last
    success, None if there was none; `failures` are those since the daemon started. `error` is why a cluster refuses it
    now, with a hint; empty if none does. `clusters` are those of which it may have been one.
    """

    step: str
    succeeded_ms: int | None = None
    failures: int = 0
    error: str = ""
    hint: str = ""
    clusters: tuple[str, ...] = ()


@attrs.frozen
class FlowView(Counters):
    """
    A flow. Rates are of the last few seconds, quantiles of the last minute; counts began when the daemon started.
    `topics` are those that it mirrors, on whichever node.

    `latency` and `age` hold all that was measured since then; `lag` is the sum of its partitions' and `lag_s` the
    greatest, see `Behind`; `unknown_lags` counts partitions without an exact one. `seconds_until_loss` is the least.
    `seconds_until_level` is that of all partitions together, None if one that has records left is not copied.
    """

    flow: Flow
    state: FlowState
    topics: int = 0
    partitions: tuple[PartitionView, ...] = ()
    tasks: tuple[TaskView, ...] = ()
    clusters: tuple[ClusterView, ...] = ()
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    lag: int | None = None
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    age_p50_ms: float | None = None
    last_error: str = ""
    hint: str = ""
    groups: tuple[GroupView, ...] = ()
    #: None if the flow emits none.
    heartbeats: HeartbeatsView | None = None
    #: Of those in which one was copied since the daemon started.
    copied_heartbeats: tuple[CopiedHeartbeatsView, ...] = ()
    unmatched: Unmatched | None = None
    consumer_groups: tuple[GroupOffsetsView, ...] = ()
    #: Overrides: what is paused, and the rate limits.
    paused_topics: tuple[str, ...] = ()
    paused_partitions: tuple[TopicPartition, ...] = ()
    limit: RateLimit = NO_LIMIT
    topic_limits: Mapping[str, RateLimit] = attrs.field(factory=dict)
    #: Who changed overrides last, and when (wall time); empty and 0 if they never were.
    overrides_by: str = ""
    overrides_ms: int = 0
    #: Who paused or stopped what, see `Overrides`, and how long the first of it has been so.
    pauses: Mapping[str, Pause] = attrs.field(factory=dict)
    paused_s: float | None = None
    latency: Histogram = attrs.field(factory=Histogram)
    age: Histogram = attrs.field(factory=Histogram)
    lag_s: float | None = None
    lag_is_least: bool = False
    lag_s_is_least: bool = False
    seconds_until_loss: float | None = None
    seconds_until_level: float | None = None
    throttled_ms: int = 0
    #: Partitions of mirrored topics that are missing at the target.
    missing_partitions: int = 0
    missing_topics: tuple[MissingTopic, ...] = ()
    steps: tuple[StepView, ...] = ()
    #: Writes of positions; and changes of who runs what of the flow, as this node takes part in them.
    commits: RoundsView = NO_ROUNDS
    rebalances: RoundsView = NO_ROUNDS
    #: The nodes that run the flow, this one first; empty if it is the only one.
    nodes: tuple[NodeView, ...] = ()
    #: Partitions that this node is to copy and `partitions` does not list: they cannot begin yet, or no partition is
    #: listed. How many the flow mirrors, on whichever node; None if this one does not follow its topics.
    unlisted: int = 0
    mirrored: int | None = None
    #: Partitions that other nodes copy, or will; counted only in a view of all nodes, which does not list them.
    partitions_elsewhere: int = 0
    unknown_lags_elsewhere: int = 0

    @property
    def partition_count(self) -> int:
        return len(self.partitions) + self.unlisted + self.partitions_elsewhere

    @property
    def lacks_topics(self) -> bool:
        """Whether records of topics wait that are not counted."""
        return have_records_waiting(self.missing_topics)

    @property
    def unknown_lags(self) -> int:
        """The number of partitions of which it is unknown how many records are left to copy."""
        listed = sum(1 for it in self.partitions if it.lag is None or it.lag_is_least)
        return listed + self.unlisted + self.unknown_lags_elsewhere

    @property
    def stopped_partitions(self) -> int:
        return sum(1 for partition in self.partitions if partition.stage is PartitionStage.STOPPED)


@attrs.frozen
class SparkView:
    """Spark and its slots; `slots` is None if the cluster manager decides their number."""

    slots: int | None
    used: int
    waiting: int
    is_up: bool


@attrs.frozen
class MirrorView:
    """
    All flows of a node. `spark` is None if it is not needed; `refused_settings` are the problems of a changed settings
    file, as long as it is refused, and `noted_settings` the notes on the settings in use.
    """

    wall_ms: int
    is_ready: bool
    flows: tuple[FlowView, ...] = ()
    spark: SparkView | None = None
    started_ms: int | None = None
    refused_settings: tuple[str, ...] = ()
    noted_settings: tuple[str, ...] = ()
    #: Whether something is wrong if there is no flow; a Connect worker may have none.
    needs_flow: bool = True
    #: The host and the id of this node: nodes may have the same address.
    host: str = ""
    node_id: str = ""
