"""What MirrorMaker 2's internal records have in common: Kafka's STRING, UTF-8 after a length of two bytes, and values
that begin with a version of two bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from mm2py.errors import Mm2Error


_LENGTH: Final = struct.Struct(">h")
_VERSION: Final = struct.Struct(">h")
_LONGEST: Final = 2**15 - 1

#: Creates the error for an invalid record from the reason.
Malformed = Callable[[str], Mm2Error]


def pack_text(text: str, malformed: Malformed) -> bytes:
    """Return the bytes of *text*; raise the error of *malformed* if it is too long."""
    encoded = text.encode()
    if len(encoded) > _LONGEST:
        raise malformed(f"a text of {len(encoded)} bytes does not fit, {_LONGEST} do")
    return _LENGTH.pack(len(encoded)) + encoded


def unpack_text(raw: bytes, at: int, malformed: Malformed) -> tuple[str, int]:
    """Return the text at *at* and the start of the next field; raise the error of *malformed* if it is invalid."""
    length = _LENGTH.unpack_from(raw, at)[0] if len(raw) >= at + _LENGTH.size else -1
    begin, end = at + _LENGTH.size, at + _LENGTH.size + length
    if length < 0 or len(raw) < end:
        raise malformed("a text is cut short")
    try:
        return raw[begin:end].decode(), end
    except UnicodeDecodeError as error:
        raise malformed("a text is not UTF-8") from error


def unpack_versioned(raw: bytes, form: struct.Struct, version: int, malformed: Malformed) -> tuple[Any, ...]:
    """Return the fields of *form*, the first of which is the *version*; raise the error of *malformed* for another."""
    if len(raw) < _VERSION.size:
        raise malformed("its value is cut short")
    (found,) = _VERSION.unpack_from(raw)
    if found != version:
        raise malformed(f"version {found} is not supported, only {version} is")
    if len(raw) < form.size:
        raise malformed("its value is cut short")
    return form.unpack_from(raw)
