"""Counts and times the rounds of what a flow does again and again, since the daemon started."""

from __future__ import annotations

from mm2py.clock import Clock
from mm2py.core.windows import Window
from mm2py.model.epoch import MeasuredTime
from mm2py.model.rounds import RoundsView


class Rounds:
    """Those of one kind. As in Kafka's own metrics, means cover about the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Rounds are its records, those that failed its bytes.
        self._window = Window()
        self._count = 0
        self._ended_ms: int | None = None
        self._has_failed: bool | None = None

    def done(self, took_s: float) -> None:
        """Record a round that succeeded."""
        took_ms = round(took_s * 1000)
        took = MeasuredTime(1, took_ms, took_ms, took_ms, took_ms)
        self._window.note(self._clock.monotonic(), 1, 0, age=None, latency=took)
        self._count += 1
        self._ended_ms, self._has_failed = self._clock.wall_ms(), False

    def failed(self) -> None:
        """Record a round that failed."""
        self._window.note(self._clock.monotonic(), 1, 1, age=None, latency=None)
        self._has_failed = True

    def view(self, *, is_under_way: bool = False) -> RoundsView:
        """Return what is known of them, and whether one *is_under_way*."""
        read = self._window.read(self._clock.monotonic())
        failed = None if self._has_failed is None else float(self._has_failed)
        if read.record_rate:
            failed = read.byte_rate / read.record_rate
        times = read.latency
        if times is None:
            return RoundsView(self._count, is_under_way, self._ended_ms, failed=failed)
        avg_ms, max_ms = (times.last_ms if it is None else it for it in (times.avg_ms, times.max_ms))
        return RoundsView(self._count, is_under_way, self._ended_ms, avg_ms, max_ms, failed)
