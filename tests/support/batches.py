"""Record batches as brokers hand them out: in every codec and format, with holes, from transactions, damaged."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from crc32c import crc32c

from mm2py.wire.batches.batch import RecordBatchView, batches
from mm2py.wire.batches.codecs import compressed
from mm2py.wire.batches.native import Rebuilt
from tests.support.records import Headers


NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
HEADER_BYTES = 61

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40

#: 2024-01-01T00:00:00Z.
START_MS = 1_704_067_200_000

_BASE_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")
_NO_LIMIT = 1 << 30


class Content(NamedTuple):
    """A record to put into a batch, *delta* after the batch's base offset."""

    delta: int
    timestamp: int = START_MS
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: Headers = ()


def contents(count: int, *, size: int = 20) -> list[Content]:
    """Make consecutive records whose values tell them apart."""
    return [Content(n, START_MS + n, b"k%d" % n, b"%06d" % n + b"." * (size - 6)) for n in range(count)]


def build_batch(
    records: int | Sequence[Content] = 1,
    *,
    base_offset: int = 0,
    codec: int = NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
    last_offset_delta: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """
    Build a magic 2 batch.

    *producer* is producer id, epoch and base sequence, *attributes* are bits to be set besides the codec's. Without
    records the batch is what compaction leaves of one.
    """
    filled = contents(records) if isinstance(records, int) else records
    builder = DefaultRecordBatchBuilder(2, codec, 0, *producer, _NO_LIMIT)
    for record in filled:
        builder.append(record.delta, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytearray(builder.build())
    (own_attributes,) = _ATTRIBUTES.unpack_from(batch, 21)
    _ATTRIBUTES.pack_into(batch, 21, own_attributes | attributes)
    if last_offset_delta is not None:
        _LAST_OFFSET_DELTA.pack_into(batch, 23, last_offset_delta)
    if max_timestamp is not None:
        _TIMESTAMP.pack_into(batch, 35, max_timestamp)
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    return resigned(batch)


def named_batch(name: bytes, *, base_offset: int = 0, codec: int = NONE, attributes: int = 0) -> bytes:
    """Build a batch of one record with a header of any *name*, which aiokafka's builder takes only as text."""
    placeholder = "n" * len(name)
    record = Content(0, START_MS, b"k", b"x" * 200, ((placeholder, b"x"),))
    raw = build_batch([record], base_offset=base_offset, attributes=attributes)
    renamed = resigned(raw.replace(placeholder.encode(), name))
    return bytes(compressed(Rebuilt(memoryview(bytearray(renamed)), (), 1, START_MS), codec).batch)


def view_of(batch: bytes) -> RecordBatchView:
    """Return the view of a single batch."""
    (found,) = batches(memoryview(batch))
    return found


def resigned(batch: bytes | bytearray) -> bytes:
    """Return *batch* the length and the checksum that its bytes call for."""
    fixed = bytearray(batch)
    _LENGTH.pack_into(fixed, 8, len(fixed) - 12)
    _CRC.pack_into(fixed, 17, crc32c(bytes(fixed[21:])))
    return bytes(fixed)


def control_batch(base_offset: int, producer_id: int, *, commits: bool) -> bytes:
    """Build the marker that ends a transaction."""
    key = struct.pack(">hh", 0, 1 if commits else 0)
    marker = Content(0, START_MS, key, struct.pack(">hi", 0, 7))
    return build_batch(
        [marker], base_offset=base_offset, producer=(producer_id, 0, -1), attributes=CONTROL | TRANSACTIONAL
    )


def legacy_messages(
    magic: int,
    records: Iterable[Content],
    *,
    base_offset: int = 0,
    codec: int = NONE,
    log_append_time: int | None = None,
) -> bytes:
    """Build what logs held before Kafka 0.11: bare messages, or one message around compressed ones."""
    filled = list(records)
    # Inside a compressed message, magic 1 counts from the first record; magic 0 writes the offsets themselves.
    is_relative = codec != NONE and magic == 1
    builder = LegacyRecordBatchBuilder(magic, codec, _NO_LIMIT)
    for record in filled:
        offset = record.delta if is_relative else base_offset + record.delta
        builder.append(offset, record.timestamp if magic else None, record.key, record.value)
    message = bytearray(builder.build())
    if codec != NONE:
        _BASE_OFFSET.pack_into(message, 0, base_offset + filled[-1].delta)
    if log_append_time is not None:
        (attributes,) = struct.unpack_from(">b", message, 17)
        struct.pack_into(">b", message, 17, attributes | LOG_APPEND_TIME)
        _TIMESTAMP.pack_into(message, 18, log_append_time)
        resign_legacy(message)
    return bytes(message)


def resign_legacy(message: bytearray) -> None:
    """Write the checksum into one message of magic 0 or 1."""
    _CRC.pack_into(message, 12, zlib.crc32(bytes(message[16:])))


def flipped(batch: bytes, at: int = -1) -> bytes:
    """Return *batch* with one bit changed."""
    damaged = bytearray(batch)
    damaged[at] ^= 0x10
    return bytes(damaged)
