"""What of a node and its flows needs attention."""

from __future__ import annotations

import attrs
import pytest

from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.health import (
    HealthIssue,
    IssueCode,
    Severity,
    all_issues,
    flow_issues,
    is_healthy,
    node_issues,
    reasons_unhealthy,
    shown,
    shown_state,
)
from mm2py.model.herder.overrides import Pause
from mm2py.model.state import (
    ClusterView,
    FlowState,
    FlowView,
    GroupView,
    MirrorView,
    NodeView,
    PartitionStage,
    PartitionView,
    SparkView,
    StepView,
    TaskState,
    TaskView,
)
from mm2py.model.topic import MissingTopic, Unmatched


_SOURCE, _CHECKPOINT, _HEARTBEAT = "MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector"
_RUNNING = tuple(GroupView(name, FlowState.RUNNING) for name in (_SOURCE, _CHECKPOINT, _HEARTBEAT))
_CLUSTERS = (ClusterView("A", is_reachable=True), ClusterView("B", is_reachable=True))
_AWAY = ClusterView("B", is_reachable=False, error="cluster B does not answer at b:1: refused", hint="start it")
_FAILURE = PartitionFailure("the topic was deleted and created again", "copy.on.source.recreated", "Recreated", 17)


def _flow(**changes: object) -> FlowView:
    whole = FlowView(Flow("A", "B"), FlowState.RUNNING, groups=_RUNNING, clusters=_CLUSTERS)
    return attrs.evolve(whole, **changes)  # type: ignore[arg-type]


def _partition(
    number: int, stage: PartitionStage = PartitionStage.COPYING, *, lag_s: float | None = 0.0, **facts: object
) -> PartitionView:
    it = PartitionView(TopicPartition("t", number), "A.t", 0, stage, 5, 5, 0, 5, 50, 0.0, lag_s=lag_s)
    return attrs.evolve(it, **facts)  # type: ignore[arg-type]


def _stopped(*numbers: int) -> tuple[PartitionView, ...]:
    return tuple(_partition(number, PartitionStage.STOPPED, failure=_FAILURE) for number in numbers)


def _node(*flows: FlowView, **changes: object) -> MirrorView:
    spark = SparkView(slots=2, used=0, waiting=0, is_up=True)
    return attrs.evolve(MirrorView(0, is_ready=True, flows=flows, spark=spark), **changes)  # type: ignore[arg-type]


def _codes(issues: tuple[HealthIssue, ...]) -> list[tuple[IssueCode, Severity]]:
    return [(issue.code, issue.severity) for issue in issues]


@pytest.mark.parametrize(
    ("changes", "issue", "sentence"),
    [
        pytest.param(
            {"clusters": (_CLUSTERS[0], _AWAY)},
            (IssueCode.CLUSTER_UNREACHABLE, Severity.ERROR),
            "cluster B does not answer at b:1: refused",
            id="cluster",
        ),
        pytest.param(
            {"clusters": (_CLUSTERS[0], ClusterView("B", is_reachable=False))},
            (IssueCode.CLUSTER_UNREACHABLE, Severity.ERROR),
            "cluster B does not answer",
            id="cluster, reason unknown",
        ),
        pytest.param(
            {"groups": (GroupView(_SOURCE, FlowState.FAILED, "no permission"), *_RUNNING[1:])},
            (IssueCode.CONNECTOR_FAILED, Severity.ERROR),
            "MirrorSourceConnector is down: no permission",
            id="failed",
        ),
        pytest.param(
            {"groups": (GroupView(_SOURCE, FlowState.RESTARTING, "a bug"), *_RUNNING[1:])},
            (IssueCode.CONNECTOR_NOT_RUNNING, Severity.WARNING),
            "MirrorSourceConnector is restarting: a bug",
            id="restarting",
        ),
        pytest.param(
            {"groups": (*_RUNNING[:2], GroupView(_HEARTBEAT, FlowState.RUNNING, "too few brokers"))},
            (IssueCode.CONNECTOR_NOT_RUNNING, Severity.WARNING),
            "MirrorHeartbeatConnector is failing: too few brokers",
            id="running with an error",
        ),
        pytest.param(
            {"groups": tuple(attrs.evolve(group, state=FlowState.STANDBY) for group in _RUNNING[:2])},
            (IssueCode.STANDBY, Severity.WARNING),
            "MirrorSourceConnector and MirrorCheckpointConnector are standing by",
            id="standby, several",
        ),
        pytest.param(
            {"partitions": (_partition(0), *_stopped(3))},
            (IssueCode.PARTITIONS_STOPPED, Severity.ERROR),
            "partition t-3 is stopped: the topic was deleted and created again",
            id="one partition stopped",
        ),
        pytest.param(
            {"partitions": _stopped(1, 2, 3, 4, 5)},
            (IssueCode.PARTITIONS_STOPPED, Severity.ERROR),
            "partitions t-1, t-2, t-3 and 2 more are stopped: the topic was deleted and created again",
            id="partitions stopped",
        ),
        pytest.param(
            {"partitions": (_partition(0, PartitionStage.BACKING_OFF, lag_s=61.0),)},
            (IssueCode.PARTITIONS_DELAYED, Severity.WARNING),
            "partition t-0 is waiting to be retried",
            id="delayed",
        ),
        pytest.param(
            {"partitions": (_partition(0, lag_s=600_000.0, seconds_until_loss=1800.0),)},
            (IssueCode.LOSS_NEAR, Severity.ERROR),
            "in 30 min the source may delete records of partition t-0 that are not copied",
            id="loss",
        ),
        pytest.param(
            {"tasks": (TaskView(3, TaskState.LATE, 7, 1), TaskView(4, TaskState.RUNNING, 7, 1))},
            (IssueCode.TASKS_LATE, Severity.ERROR),
            "the epoch of copy task 3 is late",
            id="late",
        ),
        pytest.param(
            {"steps": (StepView("write positions", 1, 2, "mm2-offsets.A.internal-3 has no leader"),)},
            (IssueCode.POSITIONS_NOT_WRITTEN, Severity.WARNING),
            "no partition's position can be written: mm2-offsets.A.internal-3 has no leader",
            id="positions",
        ),
        pytest.param(
            {"steps": (StepView("write offset syncs", None, 3, "cannot create topic mm2-offset-syncs.B.internal"),)},
            (IssueCode.STEP_FAILED, Severity.WARNING),
            "cannot write offset syncs: cannot create topic mm2-offset-syncs.B.internal",
            id="an internal topic",
        ),
        pytest.param(
            {"missing_topics": (MissingTopic("t", "A.t", 2, 2, _FAILURE),)},
            (IssueCode.TOPICS_REFUSED, Severity.ERROR),
            "partitions of topic t are missing at the target: the topic was deleted and created again",
            id="partitions that cannot be created",
        ),
    ],
)  # fmt: skip
def test_a_flow_that_does_not_work_is_unhealthy(
    changes: dict[str, object], issue: tuple[IssueCode, Severity], sentence: str
) -> None:
    """Each cause is one issue with one sentence, and makes node and flow unhealthy."""
    flow = _flow(**changes)

    assert _codes(flow_issues(flow)) == [issue]
    assert reasons_unhealthy(_node(flow)) == [f"A->B: {sentence}"]
    assert not is_healthy(all_issues(_node(_flow(), flow)))


@pytest.mark.parametrize(
    ("changes", "issues"),
    [
        pytest.param({}, [], id="all well"),
        pytest.param({"partitions": (_partition(0, PartitionStage.BACKING_OFF, lag_s=2.0),)}, [], id="retried soon"),
        pytest.param(
            {"partitions": (_partition(0, lag_s=1.0, seconds_until_loss=599.0),)}, [], id="a retention of ten minutes"
        ),
        pytest.param({"partitions": (_partition(0, lag=None),)}, [IssueCode.LAG_UNKNOWN], id="unknown lag"),
        pytest.param(
            {"missing_topics": (MissingTopic("t", "A.t", 0, 2),)}, [IssueCode.PARTITIONS_MISSING], id="not created yet"
        ),
        pytest.param(
            {"tasks": (TaskView(0, TaskState.WAITING_FOR_SLOT, 7, 1),)}, [IssueCode.TASKS_WAITING], id="no slot"
        ),
        pytest.param({"paused_topics": ("t",)}, [IssueCode.PAUSED], id="paused topic"),
        pytest.param({"unmatched": Unmatched(3, ("x",))}, [IssueCode.TOPICS_UNMATCHED], id="misspelt"),
        pytest.param(
            {"groups": (attrs.evolve(_RUNNING[0], state=FlowState.PAUSED), *_RUNNING[1:])},
            [IssueCode.PAUSED],
            id="paused connector",
        ),
    ],
)
def test_a_note_leaves_a_flow_healthy(changes: dict[str, object], issues: list[IssueCode]) -> None:
    """The check fails for what is broken, not for what an operator asked for or what is merely worth knowing."""
    flow = _flow(**changes)

    assert [issue.code for issue in flow_issues(flow)] == issues
    assert is_healthy(flow_issues(flow))
    assert reasons_unhealthy(_node(flow)) == []


_NONE = "no topic is mirrored"


@pytest.mark.parametrize(
    ("unmatched", "sentence"),
    [
        (Unmatched(3, ("ordrs", "x")), "topics ordrs, x, which topics names, are not at the source"),
        (Unmatched(3, ("a",), is_idle=True), f"{_NONE}: topic a, which topics names, is not at the source"),
        (Unmatched(0, is_idle=True), f"{_NONE}: the source has no topic that the mirror may see"),
    ],
)
def test_a_flow_that_runs_for_nothing_says_so(unmatched: Unmatched, sentence: str) -> None:
    """Running, without lag and green is what a misspelt topic looks like otherwise."""
    assert [issue.sentence for issue in flow_issues(_flow(unmatched=unmatched))] == [sentence]


def test_what_the_target_refuses_is_why_partitions_are_missing() -> None:
    """Nothing else beside the issue says why a topic is not mirrored, or what to grant."""
    refusal = PartitionFailure("CreateTopics: TOPIC_AUTHORIZATION_FAILED", "grant CREATE", "TOPIC_AUTHORIZATION_FAILED")
    few = PartitionFailure("cannot create topic A.c", "add brokers", "INVALID_REPLICATION_FACTOR")
    topics = tuple(MissingTopic(it, f"A.{it}", 0, 2, few if it == "c" else refusal) for it in ("a", "b", "c"))
    flow = _flow(missing_topics=(*topics, MissingTopic("d", "A.d", 0, 2, refusal, is_hidden=True)))
    one, other, hidden = flow_issues(flow)

    assert one.sentence == f"topics a, b are missing at the target: {refusal.message}"
    assert one.hint == "grant CREATE"
    assert (other.sentence, other.about) == ("topic c is missing at the target: cannot create topic A.c", "c")
    assert hidden.sentence == f"topic d is hidden at the source: {refusal.message}"
    assert reasons_unhealthy(_node(flow)) == [f"A->B: {it.sentence}" for it in (one, other, hidden)]
    assert one.severity is Severity.ERROR


def test_a_failing_step_is_not_told_twice() -> None:
    """A connector that fails with it, or a cluster that is away, explains it."""
    steps = (StepView("emit heartbeats", None, 3, "cannot create topic heartbeats", clusters=("B",)),)
    failing = GroupView(_HEARTBEAT, FlowState.RUNNING, "cannot create topic heartbeats")
    flow = _flow(steps=steps, groups=(*_RUNNING[:2], failing))

    assert [issue.code for issue in flow_issues(flow)] == [IssueCode.CONNECTOR_NOT_RUNNING]
    assert [issue.code for issue in flow_issues(_flow(steps=steps, clusters=(_CLUSTERS[0], _AWAY)))] == [
        IssueCode.CLUSTER_UNREACHABLE
    ]


def test_an_unreachable_cluster_is_one_issue() -> None:
    """Three connectors that wait for one cluster do not repeat why it is unreachable; one that failed is named."""
    waiting = tuple(GroupView(name, FlowState.STARTING, _AWAY.error) for name in (_SOURCE, _CHECKPOINT))
    failed = GroupView(_HEARTBEAT, FlowState.FAILED, _AWAY.error)

    issues = flow_issues(_flow(clusters=(_CLUSTERS[0], _AWAY), groups=(*waiting, failed)))

    assert [(issue.code, issue.about) for issue in issues] == [
        (IssueCode.CLUSTER_UNREACHABLE, "B"),
        (IssueCode.CONNECTOR_FAILED, _HEARTBEAT),
    ]
    assert issues[1].sentence == "MirrorHeartbeatConnector is down"


_WAITING = _partition(0, PartitionStage.BACKING_OFF, lag_s=600.0)
_REFUSED = PartitionFailure("not let in", "renew the password", "ClusterAccessError", cluster="A")
_SILENT = PartitionFailure("no answer", waits_for="B")


def _failed_step(*clusters: str) -> StepView:
    return StepView("sync ACLs", None, 2, "denied", "grant it", clusters)


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        pytest.param({"partitions": (_WAITING,)}, [], id="partitions wait"),
        pytest.param({"partitions": (attrs.evolve(_WAITING, lag=None),)}, [], id="lags are unknown"),
        pytest.param({"unknown_lags_elsewhere": 3}, [], id="also of other nodes"),
        pytest.param({"missing_topics": (MissingTopic("t", "A.t", 0, 2),)}, [], id="topics are created later"),
        pytest.param({"groups": (GroupView(_SOURCE, FlowState.STARTING),)}, [], id="not connected yet"),
        pytest.param({"groups": (GroupView(_SOURCE, FlowState.RESTARTING, "no", cluster="B"),)}, [], id="restarting"),
        pytest.param({"groups": (GroupView(_SOURCE, FlowState.RUNNING, "no", cluster="B"),)}, [], id="suspended"),
        pytest.param(
            {"groups": (GroupView(_SOURCE, FlowState.RESTARTING, "a bug"),)},
            [IssueCode.CONNECTOR_NOT_RUNNING],
            id="restarting for another reason",
        ),
        pytest.param(
            {"groups": (GroupView(_SOURCE, FlowState.STARTING, "not let in", cluster="A"),)},
            [IssueCode.CONNECTOR_NOT_RUNNING],
            id="starting without the other cluster",
        ),
        pytest.param({"partitions": (attrs.evolve(_WAITING, failure=_SILENT),)}, [], id="they wait for an answer"),
        pytest.param(
            {"partitions": (attrs.evolve(_WAITING, failure=PartitionFailure("the epoch was lost")),)},
            [IssueCode.PARTITIONS_DELAYED],
            id="partitions wait for something else",
        ),
        pytest.param(
            {"partitions": (attrs.evolve(_WAITING, failure=_REFUSED),)},
            [IssueCode.PARTITIONS_DELAYED],
            id="another cluster refuses",
        ),
        pytest.param({"steps": (_failed_step("B"),)}, [], id="a step of that cluster"),
        pytest.param({"steps": (_failed_step("A", "B"),)}, [], id="a step that needs it"),
        pytest.param({"steps": (_failed_step("A"),)}, [IssueCode.STEP_FAILED], id="a step that the other one refuses"),
        pytest.param({"partitions": _stopped(0)}, [IssueCode.PARTITIONS_STOPPED], id="an operator is needed"),
        pytest.param(
            {"partitions": (attrs.evolve(_WAITING, seconds_until_loss=60.0),)},
            [IssueCode.LOSS_NEAR],
            id="records are in danger",
        ),
        pytest.param({"paused_topics": ("t",)}, [IssueCode.PAUSED], id="paused"),
    ],
)  # fmt: skip
def test_what_waits_for_a_cluster_that_is_away_is_no_second_issue(
    changes: dict[str, object], codes: list[IssueCode]
) -> None:
    """What needs an operator all the same, and what an operator asked for, stays."""
    issues = flow_issues(_flow(clusters=(_CLUSTERS[0], _AWAY), **changes))

    assert [issue.code for issue in issues] == [IssueCode.CLUSTER_UNREACHABLE, *codes]


def test_heartbeats_need_only_the_target() -> None:
    """That their connector does not come up has another reason while only the source is away."""
    source_away = (attrs.evolve(_AWAY, alias="A"), _CLUSTERS[1])
    heartbeats = GroupView(_HEARTBEAT, FlowState.RESTARTING, "a bug")

    assert [issue.code for issue in flow_issues(_flow(clusters=source_away, groups=(heartbeats,)))] == [
        IssueCode.CLUSTER_UNREACHABLE,
        IssueCode.CONNECTOR_NOT_RUNNING,
    ]


def test_a_lag_that_nothing_else_explains_is_an_issue() -> None:
    """Those of stopped and paused partitions are explained by issues of their own."""
    explained = tuple(
        _partition(number, stage, lag=None, lag_s=None, failure=_FAILURE)
        for number, stage in enumerate((PartitionStage.STOPPED, PartitionStage.PAUSED))
    )
    flow = _flow(partitions=explained, paused_partitions=(explained[1].source,))

    assert [issue.code for issue in flow_issues(flow)] == [IssueCode.PARTITIONS_STOPPED, IssueCode.PAUSED]

    other = attrs.evolve(flow, partitions=(*explained, _partition(2, lag=3, lag_is_least=True)))
    [issue] = [issue for issue in flow_issues(other) if issue.code is IssueCode.LAG_UNKNOWN]

    assert issue.message == "the lag of 1 partition is unknown"


def test_what_another_node_has_too_is_no_second_issue() -> None:
    """All nodes of a flow miss the same cluster; what only the other one has is shown with its name."""
    other = NodeView("n2", "m:8083", "m", 7, issues=(_AWAY.error, "partition t-9 is stopped"))
    issues = flow_issues(_flow(clusters=(_CLUSTERS[0], _AWAY), nodes=(other,)))

    assert [issue.sentence for issue in issues] == [_AWAY.error, "node m:8083: partition t-9 is stopped"]


def test_the_worst_comes_first() -> None:
    flow = _flow(paused_topics=("x",), partitions=_stopped(0), groups=(GroupView(_SOURCE, FlowState.RESTARTING),))

    assert [issue.severity for issue in flow_issues(flow)] == [Severity.ERROR, Severity.WARNING, Severity.NOTE]


def test_who_paused_is_shown() -> None:
    """What is paused is shown with who paused it, and when; of several pauses, the first one."""
    groups = (attrs.evolve(_RUNNING[0], state=FlowState.STOPPED), *_RUNNING[1:])
    pauses = {"topic t": Pause("ann", 5), "topic u": Pause("bob", 7), "MirrorSourceConnector": Pause("bob", 7)}
    flow = _flow(groups=groups, paused_topics=("t", "u"), pauses=pauses, paused_s=11_000.0)

    [issue] = flow_issues(flow)

    assert issue.message == "MirrorSourceConnector is stopped, 2 topics are paused"
    assert (issue.code, issue.cause) == (IssueCode.PAUSED, "the first 3 h ago by ann")


@pytest.mark.parametrize(
    ("lag", "loss_s", "severity"),
    [
        (5, 20_000.0, Severity.WARNING),
        (None, 20_000.0, Severity.WARNING),
        (5, 22_000.0, Severity.NOTE),
        (0, 20_000.0, Severity.NOTE),
        (5, None, Severity.NOTE),
    ],
)
def test_a_pause_that_comes_close_to_retention_needs_attention(
    lag: int | None, loss_s: float | None, severity: Severity
) -> None:
    """Six hours before records that wait may be deleted, however short the pause has been."""
    paused = _partition(0, PartitionStage.PAUSED, lag=lag, seconds_until_loss=loss_s)
    issues = flow_issues(_flow(paused_topics=("t",), partitions=(paused,), pauses={"topic t": Pause("ann", 5)}))
    [issue] = [it for it in issues if it.code in {IssueCode.PAUSED, IssueCode.PAUSED_LONG}]

    assert issue.severity is severity
    assert ("in 5 h 33 min the source may delete" in issue.hint) is (severity is Severity.WARNING)


def test_what_is_paused_for_a_day_needs_attention() -> None:
    """It may be forgotten, and the source does not keep records for ever."""
    [issue] = flow_issues(_flow(paused_topics=("t",), pauses={"topic t": Pause("ann", 5)}, paused_s=2 * 86_400.0))

    assert (issue.code, issue.severity) == (IssueCode.PAUSED_LONG, Severity.WARNING)
    assert issue.sentence == "topic t is paused: 2 d ago by ann"


@pytest.mark.parametrize(
    ("state", "changes", "shown"),
    [
        pytest.param(FlowState.RUNNING, {}, FlowState.RUNNING, id="well"),
        pytest.param(FlowState.RUNNING, {"clusters": (_CLUSTERS[0], _AWAY)}, FlowState.UNREACHABLE, id="away"),
        pytest.param(FlowState.STARTING, {"clusters": (_CLUSTERS[0], _AWAY)}, FlowState.UNREACHABLE, id="never there"),
        pytest.param(FlowState.PAUSED, {"clusters": (_CLUSTERS[0], _AWAY)}, FlowState.PAUSED, id="paused"),
        pytest.param(FlowState.RUNNING, {"partitions": _stopped(0)}, FlowState.HAS_FAILURES, id="a partition stopped"),
        pytest.param(FlowState.RUNNING, {"paused_topics": ("t",)}, FlowState.RUNNING, id="a note"),
    ],
)
def test_a_flow_has_one_state_everywhere(state: FlowState, changes: dict[str, object], shown: FlowState) -> None:
    """It does not run while a cluster does not answer, or while something of it needs an operator."""
    assert shown_state(_flow(state=state, **changes)) is shown


def _states(flow: FlowView) -> list[FlowState]:
    return [group.state for group in shown(flow).groups]


def test_task_groups_have_the_same_words() -> None:
    """The one that copies has the failures of what is copied; heartbeats go on while only the source is away."""
    running, unreachable = FlowState.RUNNING, FlowState.UNREACHABLE
    target_away, source_away = (_CLUSTERS[0], _AWAY), (attrs.evolve(_AWAY, alias="A"), _CLUSTERS[1])
    paused = (attrs.evolve(_RUNNING[0], state=FlowState.PAUSED), *_RUNNING[1:])
    failed = (*_RUNNING[:2], attrs.evolve(_RUNNING[2], state=FlowState.FAILED))

    assert _states(_flow()) == [running] * 3
    assert _states(_flow(clusters=target_away)) == [unreachable] * 3
    assert _states(_flow(clusters=source_away)) == [unreachable, unreachable, running]
    assert _states(_flow(clusters=target_away, groups=paused)) == [FlowState.PAUSED, unreachable, unreachable]
    assert _states(_flow(partitions=_stopped(0))) == [FlowState.HAS_FAILURES, running, running]
    assert _states(_flow(groups=failed)) == [running, running, FlowState.FAILED]


@pytest.mark.parametrize(
    ("told", "states"),
    [
        (FlowState.RUNNING, [FlowState.RUNNING] * 3),
        (FlowState.UNREACHABLE, [FlowState.UNREACHABLE] * 3),
        (FlowState.HAS_FAILURES, [FlowState.HAS_FAILURES, FlowState.RUNNING, FlowState.RUNNING]),
    ],
)
def test_task_groups_of_another_node_are_as_it_reports(told: FlowState, states: list[FlowState]) -> None:
    """This node may well reach a cluster that another one does not, and the reverse."""
    other = NodeView("n2", "m:8083", "m", 7, state=told)
    groups = tuple(attrs.evolve(group, node="m:8083") for group in _RUNNING)

    assert _states(_flow(groups=groups, nodes=(other,))) == states


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        pytest.param({}, [], id="well"),
        pytest.param({"is_ready": False}, [IssueCode.SPARK_STARTING], id="starting"),
        pytest.param({"spark": SparkView(2, 0, 0, is_up=False)}, [IssueCode.SPARK_DOWN], id="down"),
        pytest.param({"spark": None}, [], id="not needed"),
        pytest.param({"flows": ()}, [IssueCode.NO_FLOW], id="no flow"),
    ],
)
def test_a_node_has_issues_of_its_own(changes: dict[str, object], codes: list[IssueCode]) -> None:
    node = _node(_flow(), **changes)

    assert [issue.code for issue in node_issues(node)] == codes
    assert is_healthy(all_issues(node)) is (not codes)
    assert len(reasons_unhealthy(node)) == len(codes)


@pytest.mark.parametrize(
    ("many", "message", "more"),
    [(1, "1 note on the settings in use", ""), (5, "5 notes on the settings in use", "; and 2 more")],
)
def test_notes_on_the_settings_are_a_note(many: int, message: str, more: str) -> None:
    """Lines that hardly do what they seem to are shown for as long as they are in use; nothing is unhealthy."""
    notes = tuple(f"mm2.properties:{line}: key: unknown key, ignored" for line in range(many))
    node = _node(_flow(), noted_settings=notes)

    [issue] = node_issues(node)

    assert (issue.code, issue.severity, issue.message) == (IssueCode.SETTINGS_NOTED, Severity.NOTE, message)
    assert issue.cause == "; ".join(notes[:3]) + more
    assert reasons_unhealthy(node) == []


def test_refused_settings_are_a_note() -> None:
    """A mirror that continues with its previous settings is healthy; what is wrong with the file is shown."""
    node = _node(_flow(), refused_settings=("mm2.properties:3: tasks.max: not a number", "mm2.properties:4: …"))

    [issue] = node_issues(node)

    assert (issue.code, issue.severity) == (IssueCode.SETTINGS_REFUSED, Severity.NOTE)
    assert issue.cause == "mm2.properties:3: tasks.max: not a number, and 1 more"
    assert reasons_unhealthy(node) == []
