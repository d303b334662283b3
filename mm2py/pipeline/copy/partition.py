"""
One topic-partition while an epoch copies it.

Its fetching half belongs to `mm2py.pipeline.copy.fetching`, its sending half to `mm2py.pipeline.copy.sending`; only
batches cross from one to the other, in a buffer, and what was acknowledged is accounted for.
"""

from __future__ import annotations

import bisect
import collections
import math
from typing import Final

import attrs

from mm2py.model.counters import Counters
from mm2py.model.epoch import (
    HISTOGRAM_BOUNDS_MS,
    Ended,
    Histogram,
    LeaderMark,
    LogOffsets,
    MeasuredTime,
    PartitionFailure,
    PartitionOutcome,
    PartitionPlan,
    ProducerMark,
    Runs,
)
from mm2py.model.flow import TopicPartition
from mm2py.wire.batches.batch import next_sequence
from mm2py.wire.batches.native import Rebuilt
from mm2py.wire.fetch_forms import FetchPosition
from mm2py.wire.metadata import ClusterMetadata
from mm2py.wire.requests import id_bytes


#: So little of a backlog keeps no live record waiting.
_LITTLE_BYTES: Final = 64 * 1024


class BufferedBatch:
    """
    A batch on its way to the target.

    `runs` is None where upstream offsets are consecutive; else as in `wire.batches.native.Rebuilt`. `next_upstream` is
    the position once this is acknowledged: it lies beyond what follows the batch and is not copied, such as a control
    batch. `sequence` is -1 until the batch has been signed; `is_repeated` once it is to be sent another time.
    """

    __slots__ = (
        "batch",
        "first_upstream",
        "is_rebuilt",
        "is_repeated",
        "max_timestamp",
        "next_upstream",
        "record_count",
        "runs",
        "sequence",
        "size_bytes",
    )

    def __init__(  # noqa: PLR0917 - created once per batch; keywords cost
        self,
        batch: memoryview,
        record_count: int,
        first_upstream: int,
        next_upstream: int,
        max_timestamp: int,
        runs: tuple[tuple[int, int, int], ...] | None = None,
    ) -> None:
        self.batch = batch
        self.size_bytes = len(batch)
        self.record_count = record_count
        self.first_upstream = first_upstream
        self.next_upstream = next_upstream
        self.max_timestamp = max_timestamp
        self.runs = runs
        self.is_rebuilt = runs is not None
        self.is_repeated = False
        self.sequence = -1

    @property
    def was_sent(self) -> bool:
        return self.sequence >= 0

    def detach(self) -> None:
        """Move into memory of its own, so that the answer it came in can go."""
        if len(self.batch.obj) > len(self.batch):  # type: ignore[arg-type]
            self.batch = memoryview(bytearray(self.batch))


class Tally:
    """A histogram being filled."""

    def __init__(self) -> None:
        self._counts = [0] * (len(HISTOGRAM_BOUNDS_MS) + 1)
        self._total = 0.0
        self._least: float | None = None
        self._greatest: float | None = None

    def add(self, value_ms: float, count: int) -> None:
        if value_ms < 0:  # not max(): this is called for each batch
            value_ms = 0.0
        self._counts[bisect.bisect_left(HISTOGRAM_BOUNDS_MS, value_ms)] += count
        self._total += value_ms * count
        if self._least is None or value_ms < self._least:
            self._least = value_ms
        if self._greatest is None or value_ms > self._greatest:
            self._greatest = value_ms

    def histogram(self) -> Histogram:
        return Histogram(tuple(self._counts), self._total, self._least, self._greatest)


class Spread:
    """A partition's share in such a measurement: little enough to be kept for each of many partitions."""

    __slots__ = ("_count", "_greatest", "_last", "_least", "_total")

    def __init__(self) -> None:
        self._count = self._total = self._least = self._greatest = self._last = 0

    def add(self, value_ms: int, count: int) -> None:
        """Record that *count* records took *value_ms*; negative values, from a clock that is ahead, count as 0."""
        if value_ms < 0:  # noqa: PLR1730 - not max(): this is called for each batch
            value_ms = 0
        if not self._count or value_ms < self._least:
            self._least = value_ms
        if value_ms > self._greatest:  # noqa: PLR1730
            self._greatest = value_ms
        self._count += count
        self._total += value_ms * count
        self._last = value_ms

    def measured(self) -> MeasuredTime | None:
        """Return what was noted, None where nothing was."""
        if not self._count:
            return None
        return MeasuredTime(self._count, self._total, self._least, self._greatest, self._last)


@attrs.define(eq=False)
class BatchBuffer:
    """
    What crosses from the fetching half to the sending one: batches that are not acknowledged yet.

    `in_flight` and `queue`, in that order, hold consecutive ranges of the source from the copy's position on. Fetching
    appends to `queue`; sending takes from it, and back into it for another attempt. `size_bytes` is the size of both.
    """

    queue: collections.deque[BufferedBatch] = attrs.field(factory=collections.deque)
    in_flight: collections.deque[BufferedBatch] = attrs.field(factory=collections.deque)
    size_bytes: int = 0

    def put(self, buffered: BufferedBatch) -> None:
        self.queue.append(buffered)
        self.size_bytes += buffered.size_bytes

    def put_rebuilt(self, rebuilt: Rebuilt) -> None:
        first, after = rebuilt.first_upstream, rebuilt.last_upstream + 1
        self.put(BufferedBatch(rebuilt.batch, rebuilt.record_count, first, after, rebuilt.max_timestamp, rebuilt.runs))

    @property
    def may_have_arrived(self) -> bool:
        """Whether the target may hold more than is acknowledged."""
        return bool(self.in_flight) or any(buffered.was_sent for buffered in self.queue)

    def send_again(self) -> None:
        """Return what is in flight to the front of the queue, in its order."""
        for buffered in self.in_flight:
            buffered.is_repeated = True
        self.queue.extendleft(reversed(self.in_flight))
        self.in_flight.clear()

    def drop(self, batches: collections.deque[BufferedBatch]) -> int:
        """Forget *batches*, the queue or what is in flight, and return their size."""
        freed = sum(buffered.size_bytes for buffered in batches)
        batches.clear()
        self.size_bytes -= freed
        return freed


@attrs.define(eq=False)
class FetchingHalf:
    """
    One topic-partition at the source. Once it is copied only `fetching` writes here, and `ingest` for it; before that
    `resume` sets where it starts.

    `node` is the broker that it is read from, None while there is none, by `fetcher_id`; `retries` count since its last
    answer. While `is_paused`, its share of the buffer is full or its topic's limit is used up; `is_behind` is what
    `FarBehind` says of it. Offsets of the source's log are -1 until the first answer.
    """

    position: FetchPosition
    node: int | None = None
    fetcher_id: int = 0
    #: What was known of the source when it was assigned to them; None where that alone does not decide.
    assigned_by: ClusterMetadata | None = None
    #: When records arrived last, by the event loop's time.
    heard_at: float = -math.inf
    retries: int = 0
    is_paused: bool = False
    is_behind: bool = False
    log_start_offset: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1
    #: Leader epochs of what was read, each with the offset from which on it holds.
    leaders: list[LeaderMark] = attrs.field(factory=list)
    age: Spread = attrs.field(factory=Spread)

    def expect_leader(self, epoch: int) -> None:
        """Fetch from the leader of that epoch. A session that has the partition from before compares it with this."""
        if self.position.leader_epoch != epoch:
            self.position = attrs.evolve(self.position, leader_epoch=epoch, is_proven=False)

    def ask_for(self, max_bytes: int | None) -> None:
        """Fetch at most *max_bytes* at once. A session that has the partition from before compares it with this."""
        if self.position.max_bytes != max_bytes:
            self.position = attrs.evolve(self.position, max_bytes=max_bytes)

    def read_under(self, epoch: int, offset: int) -> None:
        """Note that the source's records from *offset* on were written under that leader epoch."""
        leaders = self.leaders
        if leaders and leaders[-1].epoch == epoch and leaders[-1].since <= offset:
            return
        while leaders and leaders[-1].since >= offset:
            leaders.pop()
        leaders.append(LeaderMark(epoch, offset))

    def leader_before(self, offset: int) -> LeaderMark | None:
        """Return the leader epoch of the last record before *offset*, None if the source does not report it."""
        for mark in reversed(self.leaders):
            if mark.since < offset:
                return mark if mark.epoch >= 0 else None
        return None


@attrs.define(eq=False)
class SendingHalf:
    """
    One topic-partition at the target. Once it is copied only `sending` writes here; before that `resume` sets the
    producer and the sequence that it starts with.

    `unanswered` counts the batches in requests without an answer; while `is_failing`, nothing is sent until it is 0.
    `is_given_up` if the target's own answer was the failure: then nothing is sent any more. While `is_waiting`, the
    partition pauses before its next attempt; while `is_ready`, a broker sender has it in line. `is_behind` if
    that is the one of what is far behind. `sequence` belongs to the copy's position as `next_sequence` to the
    next batch that has none yet.
    """

    topic: bytes
    #: Empty if it is unknown.
    topic_id: bytes = b""
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = 0
    next_sequence: int = 0
    is_contested: bool = False
    unanswered: int = 0
    has_ack: bool = False
    is_failing: bool = False
    is_given_up: bool = False
    is_waiting: bool = False
    is_ready: bool = False
    is_behind: bool = False
    retries: int = 0
    stray_from: int | None = None
    latency: Spread = attrs.field(factory=Spread)

    def write_as(self, mark: ProducerMark) -> None:
        """Write with the identity and from the sequence of *mark*."""
        self.producer_id, self.producer_epoch = mark.producer_id, mark.producer_epoch
        self.sequence = self.next_sequence = mark.sequence
        self.is_contested = mark.is_contested

    def writes_as(self, mark: ProducerMark | None) -> bool:
        """Whether the next batch is written with the identity and the sequence of *mark*; None stands for none."""
        if mark is None or self.producer_id < 0:
            return mark is None and self.producer_id < 0
        return (
            self.sequence == mark.sequence
            and self.producer_id == mark.producer_id
            and self.producer_epoch == mark.producer_epoch
            and self.is_contested == mark.is_contested
        )

    def forget_producer(self) -> None:
        """Let the next epoch use a new producer id: this one's sequences are invalid."""
        self.producer_id = -1

    @property
    def producer(self) -> ProducerMark | None:
        if self.producer_id < 0:
            return None
        return ProducerMark(self.producer_id, self.producer_epoch, self.sequence, self.is_contested)

    def continue_after(self, records: int) -> None:
        """Take over *records* that were found at the target."""
        self.sequence = self.next_sequence = next_sequence(self.sequence, records)
        self.is_contested = self.is_contested and records == 0


@attrs.define(eq=False)
class PartitionCopy(Counters):
    """
    The copy of one topic-partition in one epoch: its two halves, the buffer between them, and how far it got.

    Invariants: (a) `position` and `downstream` advance only by acknowledgements, in order, once `resume` has made them
    sure; (b) either half may `end` the copy: nothing more is fetched then, and batches queued before the failure are
    still sent, unless it is given up; (c) `retried_failure` is what a half tries to overcome, `failure` why it ended.
    """

    plan: PartitionPlan
    remote: TopicPartition
    fetching: FetchingHalf
    sending: SendingHalf
    position: int
    downstream: int | None
    is_unsure: bool
    buffer: BatchBuffer = attrs.field(factory=BatchBuffer)
    runs: Runs = attrs.field(factory=Runs)
    known_from: int | None = None
    last_timestamp_ms: int = -1
    ended: Ended = Ended.OK
    failure: PartitionFailure | None = None
    retried_failure: PartitionFailure | None = None

    @classmethod
    def of(cls, plan: PartitionPlan) -> PartitionCopy:
        source = plan.source
        topic_id = id_bytes(plan.topic_id)
        fetch = FetchPosition(source.topic.encode(), source.partition, plan.position, -1, None, topic_id=topic_id)
        copy = cls(
            plan=plan,
            remote=plan.remote,
            fetching=FetchingHalf(fetch),
            sending=SendingHalf(plan.remote_topic.encode(), id_bytes(plan.remote_topic_id) or b""),
            position=plan.position,
            downstream=plan.downstream,
            is_unsure=plan.is_unsure,
        )
        fetch.owner = copy
        if plan.producer is not None:
            copy.sending.write_as(plan.producer)
        if plan.leader is not None:
            copy.fetching.leaders.append(plan.leader)
        return copy

    def learn_topic(self, topic_id: str | None) -> None:
        """Copy the topic that has the name now, where the plan does not say which one it is about."""
        if self.plan.topic_id is None and topic_id is not None:
            self.plan = attrs.evolve(self.plan, topic_id=topic_id)
            self.fetching.position.topic_id = id_bytes(topic_id)

    def continue_after(self, upstream: int, downstream: int, records: int) -> None:
        """Take over *records* that were found at the target, the last one from *upstream* at *downstream*."""
        self.position = self.fetching.position.offset = upstream + 1
        self.downstream = downstream
        self.resumed_records = records
        self.sending.continue_after(records)

    @property
    def has_moved(self) -> bool:
        """Whether it has fallen behind since it got its sender, or has caught up. Of a backlog, little must be left to
        send then: live records would wait for it.
        """
        if self.sending.is_behind and not self.fetching.is_behind:
            return self.buffer.size_bytes < _LITTLE_BYTES
        return self.fetching.is_behind and not self.sending.is_behind

    @property
    def has_ended(self) -> bool:
        return self.ended is not Ended.OK

    @property
    def has_news(self) -> bool:
        """Whether the daemon does not know the outcome already."""
        return bool(
            self.records
            or self.ended is not Ended.OK
            or self.retried_failure
            or self.fetching.high_watermark >= 0
            or self.position != self.plan.position
            or self.is_unsure != self.plan.is_unsure
            or self.buffer.in_flight
            or self.downstream != self.plan.downstream
            or not self.sending.writes_as(self.plan.producer)
        )

    @property
    def is_as_planned(self) -> bool:
        """Whether one that has no news is as it was when it was made."""
        fetching, sending = self.fetching, self.sending
        return not (
            self.is_unsure
            or sending.producer_id < 0
            or sending.retries
            or fetching.retries
            or fetching.is_paused
            or fetching.position.offset != self.position
            or self.buffer.queue
        )

    def let_go(self) -> None:
        """Receive no more answers. Nothing that it refers to refers to it then, so it needs no garbage collector."""
        self.fetching.position.owner = None

    def end(self, ended: Ended, failure: PartitionFailure) -> None:
        """Stop fetching this partition in this epoch; the first reason is kept."""
        if not self.has_ended:
            self.ended, self.failure = ended, failure

    def overcome_at_source(self) -> None:
        """Record that the source responds again; failures of batches in flight at the target stay."""
        self.fetching.retries = 0
        if not self.buffer.queue and not self.buffer.in_flight:
            self.retried_failure = None

    def pass_over(self, next_upstream: int) -> None:
        """Step over upstream offsets that hold nothing to copy, once what lies before them is acknowledged."""
        waiting = self.buffer.queue or self.buffer.in_flight
        if waiting:
            waiting[-1].next_upstream = next_upstream
        else:
            self.position = max(self.position, next_upstream)

    def account(self, buffered: BufferedBatch, base_offset: int) -> None:
        """Take the acknowledgement of the oldest batch in flight."""
        runs = self.runs
        if buffered.runs is None:
            runs.add(buffered.first_upstream, base_offset, buffered.record_count)
        else:
            for upstream, index, length in buffered.runs:
                runs.add(upstream, base_offset + index, length)
        if self.downstream is not None and base_offset > self.downstream + 1:
            self.foreign_records += base_offset - self.downstream - 1
        self.downstream = base_offset + buffered.record_count - 1
        self.position = buffered.next_upstream
        sending = self.sending
        sending.sequence = next_sequence(sending.sequence, buffered.record_count)
        self.records += buffered.record_count
        self.bytes += buffered.size_bytes
        self.buffer.size_bytes -= buffered.size_bytes
        if buffered.is_rebuilt:
            self.batches_rebuilt += 1
        else:
            self.batches_unopened += 1
        self.last_timestamp_ms = buffered.max_timestamp

    def outcome(self) -> PartitionOutcome:
        """Return what the epoch did to this partition; what is still in flight makes it unsure."""
        fetching, sending = self.fetching, self.sending
        ended, failure, is_unsure = self.ended, self.failure, self.is_unsure or self.buffer.may_have_arrived
        if ended is Ended.OK and self.retried_failure is not None and (is_unsure or not self.records):
            ended, failure = Ended.INTERRUPTED, self.retried_failure
        return PartitionOutcome(
            source=self.plan.source,
            position=self.position,
            downstream=self.downstream,
            is_unsure=is_unsure,
            ended=ended,
            failure=failure,
            runs=self.runs,
            known_from=self.known_from,
            log=LogOffsets(fetching.log_start_offset, fetching.high_watermark, fetching.last_stable_offset),
            last_timestamp_ms=self.last_timestamp_ms,
            producer=sending.producer,
            leader=fetching.leader_before(self.position),
            stray_from=sending.stray_from,
            age=fetching.age.measured(),
            latency=sending.latency.measured(),
            **self.counts(),
        )


#: Partitions by the broker and the fetcher that have them, and by what is fetched.
ByFetcher = dict[tuple[int, int], dict[FetchPosition, PartitionCopy]]
