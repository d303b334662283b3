"""What the copier copies between real brokers arrives equal, in every codec and shape that a source may hold."""

from __future__ import annotations

import functools

import attrs
import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.epoch import CopyLimits
from mm2py.model.flow import TopicPartition
from tests.support.copying import Copying, assert_exactly_once, copy_topics, copying
from tests.support.eventually import eventually
from tests.support.producing import (
    CODECS,
    COMPACTED_CONFIGS,
    produce,
    produce_compacted,
    produce_transactions,
    producer,
)
from tests.support.reading import RawBatch, read_batches, read_topic
from tests.support.records import (
    MIDDLE_MS,
    Contents,
    NewRecord,
    assert_same_records,
    assert_written,
    plain_records,
    spread,
    strange_records,
)
from tests.support.topics import alter_topic, create_topic


PARTITIONS = 8
MIB = 1024 * 1024


@functools.cache
def strange_written() -> list[list[NewRecord]]:
    """Make 100 000 records of every kind, dealt out to the partitions."""
    return spread(strange_records(100_000), PARTITIONS)


@attrs.frozen
class Pair:
    """A topic at the source, and what it is called at the target."""

    primary: KafkaCluster
    backup: KafkaCluster
    topic: str

    @property
    def remote(self) -> str:
        return f"A.{self.topic}"

    @property
    def source_bootstrap(self) -> str:
        return self.primary.bootstrap_servers

    @property
    def target_bootstrap(self) -> str:
        return self.backup.bootstrap_servers

    async def create(self, partitions: int = 1, **configs: str) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        await create_topic(self.source_bootstrap, self.topic, partitions=partitions, configs=named)

    async def create_remote(self, partitions: int = 1, **configs: str) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        await create_topic(self.target_bootstrap, self.remote, partitions=partitions, configs=named)

    async def copy(self, **limits: object) -> Copying:
        copied = await copy_topics(self.primary, self.backup, {self.topic: self.remote}, limits=CopyLimits(**limits))
        assert_exactly_once(copied)
        return copied

    async def contents(self, *, reads_committed: bool = False) -> tuple[Contents, Contents]:
        """Read both sides; the target always whole."""
        source = await read_topic(self.source_bootstrap, self.topic, reads_committed=reads_committed)
        return source, await read_topic(self.target_bootstrap, self.remote)

    async def batches(self, partition: int = 0) -> tuple[list[RawBatch], list[RawBatch]]:
        source = await read_batches(self.source_bootstrap, self.topic, partition)
        return source, await read_batches(self.target_bootstrap, self.remote, partition)


@pytest.fixture
def pair(primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> Pair:
    return Pair(primary, backup, prefix)


@pytest.mark.parametrize("codec", CODECS, ids=str)
async def test_strange_records_arrive_equal(pair: Pair, codec: str | None) -> None:
    """100 000 records of every kind on 8 partitions arrive with key, value, headers and timestamps, in order."""
    written = strange_written()
    await pair.create(PARTITIONS)
    await produce(pair.source_bootstrap, pair.topic, written, codec=codec, idempotent=True)
    copied = await pair.copy()
    source, remote = await pair.contents()

    assert_same_records(source, remote)
    assert_written(written, remote)
    assert copied.total("batches_unopened") > copied.total("batches_rebuilt")


@pytest.mark.parametrize("codec", [None, "lz4"], ids=str)
@pytest.mark.parametrize(("wanted", "number"), [("none", 0), ("zstd", 4)])
async def test_batches_are_recompressed_if_configured(pair: Pair, codec: str | None, wanted: str, number: int) -> None:
    """All batches have the codec that is asked for, and hold the same records."""
    await pair.create()
    await produce(pair.source_bootstrap, pair.topic, [list(plain_records(20_000))], codec=codec)
    await produce(pair.source_bootstrap, pair.topic, [list(plain_records(5_000))], codec="zstd")
    copied = await pair.copy(codec=number)
    _, target = await pair.batches()

    assert {batch.codec for batch in target} == {wanted}
    assert copied.total("batches_rebuilt") > 0
    assert_same_records(*await pair.contents())


@pytest.mark.parametrize("codec", CODECS, ids=str)
async def test_unopened_batches_are_the_sources_to_the_byte(pair: Pair, codec: str | None) -> None:
    """From byte 61 on each batch at the target is the source's; before it only the fields that we set differ."""
    await pair.create()
    await produce(pair.source_bootstrap, pair.topic, [plain_records(3_000)], codec=codec, idempotent=True)
    copied = await pair.copy(coalesce_below_bytes=0)
    source, remote = await pair.batches()

    assert len(source) > 10
    assert {batch.codec for batch in source} == {codec or "none"}
    assert [batch.records for batch in remote] == [batch.records for batch in source]
    assert [batch.attributes for batch in remote] == [batch.attributes for batch in source]
    assert [(b.base_timestamp_ms, b.max_timestamp_ms, b.count, b.last_offset_delta) for b in remote] == [
        (b.base_timestamp_ms, b.max_timestamp_ms, b.count, b.last_offset_delta) for b in source
    ]
    assert copied.total("batches_unopened") == len(source)
    assert len({batch.producer_id for batch in remote}) == 1


async def test_one_record_batches_of_a_backlog_are_put_together(pair: Pair) -> None:
    """Small batches that wait are sent as few larger ones, in the source's codec, with the same records."""
    written = spread(strange_records(6_000), 2)
    await pair.create(2)
    await produce(pair.source_bootstrap, pair.topic, written, batch_records=1, idempotent=True)
    copied = await pair.copy()
    source, remote = await pair.contents()

    assert_same_records(source, remote)
    assert copied.total("batches_rebuilt") > 0
    assert copied.total("batches_rebuilt") + copied.total("batches_unopened") < 600


async def test_small_compressed_batches_keep_their_codec(pair: Pair) -> None:
    """What is put together is compressed as its batches were."""
    await pair.create()
    await produce(pair.source_bootstrap, pair.topic, [plain_records(2_000)], codec="lz4", batch_records=5)
    await pair.copy()
    source, remote = await pair.batches()

    assert len(remote) < len(source) / 5
    assert {batch.codec for batch in remote} == {"lz4"}
    assert_same_records(*await pair.contents())


async def test_compacted_topic_arrives_without_its_holes(pair: Pair) -> None:
    """What compaction has left of a topic arrives, in order, although brokers refuse batches with holes."""
    await pair.create(2, **{name.replace(".", "_"): value for name, value in COMPACTED_CONFIGS.items()})
    await produce_compacted(pair.source_bootstrap, pair.topic, partitions=2)

    async def is_compacted() -> bool:
        batches = [await read_batches(pair.source_bootstrap, pair.topic, number) for number in range(2)]
        return all(any(batch.has_holes and batch.count for batch in some) for some in batches)

    await eventually(is_compacted, within_s=60, what="both partitions have batches with holes", every_s=0.3)
    await alter_topic(pair.source_bootstrap, pair.topic, {"cleanup.policy": "delete", "retention.ms": "-1"})
    copied = await pair.copy()
    source, remote = await pair.contents()

    assert_same_records(source, remote)
    assert copied.total("batches_rebuilt") > 0
    for number in range(2):
        runs = copied.runs(TopicPartition(pair.topic, number))

        assert [run.upstream + n for run in runs for n in range(run.length)] == [r.offset for r in source[number]]
        assert [run.downstream + n for run in runs for n in range(run.length)] == [r.offset for r in remote[number]]


def rounds(topic_records: int) -> list[tuple[bool, list[list[NewRecord]]]]:
    """Make transactions of which every third one is aborted."""
    return [
        (number % 3 != 1, spread(plain_records(topic_records, start=number * topic_records), 2)) for number in range(9)
    ]


@pytest.mark.parametrize("reads_committed", [False, True], ids=["uncommitted", "committed"])
async def test_transactions_arrive_as_a_consumer_sees_them(pair: Pair, reads_committed: bool) -> None:
    """A remote topic holds what a consumer of that isolation level reads, with neither markers nor transactions."""
    await pair.create(2)
    await produce_transactions(
        pair.source_bootstrap, pair.topic, rounds(600), transactional_id=pair.topic, batch_records=100
    )
    copied = await pair.copy(reads_committed=reads_committed)
    source, remote = await pair.contents(reads_committed=reads_committed)
    _, target = await pair.batches()

    assert sum(map(len, remote.values())) == (3_600 if reads_committed else 5_400)
    assert_same_records(source, remote)
    assert not any(batch.is_transactional or batch.is_control for batch in target)
    assert copied.total("batches_dropped") >= (9 + 3 if reads_committed else 9)


async def test_transaction_in_progress_waits_with_committed_reading(pair: Pair) -> None:
    """With `read_committed` nothing after an open transaction is copied; when it has ended, all of it is."""
    await pair.create()
    await produce(pair.source_bootstrap, pair.topic, [plain_records(10)])
    async with (
        copying(pair.primary, pair.backup, {pair.topic: pair.remote}, limits=CopyLimits(reads_committed=True)) as task,
        producer(pair.source_bootstrap, transactional_id=pair.topic) as writer,
    ):
        await writer.begin_transaction()
        await writer.send_and_wait(pair.topic, b"open", partition=0)
        await produce(pair.source_bootstrap, pair.topic, [plain_records(10, start=10)])
        (tp,) = task.plans
        await task.run(lambda: task.plans[tp].position >= 10)

        assert task.plans[tp].position == 10
        await writer.commit_transaction()
        await task.catch_up()
    source, remote = await pair.contents(reads_committed=True)

    assert len(remote[0]) == 21
    assert_same_records(source, remote)


async def test_log_append_time_stays_what_a_consumer_saw(pair: Pair) -> None:
    """Records of a LogAppendTime topic arrive with the time at which the source's broker had appended them."""
    written = spread(strange_records(2_000), 2)
    await pair.create(2, message_timestamp_type="LogAppendTime")
    await produce(pair.source_bootstrap, pair.topic, written, codec="gzip")
    await pair.copy()
    source, remote = await pair.contents()

    assert {record.timestamp_type for some in source.values() for record in some} == {1}
    assert {record.timestamp_type for some in remote.values() for record in some} == {0}
    assert_same_records(source, remote, with_timestamp_types=False)


async def test_target_that_stamps_records_itself_takes_them(pair: Pair) -> None:
    """A remote topic with LogAppendTime takes unopened batches; only its timestamps are its own."""
    await pair.create()
    await pair.create_remote(message_timestamp_type="LogAppendTime")
    await produce(pair.source_bootstrap, pair.topic, [plain_records(1_000)], codec="zstd")
    await pair.copy()
    source, remote = await pair.contents()

    assert {record.timestamp_type for record in remote[0]} == {1}
    assert [r[1:4] for r in remote[0]] == [r[1:4] for r in source[0]]


@pytest.mark.parametrize("size", [1, 10 * MIB], ids=["one byte", "10 MiB"])
async def test_single_record_arrives(pair: Pair, size: int) -> None:
    """A record of one byte and one of 10 MiB arrive like any other."""
    await pair.create()
    record = NewRecord(b"k", b"x" * size, (), MIDDLE_MS)
    await produce(pair.source_bootstrap, pair.topic, [[record]], batch_bytes=size + 1_000)
    await pair.copy()
    _, remote = await pair.contents()

    assert_written([[record]], remote)


async def test_a_refusal_of_every_record_of_a_batch_is_told_in_a_few_words(pair: Pair) -> None:
    """The target refuses each of 2 000 records for its timestamp: the failure quotes one, and counts the others."""
    await pair.create()
    await pair.create_remote(message_timestamp_before_max_ms="3600000")
    await produce(pair.source_bootstrap, pair.topic, [list(plain_records(2_000))], batch_bytes=600_000)
    async with copying(pair.primary, pair.backup, {pair.topic: pair.remote}) as task:
        await task.catch_up()
        (sick,) = task.stopped
        failure = task.failure(sick)

        assert failure.error == "INVALID_TIMESTAMP"
        assert "and 1999 more records" in failure.message
        assert len(failure.message) < 1_000


@pytest.mark.parametrize("codec", [None, "snappy"], ids=str)
async def test_smaller_limit_of_the_target_splits_batches(pair: Pair, codec: str | None) -> None:
    """Batches larger than the target's max.message.bytes arrive as several smaller ones."""
    written = [list(strange_records(4_000))]
    await pair.create()
    await pair.create_remote(max_message_bytes="20000")
    await produce(pair.source_bootstrap, pair.topic, written, codec=codec, batch_bytes=200_000)
    await pair.copy()
    source, remote = await pair.batches()

    assert max(len(batch.raw) for batch in source) > 40_000
    assert max(len(batch.raw) for batch in remote) <= 20_000
    assert_same_records(*await pair.contents())


async def test_limit_that_the_target_lowers_meanwhile_is_an_answer(pair: Pair) -> None:
    """A batch that the target finds too large after all stops the partition with the target's own error."""
    await pair.create()
    await produce(pair.source_bootstrap, pair.topic, [plain_records(500)], batch_bytes=60_000)
    await pair.create_remote(max_message_bytes="20000")
    async with copying(pair.primary, pair.backup, {pair.topic: pair.remote}) as task:
        (tp,) = task.plans
        task.plans[tp] = attrs.evolve(task.plans[tp], max_message_bytes=MIB)
        await task.catch_up()

        assert task.failure(tp).error == "MESSAGE_TOO_LARGE"
        assert "max.message.bytes" in task.failure(tp).hint

        task.stopped.clear()
        task.plans[tp] = attrs.evolve(task.plans[tp], max_message_bytes=20_000)
        await task.catch_up()

    assert_same_records(*await pair.contents())


@pytest.mark.parametrize("start", [1, 50, 99, 100, 101, 499])
async def test_start_inside_a_batch(pair: Pair, start: int) -> None:
    """From an offset inside a batch on everything arrives, and nothing before it."""
    written = [list(plain_records(500))]
    await pair.create()
    await produce(pair.source_bootstrap, pair.topic, written, codec="lz4", batch_records=100)
    async with copying(pair.primary, pair.backup, {pair.topic: pair.remote}) as task:
        (tp,) = task.plans
        task.plans[tp] = attrs.evolve(task.plans[tp], position=start)
        await task.catch_up()
    _, remote = await pair.contents()

    assert_written([written[0][start:]], remote)
    assert [(run.upstream, run.downstream, run.length) for run in task.runs(tp)] == [(start, 0, 500 - start)]
