"""Topics as a test needs them: made, grown, changed, deleted, compacted, moved between brokers, throttled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import InvalidReplicationFactorError, TopicAlreadyExistsError, for_code
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest

from bench.elections import ElectLeaders
from mm2py.clock import SystemClock
from mm2py.devkit.java import run_tool
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.wire.cluster import Cluster
from mm2py.wire.requests import LATEST
from mm2py.wire.topics.admin import Admin
from tests.support.eventually import eventually


_TIMEOUT_MS = 30_000


@asynccontextmanager
async def admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """Connect an admin client for a moment."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def looking_at(bootstrap: str) -> AsyncIterator[Cluster]:
    """Look at a cluster for a moment; nothing is connected before the first question."""
    cluster = Cluster(ClusterEndpoint("tests", tuple(bootstrap.split(",")), request_timeout_ms=20_000), SystemClock())
    try:
        yield cluster
    finally:
        await cluster.close()


@asynccontextmanager
async def client(bootstrap: str) -> AsyncIterator[AIOKafkaClient]:
    """Connect a bare client for requests that the admin client does not know."""
    bare = AIOKafkaClient(bootstrap_servers=bootstrap)
    await bare.bootstrap()
    try:
        yield bare
    finally:
        await bare.close()


async def create_topic(
    bootstrap: str,
    topic: str,
    *,
    partitions: int = 1,
    replication: int = 1,
    configs: Mapping[str, str] | None = None,
    replicas: Mapping[int, list[int]] | None = None,
) -> None:
    """
    Create a topic and wait until the leaders serve every partition; *replicas* places partitions on brokers by hand.

    A broker lists a topic a moment before it serves it: whoever asks once would be refused.
    """
    if replicas is None:
        new = NewTopic(topic, partitions, replication, topic_configs=dict(configs or {}))
    else:
        partitions = len(replicas)
        new = NewTopic(topic, -1, -1, replica_assignments=dict(replicas), topic_configs=dict(configs or {}))
    async with admin(bootstrap) as connected:

        async def is_created() -> bool:
            answer = await connected.create_topics([new])
            for _, code, message in answer.topic_errors:
                # Brokers that were busy for seconds do not count until their next heartbeat.
                assert code != InvalidReplicationFactorError.errno, message
                # A broker that waits long for the controller asks it again; names are a test's own.
                if code and code != TopicAlreadyExistsError.errno:
                    raise for_code(code)(message)
            return True

        await eventually(is_created, within_s=30, what=f"{topic} is created")
    await _await_served(bootstrap, topic, partitions)


async def _await_served(bootstrap: str, topic: str, partitions: int) -> None:
    async def is_served() -> bool:
        return len(await end_offsets(bootstrap, topic)) == partitions

    await eventually(is_served, within_s=30, what=f"every partition of {topic} is served by its leader", every_s=0.02)


async def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic and wait until it is no longer listed."""
    async with admin(bootstrap) as connected:
        await connected.delete_topics([topic])

    async def is_gone() -> bool:
        return topic not in await list_topics(bootstrap)

    await eventually(is_gone, within_s=30, what=f"{topic} is gone")


async def list_topics(bootstrap: str) -> set[str]:
    """Return the names of all topics, the brokers' own left out."""
    async with looking_at(bootstrap) as cluster:
        return {topic for topic in (await Admin(cluster).list_topics()).topics if not topic.startswith("__")}


async def grow_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Grow a topic to *partitions* and wait until the leaders serve them."""
    async with admin(bootstrap) as connected:
        await connected.create_partitions({topic: NewPartitions(partitions)})
    await _await_served(bootstrap, topic, partitions)


async def alter_topic(bootstrap: str, topic: str, configs: Mapping[str, str]) -> None:
    """Set a topic's configs to exactly these; the others go back to their defaults."""
    async with admin(bootstrap) as connected:
        (answer,) = await connected.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))])
        for code, message, *_ in answer.resources:
            if code:
                raise for_code(code)(message)


async def topic_configs(bootstrap: str, topic: str) -> dict[str, str]:
    """Return every config of a topic, defaults included."""
    async with admin(bootstrap) as connected:
        (answer,) = await connected.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        ((code, message, _, _, entries),) = answer.resources
        if code:
            raise for_code(code)(message)
        return {name: value for name, value, *_ in entries}


async def leaders(bootstrap: str, topic: str) -> dict[int, int]:
    """Return the leader's broker id of every partition that has one."""
    async with looking_at(bootstrap) as cluster:
        return await _leaders(cluster, topic)


async def await_led(bootstrap: str, topic: str) -> list[int]:
    """
    Return a topic's partitions, none while there is no such topic, once each has a leader.

    A broker that was busy for seconds is fenced, and leads nothing, until it has sent its next heartbeat.
    """
    async with looking_at(bootstrap) as cluster:

        async def found() -> tuple[list[int]]:
            led = await _leaders(cluster, topic)
            assert len(led) == len(cluster.partitions_of(topic)), f"only {sorted(led)} are led"
            return (sorted(led),)

        (partitions,) = await eventually(found, within_s=30, what=f"each partition of {topic} is led", every_s=0.05)
    return partitions


async def _leaders(cluster: Cluster, topic: str) -> dict[int, int]:
    await cluster.refresh_metadata([topic])
    found = {number: cluster.leader(TopicPartition(topic, number)) for number in cluster.partitions_of(topic)}
    return {number: leader for number, leader in found.items() if leader is not None}


async def end_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    """Return the high watermark of every partition that has a leader; none while there is no such topic."""
    async with looking_at(bootstrap) as cluster:
        return await ends_of(cluster, topic)


async def await_ends(bootstrap: str, topic: str, ends: Mapping[int, int]) -> None:
    """Wait until a topic ends there, partition by partition."""

    async def is_so() -> bool:
        found = await end_offsets(bootstrap, topic)
        assert found == ends, found
        return True

    await eventually(is_so, within_s=40, what=f"{topic} ends at {ends}", every_s=0.2)


async def ends_of(cluster: Cluster, topic: str, *, reads_committed: bool = False) -> dict[int, int]:
    """
    Return what `end_offsets` does, over connections that stay open for the next time.

    With *reads_committed* the end is the last stable offset.
    """
    places = [TopicPartition(topic, number) for number in await _leaders(cluster, topic)]
    ends: dict[int, int] = {}
    for place, offset in (await cluster.list_offsets(places, LATEST, reads_committed=reads_committed)).items():
        assert isinstance(offset, int), f"where does {place} end? {offset}"
        ends[place.partition] = offset
    return dict(sorted(ends.items()))


async def await_stable(bootstrap: str, topic: str) -> None:
    """
    Wait until no open transaction holds back anything that is in a topic now.

    The end of a transaction is answered before its markers are written: until then, they are not in the end offsets,
    and whoever reads what is committed does not see the last records.
    """
    async with looking_at(bootstrap) as cluster:
        ends = await ends_of(cluster, topic)

        async def is_stable() -> bool:
            stable = await ends_of(cluster, topic, reads_committed=True)
            return all(stable.get(partition, 0) >= end for partition, end in ends.items())

        await eventually(is_stable, within_s=60, what=f"no transaction is open in {topic}", every_s=0.02)


async def move_leaders(bootstrap: str, topic: str, to: Mapping[int, int]) -> None:
    """Make the given brokers leaders of the given partitions, of which they must be replicas, and wait for it."""
    async with admin(bootstrap) as connected:
        (described,) = await connected.describe_topics([topic])
    replicas = {entry["partition"]: entry["replicas"] for entry in described["partitions"]}
    ordered = {
        partition: [leader, *(replica for replica in replicas[partition] if replica != leader)]
        for partition, leader in to.items()
    }
    async with client(bootstrap) as connected:
        await _reassign(connected, topic, ordered)

        async def moved() -> bool:
            await _elect(connected, topic, list(to))
            now = await leaders(bootstrap, topic)
            return all(now.get(partition) == leader for partition, leader in to.items())

        await eventually(moved, within_s=30, what=f"{topic} is led by {dict(to)}", every_s=0.2)


def throttle_producers(bootstrap: str, bytes_per_s: int | None) -> None:
    """
    Let every client write no more than that to each broker, by a quota; None takes it away again. Blocking.

    Brokers look ten seconds back, so a burst of ten times that goes through; after it, connections are held up.
    """
    rate = "producer_byte_rate"
    run_tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", bootstrap, "--alter", "--entity-type", "clients", "--entity-default"),
        *(("--delete-config", rate) if bytes_per_s is None else ("--add-config", f"{rate}={bytes_per_s}")),
    )


async def _reassign(connected: AIOKafkaClient, topic: str, to: Mapping[int, list[int]]) -> None:
    partitions: list[tuple[int, list[int], dict[int, bytes]]] = [
        (partition, brokers, {}) for partition, brokers in to.items()
    ]
    request = AlterPartitionReassignmentsRequest(_TIMEOUT_MS, [(topic, partitions, {})], {})
    answer = await connected.send(await _any_broker(connected), request)
    codes = [answer.error_code, *(code for _, entries, _ in answer.responses for _, code, *_ in entries)]
    for code in codes:
        if code:
            raise for_code(code)(answer)


async def _elect(connected: AIOKafkaClient, topic: str, partitions: Iterable[int]) -> None:
    """Ask for the preferred leaders; what a partition answers shows in the leaders a moment later."""
    await connected.send(await _any_broker(connected), ElectLeaders([(topic, list(partitions))]))


async def _any_broker(connected: AIOKafkaClient) -> int:
    """Find a broker that takes connections; it passes such requests on to the controller."""
    for broker in connected.cluster.brokers():
        if await connected.ready(broker.nodeId):
            return int(broker.nodeId)
    message = "no broker takes a connection"
    raise AssertionError(message)
