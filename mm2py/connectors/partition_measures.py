"""What is measured of one topic-partition since the daemon started."""

from __future__ import annotations

import math

import attrs

from mm2py.core.lag import Growth, Retention, lag_s, seconds_until_loss
from mm2py.core.level import Descent
from mm2py.core.source.progress import PartitionState
from mm2py.core.windows import Window
from mm2py.model.epoch import PartitionOutcome
from mm2py.model.state import PartitionView


#: Shortest time over which the growth of a source's log is measured.
_GROWTH_S = 30.0


@attrs.frozen
class _End:
    """A source partition's end offset at a moment."""

    at: float
    offset: int


class PartitionMeasures:
    """One topic-partition since the daemon started."""

    __slots__ = (
        "_asked_at",
        "_end_offset",
        "_ends",
        "_records_then",
        "bytes",
        "cached",
        "caught_up_at",
        "descent",
        "is_ours",
        "records",
        "window",
    )

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.window = Window()
        #: Whether the target's end was known at some time since the daemon started. Records that a resume finds after
        #: that, because an epoch was lost, were copied by this daemon; those found before by another one.
        self.is_ours = False
        #: When there was last nothing left to copy; monotonic seconds.
        self.caught_up_at: float | None = None
        #: The last view of the partition, while it may be shown again.
        self.cached: CachedView | None = None
        #: When the source's end offset was reported.
        self._asked_at: float | None = None
        self._end_offset = -1
        self._ends: tuple[_End, ...] = ()
        #: How what is left to copy changes, and `records` at the last look at it.
        self.descent = Descent()
        self._records_then = 0

    def asked_s(self, now: float) -> float:
        """Return the age of the source's end offset."""
        return math.inf if self._asked_at is None else now - self._asked_at

    def account(self, outcome: PartitionOutcome, now: float) -> int:
        """Add an epoch's outcome; return its number of records."""
        self.cached = None
        records = outcome.records + (outcome.resumed_records if self.is_ours else 0)
        self.records += records
        self.bytes += outcome.bytes
        if records or outcome.age is not None:
            self.window.note(now, records, outcome.bytes, age=outcome.age, latency=outcome.latency)
        self.is_ours = self.is_ours or outcome.records > 0 or not outcome.is_unsure
        return records

    def rest_until(self, at: float) -> None:
        """Record that from the last look to *at* nothing was left to copy, and the source's end did not move."""
        for moment in (at - _GROWTH_S, at):  # as if it had been looked at all the time
            if self._asked_at is not None and moment > self._asked_at:
                self.look(0, self._end_offset, moment, is_copied=True)

    def look(self, lag: int | None, end_offset: int, now: float, *, is_copied: bool) -> None:
        """Record the partition's lag and the source's end, which that reported *now*; nothing if it did so later."""
        if self._asked_at is not None and now < self._asked_at:
            return
        if lag is not None and not is_copied:
            self.descent = self.descent.at_rest(lag, at=now)
        elif lag == 0 and self.descent.stays_level:  # as it is with most of very many
            self._records_then = self.records
        elif lag is not None:
            passed_s = 0.0 if self._asked_at is None else now - self._asked_at
            copied_per_s = (self.records - self._records_then) / passed_s if passed_s > 0 else 0.0
            self.descent = self.descent.after(lag, copied_per_s=copied_per_s, at=now)
            self._records_then = self.records
        self._asked_at, self._end_offset = now, end_offset
        if lag == 0:
            self.caught_up_at = now
        if end_offset >= 0 and (not self._ends or now - self._ends[-1].at >= _GROWTH_S):
            self._ends = (*self._ends[-1:], _End(now, end_offset))

    def waiting(
        self, state: PartitionState, retention: Retention | None, now: float, wall_ms: int
    ) -> tuple[float | None, float | None]:
        """Return how long the oldest record that is not copied has waited, and how long the source keeps it."""
        lag, last_ms = state.lag, state.last_timestamp_ms
        if lag is None:
            return None, None
        if lag == 0:
            waited_s: float | None = 0.0
        else:
            last_copied_s = (wall_ms - last_ms) / 1000 if last_ms >= 0 else None
            caught_up_s = None if self.caught_up_at is None else now - self.caught_up_at
            waited_s = lag_s(lag, last_copied_s=last_copied_s, caught_up_s=caught_up_s)
        growth = None
        if retention is not None and retention.bytes is not None and self.records:
            growth = Growth(self.bytes / self.records, self.growth_per_s(state.log.high_watermark, now))
        return waited_s, seconds_until_loss(retention, waited_s=waited_s, lag=lag, growth=growth)

    def weighed(self, record_bytes: float) -> tuple[Descent, float]:
        """Return what is left to copy; of a partition that has copied nothing yet, records have *record_bytes*."""
        return self.descent, self.bytes / self.records if self.records and self.bytes else record_bytes

    def is_at_rest(self, end_offset: int, retention: Retention | None, now: float) -> bool:
        """Whether no time that passes changes the view of the partition, with nothing left to copy."""
        if retention is not None and retention.bytes is not None and self.growth_per_s(end_offset, now) != 0:
            return False
        return self.window.is_at_rest

    def growth_per_s(self, end_offset: int, now: float) -> float | None:
        """Return the rate of new records at the source; None if it was not observed for long enough."""
        if not self._ends or now - self._ends[0].at < _GROWTH_S:
            return None
        return max(0, end_offset - self._ends[0].offset) / (now - self._ends[0].at)


@attrs.frozen(eq=False)
class CachedView:
    """A view of an idle partition, and its inputs. Until its next epoch only its rates change, slowly, and once they
    are 0 nothing does. Creating thousands of views every second would be most of a daemon's work for viewers.
    """

    view: PartitionView
    state: PartitionState
    task: int | None
    retention: Retention | None
    is_told: bool
    #: Until when the view may be shown.
    holds_until: float

    def is_of(self, state: PartitionState, task: int | None, retention: Retention | None, *, is_told: bool) -> bool:
        """Whether it was made of these; *is_told* if the source has reported its end lately."""
        is_same = self.state is state and self.task == task and self.is_told is is_told
        return is_same and (self.retention is retention or self.retention == retention)
