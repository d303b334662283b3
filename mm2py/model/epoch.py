"""
An epoch's plan and its outcome.

An epoch is one round of a copy task: one Spark job of one Spark task. The daemon sends the plan in and gets the
outcome back; nothing else passes between them. Offsets follow two rules everywhere: a *position* is the next
upstream offset to read, and *downstream* is the offset that the last copied record got at the target.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Iterable, Sequence
from typing import overload

import attrs

from mm2py.errors import shortened
from mm2py.model.counters import Counters
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.rates import RateShare, RateUse
from mm2py.model.transform import Transform


#: What an epoch may take, however short epochs are, until its clusters are connected and its partitions are sure.
SETTLING_MS = 5_000


@attrs.frozen
class CopyLimits:
    """What a copy task may take: all sizes in bytes, all times in milliseconds."""

    reads_committed: bool = False
    fetch_max_bytes: int = 8 * 1024 * 1024
    fetch_partition_max_bytes: int = 1024 * 1024
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    produce_request_max_bytes: int = 1024 * 1024
    produce_max_in_flight: int = 5
    buffer_bytes: int = 32 * 1024 * 1024
    partition_buffer_bytes: int = 4 * 1024 * 1024
    coalesce_below_bytes: int = 2048
    coalesce_batch_bytes: int = 256 * 1024
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    #: Kafka's number of the codec that every batch is to have at the target; None keeps the source's.
    codec: int | None = None
    #: Where the reader is; the source's leaders name replicas there to be read instead (KIP-392).
    rack: str = ""


@attrs.frozen
class ProducerMark:
    """
    Who writes a remote partition, and the sequence that the record at its position must carry (KIP-98).

    It goes from epoch to epoch and from worker to worker with the position, which makes it a fence: the broker takes
    each sequence once. A batch that a lost worker sent, and that arrives late, meets the same sequences from the next
    one, and whichever comes second is refused. `is_contested` says that the broker refused a sequence: what it
    expects must be found out before more is sent.
    """

    producer_id: int
    producer_epoch: int
    sequence: int
    is_contested: bool = False


@attrs.frozen
class LeaderMark:
    """
    Under which leader epoch of the source the last record before a position was written (KIP-101, KIP-320).

    The source's leader knows where that epoch's records end in its log. If that is before the position, the source has
    lost what was copied, whatever it holds there now. `since` is an offset from which on that epoch is known to hold.
    """

    epoch: int
    since: int


@attrs.frozen
class PartitionPlan:
    """
    One topic-partition to copy.

    `is_unsure` means that the target may already hold records past `downstream`, because whoever wrote them could
    not tell: after a crash, or after an epoch that ended with requests unanswered. The copier then compares the
    target's end offset and its last batch with the source before it writes. `downstream` is None where the position
    comes from a Java MM2, which does not keep it. `topic_id` names the source topic that the position belongs to,
    `remote_topic_id` the remote topic; either is None where nobody knows it.
    """

    source: TopicPartition
    remote_topic: str
    position: int
    downstream: int | None
    is_unsure: bool
    max_message_bytes: int = 1_048_588
    #: None where nothing is written to it in this epoch: its position is only looked for. And with a transform where a
    #: worker has to take one.
    producer: ProducerMark | None = None
    topic_id: str | None = None
    remote_topic_id: str | None = None
    leader: LeaderMark | None = None
    #: What the target ends with comes from before this upstream offset; if not, the target is not what it seems.
    found_before: int | None = None
    #: Target offset of the record to find; None: the last one.
    found_at: int | None = None
    #: Where a stretch of records ends that a transform gets; None where batches are copied for as long as the epoch is.
    until: int | None = None

    @property
    def remote(self) -> TopicPartition:
        """Where the records go."""
        return TopicPartition(self.remote_topic, self.source.partition)


@attrs.frozen
class Transactions:
    """
    How records and the positions behind them become visible at the target, all at once or never (KIP-98).

    `transactional_id` is the same wherever and whenever the same topics are transformed. Brokers abort a transaction
    that is open for `timeout_ms`.
    """

    transactional_id: str
    positions_topic: str
    timeout_ms: int = 60_000


@attrs.frozen
class EpochPlan:
    """
    All that a copy task needs to know for one epoch.

    The epoch ends `epoch_ms` after its Spark task started; what is in flight then gets `drain_ms` to be answered. No
    request is sent to the target after that. `stop_file` ends the epoch early where the worker can see that file;
    where it cannot, the epoch just runs its time. It runs longer, for `longest_ms` at most, while connections are being
    opened or partitions are unsure: that must not start again in each epoch and so never end.
    """

    flow: Flow
    task: int
    epoch: int
    source: ClusterEndpoint
    target: ClusterEndpoint
    partitions: tuple[PartitionPlan, ...]
    limits: CopyLimits
    epoch_ms: int
    drain_ms: int
    stop_file: str | None = None
    #: What it may take of the limits that operators set.
    rates: tuple[RateShare, ...] = ()
    #: What happens to the records; None where batches are copied unopened.
    transform: Transform | None = None
    #: None where records become visible as they are written.
    transactions: Transactions | None = None

    @property
    def longest_ms(self) -> int:
        """When the epoch ends at the latest, before its drain."""
        return max(self.epoch_ms, SETTLING_MS)

    @property
    def name(self) -> str:
        """What the Spark UI shows, ``A->B source 0, epoch 17``."""
        return f"{self.flow} source {self.task}, epoch {self.epoch}"


@attrs.frozen
class Run:
    """Consecutive records: upstream to upstream+length-1 became downstream to downstream+length-1."""

    upstream: int
    downstream: int
    length: int


class Runs(Sequence[Run]):
    """
    Runs one behind the other, in arrays: a compacted or a transactional topic makes one for every few records.

    They follow the order of upstream offsets. A run that continues the last one becomes part of it.
    """

    __slots__ = ("downstreams", "lengths", "upstreams")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self.upstreams, self.downstreams, self.lengths = array("q"), array("q"), array("q")
        for run in runs:
            self.add(run.upstream, run.downstream, run.length)

    def add(self, upstream: int, downstream: int, length: int) -> None:
        """Append a run."""
        lengths = self.lengths
        if lengths:
            last = lengths[-1]
            if self.upstreams[-1] + last == upstream and self.downstreams[-1] + last == downstream:
                lengths[-1] = last + length
                return
        self.upstreams.append(upstream)
        self.downstreams.append(downstream)
        lengths.append(length)

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, at: int) -> Run: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Run, ...]: ...

    def __getitem__(self, at: int | slice) -> Run | tuple[Run, ...]:
        if isinstance(at, slice):
            return tuple(map(Run, self.upstreams[at], self.downstreams[at], self.lengths[at]))
        return Run(self.upstreams[at], self.downstreams[at], self.lengths[at])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Runs({list(self[:8])}{' …' if len(self) > 8 else ''})"  # noqa: PLR2004


class Ended(enum.Enum):
    """How a partition ended its epoch. The numbers reach metrics and never change."""

    OK = 0
    #: Nothing wrong with the partition itself: a broker was away, a leader moved. Plan it again.
    INTERRUPTED = 1
    #: It needs attention: corrupt source batch, record too large, no permission, remote partition missing.
    FAILED = 2
    #: The position is below the source's log start or beyond its end.
    OUT_OF_RANGE = 3
    #: The target ends before the position says it should.
    TARGET_REWOUND = 4
    #: What the target holds past the position could not be matched with the source. Copying has not started.
    UNPROVEN = 5
    #: The source topic is another one of the same name.
    RECREATED = 6
    #: The source has lost records that were copied; what it holds at the position is not what follows them.
    TRUNCATED = 7


@attrs.frozen
class PartitionFailure:
    """Why a partition stopped, in words for the operator."""

    message: str = attrs.field(converter=shortened)
    hint: str = ""
    error: str = ""
    offset: int | None = None
    #: Which cluster does not let us in, or not do that, where one does not.
    cluster: str = ""


#: A position means nothing in another topic of the same name.
RECREATED = PartitionFailure(
    message="the source topic was deleted and created again since its position was written",
    hint="choose with copy.on.source.recreated what becomes of the new topic, and restart",
    error="TopicRecreated",
)


@attrs.frozen
class Measured:
    """A time that an epoch measured of one partition, in milliseconds: of how many records, and what it came to."""

    count: int
    total_ms: int
    min_ms: int
    max_ms: int
    last_ms: int


@attrs.frozen
class PartitionOutcome(Counters):
    """
    What an epoch did to one topic-partition.

    `position` and `downstream` are what is proven: everything before `position` is at the target. `is_unsure` says
    that more may have arrived. Offsets of the source's log are -1 until a fetch answer told them.
    """

    source: TopicPartition
    position: int
    downstream: int | None
    is_unsure: bool
    ended: Ended = Ended.OK
    failure: PartitionFailure | None = None
    #: What is known of where records went, those found by a resume included.
    runs: Sequence[Run] = ()
    #: The upstream offset from which `runs` tell all, where that is not the position that the epoch began at.
    known_from: int | None = None
    log_start_offset: int = -1
    high_watermark: int = -1
    #: Where what may be read ends, if only what is committed may be; -1 where all may.
    last_stable_offset: int = -1
    last_timestamp_ms: int = -1
    #: Goes with `position`; None where the next one to write needs a new producer id.
    producer: ProducerMark | None = None
    #: Goes with `position`; None where the source does not tell.
    leader: LeaderMark | None = None
    #: Where the target put a batch that belongs further behind: from there on it has lost what was copied.
    stray_from: int | None = None
    #: How old records were when they were read, and when the target had them: by the newest one of each batch.
    age: Measured | None = None
    latency: Measured | None = None


#: Upper bounds, in milliseconds, of the buckets of latency and age histograms; one more bucket holds the rest.
HISTOGRAM_BOUNDS_MS: tuple[float, ...] = (
    0.5, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1_000, 2_000,
    5_000, 10_000, 30_000, 60_000, 300_000, 3_600_000, 86_400_000,
)  # fmt: skip


@attrs.frozen
class Histogram:
    """Counts of records per bucket of `HISTOGRAM_BOUNDS_MS`, and the sum, least and greatest value seen."""

    counts: tuple[int, ...] = (0,) * (len(HISTOGRAM_BOUNDS_MS) + 1)
    total_ms: float = 0.0
    min_ms: float | None = None
    max_ms: float | None = None

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile_ms(self, q: float) -> float | None:
        """Return the upper bound of the bucket that holds the *q* quantile, or None when nothing was counted."""
        wanted = q * self.count
        if wanted == 0:
            return None
        seen = 0
        for bound, count in zip((*HISTOGRAM_BOUNDS_MS, self.max_ms or 0.0), self.counts, strict=True):
            seen += count
            if seen >= wanted:
                return bound if self.max_ms is None else min(bound, self.max_ms)
        return self.max_ms

    def plus(self, other: Histogram) -> Histogram:
        """Add up two histograms."""
        lows = [value for value in (self.min_ms, other.min_ms) if value is not None]
        highs = [value for value in (self.max_ms, other.max_ms) if value is not None]
        return Histogram(
            counts=tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)),
            total_ms=self.total_ms + other.total_ms,
            min_ms=min(lows) if lows else None,
            max_ms=max(highs) if highs else None,
        )


@attrs.frozen
class EpochOutcome:
    """
    What one epoch did. Partitions that neither moved, nor failed, nor learnt anything are left out.

    `elapsed_s` runs from the first line of the Spark task to its last, `cpu_s` is the worker process's CPU time in
    it, `throttled_ms` what both clusters' quotas asked for.
    """

    flow: Flow
    task: int
    epoch: int
    partitions: tuple[PartitionOutcome, ...] = ()
    latency: Histogram = Histogram()
    age: Histogram = Histogram()
    elapsed_s: float = 0.0
    drain_s: float = 0.0
    cpu_s: float = 0.0
    rss_bytes: int = 0
    fetches: int = 0
    produces: int = 0
    retries: int = 0
    throttled_ms: int = 0
    worker: str = ""
    rates: tuple[RateUse, ...] = ()

    @property
    def records(self) -> int:
        return sum(p.records for p in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(p.bytes for p in self.partitions)
