"""
Records in columns as Arrow has them in memory, read and written by compiled code.

What only passes records on needs no Python object for each of them. `mm2py.wire.batches.record_columns` does the same
with aiokafka's codec.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, Final, Self

import attrs

from mm2py.wire.batches import native
from mm2py.wire.batches.batch import CODEC_MASK, HEADER_BYTES
from mm2py.wire.batches.batch import batches as views
from mm2py.wire.batches.codecs import compressed, plain
from mm2py.wire.batches.native import Made, Outcome, Rebuilt
from mm2py.wire.batches.payloads import sized
from mm2py.wire.batches.rebuild import UNDECODABLE


#: Where entries of columns end is counted in 32 bits.
_MOST_BYTES: Final = 2**31 - 1
#: What a record takes beside key, value and headers, and a header beside its key and value.
_RECORD_BYTES: Final = 40
_HEADER_ENTRY_BYTES: Final = 10
_CODEC_AT: Final = 22


@attrs.frozen
class Area:
    """Memory by its address, and the object with the buffer protocol whose memory it is; none has address 0."""

    address: int = 0
    owner: Any = None

    @classmethod
    def zeros(cls, kind: Any, count: int) -> Self:
        """Return an area for *count* values of a ctypes type."""
        made = (kind * max(count, 1))()
        return cls(ctypes.addressof(made), made)


_NONE: Final = Area()


@attrs.frozen
class PackedBytes:
    """
    A column of bytes.

    `ends` has 32 bits for each entry and one before, `data` the entries, `valid` a bit for each entry that is not null;
    without `valid` none is null.
    """

    ends: Area
    data: Area
    valid: Area
    size_bytes: int
    null_count: int

    @classmethod
    def with_room(cls, entries: int, counted: _Bytes) -> Self:
        """Return room for *entries* that were *counted*."""
        valid = Area.zeros(ctypes.c_uint8, (entries + 7) // 8)
        ends = Area.zeros(ctypes.c_int32, entries + 1)
        return cls(ends, Area.zeros(ctypes.c_char, counted.size), valid, counted.size, counted.nulls)

    def as_argument(self) -> _Bytes:
        return _Bytes(self.ends.address, self.data.address, self.valid.address, 0, 0)


@attrs.frozen
class PackedRecords:
    """
    The records of an offset range, oldest first.

    `offsets` and `timestamps` have 64 bits, `timestamp_types` 32 (0 create time, 1 log append time). The headers of
    record *n* are those from `header_ends` *n* to *n + 1*. A millisecond has `unit` of the timestamps; records without
    a bit in `has_timestamp` or `has_headers` have none.
    """

    count: int
    header_count: int
    offsets: Area
    timestamps: Area
    timestamp_types: Area
    keys: PackedBytes
    values: PackedBytes
    header_ends: Area
    header_keys: PackedBytes
    header_values: PackedBytes
    unit: int = 1
    has_timestamp: Area = _NONE
    has_headers: Area = _NONE

    def __len__(self) -> int:
        return self.count

    def as_argument(self) -> _Columns:
        """Return this as `columns.c` takes it."""
        return _Columns(
            self.count, self.header_count, self.offsets.address, self.timestamps.address,
            self.timestamp_types.address, self.header_ends.address, self.keys.as_argument(), self.values.as_argument(),
            self.header_keys.as_argument(), self.header_values.as_argument(), self.has_timestamp.address,
            self.has_headers.address, self.unit,
        )  # fmt: skip

    @property
    def most_bytes(self) -> int:
        """What the records take at most as batches, but for the batches' own headers."""
        columns = (self.keys, self.values, self.header_keys, self.header_values)
        content = sum(column.size_bytes for column in columns)
        return content + _RECORD_BYTES * self.count + _HEADER_ENTRY_BYTES * self.header_count


class _Bytes(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("ends", "bytes", "valid")),
        *((name, ctypes.c_int64) for name in ("size", "nulls")),
    ]


class _Columns(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("records", "headers")),
        *((name, ctypes.c_void_p) for name in ("offsets", "timestamps", "kinds", "header_ends")),
        *((name, _Bytes) for name in ("key", "value", "header_key", "header_value")),
        *((name, ctypes.c_void_p) for name in ("has_timestamp", "has_headers")),
        ("unit", ctypes.c_int64),
    ]


def unpack(batches: Iterable[bytes], *, from_offset: int, before: int) -> PackedRecords | None:
    """
    Return the records of data batches from *from_offset* up to, and without, *before*.

    None if this is not for compiled code, which does not say what is wrong with records either.
    """
    library = native.library()
    if library is None:
        return None
    try:
        record_set = b"".join(map(_plain, batches))
    except UNDECODABLE:
        return None
    size = len(record_set)
    if size > _MOST_BYTES:
        return None
    counted, outcome = _Columns(), Outcome()
    arguments = record_set, size, from_offset, before
    library.mm2py_unpack(*arguments, ctypes.byref(counted), ctypes.byref(outcome))
    if outcome.status != native.OK:
        return None
    records, headers = counted.records, counted.headers
    packed = PackedRecords(
        records,
        headers,
        Area.zeros(ctypes.c_int64, records),
        Area.zeros(ctypes.c_int64, records),
        Area.zeros(ctypes.c_int32, records),
        PackedBytes.with_room(records, counted.key),
        PackedBytes.with_room(records, counted.value),
        Area.zeros(ctypes.c_int32, records + 1),
        PackedBytes.with_room(headers, counted.header_key),
        PackedBytes.with_room(headers, counted.header_value),
    )
    filled = packed.as_argument()
    filled.records = filled.headers = 0
    library.mm2py_unpack(*arguments, ctypes.byref(filled), ctypes.byref(outcome))
    # Names of headers are text, which is certain where they are ASCII.
    return packed if bytes(packed.header_keys.data.owner).isascii() else None


def _plain(batch: bytes) -> bytes | bytearray | memoryview:
    """Return a batch without compression. Raise `ValueError`, or what a codec raises."""
    if not batch[_CODEC_AT] & CODEC_MASK:
        return batch
    (view,) = views(memoryview(batch))
    return plain(view)


def pack(
    records: PackedRecords, *, codec: int, limit_bytes: int, headers: Iterable[tuple[str, bytes | None]] = ()
) -> list[Rebuilt] | None:
    """
    Put *records* into batches of at most *limit_bytes* before compression, each with *headers* after its own.

    A single record may be larger. A batch is ready to be signed. None if this is not for compiled code.
    """
    library = native.library()
    added = tuple(headers)
    more = b"".join(sized(key.encode()) + sized(value) for key, value in added)
    room = records.most_bytes + len(more) * records.count
    room += (2 * room // max(limit_bytes, 1) + 2) * HEADER_BYTES
    if library is None or room > _MOST_BYTES:
        return None
    made = Made(room, limit_bytes, records.count)
    library.mm2py_pack(ctypes.byref(records.as_argument()), more, len(more), len(added), limit_bytes, *made.arguments)
    if made.outcome.status != native.OK:
        return None
    return [compressed(built, codec) for built in made.batches()]
