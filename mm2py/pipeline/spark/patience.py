"""
Waiting for what runs in other processes, with a bound that counts only time in which this process was awake.

A process that was stopped, a machine that was paused, or a blocked event loop finds on waking that every bound has
passed, although whatever it waits for stood still with it, or was done long ago and is about to say so.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from mm2py.clock import Clock


#: A loop that checks the clock every second was suspended if this much time has passed.
STOOD_STILL_S: Final = 5.0
#: What is left, at least, of every bound after that.
_GRACE_S: Final = 10.0
_TICK_S: Final = 1.0


class Patience:
    """A bound of *seconds*; `is_over` is to be asked every second or more often."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._left_s = seconds
        self._clock = clock
        self._asked_at = clock.monotonic()

    @property
    def left_s(self) -> float:
        return max(0.0, self._left_s)

    def is_over(self) -> bool:
        """Whether the bound has passed."""
        now = self._clock.monotonic()
        passed_s, self._asked_at = now - self._asked_at, now
        if passed_s < STOOD_STILL_S:
            self._left_s -= passed_s
        else:
            self._left_s = max(self._left_s, _GRACE_S)
        return self._left_s <= 0


async def done_within(job: asyncio.Future[Any], seconds: float, clock: Clock) -> bool:
    """Wait for *job*, which goes on whatever happens here; whether it is done once *seconds* have passed."""
    patience = Patience(seconds, clock)
    while not job.done() and not patience.is_over():
        await asyncio.wait({job}, timeout=min(_TICK_S, patience.left_s))
    return job.done()
