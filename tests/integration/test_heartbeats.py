"""Heartbeats on real clusters: what is written, what the target refuses, and what they do not depend on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.heartbeat import Heartbeat, decode_heartbeat
from mm2py.model.herder.node import Node
from mm2py.model.state import FlowState, HeartbeatsView
from mm2py.telemetry.events import (
    ClusterUnreachable,
    HeartbeatsResumed,
    HeartbeatsStarted,
    InternalTopicRecreated,
    StepFailed,
)
from tests.support.brokers import cluster_factory
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, flow_settings, running_flow
from tests.support.java_programs import java_program
from tests.support.producing import produce_numbers
from tests.support.reading import read_topic
from tests.support.topics import create_topic, delete_topic, list_topics, topic_configs


_NOWHERE = "127.0.0.1:1"
_EMIT = {"emit.heartbeats.enabled": "true"}


@pytest.fixture(scope="module")
def beating() -> Iterator[KafkaCluster]:
    """A target of these tests' own: the topic of heartbeats has the same name in all of them."""
    with cluster_factory() as make:
        yield make("beating", is_killed=True)


@pytest.fixture
async def target(beating: KafkaCluster) -> str:
    """Return the target's bootstrap servers, once it has no topic."""
    for topic in await list_topics(beating.bootstrap_servers):
        await delete_topic(beating.bootstrap_servers, topic)
    return beating.bootstrap_servers


async def beats(flow: RunningFlow, more_than: int = 0) -> int:
    """Wait until the flow has written more heartbeats than that; return how many."""

    def sent() -> int | None:
        heartbeats = flow.runner.view().heartbeats
        assert heartbeats is not None
        return heartbeats.sent if heartbeats.sent > more_than else None

    return await eventually(sent, within_s=60, what=f"more than {more_than} heartbeats are written")


def _pauses_ms(found: Collection[Heartbeat]) -> list[int]:
    """Return the times between heartbeats, the shortest first."""
    times = sorted(beat.timestamp_ms for beat in found)
    return sorted(after - before for before, after in itertools.pairwise(times))


async def test_heartbeats_have_java_s_bytes_and_time(target: str, tmp_path: Path) -> None:
    """
    One record each second, keyed by the flow and stamped with the time that it holds, as Java's formatter reads it.

    The topic is compacted and has one partition. None of this needs the source, which is away all the time.
    """
    async with running_flow(flow_settings(_NOWHERE, target, **_EMIT), tmp_path) as flow:
        await beats(flow, 2)
        view = flow.runner.view()
        await flow.drain()

    (records,) = (await read_topic(target, "heartbeats")).values()
    found = [decode_heartbeat(record.key, record.value) for record in records]
    assert {(beat.source_alias, beat.target_alias) for beat in found} == {("A", "B")}
    assert [beat.timestamp_ms for beat in found] == [record.timestamp_ms for record in records]
    assert _pauses_ms(found)[0] >= 900
    assert (await topic_configs(target, "heartbeats"))["cleanup.policy"] == "compact"
    printed = await java_program("MirrorRecords").ask(target, "Heartbeat:heartbeats")
    assert [line.split("\t")[2] for line in printed] == [str(beat) for beat in found]
    assert str(found[0]) == str(Heartbeat("A", "B", records[0].timestamp_ms))
    states = {group.connector: group.state for group in view.groups}
    assert states["MirrorHeartbeatConnector"] is FlowState.RUNNING
    assert states["MirrorSourceConnector"] is FlowState.STARTING
    assert [event.cluster for event in flow.events.of(ClusterUnreachable)] == ["A"]


async def test_a_flow_that_is_not_enabled_emits_heartbeats_alone(target: str, tmp_path: Path) -> None:
    """It has no source group, asks the source for nothing, and creates nothing but the heartbeats topic."""
    keys = {**_EMIT, "A->B.enabled": "false", "emit.heartbeats.interval.seconds": "2"}
    async with running_flow(flow_settings(_NOWHERE, target, **keys), tmp_path) as flow:
        await beats(flow)
        view = flow.runner.view()
        await flow.drain()

    assert view.state is FlowState.RUNNING
    assert [group.connector for group in view.groups] == ["MirrorHeartbeatConnector"]
    assert flow.events.of(HeartbeatsStarted)[0].interval_s == 2.0
    assert {topic for topic in await list_topics(target) if not topic.startswith("__")} == {"heartbeats"}
    assert flow.runner.view().state is FlowState.DRAINED


async def test_too_many_replicas_stop_heartbeats_alone(
    primary: KafkaCluster, target: str, prefix: str, tmp_path: Path
) -> None:
    """The refusal names the setting and is reported once; the group keeps trying, and copying goes on."""
    source = primary.bootstrap_servers
    await create_topic(source, prefix)
    await produce_numbers(source, prefix, count=100, partitions=1)
    keys = {**_EMIT, "A->B.topics": prefix, "heartbeats.topic.replication.factor": "3"}
    async with running_flow(flow_settings(source, target, **keys), tmp_path) as flow:
        await eventually(lambda: flow.runner.view().records == 100, within_s=30, what="100 records are mirrored")
        await eventually(lambda: flow.runner.view().groups[-1].last_error, within_s=30, what="the refusal is shown")
        view = flow.runner.view()
        # An operator creates the topic, so beats can be written.
        await create_topic(target, "heartbeats")
        await beats(flow, 1)
        await flow.drain()

    (refusal,) = (event for event in flow.events.of(StepFailed) if "replication.factor 3" in event.error)
    assert "heartbeats.topic.replication.factor 3 > 1 broker of cluster B" in refusal.error
    group = view.groups[-1]
    assert (group.connector, group.state) == ("MirrorHeartbeatConnector", FlowState.STARTING)
    assert group.last_error == refusal.error
    assert view.state is FlowState.RUNNING


async def test_heartbeats_outlive_their_topic_and_their_target(
    beating: KafkaCluster, target: str, tmp_path: Path
) -> None:
    """A deleted topic is created again; after the target was away, heartbeats go on and are not caught up with."""
    # So long a topic is waited for that may only have lost its leader.
    keys = {**_EMIT, "B.producer.request.timeout.ms": "5000"}
    async with running_flow(flow_settings(_NOWHERE, target, **keys), tmp_path) as flow:
        await beats(flow, 1)
        await delete_topic(target, "heartbeats")
        await eventually(lambda: flow.events.of(InternalTopicRecreated), within_s=60, what="the topic is made again")
        await beats(flow, await beats(flow) + 1)
        assert "heartbeats" in await list_topics(target)

        await asyncio.to_thread(beating.kill, 0)
        await eventually(lambda: len(flow.events.of(ClusterUnreachable)) == 2, within_s=60, what="the target is missed")
        await asyncio.to_thread(beating.start, 0)
        await eventually(lambda: flow.events.of(HeartbeatsResumed), within_s=60, what="heartbeats go on again")
        before = await beats(flow)
        await beats(flow, before + 1)
        await flow.drain()

    (records,) = (await read_topic(target, "heartbeats")).values()
    # One whose acknowledgement was lost may have been sent twice, and is the same then.
    assert _pauses_ms({decode_heartbeat(record.key, record.value) for record in records})[0] >= 900
    assert flow.runner.view().groups[-1].restarts == 0


async def test_one_of_two_nodes_emits_and_the_other_takes_over(target: str, prefix: str, tmp_path: Path) -> None:
    """A monitor that counts records of the topic sees as many as with Java; the source is not needed."""
    settings = flow_settings(_NOWHERE, target, **_EMIT, **{"B.heartbeat.interval.ms": "300"})
    one, other = (Node(f"{prefix}-{name}", 1, f"machine {name}", "1", f"http://{name}:1", 1) for name in ("a", "b"))
    async with running_flow(settings, tmp_path, us=one) as first:
        await beats(first, 1)
        async with running_flow(settings, tmp_path, us=other) as second:

            def is_standing_by() -> bool:
                groups = {group.connector: group.state for group in second.runner.view().groups}
                return groups["MirrorHeartbeatConnector"] is FlowState.STANDBY

            await eventually(is_standing_by, within_s=30, what="the second node leaves them to the first one")
            await beats(first, await beats(first) + 3)
            shared = second.runner.view().heartbeats
            await first.drain()
            await beats(second, 3)
            await second.drain()

    (records,) = (await read_topic(target, "heartbeats")).values()
    assert shared == HeartbeatsView(0, None)
    # The other one begins at any moment after the last of the first one.
    assert _pauses_ms([decode_heartbeat(record.key, record.value) for record in records])[1] >= 900
    assert len(records) == await beats(first) + await beats(second)
