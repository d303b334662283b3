"""
The byte form of checkpoints in ``<source>.checkpoints.internal``, as Java MirrorMaker 2 reads and writes it.

A checkpoint says how far a consumer group has read a topic-partition: the offset it committed at the source, and the
one that means the same at the target. The topic is named as the target calls it, because that is where the record is
read. Strings are UTF-8 behind a length of two bytes, numbers are big-endian; what follows the last field is ignored.
"""

from __future__ import annotations

import struct
from typing import ClassVar, Final

import attrs

from mm2py.errors import Mm2Error
from mm2py.model.flow import TopicPartition


VERSION: Final = 0

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
#: version, upstream offset, downstream offset
_VALUE: Final = struct.Struct(">hqq")
_LONGEST = 2**15 - 1


@attrs.define(eq=False)
class MalformedCheckpointError(Mm2Error):
    """A record of a checkpoints topic is no checkpoint that this version understands."""

    hint: ClassVar[str] = "something else writes to the checkpoints topic, or a newer MirrorMaker does"

    reason: str

    def __str__(self) -> str:
        return f"not a checkpoint: {self.reason}"


@attrs.frozen
class Checkpoint:
    """
    How far a group has read, at the source (`upstream`) and at the target (`downstream`): the next offset to read.

    `remote` is the topic-partition at the target. It prints as Java's does.
    """

    group: str
    remote: TopicPartition
    upstream: int
    downstream: int
    metadata: str = ""

    def __str__(self) -> str:
        return (
            f"Checkpoint{{consumerGroupId={self.group}, topicPartition={self.remote}, "
            f"upstreamOffset={self.upstream}, downstreamOffset={self.downstream}, metadata={self.metadata}}}"
        )


def checkpoint_key(group: str, remote: TopicPartition) -> bytes:
    """Give the record key of a group's topic-partition."""
    return _text(group) + _text(remote.topic) + _INT32.pack(remote.partition)


def encode_checkpoint(checkpoint: Checkpoint) -> tuple[bytes, bytes]:
    """Give key and value of the record that holds *checkpoint*; `MalformedCheckpointError` for too long a text."""
    value = _VALUE.pack(VERSION, checkpoint.upstream, checkpoint.downstream) + _text(checkpoint.metadata)
    return checkpoint_key(checkpoint.group, checkpoint.remote), value


def decode_checkpoint(key: bytes | None, value: bytes | None) -> Checkpoint:
    """Read a record. Raise `MalformedCheckpointError` where it is none, or of a version that is not known."""
    if key is None or value is None:
        raise MalformedCheckpointError("it has no key" if key is None else "it has no value")
    group, at = _read_text(key, 0)
    topic, at = _read_text(key, at)
    if len(key) < at + _INT32.size:
        raise MalformedCheckpointError("its key is cut short")
    (partition,) = _INT32.unpack_from(key, at)
    if len(value) < _INT16.size:
        raise MalformedCheckpointError("its value is cut short")
    (version,) = _INT16.unpack_from(value)
    if version != VERSION:
        raise MalformedCheckpointError(f"version {version} is not supported, only {VERSION} is")
    if len(value) < _VALUE.size:
        raise MalformedCheckpointError("its value is cut short")
    _, upstream, downstream = _VALUE.unpack_from(value)
    metadata, _ = _read_text(value, _VALUE.size)
    return Checkpoint(group, TopicPartition(topic, partition), upstream, downstream, metadata)


def _text(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > _LONGEST:
        raise MalformedCheckpointError(f"a text of {len(encoded)} bytes does not fit, {_LONGEST} do")
    return _INT16.pack(len(encoded)) + encoded


def _read_text(raw: bytes, at: int) -> tuple[str, int]:
    if len(raw) < at + _INT16.size:
        raise MalformedCheckpointError("a text is cut short")
    (length,) = _INT16.unpack_from(raw, at)
    begin = at + _INT16.size
    text = raw[begin : begin + max(length, 0)]
    if length < 0 or len(text) < length:
        raise MalformedCheckpointError("a text is cut short")
    try:
        return text.decode(), begin + length
    except UnicodeDecodeError as error:
        raise MalformedCheckpointError("a text is not UTF-8") from error
