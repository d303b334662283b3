"""What becomes of the ranges of a transform: in a Spark task, in a micro-batch and in its epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from mm2py.errors import shortened
from mm2py.model.counters import Effort
from mm2py.model.epoch import Ended, Histogram, PartitionFailure, PartitionOutcome, PartitionPlan
from mm2py.model.flow import Flow, TopicPartition


#: What an operator may do about a record that a transform cannot take.
HINT_FAILED: Final = (
    "correct the transform and reload, or restart if a function's code changed; or step over the record with "
    "mm2py offsets, or set errors.tolerance = all; see mm2py docs transforms"
)


@attrs.frozen
class BadRecord:
    """A record that a transform could not take; `stage` is the transform's name, `error` what was raised."""

    offset: int
    stage: str
    error: str
    message: str = attrs.field(converter=shortened)

    def failure(self, flow: Flow, one: PartitionPlan) -> PartitionFailure:
        """Return what stops its topic."""
        where = f"{flow}, {one.source}, offset {self.offset}: {self.stage} fails: {self.error}: {self.message}"
        return PartitionFailure(where, HINT_FAILED, "TransformFailed", self.offset)


@attrs.frozen
class RangeOutcome(Effort):
    """
    The outcome of a partition, and what it took.

    `read_bytes` are those of keys and values as they came from the transform. `left_out` are records that a step could
    not take where that is tolerated.
    """

    partition: PartitionOutcome
    left_out: tuple[BadRecord, ...] = ()
    latency: Histogram = attrs.field(factory=Histogram)


@attrs.frozen
class MicroBatchResult:
    """The outcomes of the ranges of a micro-batch, and Spark's messages about those that failed."""

    outcomes: tuple[RangeOutcome, ...]
    failed: Mapping[TopicPartition, str] = attrs.field(factory=dict)
    #: Was it given up because it took too long?
    is_late: bool = False


class Outcomes(dict[TopicPartition, PartitionOutcome]):
    """What became of the partitions of an epoch so far; those without an outcome have not moved."""

    def __init__(self, planned: Iterable[PartitionPlan]) -> None:
        super().__init__()
        #: The plans, adapted to what was found at the target.
        self.plans = {one.source: one for one in planned}

    def missing(self, planned: Iterable[PartitionPlan]) -> list[PartitionPlan]:
        """Return those without an outcome."""
        return [one for one in planned if one.source not in self]

    def fail(
        self, one: PartitionPlan, ended: Ended, failure: PartitionFailure, *, is_unsure: bool | None = None
    ) -> None:
        """End a partition where it was; it is as unsure as planned, if *is_unsure* does not say otherwise."""
        unsure = one.is_unsure if is_unsure is None else is_unsure
        self[one.source] = attrs.evolve(unmoved(one), ended=ended, failure=failure, is_unsure=unsure)

    def fail_rest(self, ended: Ended, failure: PartitionFailure) -> None:
        """End every partition that has no outcome."""
        for one in self.missing(self.plans.values()):
            self.fail(one, ended, failure)


def unmoved(one: PartitionPlan) -> PartitionOutcome:
    """Return the outcome of a partition that did not move."""
    return PartitionOutcome(
        one.source,
        one.position,
        one.downstream,
        is_unsure=one.is_unsure,
        producer=one.producer,
        leader=one.leader,
    )
