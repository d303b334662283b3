"""A row of the key table: a key's name, kind, default, where it may be written, and what it does.
`mm2py.config.layers` looks keys up in the rows, `mm2py.config.lint` checks a file against them, and
`mm2py.config.render` generates the documentation from them.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Final

import attrs

from mm2py.model.patterns import NamePatterns, PatternError, split_list, split_patterns
from mm2py.model.timestamp import timestamp_ms
from mm2py.model.topic import is_topic_name


#: The greatest TCP port.
LAST_PORT: Final = 65_535

#: What Java's `String.trim` removes at both ends.
_TRIMMED: Final = "".join(map(chr, range(ord(" ") + 1)))

#: Checks a parsed value: returns why it is invalid, or None.
Check = Callable[[object], str | None]


class LineLevel(enum.Enum):
    """The level at which a line is written."""

    TOP = "at the top level"
    CLUSTER = "for a cluster"
    FLOW = "for a flow"


class Place(enum.Enum):
    """Where a key may be written, and which line takes precedence. The rules are MirrorMaker's."""

    #: At the top level only: it applies to this process.
    TOP = "top level"
    #: A flow's own line takes precedence over the top level.
    FLOW = "top level, flow"
    #: Only a flow's own line applies.
    FLOW_ONLY = "flow"
    #: Connection to a cluster: a cluster's own line takes precedence over the top level.
    CLUSTER = "top level, cluster"
    #: Runtime of all flows into a cluster: only that cluster's line applies.
    WORKER = "target cluster"
    #: The same, but the top level takes precedence over the cluster's line.
    WORKER_TOP = "top level, target cluster"
    #: The client that reads the source cluster; written after ``consumer.``.
    CONSUMER = "source cluster, flow"
    #: The client that writes the target cluster; written after ``producer.``.
    PRODUCER = "target cluster, flow"
    #: The client that administers a cluster; written after ``admin.``.
    ADMIN = "cluster, flow"


_CLIENT_FORMS = ("consumer.", "producer.", "admin.")
_SIDES = ("source.", "target.")
#: Possible prefixes of a key at each level.
FORMS: dict[Place, dict[LineLevel, tuple[str, ...]]] = {
    Place.TOP: {LineLevel.TOP: ("",)},
    Place.FLOW: {LineLevel.TOP: ("",), LineLevel.FLOW: ("",)},
    Place.FLOW_ONLY: {LineLevel.FLOW: ("",)},
    Place.CLUSTER: {
        LineLevel.TOP: ("",),
        LineLevel.CLUSTER: ("", *_CLIENT_FORMS),
        LineLevel.FLOW: (
            *(side + form for side in _SIDES for form in ("cluster.", *_CLIENT_FORMS)),
            *_CLIENT_FORMS,
            "producer.override.",
        ),
    },
    Place.WORKER: {LineLevel.CLUSTER: ("",)},
    Place.WORKER_TOP: {LineLevel.TOP: ("",), LineLevel.CLUSTER: ("",)},
    Place.CONSUMER: {LineLevel.CLUSTER: ("consumer.",), LineLevel.FLOW: ("source.consumer.", "consumer.")},
    Place.PRODUCER: {
        LineLevel.CLUSTER: ("producer.",),
        LineLevel.FLOW: ("producer.override.", "target.producer.", "producer."),
    },
    Place.ADMIN: {LineLevel.CLUSTER: ("admin.",), LineLevel.FLOW: ("source.admin.", "target.admin.", "admin.")},
}
#: The prefix of a client's settings, after an alias or a flow.
_ROLES = {Place.CONSUMER: "consumer.", Place.PRODUCER: "producer.", Place.ADMIN: "admin."}


class Kind(enum.Enum):
    """The type of a value, with Kafka's names for it."""

    BOOLEAN = "boolean"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    STRING = "string"
    LIST = "list"
    PATTERNS = "list of regular expressions"
    CLASS = "class"
    PASSWORD = "password"  # noqa: S105 - the name of a type

    def parse(self, text: str) -> object:
        """Parse *text*. Raise ValueError with what is expected."""
        if self is Kind.BOOLEAN:
            return _parse_boolean(text)
        if self in _BITS:
            return _parse_integer(text, _BITS[self])
        if self is Kind.LIST:
            return _parse_list(split_list(text))
        if self is Kind.PATTERNS:
            return _parse_patterns(text)
        return trimmed(text)


_BITS = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}


@attrs.frozen
class Key:
    """One row of the table. A name that ends in ``*`` stands for all keys with that prefix."""

    name: str
    kind: Kind
    default: str | None
    place: Place
    doc: str
    #: Whether this version acts on it. If not, setting it causes a note.
    acts: bool = True
    check: Check | None = attrs.field(default=None, repr=False)
    is_secret: bool = False
    #: Former names; they are used if the current one is absent.
    aliases: tuple[str, ...] = ()
    #: The note for files that set it, if more than "without effect".
    remark: str = ""
    #: Values equal to mm2py's fixed behaviour; setting one causes no note.
    fits: tuple[str, ...] = ()
    #: The numbers that mm2py can work with: what Java takes beyond them counts as the nearest, with a note.
    least: int | None = None
    most: int | None = None
    #: Whether blanks around a value are part of it, because Java's class reads the line itself.
    keeps_blanks: bool = False

    @property
    def full_name(self) -> str:
        """The name as written after an alias or a flow, ``consumer.fetch.min.bytes``."""
        return _ROLES.get(self.place, "") + self.name

    @property
    def stem(self) -> str | None:
        """The common prefix of a wildcard row's keys, or None if the row is for one key."""
        return self.name[:-1] if self.name.endswith("*") else None

    def parse(self, text: str) -> object:
        """Parse and check a value. Raise ValueError with what is expected."""
        value = text if self.keeps_blanks else self.kind.parse(text)
        if self.check is not None and (reason := self.check(value)):
            raise ValueError(reason)
        if isinstance(value, int):
            value = value if self.least is None else max(self.least, value)
            value = value if self.most is None else min(self.most, value)
        return value


@attrs.frozen
class Section:
    """Rows that belong together, with their introduction in the documentation."""

    title: str
    text: str
    keys: tuple[Key, ...]


def trimmed(text: str) -> str:
    """Return *text* as Kafka reads a STRING, PASSWORD or CLASS: without the blanks around it."""
    return text.strip(_TRIMMED)


def at_least(least: int) -> Check:
    """Refuse numbers below *least*."""

    def check(value: object) -> str | None:
        return f"must be at least {least}" if isinstance(value, int) and value < least else None

    return check


def port_from(least: int) -> Check:
    """Refuse numbers that are no TCP port, from *least* on."""

    def check(value: object) -> str | None:
        return None if isinstance(value, int) and least <= value <= LAST_PORT else f"must be {least} to {LAST_PORT}"

    return check


def at_least_1_or(otherwise: str) -> Check:
    """Refuse all but numbers from 1 on, and -1, which stands for *otherwise*."""

    def check(value: object) -> str | None:
        is_valid = isinstance(value, int) and (value == -1 or value >= 1)
        return None if is_valid else f"must be 1 or more, or -1 for {otherwise}"

    return check


#: The greatest replication factor that Kafka's protocol has a number for; Java sends more as a negative one.
_MOST_REPLICAS: Final = 32_767

#: Of what a broker decides by itself, if it is not told.
number_or_default: Final = at_least_1_or("the broker's default")


def remote_factor(value: object) -> str | None:
    """Refuse all but a replication factor and ``source``."""
    text = str(value).strip()
    if text == "source":
        return None
    if re.fullmatch(r"[+-]?[0-9]{1,9}", text) is None:
        return f"must be a number or source, found {value!r}"
    return f"must be at most {_MOST_REPLICAS}" if int(text) > _MOST_REPLICAS else number_or_default(int(text))


def one_of(*choices: str) -> Check:
    """Refuse all but *choices*."""

    def check(value: object) -> str | None:
        return None if value in choices else f"must be one of {', '.join(choices)}, found {value!r}"

    return check


def one_of_in_any_case(*choices: str) -> Check:
    """Refuse all but *choices*, ignoring case."""
    known = {choice.lower(): choice for choice in choices}
    return lambda value: one_of(*choices)(known.get(str(value).strip().lower(), value))


def not_empty(value: object) -> str | None:
    """Refuse empty values."""
    return None if value else "must not be empty"


def topic_text(value: object) -> str | None:
    """Refuse what cannot be part of a topic's name."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9._-]+", value):
        return None
    return f"{value!r} cannot be part of a topic's name: letters, digits, '.', '_' and '-' can"


def topic_text_or_empty(value: object) -> str | None:
    """Refuse what cannot be part of a topic's name, but not an empty text."""
    return topic_text(value) if value else None


def without_blanks(value: object) -> str | None:
    """Refuse expressions with a blank: names of topics and configs have none, so they match nothing."""
    for member in value if isinstance(value, tuple) else ():
        if re.search(r"\s", re.sub(r"\[[^\]]+\]", "", member)):
            return f"{member!r} matches nothing, because no name has a blank: separate names by commas"
    return None


def instance_id(value: object) -> str | None:
    """Refuse what Kafka does not take as a `group.instance.id`."""
    if isinstance(value, str) and is_topic_name(value):
        return None
    return f"{value!r} cannot be a group.instance.id: up to 249 letters, digits, '.', '_' and '-' can"


def timestamp(value: object) -> str | None:
    """Refuse all but timestamps; empty is none."""
    text = str(value).strip()
    try:
        _ = text and timestamp_ms(text)
    except ValueError as error:
        return str(error)
    return None


def _parse_boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise ValueError(f"expected true or false, found {text!r}")
    return word == "true"


def _parse_integer(text: str, bits: int) -> int:
    if re.fullmatch(r"[+-]?[0-9]+", text.strip()) is None:
        raise ValueError(f"expected a whole number, found {text!r}")
    value, bound = int(text), 2 ** (bits - 1)
    if not -bound <= value < bound:
        raise ValueError(f"{value} is outside of {-bound} to {bound - 1}")
    return value


def _parse_list(members: tuple[str, ...]) -> tuple[str, ...]:
    if "" in members:
        raise ValueError("the list has an empty member: check for an extra comma")
    return tuple(dict.fromkeys(members))


def _parse_patterns(text: str) -> tuple[str, ...]:
    members = _parse_list(split_patterns(text))
    try:
        NamePatterns.compile(members)
    except PatternError as error:
        raise ValueError(str(error)) from error
    return members
