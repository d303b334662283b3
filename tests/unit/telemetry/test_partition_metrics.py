"""Which partitions and consumer groups have series of their own while they come and go."""

from __future__ import annotations

import math
import re

import attrs
import pytest

from mm2py.model.state import ClusterView
from mm2py.telemetry import series
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.metric_text import Family
from mm2py.telemetry.metrics import Metrics
from mm2py.telemetry.partition_metrics import PartitionMetrics, known_lag
from tests.support.clocks import ManualClock
from tests.support.views import flow_view, mirror_view, partition_view


def of(family: Family) -> list[dict[str, str]]:
    return [dict(it.pairs) for it in family.labels]


def test_what_is_gone_makes_room() -> None:
    """A node that has taken other partitions, or new topics and groups, in turn shows each of those that it has now."""
    metrics = PartitionMetrics(partitions_max=2, topics_max=1)
    (group,) = flow_view().consumer_groups
    for name in ("t0", "t1", "t2"):
        flow = flow_view([partition_view(name, number) for number in (0, 1)])
        flow = attrs.evolve(flow, consumer_groups=(attrs.evolve(group, group=name),))
        positions = of(metrics.families([flow])["mm2py_partition_position"])
        distances = of(metrics.group_families([flow])["mm2py_consumer_group_distance_records"])

        assert [(it["topic"], it.get("partition")) for it in positions] == [(f"A.{name}", "0"), (f"A.{name}", "1")]
        assert [it.get("group") for it in distances] == [name]


def test_what_was_counted_in_a_series_of_its_own_is_not_counted_in_a_roll_up() -> None:
    """A partition comes back when others have its place: its topic would seem to have copied all of it at once."""
    metrics = PartitionMetrics(partitions_max=1, topics_max=9)
    counts = []
    for numbers in ((0,), (1, 2), (0, 1, 2)):
        views = [attrs.evolve(partition_view("t", number), records=1_000, bytes=9_000) for number in numbers]
        family = metrics.families([flow_view(views)])["kafka_connect_mirror_source_connector_record_count"]
        counts.append({it.get("partition"): count for it, count in zip(of(family), family.values, strict=True)})

    assert counts == [{"0": 1_000}, {"1": 1_000, None: 1_000}, {"1": 1_000, None: 1_000}]


def test_what_was_counted_in_a_topic_s_series_is_not_counted_in_the_flow_s() -> None:
    """A topic comes back when others have its place: its flow would seem to have copied all of it at once."""
    metrics = PartitionMetrics(partitions_max=0, topics_max=1)
    counts = []
    for names, records in (("0", 1_000), ("12", 1_000), ("012", 1_000), ("01", 1_500)):
        views = [attrs.evolve(partition_view(f"t{name}", 0), records=records, bytes=9 * records) for name in names]
        family = metrics.families([flow_view(views)])["kafka_connect_mirror_source_connector_record_count"]
        counts.append({it.get("topic"): count for it, count in zip(of(family), family.values, strict=True)})

    assert counts == [
        {"A.t0": 1_000},
        {"A.t1": 1_000, None: 1_000},
        {"A.t1": 1_000, None: 1_000},
        {"A.t1": 1_500, None: 1_500},
    ]


def test_of_what_is_gone_the_newest_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Topics and groups come and go for weeks, under ever new names.

    All of them would stay in memory, and be added up again for each scrape. The roll-up still counts what they had.
    """
    monkeypatch.setattr(series, "_REMEMBERED", 8)
    metrics = PartitionMetrics(partitions_max=1, topics_max=1)
    (group,) = flow_view().consumer_groups
    counts = []
    for number in range(100):
        views = [attrs.evolve(partition_view(f"t{number}-{at}", 0), records=10, bytes=90) for at in range(3)]
        groups = tuple(attrs.evolve(group, group=f"g{number}-{at}") for at in range(3))
        family = metrics.families([flow_view(views)])["kafka_connect_mirror_source_connector_record_count"]
        metrics.group_families([attrs.evolve(flow_view(), consumer_groups=groups)])
        counts.append({it.get("topic"): count for it, count in zip(of(family), family.values, strict=True)}[None])
    caps = (metrics._partition_cap, metrics._topic_cap, metrics._offset_cap, metrics._group_cap)
    remembered = [len(metrics._had_own), len(metrics._counted_before), len(metrics._counted)]
    remembered += [len(places) for places in metrics._counted.values()] + [len(cap._others) for cap in caps]

    assert counts == [10 * (number + 1) for number in range(100)]
    assert max(remembered) <= 8 + 2 * 5


def test_a_roll_up_does_not_go_back_when_a_deleted_topic_is_there_again() -> None:
    """There was no scrape meanwhile. Its records are counted from 0 again, its former ones stay counted."""
    metrics = PartitionMetrics(partitions_max=0, topics_max=0)
    counts = []
    for records in (100, 120, 5, 7):
        views = [attrs.evolve(partition_view("t", 0), records=records, bytes=9 * records)]
        book = metrics.families([flow_view(views)])
        for name in ("record_count", "byte_count"):
            counts += book[f"kafka_connect_mirror_source_connector_{name}"].values

    assert counts == [100, 900, 120, 1080, 125, 1125, 127, 1143]


def test_a_cluster_that_is_not_asked_is_neither_reachable_nor_unreachable() -> None:
    """A flow that only emits heartbeats knows nothing of its source, which another flow may find unreachable."""
    clusters = (ClusterView("A", is_reachable=True, is_asked=False), ClusterView("B", is_reachable=True))
    text = Metrics(EventLog(ManualClock())).exposition(mirror_view(attrs.evolve(flow_view(), clusters=clusters)))[0]

    assert re.findall(rb'mm2py_cluster_reachable{[^}]*cluster="(.)"', text) == [b"B"]


def test_an_unknown_lag_is_not_a_number() -> None:
    """Not of a partition, nor of those with it in a roll-up: no alert holds, and no board takes it for 0."""
    stopped = partition_view("t", 0, lag=7, lag_is_least=True, lag_s=3.0, lag_s_is_least=True)
    flow = flow_view([stopped, partition_view("t", 1, lag=0, lag_s=0.0)])
    own, rolled_up = PartitionMetrics(partitions_max=9, topics_max=9), PartitionMetrics(partitions_max=0, topics_max=9)
    for name in ("mm2py_partition_lag_records", "mm2py_partition_lag_seconds"):
        one, other = own.families([flow])[name].values
        (together,) = rolled_up.families([flow])[name].values

        assert (math.isnan(one), other, math.isnan(together)) == (True, 0, True)
    assert math.isnan(known_lag(attrs.evolve(flow, lag=7, lag_is_least=True))[0])
