"""Have the source compact a topic before it is mirrored, so that its batches have holes."""

from __future__ import annotations

import asyncio
import time

import attrs

from bench.batches import closing_batch, left_of_pairs, records_per_batch, walk
from bench.broker import BenchBrokerError, Broker
from bench.load import LoadedTopic
from bench.shapes import SEGMENT_MS


#: The cleaner looks for work every 15 seconds.
LIMIT_S = 180.0
POLL_S = 2.0
FETCH_WAIT_MS = 100


async def compact(source: Broker, loaded: LoadedTopic) -> LoadedTopic:
    """
    Wait until each pair of records with the same key is one record, and return what is in the topic then.

    The last segment of a log is never compacted, so one more record for each partition begins another. Afterwards the
    topic is as others are: nothing happens to it while it is mirrored, and no candidate copies such configs.
    """
    shape, topic = loaded.shape, loaded.topic
    closing = closing_batch(time.time_ns() // 1_000_000 + 2 * SEGMENT_MS)
    await source.produce(topic, [(partition, closing) for partition in range(shape.partitions)])
    per_batch = records_per_batch(shape)
    expected = loaded.records // per_batch * left_of_pairs(per_batch) + shape.partitions
    await source.configure_topic(
        topic, [*shape.configs, ("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01")]
    )
    records = 0
    try:
        async with asyncio.timeout(LIMIT_S):
            while records != expected:
                await asyncio.sleep(POLL_S)
                records, stored_bytes = await _content(source, topic, shape.partitions)
    except TimeoutError as error:
        raise BenchBrokerError(
            "compact", f"{topic} has {records} records after {LIMIT_S:g} s, not {expected}"
        ) from error
    await source.configure_topic(topic)
    return attrs.evolve(
        loaded, records=records, stored_bytes=stored_bytes, uncompressed_bytes=records * shape.value_bytes
    )


async def _content(source: Broker, topic: str, partitions: int) -> tuple[int, int]:
    """Read the headers of all batches, and return how many records and bytes they have."""
    ends = await source.end_offsets(topic, partitions) or []
    positions = [0] * partitions
    records = stored_bytes = 0
    while any(position < end for position, end in zip(positions, ends, strict=True)):
        for partition, record_set in await source.fetch(topic, positions, FETCH_WAIT_MS):
            for positions[partition], count, size in walk(record_set):
                records += count
                stored_bytes += size
    return records, stored_bytes
