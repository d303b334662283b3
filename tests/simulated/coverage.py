"""What many runs have reached: the events of nodes and the error codes of brokers, and which of them never came."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiokafka.protocol.types import Array, Schema

import mm2py
from mm2py.telemetry import events
from mm2py.telemetry.events import Event
from mm2py.wire.error_codes import ErrorCode


_FOLDER = Path(__file__).parent
_PRODUCT = Path(mm2py.__file__).parent
#: What of the product no run has: events that only these emit cannot come.
_REPLACED = ("cli/", "client/", "verify/", "devkit/", "pipeline/spark/", "pipeline/transform/", "pipeline/epoch_jobs",
             "rest/access/", "wire/security/")  # fmt: skip


def codes_in(answer: Any) -> Iterator[int]:
    """Return the error codes in an answer, wherever its schema has one."""
    names = answer.SCHEMA.names
    for at, within in _coded(answer.SCHEMA):
        yield from _codes(getattr(answer, names[at]), within)


def _codes(value: Any, within: Any) -> Iterator[int]:
    if within is None:
        yield int(value)
        return
    for row in value or ():
        for at, deeper in within:
            if at < len(row):
                yield from _codes(row[at], deeper)


@functools.cache
def _coded(schema: Any) -> tuple[tuple[int, Any], ...]:
    """Return which fields of a row have codes: None for one that is a code, else where rows within it have them."""
    found: list[tuple[int, Any]] = []
    for at, (name, kind) in enumerate(zip(schema.names, schema.fields, strict=True)):
        if name == "error_code":
            found.append((at, None))
        elif isinstance(kind, Array) and isinstance(kind.array_of, Schema) and (within := _coded(kind.array_of)):
            found.append((at, within))
    return tuple(found)


@functools.cache
def known_codes() -> frozenset[str]:
    """Return the names of the error codes that the model can answer."""
    text = "".join(file.read_text() for file in _FOLDER.rglob("*.py"))
    return frozenset(re.findall(r"ErrorCode\.([A-Z_]{2,})", text))


def events_never_seen(seen: dict[str, int]) -> list[str]:
    """Return the kinds of events that no run has had, and could have had."""
    kinds = {it.__name__ for it in vars(events).values() if isinstance(it, type) and issubclass(it, Event)}
    left = {name for name in kinds - seen.keys() if name != "Event" and not name.startswith("_")}
    texts = [(str(file.relative_to(_PRODUCT)), file.read_text()) for file in _PRODUCT.rglob("*.py")]
    emitting = [text for place, text in texts if not place.startswith(("telemetry/", *_REPLACED))]
    # Once where it is imported, and where it is used.
    return sorted(name for name in left if any(len(re.findall(rf"\b{name}\b", text)) > 1 for text in emitting))


def codes_never_answered(seen: dict[str, int]) -> list[str]:
    """Return the error codes that the model can answer and never did."""
    return sorted(known_codes() - seen.keys())


def name_of(code: int) -> str:
    """Return Kafka's name of an error code."""
    return ErrorCode(code).name
