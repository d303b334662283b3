"""Connect's single message transforms and predicates that are supported: their names, and the settings they take."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import attrs

from mm2py.model.patterns import PatternError, compile_java, split_list


Check = Callable[[str], str | None]

PACKAGE = "org.apache.kafka.connect.transforms."
_CONFLUENT = "io.confluent.connect.transforms."


@attrs.frozen
class StepKind:
    """The settings of a kind of step, or of predicate; `defaults` are the optional ones."""

    required: Mapping[str, Check] = attrs.field(factory=dict)
    defaults: Mapping[str, str] = attrs.field(factory=dict)
    checks: Mapping[str, Check] = attrs.field(factory=dict)


def _any(_text: str) -> str | None:
    return None


def _not_empty(text: str) -> str | None:
    return None if text.strip() else "must not be empty"


def _names(text: str) -> str | None:
    return None if all(split_list(text)) and text.strip() else "must name at least one"


def _pattern(text: str) -> str | None:
    try:
        compile_java(text)
    except PatternError as error:
        return str(error)
    return None


def _flag(text: str) -> str | None:
    return None if text.strip().lower() in {"true", "false"} else f"expected true or false, found {text!r}"


def _renames(text: str) -> str | None:
    if all(re.fullmatch(r"[^:]+:[^:]+", pair) for pair in split_list(text) if pair):
        return None
    return "expected old:new, old2:new2"


_NULLS = {"replace.null.with.default": "true"}
_NULLS_CHECK = {"replace.null.with.default": _flag}
#: The fields that an InsertField inserts, each in the setting that names it.
INSERTED = ("topic.field", "partition.field", "timestamp.field", "static.field")

_INSERT_FIELD = StepKind({}, {**dict.fromkeys((*INSERTED, "static.value"), ""), **_NULLS}, _NULLS_CHECK)
_MASK_FIELD = StepKind({"fields": _names}, {"replacement": "", **_NULLS}, _NULLS_CHECK)
_REPLACE_FIELD = StepKind(
    {}, {"exclude": "", "include": "", "renames": "", **_NULLS}, {**_NULLS_CHECK, "renames": _renames}
)

STEPS: Mapping[str, StepKind] = {
    "RegexRouter": StepKind({"regex": _pattern, "replacement": _any}),
    "InsertField$Key": _INSERT_FIELD,
    "InsertField$Value": _INSERT_FIELD,
    "InsertHeader": StepKind({"header": _not_empty, "value.literal": _any}),
    "DropHeaders": StepKind({"headers": _names}),
    "Filter": StepKind(),
    "MaskField$Key": _MASK_FIELD,
    "MaskField$Value": _MASK_FIELD,
    "ReplaceField$Key": _REPLACE_FIELD,
    "ReplaceField$Value": _REPLACE_FIELD,
    "ValueToKey": StepKind({"fields": _names}, _NULLS, _NULLS_CHECK),
}
#: Transforms that choose a topic for each record by its content: Connect's own, and Confluent's.
ROUTING_BY_RECORD = frozenset(
    {
        "TimestampRouter",
        "MessageTimestampRouter",
        "ExtractTopic$Header",
        "ExtractTopic$Key",
        "ExtractTopic$Value",
    }
)
PREDICATES: Mapping[str, StepKind] = {
    "TopicNameMatches": StepKind({"pattern": _pattern}),
    "HasHeaderKey": StepKind({"name": _not_empty}),
    "RecordIsTombstone": StepKind(),
}


def short_name(class_name: str) -> str:
    """Return a class's name without Java's packages, ``MaskField$Value``."""
    name = class_name.strip()
    for package in (f"{PACKAGE}predicates.", PACKAGE):
        name = name.removeprefix(package)
    return name


def routes_by_record(class_name: str) -> bool:
    """Whether the transform sends records of one topic to several, depending on their content."""
    return short_name(class_name).removeprefix(_CONFLUENT) in ROUTING_BY_RECORD
