"""
One immutable picture of a flow, taken at one moment: what the REST interface, the metrics and the demo show.

The numbers of the states reach metrics and never change.
"""

from __future__ import annotations

import enum
from typing import Any

import attrs

from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import Flow, TopicPartition


class FlowState(enum.Enum):
    """Where a flow, or one of its task groups, is in its life."""

    STARTING = 0
    RUNNING = 1
    DRAINING = 2
    DRAINED = 3
    #: It fell over and starts anew after a pause.
    RESTARTING = 4
    #: It is down for good and needs somebody.
    FAILED = 5
    #: An operator said so; it goes on from where it was.
    PAUSED = 6
    STOPPED = 7


class TaskState(enum.Enum):
    """What a copy task is doing."""

    #: Nothing to copy, or all of it is pausing.
    IDLE = 0
    RUNNING = 1
    WAITING_FOR_SLOT = 2
    #: Its epoch was lost; it runs again once the lost one can no longer write.
    BACKING_OFF = 3


class PartitionStage(enum.Enum):
    """How a topic-partition fares."""

    COPYING = 0
    #: Tried again within seconds.
    BACKING_OFF = 1
    #: It needs somebody; tried again at long intervals.
    STOPPED = 2
    #: An operator said so.
    PAUSED = 3


@attrs.frozen
class PartitionView:
    """One topic-partition."""

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


@attrs.frozen
class TaskView:
    """One copy task. Rates and latency are those of its last epoch that copied anything."""

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


@attrs.frozen
class ClusterView:
    """One of a flow's two clusters, as the flow reaches it."""

    alias: str
    is_reachable: bool
    error: str = ""


@attrs.frozen
class GroupView:
    """One of a flow's task groups. `connector` is Java's name for it; `restarts` are those since the daemon started."""

    connector: str
    state: FlowState
    last_error: str = ""
    hint: str = ""
    restarts: int = 0


@attrs.frozen
class HeartbeatsView:
    """The heartbeats that a flow has written since the daemon started; `last_ms` is the wall time of the last one."""

    sent: int
    last_ms: int | None


@attrs.frozen
class GroupOffsetView:
    """
    How far a consumer group has read one topic-partition, at the source and, translated, at the target.

    `distance` is what is left to read from there, in offsets. `why` says why there is no translation.
    """

    source: TopicPartition
    remote: TopicPartition
    upstream: int
    downstream: int | None
    distance: int | None
    is_exact: bool
    why: str = ""


@attrs.frozen
class GroupOffsetsView:
    """
    One consumer group. `why` says why its offsets are not translated at all.

    `at_target` is how the group fares there, empty where its offsets are not synced, and `at_target_why` what that
    means; `synced_ms` is when they were last written.
    """

    group: str
    offsets: tuple[GroupOffsetView, ...] = ()
    why: str = ""
    at_target: str = ""
    at_target_why: str = ""
    synced_ms: int | None = None


@attrs.frozen
class FlowView:
    """A flow. Rates are those of the last few seconds, latency and age those of the last minute."""

    flow: Flow
    state: FlowState
    topics: int = 0
    partitions: tuple[PartitionView, ...] = ()
    tasks: tuple[TaskView, ...] = ()
    clusters: tuple[ClusterView, ...] = ()
    records: int = 0
    bytes: int = 0
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    lag: int = 0
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    age_p50_ms: float | None = None
    last_error: str = ""
    hint: str = ""
    groups: tuple[GroupView, ...] = ()
    #: None where the flow emits none.
    heartbeats: HeartbeatsView | None = None

    consumer_groups: tuple[GroupOffsetsView, ...] = ()

    @property
    def stopped_partitions(self) -> int:
        return sum(1 for partition in self.partitions if partition.stage is PartitionStage.STOPPED)


@attrs.frozen
class MirrorView:
    """All flows of a node."""

    wall_ms: int
    is_ready: bool
    flows: tuple[FlowView, ...] = ()


def to_json(view: Any) -> dict[str, Any]:
    """Give a view as plain JSON values: flows as ``A->B``, states by name."""
    plain: dict[str, Any] = attrs.asdict(view, value_serializer=_plain)
    return plain


def _plain(_owner: object, _field: object, value: object) -> object:
    if isinstance(value, Flow):
        return str(value)
    return value.name.lower() if isinstance(value, enum.Enum) else value
