"""
The only file that reads time or sleeps.

Everything else is handed a `Clock`: wall time for record timestamps, monotonic time for durations. Tests hand in
one whose time they move themselves.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What the rest of the package may ask about time."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, as Kafka stamps records."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let *seconds* pass."""
        ...


class SystemClock:
    """The machine's own clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
