"""
What of a node and its flows needs attention.

This is the only judgement of health: REST, the status page, the commands, the status file and the metrics all show what
these functions return. An issue is judged from views alone, so that every one of them can be explained by what an
operator sees beside it.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from typing import Final

import attrs

from mm2py.model.connector_offset import HEARTBEAT, SOURCE
from mm2py.model.state import (
    NOT_HERE,
    WRITE_POSITIONS,
    ClusterView,
    FlowState,
    FlowView,
    GroupView,
    MirrorView,
    PartitionStage,
    PartitionView,
    TaskState,
    working_elsewhere,
)
from mm2py.model.topic import MissingTopic


class Severity(enum.Enum):
    """How much an issue matters. All but a NOTE make a flow unhealthy."""

    #: Worth knowing, such as what operators paused.
    NOTE = 0
    #: It does not work now, and is expected to recover without an operator.
    WARNING = 1
    #: It does not recover without an operator, or data is at risk.
    ERROR = 2


class IssueCode(enum.Enum):
    """What is wrong, for programs. The names are part of REST's answers."""

    SPARK_STARTING = 0
    SPARK_DOWN = 1
    NO_FLOW = 2
    CLUSTER_UNREACHABLE = 3
    CONNECTOR_FAILED = 4
    #: Starting, restarting or draining, or running with an error.
    CONNECTOR_NOT_RUNNING = 5
    STANDBY = 6
    PARTITIONS_STOPPED = 7
    PARTITIONS_DELAYED = 8
    TASKS_LATE = 9
    LOSS_NEAR = 10
    PARTITIONS_MISSING = 11
    TASKS_WAITING = 12
    PAUSED = 13
    LAG_UNKNOWN = 14
    SETTINGS_REFUSED = 15
    #: Another node that runs the flow does not report.
    NODE_SILENT = 16
    #: Something is wrong with what another node runs of the flow.
    NODE_UNHEALTHY = 17
    SETTINGS_DIFFER = 18
    NODE_DRAINED = 19
    #: No node runs what a flow runs once: remote topics, configs and ACLs, checkpoints.
    NO_OWNER = 20
    #: All of them: they are written together.
    POSITIONS_NOT_WRITTEN = 21
    #: The target refuses to create or to grow a remote topic, or the mirror to copy to it.
    TOPICS_REFUSED = 22
    #: A cluster refuses a step besides copying: an internal topic cannot be created, a right is missing.
    STEP_FAILED = 23
    #: Lines of the settings hardly do what they seem to.
    SETTINGS_NOTED = 24
    #: Something has been paused for a day or longer, or the source may soon delete records of it.
    PAUSED_LONG = 25
    #: The source has no topic that `topics` selects, or not one that it names.
    TOPICS_UNMATCHED = 26


@attrs.frozen
class HealthIssue:
    """
    One thing that needs attention, or that an operator should know.

    `about` names the cluster, connector or topic-partition, and is empty if it is several or the node itself.
    """

    code: IssueCode
    severity: Severity
    message: str
    cause: str = ""
    hint: str = ""
    about: str = ""

    @property
    def is_note(self) -> bool:
        return self.severity is Severity.NOTE

    @property
    def sentence(self) -> str:
        """The message with its cause."""
        return ": ".join(filter(None, [self.message, self.cause]))


#: A partition that waits for a broker is worth a word once its records have waited as long.
_DELAY_S: Final = 60.0
#: Less time than this until the source may delete what is not copied.
_LOSS_S: Final = 3600.0
_WORKING: Final = frozenset({FlowState.RUNNING, FlowState.PAUSED, FlowState.STOPPED})
_WOULD_RUN: Final = frozenset({FlowState.STARTING, FlowState.RUNNING, FlowState.RESTARTING})
_COMING_UP: Final = frozenset({FlowState.STARTING, FlowState.RESTARTING})
#: What waits or lags without an issue of its own that says why.
_COPIED: Final = frozenset({PartitionStage.COPYING, PartitionStage.BACKING_OFF})
_OF_STATES: Final = {
    FlowState.FAILED: (IssueCode.CONNECTOR_FAILED, Severity.ERROR),
    FlowState.STANDBY: (IssueCode.STANDBY, Severity.WARNING),
}
_STATE_WORDS: Final = {FlowState.FAILED: "down", FlowState.STANDBY: "standing by"}
_HELD: Final = frozenset({FlowState.PAUSED, FlowState.STOPPED})
_NAMED_AT_MOST: Final = 3
#: What has been paused for so long may have been forgotten.
_PAUSED_LONG_S: Final = 86_400.0
#: Operators are warned of the loss of what is paused so long before, as by the alert Mm2pyRetentionLossAhead.
_PAUSED_LOSS_S: Final = 21_600.0
#: Issues of other nodes do not make this one unready.
_OF_OTHERS: Final = frozenset({IssueCode.NODE_SILENT, IssueCode.NODE_UNHEALTHY, IssueCode.NO_OWNER})


def is_healthy(issues: Iterable[HealthIssue]) -> bool:
    """Whether none of *issues* is more than a note."""
    return all(issue.is_note for issue in issues)


def all_issues(view: MirrorView) -> Iterator[HealthIssue]:
    """Return the issues of a node and of its flows."""
    yield from node_issues(view)
    for flow in view.flows:
        yield from flow_issues(flow)


def reasons_unhealthy(view: MirrorView) -> list[str]:
    """Return why a node itself is not healthy, each as one sentence; empty if it is."""
    reasons = [issue.sentence for issue in node_issues(view) if not issue.is_note]
    for flow in view.flows:
        own = [issue for issue in flow_issues(flow) if issue.code not in _OF_OTHERS]
        reasons += [f"{flow.flow}: {issue.sentence}" for issue in own if not issue.is_note]
    return reasons


def node_issues(view: MirrorView) -> tuple[HealthIssue, ...]:
    """Return what is wrong with the node itself; its flows have their own."""
    found = []
    if not view.is_ready:
        found.append(HealthIssue(IssueCode.SPARK_STARTING, Severity.WARNING, "Spark has not started yet"))
    elif view.spark is not None and not view.spark.is_up:
        hint = "spark_logged and copy_task_lost in the log have the reason; a new one is started by itself"
        found.append(HealthIssue(IssueCode.SPARK_DOWN, Severity.ERROR, "Spark is down", hint=hint))
    if problems := view.refused_settings:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        message, hint = "the changed settings are refused, the previous ones stay in use", "correct the file and reload"
        found.append(HealthIssue(IssueCode.SETTINGS_REFUSED, Severity.NOTE, message, f"{problems[0]}{more}", hint))
    if notes := view.noted_settings:
        more = f"; and {len(notes) - _NAMED_AT_MOST} more" if len(notes) > _NAMED_AT_MOST else ""
        message = f"{_count(len(notes), 'note')} on the settings in use"
        hint = "setting_noted in the log has each of them, and so has --validate"
        found.append(
            HealthIssue(
                IssueCode.SETTINGS_NOTED, Severity.NOTE, message, "; ".join(notes[:_NAMED_AT_MOST]) + more, hint
            )
        )
    if not view.flows and view.needs_flow:
        found.append(HealthIssue(IssueCode.NO_FLOW, Severity.ERROR, "no flow runs", hint="enable one: A->B.enabled"))
    return tuple(found)


def flow_issues(flow: FlowView) -> tuple[HealthIssue, ...]:
    """
    Return the issues of *flow*, the worst first.

    What follows from one of them is no second one: from a cluster that is away, all that is known to wait for it, but
    not what the other one refuses, what needs an operator all the same, nor that the source may delete records soon;
    from what an operator stopped, or must look at, that its lag is unknown; from an issue of this node, that another
    node has it, too.
    """
    found = [*_clusters(flow), *_connectors(flow), *_partitions(flow), *_steps(flow), *_tasks(flow)]
    found += [*_paused(flow), *_nodes(flow, {issue.sentence for issue in found})]
    return tuple(sorted(found, key=lambda issue: -issue.severity.value))


def shown(flow: FlowView, issues: Iterable[HealthIssue] | None = None) -> FlowView:
    """
    Return *flow* with its state, and those of its task groups, in the one vocabulary of page, commands, REST, metrics,
    log and status file. *issues* are those of the flow, if they are known.

    What would run is not *running* while a cluster does not answer, or while something of it needs an operator.
    """
    found = flow_issues(flow) if issues is None else tuple(issues)
    groups = (attrs.evolve(it, state=_shown_group(flow, it, found)) for it in flow.groups)
    errors = [it for it in found if it.severity is Severity.ERROR]
    return attrs.evolve(flow, state=_shown_state(flow.state, errors), groups=tuple(groups))


def _shown_state(state: FlowState, errors: Iterable[HealthIssue]) -> FlowState:
    codes = {it.code for it in errors}
    if state in _WOULD_RUN and IssueCode.CLUSTER_UNREACHABLE in codes:
        return FlowState.UNREACHABLE
    return FlowState.HAS_FAILURES if state is FlowState.RUNNING and codes else state


def _shown_group(flow: FlowView, group: GroupView, issues: Iterable[HealthIssue]) -> FlowState:
    """Return the state of a task group; that of one that another node runs is as that node reports it."""
    if not group.node:
        return _shown_state(group.state, failures_of(flow, group, issues))
    told = next((node.state for node in flow.nodes if node.worker_id == group.node), None)
    known = {FlowState.UNREACHABLE, FlowState.HAS_FAILURES} if group.connector == SOURCE else {FlowState.UNREACHABLE}
    return told if told in known and group.state in _WOULD_RUN else group.state


def failures_of(flow: FlowView, group: GroupView, issues: Iterable[HealthIssue]) -> list[HealthIssue]:
    """
    Return which of a flow's *issues* keep a task group from its work that does not fail itself.

    All need clusters, and the one that copies has the failures of what is copied.
    """
    needed, is_source = _needed(flow, group), group.connector == SOURCE
    return [
        it
        for it in issues
        if it.severity is Severity.ERROR
        and it.code is not IssueCode.CONNECTOR_FAILED
        and (it.about in needed if it.code is IssueCode.CLUSTER_UNREACHABLE else is_source)
    ]


def shown_state(flow: FlowView) -> FlowState:
    """Return the state of *flow* as it is shown."""
    return shown(flow).state


def _clusters(flow: FlowView) -> Iterator[HealthIssue]:
    for cluster in _away(flow):
        message = cluster.error or f"cluster {cluster.alias} does not answer"
        yield HealthIssue(
            IssueCode.CLUSTER_UNREACHABLE, Severity.ERROR, message, hint=cluster.hint, about=cluster.alias
        )


def _away(flow: FlowView) -> list[ClusterView]:
    return [cluster for cluster in flow.clusters if not cluster.is_reachable]


def _needed(flow: FlowView, group: GroupView) -> frozenset[str]:
    """Return the clusters that a connector needs."""
    return frozenset({flow.flow.target} if group.connector == HEARTBEAT else flow.flow.aliases)


def _connectors(flow: FlowView) -> Iterator[HealthIssue]:
    known, away = {cluster.error for cluster in _away(flow)}, {cluster.alias for cluster in _away(flow)}
    alike: dict[tuple[FlowState, str, str], list[str]] = {}
    for group in flow.groups:
        is_explained = group.last_error in known or (group.cluster in away and group.state is not FlowState.FAILED)
        cause, hint = ("", "") if is_explained else (group.last_error, group.hint)
        if not cause and (group.state in _WORKING or (group.state in _COMING_UP and away & _needed(flow, group))):
            continue
        if group.state in NOT_HERE and working_elsewhere(group.connector, flow.nodes):
            continue
        alike.setdefault((group.state, cause, hint), []).append(group.connector)
    for (state, cause, hint), names in alike.items():
        # Heartbeats that fail are tried again at their next interval, without a restart.
        what = "failing" if state in _WORKING else state.name.lower()
        message = f"{' and '.join(names)} {_are(len(names))} {_STATE_WORDS.get(state, what)}"
        code, severity = _OF_STATES.get(state, (IssueCode.CONNECTOR_NOT_RUNNING, Severity.WARNING))
        yield HealthIssue(code, severity, message, cause, hint, names[0] if len(names) == 1 else "")


def _partitions(flow: FlowView) -> Iterator[HealthIssue]:
    stopped = [it for it in flow.partitions if it.stage is PartitionStage.STOPPED]
    if stopped:
        yield _of_partitions(IssueCode.PARTITIONS_STOPPED, Severity.ERROR, stopped, "stopped")
    if delayed := [it for it in flow.partitions if _is_delayed(flow, it)]:
        yield _of_partitions(IssueCode.PARTITIONS_DELAYED, Severity.WARNING, delayed, "waiting to be retried")
    if losing := [it for it in flow.partitions if _is_loss_near(it)]:
        first = min(losing, key=lambda it: it.seconds_until_loss or 0.0)
        minutes = round((first.seconds_until_loss or 0.0) / 60)
        message = f"in {minutes} min the source may delete records of {_names(losing)} that are not copied"
        hint = "raise the topic's retention.ms or retention.bytes, or find out what slows the flow down"
        yield HealthIssue(IssueCode.LOSS_NEAR, Severity.ERROR, message, hint=hint, about=str(first.source))
    if many := _unknown_lags(flow):
        message = f"the lag of {_count(many, 'partition')} is unknown"
        yield HealthIssue(IssueCode.LAG_UNKNOWN, Severity.NOTE, message)
    yield from _missing(flow)
    yield from _unmatched(flow)


def _is_delayed(flow: FlowView, partition: PartitionView) -> bool:
    """Whether a partition has been waiting for long, and not for a cluster that is away, whatever else is."""
    away, failure = {cluster.alias for cluster in _away(flow)}, partition.failure
    is_explained = bool(away) if failure is None else bool(away & {failure.cluster, failure.waits_for})
    is_late = partition.stage is PartitionStage.BACKING_OFF and (partition.lag_s or 0.0) > _DELAY_S
    return is_late and not is_explained


def _unknown_lags(flow: FlowView) -> int:
    """Return the number of partitions whose lag is unknown, if no issue says why."""
    if _away(flow) or flow.state in _HELD:
        return 0
    explained = [it for it in flow.partitions if it.stage not in _COPIED and (it.lag is None or it.lag_is_least)]
    return flow.unknown_lags - len(explained)


def _missing(flow: FlowView) -> Iterator[HealthIssue]:
    """Report what the target lacks. What it refuses to have is not copied until an operator acts."""
    alike: dict[tuple[str | None, bool], list[MissingTopic]] = {}
    for topic in flow.missing_topics:
        if topic.failure is not None or not topic.is_hidden:
            about = None if topic.failure is None else topic.failure.error
            alike.setdefault((about, topic.is_hidden), []).append(topic)
    for topics in alike.values():
        why, many = topics[0].failure, sum(it.partitions for it in topics)
        about = topics[0].topic if len(topics) == 1 else ""
        if why is None:
            if _away(flow):
                continue
            message = f"{_count(many, 'partition')} of mirrored topics {_are(many)} missing at the target"
            yield HealthIssue(IssueCode.PARTITIONS_MISSING, Severity.NOTE, message, about=about)
            continue
        names = _first_of("topic", [it.topic for it in topics])
        is_all = all(it.first == 0 for it in topics)
        subject = f"{names} {_are(len(topics))}" if is_all else f"partitions of {names} are"
        where = "hidden at the source" if topics[0].is_hidden else "missing at the target"
        message = f"{subject} {'not mirrored' if topics[0].is_refused else where}"
        yield HealthIssue(IssueCode.TOPICS_REFUSED, Severity.ERROR, message, why.message, why.hint, about)


def _unmatched(flow: FlowView) -> Iterator[HealthIssue]:
    """Report a selection that finds nothing: a topic may be misspelt, or not be there yet."""
    if (found := flow.unmatched) is None:
        return
    hint, names = found.hint, list(found.names)
    absent = f"{_first_of('topic', names)}, which topics names, {_are(len(names))} not at the source" if names else ""
    if found.is_idle:
        none = f"topics, topics.exclude and the policy select none of the source's {_count(found.at_source, 'topic')}"
        cause = absent or (none if found.at_source else "the source has no topic that the mirror may see")
        yield HealthIssue(IssueCode.TOPICS_UNMATCHED, Severity.NOTE, "no topic is mirrored", cause, hint)
    else:
        yield HealthIssue(IssueCode.TOPICS_UNMATCHED, Severity.NOTE, absent, hint=hint)


def _is_loss_near(partition: PartitionView) -> bool:
    """Whether records may be lost soon, and have waited for most of their retention, however short that is."""
    loss_s, waited_s = partition.seconds_until_loss, partition.lag_s
    return loss_s is not None and waited_s is not None and loss_s < _LOSS_S and loss_s < waited_s


def _of_partitions(code: IssueCode, severity: Severity, those: list[PartitionView], what: str) -> HealthIssue:
    message = f"{_names(those)} {_are(len(those))} {what}"
    first = next((it for it in those if it.failure is not None), those[0])
    cause, hint = ("", "") if first.failure is None else (first.failure.message, first.failure.hint)
    return HealthIssue(code, severity, message, cause, hint, str(first.source) if len(those) == 1 else "")


def _names(those: list[PartitionView]) -> str:
    return _first_of("partition", [str(it.source) for it in those])


def _first_of(what: str, names: list[str]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return f"{what}{_s(len(names))} {', '.join(names[:_NAMED_AT_MOST])}" + (f" and {more} more" if more > 0 else "")


def _steps(flow: FlowView) -> Iterator[HealthIssue]:
    # What a connector fails with is an issue of the connector.
    known, away = {group.last_error for group in flow.groups}, {cluster.alias for cluster in _away(flow)}
    for step in flow.steps if flow.state in _WORKING else ():
        if not away.isdisjoint(step.clusters):
            continue
        if step.step == WRITE_POSITIONS and step.error:
            message = "no partition's position can be written"
            yield HealthIssue(IssueCode.POSITIONS_NOT_WRITTEN, Severity.WARNING, message, step.error, step.hint)
        elif step.error and step.error not in known:
            message = f"cannot {step.step}"
            yield HealthIssue(IssueCode.STEP_FAILED, Severity.WARNING, message, step.error, step.hint, step.step)


def _tasks(flow: FlowView) -> Iterator[HealthIssue]:
    states = Counter(task.state for task in flow.tasks)
    if many := states[TaskState.LATE]:
        numbers = ", ".join(str(task.task) for task in flow.tasks if task.state is TaskState.LATE)
        message = f"the epoch{_s(many)} of copy task{_s(many)} {numbers} {_are(many)} late"
        hint = "it is ended and copied again by itself; find out what blocks Spark's workers: memory, a stopped process"
        yield HealthIssue(IssueCode.TASKS_LATE, Severity.ERROR, message, hint=hint)
    if many := states[TaskState.WAITING_FOR_SLOT]:
        message = f"{_count(many, 'copy task')} wait{'s' if many == 1 else ''} for a slot of Spark; they take turns"
        yield HealthIssue(IssueCode.TASKS_WAITING, Severity.NOTE, message)


def _paused(flow: FlowView) -> Iterator[HealthIssue]:
    held = [f"{group.connector} is {group.state.name.lower()}" for group in flow.groups if group.state in _HELD]
    for name, paused in (("topic", flow.paused_topics), ("partition", flow.paused_partitions)):
        if len(paused) == 1:
            held.append(f"{name} {paused[0]} is paused")
        elif paused:
            held.append(f"{len(paused)} {name}s are paused")
    if held:
        hint = _why_resume(flow)
        code, severity = (IssueCode.PAUSED_LONG, Severity.WARNING) if hint else (IssueCode.PAUSED, Severity.NOTE)
        yield HealthIssue(code, severity, ", ".join(held), _paused_by(flow), hint)


def _why_resume(flow: FlowView) -> str:
    """Return why what is paused should be resumed, empty while nothing speaks against it."""
    losses_s = [
        it.seconds_until_loss
        for it in flow.partitions
        if it.stage is PartitionStage.PAUSED and it.lag != 0 and it.seconds_until_loss is not None
    ]
    if losses_s and (left_s := min(losses_s)) < _PAUSED_LOSS_S:
        minutes = round(left_s / 60)
        return f"resume it in time: in {minutes // 60} h {minutes % 60} min the source may delete records that wait"
    if flow.paused_s is not None and flow.paused_s >= _PAUSED_LONG_S:
        return "resume what is paused by mistake: the source may delete it before it is copied"
    return ""


def _nodes(flow: FlowView, known: Container[str]) -> Iterator[HealthIssue]:
    for node in flow.nodes:
        if not node.answers and node.is_member:
            tasks = ", ".join(map(str, node.assigned))
            many = len(node.assigned)
            part = f": its copy task{_s(many)} {tasks} {_are(many)} not in the figures" if tasks else ""
            message = f"node {node.worker_id} does not answer{part}"
            hint = "its tasks move to other nodes once its session is over; check its process and its machine"
            yield HealthIssue(IssueCode.NODE_SILENT, Severity.WARNING, message, hint=hint, about=node.worker_id)
        elif not node.answers:
            message = f"node {node.worker_id} is gone; other nodes have its tasks"
            yield HealthIssue(IssueCode.NODE_SILENT, Severity.NOTE, message, about=node.worker_id)
        if node.differs:
            message = f"settings of node {node.worker_id} differ from those of the owner: {', '.join(node.differs)}"
            hint = "the owner's apply; give all nodes of the flow the same file"
            yield HealthIssue(IssueCode.SETTINGS_DIFFER, Severity.NOTE, message, hint=hint, about=node.worker_id)
        if node.is_drained:
            message = f"node {node.worker_id} is drained and takes no tasks"
            yield HealthIssue(IssueCode.NODE_DRAINED, Severity.NOTE, message, about=node.worker_id)
        others = node.issues if node.is_counted and not node.is_this else ()
        for issue in (it for it in others if it not in known):
            yield HealthIssue(
                IssueCode.NODE_UNHEALTHY, Severity.WARNING, f"node {node.worker_id}", issue, about=node.worker_id
            )
    if any(node.assigned for node in flow.nodes) and not any(node.is_owner and node.answers for node in flow.nodes):
        message = "no node that answers owns the flow: topics, configs and checkpoints are not kept up"
        yield HealthIssue(IssueCode.NO_OWNER, Severity.WARNING, message, hint="it moves to another node by itself")


def _paused_by(flow: FlowView) -> str:
    """Return who paused or stopped what has been so for the longest time, and how long; empty if that is unknown."""
    if flow.paused_s is None or not flow.pauses:
        return ""
    first = min(flow.pauses.values(), key=lambda pause: pause.at_ms)
    is_one = all(pause == first for pause in flow.pauses.values())
    return f"{'' if is_one else 'the first '}{_ago(flow.paused_s)} by {first.by or 'an operator'}"


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def _count(many: int, name: str) -> str:
    return f"{many} {name}{_s(many)}"


def _s(many: int) -> str:
    return "" if many == 1 else "s"


def _are(many: int) -> str:
    return "is" if many == 1 else "are"
