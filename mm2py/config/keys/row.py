"""
What a row of the key table says: a key's name, kind, default, where it may be written, and what it does.

Rows are facts; `mm2py.config.layers` looks keys up by them, `mm2py.config.lint` checks a file against them, and
`mm2py.config.render` makes the documentation from them.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable

import attrs

from mm2py.model.patterns import NamePatterns, PatternError, split_list, split_patterns


#: Judges a parsed value: why it will not do, or None.
Check = Callable[[object], str | None]


class Level(enum.Enum):
    """How specifically a line of the file speaks."""

    TOP = "at the top level"
    CLUSTER = "for a cluster"
    FLOW = "for a flow"


class Place(enum.Enum):
    """Where a key may be written, and so which line wins. The rules are MirrorMaker's."""

    #: At the top level only: it is about this process.
    TOP = "top level"
    #: A flow's own line beats the top level.
    FLOW = "top level, flow"
    #: Only a flow's own line counts.
    FLOW_ONLY = "flow"
    #: How to reach a cluster: a cluster's own line beats the top level.
    CLUSTER = "top level, cluster"
    #: Runtime of all flows into a cluster: only that cluster's line counts.
    WORKER = "target cluster"
    #: The same, but the top level beats the cluster's line.
    WORKER_TOP = "top level, target cluster"
    #: The client that reads the source cluster; written behind ``consumer.``.
    CONSUMER = "source cluster, flow"
    #: The client that writes the target cluster; written behind ``producer.``.
    PRODUCER = "target cluster, flow"
    #: The client that looks at a cluster and changes it; written behind ``admin.``.
    ADMIN = "cluster, flow"


_CLIENT_FORMS = ("consumer.", "producer.", "admin.")
_SIDES = ("source.", "target.")
#: What may stand before a key's name at each level.
FORMS: dict[Place, dict[Level, tuple[str, ...]]] = {
    Place.TOP: {Level.TOP: ("",)},
    Place.FLOW: {Level.TOP: ("",), Level.FLOW: ("",)},
    Place.FLOW_ONLY: {Level.FLOW: ("",)},
    Place.CLUSTER: {
        Level.TOP: ("",),
        Level.CLUSTER: ("", *_CLIENT_FORMS),
        Level.FLOW: (
            *(side + form for side in _SIDES for form in ("cluster.", *_CLIENT_FORMS)),
            *_CLIENT_FORMS,
            "producer.override.",
        ),
    },
    Place.WORKER: {Level.CLUSTER: ("",)},
    Place.WORKER_TOP: {Level.TOP: ("",), Level.CLUSTER: ("",)},
    Place.CONSUMER: {Level.CLUSTER: ("consumer.",), Level.FLOW: ("source.consumer.", "consumer.")},
    Place.PRODUCER: {
        Level.CLUSTER: ("producer.",),
        Level.FLOW: ("producer.override.", "target.producer.", "producer."),
    },
    Place.ADMIN: {Level.CLUSTER: ("admin.",), Level.FLOW: ("source.admin.", "target.admin.", "admin.")},
}
#: What stands before the names of a client's settings, behind an alias or a flow.
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
        """Read *text*. Raise ValueError that says what is expected."""
        if self is Kind.BOOLEAN:
            return _parse_boolean(text)
        if self in _BITS:
            return _parse_integer(text, _BITS[self])
        if self is Kind.LIST:
            return _parse_list(split_list(text))
        if self is Kind.PATTERNS:
            return _parse_patterns(text)
        return text.strip() if self is Kind.CLASS else text


_BITS = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}


@attrs.frozen
class Key:
    """One row of the table. A name that ends in ``*`` stands for all keys that begin so."""

    name: str
    kind: Kind
    default: str | None
    place: Place
    doc: str
    #: Does this version act on it? Where it does not, a file that sets it is told.
    acts: bool = True
    check: Check | None = attrs.field(default=None, repr=False)
    is_secret: bool = False
    #: Names it had before; they count where the new one is absent.
    aliases: tuple[str, ...] = ()
    #: What to say to whom sets it, where "without effect" is not the whole story.
    remark: str = ""
    #: Values equal to mm2py's fixed behaviour; setting one causes no note.
    fits: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name as it is written behind an alias or a flow, ``consumer.fetch.min.bytes``."""
        return _ROLES.get(self.place, "") + self.name

    @property
    def stem(self) -> str | None:
        """What all keys of a row for many begin with, or None where the row is for one key."""
        return self.name[:-1] if self.name.endswith("*") else None

    def parse(self, text: str) -> object:
        """Read and judge a value. Raise ValueError that says what is expected."""
        value = self.kind.parse(text)
        if self.check is not None and (reason := self.check(value)):
            raise ValueError(reason)
        return value

    def spelled(self, level: Level, owner: str) -> tuple[str, ...]:
        """Return the ways to write this key at *level*, for the cluster or flow *owner*."""
        before = f"{owner}." if owner else ""
        return tuple(before + form + self.name for form in FORMS[self.place].get(level, ()))


@attrs.frozen
class Section:
    """Rows that belong together, with what the documentation says above them."""

    title: str
    text: str
    keys: tuple[Key, ...]


def at_least(least: int) -> Check:
    """Refuse numbers below *least*."""

    def check(value: object) -> str | None:
        return f"must be at least {least}" if isinstance(value, int) and value < least else None

    return check


def replication_factor(value: object) -> str | None:
    """Refuse what no topic can be created with; -1 leaves it to the broker."""
    return "must be 1 or more, or -1 for the broker's default" if value == 0 or _is_below(value, -1) else None


def remote_factor(value: object) -> str | None:
    """Refuse all but a replication factor and ``source``."""
    text = str(value).strip()
    if text == "source":
        return None
    if re.fullmatch(r"[+-]?[0-9]{1,9}", text) is None:
        return f"must be a number or source, found {value!r}"
    return replication_factor(int(text))


def one_of(*choices: str) -> Check:
    """Refuse all but *choices*."""

    def check(value: object) -> str | None:
        return None if value in choices else f"must be one of {', '.join(choices)}, found {value!r}"

    return check


def one_of_in_any_case(*choices: str) -> Check:
    """Refuse all but *choices*, spelt in whatever case."""
    return lambda value: one_of(*choices)(str(value).strip().lower())


def not_empty(value: object) -> str | None:
    """Refuse nothing at all."""
    return None if value else "must not be empty"


def topic_text(value: object) -> str | None:
    """Refuse what cannot be part of a topic's name."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9._-]+", value):
        return None
    return f"{value!r} cannot be part of a topic's name: letters, digits, '.', '_' and '-' can"


def _is_below(value: object, least: int) -> bool:
    return isinstance(value, int) and value < least


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
        raise ValueError("the list has an empty member: look for a comma too many")
    if repeated := sorted({member for member in members if members.count(member) > 1}):
        raise ValueError(f"the list names {', '.join(repeated)} more than once")
    return members


def _parse_patterns(text: str) -> tuple[str, ...]:
    members = _parse_list(split_patterns(text))
    try:
        NamePatterns.compile(members)
    except PatternError as error:
        raise ValueError(str(error)) from error
    return members
