"""Views of flows, made up: for metrics, REST and whatever else shows them."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from mm2py.model.epoch import HISTOGRAM_BOUNDS_MS, Histogram
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.state import (
    ClusterView,
    CopiedHeartbeatsView,
    FlowState,
    FlowView,
    GroupOffsetsView,
    GroupOffsetView,
    GroupView,
    HeartbeatsView,
    MirrorView,
    PartitionStage,
    PartitionView,
    SparkView,
    StepView,
    TaskState,
    TaskView,
    TimesView,
)


WALL_MS = 1_700_000_000_000
FLOW = Flow("A", "B")
TIMES = TimesView(7, 2, 30, 8.5)


def partition_view(topic: str, partition: int, records: int = 0, **changes: object) -> PartitionView:
    """Make up a partition of a topic that has *records* copied, 10 bytes each, and 5 to go."""
    view = PartitionView(
        source=TopicPartition(topic, partition),
        remote_topic=f"A.{topic}",
        task=0,
        stage=PartitionStage.COPYING,
        position=records,
        downstream=records - 1,
        lag=5,
        records=records,
        bytes=records * 10,
        bytes_per_s=0.0,
        end_offset=records + 5,
        record_rate=records / 60,
        byte_rate=records / 6,
        age=TIMES if records else None,
        latency=TIMES if records else None,
        lag_s=2.5,
        seconds_until_loss=3_600.0,
    )
    return attrs.evolve(view, **changes)


def flow_view(partitions: Iterable[PartitionView] = (), flow: Flow = FLOW, **changes: object) -> FlowView:
    """Make up a flow that runs and has of everything a little."""
    shown = tuple(partitions)
    group = GroupOffsetView(
        TopicPartition("orders", 0), TopicPartition("A.orders", 0), 100, 90, 10, is_exact=True, latency=TIMES
    )
    view = FlowView(
        flow=flow,
        state=FlowState.RUNNING,
        topics=len({it.source.topic for it in shown}),
        partitions=shown,
        tasks=(TaskView(0, TaskState.RUNNING, 7, len(shown), cpu_s=1.5, rss_bytes=4_096, throttled_ms=250),),
        clusters=(ClusterView(flow.source, is_reachable=True), ClusterView(flow.target, is_reachable=False)),
        records=sum(it.records for it in shown),
        bytes=sum(it.bytes for it in shown),
        lag=sum(it.lag or 0 for it in shown),
        lag_s=2.5,
        seconds_until_loss=3_600.0,
        seconds_until_level=90.0,
        groups=tuple(
            GroupView(name, FlowState.RUNNING)
            for name in ("MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector")
        ),
        heartbeats=HeartbeatsView(12, WALL_MS - 1_500),
        copied_heartbeats=(CopiedHeartbeatsView("A.heartbeats", WALL_MS - 2_500),),
        consumer_groups=(GroupOffsetsView("readers", (group,), at_target="idle"),),
        latency=Histogram(
            counts=(3, 1, *([0] * (len(HISTOGRAM_BOUNDS_MS) - 2)), 1), total_ms=90.0, min_ms=0.1, max_ms=80.0
        ),
        age=Histogram(),
        steps=(StepView("write positions", WALL_MS - 4_000, 2), StepView("refresh topics", None, 1)),
    )
    return attrs.evolve(view, **changes)


def mirror_view(*flows: FlowView, wall_ms: int = WALL_MS) -> MirrorView:
    """Make up a node."""
    spark = SparkView(slots=4, used=1, waiting=0, is_up=True)
    return MirrorView(wall_ms, is_ready=True, flows=flows, spark=spark, started_ms=WALL_MS - 60_000)
