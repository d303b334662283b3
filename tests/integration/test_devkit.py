"""What the other tests stand on: brokers, records written and read back, processes that are watched."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from aiokafka.errors import UnknownTopicOrPartitionError

from mm2py.devkit.broker import BrokerNotStartedError, KafkaCluster
from mm2py.devkit.jars import java_command, kafka_jars
from mm2py.devkit.process import start_process
from tests.support.brokers import MakeCluster, flip_bit
from tests.support.daemon import Daemon
from tests.support.eventually import eventually
from tests.support.java_mm2 import JavaMirrorMaker2, JavaMm2FailedError
from tests.support.producing import (
    CODECS,
    COMPACTED_CONFIGS,
    produce,
    produce_compacted,
    produce_numbers,
    produce_transactions,
)
from tests.support.reading import raw_record_set, read_batches, read_numbers, read_topic, split_batches
from tests.support.records import (
    NewRecord,
    assert_numbers,
    assert_same_records,
    assert_written,
    plain_records,
    spread,
    strange_records,
)
from tests.support.topics import (
    alter_topic,
    create_topic,
    delete_topic,
    end_offsets,
    grow_topic,
    list_topics,
    topic_configs,
)


def test_brokers_take_their_classes_from_their_archive(primary: KafkaCluster) -> None:
    """It is made before the first of them starts."""
    archive = kafka_jars().class_archive(java_command())

    assert archive.stat().st_size > 0
    assert str(archive) in Path(f"/proc/{primary.pid(0)}/maps").read_text()


async def test_two_clusters_answer_and_are_apart(primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> None:
    """A topic made on the primary cluster is there and not on the backup cluster."""
    await create_topic(primary.bootstrap_servers, prefix)

    assert prefix in await list_topics(primary.bootstrap_servers)
    assert prefix not in await list_topics(backup.bootstrap_servers)


@pytest.mark.parametrize("codec", CODECS)
async def test_strange_records_come_back_as_written(primary: KafkaCluster, prefix: str, codec: str | None) -> None:
    """Null, empty and odd keys, values, headers and timestamps survive the round trip in every codec."""
    written = spread(strange_records(2_000), 3)
    await create_topic(primary.bootstrap_servers, prefix, partitions=3)
    await produce(primary.bootstrap_servers, prefix, written, codec=codec)

    contents = await read_topic(primary.bootstrap_servers, prefix)
    batches = await read_batches(primary.bootstrap_servers, prefix)

    assert_written(written, contents)
    assert {codec or "none"} == {batch.codec for batch in batches}


async def test_same_records_are_told_from_different_ones(primary: KafkaCluster, prefix: str) -> None:
    """The comparison finds a changed header, a swapped order and a missing record."""
    written = [list(plain_records(20))]
    await create_topic(primary.bootstrap_servers, prefix)
    await produce(primary.bootstrap_servers, prefix, written, idempotent=True)
    contents = await read_topic(primary.bootstrap_servers, prefix)

    assert_same_records(contents, contents)
    first, second, *others = contents[0]
    for different in (
        [first._replace(headers=(("x", None),)), second, *others],
        [second, first, *others],
        [first, second, *others[:-1]],
    ):
        with pytest.raises(AssertionError):
            assert_same_records(contents, {0: different})


async def test_one_record_batches(primary: KafkaCluster, prefix: str) -> None:
    """A batch may be limited to one record."""
    await create_topic(primary.bootstrap_servers, prefix)
    await produce(primary.bootstrap_servers, prefix, [plain_records(50)], batch_records=1)

    batches = await read_batches(primary.bootstrap_servers, prefix)

    assert [batch.count for batch in batches] == [1] * 50


async def test_a_ten_mebibyte_record(primary: KafkaCluster, prefix: str) -> None:
    """A record of 10 MiB can be written and read back."""
    big = [NewRecord(b"k", bytes(10 * 1024 * 1024), (), 1)]
    await create_topic(primary.bootstrap_servers, prefix)
    await produce(primary.bootstrap_servers, prefix, [big], batch_bytes=11 * 1024 * 1024)

    contents = await read_topic(primary.bootstrap_servers, prefix)

    assert_written([big], contents)


async def test_transactions_commit_and_abort(primary: KafkaCluster, prefix: str) -> None:
    """Readers of committed records see the committed rounds, others see all of them."""
    rounds = [
        (commits, [list(plain_records(30, start=start))]) for start, commits in ((0, True), (30, False), (60, True))
    ]
    await create_topic(primary.bootstrap_servers, prefix)
    await produce_transactions(primary.bootstrap_servers, prefix, rounds, transactional_id=prefix, codec="lz4")

    committed = await read_numbers(primary.bootstrap_servers, prefix, reads_committed=True)
    everything = await read_numbers(primary.bootstrap_servers, prefix)
    batches = await read_batches(primary.bootstrap_servers, prefix)

    assert [*range(30), *range(60, 90)] == committed[0]
    assert [*range(90)] == everything[0]
    assert sum(batch.is_control for batch in batches) == 3


async def test_log_append_time(primary: KafkaCluster, prefix: str) -> None:
    """A topic with LogAppendTime shows the broker's timestamps and says so in type and batch header."""
    await create_topic(primary.bootstrap_servers, prefix, configs={"message.timestamp.type": "LogAppendTime"})
    await produce(primary.bootstrap_servers, prefix, [plain_records(10)])

    contents = await read_topic(primary.bootstrap_servers, prefix)
    batches = await read_batches(primary.bootstrap_servers, prefix)

    assert {1} == {record.timestamp_type for record in contents[0]}
    assert all(batch.is_log_append_time for batch in batches)


async def test_compaction_leaves_batches_with_holes(primary: KafkaCluster, prefix: str) -> None:
    """A compacted topic soon has batches with fewer records than their offsets span."""
    await create_topic(primary.bootstrap_servers, prefix, configs=COMPACTED_CONFIGS)
    await produce_compacted(primary.bootstrap_servers, prefix, partitions=1)

    async def has_holes() -> bool:
        return any(batch.has_holes for batch in await read_batches(primary.bootstrap_servers, prefix))

    await eventually(has_holes, within_s=30, what="the topic is compacted")


async def test_raw_record_sets_are_whole_batches(primary: KafkaCluster, prefix: str) -> None:
    """A raw fetch from inside a batch begins at that batch's base offset."""
    await create_topic(primary.bootstrap_servers, prefix)
    await produce(primary.bootstrap_servers, prefix, [plain_records(20)], batch_records=10)

    batches = split_batches(await raw_record_set(primary.bootstrap_servers, prefix, 0, 15))

    assert [(batch.base_offset, batch.count) for batch in batches] == [(10, 10)]


async def test_a_flipped_bit_reaches_the_reader(primary: KafkaCluster, prefix: str) -> None:
    """Damage in the broker's file is served as it is, in one batch only."""
    await create_topic(primary.bootstrap_servers, prefix)
    await produce(primary.bootstrap_servers, prefix, [plain_records(30)], batch_records=10)
    before = await read_batches(primary.bootstrap_servers, prefix)

    flip_bit(primary.nodes[0], prefix, 0, 10)
    after = await read_batches(primary.bootstrap_servers, prefix)

    assert [one.raw == other.raw for one, other in zip(before, after, strict=True)] == [True, False, True]


async def test_topics_grow_change_and_go(primary: KafkaCluster, prefix: str) -> None:
    """Partitions are added, configs set, and a deleted topic is gone."""
    await create_topic(primary.bootstrap_servers, prefix, partitions=1)
    await grow_topic(primary.bootstrap_servers, prefix, 4)
    await alter_topic(primary.bootstrap_servers, prefix, {"max.message.bytes": "5000"})

    configs = await topic_configs(primary.bootstrap_servers, prefix)

    assert configs["max.message.bytes"] == "5000"
    assert {0, 1, 2, 3} == set(await end_offsets(primary.bootstrap_servers, prefix))

    await delete_topic(primary.bootstrap_servers, prefix)

    with pytest.raises(UnknownTopicOrPartitionError):
        await topic_configs(primary.bootstrap_servers, prefix)


async def test_numbered_records_are_fast(primary: KafkaCluster, prefix: str) -> None:
    """A hundred thousand numbered records are written in about a second, each once and in order."""
    await create_topic(primary.bootstrap_servers, prefix, partitions=4)
    await produce_numbers(primary.bootstrap_servers, prefix, count=100_000, partitions=4)

    assert_numbers(await read_numbers(primary.bootstrap_servers, prefix), 100_000)


def test_a_broker_that_cannot_start_says_why(make_cluster: MakeCluster) -> None:
    """A wrong setting ends in one error that carries the broker's own words."""
    with pytest.raises(BrokerNotStartedError, match="Invalid value many"):
        make_cluster("wrong", properties={"num.io.threads": "many"})
    with pytest.raises(BrokerNotStartedError, match="exit code 1"):
        make_cluster("elsewhere", properties={"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://192.0.2.1:9"})


def test_java_mirror_maker_2_that_cannot_start_says_why(tmp_path: Path) -> None:
    """A missing properties file ends in one error that carries Java's own words."""
    java = JavaMirrorMaker2(tmp_path / "none.properties", log_file=tmp_path / "java.log")

    with pytest.raises(JavaMm2FailedError, match=r"none\.properties"):
        java.start()


async def test_the_daemon_is_watched_through_its_log(tmp_path: Path) -> None:
    """Events are found by name and facts, other lines are passed over, and the exit code is told."""
    process = start_process("the daemon", [sys.executable, "-u", "-c", _TALKER], log_file=tmp_path / "daemon.log")
    watched = Daemon(process, 0)
    try:
        event = await watched.wait_for_event("flow_started", flow="A->B")

        assert event["task"] == 2
        assert [event["flow"] for event in watched.events("flow_started")] == ["B->A", "A->B"]
        assert await watched.sigterm() == 7

        with pytest.raises(RuntimeError, match="never logged flow_stopped"):
            await watched.wait_for_event("flow_stopped")
    finally:
        await watched.kill()


_TALKER = """
import json, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("not an event")
print("{half an event")
print(json.dumps({"event": "flow_started", "flow": "B->A"}))
print(json.dumps({"event": "flow_started", "flow": "A->B", "task": 2}))
time.sleep(60)
"""
