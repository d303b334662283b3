"""
When a mirror will have caught up: what is left to copy, by how fast that shrinks.

A live partition is never quite level: records arrive while it is read. So what comes within a second counts as
nothing. What is left shrinks by what is copied, and grows by what is produced; only the difference is measured, between
looks at each partition that lie some epochs apart, so that partitions that take turns have had theirs. While a
partition is not copied, because it is paused for example, what is left only grows, and its first epoch after that finds
its pace. Both tell nothing of how fast the rest will shrink, and are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import attrs


#: What is copied in this time is no backlog, and so many records that came since the last look are none either.
_LEVEL_S = 1.0
_FEW = 10
#: Looks that lie further back are forgotten, if there are later ones to compare with.
_REMEMBERED_S = 20.0
#: If it is not known of more than this part of what is left how it changes, it is not known of all.
_UNKNOWN_PART = 0.1
#: What takes longer shrinks by chance.
_LONGEST_S = 30 * 86_400.0


@attrs.frozen
class Look:
    """What was left to copy of a partition at a moment, in records; 0 if it was level."""

    at: float
    left: int


@attrs.frozen
class Descent:
    """
    How what is left of a partition changes: some of the last looks at it, at most three.

    `is_at_rest` if it was not being copied at the last one.
    """

    looks: tuple[Look, ...] = ()
    is_at_rest: bool = False

    @property
    def left(self) -> int:
        """What is left to copy, as of the last look."""
        return self.looks[-1].left if self.looks else 0

    @functools.cached_property
    def is_over(self) -> bool:
        """Whether nothing was left at any look that is remembered."""
        return not any(look.left for look in self.looks)

    def at_rest(self, lag: int, *, at: float) -> Descent:
        """Return it with a look at a partition that is not being copied."""
        was_level = not self.left
        return attrs.evolve(self._leaving_out(0 if was_level and lag <= _FEW else lag, at), is_at_rest=True)

    def _leaving_out(self, left: int, at: float) -> Descent:
        """Return it as if nothing had changed since the last look, but so many are *left*."""
        if not self.looks or (left and not self.left):
            return Descent((Look(at, left),))
        by_s, more = self.age_s(at), left - self.left
        return Descent(tuple(Look(look.at + by_s, max(0, look.left + more)) for look in self.looks))

    def after(self, lag: int, *, copied_per_s: float, at: float) -> Descent:
        """Return it with another look, at which *lag* records were not copied; lately *copied_per_s* were."""
        looks = self.looks
        if not lag and looks and not self.is_at_rest and self.is_over:
            return self  # as it is with most of very many
        was_level = bool(looks) and not looks[-1].left
        is_level = lag <= copied_per_s * _LEVEL_S or (was_level and lag <= _FEW)
        look = Look(at, 0 if is_level else lag)
        if self.is_at_rest or not looks or (was_level and look.left):
            return self._leaving_out(look.left, at)  # how long ago it began to be behind is not known
        if is_level and self.is_over:
            return self
        if len(looks) == 1 or looks[-1].at - looks[-2].at >= _REMEMBERED_S / 2:
            return Descent((*looks[-2:], look))
        return Descent((*looks[:-1], look))

    @property
    def per_s(self) -> float | None:
        """By how many records a second it shrinks; less than 0 if it grows, None if it was looked at once."""
        if len(self.looks) < 2 or self.looks[-1].at <= self.looks[0].at:  # noqa: PLR2004
            return None
        first, last = self.looks[0], self.looks[-1]
        return (first.left - last.left) / (last.at - first.at)

    def age_s(self, now: float) -> float:
        """Return how long ago the last look was."""
        return now - self.looks[-1].at if self.looks else 0.0


def seconds_until_level(each: Iterable[tuple[Descent, float]], now: float) -> float | None:
    """
    Return when nothing will be left of the partitions, at the rates of the last epochs; 0 if all are level. Each has a
    weight, that of its records: bytes each, where that is known of all.

    They share what copies them: once one is level, the others get on faster. None while what is left does not shrink,
    and while that is known only of a part of it.
    """
    left = per_s = stale = unknown = 0.0
    for descent, weight in each:
        there = descent.left * weight
        left += there
        stale += there * descent.age_s(now)
        if descent.per_s is None:
            unknown += there
        else:
            per_s += descent.per_s * weight
    if not left:
        return 0.0
    if unknown > left * _UNKNOWN_PART or per_s <= 0 or left / per_s > _LONGEST_S:
        return None
    # What was left at the last looks has become less since.
    return max(0.0, left / per_s - stale / left)
