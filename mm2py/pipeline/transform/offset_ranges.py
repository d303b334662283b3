"""How much of each topic-partition a record task takes at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from mm2py.model.epoch import PartitionPlan
from mm2py.model.flow import TopicPartition


#: What a Spark task holds in memory before it sends it, and what all tasks of a micro-batch may hold together.
RANGE_BYTES: Final = 16 * 1024 * 1024
MICRO_BATCH_BYTES: Final = 64 * 1024 * 1024
#: What a record is taken to be before one was seen, and what its columns add to its bytes.
_FIRST_RECORD_BYTES: Final = 512.0
_OVERHEAD_BYTES: Final = 32.0
_FRESH_SHARE: Final = 0.5
_LEAST_PART: Final = 1 / 65_536
#: A range grows only if this many times its size would still be done in time.
_MARGIN: Final = 3


@attrs.define
class Pace:
    """What the records of each topic-partition weigh, as far as they were seen."""

    _bytes: dict[TopicPartition, float] = attrs.field(factory=dict)
    #: Which part of what it may be a range is, and which part the longest one was that was cut last.
    _part: float = 1.0
    _taken: float = 1.0

    def learn(self, source: TopicPartition, *, offsets: int, size_bytes: int) -> None:
        """Note that *offsets* upstream offsets held *size_bytes*."""
        if offsets > 0:
            fresh = size_bytes / offsets
            known = self._bytes.get(source, fresh)
            self._bytes[source] = fresh * _FRESH_SHARE + known * (1 - _FRESH_SHARE)

    def ease(self) -> None:
        """Take less at once from now on than was taken last, which took too long."""
        self._part = max(_LEAST_PART, min(self._part, self._taken) / 4)

    def press_on(self, took_s: float, within_s: float) -> None:
        """Take more at once again, where what was taken last was done well *within* its time."""
        if took_s < within_s / _MARGIN:
            self._part = min(1.0, self._part * 1.5)

    def bytes_of(self, source: TopicPartition) -> float:
        """Return what an upstream offset of *source* weighs at the target; never nothing."""
        return max(1.0, self._bytes.get(source, _FIRST_RECORD_BYTES))

    def cut(
        self, plans: Sequence[PartitionPlan], ends: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, int]
    ) -> tuple[PartitionPlan, ...]:
        """
        Return those of *plans* that have something to read, each with the end of its range.

        A range ends with the source (*ends*), at a bound, or where it would weigh too much.
        """
        waiting = [plan for plan in plans if self._limit(plan, ends, bounds) > plan.position]
        share = min(RANGE_BYTES, MICRO_BATCH_BYTES // max(1, len(waiting)))
        cut, self._taken = [], 0.0
        for plan in waiting:
            whole = share / (self._bytes.get(plan.source, _FIRST_RECORD_BYTES) + _OVERHEAD_BYTES)
            count = min(max(1, int(whole * self._part)), self._limit(plan, ends, bounds) - plan.position)
            self._taken = max(self._taken, count / whole)
            cut.append(attrs.evolve(plan, until=plan.position + count))
        return tuple(cut)

    @staticmethod
    def _limit(plan: PartitionPlan, ends: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, int]) -> int:
        end = ends.get(plan.source, plan.position)
        return min(end, bounds.get(plan.source, end))
