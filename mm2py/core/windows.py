"""
Recent measurements of one partition, as in Java MirrorMaker: rates, and minimum, maximum and mean times.

Kafka's metrics (SampledStat, Rate, Min, Max, Avg; two samples of 30 s) fill one sample for 30 seconds and include
earlier ones that were updated within the last minute. Older ones are reset when read, so that a rate covers the time
since then. Times without data are unknown, rates 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mm2py.model.epoch import MeasuredTime
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

    def add(self, measured: MeasuredTime) -> None:
        if not self.count or measured.min_ms < self.least:
            self.least = measured.min_ms
        self.greatest = max(self.greatest, measured.max_ms)
        self.count += measured.count
        self.total += measured.total_ms


class _Sample:
    """Measurements from `began` on, the last one at `touched`."""

    __slots__ = ("age", "began", "bytes", "latency", "records", "touched")

    def __init__(self, now: float) -> None:
        self.began = self.touched = now
        self.records = 0
        self.bytes = 0
        self.age = _Times()
        self.latency = _Times()


class Reading(NamedTuple):
    """Records and bytes per second, and the ages of records when they were read and when the target had them."""

    record_rate: float
    byte_rate: float
    #: None before the first.
    age: TimesView | None
    latency: TimesView | None


class Window:
    """The last samples of one partition. All times are the clock's monotonic seconds."""

    __slots__ = ("_current", "_last_age", "_last_latency", "_samples")

    def __init__(self) -> None:
        self._samples: list[_Sample] = []
        self._current = 0
        self._last_age: int | None = None
        self._last_latency: int | None = None

    def note(
        self, now: float, records: int, size_bytes: int, *, age: MeasuredTime | None, latency: MeasuredTime | None
    ) -> None:
        """Add what an epoch that ended at *now* copied of the partition."""
        sample = self._sample(now)
        sample.touched = now
        sample.records += records
        sample.bytes += size_bytes
        if age is not None:
            sample.age.add(age)
            self._last_age = age.last_ms
        if latency is not None:
            sample.latency.add(latency)
            self._last_latency = latency.last_ms

    @property
    def is_at_rest(self) -> bool:
        """Whether all samples are empty, as of the last reading, so that another one would say the same."""
        return not any(it.records or it.bytes or it.age.count or it.latency.count for it in self._samples)

    def _sample(self, now: float) -> _Sample:
        """Return the sample to fill: a new one if the last one is full."""
        samples = self._samples
        if not samples:
            samples.append(_Sample(now))
        elif now - samples[self._current].began >= SAMPLE_S:
            # As in Java there is one more than the setting says, because the newest is not full.
            self._current = (self._current + 1) % (_SAMPLES + 1)
            if self._current == len(samples):
                samples.append(_Sample(now))
            else:
                samples[self._current] = _Sample(now)
        return samples[self._current]

    def read(self, now: float) -> Reading:
        """Return the totals of the last samples."""
        samples = self._samples
        oldest = now
        for at, sample in enumerate(samples):
            if now - sample.touched >= SAMPLE_S * _SAMPLES:
                samples[at] = _Sample(now)
            elif sample.began < oldest:
                oldest = sample.began
        elapsed_s = now - oldest
        if elapsed_s < SAMPLE_S:
            # As in Java: a window that has just begun would exaggerate the first few records.
            elapsed_s += SAMPLE_S
        return Reading(
            sum([it.records for it in samples]) / elapsed_s,
            sum([it.bytes for it in samples]) / elapsed_s,
            _shown(self._last_age, [sample.age for sample in samples]),
            _shown(self._last_latency, [sample.latency for sample in samples]),
        )


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
