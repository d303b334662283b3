"""
Compiled code for records: without a Python object for each of them.

`merge.c` and `columns.c` need nothing of Python and are built with the package where there is a C compiler
(scripts/build_native.py). Where they are missing, as on Spark executors that were sent the package as an archive,
aiokafka's codec and Python do the same. ``MM2PY_NATIVE=0`` switches them off.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any, Final

import attrs

from mm2py.wire.batches.batch import HEADER_BYTES


_BATCH_FIELDS: Final = 6
_RUN_FIELDS: Final = 3

OK: Final = 0
BAD_CHECKSUM: Final = 2
MALFORMED: Final = 3


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


class Outcome(ctypes.Structure):
    """How a call ended: `status`, the base offset of the batch that it is about, and how much of the areas is used."""

    _fields_ = [(name, ctypes.c_int64) for name in ("status", "offset", "batches", "runs", "used")]


def load(path: Path) -> ctypes.CDLL | None:
    """Load the library, None if it is not there."""
    number: Any = ctypes.c_int64
    area: Any = ctypes.c_void_p
    made: list[Any] = [area, number, area, number, area, number, area]
    try:
        library = ctypes.CDLL(str(path))
        library.mm2py_merge.argtypes = [area, number, number, number, *made]
        library.mm2py_merge.restype = None
        library.mm2py_ranges.argtypes = [area, number, number, area, number]
        library.mm2py_ranges.restype = number
        library.mm2py_unpack.argtypes = [area, number, number, number, area, area]
        library.mm2py_unpack.restype = None
        library.mm2py_pack.argtypes = [area, area, number, number, number, *made]
        library.mm2py_pack.restype = None
        library.mm2py_crc32c.argtypes = [ctypes.c_char_p, number]
        library.mm2py_crc32c.restype = ctypes.c_uint32
    except (OSError, AttributeError):  # not built, or from another version's source
        return None
    # 0 would have it compute checksums as any processor can.
    library.mm2py_begin(1)
    return library


LIBRARY: Final = Path(__file__).with_name("libbatches.so.1")
_library: Any = load(LIBRARY) if os.environ.get("MM2PY_NATIVE") != "0" else None


def library() -> Any:
    """Return the library that is in use, None if there is none."""
    return _library


def memory(data: bytes | memoryview) -> Any:
    """Return what ctypes passes on as the address of *data*, without a copy if possible."""
    if isinstance(data, bytes):
        return data
    if data.readonly:
        return bytes(data)
    return (ctypes.c_char * len(data)).from_buffer(data)


class Made:
    """Areas for the batches that compiled code makes: *room* bytes of them, each of *limit_bytes* if it can be."""

    def __init__(self, room: int, limit_bytes: int, most_runs: int) -> None:
        most_batches = 2 * room // max(limit_bytes, HEADER_BYTES) + 2
        most_runs += most_batches
        self._out = bytearray(room)
        self._built = (ctypes.c_int64 * (_BATCH_FIELDS * most_batches))()
        self._runs = (ctypes.c_int64 * (_RUN_FIELDS * most_runs))()
        self.outcome = Outcome()
        area = (ctypes.c_char * room).from_buffer(self._out)
        #: What the functions that make batches take last.
        self.arguments: Any = (
            area, room, self._built, most_batches, self._runs, most_runs, ctypes.byref(self.outcome)
        )  # fmt: skip

    def batches(self) -> tuple[Rebuilt, ...]:
        """Return what was made, once."""
        self.arguments = ()
        del self._out[self.outcome.used :]
        whole = memoryview(self._out)
        found = []
        for number in range(self.outcome.batches):
            start, length, count, max_timestamp, first_run, run_count = self._built[
                _BATCH_FIELDS * number : _BATCH_FIELDS * (number + 1)
            ]
            numbers = self._runs[_RUN_FIELDS * first_run : _RUN_FIELDS * (first_run + run_count)]
            found.append(
                Rebuilt(
                    whole[start : start + length],
                    tuple(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)),
                    count,
                    max_timestamp,
                )
            )
        return tuple(found)
