"""Parsing of brokers' answers: whatever their bytes are, the result is a response that conforms to its schema, or one
error. aiokafka accepts everything that it can decode, and null for every string and every list. Kafka's own clients
refuse null where the protocol has none, and texts longer than brokers let pass, so that what is done with a response
need not ask for them. Here it is the same.
"""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
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
#: What refuses a value that is not null.
_Check = Callable[[Any], None]
#: Position in a row, name, whether it may be null, and what it is to be checked for otherwise.
_Field = tuple[int, str, bool, _Check | None]


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
        _check_row([getattr(response, field) for field in schema.names], _watched(schema))
    return response


def by_asked(asked: Iterable[K], rows: Iterable[tuple[K, V]], silent: V) -> dict[K, V]:
    """Return the result in an answer's *rows* for each one *asked*: *silent* if it is missing."""
    found = dict.fromkeys(asked, silent)
    for key, value in rows:
        if key in found:
            found[key] = value
    return found


def _check_row(row: Sequence[Any], fields: tuple[_Field, ...]) -> None:
    for index, name, is_nullable, check in fields:
        value = row[index]
        if value is None:
            if not is_nullable:
                raise ValueError(f"{name} is null")
        elif check is not None:
            check(value)


@functools.cache
def _watched(schema: Schema) -> tuple[_Field, ...]:
    fields = enumerate(zip(schema.names, schema.fields, strict=True))
    found = ((index, name, kind) for index, (name, kind) in fields if _is_watched(kind))
    return tuple((index, name, name in _NULLABLE, _check_of(name, kind)) for index, name, kind in found)


def _is_watched(kind: Any) -> bool:
    return isinstance(kind, String | Array | Schema) or kind in (Bytes, CompactBytes)


def _check_of(name: str, kind: Any) -> _Check | None:
    """Return what checks a value of a *kind*, made once: answers have the same few kinds in thousands of rows."""
    if isinstance(kind, Schema):
        fields = _watched(kind)
        return lambda row: _check_row(row, fields)
    if isinstance(kind, Array):
        if isinstance(kind.array_of, Schema):
            return functools.partial(_check_rows, fields=_watched(kind.array_of))
        item = ((0, name, name in _NULLABLE, _check_of(name, kind.array_of)),) if _is_watched(kind.array_of) else ()
        return (lambda values: _check_rows([(it,) for it in values], item)) if item else None
    return functools.partial(_check_text, name=name) if isinstance(kind, String) else None


def _check_rows(rows: Sequence[Sequence[Any]], fields: tuple[_Field, ...]) -> None:
    for row in rows:
        _check_row(row, fields)


def _check_text(value: str, name: str) -> None:
    if len(value) > _SURELY_SHORT and len(value.encode()) > _LONGEST_TEXT_BYTES:
        raise ValueError(f"{name} is longer than any text may be")
