"""
How fast a backlog may be copied, so that others who use the target hardly notice.

The more a broker has to do, the longer it takes to answer any client. So the times that it takes to answer us say what
its other clients feel, but for the time in which a request waits for our own before it, which a broker takes one after
the other. As long as the longer ones of them are near the shortest of the last minute, the backlog is copied faster; if
they are not, more slowly. And no more is fetched than leaves, as the end of an epoch waits for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import attrs


#: Nothing is copied more slowly: a backlog that shrinks shows that the mirror works.
LEAST_BYTES_PER_S: Final = 256 * 1024.0
_FIRST_BYTES_PER_S: Final = 4 * 1024 * 1024.0
#: The most that one interval takes from the rate or adds to it, as a part of it.
_SLOWER: Final = 0.3
_FASTER: Final = 0.15
#: Above this rate an interval adds a smaller part, so that copy tasks that share a target tend to equal rates.
_FAIR_BYTES_PER_S: Final = 16 * 1024 * 1024.0
#: If less of the rate is used, something else limits the copying.
_BINDING: Final = 0.6
#: What an interval adds until answers are too late, and after it once the rate has grown so often while they were not
#: half as late.
_SEEKING: Final = 0.5
_GROWN_IN_A_ROW: Final = 4
_HARDLY_LATE: Final = 0.5
#: Above this part of what is allowed, late answers lower the rate: it settles where they take as much as growth adds.
_LATE: Final = 0.75
#: What is buffered may take so many times as long to leave as answers may be late, and less while the rate grows. If it
#: takes longer, less is fetched than leaves, so that the excess is gone in so long.
_QUEUED: Final = 2
_LITTLE_QUEUED: Final = 0.5
_DRAINED_IN_S: Final = 0.5
#: At least this part of what leaves is fetched.
_DRAINING: Final = 0.3
#: Of so many seconds the shortest time counts, in parts of so many.
_REMEMBERED_S: Final = 60.0
_PART_S: Final = 5.0


@attrs.frozen
class Answer:
    """How long a request took to be answered, and how much of that after the answer to the one before it."""

    took_ms: float
    served_ms: float

    def late_ms(self, base_ms: float) -> float:
        """Return how much longer than *base_ms* it took, own requests not counted that the broker had to take first."""
        return min(self.served_ms, self.took_ms - base_ms)


@attrs.frozen
class Interval:
    """What was seen in a part of a second."""

    answers: Sequence[Answer]
    used_bytes_per_s: float
    #: What was acknowledged, or given up.
    left_bytes_per_s: float = math.inf
    #: So much at least was fetched and had not left, all the time.
    queued_bytes: float = 0.0
    #: Whether anything was held back, so that the rate was what limited the copying.
    was_held: bool = True


@attrs.frozen
class Pace:
    """The rate at which a copy task copies what is behind, and what it rests on."""

    bytes_per_s: float = _FIRST_BYTES_PER_S
    #: The shortest times to an answer, in milliseconds, by parts of time.
    shortest: tuple[tuple[int, float], ...] = ()
    is_seeking: bool = True
    #: In how many intervals in a row answers were hardly late: after a few, something else had made them late.
    grown: int = 0

    @property
    def base_ms(self) -> float:
        """The time that an answer takes when there is little to do."""
        return min((ms for _, ms in self.shortest), default=0.0)

    def after(self, seen: Interval, *, more_ms: float, now: float) -> Pace:
        """
        Return the pace after an interval.

        Nine of ten answers may be *more_ms* later than the shortest of the last minute. While next to nothing is
        behind, they are late for other reasons: the next backlog starts from the rate of the last one, and soon finds
        its own.
        """
        if not seen.answers:
            return self
        known = attrs.evolve(self, shortest=_noted(self.shortest, min(one.took_ms for one in seen.answers), now))
        base_ms = known.base_ms
        if seen.used_bytes_per_s < LEAST_BYTES_PER_S and not seen.was_held:
            return attrs.evolve(known, is_seeking=True)
        queued_ms = 1000 * seen.queued_bytes / max(LEAST_BYTES_PER_S, seen.left_bytes_per_s) - base_ms
        too_much_ms = queued_ms - more_ms * _QUEUED
        if too_much_ms > 0:
            rate = seen.left_bytes_per_s * max(_DRAINING, 1 - too_much_ms / 1000 / _DRAINED_IN_S)
            rate = max(LEAST_BYTES_PER_S, min(self.bytes_per_s, rate))
            return attrs.evolve(known, bytes_per_s=rate, is_seeking=False, grown=0)
        is_binding = seen.was_held and seen.used_bytes_per_s >= self.bytes_per_s * _BINDING
        late_ms = sorted(one.late_ms(base_ms) for one in seen.answers)
        late = late_ms[len(late_ms) * 9 // 10] / more_ms
        may_grow = is_binding and queued_ms < more_ms * _LITTLE_QUEUED
        return known.adapted(late, seen.used_bytes_per_s, may_grow=may_grow)

    def adapted(self, late: float, used_bytes_per_s: float, *, may_grow: bool) -> Pace:
        """Return the pace after answers that were so *late*, by how late they may be."""
        rate = self.bytes_per_s
        grown = self.grown + 1 if late <= _HARDLY_LATE else 0
        is_seeking = late <= 1 and (self.is_seeking or grown > _GROWN_IN_A_ROW)
        more, less = 0.0, min(_SLOWER, (late - _LATE) / 2)
        if may_grow and less < _SLOWER:
            is_far = is_seeking and late <= _HARDLY_LATE
            more = rate * _SEEKING if is_far else min(rate, math.sqrt(rate * _FAIR_BYTES_PER_S)) * _FASTER
        if less > 0:
            # Hardly anything is used in an interval in which a large batch is paid off.
            rate = (rate if used_bytes_per_s < LEAST_BYTES_PER_S else min(rate, used_bytes_per_s)) * (1 - less)
        return attrs.evolve(self, bytes_per_s=max(LEAST_BYTES_PER_S, rate + more), is_seeking=is_seeking, grown=grown)


def _noted(shortest: tuple[tuple[int, float], ...], ms: float, now: float) -> tuple[tuple[int, float], ...]:
    part = int(now / _PART_S)
    kept = tuple((number, least) for number, least in shortest if part - _REMEMBERED_S / _PART_S < number < part)
    here = min([ms, *(least for number, least in shortest if number == part)])
    return *kept, (part, here)
