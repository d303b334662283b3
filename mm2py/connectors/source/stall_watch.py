"""Reports topic-partitions that have been blocked for long, although each of them recovers by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mm2py.connectors.context import BackgroundLoop, SourceContext
from mm2py.connectors.source.group import SourceLife
from mm2py.core.source.stalls import Stall, follow
from mm2py.model.flow import TopicPartition
from mm2py.telemetry.events import PartitionsGoOn, PartitionsHeldUp


_LOOK_EVERY_S: Final = 5.0
_NAMED: Final = 10


class StallWatch(BackgroundLoop):
    """Watches the partitions of one flow, beside the copying."""

    name = "stall-watch"

    def __init__(self, context: SourceContext, stalls: dict[TopicPartition, Stall], life: SourceLife) -> None:
        """Create one; *stalls*, one for all lives of the source group, holds the blocked partitions."""
        self._flow = context.flow
        self._reach = context.reach
        self._clock = context.clock
        self._events = context.events
        self._stalls = stalls
        self._ledger = life.tasks.ledger

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_EVERY_S)
            if self._reach.is_complete:
                self._look()
            else:
                # An unreachable cluster is already reported; once it is back, each partition has its time to recover.
                self._know({source: it for source, it in self._stalls.items() if it.is_told})

    def _know(self, stalls: Mapping[TopicPartition, Stall]) -> None:
        self._stalls.clear()
        self._stalls.update(stalls)

    def _look(self) -> None:
        now = self._clock.monotonic()
        followed = follow(self._stalls, self._ledger.notable(beside=self._stalls), now=now)
        self._know(followed.stalls)
        for hint in dict.fromkeys(it.why.hint for it in followed.begun):
            some = [it for it in followed.begun if it.why.hint == hint]
            message = some[0].why.message
            self._events.emit(PartitionsHeldUp(self._flow, _names(some), len(some), _held_s(some, now), message, hint))
        if followed.over:
            over = followed.over
            self._events.emit(PartitionsGoOn(self._flow, _names(over), len(over), _held_s(over, now)))


def _names(stalls: Sequence[Stall]) -> tuple[str, ...]:
    return tuple(str(it.source) for it in stalls[:_NAMED])


def _held_s(stalls: Sequence[Stall], now: float) -> float:
    return max(now - it.since for it in stalls)
