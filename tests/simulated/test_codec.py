"""What the simulation reads and writes is what aiokafka's schemas say, of each kind of request that it knows."""

from __future__ import annotations

import random
from io import BytesIO
from typing import Any

import pytest
from aiokafka.protocol.types import Array, Boolean, Bytes, CompactBytes, Float64, Schema, String, TaggedFields

from mm2py.wire.requests import Uuid
from tests.simulated import requests
from tests.simulated.codec import decoded, decoder, encoder


_STRUCTS = [struct for struct, _ in requests.STRUCTS.values()]
_KINDS = [*_STRUCTS, *(struct.RESPONSE_TYPE for struct in _STRUCTS)]
#: Of what is neither made of others nor a small number.
_SAMPLES: dict[Any, Any] = {
    Uuid: (None, "AAAAAAAAAAAAAAAAAAAAAQ"),
    TaggedFields: ({},),
    Boolean: (False, True),
    Float64: (0.5, -0.0),
}


def _value(kind: Any, draw: random.Random) -> Any:
    if isinstance(kind, Schema):
        return tuple(_value(field, draw) for field in kind.fields)
    if isinstance(kind, Array):
        size = draw.choice((None, 0, 1, 2, 200))
        return None if size is None else [_value(kind.array_of, draw) for _ in range(size if size < 9 else 3)]
    if isinstance(kind, String):
        return draw.choice((None, "", "orders", "ü" * 70, "x" * 200))
    if kind in (Bytes, CompactBytes):
        return draw.choice((None, b"", b"\x00\x01", bytes(20_000)))
    return draw.choice(_SAMPLES.get(kind, (0, 1, 100, -1, -128)))


@pytest.mark.parametrize("kind", _KINDS, ids=lambda it: it.__name__)
def test_bytes_are_those_of_the_schema(kind: Any) -> None:
    """In both directions, with what is null, empty, short and long."""
    draw = random.Random(kind.__name__)
    for _ in range(20):
        struct = kind(*(_value(field, draw) for field in kind.SCHEMA.fields))
        raw = struct.encode()

        assert encoder(kind)(struct) == raw
        assert decoder(kind)(b"head" + raw, 4) == kind.decode(BytesIO(raw))
        assert encoder(kind)(decoder(kind)(raw, 0)) == raw


def test_what_follows_a_struct_is_left_in_the_stream() -> None:
    """As aiokafka leaves it: a header is read, then the answer after it."""
    kind = requests.STRUCTS[0, 7][0]
    raw = kind(None, -1, 1_000, []).encode()
    stream = BytesIO(memoryview(b"head" + raw + b"more"))
    stream.seek(4)

    assert decoded(kind, stream) == kind.decode(BytesIO(raw))
    assert stream.read() == b"more"


def test_what_is_left_over_is_noticed() -> None:
    """A request that is longer than its schema was not understood."""
    kind = requests.STRUCTS[0, 7][0]
    raw = kind(None, -1, 1_000, []).encode()

    with pytest.raises(ValueError, match="ends at"):
        decoder(kind)(raw + b"\x00", 0)
