"""
The byte form of checkpoints in ``<source>.checkpoints.internal``, as Java MirrorMaker 2 reads and writes it.

A checkpoint records how far a consumer group has read a topic-partition: the offset it committed at the source, and its
translation at the target. The topic has its name at the target, where the record is read. Strings are UTF-8 after a
length of two bytes, numbers are big-endian; what follows the last field is ignored.
"""

from __future__ import annotations

import struct
from typing import ClassVar, Final

import attrs

from mm2py.errors import Mm2Error
from mm2py.model.flow import TopicPartition
from mm2py.model.foreign import LONGEST_TOPIC
from mm2py.model.kafka_text import pack_text, unpack_text, unpack_versioned
from mm2py.model.positions import REMOTE_TOPIC_ID_HEADER, Headers, topic_id_in


VERSION: Final = 0

_INT32: Final = struct.Struct(">i")
#: version, upstream offset, downstream offset
_VALUE: Final = struct.Struct(">hqq")


@attrs.define(eq=False)
class MalformedCheckpointError(Mm2Error):
    """A record of a checkpoints topic is not a checkpoint that this version understands."""

    hint: ClassVar[str] = "another program writes to the checkpoints topic, or a newer MirrorMaker does"

    reason: str

    def __str__(self) -> str:
        return f"not a checkpoint: {self.reason}"


@attrs.frozen
class Checkpoint:
    """
    How far a group has read, at the source (`upstream`) and at the target (`downstream`): the next offset to read.

    `remote` is the topic-partition at the target, and `topic_id` of which topic of that name it is, if known. It prints
    as Java's does.
    """

    group: str
    remote: TopicPartition
    upstream: int
    downstream: int
    metadata: str = ""
    topic_id: str | None = attrs.field(default=None, eq=False)

    def __str__(self) -> str:
        return (
            f"Checkpoint{{consumerGroupId={self.group}, topicPartition={self.remote}, "
            f"upstreamOffset={self.upstream}, downstreamOffset={self.downstream}, metadata={self.metadata}}}"
        )


def checkpoint_key(group: str, remote: TopicPartition) -> bytes:
    """Return the record key of a group's topic-partition."""
    names = (pack_text(name, MalformedCheckpointError) for name in (group, remote.topic))
    return b"".join(names) + _INT32.pack(remote.partition)


def encode_checkpoint(checkpoint: Checkpoint) -> tuple[bytes, bytes]:
    """Return key and value of the record of *checkpoint*; raise `MalformedCheckpointError` for a string that is too
    long.
    """
    metadata = pack_text(checkpoint.metadata, MalformedCheckpointError)
    value = _VALUE.pack(VERSION, checkpoint.upstream, checkpoint.downstream) + metadata
    return checkpoint_key(checkpoint.group, checkpoint.remote), value


def checkpoint_headers(checkpoint: Checkpoint) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of the record of *checkpoint*, which Java does not read."""
    topic_id = checkpoint.topic_id
    return () if topic_id is None else ((REMOTE_TOPIC_ID_HEADER, topic_id.encode()),)


def decode_checkpoint(key: bytes | None, value: bytes | None, headers: Headers = ()) -> Checkpoint:
    """Parse a record. Raise `MalformedCheckpointError` if it is invalid, or of an unknown version."""
    if key is None or value is None:
        raise MalformedCheckpointError("it has no key" if key is None else "it has no value")
    group, at = unpack_text(key, 0, MalformedCheckpointError)
    topic, at = unpack_text(key, at, MalformedCheckpointError)
    if len(key) < at + _INT32.size:
        raise MalformedCheckpointError("its key is cut short")
    (partition,) = _INT32.unpack_from(key, at)
    _, upstream, downstream = unpack_versioned(value, _VALUE, VERSION, MalformedCheckpointError)
    if min(partition, upstream, downstream) < 0:
        raise MalformedCheckpointError("a partition or an offset is negative")
    if len(topic) > LONGEST_TOPIC:
        raise MalformedCheckpointError("no topic has so long a name")
    metadata, _ = unpack_text(value, _VALUE.size, MalformedCheckpointError)
    topic_id = topic_id_in(headers, REMOTE_TOPIC_ID_HEADER)
    return Checkpoint(group, TopicPartition(topic, partition), upstream, downstream, metadata, topic_id)
