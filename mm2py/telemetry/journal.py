"""
Where events go: a ring in memory, counters by event name, and the log.

Tests read the ring; the counters are plain numbers for the metrics.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import TypeVar

import attrs

from mm2py.clock import Clock
from mm2py.telemetry.events import Event
from mm2py.telemetry.levels import LogLevels


E = TypeVar("E", bound=Event)

#: Number of events kept.
RING_EVENTS = 2_000


@attrs.frozen
class LogEntry:
    """An event and when it happened."""

    wall_ms: int
    event: Event


class EventLog:
    """Receives every event of the daemon, in order. Used from the event loop's thread only."""

    def __init__(
        self, clock: Clock, sink: Callable[[Event], None] = lambda _event: None, levels: LogLevels | None = None
    ) -> None:
        #: From which level on the log has events.
        self.levels = levels or LogLevels()
        self.counts: Counter[str] = Counter()
        self._clock = clock
        self._sinks = [sink]
        self._ring: deque[LogEntry] = deque(maxlen=RING_EVENTS)

    def emit(self, event: Event) -> None:
        """Keep *event*, count it, and write its log line."""
        self._ring.append(LogEntry(self._clock.wall_ms(), event))
        self.counts[event.name] += 1
        for sink in self._sinks:
            sink(event)

    def set_level(self, name: str, level: str) -> tuple[str, ...]:
        """Log from *level* on what a logger has, and all below it; return their names."""
        return self.levels.set(name, level, at_ms=self._clock.wall_ms())

    def attach(self, sink: Callable[[Event], None]) -> None:
        """Pass every later event to *sink* too."""
        self._sinks.append(sink)

    def of(self, kind: type[E]) -> tuple[E, ...]:
        """Return the kept events of one *kind*, oldest first."""
        return tuple(entry.event for entry in self._ring if isinstance(entry.event, kind))

    def __iter__(self) -> Iterator[LogEntry]:
        return iter(tuple(self._ring))
