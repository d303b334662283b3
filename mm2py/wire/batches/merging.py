"""
The record path in compiled code, for batches without compression: small batches are merged, and holes are closed.

Where that is missing, `mm2py.wire.batches.rebuild` does the same with aiokafka's codec.
"""

from __future__ import annotations

import ctypes
from typing import Final

import attrs

from mm2py.wire.batches import native
from mm2py.wire.batches.batch import HEADER_BYTES
from mm2py.wire.batches.native import Made, Rebuilt, memory


#: A record may grow by this much: its length, its timestamp and its offset take more digits than before.
_GROWTH_BYTES: Final = 1024
#: Of a record set in which small batches and others alternate more often, Python finds the ranges.
_MOST_RANGES: Final = 256


@attrs.frozen
class Merged:
    """The batches, and if one of the source cannot be read, its base offset and whether its checksum is wrong."""

    batches: tuple[Rebuilt, ...]
    unreadable_at: int | None = None
    is_checksum_wrong: bool = False


def merge(record_set: bytes | memoryview, from_offset: int, limit_bytes: int) -> Merged | None:
    """
    Put the records of whole uncompressed data batches, from upstream offset *from_offset* on, into new batches of at
    most *limit_bytes*; a single record may be larger. None if this is not for compiled code.
    """
    library = native.library()
    if library is None:
        return None
    size = len(record_set)
    made = Made(size + size // 4 + _GROWTH_BYTES, limit_bytes, size // HEADER_BYTES)
    library.mm2py_merge(memory(record_set), size, from_offset, limit_bytes, *made.arguments)
    status = made.outcome.status
    if status not in (native.OK, native.BAD_CHECKSUM, native.MALFORMED):
        return None
    batches = made.batches()
    if status == native.OK:
        return Merged(batches)
    return Merged(batches, made.outcome.offset, status == native.BAD_CHECKSUM)


def ranges(record_set: bytes | memoryview, below_bytes: int) -> list[tuple[int, int | None]] | None:
    """
    Split a record set into ranges of small plain batches of one codec and one leader, and others.

    Return the end of each, and of the former the offset after it. What follows the last one is truncated, older than
    magic 2, or invalid. None if this is not for compiled code.
    """
    library = native.library()
    if library is None:
        return None
    most = _MOST_RANGES
    found = (ctypes.c_int64 * (2 * most))()
    count = library.mm2py_ranges(memory(record_set), len(record_set), below_bytes, found, most)
    if count < 0:
        return None
    numbers = found[: 2 * count]
    return [(end, None if after < 0 else after) for end, after in zip(numbers[::2], numbers[1::2], strict=True)]
