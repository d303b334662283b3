"""
Reading what anybody may have written: records of internal topics, which every client with a right to write can fill.

What is read here is a value or a refusal in words, whatever the bytes are, and in bounded time and memory.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

import attrs


INT32_MOST: Final = 2**31 - 1
INT64_MOST: Final = 2**63 - 1
#: No log comes near it, and what is counted on from there still fits into the protocol's 64 bits.
OFFSET_MOST: Final = 2**62
#: The longest name of a topic that Kafka takes.
LONGEST_TOPIC: Final = 249
#: More than brokers take in one record unless they are told to, and more than the mirror ever writes.
_LONGEST_JSON_BYTES: Final = 16 * 1024 * 1024
#: What the mirror writes is five deep at most.
_DEEPEST: Final = 32
_LONGEST_NUMBER: Final = 20


@attrs.frozen
class Unreadable:
    """A record that looks like one of the mirror's and is none; `problem` says why, for the operator."""

    problem: str


def read_json(raw: bytes) -> Any:
    """
    Return what the JSON *raw* says. Raise ValueError that says why it says nothing that may be relied on.

    That is the case beside what JSON forbids, too: for what is nested too deep, numbers that do not fit into 64 bits or
    are none, members that stand there twice, and half of a surrogate pair, which is no text.
    """
    if len(raw) > _LONGEST_JSON_BYTES:
        raise ValueError(f"{len(raw)} bytes are more than it ever has")
    try:
        found = json.loads(
            raw.decode(), parse_int=_number, parse_constant=_no_constant, object_pairs_hook=_members_once
        )
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error.msg} at {error.pos}") from None
    _check(found)
    return found


def whole(value: object, *, least: int = 0, most: int = OFFSET_MOST) -> int:
    """Return *value* where it is a whole number of that range, and raise ValueError where it is not."""
    if isinstance(value, int) and not isinstance(value, bool):
        if least <= value <= most:
            return value
        raise ValueError(f"{value} is not between {least} and {most}")
    raise ValueError(f"a whole number is expected, found {_shown(value)}")


def words(value: object) -> str:
    """Return *value* where it is text, and raise ValueError where it is not."""
    if isinstance(value, str):
        return value
    raise ValueError(f"text is expected, found {_shown(value)}")


def topic_name(value: object) -> str:
    """Return *value* where it may name a topic, and raise ValueError where no topic can be called so."""
    name = words(value)
    if len(name) > LONGEST_TOPIC:
        raise ValueError(f"a topic's name has {LONGEST_TOPIC} characters at most, not {len(name)}")
    return name


def _number(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER or not -INT64_MOST - 1 <= (number := int(digits)) <= INT64_MOST:
        raise ValueError("a number does not fit into 64 bits")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _members_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member stands there twice")
    return members


def _check(found: object) -> None:
    """Walk through *found*, level by level."""
    level: list[object] = [found]
    for _ in range(_DEEPEST):
        below: list[object] = []
        for value in level:
            if isinstance(value, dict):
                below += value.keys()
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, float) and value - value != 0:
                raise ValueError("a number is too large")
            elif isinstance(value, str) and not value.isascii():
                _check_text(value)
        if not below:
            return
        level = below
    raise ValueError("it is nested too deep")


def _check_text(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair is no text") from None


def _shown(value: object) -> str:
    kinds = {"dict": "an object", "list": "a list", "str": "text", "NoneType": "null", "bool": "true or false"}
    return kinds.get(type(value).__name__, f"the number {value!r}")
