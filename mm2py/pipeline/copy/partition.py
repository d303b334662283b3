"""
One topic-partition while an epoch copies it.

What was fetched waits in `queue`, what was sent waits in `in_flight`, and what was acknowledged is accounted for.
"""

from __future__ import annotations

import bisect
import collections

import attrs

from mm2py.model.counters import Counters
from mm2py.model.epoch import (
    HISTOGRAM_BOUNDS_MS,
    Ended,
    Histogram,
    LeaderMark,
    Measured,
    PartitionFailure,
    PartitionOutcome,
    PartitionPlan,
    ProducerMark,
    Runs,
)
from mm2py.model.flow import TopicPartition
from mm2py.wire.batches.batch import next_sequence
from mm2py.wire.fetch_forms import FetchPosition
from mm2py.wire.requests import id_bytes


class BufferedBatch:
    """
    A batch on its way to the target.

    `runs` is None where upstream offsets are consecutive; else as in `wire.batches.rebuild.Rebuilt`. `next_upstream` is
    the position once this is acknowledged: it lies beyond what follows the batch and is not copied, such as a control
    batch. `sequence` is -1 until the batch has been signed.
    """

    __slots__ = (
        "batch",
        "first_upstream",
        "is_rebuilt",
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

    def measured(self) -> Measured | None:
        """Return what was noted, None where nothing was."""
        if not self._count:
            return None
        return Measured(self._count, self._total, self._least, self._greatest, self._last)


@attrs.define(eq=False)
class PartitionCopy(Counters):
    """
    The state of one topic-partition's copy.

    Invariants: (a) `in_flight` and `queue`, in that order, hold consecutive ranges of the source from `position` on;
    (b) `position` and `downstream` advance only by acknowledgements, in order; (c) once `ended` is set nothing more is
    fetched, and batches queued before the failure are still sent, unless the target's own answer was the failure
    (`is_given_up`); (d) `unanswered` counts the batches in requests without an answer; while `is_failing`, nothing is
    sent until it is 0; (e) `sequence` belongs to `position` as `next_sequence` to the next batch that has none yet.
    """

    plan: PartitionPlan
    fetch: FetchPosition
    remote: TopicPartition
    remote_topic: bytes
    position: int
    downstream: int | None
    is_unsure: bool
    queue: collections.deque[BufferedBatch] = attrs.field(factory=collections.deque)
    in_flight: collections.deque[BufferedBatch] = attrs.field(factory=collections.deque)
    buffered_bytes: int = 0
    unanswered: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = 0
    next_sequence: int = 0
    is_contested: bool = False
    has_ack: bool = False
    is_failing: bool = False
    is_given_up: bool = False
    is_waiting: bool = False
    is_ready: bool = False
    is_paused: bool = False
    source_node: int | None = None
    source_retries: int = 0
    target_retries: int = 0
    ended: Ended = Ended.OK
    failure: PartitionFailure | None = None
    trouble: PartitionFailure | None = None
    runs: Runs = attrs.field(factory=Runs)
    known_from: int | None = None
    log_start_offset: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1
    last_timestamp_ms: int = -1
    #: Leader epochs of what was read, each with the offset from which on it holds.
    leaders: list[LeaderMark] = attrs.field(factory=list)
    stray_from: int | None = None
    age: Spread = attrs.field(factory=Spread)
    latency: Spread = attrs.field(factory=Spread)

    @classmethod
    def of(cls, plan: PartitionPlan) -> PartitionCopy:
        source = plan.source
        topic_id = id_bytes(plan.topic_id)
        fetch = FetchPosition(source.topic.encode(), source.partition, plan.position, -1, None, topic_id=topic_id)
        copy = cls(
            plan=plan,
            fetch=fetch,
            remote=plan.remote,
            remote_topic=plan.remote_topic.encode(),
            position=plan.position,
            downstream=plan.downstream,
            is_unsure=plan.is_unsure,
        )
        fetch.owner = copy
        if plan.producer is not None:
            copy.write_as(plan.producer)
        if plan.leader is not None:
            copy.leaders.append(plan.leader)
        return copy

    def learn_topic(self, topic_id: str | None) -> None:
        """Copy the topic that has the name now, where the plan does not say which one it is about."""
        if self.plan.topic_id is None and topic_id is not None:
            self.plan = attrs.evolve(self.plan, topic_id=topic_id)
            self.fetch.topic_id = id_bytes(topic_id)

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

    def write_as(self, mark: ProducerMark) -> None:
        """Write with the identity and from the sequence of *mark*."""
        self.producer_id, self.producer_epoch = mark.producer_id, mark.producer_epoch
        self.sequence = self.next_sequence = mark.sequence
        self.is_contested = mark.is_contested

    def forget_producer(self) -> None:
        """Let the next epoch use a new producer id: this one's sequences are invalid."""
        self.producer_id = -1

    @property
    def producer(self) -> ProducerMark | None:
        if self.producer_id < 0:
            return None
        return ProducerMark(self.producer_id, self.producer_epoch, self.sequence, self.is_contested)

    def go_on_behind(self, upstream: int, downstream: int, records: int) -> None:
        """Take over *records* that were found at the target, the last one from *upstream* at *downstream*."""
        self.position = self.fetch.offset = upstream + 1
        self.downstream = downstream
        self.resumed_records = records
        self.sequence = self.next_sequence = next_sequence(self.sequence, records)
        self.is_contested = self.is_contested and records == 0

    @property
    def has_ended(self) -> bool:
        return self.ended is not Ended.OK

    def end(self, ended: Ended, failure: PartitionFailure) -> None:
        """Stop fetching this partition in this epoch; the first reason is kept."""
        if not self.has_ended:
            self.ended, self.failure = ended, failure

    def overcome_at_source(self) -> None:
        """Record that the source responds again; failures of batches in flight at the target stay."""
        self.source_retries = 0
        if not self.queue and not self.in_flight:
            self.trouble = None

    @property
    def may_have_arrived(self) -> bool:
        """Whether the target may hold more than is acknowledged."""
        return bool(self.in_flight) or any(buffered.was_sent for buffered in self.queue)

    def put(self, buffered: BufferedBatch) -> None:
        self.queue.append(buffered)
        self.buffered_bytes += buffered.size_bytes

    def pass_over(self, next_upstream: int) -> None:
        """Step over upstream offsets that hold nothing to copy, once what lies before them is acknowledged."""
        if self.queue:
            self.queue[-1].next_upstream = next_upstream
        elif self.in_flight:
            self.in_flight[-1].next_upstream = next_upstream
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
        self.sequence = next_sequence(self.sequence, buffered.record_count)
        self.records += buffered.record_count
        self.bytes += buffered.size_bytes
        self.buffered_bytes -= buffered.size_bytes
        if buffered.is_rebuilt:
            self.batches_rebuilt += 1
        else:
            self.batches_unopened += 1
        self.last_timestamp_ms = buffered.max_timestamp

    def outcome(self) -> PartitionOutcome:
        """Return what the epoch did to this partition; what is still in flight makes it unsure."""
        ended, failure = self.ended, self.failure
        if (
            ended is Ended.OK
            and self.trouble is not None
            and (self.may_have_arrived or self.is_unsure or not self.records)
        ):
            ended, failure = Ended.INTERRUPTED, self.trouble
        return PartitionOutcome(
            source=self.plan.source,
            position=self.position,
            downstream=self.downstream,
            is_unsure=self.is_unsure or self.may_have_arrived,
            ended=ended,
            failure=failure,
            runs=self.runs,
            known_from=self.known_from,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            last_timestamp_ms=self.last_timestamp_ms,
            producer=self.producer,
            leader=self.leader_before(self.position),
            stray_from=self.stray_from,
            age=self.age.measured(),
            latency=self.latency.measured(),
            **self.counts(),
        )
