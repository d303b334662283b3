"""Group offsets by what flows really copied: there, and back by what another node stored on the clusters."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mm2py.config.settings import FlowSettings, load_settings
from mm2py.connectors.pair import PairedSource
from mm2py.core.herder import overrides as verbs
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.group import CommittedOffset
from mm2py.model.herder.node import Node
from mm2py.model.herder.overrides import NO_OVERRIDES, Wanted
from mm2py.model.state import FlowState, GroupOffsetView
from mm2py.telemetry.events import FlowStarted
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, running_flow
from tests.support.groups import commit_as_admin, committed, member, read_rest
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce, produce_transactions
from tests.support.records import plain_records
from tests.support.topics import create_topic


OTHER = Node("another node", 2, "another machine", "1")


def both_ways(source: str, target: str, prefix: str, folder: Path, replacement: str = "$0") -> dict[Flow, FlowSettings]:
    """Read the settings of both flows as two nodes would from one file; a router of A->B renames topics."""
    file = folder / "mm2.properties"
    keys = {
        "B->A.enabled": "true",
        "topics": prefix,
        "groups": f"{prefix}.*",
        "A.consumer.isolation.level": "read_committed",
        "copy.epoch.ms": 1_000,
        "copy.drain.ms": 2_000,
        "emit.heartbeats.enabled": "false",
        "heartbeats.replication.enabled": "false",
        "emit.checkpoints.interval.seconds": 0,
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": 1,
        "A->B.transforms": "route",
        "A->B.transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "A->B.transforms.route.regex": ".*",
        "A->B.transforms.route.replacement": replacement,
        "A.offset.flush.interval.ms": 500,
        "B.offset.flush.interval.ms": 500,
    }
    file.write_text(mm2_properties(source, target, **keys))
    return {settings.flow: settings for settings in load_settings(file).flows}


def offset_of(running: RunningFlow, group: str, topic: str) -> GroupOffsetView | None:
    """Return the view of a group's offset of a topic."""
    views = (view for view in running.runner.view().consumer_groups if view.group == group)
    return next((offset for view in views for offset in view.offsets if offset.source.topic == topic), None)


@pytest.mark.parametrize("routed", ["{}", "{}-routed"], ids=["stands by", "routed"])
async def test_a_group_comes_back_by_what_another_node_keeps(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, routed: str
) -> None:
    """
    Two nodes, one for each direction, that know nothing of each other but the clusters and one file.

    The one for the way back stands by for the other direction, or does not run it at all.

    A transactional topic of A is mirrored to B, where offsets are smaller; a group reads on at B, and its offset comes
    back to A as that of the very record that it would read next.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix)
    rounds = [(number % 2 == 0, [list(plain_records(10, start=number * 10))]) for number in range(10)]
    await produce_transactions(source, prefix, rounds, transactional_id=prefix)
    settings = both_ways(source, target, prefix, tmp_path, routed.format("$0"))
    group, remote = f"{prefix}-group", TopicPartition(f"A.{routed.format(prefix)}", 0)
    await commit_as_admin(source, group, {TopicPartition(prefix, 0): CommittedOffset(0)})
    async with (
        running_flow(settings[Flow("A", "B")], tmp_path) as there,
        running_flow(settings[Flow("B", "A")], tmp_path, other_way=settings[Flow("A", "B")]) as back,
        AsyncExitStack() as others,
    ):
        await await_arrived(target, remote.topic, 50)
        if routed == "{}":
            spare = await others.enter_async_context(running_flow(settings[Flow("A", "B")], tmp_path, us=OTHER))
            await eventually(lambda: spare.runner.view().state is FlowState.STANDBY, within_s=20, what="it stands by")
            other = settings[Flow("A", "B")].source_connector
            back.runner.pairs.know([PairedSource(other, spare.runner.live_translations)])
        await eventually(lambda: back.events.of(FlowStarted), within_s=60, what="the flow home runs")
        async with member(target, group, remote.topic) as consumer:

            async def has_read() -> bool:
                await consumer.getmany(timeout_ms=200, max_records=1)
                places = consumer.assignment()
                return any([await consumer.position(place) >= 25 for place in places])

            await eventually(has_read, within_s=60, what="the group reads at B", every_s=0)
            await consumer.commit()
            at_b = (await committed(target, group))[remote]

            def is_known() -> bool:
                view = offset_of(back, group, remote.topic)
                return view is not None and view.upstream == at_b and view.is_exact

            await eventually(is_known, within_s=60, what="the way back is known exactly")

        async def is_back() -> int | None:
            at_a = (await committed(source, group))[TopicPartition(prefix, 0)]
            return at_a if at_a > 0 else None

        at_a = await eventually(is_back, within_s=60, what="the group is back")
        await there.drain()
        await back.drain()

    # Every transaction takes eleven offsets at A, its marker included; only every second one was committed.
    assert at_b == 25
    assert at_a == 2 * 22 + 5


async def test_groups_at_the_end_and_of_empty_partitions_move(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    MirrorMaker 2 writes no checkpoint for either before another record comes; here both are at the target at once.

    The group has read the first partition to its end, and committed the start of the second, which is empty. Later
    records are still to be read at the target.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix, partitions=2)
    await produce(source, prefix, [plain_records(100)])
    group, remote = f"{prefix}-group", f"A.{prefix}"
    at_source = {TopicPartition(prefix, 0): CommittedOffset(100), TopicPartition(prefix, 1): CommittedOffset(0)}
    await commit_as_admin(source, group, at_source)
    settings = both_ways(source, target, prefix, tmp_path)
    async with running_flow(settings[Flow("A", "B")], tmp_path) as running:

        async def has_moved() -> bool:
            wanted = {TopicPartition(remote, 0): 100, TopicPartition(remote, 1): 0}
            found = await committed(target, group)
            assert found == wanted, found
            return True

        await eventually(has_moved, within_s=60, what="the group is at the end of what was copied")
        await produce(source, prefix, [plain_records(5, start=100), plain_records(5, start=105)])
        await await_arrived(target, remote, 110)
        await running.drain()
    rest = await read_rest(target, group, remote)

    assert len(rest) == 10


async def test_a_group_moves_while_copying_is_paused_from_the_start(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """The source connector is paused, then the node restarts: groups' offsets follow by what the last life stored."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix)
    await produce(source, prefix, [plain_records(100)])
    settings = both_ways(source, target, prefix, tmp_path)[Flow("A", "B")]
    async with running_flow(settings, tmp_path) as running:
        await await_arrived(target, f"A.{prefix}", 100)
        await running.drain()
    group, here = f"{prefix}-group", TopicPartition(prefix, 0)
    paused = verbs.want_connector(NO_OVERRIDES, verbs.SOURCE, Wanted.PAUSED)
    async with running_flow(settings, tmp_path, overrides=paused) as running:
        await commit_as_admin(source, group, {here: CommittedOffset(40)})

        async def has_moved() -> bool:
            return await committed(target, group) == {TopicPartition(f"A.{prefix}", 0): 40}

        await eventually(has_moved, within_s=60, what="the group is at the target")
        view = await eventually(lambda: offset_of(running, group, prefix), within_s=20, what="the group is shown")
        state = running.runner.view().state
        await running.drain()

    assert state is FlowState.PAUSED
    assert view.is_exact
