"""The wire's control side with real brokers: metadata, offsets, admin verbs, topic logs, and Java MM2's positions."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiokafka.partitioner import DefaultPartitioner

from mm2py.clock import SystemClock
from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.java import JvmOptions
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position, decode_position, encode_position
from mm2py.model.topic import ConfigSource, NewTopic
from mm2py.wire.cluster import Cluster
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.requests import EARLIEST, EARLIEST_LOCAL, LATEST
from mm2py.wire.topic_log import LogRecord, TooFewBrokersError, TopicLog
from mm2py.wire.topics.admin import Admin
from tests.support.brokers import MakeCluster
from tests.support.eventually import eventually, scaled
from tests.support.java_mm2 import JavaMirrorMaker2
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce, producer
from tests.support.records import plain_records, spread
from tests.support.topics import create_topic, end_offsets, list_topics, move_leaders


SETTING = "offset.storage.replication.factor"


def connect(kafka: KafkaCluster, alias: str = "B") -> Cluster:
    endpoint = ClusterEndpoint(alias, tuple(kafka.bootstrap_servers.split(",")), request_timeout_ms=20_000)
    return Cluster(endpoint, SystemClock())


@pytest.fixture
async def cluster(backup: KafkaCluster) -> AsyncIterator[Cluster]:
    async with connect(backup) as cluster:
        yield cluster


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


async def test_sockets_get_the_buffers_that_are_asked_for(backup: KafkaCluster) -> None:
    """send.buffer.bytes and receive.buffer.bytes reach the socket; Linux doubles what it is asked for."""
    host, _, port = backup.bootstrap_servers.split(",")[0].partition(":")
    endpoint = ClusterEndpoint("B", (backup.bootstrap_servers,), send_buffer_bytes=20_000, receive_buffer_bytes=30_000)
    connection = await BrokerConnection.open(endpoint, host, int(port))
    assert connection._transport is not None
    line = connection._transport.get_extra_info("socket")
    sizes = [line.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
    connection.close()

    assert sizes == [40_000, 60_000]


async def test_topics_are_created_grown_and_listed(cluster: Cluster, prefix: str) -> None:
    """Topics come into being with their configs, grow, and are listed with id and leaders; errors are per topic."""
    admin = Admin(cluster)
    too_many = f"{prefix}-too-many-replicas"
    new = [
        NewTopic(prefix, 3, -1, {"max.message.bytes": "2000000"}),
        NewTopic(too_many, 1, 5),
        NewTopic("no good", 1, 1),
    ]
    created = await admin.create_topics(new)
    again = await admin.create_topics(new[:1])
    grown = await admin.grow_partitions({prefix: 5})
    shrunk = await admin.grow_partitions({prefix: 2, too_many: 3})

    async def has_grown() -> bool:
        listed = (await admin.list_topics()).topics
        return prefix in listed and len(listed[prefix].partitions) == 5

    await eventually(has_grown, within_s=20, what="the topic has five partitions")
    view = await admin.list_topics()
    await cluster.refresh_metadata([prefix])

    assert created[prefix] is None
    assert [created[too_many].name, created["no good"].name] == [
        "INVALID_REPLICATION_FACTOR",
        "INVALID_TOPIC_EXCEPTION",
    ]
    assert again[prefix].name == "TOPIC_ALREADY_EXISTS"
    assert grown == {prefix: None}
    assert [shrunk[prefix].name, shrunk[too_many].name] == ["INVALID_PARTITIONS", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert view.topics[prefix].partitions == dict.fromkeys(range(5), cluster.metadata.controller_id)
    assert len(view.topics[prefix].topic_id) == 22
    assert view.topics[prefix].topic_id == cluster.topic_id(prefix)
    assert too_many not in view.topics


async def test_configs_are_described(cluster: Cluster, backup: KafkaCluster, prefix: str) -> None:
    """A topic's own configs and Kafka's defaults are distinguished; a broker reports its own."""
    admin = Admin(cluster)
    await create_topic(backup.bootstrap_servers, prefix, configs={"retention.ms": "-1"})
    described = await admin.topic_configs([prefix, "nowhere"])
    one = await admin.topic_configs([prefix], ["max.message.bytes"])
    broker = await admin.broker_configs(["message.max.bytes"])

    assert (described[prefix]["retention.ms"].value, described[prefix]["retention.ms"].source) == (
        "-1",
        ConfigSource.TOPIC,
    )
    assert described[prefix]["cleanup.policy"].is_default
    assert described["nowhere"].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(one[prefix]) == ["max.message.bytes"]
    assert one[prefix]["max.message.bytes"].value == broker["message.max.bytes"].value
    assert broker["message.max.bytes"].source is ConfigSource.STATIC_BROKER


async def test_offsets_are_listed(cluster: Cluster, backup: KafkaCluster, prefix: str) -> None:
    """Start, end, committed end and the start of what leaders have themselves come from the leaders."""
    await create_topic(backup.bootstrap_servers, prefix, partitions=2)
    await produce(backup.bootstrap_servers, prefix, [list(plain_records(10)), list(plain_records(3))])
    first, second = partitions_of(prefix, 2)
    async with producer(backup.bootstrap_servers, transactional_id=prefix) as writing:
        await writing.begin_transaction()
        await writing.send_and_wait(prefix, b"open", partition=0, timestamp_ms=1)
        end = await cluster.list_offsets([first, second], LATEST)
        committed_end = await cluster.list_offsets([first, second], LATEST, reads_committed=True)
        await writing.abort_transaction()
    start = await cluster.list_offsets([first, second], EARLIEST)
    local = await cluster.list_offsets([first, second], EARLIEST_LOCAL)

    assert end == {first: 11, second: 3}
    assert committed_end == {first: 10, second: 3}
    assert start == local == {first: 0, second: 0}


async def test_a_log_is_made_written_and_read(cluster: Cluster, prefix: str) -> None:
    """An internal topic is created once, compacted; what is appended is read back by partition and offset."""
    log = TopicLog(cluster, prefix)
    with pytest.raises(TooFewBrokersError, match=r"offset\.storage\.replication\.factor 3 > 1 broker of cluster B"):
        await log.create(25, 3, setting=SETTING)
    for _ in range(2):
        await log.create(25, 1, setting=SETTING)
    empty = await log.read_all()
    written = [LogRecord(b"key-%d" % number, b"%d" % number, (("h", b"x"), ("n", None))) for number in range(5_000)]
    await log.append(written)
    await log.append([LogRecord(b"fixed", None, partition=0, timestamp_ms=123)])
    read = await log.read_all()
    configs = await Admin(cluster).topic_configs([prefix], ["cleanup.policy"])

    choose = DefaultPartitioner()
    numbers = list(range(25))
    assert empty == []
    assert len(read) == 5_001
    assert {(record.key, record.value, record.headers) for record in read} >= {
        (record.key, record.value, record.headers) for record in written
    }
    assert all(record.partition == choose(record.key, numbers, numbers) for record in read if record.key != b"fixed")
    assert [(record.value, record.timestamp_ms) for record in read if record.key == b"fixed"] == [(None, 123)]
    assert [(r.partition, r.offset) for r in read] == sorted((r.partition, r.offset) for r in read)
    assert configs[prefix]["cleanup.policy"].value == "compact"


async def test_a_log_written_in_transactions(cluster: Cluster, backup: KafkaCluster, prefix: str) -> None:
    """Positions that an exactly-once MM2 wrote are read once committed, never when aborted or still open."""
    log = TopicLog(cluster, prefix)
    await log.create(1, 1, setting=SETTING)
    async with producer(backup.bootstrap_servers, transactional_id=prefix) as writing:
        for number, ends in enumerate(["commit", "abort", "commit", "abort"]):
            await writing.begin_transaction()
            await writing.send_and_wait(prefix, b"%d" % number, key=b"k")
            await (writing.commit_transaction() if ends == "commit" else writing.abort_transaction())
        after_abort = await log.read_all()
        await writing.begin_transaction()
        await writing.send_and_wait(prefix, b"open", key=b"k")
        while_open = await log.read_all()
        await writing.abort_transaction()

    assert [record.value for record in after_abort] == [b"0", b"2"]
    assert [record.value for record in while_open] == [b"0", b"2"]


@pytest.mark.soak(only="leaders of copied partitions move elsewhere")
async def test_leaders_move_and_brokers_go(make_cluster: MakeCluster, prefix: str) -> None:
    """With three brokers, offsets, logs and admin verbs go on when leaders move and brokers die and come back."""
    kafka = await asyncio.to_thread(make_cluster, "three", brokers=3)
    async with connect(kafka) as cluster:
        log = TopicLog(cluster, prefix)
        await log.create(3, 3, setting=SETTING)
        wanted = partitions_of(prefix, 3)

        async def step(number: int) -> int:
            await log.append([LogRecord(b"k", b"%d" % number, partition=tp.partition) for tp in wanted])
            created = await Admin(cluster).create_topics([NewTopic(f"{prefix}-{number}", 1, 1)])
            ends = await cluster.list_offsets(wanted, LATEST)
            assert created == {f"{prefix}-{number}": None}
            return sum(ends.values())

        seen = [await step(0)]
        await move_leaders(kafka.bootstrap_servers, prefix, {0: 2, 1: 2, 2: 2})
        seen.append(await step(1))
        await asyncio.to_thread(kafka.kill, 2)
        seen.append(await step(2))
        await asyncio.to_thread(kafka.start, 2)
        await move_leaders(kafka.bootstrap_servers, prefix, {0: 2})
        await asyncio.to_thread(kafka.terminate, 2, grace_s=scaled(30))
        await asyncio.to_thread(kafka.start, 2)
        seen.append(await step(3))
        records = await log.read_all()

    values = [[int(record.value) for record in records if record.partition == number] for number in range(3)]
    # An answer lost with its broker is written again: never fewer, never out of order.
    assert all(sorted(set(found)) == [0, 1, 2, 3] and found == sorted(found) for found in values)
    assert seen[:2] == [3, 6]


async def test_java_mm2_and_we_read_each_other_s_positions(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Java MM2 4.3.1 goes on at our position, although it has headers; its own positions equal ours byte for byte."""
    fresh, begun = f"{prefix}-fresh", f"{prefix}-begun"
    for topic in (fresh, begun):
        await create_topic(primary.bootstrap_servers, topic, partitions=3)
        await produce(primary.bootstrap_servers, topic, spread(plain_records(300), 3))
    ours = [Position(tp, 60, downstream=59, topic_id="AAAAAAAAAAAAAAAAAAAAAQ") for tp in partitions_of(begun, 3)]
    async with connect(backup) as cluster:
        log = TopicLog(cluster, "mm2-offsets.A.internal")
        await log.create(25, 1, setting=SETTING)
        encoded = [encode_position("A", position) for position in ours]
        await log.append([LogRecord(key, value, tuple(headers)) for key, value, headers in encoded])

        async def are_stored() -> bool:
            stored = {record.key: record.value for record in await log.read_all()}
            ends = [encode_position("A", Position(tp, 100)) for it in (fresh, begun) for tp in partitions_of(it, 3)]
            assert [stored.get(key) for key, *_ in ends] == [value for _, value, _ in ends], stored
            return True

        await _mirror_with_java(primary, backup, tmp_path, {f"A.{fresh}": 300, f"A.{begun}": 120}, are_stored)
        records = await log.read_all()

    latest = {record.key: record for record in records}
    theirs = [latest[encode_position("A", Position(tp, 0))[0]] for tp in partitions_of(fresh, 3)]
    decoded = [decode_position(record.key, record.value, record.headers) for record in theirs]
    choose = DefaultPartitioner()
    numbers = list(range(len({record.partition for record in records} | set(range(25)))))
    assert decoded == [("A", Position(tp, 100)) for tp in partitions_of(fresh, 3)]
    assert [(record.key, record.value, ()) for record in theirs] == [
        encode_position("A", Position(tp, 100)) for tp in partitions_of(fresh, 3)
    ]
    assert [record.partition for record in theirs] == [choose(record.key, numbers, numbers) for record in theirs]
    taken_over = [latest[key] for key, _, _ in encoded]
    assert [decode_position(record.key, record.value, record.headers) for record in taken_over] == [
        ("A", Position(tp, 100)) for tp in partitions_of(begun, 3)
    ]


async def _mirror_with_java(
    primary: KafkaCluster,
    backup: KafkaCluster,
    folder: Path,
    wanted: dict[str, int],
    are_stored: Callable[[], Awaitable[bool]],
) -> None:
    """
    Run Java MM2 until the remote topics hold as many records as *wanted* and positions *are_stored*, then stop it.

    On a busy machine it ends before it has written the last ones.
    """
    settings = folder / "mm2.properties"
    topics = ",".join(remote.removeprefix("A.") for remote in wanted)
    servers = (primary.bootstrap_servers, backup.bootstrap_servers)
    keys = {"A->B.topics": topics, "B.offset.flush.interval.ms": 1_000}
    settings.write_text(mm2_properties(*servers, **keys))

    async def mirrored() -> bool:
        assert wanted.keys() <= await list_topics(backup.bootstrap_servers)
        counts = {topic: sum((await end_offsets(backup.bootstrap_servers, topic)).values()) for topic in wanted}
        assert counts == wanted
        return True

    java = JavaMirrorMaker2(settings, log_file=folder / "java.log", jvm=JvmOptions(heap_mb=256))
    await asyncio.to_thread(java.start)
    try:
        await eventually(mirrored, within_s=90, what="Java MM2 has copied what it should", every_s=0.5)
        await eventually(are_stored, within_s=30, what="Java MM2 has written its positions", every_s=0.5)
        await asyncio.to_thread(java.stop)
    finally:
        await asyncio.to_thread(java.kill)
