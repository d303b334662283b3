"""Watches whether the daemon's event loop is running."""

from __future__ import annotations

from typing import Final

from mm2py.clock import Clock
from mm2py.pipeline.spark.patience import STOOD_STILL_S
from mm2py.telemetry.events import DaemonStoodStill
from mm2py.telemetry.journal import EventLog


_BEAT_S: Final = 1.0


async def watch_pulse(clock: Clock, events: EventLog) -> None:
    """Report, on waking, how long this process did nothing; until cancelled."""
    seen_at = clock.monotonic()
    while True:
        await clock.sleep(_BEAT_S)
        stood_still_s, seen_at = clock.monotonic() - seen_at - _BEAT_S, clock.monotonic()
        if stood_still_s >= STOOD_STILL_S:
            events.emit(DaemonStoodStill(stood_still_s))
