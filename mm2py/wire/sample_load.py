"""
What an ordinary producer writes and an ordinary consumer reads: sample records for the demo, and proof of them.

The mirror itself never comes here. Reading a topic keeps a fingerprint of each record, not the record, so a topic of
any size can be compared with another.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import attrs
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.structs import TopicPartition as ClientPartition

from mm2py.errors import BrokerConnectionError


#: Bytes of a record's fingerprint.
FINGERPRINT_BYTES: Final = 16

_FETCH_BYTES: Final = 8 * 1024 * 1024
_POLL_MS: Final = 200
_COMMIT_MS: Final = 1_000
#: How long a producer may take to end after an error.
_GIVEN_UP_AFTER_S: Final = 2.0
#: Producers remember which partition a key belongs to, up to this many keys.
_KEYS_REMEMBERED: Final = 50_000


@attrs.frozen
class SampleRecord:
    """One record to write; its key decides its partition."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class SampleProducer:
    """
    An idempotent producer of one topic that waits for all replicas.

    Keys choose partitions as Java's producer does; records without a key take turns. `acknowledged` counts records.
    """

    def __init__(self, bootstrap_servers: str, topic: str, *, partitions: int, codec: str | None) -> None:
        self.topic = topic
        self.acknowledged = 0
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap_servers,
            client_id="mm2py-sample",
            acks="all",
            enable_idempotence=True,
            compression_type=codec,
            max_batch_size=64 * 1024,
        )
        self._partitions = list(range(partitions))
        self._choose = DefaultPartitioner()
        self._known: dict[bytes, int] = {}
        self._turn = 0

    async def __aenter__(self) -> Self:
        await self._producer.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # It would wait for a broker that has ended, and try again and again.
        with suppress(TimeoutError):
            async with asyncio.timeout(None if error is None else _GIVEN_UP_AFTER_S):
                await self._producer.stop()

    async def write(self, records: Iterable[SampleRecord]) -> None:
        """Write *records*, in order within each partition, and wait until they are acknowledged."""
        chosen: dict[int, list[SampleRecord]] = {}
        for record in records:
            chosen.setdefault(self._partition(record.key), []).append(record)
        try:
            answers = [answer for number, some in chosen.items() for answer in await self._send(number, some)]
            for answer in answers:
                await answer
            self.acknowledged += sum(map(len, chosen.values()))
        except KafkaError as error:
            raise BrokerConnectionError("the source", self.topic, str(error)) from error

    async def _send(self, partition: int, records: Sequence[SampleRecord]) -> list[asyncio.Future[Any]]:
        answers = []
        batch = self._producer.create_batch()
        for record in records:
            if not _append(batch, record):
                answers.append(await self._producer.send_batch(batch, self.topic, partition=partition))
                batch = self._producer.create_batch()
                _append(batch, record)
        answers.append(await self._producer.send_batch(batch, self.topic, partition=partition))
        return answers

    def _partition(self, key: bytes | None) -> int:
        if key is None:
            self._turn += 1
            return self._partitions[self._turn % len(self._partitions)]
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _KEYS_REMEMBERED:
                self._known.clear()
            known = self._known[key] = self._choose(key, self._partitions, self._partitions)
        return known


def _append(batch: Any, record: SampleRecord) -> bool:
    appended = batch.append(
        timestamp=record.timestamp_ms, key=record.key, value=record.value, headers=list(record.headers)
    )
    return appended is not None


async def read_fingerprints(bootstrap_servers: str, topic: str, partitions: int) -> Mapping[int, bytes]:
    """
    Read *topic* to its present end as a consumer does; give the fingerprints of its records, per partition, in order.

    A fingerprint stands for key, value, headers, timestamp and the timestamp's type, not for the offset.
    """
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        client_id="mm2py-sample",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_bytes=_FETCH_BYTES,
        max_partition_fetch_bytes=_FETCH_BYTES,
    )
    found = {number: bytearray() for number in range(partitions)}
    await consumer.start()
    try:
        places = [ClientPartition(topic, number) for number in found]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        ends = await consumer.end_offsets(places)
        unread = set(places)
        while unread:
            for place, records in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
                digests = [_fingerprint(record) for record in records if record.offset < ends[place]]
                found[place.partition] += b"".join(digests)
            unread = {place for place in unread if await consumer.position(place) < ends[place]}
    except KafkaError as error:
        raise BrokerConnectionError(bootstrap_servers, topic, str(error)) from error
    finally:
        await consumer.stop()
    return {number: bytes(digests) for number, digests in found.items()}


async def read_as_group(bootstrap_servers: str, topic: str, group: str) -> None:
    """Read *topic* as a member of *group*, and commit what was read, until cancelled."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        client_id="mm2py-sample",
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=_COMMIT_MS,
    )
    await consumer.start()
    try:
        while True:
            await consumer.getmany(timeout_ms=_POLL_MS)
    except KafkaError as error:
        raise BrokerConnectionError("the source", topic, str(error)) from error
    finally:
        # As a producer does.
        with suppress(TimeoutError):
            async with asyncio.timeout(_GIVEN_UP_AFTER_S):
                await consumer.stop()


def _fingerprint(record: Any) -> bytes:
    content = (record.key, record.value, record.headers, record.timestamp, record.timestamp_type)
    return hashlib.blake2b(repr(content).encode(), digest_size=FINGERPRINT_BYTES).digest()
