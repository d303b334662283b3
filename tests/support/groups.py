"""Consumer groups of every kind: classic ones, KIP-848 ones by Java's consumer, and offsets merely committed."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition as Place

from mm2py.clock import SystemClock
from mm2py.devkit.java import JvmOptions
from mm2py.devkit.process import start_process
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset, GroupDescription
from mm2py.wire.cluster import Cluster
from mm2py.wire.groups.consumer_groups import Groups
from mm2py.wire.groups.membership import Membership
from tests.support.eventually import eventually


_POLL_MS = 500


@asynccontextmanager
async def groups_of(bootstrap: str, alias: str = "B") -> AsyncIterator[Groups]:
    """Connect to a cluster to ask about its groups."""
    endpoint = ClusterEndpoint(alias, tuple(bootstrap.split(",")), request_timeout_ms=20_000)
    async with Cluster(endpoint, SystemClock()) as cluster:
        yield Groups(cluster)


async def throw_out(group: Membership, chance: random.Random, count: int) -> None:
    """Remove members of a flow's group as a coordinator does whose session is over."""
    members = [member.member_id for member in (await group.look()).members]
    for member_id in chance.sample(members, min(count, len(members))):
        await group.remove(member_id)


async def committed(bootstrap: str, group: str) -> dict[TopicPartition, int]:
    """Return the offsets that a group committed."""
    async with groups_of(bootstrap) as groups:
        answer = (await groups.committed([group]))[group]
    assert isinstance(answer, dict), answer
    return {tp: offset.offset for tp, offset in answer.items()}


async def describe(bootstrap: str, group: str) -> GroupDescription:
    """Describe a group."""
    async with groups_of(bootstrap) as groups:
        answer = (await groups.describe([group]))[group]
    assert isinstance(answer, GroupDescription), answer
    return answer


async def commit_plainly(bootstrap: str, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit as a consumer does that assigns partitions to itself and never joins its group."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        places = {Place(tp.topic, tp.partition): offset for tp, offset in offsets.items()}
        consumer.assign(list(places))
        await consumer.commit(places)
    finally:
        await consumer.stop()


async def commit_as_admin(bootstrap: str, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
    """Commit for a group without members; the first coordinator of a new cluster takes a moment to find its log."""
    async with groups_of(bootstrap) as groups:

        async def is_taken() -> bool:
            return not any((await groups.commit(group, offsets)).values())

        await eventually(is_taken, within_s=30, what=f"{group} is committed")


@asynccontextmanager
async def member(bootstrap: str, group: str, *topics: str) -> AsyncIterator[AIOKafkaConsumer]:
    """Be a member of a classic group for the length of the block; nothing is committed by itself."""
    consumer = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=10_000,
        heartbeat_interval_ms=500,
        isolation_level="read_committed",
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


#: A record as groups remember it: its partition and value.
Seen = tuple[int, bytes | None]


async def read_some(bootstrap: str, group: str, topic: str, count: int) -> list[Seen]:
    """Read *count* records as a member of a classic group and commit behind them; return partitions and values."""
    values: list[Seen] = []
    async with member(bootstrap, group, topic) as consumer:

        async def enough() -> bool:
            found = await consumer.getmany(timeout_ms=_POLL_MS, max_records=count - len(values))
            values.extend((record.partition, record.value) for records in found.values() for record in records)
            return len(values) >= count

        await eventually(enough, within_s=60, what=f"{group} reads {count} records of {topic}", every_s=0)
        await consumer.commit()
    return values


async def read_rest(bootstrap: str, group: str, topic: str) -> list[Seen]:
    """Read as a member of a classic group up to the topic's end and commit; return partitions and values, if any."""
    values: list[Seen] = []
    async with member(bootstrap, group, topic) as consumer:

        async def is_over() -> bool:
            found = await consumer.getmany(timeout_ms=_POLL_MS)
            values.extend((record.partition, record.value) for records in found.values() for record in records)
            places = consumer.assignment()
            ends = await consumer.end_offsets(places)
            return bool(places) and all([await consumer.position(place) >= ends[place] for place in places])

        await eventually(is_over, within_s=120, what=f"{group} reads {topic} to its end", every_s=0)
        await consumer.commit()
    return values


@asynccontextmanager
async def java_member(bootstrap: str, group: str, topic: str, work_dir: Path) -> AsyncIterator[None]:
    """Let Java's console consumer be a member of a KIP-848 group; it commits what it reads every 100 ms."""
    command = JvmOptions(heap_mb=96).command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--from-beginning"),
        *("--command-property", "group.protocol=consumer", "--command-property", "auto.commit.interval.ms=100"),
    )
    process = start_process("a KIP-848 consumer", command, log_file=work_dir / f"{group}.log")
    try:

        async def is_in() -> bool:
            return (await describe(bootstrap, group)).members == 1

        await eventually(is_in, within_s=60, what=f"{group} has a member")
        yield
    finally:
        process.kill()
