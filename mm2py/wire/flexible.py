"""Fields of the protocol's flexible versions (KIP-482), as bytes that are written and taken apart by hand."""

from __future__ import annotations

import struct
from typing import Final


#: No tagged fields.
NO_TAGS: Final = b"\x00"
TOPIC_ID_BYTES: Final = 16

_LONGEST_VARINT_BYTES: Final = 5
#: Set in each byte of a varint but the last.
_MORE: Final = 0x80


def packed_varint(value: int) -> bytes:
    """Return an unsigned number as it is written. Counts and sizes are written one greater than they are."""
    out = bytearray()
    while value >= _MORE:
        out.append(value & 0x7F | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(frame: memoryview, at: int) -> tuple[int, int]:
    """Read an unsigned number; return it and where it ends. Raise `struct.error` or `IndexError`."""
    value = frame[at]
    if value < _MORE:
        return value, at + 1
    value &= ~_MORE
    for place in range(1, _LONGEST_VARINT_BYTES):
        byte = frame[at + place]
        value |= (byte & ~_MORE) << (7 * place)
        if byte < _MORE:
            return value, at + place + 1
    raise struct.error("a number has no end")


def nullable_text(frame: memoryview, at: int) -> tuple[str, int]:
    """Read a compact text, "" for null; return it and where it ends."""
    size, at = varint(frame, at)
    end = at + max(0, size - 1)
    return bytes(frame[at:end]).decode(errors="replace"), end


def behind_tags(frame: memoryview, at: int) -> int:
    """Pass over tagged fields: a leader that moved, an epoch that ended, whatever brokers may add."""
    count, at = varint(frame, at)
    for _ in range(count):
        _, at = varint(frame, at)
        size, at = varint(frame, at)
        at += size
    return at
