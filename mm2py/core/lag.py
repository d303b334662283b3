"""A lag in records as time: how long the oldest record has waited, and how long the source will keep it. Both are
conservative bounds, derived from the copying itself. Nothing is read for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from mm2py.core.source.progress import PartitionState
from mm2py.model.epoch import RECREATED, PartitionOutcome
from mm2py.model.state import PartitionStage


#: The configs of retention.
RETENTION_CONFIGS = ("cleanup.policy", "retention.ms", "retention.bytes")


@attrs.frozen
class Retention:
    """A source topic's retention by its configs; None means no bound. `deletes` is False if it is only compacted."""

    ms: int | None
    bytes: int | None
    deletes: bool = True

    @classmethod
    def of(cls, configs: Mapping[str, str | None]) -> Retention | None:
        """Return the retention from a topic's configs; None if they do not have it."""
        policy, ms, size = (configs.get(key) for key in RETENTION_CONFIGS)
        if policy is None or ms is None or size is None:
            return None
        return cls(_bound(ms), _bound(size), "delete" in policy.split(","))

    @property
    def is_endless(self) -> bool:
        """Whether only a deletion on purpose removes the topic's first records. Of a compacted topic none may be."""
        return self.deletes and self.ms is None and self.bytes is None


def _bound(text: str) -> int | None:
    return number if (number := int(text)) >= 0 else None


def lag_holds_s(epoch_ms: int, drain_ms: int, *, look_every_s: float) -> tuple[float, float]:
    """Return after which time the source's end offset is queried if no epoch reports it, and for how long a lag is
    valid. An epoch reports it at its end, which is known from its duration and drain. After an unanswered query the lag
    is not known any more: an old number would suggest that all is well.
    """
    due_s = (epoch_ms + drain_ms) / 1000
    return due_s + look_every_s / 2, due_s + 2 * look_every_s


def tells_end(outcome: PartitionOutcome | None, state: PartitionState, *, fetches: int) -> bool:
    """Whether an epoch with this many *fetches* reported a partition's end offset at the source; *state* is that after
    it. A fetch session omits unchanged partitions. One with records left would have been reported if it had been
    fetched: it was not if the target does not accept what was read before, or a limit delays reading.
    """
    if outcome is not None and outcome.log.high_watermark >= 0:
        return True
    is_read = state.stage is PartitionStage.COPYING and not state.is_unsure
    return fetches > 0 and is_read and state.lag == 0


def least_lag(state: PartitionState) -> int | None:
    """
    Return how many records are left to copy at least, if the source's end was reported some time ago, or history is in
    question: it may have moved on since, and may have lost some of what was copied. None if the topic is another one.
    """
    # The failure outlives how an epoch ended: a comparison in vain does not make it the former topic again.
    is_another = state.is_questioned and state.failure is not None and state.failure.error == RECREATED.error
    if state.is_compared or is_another:
        return None
    return max(0, state.log.high_watermark - state.position)


@attrs.frozen
class Growth:
    """How a source's log grows: the average size of copied records, and the rate of new ones."""

    bytes_per_record: float
    #: None if it was not observed for long enough.
    records_per_s: float | None


def lag_s(lag: int, *, last_copied_s: float | None, caught_up_s: float | None) -> float | None:
    """Return how long, at most, the oldest of *lag* records that are not copied yet has waited. It is not older than
    the last copied one, *last_copied_s* ago by its timestamp, and it did not exist when nothing was left to copy,
    *caught_up_s* ago: the first bound is close for a steady stream, the second after a break. None if neither is known.
    """
    if lag <= 0:
        return 0.0
    bounds = [bound for bound in (last_copied_s, caught_up_s) if bound is not None]
    return max(0.0, min(bounds)) if bounds else None


def seconds_until_loss(
    retention: Retention | None, *, lag: int, waited_s: float | None, growth: Growth | None
) -> float | None:
    """Return after how many seconds, at the earliest, the source may delete one of *lag* records, the oldest of which
    has waited for *waited_s*. With nothing left to copy that is the retention time of a new record. None if the source
    deletes nothing, or if it is unknown: because the topic's configs are not available, or because nothing was copied
    yet that shows how old, or how large, records are. A source deletes whole segments, so they usually stay longer.
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
    """Return when new records at the source will have filled its retention size from the oldest waiting record on."""
    left_bytes = retention_bytes - lag * bytes_per_record
    grown_bytes_per_s = records_per_s * bytes_per_record
    if left_bytes <= 0:
        return 0.0
    return left_bytes / grown_bytes_per_s if grown_bytes_per_s > 0 else math.inf
