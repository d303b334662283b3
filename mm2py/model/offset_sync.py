"""
The byte form of offset syncs in ``mm2-offset-syncs.<cluster>.internal``, as Java MirrorMaker 2 reads and writes it.

An offset sync records where one record of a source partition went. The topic has its name at the source. Strings are
UTF-8 after a length of two bytes, numbers are big-endian, and the value has no version; what follows the last field is
ignored. A header of ours has the remote topic's id: the name alone does not tell of which topic an offset is.
"""

from __future__ import annotations

import struct
from typing import ClassVar, Final

import attrs

from mm2py.errors import Mm2Error
from mm2py.model.flow import TopicPartition
from mm2py.model.foreign import LONGEST_TOPIC
from mm2py.model.kafka_text import pack_text, unpack_text
from mm2py.model.positions import REMOTE_TOPIC_ID_HEADER, Headers, topic_id_in


_PARTITION: Final = struct.Struct(">i")
#: upstream offset, downstream offset
_VALUE: Final = struct.Struct(">qq")


@attrs.define(eq=False)
class MalformedOffsetSyncError(Mm2Error):
    """A record of an offset syncs topic is not an offset sync."""

    hint: ClassVar[str] = "another program writes to the offset syncs topic, or a newer MirrorMaker does"

    reason: str

    def __str__(self) -> str:
        return f"not an offset sync: {self.reason}"


@attrs.frozen
class OffsetSync:
    """
    The record of *source* at *upstream* is at *downstream* of its remote partition. It prints as Java's does.

    `remote_topic_id` is the remote topic's; None if it is not known, as of Java's syncs.
    """

    source: TopicPartition
    upstream: int
    downstream: int
    remote_topic_id: str | None = None

    def __str__(self) -> str:
        return (
            f"OffsetSync{{topicPartition={self.source}, upstreamOffset={self.upstream}, "
            f"downstreamOffset={self.downstream}}}"
        )


def encode_offset_sync(sync: OffsetSync) -> tuple[bytes, bytes]:
    """Return key and value of the record of *sync*. Raise `MalformedOffsetSyncError` for a name that is too long."""
    key = pack_text(sync.source.topic, MalformedOffsetSyncError) + _PARTITION.pack(sync.source.partition)
    return key, _VALUE.pack(sync.upstream, sync.downstream)


def offset_sync_headers(sync: OffsetSync) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of the record of *sync*, which Java does not read."""
    topic_id = sync.remote_topic_id
    return () if topic_id is None else ((REMOTE_TOPIC_ID_HEADER, topic_id.encode()),)


def decode_offset_sync(key: bytes | None, value: bytes | None, headers: Headers = ()) -> OffsetSync:
    """Parse a record. Raise `MalformedOffsetSyncError` if it is invalid."""
    if key is None or value is None:
        raise MalformedOffsetSyncError("it has no key" if key is None else "it has no value")
    if len(value) < _VALUE.size:
        raise MalformedOffsetSyncError("its value is cut short")
    upstream, downstream = _VALUE.unpack_from(value)
    topic, at = unpack_text(key, 0, MalformedOffsetSyncError)
    if len(key) < at + _PARTITION.size:
        raise MalformedOffsetSyncError("its key is cut short")
    (partition,) = _PARTITION.unpack_from(key, at)
    if min(partition, upstream, downstream) < 0:
        raise MalformedOffsetSyncError("a partition or an offset is negative")
    if len(topic) > LONGEST_TOPIC:
        raise MalformedOffsetSyncError("no topic has so long a name")
    remote_topic_id = topic_id_in(headers, REMOTE_TOPIC_ID_HEADER)
    return OffsetSync(TopicPartition(topic, partition), upstream, downstream, remote_topic_id)
