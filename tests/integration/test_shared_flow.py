"""Several nodes run one flow: they share its tasks and take over from each other; no record is lost or repeated."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from unittest import mock

import pytest

from mm2py.clock import SystemClock
from mm2py.config.settings import FlowSettings
from mm2py.core.herder.membership import PROTOCOL, PROTOCOL_TYPE
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.herder.node import Node
from mm2py.model.positions import Position
from mm2py.model.positions_topic import decode_stored
from mm2py.model.state import FlowState
from mm2py.telemetry.events import (
    FlowFenced,
    FlowShared,
    FlowStarted,
    ResumeUnproven,
    StepFailed,
    TaskRestarted,
    TopicCreated,
)
from mm2py.wire.cluster import Cluster
from mm2py.wire.fenced_writer import Append
from mm2py.wire.groups.membership import Membership
from mm2py.wire.transactions import TransactionalProducer
from tests.support.checkpointing import checkpoints_in
from tests.support.eventually import eventually, long_enough
from tests.support.flows import RunningFlow, flow_settings, running_flow, sharing
from tests.support.groups import commit_plainly, committed, throw_out
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.nodes import RunningNode, running_node
from tests.support.producing import numbered_stream, produce_numbers
from tests.support.reading import read_numbers, read_topic
from tests.support.records import assert_numbers
from tests.support.soaking import rounds
from tests.support.topics import create_topic, end_offsets


PARTITIONS = 16
OTHER = Node("another node", 2, "another machine", "1")


def _settings(source: KafkaCluster, target: KafkaCluster, prefix: str, **keys: object) -> FlowSettings:
    alias = prefix[-6:]
    ours = {f"{alias}->B.topics": f"{prefix}.*", "B.heartbeat.interval.ms": 300, "tasks.max": 4}
    return flow_settings(source.bootstrap_servers, target.bootstrap_servers, alias=alias, **{**ours, **keys})


def _tasks(*flows: RunningFlow) -> list[list[int]]:
    return [[task.task for task in flow.runner.view().tasks] for flow in flows]


def _records(*flows: RunningFlow) -> int:
    return sum(flow.runner.view().records for flow in flows)


def _has_tasks(flow: RunningFlow) -> bool:
    return any(event.tasks.startswith("tasks") for event in flow.events.of(FlowShared))


async def test_nodes_share_the_tasks_of_a_flow(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A second node gets half of the tasks while the first copies, and all of them once the first has left."""
    settings = _settings(primary, backup, prefix)
    servers, remote = primary.bootstrap_servers, f"{settings.flow.source}.{prefix}"
    await create_topic(servers, prefix, partitions=PARTITIONS)
    async with (
        numbered_stream(servers, prefix, count=1, partitions=PARTITIONS, rate=2_000, open_ended=True) as stream,
        running_flow(settings, tmp_path) as one,
    ):
        await eventually(lambda: _records(one) > 1_000, within_s=20, what="the first copies")
        async with running_flow(settings, tmp_path) as other:
            await sharing(one, other, tasks=4)
            shared = other.events.of(FlowShared)[-1]
            before = _records(one), _records(other)
            await eventually(
                lambda: _records(one) > before[0] + 1_000 and _records(other) > before[1] + 1_000,
                within_s=20,
                what="both copy",
            )
            partitions = [len(flow.runner.view().partitions) for flow in (one, other)]
            await one.drain()
            await eventually(lambda: _tasks(other) == [[0, 1, 2, 3]], within_s=20, what="the second has all tasks")
            written = await stream.done()
            # Neither counts what the first had sent, but not heard of before it ended, and the second has found.
            await await_arrived(backup.bootstrap_servers, remote, written)
            await other.drain()

    assert_numbers(await read_numbers(backup.bootstrap_servers, remote), written)
    assert shared.nodes == 2
    assert sum(partitions) == PARTITIONS
    assert [len(flow.events.of(FlowStarted)) for flow in (one, other)] == [1, 1]
    assert not other.events.of(TopicCreated)


async def test_a_node_that_still_starts_takes_nothing_from_others(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """It stands by until its Spark has started, so that what moves to it is copied at once."""
    settings = _settings(primary, backup, prefix)
    await create_topic(primary.bootstrap_servers, prefix, partitions=PARTITIONS)
    is_started = asyncio.Event()
    async with running_flow(settings, tmp_path) as one:
        await eventually(lambda: _tasks(one) == [[0, 1, 2, 3]], within_s=20, what="the first copies")
        async with running_flow(settings, tmp_path, is_started=is_started) as other:
            await eventually(lambda: other.events.of(FlowShared), within_s=20, what="the second is there")
            await asyncio.sleep(1.0)  # several heartbeats
            before = _tasks(one, other)
            is_started.set()
            await sharing(one, other, tasks=4)

    assert before == [[0, 1, 2, 3], []]


async def test_a_node_that_ends_is_replaced_before_it_leaves(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """It copies until all nodes know; with heartbeats every two seconds, others would notice late that it left."""
    settings = _settings(primary, backup, prefix, **{"B.heartbeat.interval.ms": 2_000})
    await create_topic(primary.bootstrap_servers, prefix, partitions=PARTITIONS)
    async with running_flow(settings, tmp_path) as one, running_flow(settings, tmp_path) as other:
        await sharing(one, other, tasks=4)
        await other.runner.sharing.part(within_s=long_enough(10))
        left = _tasks(other)
        # Both are told in the same moment; the other one may have it a little later.
        await eventually(lambda: _tasks(one) == [[0, 1, 2, 3]], within_s=5, what="the first has all tasks")
        shared = [flow.events.of(FlowShared)[-1] for flow in (one, other)]
        await other.drain()

    assert left == [[]]
    assert [(it.nodes, it.tasks) for it in shared] == [(2, "tasks 0, 1, 2, 3"), (2, "no tasks")]


async def test_the_last_checkpoints_cover_what_all_nodes_have_copied(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """All nodes are stopped at the same moment, in the middle of long epochs: groups can move to the target."""
    group, remote = f"{prefix}-readers", f"{prefix[-6:]}.{prefix}"
    settings = _settings(primary, backup, prefix, **{"copy.epoch.ms": 60_000, "emit.checkpoints.interval.seconds": 1})
    await create_topic(primary.bootstrap_servers, prefix, partitions=PARTITIONS)
    await commit_plainly(
        primary.bootstrap_servers, group, {TopicPartition(prefix, number): 10 for number in range(PARTITIONS)}
    )

    async def stop(flow: RunningFlow) -> None:
        await flow.runner.sharing.part(within_s=long_enough(4))
        await flow.drain()

    async with AsyncExitStack() as runs:
        flows = [await runs.enter_async_context(running_flow(settings, tmp_path)) for _ in range(3)]
        await sharing(*flows, tasks=4)
        await produce_numbers(primary.bootstrap_servers, prefix, count=10 * PARTITIONS, partitions=PARTITIONS)
        await await_arrived(backup.bootstrap_servers, remote, 10 * PARTITIONS)
        await eventually(
            lambda: any(flow.runner.view().groups[1].state is FlowState.RUNNING for flow in flows),
            within_s=20,
            what="one of them writes checkpoints",
        )
        await asyncio.gather(*map(stop, flows))

    last = {}
    for checkpoint in await checkpoints_in(backup.bootstrap_servers, f"{prefix[-6:]}.checkpoints.internal", group):
        last[checkpoint.remote] = checkpoint.downstream
    assert last == {TopicPartition(remote, number): 10 for number in range(PARTITIONS)}


async def test_the_owner_does_what_is_done_once_for_all_nodes(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """All copy the topics that it creates; until it is drained, it translates offsets of what others copy, which they
    store within seconds.
    """
    settings = _settings(
        primary,
        backup,
        prefix,
        **{
            f"{prefix[-6:]}->B.groups": f"{prefix}.*",
            "refresh.topics.interval.seconds": 1,
            "refresh.groups.interval.seconds": 1,
            "emit.checkpoints.interval.seconds": 1,
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": 1,
        },
    )
    source, target, topic, group = (
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        f"{prefix}-new",
        f"{prefix}-group",
    )
    async with running_flow(settings, tmp_path) as one, running_flow(settings, tmp_path) as other:
        await eventually(lambda: _has_tasks(one) and _has_tasks(other), within_s=20, what="both have tasks")
        await create_topic(source, topic, partitions=PARTITIONS)
        await produce_numbers(source, topic, count=100 * PARTITIONS, partitions=PARTITIONS)
        await eventually(lambda: _records(one, other) == 100 * PARTITIONS, within_s=30, what="the new topic is copied")
        copied = [_records(flow) for flow in (one, other)]
        here = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        await commit_plainly(source, group, dict.fromkeys(here, 50))
        wanted = {TopicPartition(f"{settings.flow.source}.{topic}", number): 50 for number in range(PARTITIONS)}

        async def are_synced() -> bool:
            found = await committed(target, group)
            assert found == wanted
            return True

        await eventually(are_synced, within_s=40, what="the group's offsets are at the target")
        owner, rest = (one, other) if one.events.of(TopicCreated) else (other, one)
        owner.runner.sharing.set_drained(is_drained=True)
        await eventually(lambda: _tasks(rest) == [[0, 1, 2, 3]], within_s=20, what="the other node has all tasks")
        await eventually(lambda: owner.runner.view().state is FlowState.STANDBY, within_s=20, what="it stands by")
        await commit_plainly(source, group, dict.fromkeys(here, 60))
        wanted = dict.fromkeys(wanted, 60)
        await eventually(are_synced, within_s=40, what="the new owner syncs the group")
        for flow in (one, other):
            await flow.drain()

    assert [0 < records < 100 * PARTITIONS for records in copied] == [True, True], copied
    assert not rest.events.of(TopicCreated)
    assert_numbers(await read_numbers(target, f"{settings.flow.source}.{topic}"), 100 * PARTITIONS)


@contextmanager
def _frozen(flow: RunningFlow, *, amid_a_write: bool) -> Iterator[asyncio.Event]:
    """
    Hold back what a node is about to write, and all that it asks its group, until the event is set.

    *amid_a_write* its records are in the log already, and their transaction stays open, as if it were killed there.
    """
    thawed, has_written, membership = asyncio.Event(), asyncio.Event(), flow.runner.sharing.membership
    writer, decide = membership._writer, membership._decide
    write = writer.write

    async def write_late(cluster: Cluster, places: Collection[TopicPartition], append: Append) -> None:
        async def append_and_freeze(producer: TransactionalProducer | None) -> None:
            await append(producer)
            await thawed.wait()

        if not amid_a_write:
            await thawed.wait()
        try:
            await write(cluster, places, append_and_freeze)
        finally:
            has_written.set()

    async def decide_late(place: Membership) -> None:
        await has_written.wait()  # its write comes first
        await decide(place)

    with mock.patch.object(writer, "write", write_late), mock.patch.object(membership, "_decide", decide_late):
        yield thawed


async def _positions(
    target: KafkaCluster, settings: FlowSettings, *, reads_committed: bool = True
) -> dict[TopicPartition, list[int]]:
    """Return each partition's positions in the order in which they were written, as a reader of committed data does."""
    found: dict[TopicPartition, list[int]] = {}
    topic = settings.source_connector.offset_storage.topic
    for records in (await read_topic(target.bootstrap_servers, topic, reads_committed=reads_committed)).values():
        for record in records:
            match decode_stored(record):
                case (settings.flow.source, Position(claimed=None) as position):
                    found.setdefault(position.source, []).append(position.next_upstream)
    return found


@pytest.mark.parametrize("frozen", ["the leader", "another node"])
async def test_what_a_deposed_node_writes_late_is_refused(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, frozen: str
) -> None:
    """
    A node freezes for longer than its session, before it writes positions, or with its transaction open. The other one
    undoes that, goes on exactly where the target ends, and writes.

    Once it thaws, its write is refused before it asks its group. It joins again, and begins with what the other wrote.
    """
    settings = _settings(primary, backup, prefix, **{"B.session.timeout.ms": 6000, "B.offset.flush.interval.ms": 1000})
    servers, alias = primary.bootstrap_servers, settings.flow.source
    await create_topic(servers, prefix, partitions=PARTITIONS)

    async def copied(count: int, *flows: RunningFlow) -> None:
        await produce_numbers(servers, prefix, count=count, partitions=PARTITIONS)
        want[0] += count
        await await_arrived(backup.bootstrap_servers, f"{alias}.{prefix}", want[0])

    async def all_at(position: int) -> dict[TopicPartition, list[int]]:
        found = await _positions(backup, settings)
        assert len(found) == PARTITIONS
        assert {positions[-1] for positions in found.values()} == {position}
        return found

    want = [0]
    async with AsyncExitStack() as runs:
        one = await runs.enter_async_context(running_flow(settings, tmp_path))
        await eventually(lambda: _tasks(one) == [[0, 1, 2, 3]], within_s=20, what="the first leads, and has all tasks")
        other = await runs.enter_async_context(running_flow(settings, tmp_path, us=OTHER))
        await sharing(one, other, tasks=4)
        await copied(10 * PARTITIONS)
        late, rest, task = (one, other, 0) if frozen == "the leader" else (other, one, 2)
        with _frozen(late, amid_a_write=frozen == "the leader") as thawed:
            await copied(10 * PARTITIONS)
            await eventually(lambda: _tasks(rest) == [[0, 1, 2, 3]], within_s=20, what="the other has all tasks")
            await copied(10 * PARTITIONS)
            await eventually(lambda: all_at(30), within_s=20, what="the other has written positions")
            thawed.set()
            refused = (await eventually(lambda: late.events.of(FlowFenced), within_s=5, what="it is refused"))[0]
            await sharing(one, other, tasks=4)
        await copied(10 * PARTITIONS)
        for flow in (late, rest):
            await flow.drain()
    # What was just committed shows once its partition has the marker.
    found = await eventually(lambda: all_at(40), within_s=5, what="both have written positions")

    assert refused.transactional_id == f"{settings.group_id}-MirrorSourceConnector-{task}"
    assert all(positions == sorted(positions) for positions in found.values()), found
    assert [len(flow.events.of(FlowFenced)) for flow in (late, rest)] == [1, 0]
    failures = TaskRestarted, StepFailed, ResumeUnproven
    assert not [event for flow in (late, rest) for kind in failures for event in flow.events.of(kind)]
    # The last ones left out: one node ends after the other, and what it had just taken over may be cut off.
    logged = await _positions(backup, settings, reads_committed=False)
    committed_before, logged_before = (
        {source: [it for it in positions if it < 40] for source, positions in written.items()}
        for written in (found, logged)
    )
    assert (logged_before != committed_before) == (frozen == "the leader")
    assert sum((await end_offsets(backup.bootstrap_servers, f"{alias}.{prefix}")).values()) == want[0]


@pytest.mark.soak
async def test_forced_rebalances_under_load(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Nodes are drained, come back, and are thrown out of the group, one after the other, while records arrive."""
    settings = _settings(primary, backup, prefix, **{"B.session.timeout.ms": 6000, "B.offset.flush.interval.ms": 1000})
    servers, chance = primary.bootstrap_servers, random.Random(7)
    await create_topic(servers, prefix, partitions=PARTITIONS)
    async with (
        numbered_stream(servers, prefix, count=1, partitions=PARTITIONS, rate=2_000, open_ended=True) as stream,
        AsyncExitStack() as runs,
        Cluster(settings.target, SystemClock()) as target,
    ):
        flows = [await runs.enter_async_context(running_flow(settings, tmp_path)) for _ in range(3)]
        group = Membership(target, settings.group_id, (PROTOCOL_TYPE, PROTOCOL), 6_000)
        await eventually(lambda: all(map(_has_tasks, flows)), within_s=30, what="all have tasks")
        for _ in range(rounds(8, soak=300)):
            flow = chance.choice(flows)
            match chance.choice(("drain", "throw out", "throw out two")):
                case "drain":
                    flow.runner.sharing.set_drained(is_drained=True)
                    await asyncio.sleep(chance.random())
                    flow.runner.sharing.set_drained(is_drained=False)
                case "throw out":
                    await throw_out(group, chance, 1)
                case _:
                    await throw_out(group, chance, 2)
            await asyncio.sleep(2 * chance.random())
        written = await stream.done()
        remote = f"{settings.flow.source}.{prefix}"
        await await_arrived(backup.bootstrap_servers, remote, written)
        for flow in flows:
            await flow.drain()

    assert_numbers(await read_numbers(backup.bootstrap_servers, remote), written)


async def test_one_node_drives_a_spark_cluster_and_another_one_takes_over(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """The cluster's executors are what is shared there; without Spark itself, whose driver is not needed for that."""
    alias, source = prefix[-6:], primary.bootstrap_servers
    flow = Flow(alias, "B")
    await create_topic(source, prefix, partitions=PARTITIONS)
    await produce_numbers(source, prefix, count=100 * PARTITIONS, partitions=PARTITIONS)
    text = mm2_properties(
        source,
        backup.bootstrap_servers,
        aliases=(alias, "B"),
        **{f"{flow}.topics": prefix, "tasks.max": 4, "B.heartbeat.interval.ms": 300, "spark.master": "spark://s:7077"},
    )

    def has_all(node: RunningNode) -> bool:
        return [task.task for task in node.view(flow).tasks] == [0, 1, 2, 3]

    async with running_node(text, tmp_path, "one") as one:
        await eventually(lambda: has_all(one), within_s=20, what="the first node has all tasks")
        async with running_node(text, tmp_path, "other") as other:
            await eventually(lambda: other.events.of(FlowShared), within_s=20, what="the other is in the group")
            await eventually(lambda: one.events.of(FlowShared), within_s=20, what="the first knows it")
            await eventually(
                lambda: other.view(flow).state is FlowState.STANDBY, within_s=20, what="the other stands by"
            )
            assert has_all(one)
            await one.stop()
            await eventually(lambda: has_all(other), within_s=20, what="the other takes over")


async def test_two_nodes_with_the_file_of_a_walkthrough_to_msk(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    One direction, Amazon's policy that keeps names, and Java MirrorMaker's file on two machines, as it was.

    Both nodes start, share the tasks, and are in what `mm2py nodes` prints at either of them.
    """
    c1, c2 = prefix[-6:], "c2"
    flow = Flow(c1, c2)
    lines = f"""
clusters = {c1}, {c2}
{c1}.bootstrap.servers = {primary.bootstrap_servers}
{c2}.bootstrap.servers = {backup.bootstrap_servers}
{flow}.enabled = true
{c2}->{c1}.enabled = false
{flow}.topics = {prefix}.*
{flow}.groups = {prefix}.*
tasks.max = 4
replication.policy.class = com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
sync.topic.acls.enabled = false
emit.heartbeats.interval.seconds = 5
refresh.topics.interval.seconds = 1
sync.group.offsets.enabled = true
listeners = http://127.0.0.1:0
"""
    await create_topic(primary.bootstrap_servers, prefix, partitions=16)
    await produce_numbers(primary.bootstrap_servers, prefix, count=800, partitions=16)
    async with running_node(lines, tmp_path, "vm1") as one, running_node(lines, tmp_path, "vm2") as two:

        def are_sharing() -> bool:
            tasks = [[task.task for task in node.view(flow).tasks] for node in (one, two)]
            assert [len(some) for some in tasks] == [2, 2], tasks
            return True

        await eventually(are_sharing, within_s=30, what="both have two tasks")
        await await_arrived(backup.bootstrap_servers, prefix, 800)

        def are_named() -> bool:
            shown = [one.node.control.nodes(flow), two.node.control.nodes(flow)]
            assert [sorted(len(it.assigned) for it in nodes if it.answers) for nodes in shown] == [[2, 2]] * 2, shown
            assert len({it.worker_id for nodes in shown for it in nodes}) == 2, shown
            return True

        await eventually(are_named, within_s=30, what="each node names both")
        for node in (one, two):
            await node.stop()

    assert_numbers(await read_numbers(backup.bootstrap_servers, prefix), 800)
