"""How long, and how often, something that brokers answered with an error is tried again."""

from __future__ import annotations

from mm2py.clock import Clock
from mm2py.wire.error_codes import ErrorCode, is_retriable


_PAUSE_S = 0.1
_PAUSE_MAX_S = 1.0

#: How long a topic that the brokers do not know may still be one whose creation has not spread.
_UNKNOWN_TOPIC_S = 3.0
_UNKNOWN_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def may_last(code: int) -> bool:
    """Whether an error *code* that was waited out may be there for hours: a broker is down, or a disk."""
    return is_retriable(code) and code not in _UNKNOWN_TOPIC


class Patience:
    """Lasts for *limit_s* from its beginning, or from the last progress; pauses grow meanwhile."""

    def __init__(self, clock: Clock, limit_s: float) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._started = clock.monotonic()
        self._pause_s = _PAUSE_S

    def renew(self) -> None:
        """Note progress."""
        self._started = self._clock.monotonic()
        self._pause_s = _PAUSE_S

    def is_over_for(self, code: int) -> bool:
        """Whether an error *code* has to be accepted: it is final, or lasts too long."""
        if not is_retriable(code):
            return True
        limit_s = min(self._limit_s, _UNKNOWN_TOPIC_S) if code in _UNKNOWN_TOPIC else self._limit_s
        return self._clock.monotonic() - self._started >= limit_s

    async def pause(self) -> None:
        """Wait a little before the next attempt, longer each time."""
        await self._clock.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, _PAUSE_MAX_S)
