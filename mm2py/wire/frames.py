"""Answers as they arrive on a connection: where their bytes go, and where one ends."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from mm2py.wire.answers import MalformedAnswerError


_SIZE = struct.Struct(">i")
_SMALL_FRAMES_BYTES = 64 * 1024
#: Answers from this size on use pooled memory, and are counted while they are referenced.
POOLED_FROM_BYTES = 1024 * 1024
_POOLED_BUFFERS = 8
#: What an answer gets at once, however large it claims to be: the rest follows when that much of it has come.
_BELIEVED_BYTES = 64 * POOLED_FROM_BYTES


class _FramePool:
    """Memory for large answers, reused once the answer in it is no longer referenced. Fresh memory costs a page fault
    for every 4 KiB, about a fifth of the total cost of copying a byte.
    """

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []
        self.believed_bytes = _BELIEVED_BYTES

    def allocate(self, size: int) -> memoryview:
        """Return memory for an answer of *size*; less of it, to be grown, for one that is not to be believed yet."""
        if size < POOLED_FROM_BYTES:
            return memoryview(bytearray(size))
        for buffer in self._buffers:
            if len(buffer) >= size and _is_free(buffer):
                return memoryview(buffer)[:size]
        size = min(size, self.believed_bytes)
        return self._fresh(size)

    def grown(self, frame: memoryview, size: int) -> memoryview:
        """Return memory for the answer that *frame* is the beginning of, twice as much of it, up to *size*."""
        larger = self._fresh(min(size, 2 * len(frame)))
        larger[: len(frame)] = frame
        return larger

    def _fresh(self, size: int) -> memoryview:
        if len(self._buffers) >= _POOLED_BUFFERS:
            self._buffers = [buffer for buffer in self._buffers if not _is_free(buffer)]
        buffer = bytearray(-(-size // POOLED_FROM_BYTES) * POOLED_FROM_BYTES)
        self._buffers.append(buffer)
        return memoryview(buffer)[:size]

    @property
    def held_bytes(self) -> int:
        return sum(len(buffer) for buffer in self._buffers if not _is_free(buffer))


def _is_free(buffer: bytearray) -> bool:
    """
    Whether no view of *buffer* exists.

    A bytearray refuses to change its size while one does. The count of its references would not be reliable: how many
    of them a caller itself holds differs between versions of Python.
    """
    try:
        # One byte less, and again one more, stays within what is allocated: nothing is moved.
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


class FrameReader:
    """
    Cuts the bytes of a connection into answers.

    It owns the memory that the transport fills next: a small buffer for many answers at once, or one of the size of the
    answer that has begun.
    """

    def __init__(self) -> None:
        self._pool = _FramePool()
        self._small = memoryview(bytearray(_SMALL_FRAMES_BYTES))
        self._small_filled = 0
        self._frame: memoryview | None = None
        self._frame_filled = 0
        self._frame_size = 0

    @property
    def held_bytes(self) -> int:
        """The memory of large answers that are still referenced."""
        return self._pool.held_bytes

    def trust(self, *, is_broker: bool) -> None:
        """Give answers little memory at once, however large they claim to be, unless a broker answers."""
        self._pool.believed_bytes = _BELIEVED_BYTES if is_broker else POOLED_FROM_BYTES

    @property
    def has_begun(self) -> bool:
        """Whether an answer has arrived in part."""
        return self._frame is not None

    def buffer(self) -> memoryview:
        """Return the memory to fill next."""
        if self._frame is not None:
            return self._frame[self._frame_filled :]
        return self._small[self._small_filled :]

    def filled(self, size: int) -> Iterator[memoryview]:
        """Yield the answers that are whole with *size* more bytes. Raise `MalformedAnswerError`."""
        if self._frame is None:
            self._small_filled += size
            yield from self._split_small()
            return
        self._frame_filled += size
        if self._frame_filled == self._frame_size:
            frame, self._frame = self._frame, None
            yield frame
        elif self._frame_filled == len(self._frame):
            self._frame = self._pool.grown(self._frame, self._frame_size)

    def _split_small(self) -> Iterator[memoryview]:
        """Yield the whole frames among the small bytes; start a buffer for one that is not whole yet."""
        small, filled, at = self._small, self._small_filled, 0
        while filled - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(small, at)
            if size < _SIZE.size:
                raise MalformedAnswerError("a request", f"it claims a size of {size} bytes")
            at += _SIZE.size
            here = min(size, filled - at)
            frame = self._pool.allocate(size)
            frame[:here] = small[at : at + here]
            at += here
            if here < size:
                self._frame, self._frame_filled, self._frame_size = frame, here, size
                break
            yield frame
        rest = filled - at
        if rest and at:
            small[:rest] = bytes(small[at:filled])
        self._small_filled = rest
