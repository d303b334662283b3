"""
Record batches made once and produced many times.

Building batches record by record would make loading the source the longest part of the benchmark. So a few dozen
different batches are built, and each time one is sent only its header is stamped again: timestamps, and the producer
id, epoch and sequence that an idempotent producer would have left there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import attrs
from aiokafka.record._crecords import DefaultRecordBatchBuilder
from crc32c import crc32c

from bench import content
from bench.shapes import Shape


TEMPLATES_BYTES = 8 * 1024 * 1024
TEMPLATES_MOST = 2048
RECORD_OVERHEAD_BYTES = 24
RECORDS_PER_MS = 4

_CHECKED_FROM = 21
_TIMES = struct.Struct(">qqqhi")  # base and max timestamp, producer id, producer epoch, base sequence
_TIMES_AT = 27


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
    per_batch = max(1, shape.batch_bytes // (shape.value_bytes + RECORD_OVERHEAD_BYTES))
    raw_bytes = per_batch * (shape.value_bytes + RECORD_OVERHEAD_BYTES)
    count = max(8, min(TEMPLATES_MOST, TEMPLATES_BYTES // raw_bytes))
    return tuple(_build(source, per_batch, shape) for _ in range(count))


def _build(source: Iterator[tuple[bytes, bytes]], per_batch: int, shape: Shape) -> Template:
    builder = DefaultRecordBatchBuilder(2, shape.codec.value, 0, 0, 0, 0, 1 << 30)
    for index in range(per_batch):
        key, value = next(source)
        builder.append(index, index // RECORDS_PER_MS, key, value, [])
    return Template(bytes(builder.build()), per_batch, (per_batch - 1) // RECORDS_PER_MS)
