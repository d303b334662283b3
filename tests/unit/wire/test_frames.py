"""The memory of large answers: in use as long as one view of it is."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable

import pytest

from mm2py.wire.frames import FrameReader


_SIZE = 2 * 1024 * 1024


def _answer(reader: FrameReader, body: bytes) -> memoryview:
    """Feed an answer of *body* and return it."""
    stream, found = struct.pack(">i", len(body)) + body, list[memoryview]()
    while stream:
        into = reader.buffer()
        size = min(len(into), len(stream))
        into[:size] = stream[:size]
        found += reader.filled(size)
        stream = stream[size:]
    (answer,) = found
    return answer


@pytest.mark.parametrize(
    "part",
    [
        lambda answer: answer[100:200],
        lambda answer: answer[50:500][50:150],
        lambda answer: answer[100:200].toreadonly(),
        lambda answer: answer[100:200].cast("H"),
        lambda answer: (ctypes.c_char * 100).from_buffer(answer, 100),
    ],
    ids=["a slice", "a slice of a slice", "read-only", "cast", "ctypes"],
)
def test_no_answer_overwrites_what_a_view_still_shows(
    part: Callable[[memoryview], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A batch of an answer waits to be sent when the next answer comes: it stays as it was.

    From Python 3.14 on a function may hold variables without counting as a reference to them.
    """
    count = sys.getrefcount
    monkeypatch.setattr(sys, "getrefcount", lambda it: count(it) - 2)  # the argument and what 3.14 leaves out
    reader = FrameReader()
    kept = part(_answer(reader, b"A" * _SIZE))
    held_bytes = reader.held_bytes
    _answer(reader, b"B" * _SIZE)

    assert held_bytes == _SIZE
    assert bytes(kept) == b"A" * 100  # type: ignore[call-overload]


def test_asking_whether_memory_is_free_leaves_it_where_it_is() -> None:
    """Memory that is released is reused, byte for byte and at the same address, however often it is asked about."""
    reader = FrameReader()
    answer = _answer(reader, b"A" * _SIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(answer))
    del answer
    held_bytes = [reader.held_bytes for _ in range(3)]
    again = _answer(reader, b"B" * (_SIZE - 1))

    assert held_bytes == [0, 0, 0]
    assert ctypes.addressof(ctypes.c_char.from_buffer(again)) == address
    assert bytes(again) == b"B" * (_SIZE - 1)
