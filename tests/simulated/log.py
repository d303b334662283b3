"""
A partition: its log, and what a leader remembers of producers.

After Kafka's own: UnifiedLog (high watermark, last stable offset), ProducerStateManager and ProducerAppendInfo (epochs,
sequences, the last five batches), LeaderEpochFileCache (where epochs began), Partition (in-sync replicas). There is one
log and not one for each replica: what an election may lose is what lies beyond the high watermark, and how much of it
is drawn by the seed. Of a replica that is not in sync only is known where it left off, which an unclean election goes
back to.
"""

from __future__ import annotations

import bisect
import collections
import struct
from collections.abc import Callable, Iterator

import attrs

from mm2py.wire.batches.batch import CONTROL, TRANSACTIONAL, RecordBatchView, batches, next_sequence
from mm2py.wire.error_codes import ErrorCode
from tests.support.batches import Content, build_batch
from tests.support.contents import RecordContent, decode


_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_SEQUENCE = struct.Struct(">i")
_SEQUENCE_AT = 53
_REMEMBERED = 5
#: The bits of a batch's attributes that name its codec.
_CODEC = 0x07
NOBODY = -1
_NOWHERE = -1, -1, -1


@attrs.frozen
class Batch:
    """A batch in the log, and who wrote it."""

    base: int
    last: int
    raw: bytes
    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    max_timestamp: int
    is_control: bool
    is_transactional: bool
    #: The client that sent it, by the network; only for checks.
    writer: str
    epoch: int


@attrs.define
class Producer:
    """What the leader knows of a producer id."""

    epoch: int
    seen: collections.deque[Batch] = attrs.field(factory=lambda: collections.deque(maxlen=_REMEMBERED))


@attrs.define(eq=False)
class Partition:
    """A partition of a topic, at its leader."""

    topic: str
    number: int
    replicas: list[int]
    isr: list[int] = attrs.field(factory=list)
    #: Up to where replicas have it that were in sync last.
    left: dict[int, int] = attrs.field(factory=dict)
    leader: int = NOBODY
    leader_epoch: int = 0
    start: int = 0
    #: What lies before it is in remote storage, which takes longer than a fetch waits for it (KIP-405).
    local_start: int = 0
    end: int = 0
    high_watermark: int = 0
    batches: list[Batch] = attrs.field(factory=list)
    producers: dict[int, Producer] = attrs.field(factory=dict)
    #: Where each open transaction began, by producer id; and those that were aborted: producer, first and last offset.
    open: dict[int, int] = attrs.field(factory=dict)
    aborted: list[tuple[int, int, int]] = attrs.field(factory=list)
    epochs: list[tuple[int, int]] = attrs.field(factory=lambda: [(0, 0)])
    #: Called when more can be read, or another broker leads.
    waiters: dict[Callable[[], None], None] = attrs.field(factory=dict)
    _lasts: list[int] = attrs.field(factory=list)

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min(self.high_watermark, *self.open.values()) if self.open else self.high_watermark

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the leader knows of an open transaction of that producer, so that no coordinator is asked of it."""
        known = self.producers.get(producer_id)
        return producer_id in self.open and known is not None and known.epoch == epoch

    def judge(self, raw: bytes) -> tuple[int, Batch | None]:
        """Return the error code of a produced batch; and of one that is here already, that one."""
        (view,) = batches(memoryview(raw))
        if not view.matches_crc():
            return ErrorCode.CORRUPT_MESSAGE, None
        if view.base_offset or view.has_holes or view.is_control:
            return ErrorCode.INVALID_RECORD, None
        if view.producer_id < 0:
            return 0, None
        if _SEQUENCE.unpack_from(raw, _SEQUENCE_AT)[0] < 0:
            return ErrorCode.INVALID_RECORD, None
        code, seen = self._judge_sequence(view, raw)
        if not code and seen is None and view.producer_id in self.open and not view.attributes & TRANSACTIONAL:
            code = ErrorCode.INVALID_TXN_STATE
        return code, seen

    def _judge_sequence(self, view: RecordBatchView, raw: bytes) -> tuple[int, Batch | None]:
        known = self.producers.get(view.producer_id)
        if known is None:
            return 0, None
        (first,) = _SEQUENCE.unpack_from(raw, _SEQUENCE_AT)
        last = next_sequence(first, view.record_count - 1)
        if view.producer_epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, None
        is_new = view.producer_epoch > known.epoch
        for seen in () if is_new else known.seen:
            if (seen.first_sequence, seen.last_sequence) == (first, last):
                return 0, seen
        expected = 0 if is_new or not known.seen else next_sequence(known.seen[-1].last_sequence, 1)
        return 0 if first == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None

    def append(self, raw: bytes, writer: str) -> Batch:
        """Put a batch at the end, as a leader does."""
        stored = bytearray(raw)
        _BASE_OFFSET.pack_into(stored, 0, self.end)
        _LEADER_EPOCH.pack_into(stored, 12, self.leader_epoch)
        batch = batch_of(bytes(stored), writer)
        self.take(batch)
        return batch

    def take(self, batch: Batch) -> None:
        """Have a batch in the log, where it says that it is."""
        self.batches.append(batch)
        self._lasts.append(batch.last)
        self.end = batch.last + 1
        if self.epochs[-1][0] != batch.epoch:
            self.epochs.append((batch.epoch, batch.base))
        self._remember(batch)

    def _remember(self, batch: Batch) -> None:
        if batch.producer_id < 0:
            return
        known = self.producers.get(batch.producer_id)
        if known is None or known.epoch < batch.producer_epoch:
            known = self.producers[batch.producer_id] = Producer(batch.producer_epoch)
        if batch.is_control:
            first = self.open.pop(batch.producer_id, None)
            if first is not None and not commits(batch.raw):
                self.aborted.append((batch.producer_id, first, batch.last))
            return
        known.seen.append(batch)
        if batch.is_transactional:
            self.open.setdefault(batch.producer_id, batch.base)

    def truncate(self, end: int) -> list[Batch]:
        """Lose what lies from *end* on, and what is known by it; return what was lost."""
        at = bisect.bisect_left(self._lasts, end)
        lost, self.batches = self.batches[at:], self.batches[:at]
        del self._lasts[at:]
        self.end = self.batches[-1].last + 1 if self.batches else self.start
        self.high_watermark = min(self.high_watermark, self.end)
        self.epochs = [(epoch, begun) for epoch, begun in self.epochs if begun <= self.end] or [(0, 0)]
        if lost:
            self.producers, self.open, self.aborted = {}, {}, []
            for batch in self.batches:
                self._remember(batch)
        return lost

    def raise_watermark(self, to: int) -> None:
        """Note up to where all replicas are."""
        if to > self.high_watermark:
            self.high_watermark = min(to, self.end)
            self.wake()

    def wake(self) -> None:
        """Have all that wait for the partition see what is new."""
        for waiter in list(self.waiters):
            waiter()

    def read(self, offset: int, most: int, *, committed: bool, is_first: bool) -> bytes:
        """Return batches from *offset* on, cut off at *most* bytes; but the first of an answer is whole (KIP-74)."""
        if offset < self.local_start:
            return b""
        limit = self.stable if committed else self.high_watermark
        found, size = list[bytes](), 0
        for batch in self.since_offset(offset):
            if batch.last >= limit or (found and size >= most):
                break
            if not found and len(batch.raw) > most:
                return batch.raw if is_first else b""
            found.append(batch.raw[: most - size])
            size += len(batch.raw)
        return b"".join(found)

    def aborted_in(self, offset: int, upto: int) -> list[tuple[int, int]]:
        """Return which aborted transactions a fetched range has."""
        return [(producer, first) for producer, first, last in self.aborted if last >= offset and first < upto]

    def compact(self, upto: int) -> None:
        """Keep of each key the last record before *upto* only, as Cleaner does, and of each producer its last batch."""
        records: dict[int, list[RecordContent]] = {}
        for batch in self.batches:
            if batch.last < upto and not batch.is_control:
                is_aborted = any(self._is_in(batch, aborted) for aborted in self.aborted)
                records[batch.base] = [] if is_aborted else decode(batch.raw)
        newest = {it.key: it.offset for found in records.values() for it in found}
        last = {known.seen[-1].base for known in self.producers.values() if known.seen}
        kept = []
        for batch in self.batches:
            found = records.get(batch.base)
            left = [it for it in found or () if newest[it.key] == it.offset]
            if found is None or (found and len(left) == len(found)):
                kept.append(batch)
            elif left or batch.base in last:
                kept.append(_rest(batch, left))
        self.batches, self._lasts = kept, [batch.last for batch in kept]

    @staticmethod
    def _is_in(batch: Batch, aborted: tuple[int, int, int]) -> bool:
        producer, first, last = aborted
        return batch.is_transactional and batch.producer_id == producer and first <= batch.base <= last

    def since_offset(self, offset: int) -> Iterator[Batch]:
        """Return the batches from the one with *offset* on."""
        for at in range(bisect.bisect_left(self._lasts, offset), len(self.batches)):
            yield self.batches[at]

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the last epoch up to *epoch* and where it ended, as LeaderEpochFileCache.endOffsetFor does."""
        if epoch == self.leader_epoch:
            return epoch, self.end
        later = [begun for known, begun in self.epochs if known > epoch]
        earlier = [known for known, _ in self.epochs if known <= epoch]
        if epoch < 0 or epoch > self.leader_epoch:
            return -1, -1
        return earlier[-1] if earlier else epoch, later[0] if later else self.end

    def since(self, timestamp: int) -> tuple[int, int, int]:
        """Return timestamp, offset and epoch of the first record of that time or later, -1 if there is none."""
        return next(self._records(lambda it: it.max_timestamp >= timestamp, timestamp), _NOWHERE)

    def latest(self) -> tuple[int, int, int]:
        """Return timestamp, offset and epoch of the first record with the greatest timestamp."""
        greatest = max((it.max_timestamp for it in self.batches), default=-1)
        return next(self._records(lambda it: it.max_timestamp == greatest, greatest), _NOWHERE)

    def _records(self, has: Callable[[Batch], bool], timestamp: int) -> Iterator[tuple[int, int, int]]:
        for batch in self.since_offset(self.start):
            if has(batch):
                for record in [] if batch.is_control else decode(batch.raw):
                    if record.timestamp >= timestamp and record.offset >= self.start:
                        yield record.timestamp, record.offset, batch.epoch

    def expired(self, before_ms: int) -> int:
        """Return up to where no record is as new as *before_ms*: there the log may start, batch by batch."""
        kept = (it.base for it in self.since_offset(self.start) if it.max_timestamp >= before_ms)
        return max(self.start, min(next(kept, self.end), self.stable))

    def delete_before(self, offset: int) -> None:
        """Have the log start at *offset*, as DeleteRecords and retention do; producers stay known."""
        self.start = offset
        at = bisect.bisect_left(self._lasts, offset)
        del self.batches[:at], self._lasts[:at]
        self.aborted = [it for it in self.aborted if it[2] >= offset]
        begun = [max(offset, begun) for _, begun in self.epochs[1:]] + [self.end]
        ends = zip(self.epochs, begun, strict=True)
        kept = [(epoch, max(offset, own)) for (epoch, own), end in ends if end > offset]
        self.epochs = kept or [(self.epochs[-1][0], offset)]
        self.wake()


def batch_of(raw: bytes, writer: str) -> Batch:
    """Return a batch as it lies in a log."""
    (view,) = batches(memoryview(raw))
    (first,) = _SEQUENCE.unpack_from(raw, _SEQUENCE_AT)
    return Batch(
        view.base_offset,
        view.last_offset,
        raw,
        view.producer_id,
        view.producer_epoch,
        first,
        next_sequence(first, view.record_count - 1) if first >= 0 else -1,
        view.max_timestamp,
        bool(view.attributes & CONTROL),
        bool(view.attributes & TRANSACTIONAL),
        writer,
        *_LEADER_EPOCH.unpack_from(raw, 12),
    )


def _rest(batch: Batch, records: list[RecordContent]) -> Batch:
    """Return a batch of which compaction has left *records*: its offsets and sequences stay."""
    (view,) = batches(memoryview(batch.raw))
    raw = bytearray(
        build_batch(
            [Content(it.offset - batch.base, it.timestamp, it.key, it.value, it.headers) for it in records],
            base_offset=batch.base,
            codec=view.attributes & _CODEC,
            producer=(batch.producer_id, batch.producer_epoch, batch.first_sequence),
            attributes=view.attributes & ~_CODEC,
            last_offset_delta=batch.last - batch.base,
            max_timestamp=None if records else batch.max_timestamp,
        )
    )
    _LEADER_EPOCH.pack_into(raw, 12, batch.epoch)
    return attrs.evolve(batch, raw=bytes(raw), max_timestamp=max((it.timestamp for it in records), default=-1))


def commits(raw: bytes) -> bool:
    """Whether a marker commits: its only record's key is a version and a type."""
    # length, attributes, timestamp delta, offset delta: a byte each; then the key's length and the key.
    (kind,) = struct.unpack_from(">h", raw, 61 + 5 + 2)
    return int(kind) == 1
