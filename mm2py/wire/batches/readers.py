"""
aiokafka's readers of batches and of messages, for what they read within bounds alone.

Its reader of magic 0 and 1 follows the lengths of messages inside a compressed one wherever they lead: out of the
memory that it has, or round and round in it. Its decoder of Snappy does the latter, and none has a limit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatch
from aiokafka.record.memory_records import MemoryRecords

from mm2py.wire.batches.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    RecordBatchView,
    batches,
)
from mm2py.wire.batches.codecs import BAD_CHECKSUM, decompressed, plain


#: Length, magic and attributes of a batch.
_GLANCE: Final = struct.Struct(">8xi4xb4xh")
_ATTRIBUTES_AT: Final = 17
#: Where a message's key begins, by its magic.
_KEY_AT: Final = (18, 26)
_SIZE: Final = struct.Struct(">i")
_NULL: Final = -1
_LENGTH_AT: Final = 8
_CUT: Final = "a message in it does not end where it says"


class Readers:
    """
    aiokafka's readers of the batches of a record set, one after the other, each with its codec.

    `offset` is the base offset of the last one that was taken or refused; of messages of magic 0 and 1, which name
    their last offset, it is *otherwise*.
    """

    def __init__(self, record_set: bytes | memoryview, otherwise: int) -> None:
        self._record_set = memoryview(record_set)
        self._otherwise = self.offset = otherwise

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        """Raises `ValueError`, or what a codec raises."""
        at = 0
        while at < len(self._record_set):
            end = _end_of_others(self._record_set, at)
            if end > at:
                yield from self._others(bytes(self._record_set[at:end]))
            for batch in batches(self._record_set[end:]):
                yield self._checked(batch), _codec_of(batch)
                at = end + batch.size_bytes
                break
            else:
                return

    def _others(self, record_set: bytes) -> Iterator[tuple[Any, int]]:
        records: Any = MemoryRecords(record_set)
        while records.has_next():
            reader = records.next_batch()
            self.offset = reader.base_offset
            if not reader.validate_crc():
                raise ValueError(BAD_CHECKSUM)
            yield reader, reader.compression_type

    def _checked(self, batch: RecordBatchView) -> Any:
        is_old = batch.magic < MAGIC_V2
        self.offset = self._otherwise if is_old else batch.base_offset
        if is_old and batch.size_bytes < _KEY_AT[batch.magic] + 2 * _SIZE.size:
            raise ValueError(_CUT)
        reader: Any = (
            LegacyRecordBatch(bytes(batch.view), batch.magic) if is_old else DefaultRecordBatch(bytes(plain(batch)))
        )
        if not reader.validate_crc():
            raise ValueError(BAD_CHECKSUM)
        if is_old:
            _check_message(batch)
        return reader


def _end_of_others(record_set: memoryview, at: int) -> int:
    """Return where the first batch from byte *at* on begins that must be checked."""
    end = len(record_set)
    while at + HEADER_BYTES <= end:
        length, magic, attributes = _GLANCE.unpack_from(record_set, at)
        after = at + LOG_OVERHEAD_BYTES + length
        if magic != MAGIC_V2 or attributes & CODEC_MASK or after < at + HEADER_BYTES or after > end:
            break
        at = after
    return at


def _codec_of(batch: RecordBatchView) -> int:
    return batch.codec if batch.magic >= MAGIC_V2 else batch.view[_ATTRIBUTES_AT] & CODEC_MASK


def _check_message(batch: RecordBatchView) -> None:
    """Raise `ValueError`, or what a codec raises, if a message's lengths lead out of it, or those inside it."""
    value, codec = _value_of(batch.view, batch.magic), _codec_of(batch)
    if not codec:
        return
    messages = memoryview(decompressed(codec, value))
    at, end = 0, len(messages)
    while at < end or not end:
        if at + LOG_OVERHEAD_BYTES > end:
            raise ValueError(_CUT)
        (length,) = _SIZE.unpack_from(messages, at + _LENGTH_AT)
        after = at + LOG_OVERHEAD_BYTES + length
        if not at < after <= end:
            raise ValueError(_CUT)
        _value_of(messages[at:after], batch.magic)
        at = after


def _value_of(message: memoryview, magic: int) -> memoryview:
    """Return a message's value. Raises `ValueError` if that is not inside the message."""
    at = start = _KEY_AT[magic]
    for _ in ("key", "value"):
        if at + _SIZE.size > len(message):
            raise ValueError(_CUT)
        (size,) = _SIZE.unpack_from(message, at)
        start = at + _SIZE.size
        at = start + max(size, 0)
        if size < _NULL:
            raise ValueError(_CUT)
    if at > len(message):
        raise ValueError(_CUT)
    return message[start:at]
