"""
What fetch requests and answers look like, in the versions that are spoken.

Answers are taken apart by hand, because the record sets in them must stay where they were received. Each reader raises
`struct.error` or `IndexError` where an answer is not what it claims to be.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

import attrs

from mm2py.wire.flexible import NO_TAGS, TOPIC_ID_BYTES, behind_tags, packed_varint, varint


_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


@attrs.define(eq=False)
class FetchPosition:
    """What to fetch of one partition. *owner* receives the answer."""

    topic: bytes
    partition: int
    offset: int
    leader_epoch: int
    owner: Any
    #: The most that an answer may bring of it; None leaves that to `FetchSizes`.
    max_bytes: int | None = None
    #: Its topic's id; None if unknown.
    topic_id: bytes | None = None
    #: Whether a broker asked by name has confirmed, since the last failure, that it sends records of this topic.
    is_proven: bool = False

    @property
    def places(self) -> tuple[int, int, int | None]:
        """The state that the broker has of it."""
        return self.offset, self.leader_epoch, self.max_bytes


@attrs.frozen(eq=False)
class PartitionAnswer:
    """A partition's part of an answer; `record_set` may end inside a batch."""

    position: FetchPosition
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    record_set: memoryview
    #: The replica to read from instead; -1 where it is the one that answered.
    preferred_replica: int = -1


@attrs.frozen
class FetchSizes:
    """How much a fetch may bring and how long the broker may wait for it; *rack* is where the reader is (KIP-392)."""

    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    reads_committed: bool
    rack: str = ""


Wanted = Mapping[bytes, Mapping[int, FetchPosition]]


class FetchForm(Protocol):
    """How requests and answers are written in one version; topics are known by what `key` says."""

    version: int

    @staticmethod
    def key(position: FetchPosition) -> bytes: ...

    @staticmethod
    def request(head: bytes, named: Wanted, forgotten: Mapping[bytes, Collection[int]], sizes: FetchSizes) -> bytes: ...

    @staticmethod
    def read_head(frame: memoryview) -> tuple[int, int, int, int]:
        """Return throttle time, error, session id, and where the topics begin."""
        ...

    @staticmethod
    def read(frame: memoryview, at: int, wanted: Wanted, into: list[PartitionAnswer]) -> int:
        """Parse an answer for those *wanted*, and return where it ends."""
        ...


class ByName:
    """Version 11: topics by name."""

    version = 11
    #: Whether the reader tells where it is, and the broker which replica is nearer (KIP-392).
    names_replicas = True

    #: partition, current leader epoch, fetch offset, log start offset, partition max bytes
    _WANTED: Final = struct.Struct(">iiqqi")
    #: correlation id, throttle time, error, session id
    _HEAD: Final = struct.Struct(">iihi")
    #: partition, error, high watermark, last stable offset, log start offset, aborted transactions
    _ANSWER: Final = struct.Struct(">ihqqqi")
    _ABORTED: Final = struct.Struct(">qq")

    @staticmethod
    def key(position: FetchPosition) -> bytes:
        return position.topic

    @classmethod
    def request(
        cls, head: bytes, named: Wanted, forgotten: Mapping[bytes, Collection[int]], sizes: FetchSizes
    ) -> bytes:
        pack, most = ByName._WANTED.pack, sizes.partition_max_bytes
        out = [head, _INT32.pack(len(named))]
        for topic, partitions in named.items():
            out.append(_INT16.pack(len(topic)) + topic + _INT32.pack(len(partitions)))
            out += [pack(number, p.leader_epoch, p.offset, -1, p.max_bytes or most) for number, p in partitions.items()]
        out.append(_INT32.pack(len(forgotten)))
        for topic, numbers in forgotten.items():
            out.append(_INT16.pack(len(topic)) + topic + _INT32.pack(len(numbers)))
            out += [_INT32.pack(number) for number in numbers]
        if cls.names_replicas:
            rack = sizes.rack.encode()
            out.append(_INT16.pack(len(rack)) + rack)
        return b"".join(out)

    @staticmethod
    def read_head(frame: memoryview) -> tuple[int, int, int, int]:
        _, throttle_ms, error_code, session_id = ByName._HEAD.unpack_from(frame)
        return throttle_ms, error_code, session_id, ByName._HEAD.size

    @classmethod
    def read(cls, frame: memoryview, at: int, wanted: Wanted, into: list[PartitionAnswer]) -> int:
        (topics,) = _INT32.unpack_from(frame, at)
        at += 4
        for _ in range(topics):
            (size,) = _INT16.unpack_from(frame, at)
            if size < 0:
                raise struct.error("a topic has no name")
            at += 2 + size
            positions = wanted.get(bytes(frame[at - size : at]), {})
            (count,) = _INT32.unpack_from(frame, at)
            at += 4
            for _ in range(count):
                at = cls._partition(frame, at, positions, into)
        return at

    @classmethod
    def _partition(
        cls, frame: memoryview, at: int, positions: Mapping[int, FetchPosition], into: list[PartitionAnswer]
    ) -> int:
        number, error_code, high_watermark, last_stable, log_start, aborted_count = ByName._ANSWER.unpack_from(
            frame, at
        )
        at += ByName._ANSWER.size
        aborted: tuple[tuple[int, int], ...] = ()
        if aborted_count > 0:
            after = at + aborted_count * ByName._ABORTED.size
            aborted = tuple(ByName._ABORTED.iter_unpack(frame[at:after]))
            at = after
        preferred = -1
        if cls.names_replicas:
            (preferred,) = _INT32.unpack_from(frame, at)
            at += _INT32.size
        (size,) = _INT32.unpack_from(frame, at)
        at += _INT32.size
        record_set_at, at = at, at + max(int(size), 0)
        position = positions.get(number)
        # The partition was dropped while the request was in flight.
        if position is not None:
            record_set = frame[record_set_at:at]
            into.append(
                PartitionAnswer(
                    position, error_code, high_watermark, last_stable, log_start, aborted, record_set, preferred
                )
            )
        return at


class ByNameOnly(ByName):
    """Version 10, for brokers that do not have 11: all replicas but the leader are unknown."""

    version = 10
    names_replicas = False


class ById:
    """Version 13: topics by id. What later versions add is for followers, or not used here."""

    version = 13

    #: partition, current leader epoch, fetch offset, last fetched epoch, log start offset, partition max bytes, tags
    _WANTED: Final = struct.Struct(">iiqiqiB")
    #: correlation id, tags, throttle time, error, session id
    _HEAD: Final = struct.Struct(">iBihi")
    #: partition, error, high watermark, last stable offset, log start offset, aborted transactions and one, replica
    _ANSWER: Final = struct.Struct(">ihqqqBi")
    _ABORTED_AT: Final = 30
    _ABORTED: Final = struct.Struct(">qq")

    @staticmethod
    def key(position: FetchPosition) -> bytes:
        assert position.topic_id is not None  # noqa: S101 - sessions of those without speak version 11
        return position.topic_id

    @staticmethod
    def request(head: bytes, named: Wanted, forgotten: Mapping[bytes, Collection[int]], sizes: FetchSizes) -> bytes:
        pack, most, end = ById._WANTED.pack, sizes.partition_max_bytes, NO_TAGS
        # The first byte ends the request's header.
        out = [end, head, packed_varint(len(named) + 1)]
        for topic_id, partitions in named.items():
            out.append(topic_id + packed_varint(len(partitions) + 1))
            out += [
                pack(number, p.leader_epoch, p.offset, -1, -1, p.max_bytes or most, 0)
                for number, p in partitions.items()
            ]
            out.append(end)
        out.append(packed_varint(len(forgotten) + 1))
        for topic_id, numbers in forgotten.items():
            out.append(topic_id + packed_varint(len(numbers) + 1))
            out += [_INT32.pack(number) for number in numbers]
            out.append(end)
        rack = sizes.rack.encode()
        out.append(packed_varint(len(rack) + 1) + rack + end)
        return b"".join(out)

    @staticmethod
    def read_head(frame: memoryview) -> tuple[int, int, int, int]:
        _, tags, throttle_ms, error_code, session_id = ById._HEAD.unpack_from(frame)
        if tags:
            raise struct.error("the header of the answer has fields that were not requested")
        return throttle_ms, error_code, session_id, ById._HEAD.size

    @staticmethod
    def read(frame: memoryview, at: int, wanted: Wanted, into: list[PartitionAnswer]) -> int:
        topics, at = varint(frame, at)
        for _ in range(topics - 1):
            at += TOPIC_ID_BYTES
            positions = wanted.get(bytes(frame[at - TOPIC_ID_BYTES : at]), {})
            count, at = varint(frame, at)
            for _ in range(count - 1):
                at = ById._partition(frame, at, positions, into)
            at = behind_tags(frame, at)
        return behind_tags(frame, at)

    @staticmethod
    def _partition(
        frame: memoryview, at: int, positions: Mapping[int, FetchPosition], into: list[PartitionAnswer]
    ) -> int:
        number, error_code, high_watermark, last_stable, log_start, aborted_count, preferred = ById._ANSWER.unpack_from(
            frame, at
        )
        aborted: tuple[tuple[int, int], ...] = ()
        if aborted_count <= 1:
            at += ById._ANSWER.size
        else:
            aborted, at = ById._aborted(frame, at + ById._ABORTED_AT)
            (preferred,) = _INT32.unpack_from(frame, at)
            at += 4
        size, at = varint(frame, at)
        after = at + size - 1 if size else at
        position = positions.get(number)
        # The partition was dropped while the request was in flight.
        if position is not None:
            record_set = frame[at:after]
            into.append(
                PartitionAnswer(
                    position, error_code, high_watermark, last_stable, log_start, aborted, record_set, preferred
                )
            )
        return after + 1 if not frame[after] else behind_tags(frame, after)

    @staticmethod
    def _aborted(frame: memoryview, at: int) -> tuple[tuple[tuple[int, int], ...], int]:
        count, at = varint(frame, at)
        found = []
        for _ in range(count - 1):
            found.append(ById._ABORTED.unpack_from(frame, at))
            at = behind_tags(frame, at + ById._ABORTED.size)
        return tuple(found), at
