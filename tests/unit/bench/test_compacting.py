"""A topic counts as compacted once of each pair of records one is left."""

from collections.abc import Iterable

import attrs
import pytest
from aiokafka.record._crecords import DefaultRecordBatchBuilder

from bench.broker import BenchBrokerError
from bench.compacting import compact
from bench.load import LoadedTopic
from bench.shapes import SEGMENT_MS, Shape


SHAPE = Shape("", "", 200, 1, 1.0, batch_bytes=1_200, configs=(("segment.ms", str(SEGMENT_MS)),), is_compacted=True)
LOADED = LoadedTopic("bench", SHAPE, 10, 9_999, 2_000, 1.0)
CLOSING_MS = 1_000


def batch(base: int, records: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for index in range(records):
        builder.append(index, CLOSING_MS, b"key", b"value", [])
    return base.to_bytes(8, "big") + bytes(builder.build())[8:]


@attrs.define
class Compacting:
    """A broker whose cleaner needs a while; one partition, two batches of five records and what closes the segment."""

    looks_before: int
    configs: list[dict[str, str]] = attrs.Factory(list)
    produced: list[int] = attrs.Factory(list)

    async def produce(self, _topic: str, batches: list[tuple[int, bytes]]) -> None:
        self.produced += [partition for partition, _ in batches]

    async def configure_topic(self, _topic: str, configs: Iterable[tuple[str, str]] = ()) -> None:
        self.configs.append(dict(configs))

    async def end_offsets(self, _topic: str, _partitions: int) -> list[int]:
        self.looks_before -= 1
        return [11]

    async def fetch(self, _topic: str, positions: list[int], _max_wait_ms: int) -> list[tuple[int, bytes]]:
        kept = 5 if self.looks_before >= 0 else 3
        whole = [(0, batch(0, kept)), (5, batch(5, kept)), (10, batch(10, 1))]
        # One batch in each answer; a compacted batch still ends where it did.
        (found,) = [data for base, data in whole if base == positions[0]]
        if positions[0] < 10:
            found = found[:23] + (4).to_bytes(4, "big") + found[27:]
        return [(0, found)]


async def test_what_is_left_is_what_counts() -> None:
    """The topic is read until it has half of its records, and its configs are those of any topic then."""
    broker = Compacting(looks_before=2)

    left = await compact(broker, LOADED)  # type: ignore[arg-type]  # a fake

    assert (left.records, left.uncompressed_bytes) == (7, 1_400)
    assert left.stored_bytes == 2 * len(batch(0, 3)) + len(batch(0, 1))
    assert broker.produced == [0]
    assert [configs.get("cleanup.policy") for configs in broker.configs] == ["compact", None]
    assert broker.configs[-1] == {}


async def test_a_topic_that_is_not_compacted_is_not_mirrored() -> None:
    """Figures of a topic without holes would bear the wrong name."""
    with pytest.raises(BenchBrokerError, match=r"has 11 records after 180 s, not 7"):
        await compact(Compacting(looks_before=1_000_000), LOADED)  # type: ignore[arg-type]  # a fake
