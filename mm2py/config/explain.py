"""The effective configuration: every key's value and where it comes from, secrets masked."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from mm2py.config.keys.row import Key, Kind, LineLevel, Place
from mm2py.config.keys.security import KAFKAS_OWN
from mm2py.config.keys.table import KEYS, find_key
from mm2py.config.layers import Side, Value
from mm2py.config.lint import Line
from mm2py.config.resolve import FlowReader, ProcessReader
from mm2py.model.flow import Flow
from mm2py.model.herder.node_settings import NodeSettings


MASK = "***"
_OF_CLIENTS = ("source.", "target.", "consumer.", "producer.", "admin.")
#: What clients use may differ from machine to machine, but for what decides which records are copied.
_OF_RECORDS = ("consumer.auto.offset.reset", "consumer.isolation.level")
#: Nodes that share a flow must have the same, and cannot take them from each other.
_FIXED = (
    "transform",
    "predicates",
    "consumer.isolation.level",
    "exactly.once.source.support",
    "offset.storage.topic",
    "offsets.storage.topic",
    "config.storage.topic",
)
#: What is different on each node.
_OF_ONE_NODE = ("group.instance.id",)
_SECRET_NAME = re.compile(r"password|secret|token|credential|jaas|(?:\A|\.)key\Z|private", re.IGNORECASE)
#: What a connector's setting begins with that is a client's.
_SIDES = ("source.", "target.", "destination.")
_CLIENTS = ("cluster.", "consumer.", "producer.", "admin.", "override.")


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


def effective(process: ProcessReader, flows: Sequence[FlowReader], lines: Sequence[Line]) -> Iterator[Effective]:
    """Return the value of every key that has one, first for the process, then flow by flow."""
    named = [key for key in KEYS if key.stem is None]
    for key in named:
        if key.place is Place.TOP:
            yield from _value_of(process, key, "")
    yield from _of_rows_for_many(lines, "")
    for of in flows:
        owner = str(of.flow)
        for key in named:
            if key.place is Place.CLUSTER:
                for side in Side:
                    yield from _value_of(of, key, owner, side)
            elif key.place is not Place.TOP:
                yield from _value_of(of, key, owner)
        yield from _of_rows_for_many(lines, owner)


def node_settings(rows: Iterable[Effective], flow: Flow) -> NodeSettings:
    """Return the settings of *flow* as its nodes compare them."""
    values, fixed, own = dict[str, str](), dict[str, str](), dict[str, str]()
    for row in rows:
        is_of_node = row.key in _OF_ONE_NODE or (row.key.startswith(_OF_CLIENTS) and row.key not in _OF_RECORDS)
        if row.owner != str(flow) or not row.is_changed or not row.acts or is_of_node:
            continue
        key = find_key(LineLevel.FLOW, row.key)
        if is_taken_from_owner(row.key, row.value):
            values[row.key] = row.value
        else:
            is_fixed = row.key.startswith(_FIXED) or (key is not None and not key.is_secret)
            (fixed if is_fixed else own)[row.key] = hashlib.sha256(row.value.encode()).hexdigest()[:8]
    return NodeSettings(values, fixed, own)


def is_taken_from_owner(name: str, text: str) -> bool:
    """Whether a node takes this setting from the owner of its flow: neither code to be run nor what is read from the
    machine, and no secret.
    """
    key = find_key(LineLevel.FLOW, name)
    is_plain = key is not None and key.stem is None and key.kind is not Kind.CLASS and not key.is_secret
    return is_plain and not name.startswith(_FIXED) and "${" not in text


def _value_of(of: ProcessReader, key: Key, owner: str, side: Side | None = None) -> Iterator[Effective]:
    line = of.layers.first(of.ways(key, side or Side.SOURCE)) or (None if key.default is None else Value(key.default))
    if line is not None:
        name = f"{side.value}.{key.full_name}" if side else key.full_name
        yield Effective(owner, name, shown(key, key.name, line), line.origin, key.acts, _differs(key, line))


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
        name = line.name if line.level is not LineLevel.CLUSTER else value.counts_as
        yield Effective(
            owner, name, shown(line.row, value.counts_as, value), value.origin, line.row.acts, is_changed=True
        )


def shown(key: Key, name: str, value: Value) -> str:
    """Return the text of *value*, a mask if it is or might be a secret, or the reference that it came from."""
    if value.stands_in:
        return value.stands_in
    if key.stem is not None and name.endswith(KAFKAS_OWN):
        return value.text
    return MASK if key.is_secret or (key.stem is not None and might_be_secret(name)) else value.text


def might_be_secret(name: str) -> bool:
    """Whether a setting that the key table does not know by name is called like a secret."""
    return _SECRET_NAME.search(name) is not None


# Secrets of connectors.


def is_secret(key: str) -> bool:
    """Whether a connector's setting is a secret, or might be one."""
    bare = key
    for stems in (_SIDES, _CLIENTS, _CLIENTS):
        bare = next((bare.removeprefix(stem) for stem in stems if bare.startswith(stem)), bare)
    if bare.endswith(KAFKAS_OWN):
        return False
    rows = [row for level in LineLevel if (row := find_key(level, bare) or find_key(level, key)) is not None]
    if any(row.is_secret for row in rows):
        return True
    return might_be_secret(key) and all(row.stem is not None for row in rows)


def masked(config: Mapping[str, str]) -> dict[str, str]:
    """Return a connector's config without secrets; references to value providers are shown."""
    return {key: MASK if value and is_secret(key) and "${" not in value else value for key, value in config.items()}


def unmasked(config: Mapping[str, str], stored: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return *config* with the *stored* secrets in place of their masks, and the keys of masks that stand for none."""
    shown = masked(stored)
    is_mask = {key: value.strip() == MASK and is_secret(key) for key, value in config.items()}
    lost = tuple(key for key, is_one in is_mask.items() if is_one and shown.get(key) != MASK)
    return {key: stored.get(key, value) if is_mask[key] else value for key, value in config.items()}, lost
