"""
aiokafka's schemas as straight code: what a schema says field by field, and again for each value, is written out once.

Model and product spend most of a run's time on them otherwise. `test_codec.py` compares the bytes.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Callable
from io import BytesIO
from typing import Any

from aiokafka.protocol.types import (
    Array,
    Boolean,
    Bytes,
    CompactArray,
    CompactBytes,
    CompactString,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
    UInt32,
    UnsignedVarInt32,
)

from mm2py.wire.requests import Uuid


_FIXED = {Int8: "b", Int16: "h", Int32: "i", UInt32: "I", Int64: "q", Float64: "d", Boolean: "?"}
_COMPACT = (CompactArray, CompactBytes, CompactString)
_VARINTS: tuple[bytes, ...] = tuple(UnsignedVarInt32.encode(number) for number in range(1 << 14))


def _varint(number: int) -> bytes:
    return _VARINTS[number] if number < len(_VARINTS) else bytes(UnsignedVarInt32.encode(number))


def _long_varint(data: bytes, at: int, number: int) -> tuple[int, int]:
    """Return a varint whose first byte was *number* and says that there are more, and where it ends."""
    number, shift = number & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def _other(kind: Any, data: bytes, at: int) -> tuple[Any, int]:
    """Return a value of a kind that is not written out, and where it ends."""
    stream = BytesIO(data)
    stream.seek(at)
    return kind.decode(stream), stream.tell()


@functools.cache
def _uuid(raw: bytes) -> str | None:
    text: str | None = Uuid.decode(BytesIO(raw))
    return text


@functools.cache
def _raw_uuid(value: str | None) -> bytes:
    return bytes(Uuid.encode(value))


class _Code:
    """Lines of a function, with what they use."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.uses: dict[str, Any] = {"varint": _varint, "long_varint": _long_varint, "other": _other}
        self._depth = 1
        self._numbers = itertools.count()

    def say(self, line: str, deeper: int = 0) -> None:
        self.lines.append("    " * self._depth + line)
        self._depth += deeper

    def back(self) -> None:
        self._depth -= 1

    def name(self) -> str:
        return f"v{next(self._numbers)}"

    def use(self, thing: Any) -> str:
        name = f"u{next(self._numbers)}"
        self.uses[name] = thing
        return name

    def made(self, head: str, last: str) -> Callable[..., Any]:
        source = "\n".join([f"def made({head}):", *self.lines, f"    {last}"])
        exec(compile(source, "<schema>", "exec"), self.uses)
        made: Callable[..., Any] = self.uses["made"]
        return made


class _Decoder(_Code):
    """What is of a fixed size and stands together is unpacked together."""

    def __init__(self) -> None:
        super().__init__()
        self._together: list[tuple[str, str]] = []

    def fields(self, kinds: tuple[Any, ...]) -> list[str]:
        """Decode one after the other; return the names of their values."""
        names = []
        for kind in kinds:
            name = self.name()
            names.append(name)
            if kind in _FIXED:
                self._together.append((name, _FIXED[kind]))
            else:
                self._field(name, kind)
        self._unpack()
        return names

    def _unpack(self) -> None:
        if self._together:
            form = struct.Struct(">" + "".join(form for _, form in self._together))
            names = "".join(f"{name}, " for name, _ in self._together)
            self.say(f"{names}= {self.use(form.unpack_from)}(data, at); at += {form.size}")
            self._together = []

    def _field(self, name: str, kind: Any) -> None:
        if isinstance(kind, Schema):
            self._unpack()
            self.say(f"{name} = ({', '.join(self.fields(kind.fields))},)")
        elif isinstance(kind, Array):
            self._array(name, kind, self._count(kind, "i"))
        elif isinstance(kind, String):
            self._slice(name, self._count(kind, "h"), f".decode({kind.encoding!r})")
        elif kind in (Bytes, CompactBytes):
            self._slice(name, self._count(kind, "i"), "")
        elif kind is Uuid:
            self._unpack()
            self.say(f"{name} = {self.use(_uuid)}(data[at:at + 16]); at += 16")
        elif kind is TaggedFields:
            self._unpack()
            self.say("if data[at]:", deeper=1)
            self.say(f"{name}, at = other({self.use(kind)}, data, at)")
            self.back()
            self.say("else:", deeper=1)
            self.say(f"{name} = {{}}; at += 1")
            self.back()
        else:
            self._unpack()
            self.say(f"{name}, at = other({self.use(kind)}, data, at)")

    def _count(self, kind: Any, form: str) -> str:
        """Decode a length, which is -1 for none."""
        name = self.name()
        if not (isinstance(kind, _COMPACT) or kind in _COMPACT):
            self._together.append((name, form))
            self._unpack()
            return name
        self._unpack()
        self.say(f"{name} = data[at]; at += 1")
        self.say(f"if {name} > 127: {name}, at = long_varint(data, at, {name})")
        self.say(f"{name} -= 1")
        return name

    def _slice(self, name: str, count: str, text: str) -> None:
        self.say(f"if {count} < 0: {name} = None")
        self.say(f"else: {name} = data[at:at + {count}]{text}; at += {count}")

    def _array(self, name: str, kind: Any, count: str) -> None:
        self.say(f"if {count} < 0: {name} = None")
        self.say("else:", deeper=1)
        self.say(f"{name} = []")
        self.say(f"for _ in range({count}):", deeper=1)
        (row,) = self.fields((kind.array_of,))
        self.say(f"{name}.append({row})")
        self.back()
        self.back()


class _Encoder(_Code):
    """Pieces of bytes; what is of a fixed size and stands together is packed together."""

    def __init__(self) -> None:
        super().__init__()
        self._together: list[tuple[str, str]] = []

    def fields(self, kinds: tuple[Any, ...], values: list[str]) -> None:
        """Encode *values*, which are names, one after the other."""
        for kind, value in zip(kinds, values, strict=True):
            if kind in _FIXED:
                self._together.append((value, _FIXED[kind]))
            else:
                self._field(kind, value)
        self.pack()

    def pack(self) -> None:
        if self._together:
            form = struct.Struct(">" + "".join(form for _, form in self._together))
            self.say(f"put({self.use(form.pack)}({', '.join(name for name, _ in self._together)}))")
            self._together = []

    def _field(self, kind: Any, value: str) -> None:
        if isinstance(kind, Schema):
            self._row(kind, value)
        elif isinstance(kind, Array):
            self._array(kind, value)
        elif isinstance(kind, String):
            name = self.name()
            self.say(f"{name} = None if {value} is None else str({value}).encode({kind.encoding!r})")
            self._sized(kind, "h", name)
        elif kind in (Bytes, CompactBytes):
            self._sized(kind, "i", value)
        else:
            self.pack()
            encode = _raw_uuid if kind is Uuid else kind.encode
            self.say(f"put({self.use(encode)}({value}))")

    def _row(self, kind: Any, value: str) -> None:
        names = [self.name() for _ in kind.fields]
        self.say(f"{', '.join(names)}, = {value}")
        self.fields(kind.fields, names)

    def _length(self, kind: Any, form: str, value: str) -> None:
        if isinstance(kind, _COMPACT) or kind in _COMPACT:
            self.pack()
            self.say(f"put(varint(0 if {value} is None else len({value}) + 1))")
        else:
            self._together.append((f"-1 if {value} is None else len({value})", form))
            self.pack()

    def _sized(self, kind: Any, form: str, value: str) -> None:
        self._length(kind, form, value)
        self.say(f"if {value}: put({value})")

    def _array(self, kind: Any, value: str) -> None:
        self._length(kind, "i", value)
        item = self.name()
        self.say(f"for {item} in {value} or ():", deeper=1)
        self.fields((kind.array_of,), [item])
        self.back()


@functools.cache
def reader(kind: Any) -> Callable[[bytes, int], tuple[Any, int]]:
    """
    Return what reads a struct of a *kind*, one of aiokafka's classes of structs, from bytes and an offset on, and says
    where it ends.
    """
    code = _Decoder()
    names = code.fields(kind.SCHEMA.fields)
    values = ", ".join(f"{field!r}: {name}" for field, name in zip(kind.SCHEMA.names, names, strict=True))
    made = code.made("data, at", f"return {{{values}}}, at")

    def read(data: bytes, at: int) -> tuple[Any, int]:
        values, end = made(data, at)
        found = object.__new__(kind)
        found.__dict__ = values
        return found, end

    return read


@functools.cache
def decoder(kind: Any) -> Callable[[bytes, int], Any]:
    """Return what reads a struct that all bytes from an offset on belong to."""
    read = reader(kind)

    def decode(data: bytes, at: int) -> Any:
        found, end = read(data, at)
        if end != len(data):
            raise ValueError(f"{kind.__name__} ends at {end} of {len(data)} bytes")
        return found

    return decode


def decoded(kind: Any, data: BytesIO | bytes) -> Any:
    """Return the struct that comes next in *data*, as aiokafka's `Struct.decode`."""
    stream = BytesIO(data) if isinstance(data, bytes) else data
    found, end = reader(kind)(stream.getvalue(), stream.tell())
    stream.seek(end)
    return found


@functools.cache
def encoder(kind: Any) -> Callable[[Any], bytes]:
    """Return what makes bytes of a struct of a *kind*."""
    code = _Encoder()
    code.say("pieces = []; put = pieces.append")
    names = [f"it[{field!r}]" for field in kind.SCHEMA.names]
    local = [code.name() for _ in names]
    if local:
        code.say(f"{', '.join(local)}, = {', '.join(names)},")
    code.fields(kind.SCHEMA.fields, local)
    made = code.made("it", "return b''.join(pieces)")
    return lambda struct: made(struct.__dict__)


def encoded(struct: Any) -> bytes:
    """Return a struct's bytes."""
    kind: Any = type(struct)
    return encoder(kind)(struct)
