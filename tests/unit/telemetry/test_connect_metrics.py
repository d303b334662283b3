"""Metrics under the names of Connect's worker: what dashboards for it add up is true, or not a number."""

from __future__ import annotations

import math

import attrs
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from mm2py.model.connector_offset import CHECKPOINT, HEARTBEAT, SOURCE
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.state import FlowState, FlowView, PartitionView, TaskState, TaskView
from mm2py.telemetry.events import RecordLeftOut
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.metrics import Metrics
from tests.support.clocks import ManualClock
from tests.support.rest_node import some_nodes
from tests.support.views import FLOW, flow_view, mirror_view, partition_view


ACTIVE = "source_task_source_record_active_count"


def flow(*partitions: PartitionView) -> FlowView:
    tasks = tuple(TaskView(number, TaskState.RUNNING, 1, 1, retries=number) for number in range(2))
    return flow_view(partitions, tasks=tasks)


def samples_of(view: FlowView, name: str, events: EventLog | None = None) -> list[Sample]:
    text, _ = Metrics(events or EventLog(ManualClock())).exposition(mirror_view(view))
    families = text_string_to_metric_families(text.decode())
    return [it for family in families for it in family.samples if it.name == f"kafka_connect_{name}"]


def by_task(view: FlowView, name: str, events: EventLog | None = None) -> dict[str, float]:
    return {it.labels["task"]: it.value for it in samples_of(view, name, events)}


def test_what_is_on_its_way_is_what_the_target_lacks() -> None:
    """Of each task's partitions, also of one that no task has; a task that has copied all has nothing on its way."""
    behind = flow(
        partition_view("a", 0, lag=3, task=1), partition_view("a", 1, lag=4, task=1), partition_view("b", 0, task=None)
    )
    level = flow(partition_view("a", 0, lag=0), partition_view("a", 1, lag=0, task=1))

    assert by_task(behind, ACTIVE) == {"0": 5, "1": 7}
    assert by_task(level, ACTIVE) == {"0": 0, "1": 0}


def test_unknown_is_not_nothing() -> None:
    """A partition whose end is unknown makes its task's figure unknown, and a dashboard's sum with it."""
    unsure = by_task(flow(partition_view("a", 0, lag=None), partition_view("a", 1, lag=4, task=1)), ACTIVE)

    assert math.isnan(unsure["0"])
    assert unsure["1"] == 4


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (FlowState.STARTING, "unassigned"),
        (FlowState.RESTARTING, "failed"),
        (FlowState.FAILED, "failed"),
        (FlowState.PAUSED, "paused"),
    ],
)
def test_a_source_connector_that_never_came_up_is_not_healthy(state: FlowState, shown: str) -> None:
    """It has no copy task yet, but counts as one that does not run, and nothing is known of what is on its way."""
    view = flow()
    groups = tuple(attrs.evolve(it, state=state) if it.connector == SOURCE else it for it in view.groups)
    down = attrs.evolve(view, tasks=(), groups=groups, state=state)
    status = {it.labels["connector"]: it.labels["status"] for it in samples_of(down, "connector_task_status")}

    assert status == {SOURCE: shown, CHECKPOINT: "running", HEARTBEAT: "running"}
    assert [math.isnan(value) for value in by_task(down, ACTIVE).values()] == [True]


def test_records_that_were_left_out_count_with_the_task_of_their_partition() -> None:
    events = EventLog(ManualClock())
    for offset in range(3):
        events.emit(RecordLeftOut(FLOW, TopicPartition("a", 1), offset, "t", "it is none", ""))
    view = flow(partition_view("a", 0), partition_view("a", 1, task=1))

    for name in ("total_record_failures", "total_records_skipped"):
        assert by_task(view, f"task_error_{name}", events) == {"0": 0, "1": 3}
    assert by_task(view, "task_error_total_retries") == {"0": 0, "1": 1}


def test_connectors_are_assigned_to_the_owner_of_a_flow() -> None:
    """A node that shares it has its copy tasks alone, so that sums over nodes count each connector once."""
    alone = flow()
    standing_by = tuple(
        it if it.connector == SOURCE else attrs.evolve(it, state=FlowState.STANDBY) for it in alone.groups
    )
    sharing = attrs.evolve(alone, nodes=some_nodes(), groups=standing_by)
    found = [
        [sample.value for what in ("connectors", "tasks") for sample in samples_of(it, f"coordinator_assigned_{what}")]
        for it in (alone, sharing)
    ]

    assert found == [[3, 4], [0, 2]]


def test_further_source_connectors_of_a_pair_have_series_of_their_own() -> None:
    """Their name is a label of its own, and no two lines of the text are of one series."""
    metrics, further = Metrics(EventLog(ManualClock())), Flow("A", "B", "clicks")
    view = mirror_view(*(flow_view([partition_view("orders", 0, 10)], flow) for flow in (FLOW, further)))
    lines = metrics.exposition(view)[0].decode().splitlines()
    named = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    snapshot = metrics.snapshot(view)["flows"]

    assert len(named) == len(set(named))
    assert 'mm2py_flow_state{source="A",target="B",source_connector="clicks"}' in named
    assert list(snapshot) == ["A->B", "A->B (clicks)"]
    assert snapshot["A->B (clicks)"]["mm2py_flow_state"]["samples"] == snapshot["A->B"]["mm2py_flow_state"]["samples"]
