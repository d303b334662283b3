"""
Rate limits of transformed topics: how long a range may be.

As when batches are copied, a limit is a bucket of tokens that may be in debt. Records count where they are read, bytes
where they are written: what a transform leaves out has cost the target nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from mm2py.model.epoch import PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.rates import RateShare, RateUse, Unit
from mm2py.pipeline.copy.throttle import Bucket
from mm2py.pipeline.transform.offset_ranges import Pace


#: A range under a limit covers at least what the limit lets through in this time, so that micro-batches are few.
_SLICE_S: Final = 0.5


class Limits:
    """All limits of one epoch of a record task; *now* is the clock's monotonic time everywhere."""

    def __init__(self, shares: Iterable[RateShare], now: float) -> None:
        self._buckets = tuple(Bucket(share, now) for share in shares)

    def _of(self, topic: str) -> list[Bucket]:
        return [bucket for bucket in self._buckets if bucket.of.topic in ("", topic)]

    def within(self, offset_ranges: Sequence[PartitionPlan], pace: Pace, now: float) -> tuple[PartitionPlan, ...]:
        """Leave out ranges of topics that are over their limit, and shorten the others to what is left of it."""
        free = [one for one in offset_ranges if not any(bucket.hold(now) for bucket in self._of(one.source.topic))]
        sharers = Counter({bucket.of: 0 for bucket in self._buckets})
        for one in free:
            sharers.update(bucket.of for bucket in self._of(one.source.topic))
        cut = []
        for one in free:
            most = one.until if one.until is not None else one.position
            for bucket in self._of(one.source.topic):
                room = max(bucket.level(now), bucket.per_s * _SLICE_S) / sharers[bucket.of]
                if bucket.of.unit is Unit.BYTES:
                    room /= pace.bytes_of(one.source)
                most = min(most, one.position + max(1, int(room)))
            cut.append(attrs.evolve(one, until=most))
        return tuple(cut)

    def charge(self, source: TopicPartition, *, offsets: int, size_bytes: int, now: float) -> None:
        """Count what became of a range."""
        for bucket in self._of(source.topic):
            bucket.take(size_bytes if bucket.of.unit is Unit.BYTES else offsets, now)

    def uses(self, now: float) -> tuple[RateUse, ...]:
        """Return what was made of each limit."""
        return tuple(bucket.use(now) for bucket in self._buckets)
