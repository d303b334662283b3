"""Reading a whole topic back, as a consumer sees it and as raw batches."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import attrs
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.structs import ConsumerRecord

from tests.support.eventually import eventually, scaled
from tests.support.records import Contents, Record
from tests.support.topics import await_led, client, leaders


_FETCH_BYTES = 16 * 1024 * 1024
_POLL_MS = 200
_BATCH_PREFIX = struct.Struct(">qi")
_BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


async def read_topic(
    bootstrap: str,
    topic: str,
    *,
    partitions: Sequence[int] | None = None,
    reads_committed: bool = False,
    within_s: float = 60.0,
) -> Contents:
    """Read every record from the log's start to what is its end now, partition by partition; of some only, or all."""
    contents: Contents = {
        partition: []
        for partition in await await_led(bootstrap, topic)
        if partitions is None or partition in partitions
    }
    async with (
        asyncio.timeout(scaled(within_s)),
        aclosing(_fetched(bootstrap, topic, list(contents), reads_committed=reads_committed)) as chunks,
    ):
        async for partition, records in chunks:
            contents[partition].extend(
                Record(r.offset, r.key, r.value, tuple(r.headers), r.timestamp, r.timestamp_type) for r in records
            )
    return contents


async def read_numbers(
    bootstrap: str, topic: str, *, reads_committed: bool = False, within_s: float = 60.0
) -> dict[int, list[int]]:
    """Read the numbers of a numbered stream's records, partition by partition."""
    numbers: dict[int, list[int]] = {partition: [] for partition in await await_led(bootstrap, topic)}
    async with (
        asyncio.timeout(scaled(within_s)),
        aclosing(_fetched(bootstrap, topic, list(numbers), reads_committed=reads_committed)) as chunks,
    ):
        async for partition, records in chunks:
            numbers[partition].extend(int(r.value[:12]) for r in records)
    return numbers


async def _fetched(
    bootstrap: str, topic: str, partitions: Sequence[int], *, reads_committed: bool
) -> AsyncGenerator[tuple[int, list[ConsumerRecord]], None]:
    assert partitions, f"{topic} is being deleted, or created"
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed" if reads_committed else "read_uncommitted",
        fetch_max_bytes=_FETCH_BYTES,
        max_partition_fetch_bytes=_FETCH_BYTES,
    )
    await consumer.start()
    try:
        places = [TopicPartition(topic, number) for number in partitions]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        ends = await consumer.end_offsets(places)
        unread = set(places)
        while unread:
            for place, records in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
                yield place.partition, [record for record in records if record.offset < ends[place]]
            unread = {place for place in unread if await consumer.position(place) < ends[place]}
    finally:
        await consumer.stop()


@attrs.frozen
class RawBatch:
    """One record batch as it lies in a log, and what its header says."""

    raw: bytes = attrs.field(repr=False)
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> str:
        return _CODECS[self.attributes & 0x07]

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)

    @property
    def has_holes(self) -> bool:
        return self.count != self.last_offset_delta + 1

    @property
    def records(self) -> bytes:
        """Everything behind the header: what must be copied bytewise."""
        return self.raw[_BATCH_HEADER.size :]


def split_batches(record_set: bytes) -> list[RawBatch]:
    """Take a record set apart; an incomplete batch at its end is left out."""
    batches = []
    at = 0
    while at + _BATCH_HEADER.size <= len(record_set):
        base_offset, length = _BATCH_PREFIX.unpack_from(record_set, at)
        end = at + _BATCH_PREFIX.size + length
        if end > len(record_set):
            break
        _, _, leader_epoch, _, _, attributes, *rest = _BATCH_HEADER.unpack_from(record_set, at)
        batches.append(RawBatch(record_set[at:end], base_offset, leader_epoch, attributes, *rest))
        at = end
    return batches


async def raw_record_set(
    bootstrap: str, topic: str, partition: int, offset: int, *, max_bytes: int = _FETCH_BYTES
) -> bytes:
    """Fetch once, the way a consumer does, and return the bytes as the leader sent them."""
    leader = (await leaders(bootstrap, topic))[partition]
    async with client(bootstrap) as connected:
        request = FetchRequest(500, 1, max_bytes, 0, [(topic, [(partition, offset, max_bytes)])])
        await eventually(lambda: connected.ready(leader), within_s=10, what=f"broker {leader} takes a connection")
        answer = await connected.send(leader, request)
    ((_, ((_, code, *_, record_set),)),) = answer.topics
    if code:
        raise for_code(code)(f"fetching {topic}-{partition} at {offset}")
    return bytes(record_set)


async def read_batches(bootstrap: str, topic: str, partition: int = 0) -> list[RawBatch]:
    """Read every batch of a partition from offset 0 to its end, control batches included."""
    batches: list[RawBatch] = []
    position = 0
    while found := split_batches(await raw_record_set(bootstrap, topic, partition, position)):
        batches.extend(found)
        position = found[-1].next_offset
    return batches
