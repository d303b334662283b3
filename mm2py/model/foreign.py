"""Records of JSON. Parsing trusts none of them: internal topics can be filled by every client with write permission. It
returns a value or an error message, whatever the bytes are, in bounded time and memory.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import attrs


INT32_MOST: Final = 2**31 - 1
INT64_MOST: Final = 2**63 - 1
#: No log comes near it, and sums starting from it still fit into the protocol's 64 bits.
OFFSET_MOST: Final = 2**62
#: The longest topic name in Kafka.
LONGEST_TOPIC: Final = 249
#: More than brokers accept in one record by default, and more than the mirror ever writes.
_LONGEST_JSON_BYTES: Final = 16 * 1024 * 1024
#: The mirror's own records are nested at most five deep.
_DEEPEST: Final = 32
_LONGEST_NUMBER: Final = 20


@attrs.frozen
class UnreadableRecord:
    """A record that looks like one of the mirror's but is invalid; `problem` says why, for the operator."""

    problem: str


def write_json(value: object) -> bytes:
    """Return *value* as the JSON of a record."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def read_json(raw: bytes) -> Any:
    """Parse the JSON *raw*. Raise ValueError that says why it is invalid. Besides JSON's own rules, these are invalid:
    deep nesting, numbers beyond 64 bits or NaN, duplicate members, and lone surrogates.
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
        raise ValueError(f"it is not valid JSON: {error.msg} at {error.pos}") from None
    _check(found)
    return found


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Raise ValueError that says what is wrong for what invalid members raise: a missing one, or an unsuitable type."""
    try:
        yield
    except KeyError as error:
        raise ValueError(f"it has no {error.args[0]!r}") from error
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from error


def read_versioned(raw: bytes, version: int) -> dict[str, Any]:
    """Parse the JSON object *raw*, which has a *version*. Raise ValueError that says why it is invalid."""
    found = mapping(read_json(raw))
    if found.get("version") != version:
        raise ValueError(f"its version is {found.get('version')!r}, this program knows {version}")
    return found


# Each returns the value if it is of a kind, else it raises ValueError, which begins with *what* the value is.


def whole(value: object, what: str = "", *, least: int = 0, most: int = OFFSET_MOST) -> int:
    """Return *value* if it is an integer in that range."""
    if isinstance(value, int) and not isinstance(value, bool):
        if least <= value <= most:
            return value
        raise ValueError(f"{_of(what)}{value} is not between {least} and {most}")
    raise ValueError(f"{_of(what)}an integer is expected, found {_shown(value)}")


def number(value: object, what: str = "") -> float:
    """Return *value* if it is a number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"{_of(what)}a number is expected, found {_shown(value)}")


def words(value: object, what: str = "") -> str:
    """Return *value* if it is a string."""
    if isinstance(value, str):
        return value
    raise ValueError(f"{_of(what)}a string is expected, found {_shown(value)}")


def mapping(value: object, what: str = "") -> dict[str, Any]:
    """Return *value* if it is an object."""
    if isinstance(value, dict):
        return value
    raise ValueError(f"{_of(what)}an object is expected, found {_shown(value)}")


def elements(value: object, what: str = "") -> list[Any]:
    """Return *value* if it is a list."""
    if isinstance(value, list):
        return value
    raise ValueError(f"{_of(what)}a list is expected, found {_shown(value)}")


def _of(what: str) -> str:
    return f"{what}: " if what else ""


def topic_name(value: object) -> str:
    """Return *value* if it is a valid topic name, else raise ValueError."""
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
        raise ValueError("a member is duplicated")
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
        raise ValueError("a lone surrogate is not valid text") from None


def _shown(value: object) -> str:
    kinds = {"dict": "an object", "list": "a list", "str": "text", "NoneType": "null", "bool": "true or false"}
    return kinds.get(type(value).__name__, f"the number {value!r}")
