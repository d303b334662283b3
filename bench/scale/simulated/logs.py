"""What a simulated cluster keeps: topics, the batches of their partitions, and who waits for more of them."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable

import attrs


NODE = 0
LEADER_EPOCH = 0

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_AT = 12
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23
_INT16 = struct.Struct(">h")
#: error, partition, leader, leader epoch; then one replica, one in sync, none offline, no tagged fields
_PARTITION_ROW = struct.Struct(">hiiiBiBiBB")
_ONE, _NONE = 2, 1
_NO_OPERATIONS = struct.pack(">i", -(2**31))


@attrs.define(eq=False)
class Log:
    """One partition: its batches, and the fetch sessions that read it."""

    topic: SimulatedTopic
    number: int
    end: int = 0
    #: Last offset and bytes of each batch.
    batches: list[tuple[int, bytes]] = attrs.field(factory=list)
    readers: list[Reader] = attrs.field(factory=list)

    def append(self, batch: bytes | memoryview) -> int:
        """Write a batch as a leader does, without a look at its sequence; return its base offset."""
        stored = bytearray(batch)
        base = self.end
        _BASE_OFFSET.pack_into(stored, 0, base)
        _LEADER_EPOCH.pack_into(stored, _LEADER_EPOCH_AT, LEADER_EPOCH)
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(stored, _LAST_OFFSET_DELTA_AT)
        self.batches.append((base + delta, bytes(stored)))
        self.end = base + delta + 1
        for reader in self.readers:
            reader.has_news(self)
        return base

    def read(self, offset: int, most: int) -> bytes:
        """Return the batches from *offset* on, at least one if there is any."""
        if offset >= self.end:
            return b""
        found: list[bytes] = []
        size = 0
        # Readers are near the end.
        at = len(self.batches)
        while at and self.batches[at - 1][0] >= offset:
            at -= 1
        for _, batch in self.batches[at:]:
            if found and size + len(batch) > most:
                break
            found.append(batch)
            size += len(batch)
        return b"".join(found)


class Reader:
    """Somebody who is to hear of a log that has grown."""

    def has_news(self, log: Log) -> None:
        """Note that *log* has grown."""
        raise NotImplementedError


@attrs.define(eq=False)
class SimulatedTopic:
    """A topic."""

    name: str
    raw_id: bytes
    logs: list[Log] = attrs.field(factory=list)
    configs: dict[str, str] = attrs.field(factory=dict)
    _row: bytes = b""

    @property
    def topic_id(self) -> str:
        return base64.urlsafe_b64encode(self.raw_id).decode().rstrip("=")

    def grow(self, partitions: int) -> None:
        """Have so many partitions."""
        self.logs += [Log(self, number) for number in range(len(self.logs), partitions)]
        self._row = b""

    def metadata_row(self) -> bytes:
        """Return the topic's row of a metadata answer, version 11; the same bytes until it grows."""
        if not self._row:
            rows = b"".join(
                _PARTITION_ROW.pack(0, log.number, NODE, LEADER_EPOCH, _ONE, NODE, _ONE, NODE, _NONE, 0)
                for log in self.logs
            )
            head = _INT16.pack(0) + compact(self.name.encode()) + self.raw_id + b"\x00"
            self._row = head + varint(len(self.logs) + 1) + rows + _NO_OPERATIONS + b"\x00"
        return self._row


@attrs.define(eq=False)
class SimulatedCluster:
    """The topics of one cluster, all led by its only broker."""

    name: str
    topics: dict[str, SimulatedTopic] = attrs.field(factory=dict)
    by_id: dict[bytes, SimulatedTopic] = attrs.field(factory=dict)
    #: Called for every batch that a client writes.
    on_append: Callable[[Log, int], None] = lambda _log, _base: None

    def create(self, name: str, partitions: int) -> SimulatedTopic:
        """Make a topic."""
        raw_id = struct.pack(">qq", 1, len(self.by_id) + 1)
        topic = self.topics[name] = self.by_id[raw_id] = SimulatedTopic(name, raw_id)
        topic.grow(partitions)
        return topic

    def log(self, topic: str, number: int) -> Log | None:
        """Return a partition, or None."""
        found = self.topics.get(topic)
        return found.logs[number] if found and number < len(found.logs) else None


def varint(value: int) -> bytes:
    """Return an unsigned number in as many bytes as it takes."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact(raw: bytes) -> bytes:
    """Return a compact string (KIP-482)."""
    return varint(len(raw) + 1) + raw
