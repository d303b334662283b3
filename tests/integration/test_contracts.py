"""
What unit tests take for granted about brokers, asked of `ModelCluster` and of a real broker alike.

It stands for the brokers that records are copied between. All other fakes answer as the simulated cluster does, which
the other files of contracts are about. Where the model and a broker differ, the model is wrong.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import attrs
import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.errors import BrokerAnsweredError
from mm2py.model.flow import TopicPartition
from mm2py.wire.batches.batch import batches
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.fetch import FetchSession, fetch_once
from mm2py.wire.fetch_forms import FetchPosition, FetchSizes, PartitionAnswer
from mm2py.wire.produce import API_KEY, init_producer_id, read_answer, request_pieces, spoken_version
from mm2py.wire.requests import LATEST, id_bytes
from tests.support.batches import CONTROL, build_batch, contents, flipped
from tests.support.model_cluster import ModelCluster
from tests.support.topics import create_topic, looking_at


LAST_SEQUENCE = 2**31 - 1


@attrs.define
class Log:
    """A partition of a topic at its leader, and a producer of its own."""

    cluster: Cluster
    tp: TopicPartition
    producer_id: int = -1

    async def produce(self, sequence: int, records: int = 1) -> tuple[int, int]:
        """Send a batch with that first sequence; return the error code and the base offset."""
        return await self.send(build_batch(records, producer=(self.producer_id, 0, sequence)))

    async def send(self, batch: bytes, topic_id: bytes | None = None) -> tuple[int, int]:
        """Send a batch, by its topic's id if there is one; return the error code and the base offset."""
        connection = await self.cluster.connection(self.cluster.leader(self.tp) or 0, "write")
        version = spoken_version(connection.versions, has_ids=topic_id is not None)
        rows = [(topic_id or self.tp.topic.encode(), [(self.tp.partition, memoryview(batch))])]
        pieces = request_pieces(rows, 30_000, version=version)
        ((ack,), _) = read_answer(await connection.request_raw(API_KEY, version, pieces), version)
        return ack.error_code, ack.base_offset

    async def fetch(self, offset: int, max_bytes: int = 1_000_000) -> PartitionAnswer:
        connection = await self.cluster.connection(self.cluster.leader(self.tp) or 0, "read")
        position = FetchPosition(self.tp.topic.encode(), self.tp.partition, offset, -1, None)
        return await fetch_once(connection, position, FetchSizes(1, max_bytes, max_bytes, reads_committed=False), 100)

    async def end(self) -> int | BrokerAnsweredError:
        return (await self.cluster.list_offsets([self.tp], LATEST))[self.tp]


@pytest.fixture(params=["model", "broker"])
async def log(request: pytest.FixtureRequest, backup: KafkaCluster, prefix: str) -> AsyncIterator[Log]:
    if request.param == "model":
        made = Log(cast("Cluster", ModelCluster.of("B", prefix, 2)), TopicPartition(prefix, 0))
        made.producer_id = (await init_producer_id(made.cluster)).producer_id
        yield made
        return
    await create_topic(backup.bootstrap_servers, prefix, partitions=2)
    async with looking_at(backup.bootstrap_servers) as cluster:
        await cluster.refresh_metadata([prefix])
        yield Log(cluster, TopicPartition(prefix, 0), (await init_producer_id(cluster)).producer_id)


async def test_an_unknown_producer_may_begin_anywhere(log: Log) -> None:
    """Its first sequence is taken as it is (KIP-360), and the next one has to follow it."""
    first, gap, following = [await log.produce(sequence, 3) for sequence in (70, 74, 73)]

    assert (first, following) == ((0, 0), (0, 3))
    assert gap[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await log.end() == 6


async def test_a_repeated_batch_is_acknowledged_where_it_lies(log: Log) -> None:
    """Of the last five batches a repetition is answered with its offset, not appended; an older one is out of order."""
    for sequence in range(6):
        await log.produce(sequence)
    fifth, older = await log.produce(1), await log.produce(0)

    assert fifth == (0, 1)
    assert older[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await log.end() == 6


async def test_sequences_begin_again_after_the_last_one(log: Log) -> None:
    """A batch may lie across the greatest sequence, and the next one goes on from where it ended."""
    found = [await log.produce(LAST_SEQUENCE - 1, 4), await log.produce(2)]

    assert found == [(0, 0), (0, 4)]


async def test_a_batch_for_another_topic_than_the_one_of_the_name_is_not_appended(log: Log) -> None:
    """Brokers are told topics' ids in produces; they know none that was deleted, whatever has its name now."""
    if isinstance(log.cluster, ModelCluster):
        log.cluster.topic_ids[log.tp.topic] = "AAAAAAAAAAAAAAAAAAAAAQ"
    topic_id = id_bytes(log.cluster.topic_id(log.tp.topic))
    assert topic_id is not None
    batch = build_batch(3, producer=(log.producer_id, 0, 0))

    assert await log.send(batch, bytes(reversed(topic_id))) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)
    assert await log.end() == 0
    assert await log.send(batch, topic_id) == (0, 0)
    assert await log.end() == 3


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (flipped(build_batch(2)), ErrorCode.CORRUPT_MESSAGE),
        (build_batch(2, base_offset=7), ErrorCode.INVALID_RECORD),
        (build_batch(2, last_offset_delta=5), ErrorCode.INVALID_RECORD),
        (build_batch(2, attributes=CONTROL), ErrorCode.INVALID_RECORD),
    ],
    ids=["damaged", "with a base offset", "with a hole", "a control batch"],
)
async def test_a_batch_that_no_producer_may_send_is_refused(log: Log, batch: bytes, code: ErrorCode) -> None:
    """Nothing of it is appended."""
    assert await log.send(batch) == (code, -1)
    assert await log.end() == 0


async def test_a_fetch_gives_whole_batches_from_the_one_that_holds_the_offset(log: Log) -> None:
    """A batch is returned even if it is larger than the limit (KIP-74); at the end nothing is, past it is an error."""
    for sequence in (0, 10):
        await log.send(build_batch(contents(10, size=500), producer=(log.producer_id, 0, sequence)))
    inside, at_end, past = await log.fetch(13, max_bytes=50), await log.fetch(20), await log.fetch(21)

    assert [batch.base_offset for batch in batches(inside.record_set)] == [10]
    assert (at_end.error_code, bytes(at_end.record_set), at_end.high_watermark) == (0, b"", 20)
    assert past.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_only_the_first_of_an_answer_gets_a_batch_that_has_no_room(log: Log) -> None:
    """Of another partition there is nothing if its first batch has no room; a later batch is cut off in either."""
    other = attrs.evolve(log, tp=TopicPartition(log.tp.topic, 1))
    batch = build_batch(contents(10, size=500), producer=(log.producer_id, 0, 0))
    for part in (log, other):
        await part.send(batch)
        await part.send(build_batch(contents(10, size=500), producer=(log.producer_id, 0, 10)))
    connection = await log.cluster.connection(log.cluster.leader(log.tp) or 0, "read")
    taken = []
    for most in (100, len(batch) + 100):
        session = FetchSession(connection)
        for number in (0, 1):
            session.want(FetchPosition(log.tp.topic.encode(), number, 0, -1, None, max_bytes=most))
        answer = await session.fetch(FetchSizes(1, 1_000_000, 1_000_000, reads_committed=False), 100)
        assert {it.high_watermark for it in answer.partitions} == {20}
        taken.append(sorted(len(it.record_set) for it in answer.partitions))

    assert taken == [[0, len(batch)], [len(batch) + 100] * 2]


async def test_a_topic_that_is_not_there(log: Log) -> None:
    """It can be neither read nor written, and its leader is not known."""
    gone = attrs.evolve(log, tp=TopicPartition(f"{log.tp.topic}-gone", 0))

    assert log.cluster.leader(gone.tp) is None
    assert (await gone.produce(0))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await gone.fetch(0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
