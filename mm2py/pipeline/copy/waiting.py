"""The partitions that a fetcher leaves out for now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.pipeline.copy.throttle import Throttle


#: How long the broker may hold a fetch back while a partition is left out only because its share of the buffer is
#: full: it must come back soon after there is room.
WAIT_WHILE_PAUSED_MS: Final = 20

#: How often to look for room when every partition of a broker has its share of the buffer full.
_PAUSED_POLL_S: Final = 0.003


class WaitingPartitions:
    """
    Those of one fetcher that wait, for room in the buffer, for a limit to allow them more, or for their turn.

    *resume* has a partition fetched again if it may be.
    """

    def __init__(self, throttle: Throttle, resume: Callable[[PartitionCopy], None]) -> None:
        self._throttle = throttle
        self._resume = resume
        #: In the order in which they are fetched again.
        self._paused: dict[PartitionCopy, None] = {}
        #: Those that are behind, while others have their turn.
        self._queued: dict[PartitionCopy, None] = {}

    def add(self, copy: PartitionCopy) -> None:
        """Leave *copy* out until `resume` finds that it may be fetched again."""
        copy.fetching.is_paused = True
        where = self._queued if self._throttle.waits_for_turn(copy) else self._paused
        where[copy] = None

    def release(self) -> None:
        """Have those fetched again that may be."""
        for copy in self._throttle.turns() if self._queued else ():
            if copy in self._queued:
                del self._queued[copy]
                self._paused[copy] = None
        for copy in [c for c in self._paused if not c.fetching.is_paused or c.has_ended]:
            del self._paused[copy]
        for copy in list(self._paused):
            self._resume(copy)
            if not copy.fetching.is_paused:
                del self._paused[copy]

    def longest_wait_ms(self, longest_ms: int) -> int:
        """Return how long a broker may hold a fetch of the others back, which is *longest_ms* if none waits."""
        if self._paused:
            release_ms = int(self._throttle.release_s(self._paused) * 1000) + 1
            return min(longest_ms, max(WAIT_WHILE_PAUSED_MS, release_ms))
        return min(longest_ms, WAIT_WHILE_PAUSED_MS) if self._queued else longest_ms

    async def pause(self, deadline: float) -> bool:
        """Wait until it is worth another look, or until *deadline*; return at once, and False, if none waits."""
        if not self._paused and not self._queued:
            return False
        seconds = WAIT_WHILE_PAUSED_MS / 1000
        if self._paused:
            seconds = max(_PAUSED_POLL_S, self._throttle.release_s(self._paused))
        await self._throttle.pause(seconds, deadline)
        return True
