"""A flow's control plane on real clusters: topics, positions, clusters that are away. Epochs run in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position, decode_position, position_key
from mm2py.model.state import FlowState, PartitionStage
from mm2py.telemetry.events import (
    ClusterRecovered,
    ClusterUnreachable,
    FlowDrained,
    FlowStarted,
    NoTopicsMatched,
    PartitionsGrown,
    PartitionStopped,
    PositionsRead,
    ResumedExactly,
    StepFailed,
    TopicCreated,
    TopicRemoved,
)
from tests.support.brokers import MakeCluster
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, flow_settings, running_flow
from tests.support.groups import commit_plainly
from tests.support.producing import produce_numbers, producer
from tests.support.reading import read_numbers, read_topic
from tests.support.records import assert_numbers
from tests.support.topics import create_topic, delete_topic, end_offsets, grow_topic, list_topics


async def mirrored(flow: RunningFlow, records: int) -> None:
    """Wait until the flow has mirrored so many records."""
    await eventually(lambda: flow.runner.view().records >= records, within_s=30, what=f"{records} records are mirrored")


async def said(flow: RunningFlow, kind: type, what: Callable[..., bool] = bool) -> None:
    """Wait until the flow said something."""
    await eventually(lambda: any(map(what, flow.events.of(kind))), within_s=30, what=f"{kind.__name__} is told")


async def stored(cluster: KafkaCluster, topic: str) -> dict[TopicPartition, Position]:
    """Read the positions of A from the offsets topic, with their headers."""
    positions = {}
    for records in (await read_topic(cluster.bootstrap_servers, topic)).values():
        for record in records:
            decoded = decode_position(record.key, record.value, record.headers)
            if decoded is not None and isinstance(decoded[1], Position):
                positions[decoded[1].source] = decoded[1]
    return positions


async def test_topics_come_grow_and_go(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """New topics and partitions are picked up within the refresh interval; a deleted one leaves its remote topic."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, f"{prefix}-a", partitions=2)
    settings = flow_settings(source, target, **{"A->B.topics": f"{prefix}.*", "tasks.max": 2})
    async with running_flow(settings, tmp_path) as flow:
        await said(flow, FlowStarted)
        await create_topic(source, f"{prefix}-b", partitions=1)
        await produce_numbers(source, f"{prefix}-b", count=100, partitions=1)
        await mirrored(flow, 100)
        await grow_topic(source, f"{prefix}-b", 3)
        await said(flow, PartitionsGrown)
        await produce_numbers(source, f"{prefix}-b", count=300, partitions=3)
        await mirrored(flow, 400)
        await delete_topic(source, f"{prefix}-a")
        await said(flow, TopicRemoved)
        await flow.drain()

    remote = await list_topics(target)
    assert {event.remote_topic: event.partitions for event in flow.events.of(TopicCreated)} == {
        f"A.{prefix}-a": 2,
        f"A.{prefix}-b": 1,
    }
    assert [(event.before, event.after) for event in flow.events.of(PartitionsGrown)] == [(1, 3)]
    assert {f"A.{prefix}-a", f"A.{prefix}-b"} <= remote
    assert {partition: len(seen) for partition, seen in (await read_numbers(target, f"A.{prefix}-b")).items()} == {
        0: 200,
        1: 100,
        2: 100,
    }


async def test_positions_begin_before_the_first_record(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """The start is written before the first epoch, so that a crash right after it is resumed exactly."""
    source, target, offsets = primary.bootstrap_servers, backup.bootstrap_servers, f"{prefix}-offsets"
    await create_topic(source, prefix, partitions=2)
    await produce_numbers(source, prefix, count=20_000, partitions=2)
    settings = flow_settings(
        source, target, **{"A->B.topics": prefix, "tasks.max": 1, "B.offset.storage.topic": offsets}
    )
    async with running_flow(settings, tmp_path) as first:
        await mirrored(first, 20_000)
        at_crash = await stored(backup, offsets)
        await first.crash()
    await produce_numbers(source, prefix, count=10, partitions=2)
    async with running_flow(settings, tmp_path) as second:
        await mirrored(second, 10)
        await second.drain()

    at_end = await stored(backup, offsets)
    assert {(it.next_upstream, it.downstream) for it in at_crash.values()} == {(0, -1)}
    assert {(it.next_upstream, it.downstream) for it in at_end.values()} == {(10_005, 10_004)}
    assert all(position.topic_id for position in at_end.values())
    assert [event.records for event in second.events.of(ResumedExactly)] == [10_000, 10_000]
    assert [(event.found, event.fresh) for event in second.events.of(PositionsRead)] == [(2, 0)]
    assert await end_offsets(target, f"A.{prefix}") == {0: 10_005, 1: 10_005}
    assert second.events.of(FlowDrained)[0].positions_written


async def test_partitions_start_where_another_mirror_s_group_stands(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    Without a position, a partition starts at the group's offset, or at its beginning where the group has none.

    Later lives go on from positions; where an operator removed one, the partition is copied whole, group or not.
    """
    source, target, offsets = primary.bootstrap_servers, backup.bootstrap_servers, f"{prefix}-offsets"
    await create_topic(source, prefix, partitions=2)
    await produce_numbers(source, prefix, count=200, partitions=2)
    await commit_plainly(source, f"{prefix}-group", {TopicPartition(prefix, 0): 60})
    settings = flow_settings(
        source,
        target,
        **{"A->B.topics": prefix, "A->B.copy.start.group": f"{prefix}-group", "B.offset.storage.topic": offsets},
    )
    async with running_flow(settings, tmp_path) as first:
        await mirrored(first, 140)
        await first.drain()
    began = await end_offsets(target, f"A.{prefix}")
    async with producer(target) as connected:
        await connected.send_and_wait(offsets, value=None, key=position_key("A", TopicPartition(prefix, 0)))
    async with running_flow(settings, tmp_path) as second:
        await mirrored(second, 100)
        await second.drain()

    assert began == {0: 40, 1: 100}
    assert await end_offsets(target, f"A.{prefix}") == {0: 140, 1: 100}
    assert [(event.found, event.fresh) for event in second.events.of(PositionsRead)] == [(1, 1)]


async def test_latest_leaves_what_was_there(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """With auto.offset.reset=latest only what comes after the start is mirrored."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix)
    await produce_numbers(source, prefix, count=50, partitions=1)
    settings = flow_settings(source, target, **{"A->B.topics": prefix, "A.consumer.auto.offset.reset": "latest"})
    async with running_flow(settings, tmp_path) as flow:
        await said(flow, FlowStarted)
        await produce_numbers(source, prefix, count=30, partitions=1)
        await mirrored(flow, 30)
        await flow.drain()

    assert_numbers(await read_numbers(target, f"A.{prefix}"), 30)


async def test_a_recreated_source_topic_stops_visibly(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A topic that was deleted and created again is not taken for the old one; another topic goes on."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    for topic in (f"{prefix}-a", f"{prefix}-b"):
        await create_topic(source, topic)
        await produce_numbers(source, topic, count=100, partitions=1)
    settings = flow_settings(source, target, **{"A->B.topics": f"{prefix}.*"})
    async with running_flow(settings, tmp_path) as first:
        await mirrored(first, 200)
        await first.drain()
    await delete_topic(source, f"{prefix}-a")
    await create_topic(source, f"{prefix}-a")
    for topic in (f"{prefix}-a", f"{prefix}-b"):
        await produce_numbers(source, topic, count=150, partitions=1)
    async with running_flow(settings, tmp_path) as second:
        await mirrored(second, 150)
        stopped, fine = second.runner.view().partitions
        await second.drain()

    assert (stopped.stage, fine.stage) == (PartitionStage.STOPPED, PartitionStage.COPYING)
    assert stopped.failure is not None
    assert "created again" in stopped.failure.message
    assert [event.source.topic for event in second.events.of(PartitionStopped)] == [f"{prefix}-a"]
    assert await end_offsets(target, f"A.{prefix}-a") == {0: 100}


async def test_a_source_topic_recreated_between_two_looks_stops_visibly(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A topic deleted and created again, and filled past the old position, is not mixed into the old remote topic."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix)
    await produce_numbers(source, prefix, count=100, partitions=1)
    settings = flow_settings(
        source, target, **{"A->B.topics": prefix, "copy.epoch.ms": 1000, "refresh.topics.interval.seconds": 600}
    )
    async with running_flow(settings, tmp_path) as flow:
        await mirrored(flow, 100)
        await delete_topic(source, prefix)
        await create_topic(source, prefix)
        await produce_numbers(source, prefix, count=5_000, partitions=1)
        await said(flow, PartitionStopped, lambda event: "created again" in event.message)
        await flow.drain()

    assert await end_offsets(target, f"A.{prefix}") == {0: 100}


async def test_a_cluster_that_comes_late(primary: KafkaCluster, make_cluster: MakeCluster, tmp_path: Path) -> None:
    """A flow whose target is away says so once, keeps trying, says once that it is back, and then runs."""
    late = make_cluster("late")
    late.kill(0)
    settings = flow_settings(primary.bootstrap_servers, late.bootstrap_servers, **{"A->B.topics": "none-such"})
    async with running_flow(settings, tmp_path) as flow:
        await said(flow, ClusterUnreachable)
        await asyncio.sleep(3)
        before = flow.runner.view()
        await asyncio.to_thread(late.start, 0)
        await said(flow, FlowStarted)
        await flow.drain()

    assert before.state is FlowState.STARTING
    assert [(cluster.alias, cluster.is_reachable) for cluster in before.clusters] == [("A", True), ("B", False)]
    assert [event.cluster for event in flow.events.of(ClusterUnreachable)] == ["B"]
    assert [event.cluster for event in flow.events.of(ClusterRecovered)] == ["B"]
    assert flow.runner.view().state is FlowState.DRAINED


async def test_too_many_replicas_are_told(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Remote topics that the target cannot create are told once, and the flow goes on."""
    await create_topic(primary.bootstrap_servers, prefix)
    settings = flow_settings(
        primary.bootstrap_servers, backup.bootstrap_servers, **{"A->B.topics": prefix, "replication.factor": 3}
    )
    async with running_flow(settings, tmp_path) as flow:
        await said(flow, FlowStarted)
        await asyncio.sleep(2.5)
        await flow.drain()

    (refusal,) = flow.events.of(StepFailed)
    assert refusal.step == "create remote topics"
    assert refusal.error.startswith(f"cannot create topic A.{prefix}: replication.factor is 3, cluster B has 1 broker")
    assert refusal.hint == "lower the setting, or add brokers"


async def test_a_flow_that_matches_nothing_says_so_once(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A misspelt name is told with what it may have been meant to be; once there is a topic, it is over."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, f"{prefix}-orders")
    settings = flow_settings(source, target, **{"A->B.topics": f"{prefix}-order"})
    async with running_flow(settings, tmp_path) as flow:
        await said(flow, NoTopicsMatched)
        await create_topic(source, f"{prefix}-order")
        await said(flow, TopicCreated)
        await flow.drain()

    (told,) = flow.events.of(NoTopicsMatched)
    assert f"{prefix}-orders" in told.hint


async def test_a_drain_before_the_start_ends_at_once(tmp_path: Path) -> None:
    """A flow that has not reached its clusters yet ends when it is told to."""
    settings = flow_settings("127.0.0.1:1", "127.0.0.1:2")
    async with running_flow(settings, tmp_path) as flow:
        await said(flow, ClusterUnreachable)
        async with asyncio.timeout(1):
            await flow.drain()

    assert flow.runner.view().state is FlowState.DRAINED
