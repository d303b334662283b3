"""
Record batches made once and produced many times.

Building batches record by record would make loading the source the longest part of the benchmark. So a few dozen
different batches are built, and each time one is sent only its header is stamped again: timestamps, and the producer
id, epoch and sequence that an idempotent producer would have left there.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator

import attrs
from aiokafka.record._crecords import DefaultRecordBatchBuilder
from crc32c import crc32c

from bench import content
from bench.shapes import Codec, Shape


TEMPLATES_BYTES = 8 * 1024 * 1024
TEMPLATES_MOST = 2048
RECORD_OVERHEAD_BYTES = 24
RECORDS_PER_MS = 4

_CHECKED_FROM = 21
_TIMES = struct.Struct(">qqqhi")  # base and max timestamp, producer id, producer epoch, base sequence
_TIMES_AT = 27
_PLACE = struct.Struct(">qi")  # base offset, length of what follows
_INT = struct.Struct(">i")
_LAST_DELTA_AT = 23
_COUNT_AT = 57
_HEADER_BYTES = 61


@attrs.frozen
class ProducerId:
    """What a broker handed out to an idempotent producer."""

    id: int
    epoch: int


@attrs.frozen
class Template:
    """One built batch; `span_ms` lies between its first and its last timestamp."""

    data: bytes
    records: int
    span_ms: int

    def stamped(self, producer: ProducerId, sequence: int, base_timestamp_ms: int) -> bytes:
        """The batch as that producer would have sent it at that time, checksum included."""
        data = bytearray(self.data)
        _TIMES.pack_into(
            data,
            _TIMES_AT,
            base_timestamp_ms,
            base_timestamp_ms + self.span_ms,
            producer.id,
            producer.epoch,
            sequence,
        )
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[_CHECKED_FROM:]))
        return bytes(data)


def build_templates(shape: Shape) -> tuple[Template, ...]:
    """Different batches of *shape*, all of the same number of records, a few megabytes in all."""
    source = content.records(value_bytes=shape.value_bytes, seed=shape.value_bytes)
    per_batch = records_per_batch(shape)
    raw_bytes = per_batch * (shape.value_bytes + RECORD_OVERHEAD_BYTES)
    count = max(8, min(TEMPLATES_MOST, TEMPLATES_BYTES // raw_bytes))
    return tuple(_build(itertools.islice(source, per_batch), shape) for _ in range(count))


def records_per_batch(shape: Shape) -> int:
    """Return how many records each batch of *shape* has."""
    return max(1, shape.batch_bytes // (shape.value_bytes + RECORD_OVERHEAD_BYTES))


def batches_of(shape: Shape) -> Iterator[Template]:
    """Return batches of *shape* without end."""
    return _numbered_in_pairs(shape) if shape.is_compacted else itertools.cycle(build_templates(shape))


def left_of_pairs(records: int) -> int:
    """Return how many records of a batch with so many are left by compaction."""
    return -(-records // 2)


def _numbered_in_pairs(shape: Shape) -> Iterator[Template]:
    """Build each batch: two records that are next to each other have the same key, and no others in the topic."""
    per_batch = records_per_batch(shape)
    source = content.records(value_bytes=shape.value_bytes, seed=shape.value_bytes)
    values = itertools.cycle([value for _, value in itertools.islice(source, TEMPLATES_BYTES // shape.value_bytes)])
    for number in itertools.count():
        keys = (b"%08d-%04d" % (number, index // 2) for index in range(per_batch))
        yield _build(zip(keys, values, strict=False), shape)


def closing_batch(timestamp_ms: int) -> bytes:
    """Build a batch of one record, from no idempotent producer."""
    builder = DefaultRecordBatchBuilder(2, Codec.NONE.value, 0, -1, -1, -1, 1 << 20)
    builder.append(0, timestamp_ms, b"closing", b"", [])
    return bytes(builder.build())


def walk(record_set: bytes) -> Iterator[tuple[int, int, int]]:
    """For each whole batch: the offset after it, how many records it has, and its size in bytes."""
    at = 0
    while at + _HEADER_BYTES <= len(record_set):
        base, length = _PLACE.unpack_from(record_set, at)
        size = _PLACE.size + length
        if at + size > len(record_set):
            break
        (last,) = _INT.unpack_from(record_set, at + _LAST_DELTA_AT)
        (records,) = _INT.unpack_from(record_set, at + _COUNT_AT)
        yield base + last + 1, records, size
        at += size


def _build(records: Iterable[tuple[bytes, bytes]], shape: Shape) -> Template:
    builder = DefaultRecordBatchBuilder(2, shape.codec.value, 0, 0, 0, 0, 1 << 30)
    count = 0
    for index, (key, value) in enumerate(records):
        count += 1
        builder.append(index, index // RECORDS_PER_MS, key, value, [])
    return Template(bytes(builder.build()), count, (count - 1) // RECORDS_PER_MS)
