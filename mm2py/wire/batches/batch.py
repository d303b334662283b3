"""
Record batches by their header alone.

A record batch (magic 2, KIP-98) can travel from one cluster to another without being opened. This module reads
its 61-byte header, checks its CRC32C, and signs it again for the target: base offset 0, our own producer id, epoch and
sequence, no transactional bit but our own. From byte 61 on, the records, nothing changes. What cannot travel unopened
goes to `mm2py.wire.batches.rebuild`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from crc32c import crc32c


#: base offset, length, leader epoch, magic, crc, attributes, last offset delta, base timestamp, max timestamp,
#: producer id, producer epoch, base sequence, record count
HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
#: Base offset and length; the length counts what follows them.
LOG_OVERHEAD_BYTES: Final = 12
#: The smallest thing a log can hold: a magic 0 message.
MIN_BATCH_BYTES: Final = LOG_OVERHEAD_BYTES + 14

#: The format with a header of its own; magic 0 and 1 are the message sets before Kafka 0.11.
MAGIC_V2: Final = 2

_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_SIGNED_FROM: Final = 21
_UNSIGNED_HEAD: Final = struct.Struct(">qi")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43
_LEADER_EPOCH: Final = struct.Struct(">i")
_LEADER_EPOCH_AT: Final = 12
_ZERO_OFFSET: Final = bytes(8)

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
#: KIP-534: the base timestamp is the delete horizon of the tombstones inside.
DELETE_HORIZON: Final = 0x40

MAX_SEQUENCE: Final = 0x7FFFFFFF


class RecordBatchView:
    """
    One batch inside a record set: its header's fields and the memory it lies in.

    `offset_count` is what the batch covers in the log, `record_count` what it still holds: they differ once
    compaction has removed records. `leader_epoch` is that of the leader that wrote it. For magic 0 and 1 only
    `base_offset`, `magic` and `view` mean anything.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_timestamp",
        "crc",
        "last_offset",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "record_count",
        "view",
    )

    def __init__(self, view: memoryview, base_offset: int, magic: int) -> None:
        self.view = view
        self.base_offset = base_offset
        self.magic = magic
        self.last_offset = base_offset
        self.leader_epoch = -1
        self.attributes = 0
        self.crc = 0
        self.base_timestamp = self.max_timestamp = -1
        self.producer_id = -1
        self.producer_epoch = -1
        self.record_count = 0

    @property
    def size_bytes(self) -> int:
        return len(self.view)

    @property
    def offset_count(self) -> int:
        return self.last_offset - self.base_offset + 1

    @property
    def has_holes(self) -> bool:
        return self.record_count != self.offset_count

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    def matches_crc(self) -> bool:
        """Check the batch against the CRC32C its producer gave it."""
        return bool(crc32c(self.view[_SIGNED_FROM:]) == self.crc)


class MalformedRecordSetError(ValueError):
    """A record set whose lengths make no sense, from the batch at *offset* on."""

    def __init__(self, offset: int, detail: str) -> None:
        super().__init__(offset, detail)
        self.offset = offset
        self.detail = detail


def batches(record_set: memoryview) -> Iterator[RecordBatchView]:
    """Walk the whole batches of a record set. The last one may be cut off by the fetch's size limit; it is omitted.
    Raises `MalformedRecordSetError` for an invalid length field.
    """
    unpack_header = HEADER.unpack_from
    at, end = 0, len(record_set)
    while end - at >= MIN_BATCH_BYTES:
        base_offset, length = _UNSIGNED_HEAD.unpack_from(record_set, at)
        magic = record_set[at + _MAGIC_AT]
        if length < (HEADER_BYTES - LOG_OVERHEAD_BYTES if magic >= MAGIC_V2 else MIN_BATCH_BYTES - LOG_OVERHEAD_BYTES):
            raise MalformedRecordSetError(base_offset, f"it claims a length of {length} bytes")
        after = at + LOG_OVERHEAD_BYTES + length
        if after > end:
            return
        batch = RecordBatchView(record_set[at:after], base_offset, magic)
        if magic >= MAGIC_V2:
            (
                _, _, batch.leader_epoch, _, batch.crc, batch.attributes, last_offset_delta, batch.base_timestamp,
                batch.max_timestamp, batch.producer_id, batch.producer_epoch, _, batch.record_count,
            ) = unpack_header(record_set, at)  # fmt: skip
            batch.last_offset = base_offset + last_offset_delta
        yield batch
        at = after


def sign(
    batch: memoryview, producer_id: int, producer_epoch: int, base_sequence: int, *, is_transactional: bool = False
) -> None:
    """
    Make *batch* ours, in place: what a broker insists on from a client, and nothing else.

    The base offset must be 0, or the broker rebuilds a compressed batch and refuses any other; it lies outside the
    CRC, as does the leader epoch. The source's transactional bit goes; ours is set where we have a transaction.
    """
    batch[:8] = _ZERO_OFFSET
    _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_AT, -1)
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _SIGNED_FROM)
    ours = TRANSACTIONAL if is_transactional else 0
    _ATTRIBUTES.pack_into(batch, _SIGNED_FROM, attributes & ~TRANSACTIONAL | ours)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    _CRC.pack_into(batch, _CRC_AT, crc32c(batch[_SIGNED_FROM:]))


def next_sequence(sequence: int, record_count: int) -> int:
    """Return the sequence of the batch after one of *record_count* records; it wraps to 0 as Java's does."""
    return (sequence + record_count) & MAX_SEQUENCE
