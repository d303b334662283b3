"""
The byte form of heartbeats in ``heartbeats``, as Java MirrorMaker 2 reads and writes it.

A heartbeat shows that the mirror from one cluster to another was alive at that moment. It is written on the target, and
mirrored from there like any record; so its topics' names show, cluster by cluster, which mirrors exist. Strings are
UTF-8 after a length of two bytes, numbers are big-endian; what follows the last field is ignored.
"""

from __future__ import annotations

import struct
from typing import ClassVar, Final

import attrs

from mm2py.errors import Mm2Error
from mm2py.model.kafka_text import pack_text, unpack_text, unpack_versioned


VERSION: Final = 0

#: version, timestamp
_VALUE: Final = struct.Struct(">hq")


@attrs.define(eq=False)
class MalformedHeartbeatError(Mm2Error):
    """A record of a heartbeats topic is not a heartbeat that this version understands."""

    hint: ClassVar[str] = "another program writes to the heartbeats topic, or a newer MirrorMaker does"

    reason: str

    def __str__(self) -> str:
        return f"not a heartbeat: {self.reason}"


@attrs.frozen
class Heartbeat:
    """The mirror from *source_alias* to *target_alias* was alive at *timestamp_ms*. It prints as Java's does."""

    source_alias: str
    target_alias: str
    timestamp_ms: int

    def __str__(self) -> str:
        return (
            f"Heartbeat{{sourceClusterAlias={self.source_alias}, targetClusterAlias={self.target_alias}, "
            f"timestamp={self.timestamp_ms}}}"
        )


def encode_heartbeat(heartbeat: Heartbeat) -> tuple[bytes, bytes]:
    """Return key and value of the record of *heartbeat*. Raise `MalformedHeartbeatError` for a long alias."""
    aliases = (heartbeat.source_alias, heartbeat.target_alias)
    key = b"".join(pack_text(alias, MalformedHeartbeatError) for alias in aliases)
    return key, _VALUE.pack(VERSION, heartbeat.timestamp_ms)


def decode_heartbeat(key: bytes | None, value: bytes | None) -> Heartbeat:
    """Parse a record. Raise `MalformedHeartbeatError` if it is invalid, or of an unknown version."""
    if key is None or value is None:
        raise MalformedHeartbeatError("it has no key" if key is None else "it has no value")
    source_alias, at = unpack_text(key, 0, MalformedHeartbeatError)
    target_alias, _ = unpack_text(key, at, MalformedHeartbeatError)
    _, timestamp_ms = unpack_versioned(value, _VALUE, VERSION, MalformedHeartbeatError)
    return Heartbeat(source_alias, target_alias, timestamp_ms)
