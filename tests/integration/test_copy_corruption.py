"""A batch of which one bit has changed on the source broker's disk is never forwarded."""

from __future__ import annotations

import asyncio

import attrs

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.epoch import Ended
from mm2py.model.flow import TopicPartition
from tests.support.brokers import MakeCluster, flip_bit
from tests.support.copying import copying
from tests.support.eventually import scaled
from tests.support.producing import produce
from tests.support.reading import read_topic
from tests.support.records import NewRecord, assert_written, plain_records
from tests.support.topics import create_topic


async def test_one_flipped_bit_stops_its_partition_alone(
    backup: KafkaCluster, make_cluster: MakeCluster, prefix: str
) -> None:
    """
    Two partitions meet a damaged batch, one in a large batch and one in a backlog of one-record batches.

    They stop before it with a clear error, now and when they are tried again; the third partition goes on. Once an
    operator moves the position past the batch, what follows it is copied.
    """
    source = await asyncio.to_thread(make_cluster, "damaged", is_killed=True)
    written: list[list[NewRecord]] = [list(plain_records(600, start=1_000 * number)) for number in range(3)]
    await create_topic(source.bootstrap_servers, prefix, partitions=3)
    await produce(source.bootstrap_servers, prefix, [written[0], [], written[2]], codec="lz4", batch_records=100)
    await produce(source.bootstrap_servers, prefix, [[], written[1], []], batch_records=1)
    await asyncio.to_thread(source.terminate, 0, grace_s=scaled(60))
    flip_bit(source.nodes[0], prefix, 0, 300)
    flip_bit(source.nodes[0], prefix, 1, 437)
    await asyncio.to_thread(source.start, 0)

    remote = f"A.{prefix}"
    large, small, well = (TopicPartition(prefix, number) for number in range(3))
    async with copying(source, backup, {prefix: remote}) as task:
        await task.catch_up()
        again = dict(task.stopped)
        task.stopped.clear()
        await task.epoch()

        assert set(again) == set(task.stopped) == {large, small}
        for tp, offset in ((large, 300), (small, 437)):
            failure = task.failure(tp)

            assert task.stopped[tp].ended is Ended.FAILED
            assert (failure.error, failure.offset) == ("CorruptBatchError", offset)
            assert f"corrupt record batch at {tp} offset {offset}" in failure.message
            assert "healthy replica" in failure.hint
            assert (task.plans[tp].position, task.plans[tp].is_unsure) == (offset, False)
        assert task.plans[well].position == 600
        assert_written(
            [written[0][:300], written[1][:437], written[2]], await read_topic(backup.bootstrap_servers, remote)
        )

        task.stopped.clear()
        task.plans[large] = attrs.evolve(task.plans[large], position=400)
        task.plans[small] = attrs.evolve(task.plans[small], position=438)
        await task.catch_up()

    assert_written(
        [written[0][:300] + written[0][400:], written[1][:437] + written[1][438:], written[2]],
        await read_topic(backup.bootstrap_servers, remote),
    )
