"""What the page is told."""

from __future__ import annotations

import json
import math

import attrs

from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.herder.overrides import Overrides, RateLimit, Wanted
from mm2py.model.state import (
    ClusterView,
    FlowState,
    FlowView,
    GroupOffsetsView,
    MirrorView,
    PartitionStage,
    PartitionView,
    SparkView,
    TaskState,
    TaskView,
)
from mm2py.policy.selection import GroupSelection
from mm2py.rest.page.history import History
from mm2py.rest.page.view import (
    PARTITION_COLUMNS,
    details,
    group_rows,
    ordered,
    overview,
    partition_changes,
    partition_rows,
)
from mm2py.telemetry.events import SparkEnded, SparkStarted


FLOW, OTHER = Flow("A", "B"), TopicPartition("orders", 4)
NODE = "10.0.0.1:8083"
STOPPED = PartitionView(
    TopicPartition("orders", 3),
    "A.orders",
    1,
    PartitionStage.STOPPED,
    position=10,
    downstream=9,
    lag=None,
    records=4,
    bytes=100,
    bytes_per_s=0.0,
    retry_in_s=12.4,
    failure=PartitionFailure("bad checksum", "look at the disk", "CorruptBatch"),
    seconds_until_loss=math.inf,
)


def test_rows_are_made_again_for_new_views_alone() -> None:
    """A partition whose view is the same object keeps its row; a new view that says the same is no change."""
    flow = FlowView(FLOW, FlowState.RUNNING, partitions=(STOPPED, attrs.evolve(STOPPED, source=OTHER)))
    before = partition_rows(flow)
    moved = attrs.evolve(STOPPED, source=OTHER, position=11)
    after = partition_rows(attrs.evolve(flow, partitions=(STOPPED, moved)), before)
    same = partition_rows(attrs.evolve(flow, partitions=(attrs.evolve(STOPPED), moved)), after)

    assert after[STOPPED.source] is before[STOPPED.source]
    assert partition_changes(before, after) == ([after[OTHER][1]], [])
    assert partition_changes(after, same) == ([], [])
    assert partition_changes(after, {}) == ([], ["orders-3", "orders-4"])


def test_a_partition_s_row_has_its_columns() -> None:
    """Each value stands where the column's name says, the failure with its hint and the next try."""
    _, values = partition_rows(FlowView(FLOW, FlowState.RUNNING, partitions=(STOPPED,)))[STOPPED.source]
    row = dict(zip(PARTITION_COLUMNS, values, strict=True))

    assert row["stage"] == "stopped"
    assert (row["message"], row["hint"], row["retry_in_s"]) == ("bad checksum", "look at the disk", 12)
    assert (row["lag"], row["seconds_until_loss"]) == (None, None)


def test_a_line_about_each_flow() -> None:
    """The page needs which cluster is away and why, and how partitions fare, without a list of them."""
    away = ClusterView("B", is_reachable=False, error="refused", hint="start it")
    partitions = (STOPPED, attrs.evolve(STOPPED, stage=PartitionStage.COPYING))
    flow = FlowView(FLOW, FlowState.RUNNING, clusters=(away,), partitions=partitions)

    (line,) = overview(MirrorView(0, is_ready=True, flows=(flow,)), History(), None, NODE)["flows"]

    assert line["stages"] == {"stopped": 1, "copying": 1}
    shown = {"alias": "B", "is_reachable": False, "error": "refused", "hint": "start it", "is_asked": True}
    assert line["clusters"] == [shown]
    assert json.loads(json.dumps(line, allow_nan=False)) == line


def test_the_node_is_named() -> None:
    """By its address, which may be that of many machines, by its host and by its id."""
    told = overview(MirrorView(0, is_ready=True, host="mirror-1", node_id="mirror-1-17-0"), History(), None, NODE)

    assert told["node"] == {"worker_id": NODE, "host": "mirror-1", "id": "mirror-1-17-0"}


def test_groups_of_workers_are_inner_ones() -> None:
    """The page folds away what is no consumer group, and what a filter or its kind leaves out stays in sight."""
    groups = tuple(GroupOffsetsView(why.name, why=why.value) for why in GroupSelection)

    rows = group_rows(FlowView(FLOW, FlowState.RUNNING, consumer_groups=groups))

    assert [name for name, row in rows.items() if row["is_inner"]] == [GroupSelection.OTHER_PROTOCOL.name]


def test_spark_in_words() -> None:
    """Where its own page is, while it is up; why it ended, when it did; nothing where none is needed."""
    up, down = SparkView(2, 1, 0, is_up=True), SparkView(2, 0, 0, is_up=False)
    started = SparkStarted("local[2]", 1.0, 1.0, "http://127.0.0.1:4040")

    def spark(slots: SparkView | None, said: SparkStarted | SparkEnded | None) -> object:
        told = overview(MirrorView(0, is_ready=True, spark=slots), History(), said, NODE)["spark"]
        return told and (told["ui"], told["reason"])

    assert spark(up, started) == ("http://127.0.0.1:4040", "")
    assert spark(down, SparkEnded("killed")) == ("", "killed")
    assert spark(None, None) is None


def test_a_flow_s_own_page() -> None:
    """Copy tasks with their state, and everything is JSON."""
    view = FlowView(FLOW, FlowState.RUNNING, tasks=(TaskView(0, TaskState.WAITING_FOR_SLOT, 7, 3),))

    told = details(view)

    assert (told["tasks"][0]["state"], told["tasks"][0]["epoch"]) == ("waiting_for_slot", 7)
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_what_operators_asked_for() -> None:
    """Pauses and limits are told; of settings only the names, as a value may be secret."""
    overrides = Overrides(
        groups={"MirrorSourceConnector": Wanted.PAUSED},
        topics=frozenset({"b", "a"}),
        partitions=frozenset({TopicPartition("c", 1)}),
        limit=RateLimit(bytes_per_s=5.0),
        config={"MirrorSourceConnector": {"source.sasl.jaas.config": "secret"}},
    )

    told = ordered(overrides)

    assert told["connectors"] == {"MirrorSourceConnector": "paused"}
    assert (told["topics"], told["partitions"]) == (["a", "b"], [["c", 1]])
    assert told["limit"] == {"bytes_per_s": 5.0, "records_per_s": None}
    assert told["settings"] == {"MirrorSourceConnector": ["source.sasl.jaas.config"]}
