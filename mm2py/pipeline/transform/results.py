"""What a Spark task of a transform returns of its ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from mm2py.errors import shortened
from mm2py.model.counters import Effort
from mm2py.model.epoch import Histogram, PartitionOutcome
from mm2py.model.flow import TopicPartition


#: What an operator may do about a record that a transform cannot take.
HINT_FAILED: Final = (
    "correct the transform and reload, step over the record with mm2py offsets, or set errors.tolerance = all; "
    "see docs/transforms.md"
)


@attrs.frozen
class BadRecord:
    """A record that a transform could not take; `stage` is the transform's name, `error` what was raised."""

    offset: int
    stage: str
    error: str
    message: str = attrs.field(converter=shortened)


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
