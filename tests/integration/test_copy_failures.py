"""Brokers die, leaders move: each record arrives once, in order."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.devkit.broker import KafkaCluster
from tests.support.brokers import MakeCluster
from tests.support.copying import Copying, assert_exactly_once, copying
from tests.support.producing import NumberedStream, numbered_stream
from tests.support.reading import read_numbers
from tests.support.records import assert_numbers
from tests.support.topics import create_topic, leaders, move_leaders


PARTITIONS = 4
RECORDS = 50_000

#: Three replicas of which two must have a record: what is acknowledged survives the loss of one broker.
REPLICATED = {"min.insync.replicas": "2"}


async def copy_stream(task: Copying, stream: NumberedStream, calm: asyncio.Event) -> None:
    """Copy while the stream runs and things happen, and what is left then."""
    await task.run(lambda: calm.is_set() and stream.sent >= RECORDS, within_s=150)
    await task.catch_up(within_s=120)


async def check(task: Copying, target: KafkaCluster, remote: str) -> None:
    assert_numbers(await read_numbers(target.bootstrap_servers, remote), RECORDS)
    assert_exactly_once(task)
    assert task.total("foreign_records") == 0
    assert sum(outcome.retries for outcome in task.outcomes) > 0
    assert not task.stopped


@pytest.mark.parametrize("side", ["target", "source"])
async def test_broker_killed_in_the_middle_of_a_stream(
    primary: KafkaCluster, backup: KafkaCluster, make_cluster: MakeCluster, prefix: str, side: str
) -> None:
    """The only broker of a cluster is killed with SIGKILL and started again while 50 000 records pass."""
    mortal = await asyncio.to_thread(make_cluster, "mortal", is_killed=True)
    source, target = (mortal, backup) if side == "source" else (primary, mortal)
    remote = f"A.{prefix}"
    await create_topic(source.bootstrap_servers, prefix, partitions=PARTITIONS)
    async with (
        copying(source, target, {prefix: remote}) as task,
        numbered_stream(
            source.bootstrap_servers, prefix, count=RECORDS, partitions=PARTITIONS, rate=8_000, codec="lz4"
        ) as stream,
        asyncio.TaskGroup() as tasks,
    ):
        calm = asyncio.Event()
        copied = tasks.create_task(copy_stream(task, stream, calm))
        await stream.reached(RECORDS // 3)
        await asyncio.to_thread(mortal.kill, 0)
        await asyncio.sleep(1)
        await asyncio.to_thread(mortal.start, 0)
        calm.set()
        await copied
    await check(task, target, remote)


async def test_leaders_moved_and_brokers_killed_on_clusters_of_three(make_cluster: MakeCluster, prefix: str) -> None:
    """
    With three brokers on each side, leaders move and one broker of each side is killed while 50 000 records pass.

    Killed brokers stay away for the rest of the stream: others lead their partitions.
    """
    source, target = await asyncio.gather(
        asyncio.to_thread(make_cluster, "three-source", brokers=3),
        asyncio.to_thread(make_cluster, "three-target", brokers=3),
    )
    remote = f"A.{prefix}"
    replicas = {number: [number % 3, (number + 1) % 3, (number + 2) % 3] for number in range(PARTITIONS)}
    await create_topic(source.bootstrap_servers, prefix, replicas=replicas, configs=REPLICATED)
    await create_topic(target.bootstrap_servers, remote, replicas=replicas, configs=REPLICATED)
    async with (
        copying(source, target, {prefix: remote}) as task,
        numbered_stream(source.bootstrap_servers, prefix, count=RECORDS, partitions=PARTITIONS, rate=5_000) as stream,
        asyncio.TaskGroup() as tasks,
    ):
        calm = asyncio.Event()
        copied = tasks.create_task(copy_stream(task, stream, calm))
        await stream.reached(7_500)
        for cluster, topic in ((source, prefix), (target, remote)):
            to = {number: (number + 1) % 3 for number in range(PARTITIONS)}
            await move_leaders(cluster.bootstrap_servers, topic, to)
        await stream.reached(20_000)
        await asyncio.to_thread(source.kill, 2)
        await stream.reached(30_000)
        await asyncio.to_thread(target.kill, 1)
        calm.set()
        await copied

        assert set((await leaders(target.bootstrap_servers, remote)).values()) <= {0, 2}
    await check(task, target, remote)
