"""Fill a source topic with prebuilt batches, as one idempotent producer."""

from __future__ import annotations

import collections
import time
from collections.abc import Coroutine
from typing import Any

import attrs

from bench.batches import batches_of, records_per_batch
from bench.broker import Broker
from bench.shapes import Shape


REQUESTS_IN_FLIGHT = 5


@attrs.frozen
class LoadedTopic:
    """A source topic ready to be mirrored; `stored_bytes` are its record batches as they lie at the source."""

    topic: str
    shape: Shape
    records: int
    stored_bytes: int
    uncompressed_bytes: int
    seconds: float


async def load(source: Broker, shape: Shape, records: int) -> LoadedTopic:
    """Create the topic of *shape* with about *records* records, every partition with as many as the others."""
    topic = f"bench-{shape.name}"
    templates = batches_of(shape)
    per_round = records_per_batch(shape) * shape.partitions
    rounds = max(1, round(records / per_round))
    await source.create_topic(topic, shape.partitions, shape.configs)
    producer = await source.init_producer_id()
    started = time.monotonic()
    in_flight: collections.deque[Coroutine[Any, Any, None]] = collections.deque()
    stored_bytes = 0
    for number in range(rounds):
        now_ms = time.time_ns() // 1_000_000
        batches = []
        for partition in range(shape.partitions):
            template = next(templates)
            batch = template.stamped(producer, number * template.records, now_ms)
            stored_bytes += len(batch)
            batches.append((partition, batch))
        if len(in_flight) == REQUESTS_IN_FLIGHT:
            await in_flight.popleft()
        in_flight.append(source.produce(topic, batches))
    while in_flight:
        await in_flight.popleft()
    total = rounds * per_round
    return LoadedTopic(topic, shape, total, stored_bytes, total * shape.value_bytes, time.monotonic() - started)
