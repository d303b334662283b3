"""Clocks whose time the tests decide."""

from __future__ import annotations

import asyncio

import attrs


#: Where wall time starts in tests: 2025-01-01T00:00:00Z.
WALL_START_MS = 1_735_689_600_000


@attrs.frozen
class LoopClock:
    """The event loop's time; under `AutojumpLoop` that is virtual."""

    wall_start_ms: int = WALL_START_MS

    def wall_ms(self) -> int:
        return self.wall_start_ms + round(self.monotonic() * 1_000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def now() -> float:
    """Return the event loop's time."""
    return asyncio.get_running_loop().time()


@attrs.define
class ManualClock:
    """A clock that stands still until the test moves it; a sleep moves it too. It needs no event loop."""

    now_s: float = 0.0
    wall_start_ms: int = WALL_START_MS

    def wall_ms(self) -> int:
        return self.wall_start_ms + round(self.now_s * 1_000)

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass."""
        self.now_s += seconds
