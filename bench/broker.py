"""
The few requests that the benchmark itself makes of one broker, on one bare connection.

A cluster of several is `bench.cluster`.

Deliberately not mm2py's own wire room: what is measured must not be what measures.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from typing import Any

import attrs
from aiokafka.conn import create_conn
from aiokafka.protocol.admin import AlterConfigsRequest, CreateTopicsRequest, DeleteTopicsRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest

from bench.batches import ProducerId


UNKNOWN_TOPIC_OR_PARTITION = 3
LATEST = -1
CONFIGS_OF_ALL = (("retention.ms", "-1"),)
FETCH_MAX_BYTES = 4 * 1024 * 1024
REQUEST_TIMEOUT_MS = 30_000
PRODUCER_ID_ATTEMPTS = 50
TOPIC_POLL_S = 0.05
_TOPIC = 2  # among the kinds of what has configs

#: Keys and values.
Configs = Iterable[tuple[str, str]]


@attrs.define(eq=False)
class BenchBrokerError(Exception):
    """A broker refused what the benchmark asked of it."""

    request: str
    detail: str

    def __str__(self) -> str:
        return f"{self.request}: {self.detail}"


class Broker:
    """One connection to the only broker of a cluster, or to one of several."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def is_connected(self) -> bool:
        return bool(self._connection.connected())

    def close(self) -> None:
        """Close the connection; whatever waits for an answer fails."""
        self._connection.close()

    async def send(self, request: Any) -> Any:
        """Send one request and return its answer."""
        return await self._connection.send(request)

    async def create_topic(self, topic: str, partitions: int, configs: Configs = ()) -> None:
        """Create *topic* on this broker and wait until its partitions have leaders."""
        settings = [*CONFIGS_OF_ALL, *configs]
        request = CreateTopicsRequest([(topic, partitions, 1, [], settings)], REQUEST_TIMEOUT_MS, validate_only=False)
        answer = await self._connection.send(request)
        for name, code, *_ in answer.topic_errors:
            if code:
                raise BenchBrokerError("create topic", f"{name} got error {code}")
        async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
            await self.await_topic(topic, partitions)

    async def configure_topic(self, topic: str, configs: Configs = ()) -> None:
        """Have *topic* these configs, beside those that all have, and no others."""
        request = AlterConfigsRequest([(_TOPIC, topic, [*CONFIGS_OF_ALL, *configs])])
        answer = await self._connection.send(request)
        for code, message, *_ in answer.resources:
            if code:
                raise BenchBrokerError("configure topic", f"{topic} got error {code}, {message}")

    async def await_topic(self, topic: str, partitions: int) -> None:
        """Wait, as long as it takes, until the partitions of *topic* have leaders."""
        while await self.end_offsets(topic, partitions) is None:  # noqa: ASYNC110  # a broker sets no event
            await asyncio.sleep(TOPIC_POLL_S)

    async def topics(self) -> list[str]:
        """Every topic there is."""
        answer = await self._connection.send(MetadataRequest(None, allow_auto_topic_creation=False))
        return [entry[1] for entry in answer.topics]

    async def delete_topics(self, topics: Iterable[str]) -> None:
        """Delete *topics*; one that is gone already is fine."""
        answer = await self._connection.send(DeleteTopicsRequest(list(topics), REQUEST_TIMEOUT_MS))
        for name, code, *_ in answer.topic_error_codes:
            if code not in (0, UNKNOWN_TOPIC_OR_PARTITION):
                raise BenchBrokerError("delete topics", f"{name} got error {code}")

    async def end_offsets(self, topic: str, partitions: int) -> list[int] | None:
        """The next offset of every partition, or None while the topic is not there in full. Never creates it."""
        found = await self.ends({topic: range(partitions)})
        return [found[topic, number] for number in range(partitions)] if len(found) == partitions else None

    async def ends(self, wanted: Mapping[str, Iterable[int]]) -> dict[tuple[str, int], int]:
        """The next offsets of those *wanted* partitions that are here and led by this broker."""
        topics = [(topic, [(number, LATEST) for number in numbers]) for topic, numbers in wanted.items()]
        answer = await self._connection.send(OffsetRequest(-1, 0, topics))
        return {
            (topic, number): offset
            for topic, entries in answer.topics
            for number, code, _, offset in entries
            if not code
        }

    async def init_producer_id(self) -> ProducerId:
        """A producer id for an idempotent producer; a fresh broker may need a moment before it hands out any."""
        for _ in range(PRODUCER_ID_ATTEMPTS):
            answer = await self._connection.send(InitProducerIdRequest(None, -1))
            if not answer.error_code and answer.producer_id >= 0:
                return ProducerId(answer.producer_id, answer.producer_epoch)
            await asyncio.sleep(0.1)
        raise BenchBrokerError("init producer id", f"still error {answer.error_code}")

    def produce(self, topic: str, batches: list[tuple[int, bytes]]) -> Coroutine[Any, Any, None]:
        """Send one batch per partition now; awaiting what comes back waits for the acknowledgement."""
        sent = self._connection.send(ProduceRequest(None, -1, REQUEST_TIMEOUT_MS, [(topic, batches)]))
        return self._acknowledged(sent)

    async def _acknowledged(self, sent: Coroutine[Any, Any, Any]) -> None:
        answer = await sent
        for name, partitions in answer.topics:
            for partition, code, *_ in partitions:
                if code:
                    raise BenchBrokerError("produce", f"{name}-{partition} got error {code}")

    async def fetch(self, topic: str, positions: list[int], max_wait_ms: int) -> list[tuple[int, bytes]]:
        """Wait for anything new past *positions* and return the record sets by partition."""
        wanted = [(partition, position, FETCH_MAX_BYTES) for partition, position in enumerate(positions)]
        answer = await self._connection.send(FetchRequest(max_wait_ms, 1, FETCH_MAX_BYTES, 0, [(topic, wanted)]))
        found = []
        for _, partitions in answer.topics:
            for partition, code, *_, record_set in partitions:
                if code:
                    raise BenchBrokerError("fetch", f"{topic}-{partition} got error {code}")
                if record_set:
                    found.append((partition, record_set))
        return found


async def connect(host: str, port: int) -> Broker:
    """Open a connection."""
    limit_ms = REQUEST_TIMEOUT_MS + 10_000
    return Broker(await create_conn(host, port, client_id="bench", request_timeout_ms=limit_ms))


@contextlib.asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[Broker]:
    """A `Broker` at ``host:port``."""
    host, _, port = bootstrap.rpartition(":")
    broker = await connect(host, int(port))
    try:
        yield broker
    finally:
        broker.close()
