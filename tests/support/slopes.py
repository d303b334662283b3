"""How fast something grows: a line through samples of it, and how far that line may be off."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence

import attrs


#: Fewer say nothing.
_SAMPLES_LEAST = 5
#: About 95 of 100 lines lie within so many standard errors.
_STANDARD_ERRORS = 2.0
#: What is so many times farther off than half of the samples; of normal ones three in a thousand are.
_OUTLIER = 4.5
#: Samples that follow each other so closely tell nothing; the error is not made larger than that allows.
_ALIKE_MOST = 0.95


@attrs.frozen
class Point:
    """A sample: when, how much, and of which *life*: what was started again is not compared with what it was before."""

    hours: float
    value: float
    life: str = ""


@attrs.frozen
class Slope:
    """Growth an hour, and how far it may be off."""

    per_hour: float
    give_or_take: float

    def is_above(self, limit: float) -> bool:
        """Whether it grows faster than *limit*, beyond doubt."""
        return self.per_hour - self.give_or_take > limit

    def is_within(self, limit: float) -> bool:
        """Whether it grows no faster than *limit*, beyond doubt."""
        return self.per_hour + self.give_or_take <= limit

    def __add__(self, other: Slope) -> Slope:
        return Slope(self.per_hour + other.per_hour, math.hypot(self.give_or_take, other.give_or_take))


def slope_of(points: Iterable[Point]) -> Slope:
    """
    Return the median of the slopes between any two points of the same life (Theil and Sen).

    The error is that of a line of least squares whose residuals resemble their neighbours: memory grows in steps, and
    a hundred samples on one step are not a hundred samples. Without enough points the slope may be anything.
    """
    lives: dict[str, list[Point]] = {}
    for point in points:
        lives.setdefault(point.life, []).append(point)
    groups = [group for group in lives.values() if len(group) >= _SAMPLES_LEAST]
    if not groups:
        return Slope(0.0, math.inf)
    between = [
        (later.value - earlier.value) / (later.hours - earlier.hours)
        for group in groups
        for earlier, later in itertools.combinations(group, 2)
    ]
    slope = statistics.median(between)
    residuals = _without_outliers([residual for group in groups for residual in _residuals(group, slope)])
    spread = sum((it.hours - statistics.fmean(p.hours for p in group)) ** 2 for group in groups for it in group)
    count = len(residuals) * (1 - _likeness(residuals)) / (1 + _likeness(residuals))
    deviation = math.sqrt(sum(it * it for it in residuals) / (len(residuals) - 2))
    error = deviation / math.sqrt(spread) * math.sqrt(len(residuals) / count)
    return Slope(slope, _STANDARD_ERRORS * error)


def _residuals(group: Sequence[Point], slope: float) -> list[float]:
    left = [point.value - slope * point.hours for point in group]
    middle = statistics.median(left)
    return [it - middle for it in left]


def _without_outliers(residuals: Sequence[float]) -> list[float]:
    """Bound them: a sample is far off now and then, because the JVM could not collect anything at that moment."""
    usual = statistics.median(map(abs, residuals))
    most = _OUTLIER * usual if usual else math.inf
    return [min(most, max(-most, it)) for it in residuals]


def _likeness(residuals: Sequence[float]) -> float:
    """Return how much a residual resembles the one before it: 0 not at all, 1 entirely."""
    squares = sum(it * it for it in residuals)
    if not squares:
        return 0.0
    return min(_ALIKE_MOST, max(0.0, sum(a * b for a, b in itertools.pairwise(residuals)) / squares))
