"""
When a mirror will have caught up: what is left to copy, by how fast that shrinks.

A live partition is never quite level: records arrive while it is read. So what comes within a second counts as
nothing. What is left shrinks by what is copied, and grows by what is produced; only the difference is measured, between
looks at each partition that lie some epochs apart, so that partitions that take turns have had theirs. The longer it
will take, the further back the rate is measured: where it is paced, it varies by a third or more from one epoch to the
next, and what averages out in the time to come has to average out in what is measured. While a partition is not copied,
because it is paused for example, what is left only grows, and its first epoch after that finds its pace. Both tell
nothing of how fast the rest will shrink, and are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import attrs


#: What is copied in this time is no backlog, and so many records that came since the last look are none either.
_LEVEL_S = 1.0
_FEW = 10
#: A rate is measured over this part of the time that is left, within bounds.
_MEASURED_PART = 0.25
_MEASURED_LEAST_S = 20.0
_MEASURED_MOST_S = 180.0
#: In the beginning a pace is sought: this is not measured once there is enough of what came later.
_SOUGHT_S = 20.0
#: Looks at a partition that are kept lie at least so far apart, and the further the older they are.
_APART_S = 10.0
_APART_PART = 0.5
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
    How what is left of a partition changes: some of the looks at it in the last minutes, about a dozen.

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

    @functools.cached_property
    def stays_level(self) -> bool:
        """Whether another look at which nothing is left changes nothing."""
        return bool(self.looks) and not self.is_at_rest and self.is_over

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
        if not lag and self.stays_level:
            return self
        was_level = bool(looks) and not looks[-1].left
        is_level = lag <= copied_per_s * _LEVEL_S or (was_level and lag <= _FEW)
        look = Look(at, 0 if is_level else lag)
        if self.is_at_rest or not looks or (was_level and look.left):
            return self._leaving_out(look.left, at)  # how long ago it began to be behind is not known
        if is_level and self.is_over:
            return self
        return Descent((*_spread(looks, at), look))

    @property
    def is_known(self) -> bool:
        """Whether it was looked at twice, so that it is known how it changes."""
        return len(self.looks) > 1 and self.looks[-1].at > self.looks[0].at

    def per_s(self, lately_s: float) -> float:
        """
        Return by how many records a second it shrank in the last *lately_s* seconds, or in a little more.

        It is less than 0 if it grows, and 0 if that is not known.
        """
        looks = self.looks
        if not self.is_known:
            return 0.0
        first, last = looks[0], looks[-1]
        lately_s = min(lately_s, max(_MEASURED_LEAST_S, last.at - first.at - _SOUGHT_S))
        for at in range(len(looks) - 2, 0, -1):
            if last.at - looks[at].at >= lately_s:
                first = looks[at]
                break
        return (first.left - last.left) / (last.at - first.at)

    def age_s(self, now: float) -> float:
        """Return how long ago the last look was."""
        return now - self.looks[-1].at if self.looks else 0.0


def _spread(looks: tuple[Look, ...], now: float) -> tuple[Look, ...]:
    """Return what is kept of *looks*: those that a rate may need, and that are not too near their neighbours."""
    kept: list[Look] = []
    for look in looks:
        kept = [look] if now - look.at >= _MEASURED_MOST_S + _SOUGHT_S else [*kept, look]
        if len(kept) > 2 and look.at - kept[-3].at < max(_APART_S, (now - look.at) * _APART_PART):  # noqa: PLR2004
            del kept[-2]
    return tuple(kept[:-1] if len(kept) > 1 and kept[-1].at - kept[-2].at < _APART_S else kept)


def seconds_until_level(each: Iterable[tuple[Descent, float]], now: float) -> float | None:
    """
    Return when nothing will be left of the partitions, at the rates of the last minutes; 0 if all are level. Each has a
    weight, that of its records: bytes each, where that is known of all.

    They share what copies them: once one is level, the others get on faster. None while what is left does not shrink,
    and while that is known only of a part of it.
    """
    weighed = list(each)
    left = sum(descent.left * weight for descent, weight in weighed)
    if not left:
        return 0.0
    unknown = sum(descent.left * weight for descent, weight in weighed if not descent.is_known)
    if unknown > left * _UNKNOWN_PART:
        return None
    per_s = _per_s(weighed, _MEASURED_LEAST_S)
    measured_s = left / per_s * _MEASURED_PART if per_s > 0 else _MEASURED_MOST_S
    if measured_s > _MEASURED_LEAST_S:
        per_s = _per_s(weighed, min(_MEASURED_MOST_S, measured_s))
    if per_s <= 0 or left / per_s > _LONGEST_S:
        return None
    # What was left at the last looks has become less since.
    stale = sum(descent.left * weight * descent.age_s(now) for descent, weight in weighed)
    return max(0.0, left / per_s - stale / left)


def _per_s(weighed: Iterable[tuple[Descent, float]], lately_s: float) -> float:
    return sum(descent.per_s(lately_s) * weight for descent, weight in weighed)
