"""What the daemon says when it stood still, or cannot accept a connection."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from contextlib import suppress
from typing import NoReturn

import pytest

from mm2py.clock import SystemClock
from mm2py.herder import pulse
from mm2py.herder.pulse import report_shortages, watch_pulse
from mm2py.telemetry.events import ConnectionsNotAccepted, DaemonStoodStill
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import ManualClock
from tests.support.eventually import eventually


class PausedClock(ManualClock):
    """A clock whose machine was paused during some of its sleeps."""

    def __init__(self, pauses: list[float]) -> None:
        super().__init__()
        self.pauses = pauses

    async def sleep(self, seconds: float) -> None:
        if not self.pauses:
            raise asyncio.CancelledError
        await super().sleep(seconds + self.pauses.pop(0))


async def test_a_pause_is_told_once_and_a_busy_loop_is_not() -> None:
    """Seconds late are a busy machine; a minute late, the process was suspended."""
    clock = PausedClock([0.0, 0.3, 4.0, 60.0, 0.0])
    events = EventLog(clock)
    with suppress(asyncio.CancelledError):
        await watch_pulse(clock, events)

    assert [event.stood_still_s for event in events.of(DaemonStoodStill)] == [60.0]


def test_a_blocked_event_loop_is_told_when_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Something in this process blocks the loop, here for half a second where a tenth is allowed.

    A busy machine may do so too, before and after that.
    """

    async def block() -> EventLog:
        clock = SystemClock()
        events = EventLog(clock)
        watch = asyncio.create_task(watch_pulse(clock, events))
        await asyncio.sleep(0.05)
        time.sleep(0.5)  # noqa: ASYNC251 - that is what is tried
        await asyncio.sleep(0.05)
        watch.cancel()
        return events

    monkeypatch.setattr(pulse, "_BEAT_S", 0.02)
    monkeypatch.setattr(pulse, "STOOD_STILL_S", 0.1)
    with asyncio.Runner() as runner:
        told = runner.run(block()).of(DaemonStoodStill)

    assert max(event.stood_still_s for event in told) >= 0.4


class _Full(socket.socket):
    """A listener of a process that has as many files open as it may."""

    def accept(self) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_connections_that_cannot_be_accepted_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio fails at once for each place in the queue, and prints a traceback each time; other errors it prints."""

    async def connect() -> tuple[ConnectionsNotAccepted, ...]:
        loop, events = asyncio.get_running_loop(), EventLog(SystemClock())
        loop.set_exception_handler(report_shortages(SystemClock(), events))
        with _Full() as listener:
            listener.bind(("127.0.0.1", 0))
            async with await asyncio.start_server(lambda *_: None, sock=listener):
                with socket.create_connection(listener.getsockname()):
                    await eventually(lambda: any(events), within_s=10, what="it is reported")
        loop.call_exception_handler({"message": "another error"})
        return events.of(ConnectionsNotAccepted)

    with asyncio.Runner() as runner:
        (told,) = runner.run(connect())

    assert told.error == "Too many open files"
    assert told.open_files_max
    assert [record.getMessage() for record in caplog.records] == ["another error"]
