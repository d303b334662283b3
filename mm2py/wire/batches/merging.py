"""
The record path for uncompressed batches, in compiled code: small batches are merged, and holes are closed, without a
Python object for each record.

`merge.c` needs nothing of Python and is built with the package where there is a C compiler (scripts/build_native.py).
Where it is missing, as on Spark executors that were sent the package as an archive, `mm2py.wire.batches.rebuild` does
the same with aiokafka's codec. ``MM2PY_NATIVE=0`` switches it off.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any, Final

import attrs

from mm2py.wire.batches.batch import HEADER_BYTES


#: A record may grow by this much: its length, its timestamp and its offset take more digits than before.
_GROWTH_BYTES: Final = 1024
_BATCH_FIELDS: Final = 6
_RUN_FIELDS: Final = 3
#: Of a record set in which small batches and others alternate more often, Python finds the ranges.
_MOST_RANGES: Final = 256

_OK: Final = 0
_BAD_CHECKSUM: Final = 2
_MALFORMED: Final = 3


@attrs.frozen
class Rebuilt:
    """
    A batch ready to be signed.

    `runs` are (upstream offset of the first record, its index in the batch, number of records) of each range of
    consecutive upstream offsets.
    """

    batch: memoryview
    runs: tuple[tuple[int, int, int], ...]
    record_count: int
    max_timestamp: int

    @property
    def first_upstream(self) -> int:
        return self.runs[0][0]

    @property
    def last_upstream(self) -> int:
        upstream, _, length = self.runs[-1]
        return upstream + length - 1


@attrs.frozen
class Merged:
    """The batches, and if one of the source cannot be read, its base offset and whether its checksum is wrong."""

    batches: tuple[Rebuilt, ...]
    unreadable_at: int | None = None
    is_checksum_wrong: bool = False


def load(path: Path, *, is_fast: bool = True) -> ctypes.CDLL | None:
    """Load the library, None if it is not there. Without *is_fast* it computes checksums as any processor can."""
    number, area = ctypes.c_int64, ctypes.c_void_p
    try:
        library = ctypes.CDLL(str(path))
        library.mm2py_merge.argtypes = [area, number, number, number, area, number, area, number, area, number, area]
        library.mm2py_merge.restype = None
        library.mm2py_ranges.argtypes = [area, number, number, area, number]
        library.mm2py_ranges.restype = number
        library.mm2py_crc32c.argtypes = [ctypes.c_char_p, number]
        library.mm2py_crc32c.restype = ctypes.c_uint32
    except (OSError, AttributeError):  # not built, or from another version's source
        return None
    library.mm2py_begin(int(is_fast))
    return library


LIBRARY: Final = Path(__file__).with_name("libmerge.so.1")
_library: Any = load(LIBRARY) if os.environ.get("MM2PY_NATIVE") != "0" else None


def library() -> ctypes.CDLL | None:
    """Return the library that is in use."""
    found: ctypes.CDLL | None = _library
    return found


def _memory(record_set: bytes | memoryview) -> Any:
    """Return what ctypes passes on as the address of *record_set*, without a copy if possible."""
    if isinstance(record_set, bytes):
        return record_set
    if record_set.readonly:
        return bytes(record_set)
    return (ctypes.c_char * len(record_set)).from_buffer(record_set)


def merge(record_set: bytes | memoryview, from_offset: int, limit_bytes: int) -> Merged | None:
    """
    Put the records of whole uncompressed data batches, from upstream offset *from_offset* on, into new batches of at
    most *limit_bytes*; a single record may be larger. None if this is not for compiled code.
    """
    if _library is None:
        return None
    size = len(record_set)
    room = size + size // 4 + _GROWTH_BYTES
    most_batches = 2 * room // max(limit_bytes, HEADER_BYTES) + 2
    most_runs = size // HEADER_BYTES + most_batches
    out = bytearray(room)
    built = (ctypes.c_int64 * (_BATCH_FIELDS * most_batches))()
    runs = (ctypes.c_int64 * (_RUN_FIELDS * most_runs))()
    outcome = (ctypes.c_int64 * 5)()
    area = (ctypes.c_char * room).from_buffer(out)
    _library.mm2py_merge(
        _memory(record_set), size, from_offset, limit_bytes, area, room, built, most_batches, runs, most_runs, outcome
    )
    del area
    status, offset, batches, _, used = outcome
    if status not in (_OK, _BAD_CHECKSUM, _MALFORMED):
        return None
    del out[used:]
    whole = memoryview(out)
    found = []
    for number in range(batches):
        start, length, count, max_timestamp, first_run, run_count = built[
            _BATCH_FIELDS * number : _BATCH_FIELDS * (number + 1)
        ]
        numbers = runs[_RUN_FIELDS * first_run : _RUN_FIELDS * (first_run + run_count)]
        found.append(
            Rebuilt(
                whole[start : start + length],
                tuple(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)),
                count,
                max_timestamp,
            )
        )
    if status == _OK:
        return Merged(tuple(found))
    return Merged(tuple(found), offset, status == _BAD_CHECKSUM)


def ranges(record_set: bytes | memoryview, below_bytes: int) -> list[tuple[int, int | None]] | None:
    """
    Split a record set into ranges of small plain batches of one codec and one leader, and others.

    Return the end of each, and of the former the offset after it. What follows the last one is truncated, older than
    magic 2, or invalid. None if this is not for compiled code.
    """
    if _library is None:
        return None
    most = _MOST_RANGES
    found = (ctypes.c_int64 * (2 * most))()
    count = _library.mm2py_ranges(_memory(record_set), len(record_set), below_bytes, found, most)
    if count < 0:
        return None
    numbers = found[: 2 * count]
    return [(end, None if after < 0 else after) for end, after in zip(numbers[::2], numbers[1::2], strict=True)]
