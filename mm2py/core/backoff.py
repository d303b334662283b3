"""How long to wait before the next attempt. Randomness is passed in, so that the arithmetic can be tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs


@attrs.frozen
class Backoff:
    """Pauses that double from `first_s` up to `longest_s`, each varied by at most `spread` of itself, so that tasks
    that failed together do not retry together.
    """

    first_s: float
    longest_s: float
    spread: float = 0.2

    def pause_s(self, failures: int, jitter: float) -> float:
        """Return the pause after *failures* failures in a row; *jitter* is a number from 0 up to 1."""
        if failures < 1:
            return 0.0
        doubled = self.first_s * 2.0 ** min(failures - 1, 32)
        return min(doubled, self.longest_s) * (1.0 + self.spread * (2.0 * jitter - 1.0))

    def pauses(self, jitter: Callable[[], float]) -> Iterator[float]:
        """Return an endless iterator of pauses."""
        failures = 0
        while True:
            failures += 1
            yield self.pause_s(failures, jitter())


@attrs.define
class Contention:
    """
    For how long something that another one takes from us is left to it: longer each time, until it is not taken again
    within `forgotten_s`.
    """

    backoff: Backoff
    forgotten_s: float
    #: How often it is fetched back at once.
    free: int = 0
    #: Until when it is left to the other one.
    until: float = float("-inf")
    _losses: int = attrs.field(default=0, init=False)

    def lose(self, now: float, jitter: float) -> float:
        """Note that it was taken at *now*, and return the pause in seconds."""
        if now > self.until + self.forgotten_s:
            self._losses = 0
        self._losses += 1
        pause_s = self.backoff.pause_s(self._losses - self.free, jitter)
        self.until = now + pause_s
        return pause_s

    def left_s(self, now: float) -> float:
        """Return for how long it is still left to the other one."""
        return max(0.0, self.until - now)
