"""Watches whether the daemon's event loop is running, and whether it gets what it needs of the system."""

from __future__ import annotations

import asyncio
import math
import resource
from collections.abc import Callable
from typing import Any, Final

from mm2py.clock import Clock
from mm2py.pipeline.spark.patience import STOOD_STILL_S
from mm2py.telemetry.events import ConnectionsNotAccepted, DaemonStoodStill
from mm2py.telemetry.journal import EventLog


_BEAT_S: Final = 1.0
#: A shortage that has not been noticed for so long is another one.
_OVER_AFTER_S: Final = 60.0


async def watch_pulse(clock: Clock, events: EventLog) -> None:
    """Report, on waking, how long this process did nothing; until cancelled."""
    seen_at = clock.monotonic()
    while True:
        await clock.sleep(_BEAT_S)
        stood_still_s, seen_at = clock.monotonic() - seen_at - _BEAT_S, clock.monotonic()
        if stood_still_s >= STOOD_STILL_S:
            events.emit(DaemonStoodStill(stood_still_s))


def report_shortages(clock: Clock, events: EventLog) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """
    Return what takes a loop's errors as asyncio's own handler does, but reports once that no connection is accepted.

    asyncio prints that with a traceback for each place in the listener's queue, again each second: megabytes a minute.
    """
    noticed_at = -math.inf

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal noticed_at
        error = context.get("exception")
        if not isinstance(error, OSError) or "socket" not in context or "transport" in context:
            loop.default_exception_handler(context)
            return
        last, noticed_at = noticed_at, clock.monotonic()
        if noticed_at - last >= _OVER_AFTER_S:
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            events.emit(ConnectionsNotAccepted(error.strerror or str(error), most))

    return handle
