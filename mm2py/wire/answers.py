"""Parsing of brokers' answers: whatever their bytes are, the result is a response that conforms to its schema, or one
error. aiokafka accepts everything that it can decode, and null for every string and every list. Kafka's own clients
refuse null where the protocol has none, and texts longer than brokers let pass, so that what is done with a response
need not ask for them. Here it is the same.
"""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import attrs
from aiokafka.protocol.types import Array, Bytes, CompactBytes, Schema, String

from mm2py.errors import Mm2Error


K = TypeVar("K")
V = TypeVar("V")

#: What taking bytes apart raises that are not what they claim to be; UnicodeDecodeError is a ValueError.
_UNREADABLE: Final = (ValueError, IndexError, struct.error)
#: The fields that may be null in some version of an answer, by aiokafka's names and ours.
_NULLABLE: Final = frozenset(
    {
        "aborted_transactions",
        "cluster_id",
        "config_value",
        "error_message",
        "group_instance_id",
        "instance_id",
        "message_set",
        "metadata",
        "rack",
        "rack_id",
        "subscribed_topic_regex",
    }
)
_LONGEST_TEXT_BYTES: Final = 0x7FFF
#: A text of that many characters has no more bytes than that, whichever they are.
_SURELY_SHORT: Final = _LONGEST_TEXT_BYTES // 4
#: Position in a row, name, and the type of a field that has to be looked at.
_Field = tuple[int, str, Any]


@attrs.define(eq=False)
class MalformedAnswerError(Mm2Error):
    """An answer is invalid. The connection's owner closes it and names the broker."""

    api: str
    problem: str

    def __str__(self) -> str:
        return f"its answer to {self.api} cannot be read: {self.problem}"


@contextmanager
def taking_apart(api: str) -> Iterator[None]:
    """Convert any parsing error of an answer to *api* to one error."""
    try:
        yield
    except _UNREADABLE as error:
        # aiokafka packs the problem into a sentence about its own functions.
        raise MalformedAnswerError(api, str(error.__cause__ or error)) from error


def read_response(prepared: Any, frame: memoryview) -> Any:
    """Return the response to *prepared*, one of aiokafka's request structs. Raise `MalformedAnswerError`."""
    name = type(prepared).__name__.partition("Request")[0]
    with taking_apart(f"{name} v{prepared.API_VERSION}"):
        answer = io.BytesIO(frame)
        prepared.parse_response_header(answer)
        response = prepared.RESPONSE_TYPE.decode(answer)
        schema = prepared.RESPONSE_TYPE.SCHEMA
        _check_row([getattr(response, field) for field in schema.names], schema)
    return response


def by_asked(asked: Iterable[K], rows: Iterable[tuple[K, V]], silent: V) -> dict[K, V]:
    """Return the result in an answer's *rows* for each one *asked*: *silent* if it is missing."""
    found = dict.fromkeys(asked, silent)
    for key, value in rows:
        if key in found:
            found[key] = value
    return found


def _check_row(row: Sequence[Any], schema: Schema) -> None:
    for index, name, kind in _watched(schema):
        _check(row[index], name, kind)


def _check(value: Any, name: str, kind: Any) -> None:
    if value is None:
        if name not in _NULLABLE:
            raise ValueError(f"{name} is null")
    elif isinstance(kind, Schema):
        _check_row(value, kind)
    elif isinstance(kind, Array) and _is_watched(kind.array_of):
        for item in value:
            _check(item, name, kind.array_of)
    elif isinstance(kind, String) and len(value) > _SURELY_SHORT and len(value.encode()) > _LONGEST_TEXT_BYTES:
        raise ValueError(f"{name} is longer than any text may be")


@functools.cache
def _watched(schema: Schema) -> tuple[_Field, ...]:
    fields = enumerate(zip(schema.names, schema.fields, strict=True))
    return tuple((index, name, kind) for index, (name, kind) in fields if _is_watched(kind))


def _is_watched(kind: Any) -> bool:
    return isinstance(kind, String | Array | Schema) or kind in (Bytes, CompactBytes)
