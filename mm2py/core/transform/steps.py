"""
Kafka Connect's single message transforms, on one record at a time.

Steps that read a key or a value treat it as JSON without a schema, as Java's do with a JsonConverter with
``schemas.enable=false``: an object's fields, numbers as long or double. The names of classes and settings are Java's
(org.apache.kafka.connect.transforms), and so is the handling of nulls and missing fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import attrs

from mm2py.core.transform.matching import ROUTER, TOPIC_NAME_MATCHES, reroute
from mm2py.model.patterns import compile_java, split_list
from mm2py.model.transform import Predicate, Step


Headers = tuple[tuple[str, bytes | None], ...]

_KEY: Final = "Key"
_INSERT_HEADER: Final = "InsertHeader"
_LONG: Final = range(-(2**63), 2**63)
_ASCII_JSON: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_JSON: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False)


@attrs.define
class StepRecord:
    """A record passing through steps; `timestamp` is in milliseconds, -1 for none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class StepError(ValueError):
    """A record that a step cannot process. `error` is Java's exception."""

    def __init__(self, message: str, column: str = "") -> None:
        super().__init__(message)
        self.error = "DataException"
        self.column = column


Run = Callable[[StepRecord], bool]
Holds = Callable[[StepRecord], bool]


class StepChain:
    """A sequence of steps."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self._steps = [(step, _MAKERS[_stem(step.kind)](step), _condition(step)) for step in steps]

    def __bool__(self) -> bool:
        return bool(self._steps)

    def apply(self, record: StepRecord) -> str:
        """
        Apply all steps to *record*, in place; return the name of the step that dropped it, empty if none did.

        Raise `StepFailedError`.
        """
        for step, run, holds in self._steps:
            if not holds(record):
                continue
            try:
                if not run(record):
                    return step.name
            except StepError as error:
                raise StepFailedError(f"transforms.{step.name}", error) from error
        return ""


class StepFailedError(ValueError):
    """A step that could not process a record."""

    def __init__(self, stage: str, cause: StepError) -> None:
        super().__init__(str(cause))
        self.stage = stage
        self.error = cause.error
        self.column = cause.column


def added_headers(steps: Sequence[Step]) -> Headers | None:
    """Return the headers that *steps* add to each record; None if they do anything else."""
    if any(step.kind != _INSERT_HEADER or step.predicate is not None for step in steps):
        return None
    return tuple(map(_header, steps))


def _stem(kind: str) -> str:
    return kind.partition("$")[0]


# Conditions.


def _condition(step: Step) -> Holds:
    if step.predicate is None:
        return lambda _: True
    holds = _predicate(step.predicate)
    return (lambda record: not holds(record)) if step.is_negated else holds


def _predicate(predicate: Predicate) -> Holds:
    if predicate.kind == TOPIC_NAME_MATCHES:
        matches = compile_java(predicate.settings["pattern"]).fullmatch
        return lambda record: matches(record.topic) is not None
    if predicate.kind == "HasHeaderKey":
        name = predicate.settings["name"]
        return lambda record: any(key == name for key, _ in record.headers)
    return lambda record: record.value is None


# Steps that do not touch keys and values.


def _router(step: Step) -> Run:
    known: dict[str, str] = {}

    def run(record: StepRecord) -> bool:
        if record.topic not in known:
            known[record.topic] = reroute(record.topic, step)
        record.topic = known[record.topic]
        return True

    return run


def _filter(_step: Step) -> Run:
    return lambda _: False


def _drop_headers(step: Step) -> Run:
    names = frozenset(split_list(step.settings["headers"]))

    def run(record: StepRecord) -> bool:
        if record.headers:
            record.headers = tuple(header for header in record.headers if header[0] not in names)
        return True

    return run


def _header(step: Step) -> tuple[str, bytes]:
    return step.settings["header"], step.settings["value.literal"].encode()


def _insert_header(step: Step) -> Run:
    header = _header(step)

    def run(record: StepRecord) -> bool:
        record.headers = (*record.headers, header)
        return True

    return run


# Steps on fields.

Change = Callable[[dict[str, Any], StepRecord], dict[str, Any]]


def _on_fields(step: Step, purpose: str, change: Change, *, takes_null: bool = True) -> Run:
    """Return a step that changes the fields of the key or of the value; a null stays null if it *takes_null*."""
    column = "key" if step.kind.endswith(f"${_KEY}") else "value"

    def run(record: StepRecord) -> bool:
        text = record.key if column == "key" else record.value
        if text is None and takes_null:
            return True
        changed = _bytes(change(_fields(text, purpose, column), record), column)
        if column == "key":
            record.key = changed
        else:
            record.value = changed
        return True

    return run


def _insert_field(step: Step) -> Run:
    settings = step.settings
    # A ! or ? after the name marks the field as required or optional, which has no effect without a schema.
    names = {key: re.sub(r"[!?]\Z", "", settings[key]) for key in settings if key.endswith(".field") and settings[key]}

    def change(fields: dict[str, Any], record: StepRecord) -> dict[str, Any]:
        known = {
            "topic.field": record.topic,
            "partition.field": record.partition,
            "timestamp.field": None if record.timestamp < 0 else record.timestamp,
            "static.field": settings.get("static.value"),
        }
        return {**fields, **{name: known[key] for key, name in names.items()}}

    return _on_fields(step, "field insertion", change)


def _mask_field(step: Step) -> Run:
    masked = split_list(step.settings["fields"])
    replacement = step.settings["replacement"]
    column = "key" if step.kind.endswith(f"${_KEY}") else "value"

    def change(fields: dict[str, Any], _record: StepRecord) -> dict[str, Any]:
        return {**fields, **{name: _masked(fields.get(name), replacement, column) for name in masked}}

    return _on_fields(step, "mask fields", change, takes_null=False)


def _masked(value: Any, replacement: str, column: str) -> Any:
    if value is None:
        return None
    if replacement:
        return _replaced(value, replacement, column)
    return type(value)()  # false, 0, 0.0, nothing


def _replaced(value: Any, replacement: str, column: str) -> Any:
    if isinstance(value, str):
        return replacement
    if isinstance(value, bool | list | dict):
        raise StepError(f"Cannot mask value of type class {_java_type(value)} with custom replacement.", column)
    try:
        return float(replacement) if isinstance(value, float) else _long(replacement)
    except ValueError as error:
        raise StepError(f"Unable to convert {replacement} (class java.lang.String) to a number", column) from error


def _long(text: str) -> int:
    if re.fullmatch(r"[+-]?[0-9]+", text) is None or int(text) not in _LONG:
        raise ValueError(text)
    return int(text)


def _replace_field(step: Step) -> Run:
    settings = step.settings
    exclude = frozenset(split_list(settings["exclude"]))
    include = frozenset(split_list(settings["include"]))
    renames = dict(pair.split(":", 1) for pair in split_list(settings["renames"]) if pair)

    def change(fields: dict[str, Any], _record: StepRecord) -> dict[str, Any]:
        return {
            renames.get(name, name): value
            for name, value in fields.items()
            if name not in exclude and (not include or name in include)
        }

    return _on_fields(step, "field replacement", change)


def _value_to_key(step: Step) -> Run:
    names = split_list(step.settings["fields"])

    def run(record: StepRecord) -> bool:
        fields = _fields(record.value, "copying fields from value to key", "value")
        record.key = _bytes({name: fields.get(name) for name in names}, "value")
        return True

    return run


_MAKERS: Final[Mapping[str, Callable[[Step], Run]]] = {
    ROUTER: _router,
    "InsertField": _insert_field,
    _INSERT_HEADER: _insert_header,
    "DropHeaders": _drop_headers,
    "Filter": _filter,
    "MaskField": _mask_field,
    "ReplaceField": _replace_field,
    "ValueToKey": _value_to_key,
}


# JSON.


def _fields(text: bytes | None, purpose: str, column: str) -> dict[str, Any]:
    value = None
    if text is not None:
        try:
            value = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise StepError(f"the {column} is no JSON: {error}", column) from error
    if not isinstance(value, dict):
        found = "null" if value is None else _java_type(value)
        raise StepError(f"Only Map objects supported in absence of schema for [{purpose}], found: {found}", column)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _bytes(value: Any, column: str) -> bytes:
    try:
        return _JSON.encode(value).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, of which JSON has an escape and UTF-8 has no form
        return _ASCII_JSON.encode(value).encode()
    except ValueError as error:  # Python has read 1e999 as infinite, of which JSON has no form
        raise StepError(f"a number of the {column} is too large", column) from error


def _java_type(value: Any) -> str:
    if isinstance(value, bool):
        return "java.lang.Boolean"
    names: Mapping[type, str] = {
        str: "java.lang.String",
        int: "java.lang.Long",
        float: "java.lang.Double",
        list: "java.util.ArrayList",
        dict: "java.util.HashMap",
    }
    return names[type(value)]
