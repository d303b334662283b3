"""What a node does in its process beside mirroring."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mm2py.cli.running import write_status
from mm2py.model.state import MirrorView
from mm2py.telemetry.events import StatusFileFailed, StatusFileRecovered
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock


async def _here(function: Callable[..., object], *args: object) -> object:
    """Do what `asyncio.to_thread` does, in no time of the loop's clock."""
    return function(*args)


async def test_a_status_file_that_cannot_be_written_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is removed while the daemon runs, for some seconds: one event says so, and one that this is over."""
    monkeypatch.setattr(asyncio, "to_thread", _here)
    path = tmp_path / "run" / "status.json"
    path.parent.mkdir()
    clock = LoopClock()
    events = EventLog(clock)
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write_status(lambda: MirrorView(0, is_ready=True), path, clock, events))
        await asyncio.sleep(1.5)
        written = json.loads(path.read_text())
        path.unlink()
        path.parent.rmdir()
        await asyncio.sleep(5)
        path.parent.mkdir()
        await asyncio.sleep(2)
        writing.cancel()

    assert written["flows"] == []
    assert events.of(StatusFileFailed) == (StatusFileFailed(str(path), os.strerror(2)),)
    assert events.of(StatusFileRecovered) == (StatusFileRecovered(str(path), pytest.approx(5.0)),)
    assert path.exists()
