"""
The input and the results of a comparison of both sides of a flow.

A *slice* is an offset range of one topic-partition at the source and the range of its remote partition with the copy.
Slices go to Spark's workers as values; what they found comes back as values. Offsets are Kafka's; a range goes from its
first offset up to, and without, its second.
"""

from __future__ import annotations

import enum
from functools import reduce

import attrs

from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition


class DifferenceKind(enum.Enum):
    """How a record differs, in the words of the report."""

    MISSING = "missing"
    REPEATED = "repeated"
    FOREIGN = "foreign"
    CHANGED = "changed"
    OUT_OF_ORDER = "out of order"
    DAMAGED = "damaged"


@attrs.frozen
class Slice:
    """The ranges to compare. `downstream_from` is None if the slice's first target offset is unknown: its first
    records determine it. With `ends_with_source` target records after the slice's last record belong to the next one.
    Every record before the upstream offset `proven` was copied, by the flow's own position; None if there is none.
    `floor` is the first upstream offset that a repeated record may have come from. `topic_ids` are those of the source
    and the remote topic, if known.
    """

    number: int
    source: TopicPartition
    remote_topic: str
    upstream_from: int
    upstream_to: int
    downstream_from: int | None
    downstream_to: int
    ends_with_source: bool = False
    proven: int | None = None
    floor: int = 0
    #: Has retention removed what came before the slice, so that the other side may hold more?
    source_has_expired: bool = False
    target_has_expired: bool = False
    topic_ids: tuple[str | None, str | None] = (None, None)

    @property
    def remote(self) -> TopicPartition:
        return TopicPartition(self.remote_topic, self.source.partition)

    @property
    def finds_start(self) -> bool:
        """Whether what the target holds before its first match is none of the slice's."""
        return self.downstream_from is None

    @property
    def offsets(self) -> int:
        """How many upstream offsets it spans."""
        return self.upstream_to - self.upstream_from


@attrs.frozen
class VerifyPlan:
    """What one Spark task compares, slice after slice."""

    source: ClusterEndpoint
    target: ClusterEndpoint
    slices: tuple[Slice, ...]
    reads_committed: bool = False
    fetch_bytes: int = 4 * 1024 * 1024


@attrs.frozen
class Difference:
    """
    One record that differs. `parts` are the differing parts of a changed one: timestamp, key, value, headers.

    An offset is where the record lies; for a missing one *downstream* is where it should be, for a repeated or foreign
    one *upstream* is the record that it stands in front of. None where that side has come to its end.
    """

    kind: DifferenceKind
    upstream: int | None
    downstream: int | None
    parts: tuple[str, ...] = ()


@attrs.frozen
class Counts:
    """
    Numbers of records.

    `source` and `target` were compared; `equal` are the same on both sides, in order. `pending` are not mirrored yet.
    `only_source` and `only_target` lie before what the other side still holds: retention has removed them there.
    """

    source: int = 0
    target: int = 0
    equal: int = 0
    missing: int = 0
    repeated: int = 0
    foreign: int = 0
    changed: int = 0
    out_of_order: int = 0
    damaged: int = 0
    pending: int = 0
    only_source: int = 0
    only_target: int = 0
    changed_timestamps: int = 0
    changed_keys: int = 0
    changed_values: int = 0
    changed_headers: int = 0

    def plus(self, other: Counts) -> Counts:
        """Add up two counts."""
        sums = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in attrs.fields(Counts)}
        return Counts(**sums)

    @property
    def differing(self) -> int:
        """How many records differ, in whatever way."""
        return self.missing + self.repeated + self.foreign + self.changed + self.out_of_order + self.damaged


@attrs.frozen
class SliceOutcome:
    """The result of one slice. `reason` is why it could not be compared to its end, with a `hint`. Holes are offsets
    without a record, which compaction leaves. All foreign records are before the target's offset `foreign_to`.
    `is_aligned` is False if the first records of both sides differ, as they do if the target does not match the flow's
    index of runs.
    """

    number: int
    counts: Counts = Counts()
    #: The first ones, in the order in which they were found.
    differences: tuple[Difference, ...] = ()
    reason: str = ""
    hint: str = ""
    source_holes: int = 0
    target_holes: int = 0
    foreign_to: int = 0
    is_aligned: bool = True
    #: The target stamps records itself (LogAppendTime): timestamps were not compared.
    ignored_timestamps: bool = False
    source_bytes: int = 0
    target_bytes: int = 0
    batches_unopened: int = 0
    batches_opened: int = 0


class Equality(enum.IntEnum):
    """The verdict on a partition, a topic and a flow. The numbers are the exit codes of ``mm2py verify``."""

    EQUAL = 0
    DIFFERENT = 1
    CANNOT_TELL = 2

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", " ").replace("cannot", "could not")


@attrs.frozen
class PartitionReport:
    """The result of one topic-partition. The ranges are those to compare; both are None if they could not be
    determined. `reasons` are why there is no verdict, `notes` are further remarks.
    """

    source: TopicPartition
    remote: TopicPartition
    verdict: Equality
    upstream: tuple[int, int] | None = None
    downstream: tuple[int, int] | None = None
    counts: Counts = Counts()
    differences: tuple[Difference, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    #: How many of the offsets that were asked for were compared, between 0 and 1.
    share: float = 1.0


@attrs.frozen
class VerifyReport:
    """All that was found of a flow."""

    flow: str
    partitions: tuple[PartitionReport, ...]
    source_bytes: int = 0
    target_bytes: int = 0
    batches_unopened: int = 0
    batches_opened: int = 0
    elapsed_s: float = 0.0
    #: Without looking at the clusters and starting Spark.
    comparing_s: float = 0.0
    slices: int = 0
    #: How many of all offsets that were asked for were compared, between 0 and 1.
    share: float = 1.0
    #: How many partitions are not in the sample at all, and so not in the report.
    left_out: int = 0

    @property
    def verdict(self) -> Equality:
        """One different partition makes the flow different; else one that could not be compared makes it undecided."""
        verdicts = {report.verdict for report in self.partitions}
        if Equality.DIFFERENT in verdicts:
            return Equality.DIFFERENT
        return Equality.CANNOT_TELL if Equality.CANNOT_TELL in verdicts or not verdicts else Equality.EQUAL

    @property
    def counts(self) -> Counts:
        return reduce(Counts.plus, (report.counts for report in self.partitions), Counts())
