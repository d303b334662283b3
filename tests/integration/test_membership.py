"""One node at a time runs a flow: what a second one does, and what happens when the first loses its place."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import attrs

from mm2py.clock import SystemClock
from mm2py.config.settings import FlowSettings
from mm2py.core.membership import PROTOCOL, PROTOCOL_TYPE
from mm2py.devkit.broker import KafkaCluster
from mm2py.flow.this_node import this_node
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import Flow
from mm2py.model.node import Node, decode_node, encode_node
from mm2py.model.state import FlowState
from mm2py.telemetry.events import FlowDrained, FlowRunsElsewhere, FlowStarted, FlowTakenOver
from mm2py.wire.cluster import Cluster
from mm2py.wire.groups.membership import Membership
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, flow_settings, running_flow
from tests.support.mm2_file import mm2_properties
from tests.support.nodes import running_node
from tests.support.producing import produce_numbers
from tests.support.reading import read_numbers
from tests.support.records import assert_numbers
from tests.support.topics import create_topic, end_offsets, list_topics


OURS = PROTOCOL_TYPE, PROTOCOL
JAVAS = PROTOCOL_TYPE, "sessioned"
ELSEWHERE = Node("elsewhere", 7, "another machine", "1")


def _settings(source: KafkaCluster, target: KafkaCluster, prefix: str, **keys: object) -> FlowSettings:
    """Read the settings of a flow from an alias of the test's own, so that its group is the test's own, too."""
    alias = prefix[-6:]
    mirrored = {f"{alias}->B.topics": prefix, "B.session.timeout.ms": 6000, "B.heartbeat.interval.ms": 500}
    return flow_settings(source.bootstrap_servers, target.bootstrap_servers, alias=alias, **{**mirrored, **keys})


@asynccontextmanager
async def _member(
    target: KafkaCluster, settings: FlowSettings, protocol: tuple[str, str] = OURS, session_ms: int = 30_000
) -> AsyncIterator[Membership]:
    """Connect a client that can join the flow's group."""
    endpoint = ClusterEndpoint("B", (target.bootstrap_servers,), request_timeout_ms=20_000)
    async with Cluster(endpoint, SystemClock()) as cluster:
        yield Membership(cluster, settings.group_id, protocol, session_ms)


async def _copied(flow: RunningFlow, records: int) -> None:
    await eventually(lambda: flow.runner.view().records >= records, within_s=30, what=f"{records} records are copied")


async def _said_elsewhere(flow: RunningFlow) -> FlowRunsElsewhere:
    """Wait until the flow has reported that it runs elsewhere."""
    return (await eventually(lambda: flow.events.of(FlowRunsElsewhere), within_s=20, what="it runs elsewhere"))[0]


async def test_a_second_node_copies_nothing_until_the_first_has_left(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """The second node reports which one runs the flow, stands by, and goes on exactly where the first one was."""
    settings = _settings(primary, backup, prefix)
    await create_topic(primary.bootstrap_servers, prefix, partitions=2)
    await produce_numbers(primary.bootstrap_servers, prefix, count=1_000, partitions=2)
    async with running_flow(settings, tmp_path) as first:
        await _copied(first, 1_000)
        async with running_flow(settings, tmp_path) as second:
            said = await _said_elsewhere(second)
            standing_by = second.runner.view()
            await first.drain()
            await produce_numbers(primary.bootstrap_servers, prefix, count=1_000, partitions=2)
            await _copied(second, 1_000)
            await second.drain()

    assert said.node == str(this_node())
    assert (standing_by.state, standing_by.records, standing_by.groups[1].state) == (
        FlowState.STANDBY,
        0,
        FlowState.STANDBY,
    )
    assert said.node in standing_by.last_error
    assert [event.node for event in second.events.of(FlowTakenOver)] == [said.node]
    assert len(first.events.of(FlowStarted)) == 1
    assert sum((await end_offsets(backup.bootstrap_servers, f"{settings.flow.source}.{prefix}")).values()) == 2_000


async def test_two_nodes_that_start_together_copy_each_record_once(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Both find the group empty and join, and one of them leaves the flow to the other."""
    settings = _settings(primary, backup, prefix)
    await create_topic(primary.bootstrap_servers, prefix, partitions=2)
    await produce_numbers(primary.bootstrap_servers, prefix, count=1_000, partitions=2)
    async with running_flow(settings, tmp_path) as one, running_flow(settings, tmp_path) as other:
        flows = (one, other)
        await eventually(
            lambda: sorted(flow.runner.view().state.name for flow in flows) == ["RUNNING", "STANDBY"],
            within_s=20,
            what="one runs, the other stands by",
        )
        await eventually(lambda: sum(flow.runner.view().records for flow in flows) >= 1_000, within_s=20, what="copied")
        for flow in flows:
            await flow.drain()

    assert_numbers(await read_numbers(backup.bootstrap_servers, f"{settings.flow.source}.{prefix}"), 1_000)


async def test_the_place_of_a_process_that_has_ended_is_taken_at_once(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A killed node's member stays in the group, but a node on the same machine does not wait out its session."""
    settings = _settings(primary, backup, prefix)
    ended = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await ended.wait()
    killed = attrs.evolve(this_node(), pid=ended.pid)
    await create_topic(primary.bootstrap_servers, prefix, partitions=1)
    async with _member(backup, settings) as member:
        assert await member.join(encode_node(killed))
        async with running_flow(settings, tmp_path) as flow:
            await eventually(lambda: flow.events.of(FlowStarted), within_s=5, what="the flow starts")
            found = [decode_node(it.metadata) for it in (await member.look()).members]
            await flow.drain()
        left = await member.look()

    assert found == [this_node()]
    assert (left.state, left.members) == ("Empty", ())
    assert not flow.events.of(FlowRunsElsewhere)


async def test_a_java_mirror_is_waited_for_and_kept_out_by_kafka_itself(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """While Java's workers are in the group the flow reports it and stands by; while the flow is, they cannot join."""
    settings = _settings(primary, backup, prefix)
    await create_topic(primary.bootstrap_servers, prefix, partitions=1)
    async with _member(backup, settings, JAVAS) as java:
        assert await java.join(b"not ours")
        async with running_flow(settings, tmp_path) as flow:
            said = await _said_elsewhere(flow)
            topics = await list_topics(backup.bootstrap_servers)
            await java.leave()
            await eventually(lambda: flow.events.of(FlowStarted), within_s=20, what="the flow starts")
            refused = ""
            try:
                await java.join(b"not ours")
            except Exception as error:  # noqa: BLE001 - what it is, is asserted
                refused = str(error)
            await flow.drain()

    assert said.node.startswith("Java MirrorMaker, at ")
    assert not [topic for topic in topics if settings.flow.source in topic]
    assert "INCONSISTENT_GROUP_PROTOCOL" in refused


async def test_a_node_whose_place_was_taken_meanwhile_steps_back(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    A node was frozen for longer than its session, and another has taken over: it ends what it does, and stands by.

    Here its member is removed instead; another node joins in the same moment, and leaves later.
    """
    settings = _settings(primary, backup, prefix)
    await create_topic(primary.bootstrap_servers, prefix, partitions=1)
    async with _member(backup, settings) as other, running_flow(settings, tmp_path) as flow:
        await eventually(lambda: flow.events.of(FlowStarted), within_s=20, what="the flow starts")
        (ours,) = (await other.look()).members
        with suppress(asyncio.CancelledError):
            await other.remove(ours.member_id)
            assert await other.join(encode_node(ELSEWHERE))
        said = await _said_elsewhere(flow)
        await eventually(lambda: flow.events.of(FlowDrained), within_s=20, what="it ends what it has begun")
        await eventually(lambda: flow.runner.view().state is FlowState.STANDBY, within_s=20, what="it stands by")
        await other.leave()
        await eventually(lambda: len(flow.events.of(FlowStarted)) == 2, within_s=20, what="it goes on")
        await flow.drain()

    assert said.node == str(ELSEWHERE)
    assert len(flow.events.of(FlowRunsElsewhere)) == 1


async def test_a_reload_keeps_the_flows_place(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    A flow restarts with changed settings in the place that it had.

    No other node comes in between, and no broker delays the flow, as it would an empty group's first member
    (`group.initial.rebalance.delay.ms`).
    """
    alias = prefix[-6:]
    flow = Flow(alias, "B")
    keys = {f"{alias}->B.topics": prefix}
    servers = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(primary.bootstrap_servers, prefix, partitions=1)
    async with (
        running_node(mm2_properties(*servers, aliases=(alias, "B"), **keys), tmp_path) as running,
        _member(backup, _settings(primary, backup, prefix)) as other,
    ):
        await running.running(flow)
        before = (await other.look()).members
        running.file.write_text(mm2_properties(*servers, aliases=(alias, "B"), **keys, **{"tasks.max": 2}))
        running.node.request_reload()
        await eventually(lambda: len(running.events.of(FlowStarted)) == 2, within_s=20, what="the flow restarts")
        after = (await other.look()).members
        await running.stop()
        left = (await other.look()).members

    assert len(before) == 1
    assert (after, left) == (before, ())
