"""Metrics: what Prometheus reads of a view, as text and as JSON."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterable
from typing import Any

import attrs
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.state import FlowState, GroupView, MirrorView, PartitionStage, PartitionView, TaskState, TaskView
from mm2py.telemetry.events import (
    AuthenticationFailed,
    CheckpointsWritten,
    GroupSyncSkipped,
    PartitionStopped,
    SparkLogged,
    TaskRestarted,
    TopicSyncFailed,
)
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.metric_rows import METRICS, MetricType
from mm2py.telemetry.metrics import Metrics
from tests.support.clocks import ManualClock
from tests.support.rest_node import some_nodes
from tests.support.views import FLOW, WALL_MS, flow_view, mirror_view, partition_view


OPEN = "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;q=0.5"
COUNT = "kafka_connect_mirror_source_connector_record_count"
BYTES = "kafka_connect_mirror_source_connector_byte_count"
LATENCY = "kafka_connect_mirror_source_connector_replication_latency_ms"
LAG = "mm2py_partition_lag_records"
#: What it takes for a label to be misread.
HOSTILE = 'a"b\\c\nd{e="f"},# é €'

#: By name and labels.
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def metrics_of(events: EventLog | None = None, **caps: int) -> Metrics:
    return Metrics(events or EventLog(ManualClock()), **caps)


def series_in(text: bytes, *, is_open: bool = False) -> Series:
    """Parse *text* as Prometheus would; each series must be there once."""
    families = (open_families if is_open else plain_families)(text.decode())
    samples = [sample for family in families for sample in family.samples]
    found: Series = {(it.name, frozenset(it.labels.items())): it.value for it in samples}

    assert len(found) == len(samples)
    return found


def scraped(metrics: Metrics, view: MirrorView) -> Series:
    return series_in(metrics.exposition(view)[0])


def values_of(series: Series, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Return a metric's values by the values of some of its labels."""
    return {
        tuple(dict(pairs).get(label, "") for label in labels): value
        for (found, pairs), value in series.items()
        if found == name
    }


def partitions_of(topics: int, partitions: int) -> list[PartitionView]:
    """Make up partitions with different counts: in all topics the first has copied 1 record, the next one more."""
    views = [partition_view(f"t{topic}", number) for topic in range(topics) for number in range(partitions)]
    return [
        attrs.evolve(
            view, records=at + 1, bytes=(at + 1) * 10, record_rate=1.0, lag=at, position=at + 1, end_offset=2 * at + 1
        )
        for at, view in enumerate(views)
    ]


def some_events() -> EventLog:
    events = EventLog(ManualClock())
    events.emit(SparkLogged("hello"))
    events.emit(PartitionStopped(FLOW, TopicPartition("orders", 0), "failed", "it broke", "", None, 5.0))
    events.emit(AuthenticationFailed(FLOW, "B", "User:mm2", "no", ""))
    return events


def test_every_metric_of_the_documentation_is_exported_and_no_other() -> None:
    """A node with a flow that has of everything a little exports each row, and nothing else."""
    view = mirror_view(flow_view([partition_view("orders", 0, 10)], nodes=some_nodes()))
    text = metrics_of(some_events()).exposition(view)[0].decode()

    assert set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)) == set(METRICS)


def test_each_metric_has_the_labels_of_its_row() -> None:
    """No series has a label that its row does not name; only what is rolled up, or the daemon's own, lacks one."""
    view = mirror_view(flow_view([partition_view("orders", 0, 10)], nodes=some_nodes()))
    series = scraped(metrics_of(some_events()), view)

    for name, labels in series:
        row = METRICS.get(name) or METRICS[re.sub("_(bucket|count|sum)$", "", name)]
        found = {label for label, _ in labels} - ({"le"} if row.kind is MetricType.HISTOGRAM else set())
        assert found == set(row.labels) or (name == "mm2py_events_total" and found == {"event"})


def test_both_forms_say_the_same() -> None:
    """Prometheus's own text and OpenMetrics are read by strict parsers, and hold the same series and values."""
    metrics = metrics_of(some_events())
    view = mirror_view(flow_view([partition_view("orders", 0, 10), partition_view("orders", 1)]))
    plain, plain_type = metrics.exposition(view)
    opened, open_type = metrics.exposition(view, OPEN)
    ours = {key: repr(value) for key, value in series_in(plain).items()}

    assert plain_type.startswith("text/plain; version=0.0.4")
    assert open_type.startswith("application/openmetrics-text; version=1.0.0")
    assert opened.endswith(b"# EOF\n")
    assert {key: repr(value) for key, value in series_in(opened, is_open=True).items()} == ours


@pytest.mark.parametrize("is_open", [False, True])
def test_hostile_names_stay_what_they_are(is_open: bool) -> None:
    """Quotes, backslashes, line ends and braces in aliases, topics and groups come out as they went in."""
    flow = Flow(HOSTILE, "B")
    view = mirror_view(flow_view([partition_view(HOSTILE, 0, 10)], flow))
    text, _ = metrics_of().exposition(view, OPEN if is_open else "")
    found = values_of(series_in(text, is_open=is_open), COUNT, "source", "topic", "partition")

    assert found == {(HOSTILE, f"A.{HOSTILE}", "0"): 10}


def test_what_a_partition_shows() -> None:
    """Counts, lag and times of a partition are those of its view; of an idle one times are not a number."""
    view = mirror_view(flow_view([partition_view("orders", 0, 600), partition_view("orders", 1)]))
    series = scraped(metrics_of(), view)
    busy, idle = ({("A.orders", it, "B") for it in number} for number in ("0", "1"))

    assert values_of(series, COUNT, "topic", "partition", "destination") == {
        **dict.fromkeys(busy, 600.0),
        **dict.fromkeys(idle, 0.0),
    }
    for ending, value in (("", 7), ("_min", 2), ("_max", 30), ("_avg", 8.5)):
        shown = values_of(series, f"{LATENCY}{ending}", "partition")
        assert shown["0",] == value
        assert math.isnan(shown["1",])
    assert values_of(series, LAG, "partition") == {("0",): 5, ("1",): 5}
    assert values_of(series, "mm2py_partition_end_offset", "partition")["0",] - 5 == 600


def test_nodes_of_a_flow() -> None:
    """Of other nodes their tasks, rates and when they were heard of; a node that is alone owns its flow."""
    this, other = some_nodes()
    silent = attrs.evolve(other, answers=False, heard_ms=70_000)
    shared = scraped(metrics_of(), mirror_view(flow_view(nodes=(attrs.evolve(this, differs=("topics",)), other))))
    alone = scraped(metrics_of(), mirror_view(flow_view()))
    left = scraped(metrics_of(), mirror_view(flow_view(nodes=(this, silent))))
    waiting = scraped(metrics_of(), mirror_view(flow_view(state=FlowState.STANDBY)))

    assert values_of(shared, "mm2py_node_tasks", "node") == {("here:8083",): 1, ("there:8083",): 1}
    assert values_of(shared, "mm2py_node_bytes_per_second", "node") == {("here:8083",): 0, ("there:8083",): 2_000}
    assert values_of(left, "mm2py_node_bytes_per_second", "node") == {("here:8083",): 0}
    assert values_of(shared, "mm2py_node_last_heard_seconds", "node") == {("there:8083",): 1.2}
    assert values_of(shared, "mm2py_flow_differing_settings") == {(): 1}
    assert [values_of(it, "mm2py_flow_nodes") for it in (shared, alone, left)] == [{(): 2}, {(): 1}, {(): 1}]
    assert [values_of(it, "mm2py_flow_owner") for it in (shared, alone, left, waiting)] == [
        {(): 0},
        {(): 1},
        {(): 0},
        {},
    ]
    assert not values_of(alone, "mm2py_node_tasks")


def test_unknown_is_left_out() -> None:
    """What has no lag rule and is unknown has no series: seconds until loss without a retention bound."""
    unknown = partition_view("t", 0, lag=None, lag_s=None, seconds_until_loss=None, end_offset=None)
    series = scraped(metrics_of(), mirror_view(flow_view([unknown])))

    for name in ("retention_loss_seconds", "end_offset"):
        assert values_of(series, f"mm2py_partition_{name}", "topic") == {}


def test_counters_are_numbers() -> None:
    """No counter is ever negative or not a number, whatever is unknown, and each of them is there from the start."""
    view = mirror_view(flow_view([partition_view("t", 0)]), wall_ms=WALL_MS - 100_000)
    series = scraped(metrics_of(), view)
    counters = {name for name, row in METRICS.items() if row.kind is MetricType.COUNTER} | {COUNT, BYTES}
    found = {name for name, _ in series if name in counters}

    assert all(value >= 0 for (name, _), value in series.items() if name in counters)
    assert counters - found == {"mm2py_events_total"}


def test_a_histogram_adds_up() -> None:
    """Buckets count what is at most their bound, in seconds; the last one holds all."""
    series = scraped(metrics_of(), mirror_view(flow_view()))
    buckets = values_of(series, "mm2py_replication_latency_seconds_bucket", "le")

    assert [buckets["0.0005",], buckets["0.001",], buckets["86400.0",], buckets["+Inf",]] == [3, 4, 4, 5]
    assert values_of(series, "mm2py_replication_latency_seconds_count", "source") == {("A",): 5}
    assert values_of(series, "mm2py_replication_latency_seconds_sum", "source") == {("A",): 0.09}


# Caps.


def test_beyond_the_cap_topics_are_rolled_up() -> None:
    """Partitions beyond the cap share a series of their topic; a sum over all series is still all that was copied."""
    views = partitions_of(topics=3, partitions=4)
    series = scraped(metrics_of(partitions_max=6), mirror_view(flow_view(views)))
    counts = values_of(series, COUNT, "topic", "partition")

    assert [key for key in counts if key[1]] == [*(("A.t0", str(n)) for n in range(4)), ("A.t1", "0"), ("A.t1", "1")]
    assert {key: value for key, value in counts.items() if not key[1]} == {
        ("A.t1", ""): 7 + 8,
        ("A.t2", ""): 9 + 10 + 11 + 12,
    }
    assert sum(values_of(series, LAG, "topic", "partition").values()) == sum(it.lag or 0 for it in views)
    assert values_of(series, "mm2py_partitions_rolled_up") == {(): 6}


def test_beyond_both_caps_a_flow_is_rolled_up() -> None:
    """Topics beyond their cap share one series of the flow, which has neither topic nor partition."""
    series = scraped(
        metrics_of(partitions_max=0, topics_max=1), mirror_view(flow_view(partitions_of(topics=3, partitions=2)))
    )

    assert values_of(series, COUNT, "topic", "partition") == {("A.t0", ""): 1 + 2, ("", ""): 3 + 4 + 5 + 6}


def test_what_is_rolled_up_is_the_worst_of_times() -> None:
    """Of lags and last times the greatest counts, of the time until loss the least, and means by records."""
    slow = partition_view("t", 0, 60, lag_s=90.0, seconds_until_loss=30.0)
    quick = partition_view("t", 1, 180)
    stale = partition_view("t", 2, 10, latency=attrs.evolve(slow.latency, last_ms=99, min_ms=None, avg_ms=None))
    slow = attrs.evolve(slow, latency=attrs.evolve(slow.latency, max_ms=500, avg_ms=100.5))
    series = scraped(metrics_of(partitions_max=0), mirror_view(flow_view([slow, quick, stale])))
    shown = [values_of(series, f"{LATENCY}{ending}", "topic")["A.t",] for ending in ("", "_min", "_max", "_avg")]

    assert shown == [99, 2, 500, pytest.approx((100.5 + 3 * 8.5) / 4)]
    assert values_of(series, "mm2py_partition_lag_seconds", "topic") == {("A.t",): 90}
    assert values_of(series, "mm2py_partition_retention_loss_seconds", "topic") == {("A.t",): 30}


@pytest.mark.parametrize(
    ("partitions_max", "topics_max", "megabytes"),
    [(2_000, 1_000, 5.2), (0, 10_000, 3.2), (0, 1_000, 2.1), (0, 200, 0.4), (0, 0, 0.05)],
)
def test_limits_change_the_size_and_no_sum(partitions_max: int, topics_max: int, megabytes: float) -> None:
    """Of 3 000 partitions each choice adds up to the same, for named topics too; metrics of flows are the same."""
    view, whole = everything_of_3000_partitions()
    metrics = metrics_of(partitions_max=partitions_max, topics_max=topics_max)
    found = metrics.snapshot(view)["flows"]["A->B"]
    summed = [COUNT, BYTES, COUNT.replace("_count", "_rate"), LAG]

    assert megabytes * 0.8 < len(metrics.exposition(view)[0]) / 1e6 < megabytes
    for name in (*summed, "mm2py_partition_end_offset", "mm2py_partition_position"):
        totals, expected = totals_of(found[name]), totals_of(whole[name])
        assert sum(totals.values()) == sum(expected.values()) > 0
        assert {topic: total for topic, total in totals.items() if topic}.items() <= expected.items()
        assert len(totals) == (1_500 if partitions_max or topics_max > 1_500 else topics_max + 1)
    of_flows = [name for name in whole if whole[name]["type"] == "histogram" or name.startswith("mm2py_flow_")]
    assert len(of_flows) > 10
    assert all(found[name] == whole[name] for name in of_flows)


@functools.cache
def everything_of_3000_partitions() -> tuple[MirrorView, dict[str, Any]]:
    """Return a view, and the metrics of its flow without a limit."""
    view = mirror_view(flow_view(partitions_of(topics=1_500, partitions=2)))
    return view, metrics_of(partitions_max=10_000).snapshot(view)["flows"]["A->B"]


def totals_of(metric: dict[str, Any]) -> dict[str, float]:
    """Return a metric's sums by topic."""
    totals: dict[str, float] = {}
    for sample in metric["samples"]:
        topic = sample["labels"].get("topic", "")
        totals[topic] = totals.get(topic, 0) + sample["value"]
    return totals


def test_roll_ups_raise_no_false_alarm() -> None:
    """All paused is paused, one of many is not; what loses nothing soon does not look so beside what waits longer."""
    paused = [partition_view("p", number, stage=PartitionStage.PAUSED) for number in (0, 1)]
    mixed = [partition_view("m", 0), partition_view("m", 1, stage=PartitionStage.PAUSED)]
    brief = partition_view("short", 0, lag_s=10.0, seconds_until_loss=3_590.0)
    slow = partition_view("long", 0, lag_s=7_200.0, seconds_until_loss=600_000.0)
    view = mirror_view(flow_view([*paused, *mixed, brief, slow]))
    by_topic, by_flow = (scraped(metrics_of(partitions_max=0, topics_max=most), view) for most in (10, 0))
    stages = values_of(by_topic, "mm2py_partition_stage", "topic")

    assert (stages["A.p",], stages["A.m",]) == (PartitionStage.PAUSED.value, PartitionStage.COPYING.value)
    assert values_of(by_flow, "mm2py_partition_lag_seconds", "source") == {("A",): 7_200}
    assert values_of(by_flow, "mm2py_partition_retention_loss_seconds", "source") == {}


def test_who_came_first_keeps_its_series() -> None:
    """A partition that was rolled up stays so when others go, or its own series would begin with what was rolled up."""
    metrics = metrics_of(partitions_max=2)
    views = partitions_of(topics=2, partitions=2)
    before = scraped(metrics, mirror_view(flow_view(views)))
    after = scraped(metrics, mirror_view(flow_view(views[2:]), wall_ms=WALL_MS + 1_000))
    again = scraped(metrics, mirror_view(flow_view(views), wall_ms=WALL_MS + 2_000))

    assert values_of(before, COUNT, "topic", "partition") == {("A.t0", "0"): 1, ("A.t0", "1"): 2, ("A.t1", ""): 7}
    assert values_of(after, COUNT, "topic", "partition") == {("A.t1", ""): 7}
    assert values_of(again, COUNT, "topic", "partition") == values_of(before, COUNT, "topic", "partition")


def test_the_count_of_a_rolled_up_flow_never_goes_back() -> None:
    """Topics that are mirrored no more still count in what their flow has copied."""
    metrics = metrics_of(partitions_max=0, topics_max=0)
    views = partitions_of(topics=2, partitions=2)
    counts = [
        values_of(scraped(metrics, mirror_view(flow_view(shown), wall_ms=WALL_MS + at * 1_000)), COUNT, "source")["A",]
        for at, shown in enumerate((views, views[2:], (), views))
    ]

    assert counts == [10, 10, 10, 10]


def test_the_count_of_a_rolled_up_topic_never_goes_back() -> None:
    """Partitions that another node has taken still count in what their topic has copied here."""
    metrics = metrics_of(partitions_max=0)
    views = partitions_of(topics=1, partitions=4)
    counts = [
        values_of(scraped(metrics, mirror_view(flow_view(shown), wall_ms=WALL_MS + at * 1_000)), COUNT, "topic")
        for at, shown in enumerate((views, views[2:], (), views[:2]))
    ]

    assert counts == [{("A.t0",): 10}, {("A.t0",): 10}, {}, {("A.t0",): 10}]


def test_groups_beyond_the_cap_are_rolled_up() -> None:
    """Of groups, too, only so many have series of their own."""
    flow = flow_view()
    (group,) = flow.consumer_groups
    groups = tuple(attrs.evolve(group, group=f"g{n}") for n in range(4))
    series = scraped(
        metrics_of(partitions_max=1, topics_max=2), mirror_view(attrs.evolve(flow, consumer_groups=groups))
    )
    latency = "kafka_connect_mirror_checkpoint_connector_checkpoint_latency_ms"

    assert values_of(series, f"{latency}_max", "group") == {("g0",): 30, ("",): 30}
    assert values_of(series, "mm2py_consumer_group_distance_records", "group") == {("g0",): 10, ("g1",): 10, ("",): 20}


# Connectors, tasks, events.


@pytest.mark.parametrize(
    ("group", "task", "status"),
    [
        (FlowState.RUNNING, TaskState.RUNNING, "running"),
        (FlowState.RUNNING, TaskState.IDLE, "running"),
        (FlowState.RUNNING, TaskState.WAITING_FOR_SLOT, "unassigned"),
        (FlowState.RUNNING, TaskState.BACKING_OFF, "failed"),
        (FlowState.RUNNING, TaskState.LATE, "failed"),
        (FlowState.DRAINING, TaskState.RUNNING, "running"),
        (FlowState.STARTING, TaskState.IDLE, "unassigned"),
        (FlowState.RESTARTING, TaskState.RUNNING, "failed"),
        (FlowState.FAILED, TaskState.IDLE, "failed"),
        (FlowState.PAUSED, TaskState.IDLE, "paused"),
        (FlowState.STOPPED, TaskState.IDLE, "destroyed"),
        (FlowState.DRAINED, TaskState.IDLE, "destroyed"),
    ],
)
def test_states_of_tasks_in_connect_s_words(group: FlowState, task: TaskState, status: str) -> None:
    """A copy task is in the state that Connect and Mirus would give it, and is counted there and nowhere else."""
    flow = flow_view(groups=(GroupView("MirrorSourceConnector", group),), tasks=(TaskView(0, task, 1, 1),))
    series = scraped(metrics_of(), mirror_view(flow))
    counts = values_of(series, "mm2py_connector_tasks", "state")

    assert values_of(series, "kafka_connect_connector_status", "connector", "task", "status") == {
        ("MirrorSourceConnector", "0", status): 1
    }
    assert counts == {**dict.fromkeys(counts, 0), (status,): 1}
    assert values_of(series, f"kafka_connect_worker_connector_{status}_task_count") == {(): 1}
    assert values_of(series, "kafka_connect_worker_connector_total_task_count") == {(): 1}


def test_a_worker_s_connectors_have_their_own_names() -> None:
    """As in Connect, so that its dashboards tell connectors of one class apart; our own metrics have task groups."""
    group = GroupView("MirrorCheckpointConnector", FlowState.RUNNING, name="us-west")
    series = scraped(metrics_of(), mirror_view(flow_view(groups=(group,))))

    assert set(values_of(series, "kafka_connect_connector_status", "connector")) == {("us-west",)}
    assert set(values_of(series, "kafka_connect_worker_connector_total_task_count", "connector")) == {("us-west",)}
    assert set(values_of(series, "mm2py_connector_state", "connector")) == {("MirrorCheckpointConnector",)}


def test_tasks_have_their_own_numbers() -> None:
    """A node that shares a flow with others has only some of its tasks."""
    tasks = (TaskView(1, TaskState.RUNNING, 1, 1, 7.0, records=70, bytes=900), TaskView(3, TaskState.LATE, 1, 1))
    flow = flow_view(groups=(GroupView("MirrorSourceConnector", FlowState.RUNNING),), tasks=tasks)
    series = scraped(metrics_of(), mirror_view(flow))

    assert values_of(series, "kafka_connect_connector_status", "task", "status") == {
        ("1", "running"): 1,
        ("3", "failed"): 1,
    }
    for step in ("poll", "write"):
        name = f"kafka_connect_source_task_source_record_{step}"
        assert values_of(series, f"{name}_total", "connector", "task")["MirrorSourceConnector", "1"] == 70
        assert values_of(series, f"{name}_rate", "task") == {("1",): 7, ("3",): 0}
    assert values_of(series, "mm2py_task_records_total", "task") == {("1",): 70, ("3",): 0}
    assert values_of(series, "mm2py_task_bytes_total", "task")["1",] == 900


def test_events_are_counted_by_flow() -> None:
    """Each event counts for its flow, from before the metrics were made too; amounts and kinds are told apart."""
    events = some_events()
    metrics = metrics_of(events)
    events.emit(CheckpointsWritten(FLOW, 2, 7, 12.0))
    events.emit(CheckpointsWritten(Flow("B", "A"), 1, 100, 12.0))
    events.emit(GroupSyncSkipped(FLOW, "g", "active", "it has members", ""))
    events.emit(GroupSyncSkipped(FLOW, "g", "refused", "no", ""))
    events.emit(TopicSyncFailed(FLOW, "synchronise topic configs", ("t",), 3, "no", ""))
    for task in ("source/offset-syncs", "membership", "nodes"):
        events.emit(TaskRestarted(f"A->B/{task}", ("boom",), 1.0))
    series = scraped(metrics, mirror_view(flow_view()))

    assert values_of(series, "mm2py_partition_stops_total", "source") == {("A",): 1}
    assert values_of(series, "mm2py_authentication_errors_total", "cluster") == {("A",): 0, ("B",): 1}
    assert values_of(series, "mm2py_checkpoints_written_total", "source") == {("A",): 7}
    assert values_of(series, "mm2py_group_sync_errors_total", "source") == {("A",): 1}
    assert values_of(series, "mm2py_topic_sync_errors_total", "step")["synchronise topic configs",] == 1
    assert values_of(series, "mm2py_events_total", "event", "source") == {
        ("authentication_failed", "A"): 1,
        ("checkpoints_written", "A"): 1,
        ("checkpoints_written", "B"): 1,
        ("group_sync_skipped", "A"): 2,
        ("partition_stopped", "A"): 1,
        ("spark_logged", ""): 1,
        ("task_restarted", "A"): 3,
        ("topic_sync_failed", "A"): 1,
    }


# Once a second, and as JSON.


def test_within_a_second_the_same_is_given_again() -> None:
    """
    Two who scrape at the same time get the same; a second later it is created again, also after a clock went back.
    """
    metrics = metrics_of()
    views = [
        mirror_view(flow_view([partition_view("t", 0, count)]), wall_ms=wall_ms)
        for count, wall_ms in ((1, WALL_MS), (2, WALL_MS + 999), (3, WALL_MS + 1_000), (4, WALL_MS - 1))
    ]

    assert [values_of(scraped(metrics, view), COUNT, "topic")["A.t",] for view in views] == [1, 1, 3, 4]


def test_json_has_the_same_numbers() -> None:
    """A snapshot holds each series of the text, flow by flow, as JSON that any parser reads."""
    metrics = metrics_of(some_events())
    other = Flow("B", "C")
    view = mirror_view(flow_view([partition_view("orders", 0, 10), partition_view("orders", 1)]), flow_view((), other))
    series = scraped(metrics, view)
    snapshot = json.loads(json.dumps(metrics.snapshot(view), allow_nan=False))
    flow = snapshot["flows"]["A->B"]

    assert flow[COUNT] == {
        "type": "gauge",
        "samples": [
            {"labels": {"topic": "A.orders", "partition": "0"}, "value": 10},
            {"labels": {"topic": "A.orders", "partition": "1"}, "value": 0},
        ],
    }
    assert flow[f"{COUNT.removesuffix('count')}age_ms"]["samples"][1]["value"] is None
    assert flow["mm2py_replication_latency_seconds"]["samples"][0]["count"] == 5
    assert snapshot["node"]["mm2py_spark_slots"]["samples"] == [{"labels": {}, "value": 4}]
    assert _names(snapshot["node"], *snapshot["flows"].values()) == {
        re.sub("_(bucket|count|sum)$", "", name) if name not in METRICS else name for name, _ in series
    }


def _names(*groups: Iterable[str]) -> set[str]:
    return {name for group in groups for name in group}


def test_a_snapshot_of_one_flow_or_of_one_cluster() -> None:
    """A flow's snapshot has that flow alone, a cluster's those that read or write it; neither has the daemon's own."""
    metrics = metrics_of(some_events())
    view = mirror_view(*(flow_view((), flow) for flow in (FLOW, Flow("B", "C"), Flow("C", "D"))))
    of_flow, of_cluster = metrics.snapshot(view, flow=FLOW), metrics.snapshot(view, cluster="B")

    assert list(of_flow["flows"]) == ["A->B"]
    assert list(of_cluster["flows"]) == ["A->B", "B->C"]
    assert of_cluster["flows"]["A->B"] == of_flow["flows"]["A->B"] == metrics.snapshot(view)["flows"]["A->B"]
    assert "node" not in of_flow | of_cluster
