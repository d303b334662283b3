"""Logs from before Kafka 0.11: messages of magic 0 and 1 that a broker of today still serves."""

from __future__ import annotations

import asyncio

from mm2py.devkit.broker import BrokerNode, KafkaCluster
from tests.support.batches import GZIP, LZ4, SNAPPY, START_MS, Content, build_batch, legacy_messages
from tests.support.brokers import MakeCluster
from tests.support.copying import copy_topics
from tests.support.eventually import scaled
from tests.support.reading import read_batches, read_topic
from tests.support.records import NewRecord, assert_written
from tests.support.topics import create_topic


def replace_log(node: BrokerNode, topic: str, log: bytes) -> None:
    """Put another log in the place of a stopped broker's empty one; it makes new indexes of it."""
    folder = node.data / f"{topic}-0"
    (segment,) = folder.glob("*.log")
    segment.write_bytes(log)
    for index in (*folder.glob("*.index"), *folder.glob("*.timeindex"), *folder.glob("*.snapshot")):
        index.unlink()


async def test_old_messages_arrive_as_batches(backup: KafkaCluster, make_cluster: MakeCluster, prefix: str) -> None:
    """Bare and compressed messages of both old formats, and batches after them, arrive with what they hold."""
    source = await asyncio.to_thread(make_cluster, "old", is_killed=True)
    await create_topic(source.bootstrap_servers, prefix)
    log, expected = b"", []
    for number, (magic, codec) in enumerate(
        [(0, 0), (0, GZIP), (1, 0), (1, GZIP), (1, SNAPPY), (1, LZ4), (1, 0), (2, GZIP), (2, 0)]
    ):
        records = [
            Content(delta, START_MS + 20 * number + delta, None if delta == 3 else b"k%d" % number, b"v" * 50 * delta)
            for delta in range(20)
        ]
        if magic == 2:
            log += build_batch(records, base_offset=20 * number, codec=codec)
        else:
            log += legacy_messages(magic, records, base_offset=20 * number, codec=codec)
        expected += [NewRecord(r.key, r.value, (), r.timestamp if magic else -1) for r in records]
    await asyncio.to_thread(source.terminate, 0, grace_s=scaled(60))
    replace_log(source.nodes[0], prefix, log)
    await asyncio.to_thread(source.start, 0)
    copied = await copy_topics(source, backup, {prefix: f"A.{prefix}"})

    assert_written([expected], await read_topic(backup.bootstrap_servers, f"A.{prefix}"))
    assert {batch.raw[16] for batch in await read_batches(backup.bootstrap_servers, f"A.{prefix}")} == {2}
    assert copied.total("batches_unopened") == 2
