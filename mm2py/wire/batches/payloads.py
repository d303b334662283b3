"""
Records by their payload, without decoding it.

A record of magic 2 is its length, a byte of attributes, two numbers relative to its batch (timestamp and offset), and
then key, value and headers. Those last bytes are its *payload*: the same wherever the record lies. Two records are the
same if timestamp and payload are; key, value and headers are needed only of those that are not.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, Self

import attrs
from crc32c import crc32c

from mm2py.wire.batches.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    RecordBatchView,
    batches,
)
from mm2py.wire.batches.codecs import BAD_CHECKSUM, body_of
from mm2py.wire.batches.rebuild import UNDECODABLE, UnreadableBatchError
from mm2py.wire.batches.record_columns import RecordColumns


#: Key, value and headers of a record.
Parts = tuple[bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]

#: After every offset.
NO_END: Final = 1 << 63
#: Base offset, length, magic, crc, attributes, last offset delta, base timestamp, record count; then the first byte of
#: the first record, whose length begins there.
_GLANCE: Final = struct.Struct(">qi4xbIhiq22xiB")
_SIGNED_FROM: Final = 21
#: Larger batches are worth being compared unopened, even if there is but one record in each.
_SINGLE_BELOW_BYTES: Final = 4096
#: A smaller length has no record; following such a length might never reach the end.
_SINGLE_FROM_BYTES: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES + 1
#: Attributes, timestamp delta and offset delta of a batch's first record.
_FIRST: Final = b"\0\0\0"
#: A byte that another one of the same number follows, and what of it counts.
_MORE: Final = 0x80
_LOW: Final = 0x7F
#: How many bytes the offset of a record takes in its batch, and how many records have such ones.
_OFFSET_WIDTHS: Final = ((1, 1 << 6), (2, (1 << 13) - (1 << 6)), (3, (1 << 20) - (1 << 13)), (4, 1 << 27))
_CUT: Final = "it ends in the middle of a record"


@attrs.define(repr=False)
class Payloads:
    """Records, oldest first: offsets, and of each its timestamp and payload."""

    offsets: list[int] = attrs.field(factory=list)
    contents: list[tuple[int, bytes]] = attrs.field(factory=list)

    def extend(self, other: Payloads) -> None:
        """Append the records that follow."""
        self.offsets += other.offsets
        self.contents += other.contents

    def between(self, start: int, end: int) -> Self:
        """Return those from offset *start* up to, and without, *end*."""
        offsets = self.offsets
        if not offsets or start <= offsets[0] <= offsets[-1] < end:
            return self
        inside = slice(bisect_left(offsets, start), bisect_left(offsets, end))
        return attrs.evolve(self, offsets=offsets[inside], contents=self.contents[inside])


@attrs.define(repr=False)
class Singles(Payloads):
    """The records of plain batches that follow each other and hold one record each; `size_bytes` is the batches'."""

    size_bytes: int = 0

    @property
    def base_offset(self) -> int:
        return self.offsets[0]

    @property
    def last_offset(self) -> int:
        return self.offsets[-1]


def pieces(record_set: memoryview, before: int = NO_END) -> Iterator[RecordBatchView | Singles]:
    """
    Walk a record set's whole batches, as `mm2py.wire.batches.batch.batches` does.

    Small ones of one record come together, read.

    That is those before offset *before*; after it batches are batches.
    Raises `MalformedRecordSetError`.
    """
    at, whole = 0, b""
    while at < len(record_set):
        for batch in batches(record_set[at:]):
            if _is_single(batch):
                whole = whole or bytes(record_set)
                singles = _read_singles(whole, at, before)
                if singles.offsets:
                    at += singles.size_bytes
                    yield singles
                    break
            at += batch.size_bytes
            yield batch
        else:
            return


def _is_single(batch: RecordBatchView) -> bool:
    return batch.record_count == 1 and not batch.attributes and batch.size_bytes < _SINGLE_BELOW_BYTES


def _read_singles(record_set: bytes, at: int, before: int) -> Singles:
    """
    Read the one-record batches from byte *at* on, up to the first that is not small, plain and sound.

    A million of them pass here where a producer did not batch: what is not needed to tell that is not looked at.
    """
    found = Singles()
    add_offset, add_content = found.offsets.append, found.contents.append
    glance = _GLANCE.unpack_from
    start, end = at, len(record_set)
    while at + HEADER_BYTES < end:
        base_offset, length, magic, crc, attributes, delta, timestamp, count, first = glance(record_set, at)
        after = at + LOG_OVERHEAD_BYTES + length
        if count != 1 or attributes or delta or magic != MAGIC_V2 or after > end or base_offset >= before:
            break
        if not _SINGLE_FROM_BYTES <= length < _SINGLE_BELOW_BYTES:
            break
        body = at + (HEADER_BYTES + 1 if first < _MORE else HEADER_BYTES + 2)
        if record_set[body : body + 3] != _FIRST or crc32c(record_set[at + _SIGNED_FROM : after]) != crc:
            break
        add_offset(base_offset)
        add_content((timestamp, record_set[body + 3 : after]))
        at = after
    found.size_bytes = at - start
    return found


def read(batch: RecordBatchView) -> Payloads:
    """
    Return the records of a data batch, or of a message of magic 0 or 1.

    Raises `UnreadableBatchError`.
    """
    is_old = batch.magic < MAGIC_V2
    if not (is_old or batch.matches_crc()):
        raise UnreadableBatchError(batch.base_offset, BAD_CHECKSUM)
    try:
        return _read_old(batch) if is_old else _walk(body_of(batch), batch)
    except UnreadableBatchError:
        raise
    except IndexError:
        raise UnreadableBatchError(batch.base_offset, _CUT) from None
    except UNDECODABLE as error:
        raise UnreadableBatchError(batch.base_offset, str(error) or type(error).__name__) from error


def _walk(body: bytes, batch: RecordBatchView) -> Payloads:
    """Walk the records of a batch, from the length of one to the next."""
    if batch.has_holes:
        found = _walk_numbered(body, batch)
    else:
        contents = _walk_all(body, batch.record_count, batch.base_timestamp)
        found = Payloads(list(range(batch.base_offset, batch.last_offset + 1)), contents)
    if batch.attributes & LOG_APPEND_TIME:
        found.contents = [(batch.max_timestamp, payload) for _, payload in found.contents]
    return found


def _walk_all(body: bytes, count: int, base_timestamp: int) -> list[tuple[int, bytes]]:
    """
    Walk records without gaps, so that their offsets need not be read: only their sizes.

    Lengths and timestamps are numbers of one or two bytes nearly always, and the latter often those of the record
    before. A call for each would take longer than all the rest.
    """
    contents: list[tuple[int, bytes]] = []
    add = contents.append
    at, seen, timestamp = 0, 0, base_timestamp
    for width, numbers in _OFFSET_WIDTHS:
        for _ in range(min(numbers, count - len(contents))):
            length = body[at]
            if length < _MORE:
                at += 1
            elif (more := body[at + 1]) < _MORE:
                length = length & _LOW | more << 7
                at += 2
            else:
                length, at = _varint(body, at)
            end = at + (length >> 1)
            at += 1
            delta = body[at]
            if delta >= _MORE:
                delta, at = _varint(body, at)
                at -= 1
            if delta != seen:
                seen, timestamp = delta, base_timestamp + (delta >> 1 ^ -(delta & 1))
            at += 1 + width
            add((timestamp, body[at:end]))
            if at >= end:
                raise ValueError(_CUT)
            at = end
    if at != len(body) or len(contents) != count:
        raise ValueError(_CUT)
    return contents


def _walk_numbered(body: bytes, batch: RecordBatchView) -> Payloads:
    """Walk what compaction has left of a batch."""
    found = Payloads()
    at = 0
    for _ in range(batch.record_count):
        length, at = _varint(body, at)
        end = at + (length >> 1)
        delta, at = _varint(body, at + 1)
        index, at = _varint(body, at)
        if at >= end:
            raise ValueError(_CUT)
        found.offsets.append(batch.base_offset + (index >> 1))
        found.contents.append((batch.base_timestamp + (delta >> 1 ^ -(delta & 1)), body[at:end]))
        at = end
    if at != len(body):
        raise ValueError(_CUT)
    return found


def _read_old(batch: RecordBatchView) -> Payloads:
    """Read a message of magic 0 or 1, whose offset is that of the last record in it."""
    columns = RecordColumns()
    columns.add(bytes(batch.view), from_offset=0, before=batch.base_offset + 1)
    payloads = map(_join, columns.keys, columns.values)
    return Payloads(columns.offsets, list(zip(columns.timestamps, payloads, strict=True)))


def _join(key: bytes | None, value: bytes | None) -> bytes:
    return sized(key) + sized(value) + b"\0"


def sized(part: bytes | None) -> bytes:
    """Return *part* after its length, as it is written in a payload; null has length -1."""
    if part is None:
        return b"\1"
    size, head = len(part) << 1, bytearray()
    while size >= _MORE:
        head.append(size & _LOW | _MORE)
        size >>= 7
    head.append(size)
    return bytes(head) + part


def split(payload: bytes) -> Parts:
    """Return a payload's key, value and headers. Raises `ValueError` if it is invalid."""
    try:
        key, at = _part(payload, 0)
        value, at = _part(payload, at)
        count, at = _varint(payload, at)
        headers = []
        for _ in range(count >> 1):
            name, at = _part(payload, at)
            content, at = _part(payload, at)
            headers.append((name or b"", content))
    except IndexError:
        raise ValueError(_CUT) from None
    if at != len(payload):
        raise ValueError(_CUT)
    return key, value, tuple(headers)


def _part(payload: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(payload, at)
    if size & 1:
        return None, at
    after = at + (size >> 1)
    return payload[at:after], after


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at byte *at*, whose lowest bit is its sign, and where the next one begins."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & _LOW) << shift
        if byte < _MORE:
            return number, at
        shift += 7
