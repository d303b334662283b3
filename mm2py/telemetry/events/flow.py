"""What happens to a flow as a whole."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class FlowStarted(Event):
    """A flow has its positions and starts to copy."""

    flow: Flow
    topics: int
    partitions: int
    copy_tasks: int


@attrs.frozen
class FlowSummary(Event):
    """What a flow did lately, every so often."""

    flow: Flow
    topics: int
    partitions: int
    stopped_partitions: int
    records: int
    records_per_s: float
    bytes_per_s: float
    lag: int | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None


@attrs.frozen
class FlowDrained(Event):
    """A flow copies no more, and the target holds all that its positions say."""

    flow: Flow
    records: int
    took_s: float
    positions_written: bool


@attrs.frozen
class FlowFailed(Event):
    """A flow is down for good and needs attention; other flows go on."""

    level = Level.ERROR

    flow: Flow
    error: str
    hint: str


@attrs.frozen
class FlowRunsElsewhere(Event):
    """
    Another node, or Java MirrorMaker, is in the flow's group at the target: said once, and `then` what this node does.

    `since` is when that node began and `rest` where its REST interface is, as far as they are known.
    """

    level = Level.WARN

    flow: Flow
    group: str
    node: str
    since: str
    rest: str
    then: str
    hint: str


@attrs.frozen
class FlowTakenOver(Event):
    """Nobody else runs the flow any more, after `waited_s`; this node goes on where the other one was."""

    flow: Flow
    node: str
    waited_s: float


@attrs.frozen
class FlowUnguarded(Event):
    """The target does not let the flow into its group, so nobody would notice a second node; the flow goes on."""

    level = Level.WARN

    flow: Flow
    group: str
    error: str
    hint: str


@attrs.frozen
class GroupFailed(Event):
    """A flow's checkpoint or heartbeat group is down for good and needs attention; copying goes on."""

    level = Level.ERROR

    flow: Flow
    connector: str
    error: str
    hint: str


@attrs.frozen
class TaskRestarted(Event):
    """A loop of ours fell over and restarts after a pause. Tracebacks mean a bug of ours."""

    level = Level.ERROR

    task: str
    causes: tuple[str, ...]
    pause_s: float
    exception: str = ""


@attrs.frozen
class ClusterUnreachable(Event):
    """A cluster stopped answering; said once, the flow keeps trying."""

    level = Level.WARN

    flow: Flow
    cluster: str
    error: str
    hint: str


@attrs.frozen
class ClusterRecovered(Event):
    """A cluster answers again."""

    flow: Flow
    cluster: str
    away_s: float
    attempts: int


@attrs.frozen
class StepFailed(Event):
    """A cluster refused one step of the control plane; it is tried again on the next round."""

    level = Level.WARN

    flow: Flow
    step: str
    error: str
    hint: str
