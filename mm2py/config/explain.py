"""The effective configuration: every key's value and where it comes from, secrets masked."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence

import attrs

from mm2py.config.keys.row import Key, LineLevel, Place
from mm2py.config.keys.table import KEYS
from mm2py.config.layers import Layers, Side, Value, spellings
from mm2py.config.lint import Line
from mm2py.model.flow import Flow


MASK = "***"
_OF_CLIENTS = ("source.", "target.", "consumer.", "producer.", "admin.")
_SECRET_NAME = re.compile(r"password|secret|token|credential|jaas|(?:\A|\.)key\Z|private", re.IGNORECASE)


@attrs.frozen
class Effective:
    """The effective value of one key for the whole process (`owner` is empty) or for a flow (``A->B``)."""

    owner: str
    key: str
    value: str
    origin: str
    acts: bool
    #: Whether the value is not the default.
    is_changed: bool


def effective(layers: Layers, flows: Sequence[Flow], lines: Sequence[Line]) -> Iterator[Effective]:
    """Return the value of every key that has one, first for the process, then flow by flow."""
    named = [key for key in KEYS if key.stem is None]
    for key in named:
        if key.place is Place.TOP:
            yield from _value_of(layers, key, "", (key.name,))
    yield from _of_rows_for_many(lines, "")
    for flow in flows:
        for key in named:
            if key.place is Place.TOP:
                continue
            if key.place is not Place.CLUSTER:
                yield from _value_of(layers, key, str(flow), spellings(key, flow))
                continue
            for side in Side:
                ways = spellings(key, flow, side)
                yield from _value_of(layers, attrs.evolve(key, name=f"{side.value}.{key.name}"), str(flow), ways)
        yield from _of_rows_for_many(lines, str(flow))


def digests(rows: Iterable[Effective], flow: Flow) -> dict[str, str]:
    """Return a digest of each setting of *flow* that is not the default, by key: nodes compare them. What clients use
    is left out; it may differ from machine to machine.
    """
    return {
        row.key: hashlib.sha256(row.value.encode()).hexdigest()[:8]
        for row in rows
        if row.owner == str(flow) and row.is_changed and row.acts and not row.key.startswith(_OF_CLIENTS)
    }


def _value_of(layers: Layers, key: Key, owner: str, ways: Iterable[str]) -> Iterator[Effective]:
    line = layers.first(ways) or (None if key.default is None else Value(key.default))
    if line is not None:
        yield Effective(owner, key.full_name, shown(key, key.name, line), line.origin, key.acts, _differs(key, line))


def _differs(key: Key, line: Value) -> bool:
    """Whether a line, if it is one, says anything but the default."""
    if not line.where or key.default is None:
        return bool(line.where)
    try:
        return key.parse(line.text) != key.parse(key.default)
    except ValueError:
        return True


def _of_rows_for_many(lines: Sequence[Line], owner: str) -> Iterator[Effective]:
    """Return the lines of wildcard rows: those of the process, or those of a flow and its clusters."""
    concerned = {owner, *owner.split("->", 1)} if owner else {""}
    for line in lines:
        value = line.value
        if line.row is None or line.row.stem is None or line.owner not in concerned:
            continue
        name = line.name if line.level is not LineLevel.CLUSTER else value.key
        yield Effective(owner, name, shown(line.row, value.key, value), value.origin, line.row.acts, is_changed=True)


def shown(key: Key, name: str, value: Value) -> str:
    """Return the text of *value*, a mask if it is or might be a secret, or the reference that it came from."""
    if value.stands_in:
        return value.stands_in
    return MASK if key.is_secret or (key.stem is not None and might_be_secret(name)) else value.text


def might_be_secret(name: str) -> bool:
    """Whether a setting that the key table does not know by name is called like a secret."""
    return _SECRET_NAME.search(name) is not None
