"""
The pace of partitions that are far behind, inside a Python worker: what `core.pace` decides, applied and measured.

It outlives epochs, so that a new one does not begin from scratch.
"""

from __future__ import annotations

import asyncio
from typing import Final

from mm2py.core.pace import Pace
from mm2py.core.rates import refilled
from mm2py.pipeline.copy.partition import PartitionCopy


#: How often the pace is adapted.
_INTERVAL_S: Final = 0.25
#: One fetch requests at most the amount for this time, so that the target gets it evenly.
_SLICE_S: Final = 0.02
_SHORTEST_WAIT_S: Final = 0.001


class CatchUp:
    """The pace towards one target, of one copy task. Times are the event loop's."""

    def __init__(self, more_ms: float) -> None:
        """Let answers of the target take *more_ms* longer than those it gives when there is little to do."""
        self.more_ms = more_ms
        self.pace = Pace()
        #: The partitions of the epoch that are behind, and how long any of them was held back.
        self.behind: set[PartitionCopy] = set()
        self.held_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._began = self._refilled_at = self._loop.time()
        self._level = 0.0
        self._took_ms: list[float] = []
        self._used_bytes = 0
        self._was_held = False

    def begin(self) -> None:
        """Begin an epoch."""
        self.behind, self.held_s = set(), 0.0
        self._start_interval(self._loop.time())

    def _start_interval(self, now: float) -> None:
        self._began, self._took_ms, self._used_bytes, self._was_held = now, [], 0, False

    def answered(self, took_s: float) -> None:
        """Note how long the target took to answer a request."""
        self._took_ms.append(took_s * 1000)
        now = self._loop.time()
        passed_s = now - self._began
        if passed_s < _INTERVAL_S:
            return
        self.held_s += passed_s if self._was_held else 0.0
        used_bytes_per_s = self._used_bytes / passed_s
        self.pace = self.pace.after(
            self._took_ms, used_bytes_per_s=used_bytes_per_s, was_held=self._was_held, more_ms=self.more_ms, now=now
        )
        self._start_interval(now)

    def note(self, copy: PartitionCopy, records: int, size_bytes: int) -> None:
        """Count what a fetch brought of *copy*, and see whether as much is left: then it is behind."""
        fetching = copy.fetching
        end = fetching.last_stable_offset if fetching.last_stable_offset >= 0 else fetching.high_watermark
        left = end - fetching.position.offset
        if left > (0 if copy in self.behind else records):
            self.behind.add(copy)
        else:
            self.behind.discard(copy)
            return
        self._used_bytes += size_bytes
        self._level = self._refill() - size_bytes

    def hold_s(self) -> float:
        """Return how long nothing of what is behind may be fetched."""
        level = self._refill()
        if level >= 0:
            return 0.0
        self._was_held = True
        return max(_SHORTEST_WAIT_S, -level / self.pace.bytes_per_s)

    def slice_bytes(self) -> int:
        """Return what a fetch may request of one partition that is behind."""
        return int(self.pace.bytes_per_s * _SLICE_S / max(1, len(self.behind)))

    def _refill(self) -> float:
        now = self._loop.time()
        # No burst: what was not used is not made up for.
        self._level = min(0.0, refilled(self._level, self.pace.bytes_per_s, now - self._refilled_at))
        self._refilled_at = now
        return self._level
