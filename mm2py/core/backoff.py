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
