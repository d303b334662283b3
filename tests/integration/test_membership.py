"""The group of a flow: who is admitted, what a node without a task does, and one that loses its place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from mm2py.clock import SystemClock
from mm2py.config.settings import FlowSettings
from mm2py.core.herder.membership import PROTOCOL, PROTOCOL_TYPE
from mm2py.devkit.broker import KafkaCluster
from mm2py.herder.this_node import this_node
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import Flow
from mm2py.model.herder.node import Node, decode_node
from mm2py.model.herder.share import (
    NO_SHARE,
    VERSION,
    Candidate,
    SharedFlow,
    decode_candidate,
    decode_shared_flow,
    encode_candidate,
    encode_shared_flow,
    whole_share,
)
from mm2py.model.state import FlowState
from mm2py.telemetry.events import (
    FlowDrained,
    FlowRunsElsewhere,
    FlowShared,
    FlowStarted,
    StepFailed,
)
from mm2py.wire.cluster import Cluster
from mm2py.wire.groups.membership import Assign, Heartbeat, Membership
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, asking_nothing, flow_settings, running_flow, sharing
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.nodes import running_node
from tests.support.producing import produce_numbers
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


async def _join(member: Membership, metadata: bytes) -> bool:
    """Join as a member that, as the leader, assigns nothing."""

    async def assign(_generation: int, joined: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return dict.fromkeys(joined, b"nothing")

    return await member.join(metadata, assign) is not None


async def _said_elsewhere(flow: RunningFlow) -> FlowRunsElsewhere:
    """Wait until the flow has reported that it runs elsewhere."""
    return (await eventually(lambda: flow.events.of(FlowRunsElsewhere), within_s=20, what="it runs elsewhere"))[0]


async def test_a_second_node_without_a_task_stands_by_and_takes_over(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """With one task, the second node shows which one runs it, and goes on exactly where that one was."""
    settings = _settings(primary, backup, prefix)
    await create_topic(primary.bootstrap_servers, prefix, partitions=2)
    await produce_numbers(primary.bootstrap_servers, prefix, count=1_000, partitions=2)
    async with running_flow(settings, tmp_path) as first:
        await first.copied(1_000)
        async with running_flow(settings, tmp_path) as second:
            await eventually(lambda: second.runner.view().state is FlowState.STANDBY, within_s=20, what="it stands by")
            standing_by = second.runner.view()
            await first.drain()
            await produce_numbers(primary.bootstrap_servers, prefix, count=1_000, partitions=2)
            await second.copied(1_000)
            await second.drain()

    assert (standing_by.records, standing_by.groups[1].state) == (0, FlowState.STANDBY)
    assert standing_by.last_error == f"{this_node()} runs {settings.flow}"
    assert [event.nodes for event in second.events.of(FlowShared)] == [2, 1]
    assert len(first.events.of(FlowStarted)) == 1
    assert sum((await end_offsets(backup.bootstrap_servers, f"{settings.flow.source}.{prefix}")).values()) == 2_000


async def test_a_java_mirror_is_waited_for_and_kept_out_by_kafka_itself(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """While Java's workers are in the group the flow reports it and stands by; while the flow is, they cannot join."""
    settings = _settings(primary, backup, prefix)
    await create_topic(primary.bootstrap_servers, prefix, partitions=1)
    async with _member(backup, settings, JAVAS) as java:
        assert await _join(java, b"not ours")
        async with running_flow(settings, tmp_path) as flow:
            said = await _said_elsewhere(flow)
            topics = await list_topics(backup.bootstrap_servers)
            await java.leave()
            await eventually(lambda: flow.events.of(FlowStarted), within_s=20, what="the flow starts")
            refused = ""
            try:
                await _join(java, b"not ours")
            except Exception as error:  # noqa: BLE001 - what it is, is asserted
                refused = str(error)
            await flow.drain()

    assert said.node.startswith("Java MirrorMaker, at ")
    assert not [topic for topic in topics if settings.flow.source in topic]
    assert "INCONSISTENT_GROUP_PROTOCOL" in refused


async def test_a_node_whose_place_was_taken_meanwhile_begins_again(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    A node was frozen for longer than its session, and another has had its share: it writes nothing more, and joins.

    Here its member is removed while it asks nothing; the other one, which then assigns the work, leaves later.
    """
    settings = _settings(primary, backup, prefix)
    everything = Candidate(ELSEWHERE, whole_share(1))
    await create_topic(primary.bootstrap_servers, prefix, partitions=1)

    async def keep(generation: int, joined: Mapping[str, bytes]) -> Mapping[str, bytes]:
        shares = {member: everything.held for member, raw in joined.items() if decode_node(raw) == ELSEWHERE}
        nodes = {member: decode_node(raw) or ELSEWHERE for member, raw in joined.items()}
        return dict.fromkeys(joined, encode_shared_flow(SharedFlow(generation, nodes, shares)))

    async with _member(backup, settings) as other, running_flow(settings, tmp_path) as flow:
        await eventually(lambda: flow.events.of(FlowStarted), within_s=20, what="the flow starts")
        (ours,) = (await other.look()).members
        async with asking_nothing(flow):
            await other.remove(ours.member_id)
            assert await other.join(encode_candidate(everything), keep)
        rejoining = asyncio.create_task(_keep_in(other, everything, keep))
        drained = (await eventually(lambda: flow.events.of(FlowDrained), within_s=20, what="it ends its work"))[0]
        await eventually(lambda: flow.runner.view().state is FlowState.STANDBY, within_s=20, what="it stands by")
        why = flow.runner.view().last_error
        rejoining.cancel()
        await other.leave()
        await eventually(lambda: len(flow.events.of(FlowStarted)) == 2, within_s=20, what="it goes on")
        await flow.drain()

    assert not drained.positions_written
    assert why == f"{ELSEWHERE} runs {settings.flow}"


async def _keep_in(member: Membership, candidate: Candidate, assign: Assign) -> None:
    """Send heartbeats, and join again whenever the group rebalances."""
    while True:
        if await member.beat() is not Heartbeat.OK:
            await member.join(encode_candidate(candidate), assign)
        await asyncio.sleep(0.2)


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
    assert ([it.member_id for it in after], left) == ([it.member_id for it in before], ())


LATER = 2


async def test_nodes_that_cannot_read_an_assignment_stand_by_until_they_can(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    The group's leader is a node of a later version, which assigns work in a form that these do not know.

    They give their share up, so that it runs elsewhere, say why, and share the flow again once that node has left.
    """
    settings = _settings(primary, backup, prefix, **{"tasks.max": 2})
    later = Candidate(ELSEWHERE, whole_share(2), version=LATER)
    await create_topic(primary.bootstrap_servers, prefix, partitions=16)
    await produce_numbers(primary.bootstrap_servers, prefix, count=1_000, partitions=16)
    joined_with: list[Mapping[str, bytes]] = []

    async def assign(_generation: int, joined: Mapping[str, bytes]) -> Mapping[str, bytes]:
        joined_with.append(joined)
        return dict.fromkeys(joined, json.dumps({"version": LATER, "plan": "in a form of its own"}).encode())

    async with (
        _member(backup, settings) as leader,
        running_flow(settings, tmp_path, us=Node("one", 1, "m1", "1")) as one,
        running_flow(settings, tmp_path, us=Node("two", 2, "m2", "1")) as two,
    ):
        await _copied_by(one, two, records=1_000)
        while not joined_with:  # the next one that joins leads, unless one of the others is back before
            for member in (await leader.look()).members:
                if member.member_id != leader.member_id:
                    await leader.remove(member.member_id)
            assert await leader.join(encode_candidate(later), assign)
        leading = asyncio.create_task(_keep_in(leader, later, assign))
        for flow in (one, two):
            await eventually(lambda it=flow: it.events.of(StepFailed), within_s=20, what="it says what is wrong")
            await eventually(
                lambda it=flow: it.runner.view().state is FlowState.STANDBY, within_s=20, what="it stands by"
            )
        views = [flow.runner.view() for flow in (one, two)]

        def gave_up() -> bool:
            ours = [decode_candidate(raw) for raw in joined_with[-1].values() if decode_node(raw) != ELSEWHERE]
            return [it is not None and it.is_drained and it.held == NO_SHARE for it in ours] == [True, True]

        await eventually(gave_up, within_s=20, what="others may have their shares")
        leading.cancel()
        await leader.leave()
        await produce_numbers(primary.bootstrap_servers, prefix, count=1_000, partitions=16)
        await sharing(one, two, tasks=2)
        remote = f"{settings.flow.source}.{prefix}"
        await await_arrived(backup.bootstrap_servers, remote, 2_000)
        for flow in (one, two):
            await flow.drain()
        ends = await end_offsets(backup.bootstrap_servers, remote)

    assert ["cannot be used" in view.last_error and "another version" in view.hint for view in views] == [True, True]
    assert sum(ends.values()) == 2_000


async def test_a_node_of_a_later_version_is_assigned_work_in_a_form_that_all_know(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """It joins with fields that others do not know, has its share, and another node has all again when it leaves."""
    settings = _settings(primary, backup, prefix, **{"tasks.max": 2})
    said = json.loads(encode_candidate(Candidate(ELSEWHERE, version=LATER)))
    said["novelty"], said["shared"]["novelty"] = 1, {"of": "the later version"}
    raw = json.dumps(said).encode()
    await create_topic(primary.bootstrap_servers, prefix, partitions=16)

    async def never(_generation: int, _joined: Mapping[str, bytes]) -> Mapping[str, bytes]:
        raise AssertionError

    async with _member(backup, settings) as later, running_flow(settings, tmp_path) as flow:
        await eventually(lambda: flow.events.of(FlowStarted), within_s=20, what="the flow starts")
        received = await later.join(raw, never) or b""
        while not decode_shared_flow(received).share_of(later.member_id).tasks:
            if await later.beat() is Heartbeat.REBALANCE:
                received = await later.join(raw, never) or b""
            await asyncio.sleep(0.1)
        shared = decode_shared_flow(received)
        tasks = {node == ELSEWHERE: shared.share_of(member_id).tasks for member_id, node in shared.nodes.items()}
        await later.leave()
        await eventually(lambda: len(flow.runner.view().tasks) == 2, within_s=20, what="it has all tasks")
        await flow.drain()

    assert json.loads(received)["version"] == VERSION < LATER
    assert sorted(map(len, tasks.values())) == [1, 1]
    assert tasks[True] | tasks[False] == {0, 1}


async def _copied_by(*flows: RunningFlow, records: int) -> None:
    """Wait until all have tasks, and together have copied that many records."""
    await sharing(*flows, tasks=len(flows))
    await eventually(
        lambda: sum(flow.runner.view().records for flow in flows) >= records, within_s=30, what=f"{records} are copied"
    )
