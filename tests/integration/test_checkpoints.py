"""The checkpoint group on real brokers: checkpoints, and group offsets at the target; what was copied is made up."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from mm2py.clock import SystemClock
from mm2py.config.settings import FlowSettings
from mm2py.core.offsets.translation import Precision
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.checkpoint import Checkpoint, encode_checkpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset
from mm2py.model.group_move import moves_of
from mm2py.model.herder.share import NO_SHARE
from mm2py.model.state import FlowState
from mm2py.telemetry.events import (
    CheckpointsRead,
    ClusterRecovered,
    GroupOffsetsSynced,
    GroupSyncResumed,
    GroupSyncSkipped,
    TaskRestarted,
)
from tests.support.brokers import MakeCluster
from tests.support.checkpointing import RunningCheckpoints, Shift, checkpoints_in, running_checkpoints
from tests.support.eventually import eventually, scaled
from tests.support.flows import flow_settings
from tests.support.groups import (
    commit_as_admin,
    commit_plainly,
    committed,
    groups_of,
    java_member,
    member,
    read_some,
)
from tests.support.producing import produce_numbers, producer
from tests.support.topics import create_topic, topic_configs


class Stage:
    """One topic on both clusters with the same hundred records, and settings for a group that reads it."""

    def __init__(self, primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> None:
        self.source, self.target = primary.bootstrap_servers, backup.bootstrap_servers
        self.topic, self.remote, self.group = prefix, f"A.{prefix}", f"{prefix}-group"
        self.here, self.there = TopicPartition(self.topic, 0), TopicPartition(self.remote, 0)
        self.checkpoints = "A.checkpoints.internal"

    def settings(self, **keys: Any) -> FlowSettings:
        ours = {
            "A->B.topics": f"{self.topic}.*",
            "A->B.groups": f"{self.topic}.*",
            "emit.checkpoints.interval.seconds": 0,
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": 1,
        }
        return flow_settings(self.source, self.target, **{**ours, **keys})

    async def set_up(self, *, records: int = 100) -> None:
        for bootstrap, topic in ((self.source, self.topic), (self.target, self.remote)):
            await create_topic(bootstrap, topic)
            if records:
                await produce_numbers(bootstrap, topic, count=records, partitions=1)

    async def written(self) -> list[tuple[int, int]]:
        found = await checkpoints_in(self.target, self.checkpoints, self.group)
        return [(checkpoint.upstream, checkpoint.downstream) for checkpoint in found]

    async def commit(self, offset: int) -> None:
        await commit_as_admin(self.source, self.group, {self.here: CommittedOffset(offset)})

    async def synced(self, offset: int) -> None:
        async def is_synced() -> bool:
            return await committed(self.target, self.group) == {self.there: offset}

        await eventually(is_synced, within_s=60, what=f"{self.group} is at {offset} at the target")

    async def emitted(self, *expected: tuple[int, int]) -> None:
        async def is_written() -> bool:
            return await self.written() == list(expected)

        await eventually(is_written, within_s=60, what=f"the checkpoints are {expected}")


async def left_alone(running: RunningCheckpoints, state: str) -> None:
    """Wait until a group was left alone for that reason."""
    await eventually(
        lambda: any(event.state == state for event in running.events.of(GroupSyncSkipped)),
        within_s=60,
        what=f"a group is left alone, {state}",
    )


async def test_checkpoints_follow_a_group(primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> None:
    """MirrorMaker's rules: a first checkpoint, moved on, not repeated, moved back; one compacted partition."""
    stage = Stage(primary, backup, prefix)
    await stage.set_up()
    await stage.commit(40)
    async with running_checkpoints(stage.settings(), Shift({prefix: -10})) as running:
        await stage.emitted((40, 30))
        await stage.commit(60)
        await stage.emitted((40, 30), (60, 50))
        await stage.commit(20)
        await stage.emitted((40, 30), (60, 50), (20, 10))
        await eventually(
            lambda: [it.upstream for it in running.shown(stage.group).offsets] == [20], within_s=30, what="20 is shown"
        )
        shown = running.shown(stage.group).offsets[0]
        await running.drain()

    configs = await topic_configs(stage.target, stage.checkpoints)
    assert configs["cleanup.policy"] == "compact"
    assert (shown.remote, shown.upstream, shown.downstream, shown.distance) == (stage.there, 20, 10, 90)
    assert await stage.written() == [(40, 30), (60, 50), (20, 10)]
    assert not running.events.of(TaskRestarted)


def if_moved(running: RunningCheckpoints, group: str) -> str:
    """Return what the page says about moving the group now; all of its records are at the target."""
    [(_, move, _)] = moves_of([running.shown(group)], {})
    return move.text(SystemClock().wall_ms()) if move is not None else ""


async def becomes(running: RunningCheckpoints, group: str, text: str) -> None:
    """Wait until that is *text*."""

    def is_it() -> bool:
        found = if_moved(running, group)
        assert found == text, found
        return True

    await eventually(is_it, within_s=60, what=f"the group is {text}")


async def test_a_group_is_ready_once_it_has_committed_at_the_target(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """Nothing syncs it: an operator commits the translated offset, and readers go on from there."""
    stage = Stage(primary, backup, prefix)
    await stage.set_up()
    await stage.commit(40)
    settings = stage.settings(**{"sync.group.offsets.enabled": "false"})
    async with running_checkpoints(settings, Shift({prefix: -10})) as running:
        await becomes(running, stage.group, "not committed at the target: sync.group.offsets.enabled is false")
        await commit_as_admin(stage.target, stage.group, {stage.there: CommittedOffset(30)})
        await becomes(running, stage.group, "ready")
        async with member(stage.target, stage.group, stage.remote):
            await becomes(running, stage.group, "in use at the target")
        await commit_as_admin(stage.target, stage.group, {stage.there: CommittedOffset(31)})
        await becomes(running, stage.group, "moved")
        shown = running.shown(stage.group)
        await running.drain()

    assert (shown.offsets[0].downstream, shown.offsets[0].committed) == (30, 31)
    assert (shown.at_target, running.events.of(GroupSyncSkipped)) == ("", ())


async def test_a_group_is_not_ready_before_it_is_synced(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """What the next sync will write is counted down; what it has written is ready, until the group reads on."""
    stage = Stage(primary, backup, prefix)
    await stage.set_up()
    await stage.commit(40)
    settings = stage.settings(**{"sync.group.offsets.interval.seconds": 8})
    async with running_checkpoints(settings, Shift({prefix: -10})) as running:
        due = await eventually(lambda: if_moved(running, stage.group), within_s=20, what="it is shown")
        await stage.synced(30)
        await becomes(running, stage.group, "ready")
        await stage.commit(50)
        await eventually(lambda: if_moved(running, stage.group) != "ready", within_s=20, what="it has read on")
        again = if_moved(running, stage.group)
        await running.drain()

    assert re.fullmatch(r"committed in at most [1-8] s", due)
    assert re.fullmatch(r"committed in at most [1-8] s", again)
    assert if_moved(running, stage.group) == "ready"  # the last round of a drain syncs as well


async def test_who_does_not_own_the_flow_any_more_shows_no_groups(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """Another node writes their checkpoints, and knows how far they are; once this one does again, it shows them."""
    stage = Stage(primary, backup, prefix)
    await stage.set_up()
    await stage.commit(40)
    async with running_checkpoints(stage.settings(), Shift({prefix: 0})) as running:
        requests, shown = running.group.requests, running.group.consumer_groups
        share = requests.share
        await eventually(lambda: running.shown(stage.group).offsets, within_s=30, what="the group is shown")
        requests.give(NO_SHARE, "another node owns the flow")
        await eventually(lambda: running.group.state is FlowState.STANDBY, within_s=30, what="it stands by")
        elsewhere = shown()
        requests.give(share)
        await eventually(lambda: running.shown(stage.group).offsets, within_s=30, what="the group is shown again")
        await running.drain()
        drained = shown()

    assert elsewhere == ()
    assert [view.group for view in drained] == [stage.group]


async def test_no_offsets_of_groups_are_committed_while_another_node_may_own_the_flow(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """Brokers refuse late checkpoints, but would take late group offsets: they wait for the flow's group to answer."""
    stage = Stage(primary, backup, prefix)
    await stage.set_up()
    await stage.commit(40)
    async with running_checkpoints(stage.settings(), Shift({prefix: 0})) as running:
        await stage.synced(40)
        writers = running.group._context.writers
        writers.follow(is_certain=lambda: False, on_fenced=lambda: None)
        await stage.commit(60)
        await stage.emitted((40, 40), (60, 60))
        await asyncio.sleep(3)
        meanwhile = await committed(stage.target, stage.group)
        writers.follow(is_certain=lambda: True, on_fenced=lambda: None)
        await stage.synced(60)
        await running.drain()

    assert meanwhile == {stage.there: 40}
    assert not running.events.of(GroupSyncSkipped)


async def test_checkpoints_continue_after_a_restart(primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> None:
    """A second run reads the first's checkpoints, skips garbage, and does not go back on a worse translation."""
    stage = Stage(primary, backup, prefix)
    await stage.set_up()
    await stage.commit(50)
    async with running_checkpoints(stage.settings(), Shift({prefix: 0})) as first:
        await stage.emitted((50, 50))
        await first.drain()
    async with producer(stage.target) as connected:
        await connected.send_and_wait(stage.checkpoints, b"rubbish", key=prefix.encode())
        key, _ = encode_checkpoint(Checkpoint(stage.group, stage.there, 0, 0))
        await connected.send_and_wait(stage.checkpoints, b"\x00\x07from the future", key=key + b"x")
    estimate = Shift({prefix: -30}, Precision.COARSE)
    async with running_checkpoints(stage.settings(), estimate) as second:
        await stage.commit(60)
        await eventually(
            lambda: [it.upstream for it in second.shown(stage.group).offsets] == [60],
            within_s=30,
            what="the second life has seen 60",
        )
        held = second.shown(stage.group).offsets[0].downstream
        await stage.commit(90)

        async def is_on() -> bool:
            records = await eventually(lambda: second.shown(stage.group).offsets, within_s=30, what="shown")
            return records[0].downstream == 60

        await eventually(is_on, within_s=30, what="the group is further on")
        await second.drain()

    assert held == 50
    assert second.events.of(CheckpointsRead)[0].malformed >= 2


async def test_a_topic_that_is_not_mirrored_has_no_checkpoint(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """Without a translation there is none, and the view shows why (testNoCheckpointForTopicWithoutOffsetSyncs)."""
    stage = Stage(primary, backup, prefix)
    await stage.set_up(records=1)
    other = f"{prefix}-other"
    await create_topic(stage.source, other)
    await commit_as_admin(stage.source, stage.group, {TopicPartition(other, 0): CommittedOffset(0)})
    await stage.commit(0)
    async with running_checkpoints(stage.settings(), Shift({prefix: 0})) as running:
        await stage.emitted((0, 0))
        await eventually(lambda: len(running.shown(stage.group).offsets) == 2, within_s=30, what="both are shown")
        shown = {view.source.topic: view for view in running.shown(stage.group).offsets}

    assert shown[other].downstream is None
    assert "not mirrored" in shown[other].why
    assert shown[prefix].downstream == 0


async def test_groups_of_every_kind_are_synced(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A classic group, one of the consumer protocol and one that only commits get their offsets at the target."""
    stage = Stage(primary, backup, prefix)
    await stage.set_up()
    classic, modern, plain = (f"{prefix}-{kind}" for kind in ("classic", "modern", "plain"))
    await read_some(stage.source, classic, prefix, 30)
    await commit_plainly(stage.source, plain, {stage.here: 70})
    async with java_member(stage.source, modern, prefix, tmp_path):

        async def has_read() -> bool:
            return await committed(stage.source, modern) == {stage.here: 100}

        await eventually(has_read, within_s=60, what="the KIP-848 group has committed")
    async with running_checkpoints(stage.settings(), Shift({prefix: 0})):

        async def are_synced() -> bool:
            found = {name: (await committed(stage.target, name)).get(stage.there) for name in (classic, modern, plain)}
            return found == {classic: 30, modern: 100, plain: 70}

        await eventually(are_synced, within_s=60, what="all three are synced")


async def test_an_active_group_is_never_overwritten(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Members at the target, of either protocol: no commit of ours, however large the lag; then they leave."""
    stage = Stage(primary, backup, prefix)
    await stage.set_up()
    modern = f"{prefix}-modern"
    await stage.commit(90)
    await commit_as_admin(stage.source, modern, {stage.here: CommittedOffset(90)})

    async def has_read_on() -> bool:
        return await committed(stage.target, modern) == {stage.there: 100}

    async with member(stage.target, stage.group, stage.remote) as consumer:
        assert len(await consumer.getmany(timeout_ms=int(scaled(5_000)), max_records=10)) == 1
        await consumer.commit()
        async with (
            java_member(stage.target, modern, stage.remote, tmp_path),
            running_checkpoints(stage.settings(), Shift({prefix: 0})) as running,
        ):
            await eventually(
                lambda: {event.group for event in running.events.of(GroupSyncSkipped)} == {stage.group, modern},
                within_s=60,
                what="both are left alone",
            )
            await eventually(
                lambda: running.shown(stage.group).at_target == "active", within_s=20, what="its members are shown"
            )
            await eventually(has_read_on, within_s=60, what="Java's member has committed all")
            while_active = await committed(stage.target, stage.group)
            synced = running.events.of(GroupOffsetsSynced)
            state = running.shown(stage.group)
            await consumer.stop()
            await stage.synced(90)
            resumed = await eventually(lambda: running.events.of(GroupSyncResumed), within_s=20, what="it is told")

    assert while_active == {stage.there: 10}
    assert synced == ()
    assert (state.at_target, state.synced_ms) == ("active", None)
    assert [event.group for event in resumed] == [stage.group]
    assert (await committed(stage.target, modern))[stage.there] == 100


async def test_a_group_whose_coordinator_is_away_is_left_alone(
    primary: KafkaCluster, make_cluster: MakeCluster, prefix: str
) -> None:
    """
    The target's coordinator of one group dies, the cluster lives: nothing is written for that group, others go on.

    It is unknown whether it has members, so its offsets stay; once the coordinator is back they are synced again.
    """
    target = make_cluster("limping", brokers=3, properties={"offsets.topic.replication.factor": "1"})
    stage = Stage(primary, target, prefix)
    await create_topic(stage.source, stage.topic)
    await produce_numbers(stage.source, stage.topic, count=100, partitions=1)
    async with groups_of(stage.target) as groups:
        await groups.committed([f"{prefix}-{number}" for number in range(40)])
    known = [name for name, broker in groups._coordinators.items() if broker != 1][:5]
    unknown = [name for name, broker in groups._coordinators.items() if broker == 1][:3]
    names = [*known, *unknown]
    for name in names:
        await commit_as_admin(stage.source, name, {stage.here: CommittedOffset(40)})
    await create_topic(stage.target, stage.remote, replicas={0: [0]})
    await create_topic(stage.target, stage.checkpoints, replicas={0: [0]}, configs={"cleanup.policy": "compact"})
    await produce_numbers(stage.target, stage.remote, count=100, partitions=1)
    settings = stage.settings(**{"B.producer.request.timeout.ms": 3_000})
    async with running_checkpoints(settings, Shift({prefix: 0})) as running:

        async def all_at(offset: int) -> bool:
            return all([await committed(stage.target, name) == {stage.there: offset} for name in names])

        await eventually(lambda: all_at(40), within_s=60, what="all groups are synced")
        await asyncio.to_thread(target.kill, 1)
        await left_alone(running, "unknown")
        for name in names:
            await commit_as_admin(stage.source, name, {stage.here: CommittedOffset(60)})

        async def others_go_on() -> bool:
            return all([await committed(stage.target, name) == {stage.there: 60} for name in known])

        await eventually(others_go_on, within_s=60, what="the other broker's groups go on")
        await asyncio.to_thread(target.start, 1)
        await eventually(lambda: all_at(60), within_s=90, what="all groups are synced again")

    assert set(unknown) <= {event.group for event in running.events.of(GroupSyncSkipped)}
    assert unknown
    assert known
    assert not running.events.of(ClusterRecovered)
    assert not running.events.of(TaskRestarted)
