"""
Batches of one record each, taken apart without the codec.

Producers that send each record by itself make a backlog of them. The codec sets up an object for each batch and another
for its record, which takes longer than what is in them; here the bytes are looked at once.
"""

from __future__ import annotations

from typing import Final

from mm2py.wire.batch import CODEC_MASK, DELETE_HORIZON, HEADER_BYTES, LOG_APPEND_TIME, MAGIC_V2, RecordBatchView
from mm2py.wire.rebuild import BAD_CHECKSUM, UnreadableBatchError


#: Attributes by which a record's bytes, or its timestamp, mean something else than here.
_SPECIAL: Final = CODEC_MASK | DELETE_HORIZON | LOG_APPEND_TIME
_LAST_OF_ONE_BYTE: Final = 0x7F
_LOW_BITS: Final = 0x7F
_BITS: Final = 7
_NULL: Final = -1

#: Timestamp, key, value and headers.
LoneRecord = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def is_lone(batch: RecordBatchView) -> bool:
    """Say whether *batch* is one record that lies there as it is."""
    return batch.record_count == 1 and batch.magic == MAGIC_V2 and not batch.attributes & _SPECIAL


def lone_record(batch: RecordBatchView) -> LoneRecord:
    """Give the record of a batch that `is_lone`. Raise `UnreadableBatchError` where it is damaged."""
    if not batch.matches_crc():
        raise UnreadableBatchError(batch.base_offset, BAD_CHECKSUM)
    try:
        return _taken_apart(batch)
    except (ValueError, IndexError) as error:
        raise UnreadableBatchError(batch.base_offset, str(error)) from error


def _taken_apart(batch: RecordBatchView) -> LoneRecord:
    # This runs for every record: numbers of one byte, most of them, are not worth a call.
    raw = bytes(batch.view)
    _, at = _number(raw, HEADER_BYTES)
    delta, at = _number(raw, at + 1)
    _, at = _number(raw, at)
    key, at = _text(raw, at)
    value, at = _text(raw, at)
    if raw[at] == 0 and at + 1 == len(raw):
        return batch.base_timestamp + delta, key, value, ()
    headers, at = _headers(raw, at)
    if at != len(raw):
        detail = f"{len(raw) - at} bytes follow its only record"
        raise ValueError(detail)
    return batch.base_timestamp + delta, key, value, headers


def _headers(raw: bytes, at: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = _number(raw, at)
    headers = []
    for _ in range(count):
        name, at = _text(raw, at)
        value, at = _text(raw, at)
        if name is None:
            detail = "a header has no name"
            raise ValueError(detail)
        headers.append((name.decode(), value))
    return tuple(headers), at


def _text(raw: bytes, at: int) -> tuple[bytes | None, int]:
    """Give bytes that follow their own length, and where they end."""
    size = raw[at]
    if size <= _LAST_OF_ONE_BYTE:
        size, at = (size >> 1) ^ -(size & 1), at + 1
    else:
        size, at = _number(raw, at)
    if size < 0:
        if size != _NULL:
            detail = f"it claims a length of {size} bytes"
            raise ValueError(detail)
        return None, at
    end = at + size
    if end > len(raw):
        detail = f"it claims a length of {size} bytes"
        raise ValueError(detail)
    return raw[at:end], end


def _number(raw: bytes, at: int) -> tuple[int, int]:
    """Give a number in zigzag and base 128, and where it ends."""
    byte = raw[at]
    if byte <= _LAST_OF_ONE_BYTE:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number = shift = 0
    while True:
        byte = raw[at]
        at += 1
        number |= (byte & _LOW_BITS) << shift
        if byte <= _LAST_OF_ONE_BYTE:
            return (number >> 1) ^ -(number & 1), at
        shift += _BITS
