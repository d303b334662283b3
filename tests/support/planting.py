"""A copy of a topic, made batch by batch, with mistakes planted in it: what a mirror must never make."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator, Mapping

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from mm2py.clock import SystemClock
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import ProducerMark
from mm2py.model.flow import TopicPartition
from mm2py.wire.batches.batch import RecordBatchView, batches, sign
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import is_retriable
from mm2py.wire.fetch import fetch_once
from mm2py.wire.fetch_forms import FetchPosition, FetchSizes
from mm2py.wire.produce import API_KEY, API_VERSION, init_producer_id, read_answer, request_pieces
from tests.support.contents import RecordContent, decode
from tests.support.eventually import eventually


#: Changes the records of one batch.
Plant = Callable[[list[RecordContent]], list[RecordContent]]

#: Base and greatest timestamp in a batch's header.
_TIMES, _TIMES_AT = struct.Struct(">qq"), 27
_BEGAN_MS = 1_704_067_200_000
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


async def write_batches(bootstrap: str, topic: str, *, batches_each: int, records: int) -> None:
    """
    Fill each partition of *topic* with so many batches of so many records, with keys and headers.

    Batches are made once and stamped again, so that a million records cost no more than thousands do: what tells those
    of two batches apart are their timestamps.
    """
    clock = SystemClock()
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 24)
    for at in range(records):
        headers = [("number", b"%d" % at), ("empty", None)]
        builder.append(at, at, b"key-%d" % (at % 100), b"%06d" % at + b"." * 20, headers)
    template = bytes(builder.build())
    async with Cluster(ClusterEndpoint("source", (bootstrap,)), clock) as cluster:
        await cluster.refresh_metadata([topic])
        async with asyncio.TaskGroup() as tasks:
            for number in cluster.partitions_of(topic):
                tasks.create_task(_fill(cluster, TopicPartition(topic, number), template, batches_each, records))


async def write_batch(bootstrap: str, tp: TopicPartition, batch: bytes, count: int) -> None:
    """Append a *batch* of *count* records as it is, whatever is in it."""
    async with Cluster(ClusterEndpoint("target", (bootstrap,)), SystemClock()) as cluster:
        await cluster.refresh_metadata([tp.topic])
        await _Writer(cluster, tp, await init_producer_id(cluster)).write(bytearray(batch), count)


async def _fill(cluster: Cluster, tp: TopicPartition, template: bytes, batches_each: int, records: int) -> None:
    writer = _Writer(cluster, tp, await init_producer_id(cluster))
    for turn in range(batches_each):
        batch = bytearray(template)
        began_ms = _BEGAN_MS + turn * records
        _TIMES.pack_into(batch, _TIMES_AT, began_ms, began_ms + records - 1)
        await writer.write(batch, records)


class _Writer:
    """Writes ready batches to a partition, one after the other."""

    def __init__(self, cluster: Cluster, tp: TopicPartition, producer: ProducerMark) -> None:
        self._cluster = cluster
        self._tp = tp
        self._producer = producer
        self._sequence = 0

    async def write(self, batch: bytearray, count: int) -> None:
        sign(memoryview(batch), self._producer.producer_id, self._producer.producer_epoch, self._sequence)
        await eventually(lambda: self._send(batch), within_s=60, what=f"{self._tp} takes a batch", every_s=0.5)
        self._sequence += count

    async def _send(self, batch: bytearray) -> bool:
        """Send it once; on a machine that is busy a broker may not lead its partitions for a moment."""
        node = self._cluster.leader(self._tp)
        if node is None:
            await self._cluster.refresh_metadata([self._tp.topic])
            raise AssertionError("no leader")
        connection = await self._cluster.connection(node, str(self._tp))
        rows = [(self._tp.topic.encode(), [(self._tp.partition, memoryview(batch))])]
        frame = await connection.request_raw(API_KEY, API_VERSION, request_pieces(rows, 30_000))
        ((ack,), _) = read_answer(frame)
        if is_retriable(ack.error_code):
            await self._cluster.refresh_metadata([self._tp.topic])
        assert ack.error_code == 0, ack
        return True


async def _copy(
    ours: Cluster, theirs: Cluster, tp: TopicPartition, remote_topic: str, plant: tuple[int, Plant] | None
) -> None:
    writer, offset = _Writer(theirs, TopicPartition(remote_topic, tp.partition), await init_producer_id(theirs)), 0
    while found := await _fetch(ours, tp, offset):
        for batch in found:
            offset = batch.last_offset + 1
            for sent, count in _planted(batch, plant):
                await writer.write(bytearray(sent), count)


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
