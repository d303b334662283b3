"""The daemon is killed at random moments, again and again, while groups commit: translated offsets stay true."""

from __future__ import annotations

import asyncio
import bisect
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
from aiokafka import AIOKafkaConsumer

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.checkpoint import Checkpoint, decode_checkpoint
from mm2py.model.flow import TopicPartition
from tests.support.daemon import daemon
from tests.support.eventually import eventually
from tests.support.groups import committed, member
from tests.support.mm2_file import mm2_properties
from tests.support.producing import producer
from tests.support.reading import read_topic
from tests.support.records import plain_records
from tests.support.soaking import rounds
from tests.support.topics import await_stable, create_topic, list_topics


_KILLS = rounds(0, soak=20)
_PARTITIONS = 2
_PER_TRANSACTION = 40
#: A life is killed within a moment of one of these events, which take turns.
_MOMENTS = ("checkpoints_written", "spark_started", "group_offsets_synced", "flow_started", "positions_written")
_LONGER_S = 1.5


@asynccontextmanager
async def _payments(bootstrap: str, topic: str) -> AsyncIterator[None]:
    """Write one transaction after the other, every fourth one aborted, as long as the block lasts."""

    async def write() -> None:
        number = 0
        async with producer(bootstrap, transactional_id=topic) as connected:
            while not is_over.is_set():
                await connected.begin_transaction()
                for record in plain_records(_PER_TRANSACTION, start=number, size=40):
                    await connected.send(topic, record.value, partition=number // _PER_TRANSACTION % _PARTITIONS)
                    number += 1
                end = (
                    connected.abort_transaction if number // _PER_TRANSACTION % 4 == 0 else connected.commit_transaction
                )
                await end()

    is_over = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write(), name="payments")
        try:
            yield
        finally:
            is_over.set()


@asynccontextmanager
async def _reader(bootstrap: str, group: str, topic: str) -> AsyncIterator[AIOKafkaConsumer]:
    """Read a little at a time and commit, as a member of *group*, as long as the block lasts."""

    async def read() -> None:
        while not is_over.is_set():
            if await consumer.getmany(timeout_ms=100, max_records=37):
                await consumer.commit()

    is_over = asyncio.Event()
    async with member(bootstrap, group, topic) as consumer, asyncio.TaskGroup() as tasks:
        tasks.create_task(read(), name="reader")
        try:
            yield consumer
        finally:
            is_over.set()


@attrs.frozen
class _Offsets:
    """Where the records of a topic lie, partition by partition, at the source and at the target."""

    source: dict[int, list[int]]
    target: dict[int, list[int]]

    def truth(self, partition: int, upstream: int) -> int:
        """Return the offset at the target of the first record that a group at *upstream* has not read."""
        behind, there = bisect.bisect_left(self.source[partition], upstream), self.target[partition]
        return there[behind] if behind < len(there) else there[-1] + 1


async def _offsets(source: str, topic: str, target: str, remote_topic: str) -> _Offsets:
    """Wait until all that was written has arrived."""
    await await_stable(source, topic)

    async def all_there() -> _Offsets:
        written, arrived = await _offsets_of(source, topic), await _offsets_of(target, remote_topic)
        assert {n: len(there) for n, there in arrived.items()} == {n: len(there) for n, there in written.items()}
        return _Offsets(written, arrived)

    return await eventually(all_there, within_s=60, what="every record has arrived", every_s=0.5)


async def _offsets_of(bootstrap: str, topic: str) -> dict[int, list[int]]:
    contents = await read_topic(bootstrap, topic, reads_committed=True)
    return {number: [record.offset for record in records] for number, records in contents.items()}


async def _checkpoints(bootstrap: str, topic: str, group: str) -> dict[int, Checkpoint]:
    """
    Return the checkpoints of *group* by their offset in the checkpoints topic; none while there is no such topic.

    What a killed daemon had not committed yet does not count: the next one has it aborted, and may go on below it.
    """
    if topic not in await list_topics(bootstrap):
        return {}
    records = (await read_topic(bootstrap, topic, reads_committed=True))[0]
    found = {record.offset: decode_checkpoint(record.key, record.value) for record in records}
    return {offset: checkpoint for offset, checkpoint in found.items() if checkpoint.group == group}


def _properties(source: str, target: str, alias: str, keys: dict[str, object]) -> str:
    """Return a file by which groups of committed records are translated and synced every second."""
    return mm2_properties(
        source,
        target,
        aliases=(alias, "B"),
        **{
            "log.level": "debug",
            "copy.epoch.ms": 500,
            "emit.checkpoints.interval.seconds": 1,
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": 1,
            "offset-syncs.topic.location": "target",
            f"{alias}.consumer.isolation.level": "read_committed",
            "B.offset.flush.interval.ms": 1000,
            **keys,
        },
    )


@pytest.mark.soak(only="mirrors are killed while groups commit in tests/simulated, too")
async def test_translated_offsets_survive_kills(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    After SIGKILLs checkpoints never go backwards, and no group is ever ahead of what it read at the source.

    In the end both checkpoint and synced offset are the very record that the group reads next.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    alias, group = f"K{random.randrange(10**6)}", f"{prefix}-group"
    remote = f"{alias}.{prefix}"
    settings = _properties(source, target, alias, {"topics": prefix, "groups": group})
    await create_topic(source, prefix, partitions=_PARTITIONS)
    written: dict[int, Checkpoint] = {}
    seen: list[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]] = []
    async with _payments(source, prefix), _reader(source, group, prefix):
        for moment in itertools.islice(itertools.cycle(_MOMENTS), _KILLS):
            async with daemon(tmp_path, settings) as life:
                await life.wait_for_event(moment)
                await asyncio.sleep(random.uniform(0, _LONGER_S))
                await life.kill()
            # The topic is compacted, so it is read while the records are still there.
            written |= await _checkpoints(target, f"{alias}.checkpoints.internal", group)
            at_target = await committed(target, group)
            seen.append((at_target, await committed(source, group)))
    async with daemon(tmp_path, settings) as last:
        await last.wait_for_event("flow_started")
        offsets = await _offsets(source, prefix, target, remote)
        final = await committed(source, group)
        truth = {
            TopicPartition(remote, tp.partition): offsets.truth(tp.partition, upstream)
            for tp, upstream in final.items()
        }

        async def is_synced() -> bool:
            found = await committed(target, group)
            assert found == truth, f"{found} instead of {truth}"
            written.update(await _checkpoints(target, f"{alias}.checkpoints.internal", group))
            pointed = {it.remote: it.downstream for _, it in sorted(written.items())}
            assert pointed == truth, f"checkpoints at {pointed} instead of {truth}"
            return True

        await eventually(is_synced, within_s=60, what="the group stands at the same record on both sides")
    checkpoints = [checkpoint for _, checkpoint in sorted(written.items())]

    assert len(checkpoints) > _KILLS
    for partition in {checkpoint.remote for checkpoint in checkpoints}:
        own = [checkpoint for checkpoint in checkpoints if checkpoint.remote == partition]

        assert [it.upstream for it in own] == sorted(it.upstream for it in own)
        assert [it.downstream for it in own] == sorted(it.downstream for it in own)
        assert all(it.downstream <= offsets.truth(partition.partition, it.upstream) for it in own)
    for at_target, at_source in seen:
        for partition, downstream in at_target.items():
            upstream = at_source[TopicPartition(prefix, partition.partition)]
            assert downstream <= offsets.truth(partition.partition, upstream)
