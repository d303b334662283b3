"""Flows: their nodes, their clusters, their heartbeats."""

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
    """The state of a flow and its figures, every 30 s."""

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
    """
    A flow has stopped copying.

    `positions_written` is false if positions could not be written, or if an epoch was lost or late: then more was
    copied than the positions say, and a restart has to scan a little more.
    """

    flow: Flow
    records: int
    took_s: float
    positions_written: bool


@attrs.frozen
class FlowFailed(Event):
    """
    A flow failed permanently. Other flows continue.

    What to do: do what `hint` says, then restart.
    """

    level = Level.ERROR

    flow: Flow
    error: str
    hint: str


@attrs.frozen
class ClustersAreOne(Event):
    """
    Aliases with different addresses name one cluster, which is mirrored to itself.

    Brokers of these `aliases` give one `cluster_id`.

    What to do: unless that is meant, give each alias the brokers of its own cluster.
    """

    level = Level.WARN

    aliases: tuple[str, ...]
    cluster_id: str
    hint: str = "unless that is meant, give each alias the brokers of its own cluster"


@attrs.frozen
class FlowRunsElsewhere(Event):
    """
    Another node, or Java MirrorMaker, is in the flow's group at the target, so it runs this flow. Usually this node
    stands by.

    `then` says what this node does. `since` is when the other `node` started, and `rest` where its REST interface is,
    if known. Logged once, when a left-over of a crash is excluded: at once, or after `session.timeout.ms`.

    What to do: stop one of the two; the other continues by itself. See [several nodes](nodes.md#java-mirrormaker).
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
    """
    Another node has joined the flow's group with this node's `group.instance.id`, and has its share now. This node
    steps back, and stands by until the other one has been gone for a session.

    `instance` is the id, and `node` the other node.

    What to do: give each node a `group.instance.id` of its own. See [restarts](nodes.md#restarts-that-move-nothing).
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
    """
    The nodes in the flow's group at the target, or their shares, have changed.

    This node has `tasks`; the `owner` also creates topics and writes checkpoints and heartbeats; `shares` says who has
    what. See [several nodes](nodes.md).
    """

    flow: Flow
    nodes: int
    tasks: str
    owner: str
    shares: str


@attrs.frozen
class SettingsDiffer(Event):
    """
    This node's settings of a flow are not those of its owner, and the owner's apply.

    `keys` names them. A node cannot take the settings in `keeps_out` from another one; if there are any, it takes no
    part in the flow.

    What to do: give all nodes the same file. See [several nodes](nodes.md#who-does-what).
    """

    level = Level.WARN

    flow: Flow
    owner: str
    keys: tuple[str, ...]
    keeps_out: tuple[str, ...] = ()


@attrs.frozen
class FlowTakenOver(Event):
    """
    The other node of a flow has left, and this node continues where that one was.

    It waited for `waited_s`.
    """

    flow: Flow
    node: str
    waited_s: float


@attrs.frozen
class FlowUnguarded(Event):
    """
    The target does not let the flow join its group. The flow runs, but a second node would not be noticed.

    What to do: see `hint`: usually grant READ on `group`.
    """

    level = Level.WARN

    flow: Flow
    group: str
    error: str
    hint: str


@attrs.frozen
class FlowFenced(Event):
    """
    Another node has this node's tasks, or owns the flow, and the target refused a write of this node. This node writes
    no more positions or checkpoints, asks its group, and continues with what the group assigns to it.

    A write under `transactional_id` that took longer than 15 s, because the node or the target stood still, looks the
    same.

    What to do: nothing, unless it repeats. Then another program uses this id.
    """

    level = Level.WARN

    flow: Flow
    transactional_id: str
    then: str


@attrs.frozen
class ControlWritesUnguarded(Event):
    """
    The target does not let the flow write positions or checkpoints in transactions, or not fence a node that vanished
    within 20 s. The flow runs, but a node that was replaced could still write old ones.

    Tried again every minute and with the next assignment of tasks; for checkpoints, whenever the checkpoint connector
    restarts.

    What to do: see `hint`: usually grant WRITE on the transactional ids.
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
    """
    A flow's checkpoint or heartbeat connector failed permanently. Copying continues.

    What to do: do what `hint` says, then restart.
    """

    level = Level.ERROR

    flow: Flow
    connector: str
    error: str
    hint: str


@attrs.frozen
class TaskRestarted(Event):
    """
    An internal loop failed, and restarts after a pause.

    With `cluster`, all `causes` are about that cluster.

    What to do: with an `exception` it is a bug: please report it.
    """

    level = Level.ERROR

    task: str
    causes: tuple[str, ...]
    pause_s: float
    exception: str = ""
    cluster: str = ""


@attrs.frozen
class ClusterUnreachable(Event):
    """
    A cluster stopped responding. The flow keeps trying. Logged once.

    What to do: check brokers, network and advertised listeners. `no answer within 5 s` means that processes are stopped
    or overloaded.
    """

    level = Level.WARN

    flow: Flow
    cluster: str
    error: str
    hint: str


@attrs.frozen
class ClusterRecovered(Event):
    """
    A cluster responds again.

    It was away for `away_s`.
    """

    flow: Flow
    cluster: str
    away_s: float
    attempts: int


@attrs.frozen
class StepFailed(Event):
    """
    A cluster responds but refuses a request, or a round of a periodic job took too long (`admin.timeout.ms`). It is
    tried again in the next round. Logged once for each reason.

    What to do: see `hint`: usually a permission, a replication factor, or slow brokers.
    """

    level = Level.WARN

    flow: Flow
    step: str
    error: str
    hint: str


@attrs.frozen
class NodeSilent(Event):
    """
    Another node of the flow has stopped reporting. Its tasks move to others once it has left the group.

    What to do: check `node`: its process, its machine, its connection to the target.
    """

    level = Level.WARN

    flow: Flow
    node: str
    rest: str
    silent_s: float
    hint: str = "check that node: its process, its machine, and its connection to the target"


@attrs.frozen
class NodeAnswersAgain(Event):
    """A node that was silent reports again."""

    flow: Flow
    node: str


@attrs.frozen
class NodeDrained(Event):
    """An operator drained this node. Other nodes take its tasks until it is resumed or restarted."""

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
    """A flow writes heartbeats again. The outage or refusal before it was logged."""

    flow: Flow
    silent_s: float


@attrs.frozen
class AuthenticationFailed(Event):
    """
    A cluster refuses the flow's login, or a permission that the flow needs to continue, or the flow does not trust the
    cluster. Retried at growing intervals of up to five minutes, so that no account is locked.

    The login is that of `principal`. Logged once for each cause.

    What to do: see `hint` and [security](security.md#when-it-is-refused). Corrected files are noticed at once.
    """

    level = Level.ERROR

    flow: Flow
    cluster: str
    principal: str
    error: str
    hint: str
