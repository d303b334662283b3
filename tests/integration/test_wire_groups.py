"""Consumer groups of a real broker: listed, described, read and committed, whichever protocol they speak."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset, GroupDescription, GroupListing, GroupType
from tests.support.brokers import MakeCluster
from tests.support.eventually import eventually
from tests.support.groups import commit_plainly, committed, describe, groups_of, java_member, member, read_some
from tests.support.producing import produce_numbers
from tests.support.topics import create_topic


async def test_groups_of_every_kind_are_listed_and_described(backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """A classic group, one of the consumer protocol and one that only commits are distinguished, with their members."""
    bootstrap = backup.bootstrap_servers
    await create_topic(bootstrap, prefix, partitions=2)
    await produce_numbers(bootstrap, prefix, count=100, partitions=2)
    classic, modern, plain, nobody = (f"{prefix}-{kind}" for kind in ("classic", "modern", "plain", "nobody"))
    await commit_plainly(bootstrap, plain, {TopicPartition(prefix, 0): 7})
    async with member(bootstrap, classic, prefix), java_member(bootstrap, modern, prefix, tmp_path):
        async with groups_of(bootstrap) as groups:
            listed = await groups.list_groups()
            busy = await groups.describe([classic, modern, plain, nobody])

        async def is_committed() -> bool:
            return await committed(bootstrap, modern) == {
                TopicPartition(prefix, 0): 50,
                TopicPartition(prefix, 1): 50,
            }

        await eventually(is_committed, within_s=30, what="Java's consumer has committed")

    assert listed.failures == {}
    assert {name: listed.groups[name] for name in (classic, modern, plain)} == {
        classic: GroupListing(classic, GroupType.CLASSIC, "consumer", "Stable"),
        modern: GroupListing(modern, GroupType.CONSUMER, "consumer", listed.groups[modern].state),
        plain: GroupListing(plain, GroupType.CLASSIC, "", "Empty"),
    }
    assert busy == {
        classic: GroupDescription(classic, GroupType.CLASSIC, "consumer", "Stable", 1),
        modern: GroupDescription(modern, GroupType.CONSUMER, "consumer", busy[modern].state, 1),
        plain: GroupDescription(plain, GroupType.CLASSIC, "", "Empty"),
        nobody: GroupDescription(nobody, GroupType.CLASSIC, "", "Dead", exists=False),
    }
    assert {name: answer.is_idle for name, answer in busy.items()} == {
        classic: False,
        modern: False,
        plain: True,
        nobody: True,
    }
    assert (await describe(bootstrap, classic)).is_idle


async def test_offsets_are_read_and_committed_per_group(backup: KafkaCluster, prefix: str) -> None:
    """Many groups are asked at once, one without offsets has none, and each partition committed has its own answer."""
    bootstrap = backup.bootstrap_servers
    await create_topic(bootstrap, prefix, partitions=2)
    names = [f"{prefix}-{number}" for number in range(3)]
    first, second = TopicPartition(prefix, 0), TopicPartition(prefix, 1)
    async with groups_of(bootstrap) as groups:
        for number, name in enumerate(names):
            assert await groups.commit(name, {first: CommittedOffset(number, "mine")}) == {first: None}
        unknown = TopicPartition(f"{prefix}-no-such-topic", 0)
        refused = await groups.commit(names[0], {second: CommittedOffset(5), unknown: CommittedOffset(1)})
        read = await groups.committed([*names, f"{prefix}-nobody"])

    assert refused[second] is None
    assert refused[unknown].name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert read[names[0]] == {first: CommittedOffset(0, "mine"), second: CommittedOffset(5)}
    assert read[names[1]] == {first: CommittedOffset(1, "mine")}
    assert read[names[2]] == {first: CommittedOffset(2, "mine")}
    assert read[f"{prefix}-nobody"] == {}


async def test_a_commit_for_an_active_group_is_refused(backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """The broker itself keeps an admin from writing the offsets of a group with members, of either protocol."""
    bootstrap = backup.bootstrap_servers
    await create_topic(bootstrap, prefix)
    place = TopicPartition(prefix, 0)
    classic, modern = f"{prefix}-classic", f"{prefix}-modern"
    async with (
        member(bootstrap, classic, prefix),
        java_member(bootstrap, modern, prefix, tmp_path),
        groups_of(bootstrap) as groups,
    ):
        refused = [(await groups.commit(name, {place: CommittedOffset(1)}))[place] for name in (classic, modern)]

    assert [error and error.name for error in refused] == ["UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"]


async def test_a_coordinator_that_moves_is_followed(make_cluster: MakeCluster, prefix: str) -> None:
    """The broker that coordinates a group is killed: another takes over, is found, and knows the offsets."""
    cluster = make_cluster("moving", brokers=3)
    bootstrap, place = cluster.bootstrap_servers, TopicPartition(prefix, 0)
    await create_topic(bootstrap, prefix, replication=3)
    await produce_numbers(bootstrap, prefix, count=50, partitions=1)
    async with groups_of(bootstrap) as groups:
        names = [f"{prefix}-{number}" for number in range(6)]
        for name in names:
            await read_some(bootstrap, name, prefix, 20)
        before = await groups.committed(names)
        victim = groups._coordinators[names[0]]
        await asyncio.to_thread(cluster.kill, victim)
        after = await groups.committed(names)
        written = await groups.commit(names[0], {place: CommittedOffset(30)})

    assert before == {name: {place: CommittedOffset(20)} for name in names}
    assert after == before
    assert written == {place: None}
