"""A copy of a topic, made batch by batch, with mistakes planted in it: what a mirror must never make."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from mm2py.clock import SystemClock
from mm2py.errors import BrokerAnsweredError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.wire.batch import RecordBatchView, batches, sign
from mm2py.wire.cluster import Cluster
from mm2py.wire.fetch import FetchPosition, FetchSizes, fetch_once
from mm2py.wire.produce import API_KEY, API_VERSION, ProducerIdentity, init_producer_id, read_answer, request_pieces
from mm2py.wire.rebuild import RecordContent, decode
from tests.support.eventually import eventually


#: Changes the records of one batch.
Plant = Callable[[list[RecordContent]], list[RecordContent]]

_FETCH_BYTES = 8 * 1024 * 1024


async def copy_with(
    source: str, topic: str, target: str, remote_topic: str, plants: Mapping[int, tuple[int, Plant]]
) -> None:
    """
    Copy every partition of *topic* to *remote_topic*, which must be there, batches unopened.

    *plants* gives, for some partitions, an upstream offset and what becomes of the batch that holds it.
    """
    clock = SystemClock()
    async with (
        Cluster(ClusterEndpoint("source", (source,)), clock) as ours,
        Cluster(ClusterEndpoint("target", (target,)), clock) as theirs,
    ):
        await ours.refresh_metadata([topic])
        await theirs.refresh_metadata([remote_topic])
        async with asyncio.TaskGroup() as tasks:
            for number in ours.partitions_of(topic):
                plant = plants.get(number)
                tasks.create_task(_copy(ours, theirs, TopicPartition(topic, number), remote_topic, plant))


async def _copy(
    ours: Cluster, theirs: Cluster, tp: TopicPartition, remote_topic: str, plant: tuple[int, Plant] | None
) -> None:
    producer, sequence, offset = await _identity(theirs), 0, 0
    connection = await theirs.connection(theirs.leader(TopicPartition(remote_topic, tp.partition)) or 0, str(tp))
    while found := await _fetch(ours, tp, offset):
        for batch in found:
            offset = batch.last_offset + 1
            for sent, count in _planted(batch, plant):
                signed = bytearray(sent)
                sign(memoryview(signed), producer.producer_id, producer.epoch, sequence)
                rows = [(remote_topic.encode(), [(tp.partition, memoryview(signed))])]
                frame = await connection.request_raw(API_KEY, API_VERSION, request_pieces(rows, 30_000))
                ((ack,), _) = read_answer(frame)
                assert ack.error_code == 0, ack
                sequence += count


async def _identity(theirs: Cluster) -> ProducerIdentity:
    """Get a producer id, also from a broker that has just been started."""

    async def given() -> ProducerIdentity | None:
        try:
            return await init_producer_id(theirs, 30_000)
        except BrokerAnsweredError as error:
            raise AssertionError(error) from error

    return await eventually(given, within_s=30, what="a producer id")


async def _fetch(ours: Cluster, tp: TopicPartition, offset: int) -> list[RecordBatchView]:
    connection = await ours.connection(ours.leader(tp) or 0, f"read {tp}")
    position = FetchPosition(tp.topic.encode(), tp.partition, offset, -1, None)
    sizes = FetchSizes(1, _FETCH_BYTES, _FETCH_BYTES, reads_committed=False)
    answer = await fetch_once(connection, position, sizes, 100)
    return [batch for batch in batches(answer.record_set) if batch.last_offset >= offset and not batch.is_control]


def _planted(batch: RecordBatchView, plant: tuple[int, Plant] | None) -> Iterator[tuple[bytes, int]]:
    if plant is None or not batch.base_offset <= plant[0] <= batch.last_offset:
        yield bytes(batch.view), batch.record_count
        return
    records = plant[1](decode(bytes(batch.view)))
    builder = DefaultRecordBatchBuilder(2, batch.codec, 0, -1, -1, -1, 1 << 24)
    for at, record in enumerate(records):
        builder.append(at, record.timestamp, record.key, record.value, list(record.headers))
    if records:
        yield bytes(builder.build()), len(records)
