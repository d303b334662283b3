"""
How fast a backlog may be copied, so that others who use the target hardly notice.

The more a broker has to do, the longer it takes to answer any client. So the times that it takes to answer us say
what its other clients feel. As long as the longer ones of them are near the shortest of the last minute, the backlog is
copied faster; if they are not, more slowly, until the shortest times are seen again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs


#: Nothing is copied more slowly: a backlog that shrinks shows that the mirror works.
LEAST_BYTES_PER_S: Final = 256 * 1024.0
_FIRST_BYTES_PER_S: Final = 4 * 1024 * 1024.0
_SLOWER: Final = 0.7
_FASTER: Final = 1.15
#: If less of the rate is used, something else limits the copying.
_BINDING: Final = 0.5
#: Until the first answer that is too late, and after it once so many intervals in a row have grown without one.
_SEEKING: Final = 1.5
_GROWN_IN_A_ROW: Final = 4
#: Of so many seconds the shortest time counts, in parts of so many.
_REMEMBERED_S: Final = 60.0
_PART_S: Final = 5.0


@attrs.frozen
class Pace:
    """The rate at which a copy task copies what is behind, and what it rests on."""

    bytes_per_s: float = _FIRST_BYTES_PER_S
    #: The shortest times to an answer, in milliseconds, by parts of time.
    shortest: tuple[tuple[int, float], ...] = ()
    is_seeking: bool = True
    #: How often it grew since answers were too late: after a few times something else had made them late.
    grown: int = 0

    @property
    def base_ms(self) -> float:
        """The time that an answer takes when there is little to do."""
        return min((ms for _, ms in self.shortest), default=0.0)

    def after(
        self, took_ms: Sequence[float], *, used_bytes_per_s: float, was_held: bool, more_ms: float, now: float
    ) -> Pace:
        """
        Return the pace after an interval in which requests *took_ms* to be answered.

        Nine of ten may take *more_ms* longer than the shortest of the last minute. The rate grows only if something
        *was_held*: otherwise it was not what limited the copying. While next to nothing is behind, answers are late for
        other reasons: the next backlog starts from the rate of the last one, and soon finds its own.
        """
        if not took_ms:
            return self
        ordered = sorted(took_ms)
        known = attrs.evolve(self, shortest=_noted(self.shortest, ordered[0], now))
        is_little = used_bytes_per_s < LEAST_BYTES_PER_S
        if is_little and not was_held:
            return attrs.evolve(known, is_seeking=True)
        if ordered[len(ordered) * 9 // 10] > known.base_ms + more_ms:
            slower = (self.bytes_per_s if is_little else min(self.bytes_per_s, used_bytes_per_s)) * _SLOWER
            return attrs.evolve(known, bytes_per_s=max(LEAST_BYTES_PER_S, slower), is_seeking=False, grown=0)
        if was_held and used_bytes_per_s >= self.bytes_per_s * _BINDING:
            is_seeking = self.is_seeking or self.grown >= _GROWN_IN_A_ROW
            faster = self.bytes_per_s * (_SEEKING if is_seeking else _FASTER)
            return attrs.evolve(known, bytes_per_s=faster, is_seeking=is_seeking, grown=self.grown + 1)
        return known


def _noted(shortest: tuple[tuple[int, float], ...], ms: float, now: float) -> tuple[tuple[int, float], ...]:
    part = int(now / _PART_S)
    kept = tuple((number, least) for number, least in shortest if part - _REMEMBERED_S / _PART_S < number < part)
    here = min([ms, *(least for number, least in shortest if number == part)])
    return *kept, (part, here)
