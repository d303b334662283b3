"""A partition of the model of a Kafka cluster: its log, and what its leader remembers of producers."""

from __future__ import annotations

import collections
import struct

import attrs

from mm2py.wire.batches.batch import batches, next_sequence
from mm2py.wire.error_codes import ErrorCode
from tests.support.contents import RecordContent, decode


_BASE_OFFSET = struct.Struct(">q")
_SEQUENCE = struct.Struct(">i")
_SEQUENCE_AT = 53
_REMEMBERED = 5
_OK = 0


@attrs.define
class ModelPartition:
    """A partition's log at its leader."""

    leader: int | None = 0
    leader_epoch: int = 0
    #: Where epochs end that are not the leader's own.
    epoch_ends: dict[int, int] = attrs.field(factory=dict)
    start: int = 0
    end: int = 0
    #: What lies before it is in remote storage, which takes longer than the broker waits for it (KIP-405).
    remote_end: int = 0
    not_replicated: int = 0
    stable_end: int | None = None
    #: Whether it is led by a new leader that cannot tell its end, with too few replicas (KIP-207).
    is_end_unknown: bool = False
    aborted: list[tuple[int, int]] = attrs.field(factory=list)
    batches: list[tuple[int, int, bytes]] = attrs.field(factory=list)
    #: Per producer id its last batches: first and last sequence, base offset, last timestamp.
    producers: dict[int, collections.deque[tuple[int, int, int, int]]] = attrs.field(factory=dict)

    @property
    def high_watermark(self) -> int:
        return self.end - self.not_replicated

    def load(self, *parts: bytes) -> None:
        """Put batches into the log as they are, wherever their base offsets say."""
        for raw in parts:
            (view,) = batches(memoryview(raw))
            last = view.last_offset if view.magic >= 2 else decode(raw)[-1].offset
            self.batches.append((view.base_offset, last, raw))
            self.end = last + 1

    def append(self, raw: bytes) -> tuple[int, int, int]:
        """Take a produced batch as a leader does; return the error code, its base offset, and the append time."""
        (view,) = batches(memoryview(raw))
        if not view.matches_crc():
            return ErrorCode.CORRUPT_MESSAGE, -1, -1
        if view.base_offset or view.has_holes or view.is_control or view.is_transactional:
            return ErrorCode.INVALID_RECORD, -1, -1
        (first,) = _SEQUENCE.unpack_from(raw, _SEQUENCE_AT)
        last = next_sequence(first, view.record_count - 1)
        known = self.producers.get(view.producer_id)
        for seen_first, seen_last, base, timestamp in known or ():
            if (seen_first, seen_last) == (first, last):
                return _OK, base, timestamp
        if known and first != next_sequence(known[-1][1], 1):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, -1
        base = self.end
        self.load(_BASE_OFFSET.pack(base) + raw[_BASE_OFFSET.size :])
        remembered = self.producers.setdefault(view.producer_id, collections.deque(maxlen=_REMEMBERED))
        remembered.append((first, last, base, view.max_timestamp))
        return _OK, base, -1

    def read(self, offset: int, max_bytes: int, *, is_first: bool) -> bytes:
        """
        Return batches from the one that holds *offset* on, the last of them cut off where there is no more room.

        The first partition of an answer gets one whole batch at least (KIP-74), another one nothing if its first batch
        has no room.
        """
        found, room = bytearray(), max_bytes
        if offset < self.remote_end:
            return b""
        for _, last, raw in self.batches:
            if last < offset or last >= self.high_watermark:
                continue
            if not found and len(raw) > room:
                room = len(raw) if is_first else 0
            if len(found) >= room:
                break
            found += raw
        return bytes(found[: max(0, room)])

    def records(self) -> list[RecordContent]:
        """Return everything in the log, decoded."""
        return [record for _, _, raw in self.batches for record in decode(raw)]
