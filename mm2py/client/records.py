"""
The four kinds of records that mirrors keep on a cluster, and in which topics they lie.

Byte forms are `mm2py.model`'s. A record that cannot be read is a value here, too, because who looks into such a topic
wants to see it: `Malformed`, with the reason.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import attrs

from mm2py.errors import Mm2Error
from mm2py.model.checkpoint import Checkpoint, decode_checkpoint
from mm2py.model.foreign import UnreadableRecord
from mm2py.model.heartbeat import Heartbeat, decode_heartbeat
from mm2py.model.offset_sync import OffsetSync, decode_offset_sync
from mm2py.model.positions import Position
from mm2py.model.positions_topic import decode_any
from mm2py.model.run_chunk import KeptChunk
from mm2py.policy.replication import ReplicationPolicy
from mm2py.wire.topic_log import LogRecord


class RecordKind(enum.Enum):
    """What a topic holds, in the words of the console command."""

    HEARTBEAT = "heartbeats"
    CHECKPOINT = "checkpoints"
    OFFSET_SYNC = "offset-syncs"
    POSITION = "positions"


@attrs.frozen
class SourcePosition:
    """How far a topic-partition of cluster *source* has been mirrored."""

    source: str
    position: Position

    def __str__(self) -> str:
        """In the style of Java's formatters; it has none for this kind. The offset is the last one mirrored."""
        at = self.position
        return (
            f"Position{{sourceClusterAlias={self.source}, topicPartition={at.source}, "
            f"upstreamOffset={at.next_upstream - 1}, downstreamOffset={at.downstream}}}"
        )


@attrs.frozen
class KeptRuns:
    """A part of mm2py's index of where the records of cluster *source* went; it lies beside the positions."""

    source: str
    kept: KeptChunk

    def __str__(self) -> str:
        at = self.kept
        place = f"sourceClusterAlias={self.source}, topicPartition={at.source}, chunk={at.number}"
        if at.chunk is None:
            return f"Runs{{{place}}}"
        upstream, downstream = (at.chunk.covered_from, at.chunk.covered_to), (at.chunk.end_from, at.chunk.end)
        return (
            f"Runs{{{place}, upstreamOffsets={upstream[0]}..{upstream[1]}, "
            f"downstreamOffsets={downstream[0]}..{downstream[1]}, runs={len(at.chunk.starts)}}}"
        )


@attrs.frozen
class Other:
    """A record that belongs to another part of a mirror: Java's other connectors keep theirs beside the positions."""

    key: str
    value: str

    def __str__(self) -> str:
        return f"Other{{key={self.key}, value={self.value}}}"


@attrs.frozen
class Removed:
    """A record with a null value: its key was removed."""

    key: str

    def __str__(self) -> str:
        return f"Removed{{key={self.key}}}"


@attrs.frozen
class Malformed:
    """A record that does not match the topic's kind."""

    reason: str

    def __str__(self) -> str:
        return f"Malformed{{reason={self.reason}}}"


Content: TypeAlias = Heartbeat | Checkpoint | OffsetSync | SourcePosition | KeptRuns | Other | Removed | Malformed


@attrs.frozen
class MirrorRecord:
    """One record of a mirror's topic: its offset, timestamp and content. `key` distinguishes records."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    content: Content


def decoded(kind: RecordKind, topic: str, record: LogRecord) -> MirrorRecord:
    """Read a *record* that was fetched from *topic*."""
    if record.value is None and record.key is not None:
        content: Content = Removed(_printed(record.key))
    else:
        try:
            content = _DECODERS[kind](record)
        except Mm2Error as error:
            content = Malformed(str(error))
    return MirrorRecord(topic, record.partition or 0, record.offset or 0, record.timestamp_ms or 0, record.key, content)


def _position(record: LogRecord) -> Content:
    match decode_any(record):
        case (str(cluster), KeptChunk() as kept):
            return KeptRuns(cluster, kept)
        case (str(cluster), Position() as position):
            return SourcePosition(cluster, position)
        case found if record.key is not None and record.key.startswith(b"["):
            if isinstance(found, UnreadableRecord):
                return Malformed(found.problem)
            return Other(_printed(record.key), _printed(record.value))
        case _:
            return Malformed(f"not an offset of a Connect connector: key {_printed(record.key)}")


def _printed(raw: bytes | None) -> str:
    return "null" if raw is None else raw.decode(errors="backslashreplace")


_DECODERS: Mapping[RecordKind, Callable[[LogRecord], Content]] = {
    RecordKind.HEARTBEAT: lambda record: decode_heartbeat(record.key, record.value),
    RecordKind.CHECKPOINT: lambda record: decode_checkpoint(record.key, record.value, record.headers),
    RecordKind.OFFSET_SYNC: lambda record: decode_offset_sync(record.key, record.value, record.headers),
    RecordKind.POSITION: _position,
}

# Topics.

#: Java builds this name with a dot whatever the policy's separator is, and so do we.
_POSITIONS = re.compile(r"mm2-offsets\.(.+)\.internal")


def topic_of(kind: RecordKind, alias: str, policy: ReplicationPolicy) -> str:
    """
    Name the topic that holds records of *kind* for cluster *alias*.

    *alias* is the other cluster: for heartbeats, checkpoints and positions the source; for offset syncs the source at
    the target (``offset-syncs.topic.location=target``), or the target at the source. Without an alias heartbeats are
    those that are born at the cluster that is asked.
    """
    match kind:
        case RecordKind.HEARTBEAT:
            born = policy.heartbeats_topic()
            return policy.format_remote_topic(alias, born) if alias else born
        case RecordKind.CHECKPOINT:
            return policy.checkpoints_topic(alias)
        case RecordKind.OFFSET_SYNC:
            return policy.offset_syncs_topic(alias)
        case RecordKind.POSITION:
            return f"mm2-offsets.{alias}.internal"


def kind_of(topic: str, policy: ReplicationPolicy) -> RecordKind | None:
    """Return what *topic* holds, by its name; None for a topic that is not a mirror's own."""
    if policy.is_checkpoints_topic(topic):
        return RecordKind.CHECKPOINT
    if _POSITIONS.fullmatch(topic):
        return RecordKind.POSITION
    before, after = policy.offset_syncs_topic("\n").split("\n")
    if topic.startswith(before) and topic.endswith(after) and len(topic) > len(before) + len(after):
        return RecordKind.OFFSET_SYNC
    return RecordKind.HEARTBEAT if policy.is_heartbeats_topic(topic) else None


def mirror_topics(topics: Iterable[str], policy: ReplicationPolicy) -> dict[str, RecordKind]:
    """Pick a mirror's own topics out of *topics*, with their kinds, sorted by name."""
    kinds = {topic: kind_of(topic, policy) for topic in sorted(topics)}
    return {topic: kind for topic, kind in kinds.items() if kind is not None}


def latest(records: Iterable[MirrorRecord]) -> list[MirrorRecord]:
    """Keep the last record of each key of a topic, in the order of the log; malformed ones without a key all stay."""
    kept: dict[object, MirrorRecord] = {}
    for record in records:
        mark: object = (record.topic, record.partition, record.key)
        if record.key is None:
            mark = (record.topic, record.partition, None, record.offset)
        kept.pop(mark, None)
        kept[mark] = record
    return [record for record in kept.values() if not isinstance(record.content, Removed)]
