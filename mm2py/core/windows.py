"""
What was measured lately of one partition, as Java MirrorMaker shows it: rates, and least, greatest and mean times.

Kafka's metrics (SampledStat, Rate, Min, Max, Avg; two samples of 30 s) keep what was noted in two samples side by
side: one that is being filled for 30 seconds, and the one before it. A reading counts both, so it looks back between
half a minute and a minute. Times of nothing are unknown, rates of nothing are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mm2py.model.epoch import Measured
from mm2py.model.state import TimesView


SAMPLE_S = 30.0
_SAMPLES = 2


class _Times:
    """Times of one kind within a sample."""

    __slots__ = ("count", "greatest", "least", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.least = 0.0
        self.greatest = 0.0

    def add(self, measured: Measured) -> None:
        if not self.count or measured.min_ms < self.least:
            self.least = measured.min_ms
        self.greatest = max(self.greatest, measured.max_ms)
        self.count += measured.count
        self.total += measured.total_ms


class _Sample:
    """What was noted from `began` on."""

    __slots__ = ("age", "began", "bytes", "latency", "records")

    def __init__(self, began: float) -> None:
        self.began = began
        self.records = 0
        self.bytes = 0
        self.age = _Times()
        self.latency = _Times()


class Reading(NamedTuple):
    """Records and bytes a second, how old records were when they were read, and when the target had them."""

    record_rate: float
    byte_rate: float
    #: None before the first.
    age: TimesView | None
    latency: TimesView | None


class Window:
    """The last two samples of one partition. All times are the clock's monotonic seconds."""

    __slots__ = ("_last_age", "_last_latency", "_samples")

    def __init__(self) -> None:
        self._samples: tuple[_Sample, ...] = ()
        self._last_age: int | None = None
        self._last_latency: int | None = None

    def note(
        self, now: float, records: int, size_bytes: int, *, age: Measured | None, latency: Measured | None
    ) -> None:
        """Take what an epoch copied of the partition, which ended at *now*."""
        sample = self._current(now)
        sample.records += records
        sample.bytes += size_bytes
        if age is not None:
            sample.age.add(age)
            self._last_age = age.last_ms
        if latency is not None:
            sample.latency.add(latency)
            self._last_latency = latency.last_ms

    def _current(self, now: float) -> _Sample:
        samples = self._samples
        if not samples or now - samples[-1].began >= SAMPLE_S:
            self._samples = samples = (*samples[-1:], _Sample(now))
        return samples[-1]

    def read(self, now: float) -> Reading:
        """Give what the last two samples come to."""
        samples = self._samples
        if samples and now - samples[0].began >= SAMPLE_S * _SAMPLES:
            samples = tuple(sample for sample in samples if now - sample.began < SAMPLE_S * _SAMPLES)
        if not samples:
            return Reading(0.0, 0.0, _shown(self._last_age, ()), _shown(self._last_latency, ()))
        elapsed_s = now - samples[0].began
        if elapsed_s < SAMPLE_S:
            # As in Java: a window that has just begun would make much of the first few records.
            elapsed_s += SAMPLE_S
        return Reading(
            sum([it.records for it in samples]) / elapsed_s,
            sum([it.bytes for it in samples]) / elapsed_s,
            _shown(self._last_age, [sample.age for sample in samples]),
            _shown(self._last_latency, [sample.latency for sample in samples]),
        )


class TimesWindow:
    """The same of a time that has no rate."""

    __slots__ = ("_window",)

    def __init__(self) -> None:
        self._window = Window()

    def note(self, now: float, value_ms: int) -> None:
        """Take one measurement."""
        self._window.note(now, 1, 0, age=None, latency=Measured(1, value_ms, value_ms, value_ms, value_ms))

    def view(self, now: float) -> TimesView | None:
        """Give what was measured; None before the first."""
        return self._window.read(now).latency


def _shown(last_ms: int | None, samples: Sequence[_Times]) -> TimesView | None:
    if last_ms is None:
        return None
    count, total, least, greatest = 0, 0.0, 0.0, 0.0
    for sample in samples:
        if sample.count:
            if not count or sample.least < least:
                least = sample.least
            greatest = max(greatest, sample.greatest)
            count += sample.count
            total += sample.total
    return TimesView(last_ms, least, greatest, total / count) if count else TimesView(last_ms)
