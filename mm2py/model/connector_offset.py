"""
A source connector's offsets in Kafka Connect's sense: a partition, and its offset (KIP-875).

They are the records of ``mm2-offsets.<source>.internal``. MirrorMaker's connectors have one form each: the offset up to
which a source topic-partition is copied, and two that carry no information. The order of the members is Java's, because
the key's hash selects the partition in the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.foreign import read_json
from mm2py.model.positions import MIRROR_SOURCE, quoted
from mm2py.model.timestamp import timestamp_ms


SOURCE = MIRROR_SOURCE
CHECKPOINT = "MirrorCheckpointConnector"
HEARTBEAT = "MirrorHeartbeatConnector"

#: The members that name a partition, with whether it is a number, in the order of Java's maps.
MEMBERS: Mapping[str, Mapping[str, type]] = {
    SOURCE: {"cluster": str, "partition": int, "topic": str},
    CHECKPOINT: {"partition": int, "topic": str, "group": str},
    HEARTBEAT: {"sourceClusterAlias": str, "targetClusterAlias": str},
}


@attrs.frozen
class ConnectorOffset:
    """One partition of a connector, and the offset that it was processed up to; None removes it."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any] | None

    @property
    def source(self) -> TopicPartition:
        """The topic-partition of a source connector's offset."""
        return TopicPartition(self.partition["topic"], self.partition["partition"])

    @property
    def timestamp_ms(self) -> int | None:
        """The timestamp from which to copy, if that is given instead of an offset."""
        at = None if self.offset is None else self.offset.get("timestamp")
        return None if at is None else timestamp_ms(str(at))


def offset_key(connector: str, partition: Mapping[str, Any]) -> bytes:
    """Return the record key of a partition that has all its members, byte for byte as Java writes it."""
    members = ",".join(
        f'"{name}":{quoted(partition[name]) if kind is str else partition[name]}'
        for name, kind in MEMBERS[connector].items()
    )
    return f'["{connector}",{{{members}}}]'.encode()


def read_key(key: bytes | None) -> tuple[str, dict[str, Any]] | None:
    """Parse a record's key: the connector and its partition; None if it is not a connector's."""
    match _parsed(key):
        case [str(connector), dict(partition)]:
            return connector, partition
        case _:
            return None


def read_value(value: bytes | None) -> dict[str, Any] | None:
    """Parse a record's value, None if the offset was removed or cannot be from Connect."""
    found = _parsed(value)
    return found if isinstance(found, dict) else None


def is_of(flow: Flow, connector: str, partition: Mapping[str, Any]) -> bool:
    """Whether a partition is one of *connector*'s of *flow*: others, of whatever names, share the topic."""
    if connector == SOURCE:
        return bool(partition.get("cluster") == flow.source)
    if connector == HEARTBEAT:
        return (partition.get("sourceClusterAlias"), partition.get("targetClusterAlias")) == (flow.source, flow.target)
    return "cluster" not in partition  # a source connector of any name


def _parsed(text: bytes | None) -> object:
    try:
        return None if text is None else read_json(text)
    except ValueError:
        return None
