"""Events of a flow as a whole: its life, its nodes, its clusters, its heartbeats."""

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
    """A periodic summary of a flow."""

    flow: Flow
    state: str
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
    """A flow has stopped copying, and the target holds everything up to its positions."""

    flow: Flow
    records: int
    took_s: float
    positions_written: bool


@attrs.frozen
class FlowFailed(Event):
    """A flow failed permanently and needs attention; other flows continue."""

    level = Level.ERROR

    flow: Flow
    error: str
    hint: str


@attrs.frozen
class ClustersAreOne(Event):
    """Aliases turned out to name one cluster, by its id: it is mirrored to itself."""

    level = Level.WARN

    aliases: tuple[str, ...]
    cluster_id: str
    hint: str = "unless that is meant, give each alias the brokers of its own cluster"


@attrs.frozen
class FlowRunsElsewhere(Event):
    """Another node, or Java MirrorMaker, is in the flow's group at the target; reported once, with `then`, what this
    node does. `since` is when that node started and `rest` where its REST interface is, if known.
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
class InstanceFenced(Event):
    """Another `node` has joined the flow's group with this node's `group.instance.id`, here `instance`, and has its
    share now; reported once, with `then`, what this node does.
    """

    level = Level.ERROR

    flow: Flow
    group: str
    instance: str
    node: str
    then: str
    hint: str


@attrs.frozen
class FlowShared(Event):
    """The flow's group at the target has `nodes` members. This one has `tasks`, the flow's `owner` also creates topics
    and writes checkpoints; `shares` says who has what.
    """

    flow: Flow
    nodes: int
    tasks: str
    owner: str
    shares: str


@attrs.frozen
class SettingsDiffer(Event):
    """This node's settings of a flow are not those of its owner, whose apply; `keys` name them. If the node cannot take
    some from the owner, `keeps_out` names those, and it takes no part in the flow.
    """

    level = Level.WARN

    flow: Flow
    owner: str
    keys: tuple[str, ...]
    keeps_out: tuple[str, ...] = ()


@attrs.frozen
class FlowTakenOver(Event):
    """No other node runs the flow any more, after `waited_s`; this node continues where the other one was."""

    flow: Flow
    node: str
    waited_s: float


@attrs.frozen
class FlowUnguarded(Event):
    """The target does not admit the flow to its group, so a second node would go unnoticed; the flow continues."""

    level = Level.WARN

    flow: Flow
    group: str
    error: str
    hint: str


@attrs.frozen
class FlowFenced(Event):
    """Another node has this one's tasks, or owns the flow: the target refused a write under `transactional_id`."""

    level = Level.WARN

    flow: Flow
    transactional_id: str
    then: str


@attrs.frozen
class ControlWritesUnguarded(Event):
    """The target does not let the flow write positions or checkpoints in transactions, so a node that was replaced
    could still write old ones; the flow continues.
    """

    level = Level.WARN

    flow: Flow
    transactional_id: str
    error: str
    hint: str


@attrs.frozen
class ControlWritesGuarded(Event):
    """The target lets the flow write positions or checkpoints in transactions again."""

    flow: Flow
    transactional_id: str


@attrs.frozen
class GroupFailed(Event):
    """A flow's checkpoint or heartbeat group failed permanently and needs attention; copying continues."""

    level = Level.ERROR

    flow: Flow
    connector: str
    error: str
    hint: str


@attrs.frozen
class TaskRestarted(Event):
    """A loop failed and restarts after a pause. A traceback means a bug of ours. All causes are about *cluster*."""

    level = Level.ERROR

    task: str
    causes: tuple[str, ...]
    pause_s: float
    exception: str = ""
    cluster: str = ""


@attrs.frozen
class ClusterUnreachable(Event):
    """A cluster stopped responding; reported once, the flow keeps trying."""

    level = Level.WARN

    flow: Flow
    cluster: str
    error: str
    hint: str


@attrs.frozen
class ClusterRecovered(Event):
    """A cluster responds again."""

    flow: Flow
    cluster: str
    away_s: float
    attempts: int


@attrs.frozen
class StepFailed(Event):
    """A cluster refused a step of the control plane, or took too long for it; it is retried in the next round."""

    level = Level.WARN

    flow: Flow
    step: str
    error: str
    hint: str


@attrs.frozen
class NodeSilent(Event):
    """Another node of the flow has not reported for `silent_s`; its tasks move to others once its session is over."""

    level = Level.WARN

    flow: Flow
    node: str
    rest: str
    silent_s: float
    hint: str = "check that node: its process, its machine, and its connection to the target"


@attrs.frozen
class NodeAnswersAgain(Event):
    """A node that did not report for a while does so again."""

    flow: Flow
    node: str


@attrs.frozen
class NodeDrained(Event):
    """An operator drained this node: other nodes take its tasks, until it is resumed or restarted."""

    by: str


@attrs.frozen
class NodeResumed(Event):
    """An operator has this node take tasks again."""

    by: str


@attrs.frozen
class HeartbeatsStarted(Event):
    """A flow has written its first heartbeat."""

    flow: Flow
    topic: str
    interval_s: float


@attrs.frozen
class HeartbeatsResumed(Event):
    """A flow writes heartbeats again, after the target was unreachable or refused them."""

    flow: Flow
    silent_s: float


@attrs.frozen
class AuthenticationFailed(Event):
    """A cluster refuses a flow's login, or what it needs there, or the flow does not trust it; reported once for each
    cause, and retried.
    """

    level = Level.ERROR

    flow: Flow
    cluster: str
    principal: str
    error: str
    hint: str
