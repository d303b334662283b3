"""Writing to a topic in every way that a source may have been written to: codecs, transactions, batch sizes, rates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder

from tests.support.eventually import scaled
from tests.support.records import MIDDLE_MS, NewRecord
from tests.support.topics import await_stable


#: What `compression_type` takes, none included.
CODECS = (None, "gzip", "snappy", "lz4", "zstd")

#: Long enough for a broker that is killed and started again; the producer retries until then.
_PATIENCE_MS = 120_000
_REQUEST_BYTES = 16 * 1024 * 1024
_NUMBER_BYTES = 12
#: Each time, a steady stream writes a batch to each partition: more often costs brokers and mirror more, for the same.
_WRITES_EVERY_S = 0.1
_POLL_S = 0.02


@asynccontextmanager
async def producer(
    bootstrap: str,
    *,
    codec: str | None = None,
    idempotent: bool = False,
    transactional_id: str | None = None,
    batch_bytes: int = 16_384,
) -> AsyncIterator[AIOKafkaProducer]:
    """Connect a producer that waits for all replicas and does not give up while a broker is away for a while."""
    connected = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        compression_type=codec,
        enable_idempotence=idempotent or transactional_id is not None,
        transactional_id=transactional_id,
        max_batch_size=batch_bytes,
        max_request_size=_REQUEST_BYTES,
        request_timeout_ms=_PATIENCE_MS,
    )
    await connected.start()
    try:
        yield connected
    finally:
        await connected.stop()


async def produce(
    bootstrap: str,
    topic: str,
    written: Sequence[Iterable[NewRecord]],
    *,
    codec: str | None = None,
    idempotent: bool = False,
    batch_bytes: int = 16_384,
    batch_records: int = 1_000_000,
) -> None:
    """
    Write records, one iterable for each partition, in order.

    A batch is full at *batch_bytes* (before compression) or *batch_records*, so 1 gives one-record batches.
    """
    async with producer(bootstrap, codec=codec, idempotent=idempotent, batch_bytes=batch_bytes) as connected:
        await _write(connected, topic, written, batch_records)


async def produce_transactions(
    bootstrap: str,
    topic: str,
    rounds: Iterable[tuple[bool, Sequence[Iterable[NewRecord]]]],
    *,
    transactional_id: str,
    codec: str | None = None,
    batch_records: int = 1_000_000,
) -> None:
    """
    Write rounds of records, each in a transaction of its own that is committed (True) or aborted (False).

    The markers of all of them are written, too, in the end.
    """
    async with producer(bootstrap, codec=codec, transactional_id=transactional_id) as connected:
        for commits, written in rounds:
            await connected.begin_transaction()
            await _write(connected, topic, written, batch_records)
            if commits:
                await connected.commit_transaction()
            else:
                await connected.abort_transaction()
    await await_stable(bootstrap, topic)


async def _write(
    connected: AIOKafkaProducer, topic: str, written: Sequence[Iterable[NewRecord]], batch_records: int
) -> None:
    async with asyncio.TaskGroup() as group:
        for partition, records in enumerate(written):
            group.create_task(_write_partition(connected, topic, partition, records, batch_records))


async def _write_partition(
    connected: AIOKafkaProducer, topic: str, partition: int, records: Iterable[NewRecord], batch_records: int
) -> None:
    sent = []
    batch = connected.create_batch()
    for record in records:
        if batch.record_count() >= batch_records or not _append(batch, record):
            sent.append(await connected.send_batch(batch, topic, partition=partition))
            batch = connected.create_batch()
            if not _append(batch, record):
                message = f"a record of {len(record.value or b'')} bytes fits into no batch: raise batch_bytes"
                raise ValueError(message)
    if batch.record_count():
        sent.append(await connected.send_batch(batch, topic, partition=partition))
    for delivered in sent:
        await delivered


def _append(batch: BatchBuilder, record: NewRecord) -> bool:
    appended = batch.append(
        timestamp=record.timestamp_ms, key=record.key, value=record.value, headers=list(record.headers)
    )
    return appended is not None


class NumberedStream:
    """
    Records whose values begin with their number, dealt out to the partitions in turn, at a steady rate.

    `sent` numbers have been acknowledged. Several hundred thousand records a second without a rate. With keys, each
    record has a key and two headers too. Batches hold up to *batch_records*. An open-ended stream goes on past its
    count until `done` is called.
    """

    def __init__(
        self,
        connected: AIOKafkaProducer,
        topic: str,
        partitions: int,
        size: int,
        *,
        with_keys: bool = False,
        open_ended: bool = False,
        batch_records: int = 1_000_000,
    ) -> None:
        self._batch_records = batch_records
        self._producer = connected
        self._topic = topic
        self._partitions = partitions
        self._with_keys = with_keys
        self._filler = b"." * (size - _NUMBER_BYTES)
        self._task: asyncio.Task[None] | None = None
        self._goes_on = open_ended
        self.sent = 0

    async def reached(self, number: int, *, within_s: float = 60.0) -> None:
        """Wait until that many records have been acknowledged."""
        async with asyncio.timeout(scaled(within_s)):
            while self.sent < number:
                if self._task is not None and self._task.done():
                    await self._task
                    message = f"the stream ended at {self.sent} records, {number} were waited for"
                    raise AssertionError(message)
                await asyncio.sleep(_POLL_S)

    async def done(self, *, within_s: float = 120.0) -> int:
        """Wait until every record has been acknowledged; return their number."""
        self._goes_on = False
        if self._task is not None:
            async with asyncio.timeout(scaled(within_s)):
                await self._task
        return self.sent

    async def write(self, start: int, count: int) -> None:
        """Write records *start* to *start + count* and wait until they are acknowledged."""
        async with asyncio.TaskGroup() as group:
            for partition in range(self._partitions):
                first = start + (partition - start) % self._partitions
                numbers = range(first, start + count, self._partitions)
                group.create_task(self._write_numbers(partition, numbers))
        self.sent = start + count

    async def _write_numbers(self, partition: int, numbers: range) -> None:
        delivered = []
        batch = self._producer.create_batch()
        now_ms = time.time_ns() // 1_000_000
        for number in numbers:
            key, headers = self._key_and_headers(number)
            value = b"%012d" % number + self._filler
            is_full = batch.record_count() >= self._batch_records
            if is_full or batch.append(timestamp=now_ms, key=key, value=value, headers=headers) is None:
                delivered.append(await self._producer.send_batch(batch, self._topic, partition=partition))
                batch = self._producer.create_batch()
                now_ms = time.time_ns() // 1_000_000
                batch.append(timestamp=now_ms, key=key, value=value, headers=headers)
        if batch.record_count():
            delivered.append(await self._producer.send_batch(batch, self._topic, partition=partition))
        for answer in delivered:
            await answer

    def _key_and_headers(self, number: int) -> tuple[bytes | None, list[tuple[str, bytes | None]]]:
        if not self._with_keys:
            return None, []
        return b"key-%d" % (number % 1_000), [("number", b"%d" % number), ("empty", None)]

    async def run(self, count: int, rate: int | None) -> None:
        """Write *count* records, and more while the stream is open, no faster than *rate* a second."""
        if rate is None:
            await self.write(0, count)
            return
        loop = asyncio.get_running_loop()
        started = loop.time()
        while self.sent < count or self._goes_on:
            due = int((loop.time() - started) * rate) + 1
            due = due if self._goes_on else min(count, due)
            if due > self.sent:
                await self.write(self.sent, due - self.sent)
            await asyncio.sleep(_WRITES_EVERY_S)


@asynccontextmanager
async def numbered_stream(
    bootstrap: str,
    topic: str,
    *,
    count: int,
    partitions: int,
    rate: int | None = None,
    size: int = 200,
    codec: str | None = None,
    with_keys: bool = False,
    open_ended: bool = False,
    batch_records: int = 1_000_000,
) -> AsyncIterator[NumberedStream]:
    """Write *count* numbered records in the background, exactly once each, also when a broker goes and comes back."""
    async with producer(bootstrap, codec=codec, idempotent=True, batch_bytes=65_536) as connected:
        stream = NumberedStream(
            connected,
            topic,
            partitions,
            size,
            with_keys=with_keys,
            open_ended=open_ended,
            batch_records=batch_records,
        )
        async with asyncio.TaskGroup() as group:
            stream._task = task = group.create_task(stream.run(count, rate))
            try:
                yield stream
                stream._goes_on = False
            except BaseException:
                task.cancel()
                raise


async def produce_numbers(
    bootstrap: str, topic: str, *, count: int, partitions: int, size: int = 200, codec: str | None = None
) -> None:
    """Write numbered records as fast as it goes."""
    async with numbered_stream(bootstrap, topic, count=count, partitions=partitions, size=size, codec=codec) as stream:
        await stream.done()


async def produce_compacted(bootstrap: str, topic: str, *, partitions: int, keys: int = 50, rounds: int = 20) -> None:
    """
    Write the same keys over and over in small batches, and something behind that closes the segment.

    The topic needs `COMPACTED_CONFIGS`; what compaction leaves are batches with holes.
    """
    written = [
        [
            NewRecord(b"key-%d" % ((number * 7 + step) % keys), b"%d/%d" % (step, number), (), MIDDLE_MS + number)
            for step in range(rounds)
            for number in range(0, keys, 1 + step % 5)
        ]
        for _ in range(partitions)
    ]
    await produce(bootstrap, topic, written, batch_records=10)
    # Segments are as old as their records say.
    await produce(bootstrap, topic, [[NewRecord(b"last", b"one", (), MIDDLE_MS + 60_000)]] * partitions)


#: Configs of a topic that the brokers compact within seconds.
COMPACTED_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
}
