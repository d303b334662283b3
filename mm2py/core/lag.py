"""
What a lag in records means in time: how long the oldest of them waits, and how long the source will keep it.

Both are bounds on the safe side, taken from what the copying itself tells. Nothing is read for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from mm2py.core.source.progress import PartitionState
from mm2py.model.epoch import PartitionOutcome
from mm2py.model.state import PartitionStage


#: The configs that say what a topic keeps.
RETENTION_CONFIGS = ("cleanup.policy", "retention.ms", "retention.bytes")


@attrs.frozen
class Retention:
    """What a source topic keeps, by its configs; None is no bound. `deletes` is False where it is compacted alone."""

    ms: int | None
    bytes: int | None
    deletes: bool = True

    @classmethod
    def of(cls, configs: Mapping[str, str | None]) -> Retention | None:
        """Read it from a topic's configs; None where they do not tell."""
        policy, ms, size = (configs.get(key) for key in RETENTION_CONFIGS)
        if policy is None or ms is None or size is None:
            return None
        return cls(_bound(ms), _bound(size), "delete" in policy.split(","))


def _bound(text: str) -> int | None:
    return number if (number := int(text)) >= 0 else None


def lag_holds_s(epoch_ms: int, drain_ms: int, *, look_every_s: float) -> tuple[float, float]:
    """
    Say after how long the source is asked where its log ends, if no epoch tells, and for how long a lag counts.

    An epoch tells when it ends, which is known by its time and its drain. A question that was not answered three times
    leaves the lag unknown: an old number would say that all is well.
    """
    due_s = (epoch_ms + drain_ms) / 1000
    return due_s + look_every_s / 2, due_s + 3 * look_every_s


def tells_end(outcome: PartitionOutcome | None, state: PartitionState, *, fetches: int) -> bool:
    """
    Whether an epoch with so many *fetches* told where a partition's log at the source ends; *state* is that after it.

    A fetch session says nothing of a partition that did not change. One with records left would have been told of, had
    anybody asked: it was not, where the target does not take what was read before, or a limit holds the reading back.
    """
    if outcome is not None and outcome.high_watermark >= 0:
        return True
    is_read = state.stage is PartitionStage.COPYING and not state.is_unsure
    return fetches > 0 and is_read and state.lag == 0


def forget_end(state: PartitionState) -> PartitionState:
    """Know no more where the source's log ends: it was too long ago that anybody asked."""
    return state if state.high_watermark < 0 else attrs.evolve(state, high_watermark=-1, last_stable_offset=-1)


@attrs.frozen
class Growth:
    """How a source's log grows: what a record takes there, as far as records were copied, and how many come."""

    bytes_per_record: float
    #: None where it was not watched for long enough.
    records_per_s: float | None


def lag_s(lag: int, *, last_copied_s: float | None, caught_up_s: float | None) -> float | None:
    """
    Return for how long, at most, the oldest of *lag* records that are not copied yet has waited.

    It is not older than the last one that was copied, *last_copied_s* ago by its timestamp, and it was not there when
    nothing was left to copy, *caught_up_s* ago: the first bound is close while records come without a break, the
    second after a break. None where neither is known.
    """
    if lag <= 0:
        return 0.0
    bounds = [bound for bound in (last_copied_s, caught_up_s) if bound is not None]
    return max(0.0, min(bounds)) if bounds else None


def seconds_until_loss(
    retention: Retention | None, *, lag: int, waited_s: float | None, growth: Growth | None
) -> float | None:
    """
    Say after how many seconds, at the earliest, the source may delete one of *lag* records, the oldest of which has
    waited for *waited_s*.

    With nothing left to copy that is the time for which it keeps a record that comes now. None where the source deletes
    nothing, and where it is not known: for want of the topic's configs, or because nothing was copied yet that tells
    how old, or how large, records are. A source deletes whole segments, so they are mostly there for longer.
    """
    if retention is None or not retention.deletes:
        return None
    least = math.inf
    if retention.ms is not None:
        if waited_s is None:
            return None
        least = retention.ms / 1000 - waited_s
    if retention.bytes is not None:
        if growth is None or growth.records_per_s is None:
            return None
        least = min(least, _until_full_s(retention.bytes, growth.bytes_per_record, growth.records_per_s, lag))
    return None if math.isinf(least) else max(0.0, least)


def _until_full_s(retention_bytes: int, bytes_per_record: float, records_per_s: float, lag: int) -> float:
    """Return when what comes at the source will have filled what it keeps from the oldest record that waits on."""
    left_bytes = retention_bytes - lag * bytes_per_record
    grown_bytes_per_s = records_per_s * bytes_per_record
    if left_bytes <= 0:
        return 0.0
    return left_bytes / grown_bytes_per_s if grown_bytes_per_s > 0 else math.inf
