"""One view of a flow from the reports of all of its nodes, and what of it needs attention."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.health import IssueCode, Severity, flow_issues, reasons_unhealthy
from mm2py.model.herder.all_nodes import flow_of_all_nodes, node_view
from mm2py.model.herder.node import Node
from mm2py.model.herder.node_status import NodeStatus
from mm2py.model.herder.share import Share, SharedFlow
from mm2py.model.state import (
    ConnectorStatus,
    FlowState,
    FlowView,
    GroupView,
    MirrorView,
    NodeView,
    PartitionStage,
    PartitionView,
    TaskState,
    TaskStatus,
    TaskView,
)
from mm2py.model.topic import MissingTopic


SOURCE, CHECKPOINT = "MirrorSourceConnector", "MirrorCheckpointConnector"
HERE = NodeView("here-1", "here:8083", "here", 1, is_this=True, assigned=(0,))
THERE = NodeView(
    "there-2",
    "there:8083",
    "there",
    2,
    is_owner=True,
    state=FlowState.RUNNING,
    assigned=(1, 2),
    tasks=tuple(TaskStatus(number, TaskState.RUNNING, 5, 10.0, 100.0, "w", "oops") for number in (1, 2)),
    connectors=(ConnectorStatus(SOURCE, FlowState.RUNNING), ConnectorStatus(CHECKPOINT, FlowState.RUNNING)),
    topics=3,
    partitions=10,
    records=1_000,
    bytes=10_000,
    records_per_s=20.0,
    bytes_per_s=200.0,
    lag=7,
    lag_s=9.0,
)


def flow(*nodes: NodeView, **changes: Any) -> FlowView:
    """Return a flow with one partition and one task on this node, which does not write checkpoints."""
    partition = PartitionView(TopicPartition("a", 0), "A.a", 0, PartitionStage.COPYING, 5, 5, 3, 5, 50, 1.0, lag_s=1.0)
    view = FlowView(
        Flow("A", "B"),
        FlowState.RUNNING,
        topics=3,
        partitions=(partition,),
        tasks=(TaskView(0, TaskState.RUNNING, 4, 1),),
        records_per_s=1.0,
        bytes_per_s=10.0,
        lag=3,
        lag_s=1.0,
        groups=(GroupView(SOURCE, FlowState.RUNNING), GroupView(CHECKPOINT, FlowState.STANDBY, "", "")),
        nodes=nodes,
    )
    return attrs.evolve(view, records=5, bytes=50, **changes)


def codes(view: FlowView) -> list[tuple[IssueCode, Severity]]:
    return [(issue.code, issue.severity) for issue in flow_issues(view)]


def test_totals_and_tasks_are_those_of_all_nodes() -> None:
    """Each task has its node, a connector that stands by here has the state of the node that runs it."""
    whole = flow_of_all_nodes(flow(HERE, THERE))
    unsure = flow_of_all_nodes(flow(HERE, attrs.evolve(THERE, unknown_lags=2)))

    assert (whole.records, whole.bytes, whole.records_per_s, whole.bytes_per_s) == (1_005, 10_050, 21.0, 210.0)
    assert (whole.lag, whole.lag_s, whole.partition_count, whole.unknown_lags, whole.topics) == (10, 9.0, 11, 0, 3)
    assert [(task.task, task.node) for task in whole.tasks] == [(0, ""), (1, "there:8083"), (2, "there:8083")]
    assert [(group.state, group.node) for group in whole.groups] == [
        (FlowState.RUNNING, ""),
        (FlowState.RUNNING, "there:8083"),
    ]
    assert flow_issues(whole) == ()
    assert unsure.unknown_lags == 2


@pytest.mark.parametrize(
    ("here", "there", "partitions", "whole"),
    [
        pytest.param(40.0, 90.0, 10, 90.0, id="the last one counts"),
        pytest.param(0.0, 0.0, 10, 0.0, id="level"),
        pytest.param(40.0, None, 10, None, id="one does not know, or is of an earlier version"),
        pytest.param(40.0, None, 0, 40.0, id="one has nothing to copy"),
    ],
)
def test_a_flow_is_level_when_all_of_its_nodes_are(
    here: float, there: float | None, partitions: int, whole: float | None
) -> None:
    other = attrs.evolve(THERE, seconds_until_level=there, partitions=partitions)

    assert flow_of_all_nodes(flow(HERE, other, seconds_until_level=here)).seconds_until_level == whole


@pytest.mark.parametrize(
    ("change", "is_exact"),
    [
        ({}, True),
        ({"state": FlowState.STARTING, "partitions": 0, "lag": None}, False),
        ({"state": FlowState.STOPPED, "partitions": 0, "lag": None}, False),
        ({"state": FlowState.RUNNING, "partitions": 0, "lag": None}, True),
        ({"state": FlowState.STARTING, "partitions": 0, "lag": None, "assigned": ()}, True),
        ({"answers": False}, False),
        ({"heard_ms": 9_000}, True),
        ({"heard_ms": 31_000}, False),
        ({"heard_ms": 31_000, "assigned": (), "partitions": 0}, True),
    ],
    ids=[
        "it copies",
        "it starts",
        "it stopped",
        "it has no partitions",
        "it has no tasks",
        "it is silent",
        "it reported a moment ago",
        "its report is old",
        "its report is old, and it has no tasks",
    ],
)
def test_a_lag_is_exact_once_each_node_that_copies_has_told_its_own(change: dict[str, Any], is_exact: bool) -> None:
    """One that starts has not read where its partitions are: they may be far behind."""
    whole = flow_of_all_nodes(flow(HERE, attrs.evolve(THERE, **change)))

    assert whole.lag_is_least is not is_exact
    assert is_exact or whole.seconds_until_level is None


@pytest.mark.parametrize(
    ("here", "there", "copied_there", "uncounted"),
    [
        pytest.param(11, 11, 10, 0, id="all are counted"),
        pytest.param(11, 11, 9, 1, id="one is on its way"),
        pytest.param(11, 11, 0, 10, id="all of one node are on their way"),
        pytest.param(12, 11, 10, 1, id="the other node has not seen a new one yet"),
        pytest.param(11, 12, 10, 1, id="this node has not seen a new one yet"),
        pytest.param(11, None, 9, 1, id="the other node is of an earlier version"),
        pytest.param(None, 11, 9, 1, id="this node stands by"),
        pytest.param(None, None, 9, 0, id="no node says how many there are"),
        pytest.param(10, 10, 10, 0, id="one has gone, and is still counted"),
    ],
)
def test_a_lag_without_partitions_that_no_node_counts_is_not_exact(
    here: int | None, there: int | None, copied_there: int, uncounted: int
) -> None:
    """While a partition moves, the node that had it has dropped it, and the next one has not begun it."""
    other = attrs.evolve(THERE, partitions=copied_there, mirrored=there, seconds_until_level=0.0)
    whole = flow_of_all_nodes(flow(HERE, other, mirrored=here, seconds_until_level=0.0))

    assert (whole.lag_is_least, whole.lag_s_is_least) == (uncounted > 0, uncounted > 0)
    assert (whole.unknown_lags, whole.partition_count) == (uncounted, 1 + copied_there + uncounted)
    assert whole.seconds_until_level == (None if uncounted else 0.0)
    assert [code for code, _ in codes(whole)] == [IssueCode.LAG_UNKNOWN] * bool(uncounted)


def test_nothing_left_is_not_said_while_a_partition_is_on_its_way() -> None:
    """The others are at their end; 0 would say that of all."""
    at_end = attrs.evolve(THERE, partitions=9, mirrored=11, lag=0, lag_s=0.0)
    whole = flow_of_all_nodes(flow(HERE, at_end, lag=0, lag_s=0.0))

    assert (whole.lag, whole.lag_s) == (None, None)


def test_a_view_without_partitions_has_this_node_s_lag_too() -> None:
    """The page's history is made of such."""
    whole = flow_of_all_nodes(flow(HERE, attrs.evolve(THERE, mirrored=11), partitions=(), unlisted=1, mirrored=11))

    assert (whole.lag, whole.lag_s, whole.lag_is_least, whole.partition_count) == (10, 9.0, False, 11)


def test_a_node_that_has_none_of_it_knows_of_topics_that_are_hidden() -> None:
    """They wait to be copied by one of the nodes, which may have noticed nothing yet."""
    hidden = MissingTopic("a", "A.a", 0, 2, is_hidden=True)
    whole = flow_of_all_nodes(flow(HERE, THERE, partitions=(), lag=None, lag_s=None, missing_topics=(hidden,)))

    assert (whole.lag, whole.lag_is_least) == (7, True)


def test_a_single_node_s_flow_stays_as_it_is() -> None:
    alone = flow()

    assert flow_of_all_nodes(alone) is alone


def test_what_does_not_answer_is_not_counted_but_named() -> None:
    """The figures leave it out, and a warning says which tasks are missing; this node stays ready."""
    silent = attrs.evolve(THERE, answers=False)
    view = flow(HERE, silent, groups=(GroupView(SOURCE, FlowState.RUNNING),))
    whole = flow_of_all_nodes(view)
    (missing,) = [issue for issue in flow_issues(whole) if issue.code is IssueCode.NODE_SILENT]

    assert (whole.records, [task.task for task in whole.tasks]) == (5, [0])
    assert missing.message == "node there:8083 does not answer: its copy tasks 1, 2 are not in the figures"
    assert codes(whole)[1:] == [(IssueCode.NO_OWNER, Severity.WARNING)]
    assert reasons_unhealthy(MirrorView(0, is_ready=True, flows=(whole,))) == []


def test_a_node_that_left_the_group_is_a_note() -> None:
    """Its tasks have moved, so that nothing is missing."""
    gone = attrs.evolve(THERE, answers=False, is_member=False, assigned=(), is_owner=False)
    view = flow(attrs.evolve(HERE, is_owner=True), gone, groups=())

    assert codes(view) == [(IssueCode.NODE_SILENT, Severity.NOTE)]
    assert flow_of_all_nodes(view).records == 5


def test_a_task_that_moves_is_shown_once() -> None:
    """While two nodes report it, the one that it is assigned to counts."""
    mine = flow(attrs.evolve(HERE, assigned=(0, 1)), attrs.evolve(THERE, assigned=(2,)))
    mine = attrs.evolve(mine, tasks=tuple(TaskView(number, TaskState.IDLE, 1, 1) for number in (0, 1, 2)))

    assert [(task.task, task.node) for task in flow_of_all_nodes(mine).tasks] == [
        (0, ""),
        (1, ""),
        (2, "there:8083"),
    ]


def test_trouble_of_other_nodes_is_shown_here() -> None:
    """Their issues, differing settings and drains; none of it makes this node unready."""
    there = attrs.evolve(THERE, issues=("partition a-3 is stopped: too large",), differs=("topics",), is_drained=True)
    view = flow_of_all_nodes(flow(HERE, there))

    assert codes(view) == [
        (IssueCode.NODE_UNHEALTHY, Severity.WARNING),
        (IssueCode.SETTINGS_DIFFER, Severity.NOTE),
        (IssueCode.NODE_DRAINED, Severity.NOTE),
    ]
    assert flow_issues(view)[0].sentence == "node there:8083: partition a-3 is stopped: too large"
    assert reasons_unhealthy(MirrorView(0, is_ready=True, flows=(view,))) == []


def test_a_connector_that_runs_nowhere_stands_by() -> None:
    nobody = attrs.evolve(THERE, connectors=(ConnectorStatus(CHECKPOINT, FlowState.STANDBY),))
    view = flow_of_all_nodes(flow(HERE, nobody))

    assert view.groups[1].state is FlowState.STANDBY
    assert codes(view) == [(IssueCode.STANDBY, Severity.WARNING)]


@pytest.mark.parametrize(("generation", "lag", "unknown_lags"), [(1, None, 10), (2, 7, 0), (3, None, 10)])
def test_a_lag_under_another_assignment_is_not_the_node_s(generation: int, lag: int | None, unknown_lags: int) -> None:
    """Another node may have its partitions by now, and count them, too; or this node is the late one."""
    node = Node("there", 2, "m", "1", "http://there:8083/", 1_000)
    status = NodeStatus(node, 7, generation, partitions=10, lag=7, lag_s=1.0, seconds_until_level=2.0)
    shared = SharedFlow(2, {"m": node}, {"m": Share(tasks=frozenset({1}))})

    seen = node_view(status, shared, heard_s=1.5, answers=True)
    alone = node_view(status, None, heard_s=1.5, answers=True)

    assert (seen.lag, seen.unknown_lags, seen.partitions) == (lag, unknown_lags, 10)
    assert (seen.lag_s is None, seen.seconds_until_level is None) == (lag is None, lag is None)
    assert (alone.lag, alone.unknown_lags) == (7, 0)


def test_a_node_is_shown_by_the_assignment() -> None:
    """What it has counts as the group's leader says; a node that is no member any more has nothing."""
    node = Node("there", 2, "m", "1", "http://there:8083/", 1_000)
    status = NodeStatus(node, 7, share=Share(tasks=frozenset({9})), tasks=THERE.tasks, records=10)
    shared = SharedFlow(1, {"m": node}, {"m": Share(is_owner=True, tasks=frozenset({2, 1}))}, {"m": ("topics",)})
    others = SharedFlow(2, {}, {})

    member = node_view(status, shared, heard_s=1.5, answers=True)
    gone = node_view(status, others, heard_s=1.5, answers=False)

    assert (member.worker_id, member.assigned, member.is_owner, member.differs) == (
        "there:8083",
        (1, 2),
        True,
        ("topics",),
    )
    assert (member.heard_ms, member.records, member.is_counted) == (1_500, 10, True)
    assert (gone.is_member, gone.assigned, gone.tasks, gone.records, gone.is_counted) == (False, (), (), 0, False)
