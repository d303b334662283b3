"""Whether something grows: the judge of hours of samples must see a small leak in noise, and must not invent one."""

from __future__ import annotations

import math
import random

import pytest

from tests.support.slopes import Point, Slope, slope_of


_MINUTES = 90


def _noisy(per_hour: float, *, noise: float = 1.0, life: str = "") -> list[Point]:
    """Return a sample each minute of what grows so fast, with *noise* around it."""
    chance = random.Random(7)
    return [Point(at / 60, 100 + per_hour * at / 60 + chance.gauss(0, noise), life) for at in range(_MINUTES)]


@pytest.mark.parametrize(("per_hour", "is_above", "is_within"), [(0.0, False, True), (3.0, True, False)])
def test_a_leak_is_told_from_noise(per_hour: float, is_above: bool, is_within: bool) -> None:
    """In an hour and a half with a noise of 1 MiB, 3 MiB an hour are above a limit of 1, and none are within it."""
    slope = slope_of(_noisy(per_hour))

    assert slope.per_hour == pytest.approx(per_hour, abs=0.5)
    assert (slope.is_above(1.0), slope.is_within(1.0)) == (is_above, is_within)


def test_a_single_step_is_no_certain_slope() -> None:
    """One step of 4 MiB in the middle is neither growth for certain nor none: it is told as too short a time."""
    points = [Point(at / 60, 100.0 + 4 * (at > _MINUTES / 2)) for at in range(_MINUTES)]
    slope = slope_of(points)

    assert not slope.is_above(1.0)
    assert not slope.is_within(1.0)


def test_an_outlier_counts_for_little() -> None:
    """A sample that was taken in the middle of something neither moves the line nor makes it uncertain."""
    points = _noisy(0.0, noise=0.5)
    points[80] = Point(points[80].hours, 5_000.0)

    assert slope_of(points).is_within(1.0)


def test_what_was_started_again_is_not_compared_with_what_it_was_before() -> None:
    """A worker that was killed starts with less: neither its growth nor its loss between two lives counts."""
    second = [Point(it.hours + 2, it.value - 50, "second") for it in _noisy(3.0)]
    slope = slope_of([*_noisy(3.0, life="first"), *second])

    assert slope.per_hour == pytest.approx(3.0, abs=0.5)
    assert slope.is_above(1.0)


@pytest.mark.parametrize("points", [[], [Point(0.0, 1.0), Point(1.0, 1.0)]])
def test_a_few_samples_prove_nothing(points: list[Point]) -> None:
    """Neither growth nor its absence follows from two samples."""
    slope = slope_of(points)

    assert math.isinf(slope.give_or_take)
    assert not slope.is_within(1.0)
    assert not slope.is_above(1.0)


def test_slopes_of_parts_are_added() -> None:
    """The whole grows as its parts do together, and its error is theirs as far as they are independent."""
    assert Slope(1.0, 3.0) + Slope(-2.0, 4.0) == Slope(-1.0, 5.0)
