"""Views as REST shows them: Connect's states and a topic's sum."""

from __future__ import annotations

import attrs
import pytest

from mm2py.core.herder.overrides import SOURCE
from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.overrides import NO_OVERRIDES, Overrides, RateLimit, Wanted
from mm2py.model.state import FlowState, FlowView, GroupView, PartitionStage, TaskState, TaskView
from mm2py.model.topic import MissingTopic
from mm2py.rest import connect
from mm2py.rest.shapes import flow_status, overrides_json, partitions_of, topics_of
from tests.support.rest_node import FLOW, some_nodes, some_view


def _flow(**changes: object) -> FlowView:
    return attrs.evolve(some_view().flows[0], **changes)  # type: ignore[arg-type]


def _group(state: FlowState, error: str = "", hint: str = "") -> GroupView:
    return GroupView(SOURCE, state, error, hint)


@pytest.mark.parametrize(
    ("state", "shown", "tasks"),
    [
        (FlowState.STARTING, "UNASSIGNED", ["UNASSIGNED", "UNASSIGNED"]),
        (FlowState.RUNNING, "RUNNING", ["RUNNING", "UNASSIGNED"]),
        (FlowState.DRAINING, "RUNNING", ["RUNNING", "RUNNING"]),
        (FlowState.RESTARTING, "RESTARTING", ["RESTARTING", "RESTARTING"]),
        (FlowState.FAILED, "FAILED", ["FAILED", "FAILED"]),
        (FlowState.PAUSED, "PAUSED", ["PAUSED", "PAUSED"]),
        (FlowState.STOPPED, "STOPPED", []),
        (FlowState.DRAINED, "STOPPED", []),
    ],
    ids=lambda value: value.name if isinstance(value, FlowState) else "",
)
def test_states_are_connect_s(state: FlowState, shown: str, tasks: list[str]) -> None:
    """Each of our states has one of Connect's; a copy task waits for a slot as Connect's for a worker."""
    found = connect.state_info(_flow(), _group(state), "h:1")

    assert found["connector"]["state"] == shown
    assert [task["state"] for task in found["tasks"]] == tasks


def test_a_trace_says_what_is_wrong() -> None:
    """A group that failed has its error and hint as trace, a task those of partitions that need an operator."""
    fallen = connect.state_info(_flow(), _group(FlowState.RESTARTING, "it broke", "mend it"), "h:1")
    running = connect.state_info(_flow(), _group(FlowState.RUNNING), "h:1")

    assert fallen["connector"]["trace"] == "it broke\nmend it"
    assert "trace" not in running["connector"]
    assert "trace" not in running["tasks"][0]
    assert "invoices-0: a record is too large\nraise max.message.bytes" in running["tasks"][1]["trace"]


@pytest.mark.parametrize(
    ("state", "include_tasks", "only_failed", "states"),
    [
        (FlowState.RUNNING, False, False, ["RESTARTING", "RUNNING", "UNASSIGNED"]),
        (FlowState.RUNNING, True, False, ["RESTARTING", "RESTARTING", "RESTARTING"]),
        (FlowState.RUNNING, True, True, ["RUNNING", "RUNNING", "UNASSIGNED"]),
        (FlowState.RUNNING, False, True, ["RUNNING", "RUNNING", "UNASSIGNED"]),
        (FlowState.FAILED, True, True, ["RESTARTING", "RESTARTING", "RESTARTING"]),
    ],
)
def test_what_is_restarted_is_said(state: FlowState, include_tasks: bool, only_failed: bool, states: list[str]) -> None:
    """Tools count in the answer what was restarted: of what runs, nothing where only failed ones should be."""
    found = connect.state_info(_flow(), _group(state), "h:1")

    connect.mark_restarted(found, include_tasks=include_tasks, only_failed=only_failed)

    assert [found["connector"]["state"], *(task["state"] for task in found["tasks"])] == states


def test_a_deleted_connector_is_not_listed() -> None:
    """What was deleted is gone until its config is put."""
    overrides = Overrides(groups={SOURCE: Wanted.DELETED})

    assert SOURCE in {group.connector for group in connect.connectors(_flow(), NO_OVERRIDES)}
    assert SOURCE not in {group.connector for group in connect.connectors(_flow(), overrides)}


@pytest.mark.parametrize(
    "name",
    ["MirrorSourceConnector", "MirrorSource", "org.apache.kafka.connect.mirror.MirrorSourceConnector"],
)
def test_names_of_a_connector(name: str) -> None:
    """Connect takes a class with and without its package and last word."""
    assert connect.short_name(name) == "MirrorSourceConnector"


def test_a_topic_is_what_its_partitions_add_up_to() -> None:
    """Lag and records are sums, of waits the longest counts, of stages the one that needs most care."""
    overrides = Overrides(topics=frozenset({"orders"}), topic_limits={"orders": RateLimit(bytes_per_s=10.0)})

    invoices, of_orders = topics_of(_flow(), overrides)

    assert (of_orders["lag"], of_orders["lag_s"], of_orders["records"]) == (1, 1.0, 200)
    assert of_orders["latency_ms"] == 4.0
    assert of_orders["is_paused"]
    assert of_orders["limit"] == {"bytes_per_s": 10.0, "records_per_s": None}
    assert (invoices["stage"], invoices["last_error"], invoices["retry_in_s"]) == (
        "stopped",
        "a record is too large",
        12.5,
    )
    assert invoices["lag_s"] is None


def test_a_topic_of_which_one_partition_rests_is_not_a_paused_one() -> None:
    """How many partitions fare how is counted, so that a topic of a hundred does not look paused for one of them."""
    flow = _flow()
    [first, *others] = [one for one in flow.partitions if one.source.topic == "orders"]
    paused = attrs.evolve(first, stage=PartitionStage.PAUSED)

    [overrides] = topics_of(attrs.evolve(flow, partitions=(paused, *others)), NO_OVERRIDES)

    assert overrides["stages"] == {"paused": 1, "copying": 1}
    assert overrides["is_paused"] is False


def test_what_the_target_lacks_is_listed_with_its_reason() -> None:
    """Nothing is copied of it, and it has no figures; of another topic only the last partitions are missing."""
    why = PartitionFailure("replication.factor 2 > 1 broker", "lower it", "INVALID_REPLICATION_FACTOR")
    lacking = (MissingTopic("new", "A.new", 0, 2, why), MissingTopic("orders", "A.orders", 7, 1, why))
    flow = _flow(missing_topics=lacking)
    topics = {one["topic"]: one for one in topics_of(flow, NO_OVERRIDES)}
    new, orders = topics["new"], topics["orders"]

    assert (new["stage"], new["stages"], new["partitions"], new["lag"]) == ("missing", {"missing": 2}, 2, None)
    assert (new["last_error"], new["hint"]) == ("replication.factor 2 > 1 broker", "lower it")
    assert (orders["stage"], orders["stages"]["missing"]) == ("copying", 1)
    assert [one["stage"] for one in partitions_of(flow, "new", NO_OVERRIDES, {})] == ["missing", "missing"]
    assert "missing_topics" not in flow_status(flow, 0)


def test_a_flow_s_status_does_not_grow_with_its_topics() -> None:
    """It counts partitions by stage; the partitions themselves have addresses of their own."""
    found = flow_status(_flow(), 0)

    assert found["partitions"] == 3
    assert found["stages"] == {stage.name.lower(): 0 for stage in PartitionStage} | {"copying": 2, "stopped": 1}
    assert "consumer_groups" not in found


def test_paused_partitions_are_named_by_their_parts() -> None:
    flow = attrs.evolve(some_view().flows[0], paused_partitions=(TopicPartition("orders", 1),))

    assert list(flow_status(flow, 0)["paused_partitions"]) == [{"topic": "orders", "partition": 1}]


def test_overrides_are_plain_values() -> None:
    """All that was ordered can be written as JSON."""
    overrides = Overrides(
        groups={SOURCE: Wanted.PAUSED},
        partitions=frozenset({TopicPartition("b", 1), TopicPartition("a", 0)}),
        config={SOURCE: {"topics": "x"}},
    )

    found = overrides_json(FLOW, overrides)

    assert found["connectors"] == {SOURCE: "paused"}
    assert found["partitions"] == [{"topic": "a", "partition": 0}, {"topic": "b", "partition": 1}]
    assert found["config"] == {SOURCE: {"topics": "x"}}


def test_nodes_with_one_address_are_told_apart() -> None:
    """Each node names itself as the others do, so that Connect's tools see as many workers as there are."""
    here, there = (
        attrs.evolve(node, worker_id=f"localhost:8080 on {node.host}", rest="localhost:8080") for node in some_nodes()
    )
    tasks = (TaskView(0, TaskState.RUNNING, 1, 1), TaskView(1, TaskState.RUNNING, 1, 1, node=there.worker_id))
    shared = attrs.evolve(_flow(), tasks=tasks, nodes=(here, there))

    found = connect.state_info(shared, _group(FlowState.RUNNING), "localhost:8080")

    assert [task["worker_id"] for task in found["tasks"]] == ["localhost:8080 on here", "localhost:8080 on there"]
