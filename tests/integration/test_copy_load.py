"""A target that hangs, and a source without new records: the copier's memory and requests."""

from __future__ import annotations

import asyncio
import gc
import statistics
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.epoch import SETTLING_MS, CopyLimits
from mm2py.pipeline.copy import epoch as copier
from mm2py.pipeline.copy.fetcher import Fetcher
from mm2py.pipeline.copy.sending import BatchSender
from mm2py.wire.fetch_forms import PartitionAnswer
from tests.support.brokers import MakeCluster
from tests.support.copying import assert_exactly_once, copying
from tests.support.eventually import eventually, scaled
from tests.support.producing import NumberedStream, produce_numbers, producer
from tests.support.reading import read_numbers
from tests.support.records import assert_numbers
from tests.support.topics import create_topic


MIB = 1024 * 1024
PARTITIONS = 8


@pytest.fixture
def most_buffered(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Watch how many bytes wait for the target; return the most there ever were."""
    seen = [0]
    take = BatchSender.take

    def watched(self: BatchSender, copy: copier.PartitionCopy, before_bytes: int) -> None:
        take(self, copy, before_bytes)
        seen[0] = max(seen[0], self.buffered_bytes)

    monkeypatch.setattr(BatchSender, "take", watched)
    return lambda: seen[0]


async def test_frozen_target_stops_fetching_and_then_gets_everything_once(
    primary: KafkaCluster, make_cluster: MakeCluster, prefix: str, most_buffered: Callable[[], int]
) -> None:
    """
    While the target's broker is frozen a bounded part of 100 MB is read and memory does not grow; then all arrives.

    Epochs end in time meanwhile, and what had been sent before the broker froze is there once.
    """
    target = await asyncio.to_thread(make_cluster, "frozen")
    count = 100_000
    limits = CopyLimits(buffer_bytes=8 * MIB, partition_buffer_bytes=2 * MIB, fetch_max_bytes=2 * MIB)
    await create_topic(primary.bootstrap_servers, prefix, partitions=PARTITIONS)
    await produce_numbers(primary.bootstrap_servers, prefix, count=count // 2, partitions=PARTITIONS, size=1_000)
    async with copying(
        primary, target, {prefix: f"A.{prefix}"}, limits=limits, drain_ms=500, request_timeout_ms=3_000
    ) as task:
        await task.catch_up()
        before = task.outcomes[-1].rss_bytes
        target.pause(0)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(more_numbers(primary, prefix, count // 2, count // 2))
                frozen = [await task.epoch() for _ in range(6)]
        finally:
            target.resume(0)
        gc.collect()

        # While it is not known what had arrived, an epoch may take longer than its own time.
        assert all(outcome.elapsed_s < SETTLING_MS / 1000 + 0.5 + scaled(1) for outcome in frozen)
        assert not sum(outcome.records for outcome in frozen[1:])
        assert most_buffered() <= limits.buffer_bytes + 2 * limits.fetch_max_bytes
        assert max(outcome.rss_bytes for outcome in frozen) - before < 64 * MIB
        await task.catch_up(within_s=90)
    numbers = await read_numbers(target.bootstrap_servers, f"A.{prefix}")

    assert_numbers(numbers, count)
    assert_exactly_once(task)


async def more_numbers(cluster: KafkaCluster, topic: str, start: int, count: int) -> None:
    """Write numbered records that follow earlier ones."""
    async with producer(cluster.bootstrap_servers, idempotent=True, batch_bytes=65_536) as connected:
        await NumberedStream(connected, topic, PARTITIONS, 1_000).write(start, count)


async def test_a_backlog_makes_way_and_live_records_do_not_wait_for_it(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """A target that may hardly take longer gets a backlog slowly, what is new at once, and each record once."""
    live = f"{prefix}-live"
    for topic in (prefix, live):
        await create_topic(primary.bootstrap_servers, topic, partitions=1)
    await produce_numbers(primary.bootstrap_servers, prefix, count=40_000, partitions=1, size=1_000)
    limits = CopyLimits(catch_up_latency_ms=1)
    async with copying(primary, backup, {it: f"A.{it}" for it in (prefix, live)}, limits=limits) as task:
        await produce_numbers(primary.bootstrap_servers, live, count=10, partitions=1)
        outcome = await task.epoch(epoch_ms=2_000)
        copied = {it.source.topic: it.records for it in outcome.partitions}
        task.limits = CopyLimits()
        await task.catch_up()

    assert copied[live] == 10
    # Without a pace, all of it would come within half a second.
    assert 100 < copied[prefix] < 40_000
    assert outcome.paced_ms > 500
    assert task.outcomes[-1].paced_ms == 0
    assert_numbers(await read_numbers(backup.bootstrap_servers, f"A.{prefix}"), 40_000)
    assert_exactly_once(task)


@pytest.fixture
def topics_taken(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Watch of which topics each answer to a fetch has records, in the order of the answers."""
    seen: list[set[str]] = []
    take = Fetcher._take

    async def watched(self: Fetcher, answers: list[PartitionAnswer]) -> None:
        seen.append({answer.position.topic.decode() for answer in answers if answer.record_set})
        await take(self, answers)

    monkeypatch.setattr(Fetcher, "_take", watched)
    return seen


async def test_a_live_partition_does_not_wait_for_those_far_behind(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, topics_taken: list[set[str]]
) -> None:
    """
    Its records come with the next answers, not once each of 100 partitions that are far behind has had its turn.

    An answer brings of two of them. All are copied once.
    """
    live, came_at, waits = f"{prefix}-live", list[int](), list[int]()
    await create_topic(primary.bootstrap_servers, prefix, partitions=100)
    await create_topic(primary.bootstrap_servers, live, partitions=1)
    await produce_numbers(primary.bootstrap_servers, prefix, count=50_000, partitions=100, size=1_000)
    limits = CopyLimits(
        fetch_partition_max_bytes=MIB // 16, fetch_max_bytes=MIB // 8, buffer_bytes=2 * MIB, coalesce_below_bytes=0
    )

    async def write(connected: AIOKafkaProducer) -> None:
        """Write live records one after the other, and count the answers before each comes."""
        await eventually(lambda: len(topics_taken) > 100, within_s=60, what="answers", every_s=0.001)
        while len(waits) < 15:
            before = len(topics_taken)
            await connected.send_and_wait(live, b"%012d" % len(waits), partition=0)
            await eventually(
                lambda since=before: any(live in topics for topics in topics_taken[since:]),
                within_s=60,
                what="a live record",
                every_s=0.001,
            )
            came_at.append(next(at for at, topics in enumerate(topics_taken) if at >= before and live in topics))
            waits.append(sum(prefix in topics for topics in topics_taken[before : came_at[-1]]))

    async with (
        producer(primary.bootstrap_servers) as connected,
        copying(primary, backup, {it: f"A.{it}" for it in (prefix, live)}, limits=limits) as task,
        asyncio.TaskGroup() as tasks,
    ):
        writing = tasks.create_task(write(connected))
        while not writing.done():
            await task.epoch(epoch_ms=2_000)
        await task.catch_up()

    ended_at = max(at for at, topics in enumerate(topics_taken) if prefix in topics)
    beside = [answers for at, answers in zip(came_at, waits, strict=True) if at < ended_at]
    assert len(beside) >= 5, (waits, ended_at)
    assert statistics.median(beside) < 5, waits
    assert_numbers(await read_numbers(backup.bootstrap_servers, f"A.{prefix}"), 50_000)
    assert_numbers(await read_numbers(backup.bootstrap_servers, f"A.{live}"), 15)
    assert_exactly_once(task)


async def test_hundreds_of_quiet_partitions_cost_little(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, record_property: Callable[[str, object], None]
) -> None:
    """An epoch over 300 partitions without news asks a few times and names nothing again."""
    await create_topic(primary.bootstrap_servers, prefix, partitions=300)
    # Nothing is written to the remote topic, so one partition stands for all.
    await create_topic(backup.bootstrap_servers, f"A.{prefix}")
    async with copying(primary, backup, {prefix: f"A.{prefix}"}) as task:
        # A broker answers for partitions that it has just got one after the other.
        def all_are_known() -> bool:
            named = {one.source for it in task.outcomes for one in it.partitions}
            return len(named) == 300 and not task.outcomes[-1].partitions

        await task.run(all_are_known)
        task.epoch_ms = 3_000
        await task.epoch()
        # If the broker was held up, the epoch before ended without its answer, and another session was begun.
        await task.run(lambda: not task.outcomes[-1].partitions)
        outcome = task.outcomes[-1]
    record_property("cpu_s", outcome.cpu_s)

    assert outcome.fetches <= 2 * 10
    assert outcome.cpu_s < 1.0
