"""
What a flow has put on its remote topics besides records, as records of its own compacted topic.

Only this record can distinguish a value that the mirror set from one that an operator set by hand, also after a
restart. Java MirrorMaker 2 has no such topic, so the format is plain JSON: the key names a config or an ACL of a remote
topic, the value is what was set, and a record with a null value removes it.
"""

from __future__ import annotations

import attrs

from mm2py.model.acl import Operation, PatternType, Permission, TopicAcl
from mm2py.model.foreign import UnreadableRecord, read_json, words, write_json


@attrs.frozen
class SyncedConfig:
    """A config of a remote topic that the mirror set. There are two `values` until it is confirmed which of them is in
    force: the old one, and the one sent.
    """

    topic: str
    key: str
    values: tuple[str, ...]


@attrs.frozen
class ForgottenConfig:
    """A configuration of a remote topic that is no longer the mirror's."""

    topic: str
    key: str


@attrs.frozen
class SyncedAcl:
    """An access control entry of the target that the mirror created."""

    acl: TopicAcl


@attrs.frozen
class ForgottenAcl:
    """An access control entry that is no longer the mirror's."""

    acl: TopicAcl


Synced = SyncedConfig | ForgottenConfig | SyncedAcl | ForgottenAcl


def synced_topic(source_alias: str) -> str:
    """Name the topic on the target cluster; as MM2's other internal topics it is never mirrored."""
    return f"mm2-synced.{source_alias}.internal"


def encode_synced(entry: Synced) -> tuple[bytes, bytes | None]:
    """Return key and value of the record for *entry*."""
    match entry:
        case SyncedConfig(topic, key, values):
            return write_json(["config", topic, key]), write_json({"values": list(values)})
        case ForgottenConfig(topic, key):
            return write_json(["config", topic, key]), None
        case SyncedAcl(acl):
            return _acl_key(acl), write_json({})
        case ForgottenAcl(acl):
            return _acl_key(acl), None


def decode_synced(key: bytes | None, value: bytes | None) -> Synced | UnreadableRecord | None:
    """Parse a record; None for an unknown one, such as a newer version's."""
    try:
        kind, *names = _names(read_json(key or b""))
        content = None if value is None else read_json(value)
        if kind == "config":
            topic, name = names
            if content is None:
                return ForgottenConfig(topic, name)
            return SyncedConfig(topic, name, _values(content))
        if kind == "acl":
            acl = _acl(names)
            return ForgottenAcl(acl) if content is None else SyncedAcl(acl)
    except KeyError as error:
        return UnreadableRecord(f"{error.args[0]} is nothing that an access control entry has")
    except ValueError as error:
        return UnreadableRecord(str(error))
    return None


def _names(key: object) -> list[str]:
    match key:
        case [_, *_]:
            return list(map(words, key))
        case _:
            raise ValueError("its key is no list of names")


def _values(content: object) -> tuple[str, ...]:
    match content:
        case {"values": list(values)}:
            return tuple(map(words, values))
        case _:
            raise ValueError("it has no list of values")


def _acl_key(acl: TopicAcl) -> bytes:
    names = (acl.pattern.name, acl.permission.name, acl.operation.name)
    return write_json(["acl", acl.topic, acl.principal, acl.host, *names])


def _acl(names: list[str]) -> TopicAcl:
    topic, principal, host, pattern, permission, operation = names
    return TopicAcl(topic, PatternType[pattern], principal, host, Operation[operation], Permission[permission])
