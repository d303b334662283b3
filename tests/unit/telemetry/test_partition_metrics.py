"""Which partitions and consumer groups have series of their own while they come and go."""

from __future__ import annotations

import attrs

from mm2py.telemetry.metric_text import Family
from mm2py.telemetry.partition_metrics import PartitionMetrics
from tests.support.views import flow_view, partition_view


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
