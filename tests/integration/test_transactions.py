"""Transactions with real brokers: only committed records are visible, and a later producer fences an earlier one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from mm2py.clock import SystemClock
from mm2py.core.internal_topics import InternalTopic
from mm2py.devkit.broker import KafkaCluster
from mm2py.errors import BrokerAnsweredError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import Transactions
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.positions import Position
from mm2py.pipeline.transform.target_tail import records_behind
from mm2py.pipeline.transform.transaction import Committer
from mm2py.storage.compacted_topic import CompactedTopic
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.fenced_writer import FencedWriter, TakenOverError, fence
from mm2py.wire.topic_log import LogRecord, TopicLog
from mm2py.wire.transactions import ProducerFencedError, TransactionalProducer
from tests.support.brokers import MakeCluster
from tests.support.eventually import scaled
from tests.support.producing import producer
from tests.support.reading import read_topic
from tests.support.topics import await_stable, create_topic, end_offsets, move_leaders


_TIMEOUT_MS = 60_000
#: Far from it, also on a slow machine.
_AT_ONCE_S = 15.0


def connect(kafka: KafkaCluster, *, request_timeout_ms: int = 20_000) -> Cluster:
    endpoint = ClusterEndpoint("B", tuple(kafka.bootstrap_servers.split(",")), request_timeout_ms=request_timeout_ms)
    return Cluster(endpoint, SystemClock())


@pytest.fixture
async def cluster(backup: KafkaCluster) -> AsyncIterator[Cluster]:
    async with connect(backup) as cluster:
        yield cluster


def numbered(*numbers: int) -> list[LogRecord]:
    return [LogRecord(b"k", b"%d" % number, partition=0) for number in numbers]


async def write(log: TopicLog, of: TransactionalProducer, *numbers: int) -> None:
    """Write numbers to partition 0, as part of the transaction."""
    await of.add([TopicPartition(log.topic, 0)])
    await log.append(numbered(*numbers), of)


async def visible(bootstrap: str, topic: str) -> list[int]:
    """Return what a consumer of committed records sees of partition 0 now."""
    return [int(record.value or b"") for record in (await read_topic(bootstrap, topic, reads_committed=True))[0]]


async def values(bootstrap: str, topic: str) -> list[int]:
    """Return what it sees once no transaction is open."""
    await await_stable(bootstrap, topic)
    return await visible(bootstrap, topic)


async def test_what_is_committed_shows_and_what_is_not_never_does(
    cluster: Cluster, backup: KafkaCluster, prefix: str
) -> None:
    """Two topics in one transaction; the next one is undone by opening again, the third goes on with a new epoch."""
    for name in ("one", "two"):
        await create_topic(backup.bootstrap_servers, f"{prefix}-{name}")
    one, two = (TopicLog(cluster, f"{prefix}-{name}") for name in ("one", "two"))
    writing = TransactionalProducer(cluster, prefix, _TIMEOUT_MS)
    await writing.open()
    for number in range(3):
        await write(one, writing, number)
        await write(two, writing, number, number + 100)
        before = await visible(backup.bootstrap_servers, one.topic)
        await writing.commit()
        assert before == list(range(number))
    await write(one, writing, 50)
    undone = writing.mark(TopicPartition(one.topic, 0))
    await writing.open()
    renewed = writing.mark(TopicPartition(one.topic, 0))
    await write(one, writing, 3)
    await writing.commit()

    assert await values(backup.bootstrap_servers, one.topic) == [0, 1, 2, 3]
    assert await values(backup.bootstrap_servers, two.topic) == [0, 100, 1, 101, 2, 102]
    assert (undone.sequence, renewed.sequence) == (4, 0)
    assert renewed.producer_epoch > undone.producer_epoch


async def test_opening_an_id_fences_its_former_writer(cluster: Cluster, backup: KafkaCluster, prefix: str) -> None:
    """Neither a batch on its way, nor a further partition, nor a commit of the former writer gets through."""
    await create_topic(backup.bootstrap_servers, prefix, partitions=2)
    log, first, second = TopicLog(cluster, prefix), *(TransactionalProducer(cluster, prefix, _TIMEOUT_MS) for _ in "ab")
    await first.open()
    await write(log, first, 1)
    await second.open()
    with pytest.raises(BrokerAnsweredError, match="INVALID_PRODUCER_EPOCH"):
        await log.append(numbered(2), first)
    with pytest.raises(ProducerFencedError, match=f"taken over transactional id {prefix}"):
        await first.add([TopicPartition(prefix, 1)])
    with pytest.raises(ProducerFencedError):
        await first.commit()
    await write(log, second, 3)
    await second.commit()

    assert await values(backup.bootstrap_servers, prefix) == [3]


def writing_log(cluster: Cluster, topic: str, writer: FencedWriter) -> CompactedTopic:
    return CompactedTopic(Flow("A", "B"), cluster, InternalTopic(topic, "x", 1), EventLog(SystemClock()), writer=writer)


async def test_of_two_writers_with_one_id_the_former_writes_nothing_more(
    cluster: Cluster, backup: KafkaCluster, prefix: str
) -> None:
    """
    A node writes, another takes over, and the first one goes on: nothing of that is seen, by any reader.

    It is told once. A node that only fences, to end what a vanished one left open, does the same to the second.
    """
    await create_topic(backup.bootstrap_servers, prefix)
    told: list[str] = []
    first, second = (FencedWriter(prefix, told.append) for _ in "ab")
    one, two = writing_log(cluster, prefix, first), writing_log(cluster, prefix, second)
    await first.open(cluster)
    await one.append(numbered(1, 2))
    await second.open(cluster)
    for number in (3, 4):
        with pytest.raises(TakenOverError, match=f"another node writes at cluster B now, under .* {prefix}"):
            await one.append(numbered(number))
    await two.append(numbered(5))
    told_before = list(told)
    await fence(cluster, prefix)
    with pytest.raises(TakenOverError):
        await two.append(numbered(6))
    read = (await read_topic(backup.bootstrap_servers, prefix))[0]

    assert [record.value for record in read] == [b"1", b"2", b"5"]
    assert (told_before, told) == ([prefix], [prefix, prefix])


async def test_what_a_writer_left_open_ends_with_the_next_one(
    cluster: Cluster, backup: KafkaCluster, prefix: str
) -> None:
    """A node vanishes in the middle of a write; its successor reads to the end at once, and nothing of that write."""
    await create_topic(backup.bootstrap_servers, prefix)
    first, second = FencedWriter(prefix), FencedWriter(prefix)
    log = TopicLog(cluster, prefix)
    await first.open(cluster)
    frozen = asyncio.Event()

    async def freeze(transaction: TransactionalProducer | None) -> None:
        await log.append(numbered(1), transaction)
        frozen.set()
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(first.write(cluster, [TopicPartition(prefix, 0)], freeze))
        await frozen.wait()
        async with asyncio.timeout(scaled(_AT_ONCE_S)):
            await second.open(cluster)
            await log.await_stable()
        writing.cancel()
    await writing_log(cluster, prefix, second).append(numbered(2))
    with pytest.raises(TakenOverError):
        await writing_log(cluster, prefix, first).append(numbered(3))

    assert await values(backup.bootstrap_servers, prefix) == [2]


async def test_a_write_that_failed_is_undone_and_the_next_one_goes_through(
    cluster: Cluster, backup: KafkaCluster, prefix: str
) -> None:
    """It fails after something was written, or is cancelled then: neither is seen, and the writer needs no other."""
    await create_topic(backup.bootstrap_servers, prefix)
    writer, log = FencedWriter(prefix), TopicLog(cluster, prefix)
    await writer.open(cluster)
    for error in (BrokerAnsweredError("B", "Produce", 10, "MESSAGE_TOO_LARGE", ""), asyncio.CancelledError()):

        async def fail(transaction: TransactionalProducer | None, error: BaseException = error) -> None:
            await log.append(numbered(1), transaction)
            raise error

        await writing_log(cluster, prefix, writer).append(numbered(2))
        with pytest.raises(type(error)):
            await writer.write(cluster, [TopicPartition(prefix, 0)], fail)
    await writing_log(cluster, prefix, writer).append(numbered(3))

    assert await values(backup.bootstrap_servers, prefix) == [2, 2, 3]


async def test_a_committer_says_which_positions_were_committed(
    cluster: Cluster, backup: KafkaCluster, prefix: str
) -> None:
    """Positions become visible with their transaction; a second committer aborts an open one and reads them."""
    await create_topic(backup.bootstrap_servers, f"{prefix}-positions", partitions=3)
    await create_topic(backup.bootstrap_servers, prefix)
    terms = Transactions(prefix, f"{prefix}-positions", _TIMEOUT_MS)
    remote, sources = TopicPartition(prefix, 0), [TopicPartition("orders", number) for number in range(4)]
    first, second = (Committer(cluster, "A", terms, SystemClock()) for _ in "ab")
    log = TopicLog(cluster, prefix)
    nothing = await first.open()
    await first.begin([remote], sources)
    await first.append(log, numbered(0, 1))
    await first.commit([Position(source, 10 + source.partition, 1) for source in sources])
    await first.begin([remote], sources[:1])
    await first.append(log, numbered(2))
    is_open = first.is_open
    committed = await second.open()
    with pytest.raises(ProducerFencedError):
        await first.commit([Position(sources[0], 20, 3)])

    assert (nothing, is_open) == ({}, False)
    assert committed == {source: Position(source, 10 + source.partition, 1) for source in sources}
    assert await values(backup.bootstrap_servers, prefix) == [0, 1]


async def test_reading_waits_for_an_open_transaction(backup: KafkaCluster, prefix: str) -> None:
    """Records after any producer's open transaction do not count as missing; one that stays open is an error."""
    await create_topic(backup.bootstrap_servers, prefix)
    async with connect(backup, request_timeout_ms=2_000) as cluster:
        log = TopicLog(cluster, prefix)
        async with producer(backup.bootstrap_servers, transactional_id=prefix) as other:
            await other.begin_transaction()
            await other.send_and_wait(prefix, b"1", key=b"k")
            await log.append(numbered(2))
            with pytest.raises(BrokerAnsweredError, match=r"CONCURRENT_TRANSACTIONS.*still open keeps .* offset 0"):
                await log.await_stable()
            with pytest.raises(BrokerAnsweredError, match="still open holds"):
                await records_behind(cluster, TopicPartition(prefix, 0), after=-1, end=2, clock=SystemClock())
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(log.await_stable())
                await asyncio.wait({waiting}, timeout=0.3)
                was_waiting = not waiting.done()
                await other.commit_transaction()
        read = await log.read_all()

    assert was_waiting
    assert [record.value for record in read] == [b"1", b"2"]


async def test_markers_and_what_was_undone_are_no_records(cluster: Cluster, backup: KafkaCluster, prefix: str) -> None:
    """After a position, only records that a consumer would see count."""
    await create_topic(backup.bootstrap_servers, prefix)
    log, writing, clock = TopicLog(cluster, prefix), TransactionalProducer(cluster, prefix, _TIMEOUT_MS), SystemClock()
    remote = TopicPartition(prefix, 0)
    await writing.open()
    await write(log, writing, 0, 1)
    await writing.commit()
    await write(log, writing, 2, 3, 4)
    await writing.open()
    end = (await end_offsets(backup.bootstrap_servers, prefix))[0]
    exact = await records_behind(cluster, remote, after=1, end=end, clock=clock)
    await log.append(numbered(5, 6))
    foreign = await records_behind(cluster, remote, after=1, end=end + 2, clock=clock)

    assert end == 7
    assert (exact, foreign) == (0, 2)


async def test_transactions_go_on_when_brokers_go(make_cluster: MakeCluster, prefix: str) -> None:
    """The leader moves within one transaction, and within the next one the coordinator dies."""
    kafka = await asyncio.to_thread(make_cluster, "three", brokers=3)
    async with connect(kafka) as cluster:
        log, writing = TopicLog(cluster, prefix), TransactionalProducer(cluster, prefix, _TIMEOUT_MS)
        await log.create(1, 3, setting="x")
        await writing.open()
        await write(log, writing, 0)
        coordinator = writing._coordinator._node
        assert coordinator is not None
        await move_leaders(kafka.bootstrap_servers, prefix, {0: coordinator})
        await write(log, writing, 1)
        await writing.commit()
        await writing.add([TopicPartition(prefix, 0)])
        await asyncio.to_thread(kafka.kill, coordinator)
        await log.append(numbered(2), writing)
        await writing.commit()
        await write(log, writing, 3)
        await writing.commit()

        assert writing._coordinator._node != coordinator
        assert await values(kafka.bootstrap_servers, prefix) == [0, 1, 2, 3]
