"""
An epoch's plan and its outcome.

An epoch is one Spark job of a copy task, with one Spark task. The daemon sends the plan in and gets the
outcome back; nothing else passes between them. Offsets follow two rules everywhere: a *position* is the next
upstream offset to read, and *downstream* is the offset that the last copied record got at the target.
"""

from __future__ import annotations

import enum
import functools
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

import attrs

from mm2py.errors import shortened
from mm2py.model.counters import Counters, Effort
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.pickled import pickled_by_values
from mm2py.model.rates import RateShare, RateUse
from mm2py.model.transform import Transform


#: How long an epoch may take, however short epochs are, until its clusters are connected and its partitions are sure.
SETTLING_MS = 5_000
#: The highest producer epoch, as Kafka's own producer uses them.
_LAST_PRODUCER_EPOCH = 2**15 - 2
#: So many runs are pickled faster as numbers than as arrays.
_FEW_RUNS = 8


@attrs.frozen
class CopyLimits:
    """Limits of a copy task: all sizes in bytes, all times in milliseconds."""

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
    #: Kafka's number of the codec for all batches at the target; None keeps the source's.
    codec: int | None = None
    #: The reader's rack, in which the source's leaders name preferred read replicas (KIP-392).
    rack: str = ""
    #: How much longer the target's answers may take because of partitions that are behind; -1: that is not bounded.
    catch_up_latency_ms: int = -1

    def retry_pause_s(self, retries: int) -> float:
        """Return the pause before that retry, the first of which is 1."""
        return min(self.retry_backoff_ms << min(retries - 1, 10), self.retry_backoff_max_ms) / 1000


@pickled_by_values
@attrs.frozen
class ProducerMark:
    """
    The producer of a remote partition, and the sequence of the record at its position (KIP-98).

    It goes from epoch to epoch and from worker to worker with the position, which makes it a fence: the broker accepts
    each sequence once. A late batch of a lost worker and the batch of the next worker carry the same sequences, and
    whichever comes second is rejected. `is_contested` means that the broker rejected a sequence: the expected one must
    be determined before more is sent.
    """

    producer_id: int
    producer_epoch: int
    sequence: int
    is_contested: bool = False

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    def renewed(self) -> ProducerMark | None:
        """Return the same producer in its next epoch, which begins at sequence 0 (KIP-360); None after the last one.

        Once the broker has the first batch of an epoch, it rejects all batches of earlier ones, however late. It would
        take those of another producer id. And two nodes that renew the same mark get the same one.
        """
        if self.producer_epoch >= _LAST_PRODUCER_EPOCH:
            return None
        return ProducerMark(self.producer_id, self.producer_epoch + 1, 0)


@pickled_by_values
@attrs.frozen
class LeaderMark:
    """The leader epoch of the source in which the last record before a position was written (KIP-101, KIP-320). The
    source's leader knows where that epoch ends in its log. If that is before the position, the source has lost copied
    records, whatever it has there now. `since` is an offset from which on that epoch is known to hold.
    """

    epoch: int
    since: int


@pickled_by_values
@attrs.frozen
class PartitionPlan:
    """
    One topic-partition to copy.

    `is_unsure` means that the target may already hold records beyond `downstream`, without confirmation: after a crash,
    or after an epoch that ended with unanswered requests. The copier then compares the target's end offset and its last
    batch with the source before it writes. `downstream` is None if the position comes from Java MM2, which does not
    keep it. `topic_id` names the source topic that the position belongs to, `remote_topic_id` the remote topic; either
    may be unknown, None.
    """

    source: TopicPartition
    remote_topic: str
    position: int
    downstream: int | None
    is_unsure: bool
    max_message_bytes: int = 1_048_588
    #: None if nothing is written in this epoch, because the position is only searched for; or with a transform if a
    #: worker has to obtain one.
    producer: ProducerMark | None = None
    topic_id: str | None = None
    remote_topic_id: str | None = None
    #: Whether the remote topic keeps the records' timestamps for sure (CreateTime).
    keeps_timestamps: bool = False
    leader: LeaderMark | None = None
    #: The target's last records come from before this upstream offset; otherwise it is not this mirror's copy.
    found_before: int | None = None
    #: Target offset of the record to find; None: the last one.
    found_at: int | None = None
    #: The source topic was created again: find out whether it holds what is at the target, see `pipeline.copy.rebuilt`.
    is_rebuilt: bool = False
    #: End of the offset range for a transform; None if batches are copied for the whole epoch.
    until: int | None = None

    @property
    def remote(self) -> TopicPartition:
        """The remote partition."""
        return TopicPartition(self.remote_topic, self.source.partition)


@attrs.frozen
class Transactions:
    """
    The transaction that makes records and their positions visible at the target together or never (KIP-98).

    `transactional_id` is the same wherever and whenever the same topics are transformed. Brokers abort a transaction
    that is open for `timeout_ms`.
    """

    transactional_id: str
    positions_topic: str
    timeout_ms: int = 60_000
    #: The connector whose positions they are.
    connector: str = "MirrorSourceConnector"


@attrs.frozen
class EpochPlan:
    """
    All that a copy task needs to know for one epoch.

    The epoch ends `epoch_ms` after its Spark task started; requests in flight then have `drain_ms` to be answered. No
    request is sent to the target after that. `stop_file` ends the epoch early where the worker can see that file; one
    elsewhere is told so if it is connected. It runs longer, for `longest_ms` at most, while connections are opened,
    leaders say what they hold, or partitions are unsure: that must not start over in each epoch and so never end.
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
    #: Its shares of rate limits.
    rates: tuple[RateShare, ...] = ()
    #: The transform of the records; None if batches are copied unopened.
    transform: Transform | None = None
    #: The names that Connect's transforms see, by source topic: those that the replication policy gives.
    names_by_policy: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    #: None if records become visible as they are written.
    transactions: Transactions | None = None
    #: Wall time after which nothing is sent: the machine was suspended, and brokers may have forgotten the producers.
    void_after_ms: int | None = None

    @property
    def longest_ms(self) -> int:
        """When the epoch ends at the latest, before its drain."""
        return max(self.epoch_ms, SETTLING_MS)

    @property
    def name(self) -> str:
        """The name in messages and in the Spark UI, ``A->B source 0, epoch 17``."""
        return f"{self.flow} source {self.task}, epoch {self.epoch}"

    @functools.cached_property
    def by_source(self) -> Mapping[TopicPartition, PartitionPlan]:
        """The partitions by their topic-partitions."""
        return {partition.source: partition for partition in self.partitions}


@attrs.frozen
class Run:
    """Consecutive records: upstream to upstream+length-1 became downstream to downstream+length-1."""

    upstream: int
    downstream: int
    length: int


class Runs(Sequence[Run]):
    """
    Consecutive runs, in arrays: a compacted or a transactional topic makes one for every few records.

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

    def __reduce__(self) -> tuple[Any, ...]:
        columns = (self.upstreams, self.downstreams, self.lengths)
        # Most partitions have a run or two, and arrays take longer then.
        return _runs_of, columns if len(self) > _FEW_RUNS else tuple(column.tolist() for column in columns)

    def __repr__(self) -> str:
        return f"Runs({list(self[:8])}{' …' if len(self) > 8 else ''})"  # noqa: PLR2004


def _runs_of(upstreams: Iterable[int], downstreams: Iterable[int], lengths: Iterable[int]) -> Runs:
    runs = Runs()
    runs.upstreams.extend(upstreams)
    runs.downstreams.extend(downstreams)
    runs.lengths.extend(lengths)
    return runs


class Ended(enum.Enum):
    """How a partition ended its epoch. The numbers reach metrics and never change."""

    OK = 0
    #: The partition itself is fine: a broker was unavailable, a leader moved. Plan it again.
    INTERRUPTED = 1
    #: It needs attention: corrupt source batch, record too large, no permission, remote partition missing.
    FAILED = 2
    #: The position is below the source's log start or beyond its end.
    OUT_OF_RANGE = 3
    #: The target ends before the position says it should.
    TARGET_REWOUND = 4
    #: The target's records beyond the position could not be matched with the source. Copying has not started.
    UNPROVEN = 5
    #: The source topic was re-created under the same name.
    RECREATED = 6
    #: The source has lost copied records; its records at the position do not follow them.
    TRUNCATED = 7


@attrs.frozen
class PartitionFailure:
    """Why a partition stopped, in words for the operator."""

    message: str = attrs.field(converter=shortened)
    hint: str = ""
    error: str = ""
    offset: int | None = None
    #: The cluster that denied the login or the operation, if any.
    cluster: str = ""
    #: The cluster that did not answer, or answered that it must be asked again, if that is why.
    waits_for: str = ""

    def of_flow(self, flow: Flow) -> PartitionFailure:
        """Return the failure with the commands of its hint for *flow*."""
        return attrs.evolve(self, hint=self.hint.replace(_SOME_FLOW, f"mm2py flow '{flow}'"))


#: How a hint names a flow that is not known where it is made.
_SOME_FLOW = "mm2py flow 'A->B'"


def choose(key: str, choice: str, *others: str) -> str:
    """Return the hint that names the command by which an operator decides for a partition that stopped."""
    more = f" (or {', '.join(others)})" if others else ""
    return f"choose, while the mirror runs: {_SOME_FLOW} config set {key}={choice}{more}"


#: A position is meaningless in a re-created topic.
RECREATED = PartitionFailure(
    message="the source topic was deleted and created again since its position was written",
    hint=choose("copy.on.source.recreated", "earliest", "latest", "re-create"),
    error="TopicRecreated",
)


@pickled_by_values
@attrs.frozen
class MeasuredTime:
    """A time that an epoch measured for one partition, in milliseconds, with the number of records."""

    count: int
    total_ms: int
    min_ms: int
    max_ms: int
    last_ms: int


@pickled_by_values
@attrs.frozen
class LogOffsets:
    """What the source says of a partition's log: its start, its high watermark and, with read_committed, its last
    stable offset. Each is -1 while it is unknown.
    """

    start: int = -1
    high_watermark: int = -1
    last_stable: int = -1

    def newer(self, told: LogOffsets) -> LogOffsets:
        """Return what is known once *told* has arrived, which need not name all of them."""
        return LogOffsets(
            told.start if told.start >= 0 else self.start,
            told.high_watermark if told.high_watermark >= 0 else self.high_watermark,
            told.last_stable if told.last_stable >= 0 else self.last_stable,
        )


@pickled_by_values
@attrs.frozen
class PartitionOutcome(Counters):
    """
    What an epoch did to one topic-partition.

    `position` and `downstream` are proven: everything before `position` is at the target. `is_unsure` means that more
    may have arrived.
    """

    source: TopicPartition
    position: int
    downstream: int | None
    is_unsure: bool
    ended: Ended = Ended.OK
    failure: PartitionFailure | None = None
    #: The runs copied in this epoch, including those found by a resume.
    runs: Sequence[Run] = ()
    #: The upstream offset from which `runs` are complete, if not the epoch's first position. Of an unproven resume: the
    #: source's start, before which all of the target's records are, if that is known.
    known_from: int | None = None
    log: LogOffsets = attrs.field(factory=LogOffsets)
    last_timestamp_ms: int = -1
    #: Belongs to `position`; None if the next writer needs a new producer id.
    producer: ProducerMark | None = None
    #: Belongs to `position`; None if the source does not report it.
    leader: LeaderMark | None = None
    #: Where the target appended a batch that belongs further back: from there on it has lost copied records.
    stray_from: int | None = None
    #: Ages of records when they were read, and when the target had them, by the newest record of each batch.
    age: MeasuredTime | None = None
    latency: MeasuredTime | None = None


#: Upper bounds, in milliseconds, of the buckets of latency and age histograms; one more bucket holds the rest. Those of
#: Mirus, from five minutes to twelve hours, are among them.
HISTOGRAM_BOUNDS_MS: tuple[float, ...] = (
    0.5, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1_000, 2_000,
    5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000, 3_600_000, 43_200_000, 86_400_000,
)  # fmt: skip


@attrs.frozen
class Histogram:
    """Counts of records per bucket of `HISTOGRAM_BOUNDS_MS`, with the sum, minimum and maximum."""

    counts: tuple[int, ...] = (0,) * (len(HISTOGRAM_BOUNDS_MS) + 1)
    total_ms: float = 0.0
    min_ms: float | None = None
    max_ms: float | None = None

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile_ms(self, q: float) -> float | None:
        """Return the upper bound of the bucket with the *q* quantile, or None if nothing was counted."""
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
class EpochOutcome(Effort):
    """
    The outcome of one epoch. Partitions that neither advanced, nor failed, nor learnt anything are omitted; the source
    has nothing new of these if it `is_complete`, that is if each broker has answered for each of its partitions.

    `elapsed_s` runs from the first line of the Spark task to its last.
    """

    flow: Flow
    task: int
    epoch: int
    partitions: tuple[PartitionOutcome, ...] = ()
    latency: Histogram = Histogram()
    age: Histogram = Histogram()
    elapsed_s: float = 0.0
    drain_s: float = 0.0
    rss_bytes: int = 0
    worker: str = ""
    rates: tuple[RateUse, ...] = ()
    is_complete: bool = True

    @property
    def records(self) -> int:
        return sum(p.records for p in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(p.bytes for p in self.partitions)
