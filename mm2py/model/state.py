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
