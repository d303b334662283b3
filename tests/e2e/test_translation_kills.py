"""Offset translation by a daemon that is killed again and again while it copies."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from pathlib import Path

import pytest

from mm2py.core.offsets.translation import Translated
from mm2py.devkit.broker import KafkaCluster
from mm2py.flow.offsets.translations import Translations
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position, decode_position
from mm2py.model.run_chunk import KeptChunk, decode_chunk
from tests.support.daemon import daemon
from tests.support.mirrored import arrived, await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce_transactions
from tests.support.reading import read_topic
from tests.support.records import plain_records, spread
from tests.support.soaking import rounds
from tests.support.topics import await_stable, create_topic


_KILLS = rounds(0, soak=10)
_ROUNDS = 150


@pytest.mark.soak(only="groups' checkpoints are compared over kills, and translations without")
async def test_daemon_killed_while_it_copies_transactions(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """After SIGKILLs at random moments each offset of a transactional topic is translated to its record, both ways."""
    alias = "killed"
    keys = {"topics": prefix, f"{alias}.consumer.isolation.level": "read_committed", "copy.epoch.ms": 1000}
    flush = {"B.offset.flush.interval.ms": 1000}
    settings = mm2_properties(
        primary.bootstrap_servers, backup.bootstrap_servers, aliases=(alias, "B"), **keys, **flush
    )
    await create_topic(primary.bootstrap_servers, prefix, partitions=2)
    written = 0
    for kill in range(_KILLS + 1):
        some = [(n % 3 != 1, spread(plain_records(20, start=(kill * _ROUNDS + n) * 20), 2)) for n in range(_ROUNDS)]
        written += sum(20 for commits, _ in some if commits)
        before = await arrived(backup.bootstrap_servers, f"{alias}.{prefix}")
        async with daemon(tmp_path, settings) as running:
            writing = asyncio.create_task(
                produce_transactions(
                    primary.bootstrap_servers, prefix, some, transactional_id=f"{prefix}-{kill}", batch_records=3
                ),
                name="transactions",
            )
            await running.wait_for_event("flow_started")
            if kill < _KILLS:
                await await_arrived(backup.bootstrap_servers, f"{alias}.{prefix}", before + 1)
                await asyncio.sleep(random.uniform(0, 0.5))
                await running.kill()
                await writing
            else:
                await writing
                await await_arrived(backup.bootstrap_servers, f"{alias}.{prefix}", written)
                assert await running.sigterm() == 0
    source = await read_topic(primary.bootstrap_servers, prefix, reads_committed=True)
    remote = await read_topic(backup.bootstrap_servers, f"{alias}.{prefix}")
    translations = await _kept(backup, alias, prefix)

    for number in range(2):
        upstream = [record.offset for record in source[number]]
        downstream = [record.offset for record in remote[number]]
        assert [record.value for record in source[number]] == [record.value for record in remote[number]]
        for offset in range(upstream[-1] + 1):
            expected = Translated(downstream[bisect_left(upstream, offset)])
            assert translations.downstream(TopicPartition(prefix, number), offset) == expected
        for offset in range(downstream[-1] + 1):
            expected = Translated(upstream[bisect_left(downstream, offset)])
            assert translations.upstream(TopicPartition(f"{alias}.{prefix}", number), offset) == expected


async def _kept(target: KafkaCluster, alias: str, topic: str) -> Translations:
    """Return what the target keeps, as the next daemon would read it."""
    chunks: dict[tuple[TopicPartition, int], KeptChunk] = {}
    positions: dict[TopicPartition, Position] = {}
    topic_of_positions = f"mm2-offsets.{alias}.internal"
    await await_stable(target.bootstrap_servers, topic_of_positions)
    contents = await read_topic(target.bootstrap_servers, topic_of_positions, reads_committed=True)
    for record in (record for records in contents.values() for record in records):
        match decode_chunk(record.key, record.value), decode_position(record.key, record.value, record.headers):
            case (_, KeptChunk() as chunk), _:
                chunks[chunk.source, chunk.number] = chunk
            case None, (_, Position() as position):
                positions[position.source] = position
    translations = Translations(flow_runs=1_000_000, partition_runs=100_000)
    translations.load(chunks.values())
    translations.adopt(positions, dict.fromkeys(positions, f"{alias}.{topic}"))
    return translations
