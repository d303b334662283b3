"""The disk with temporary files is full, or cleaned: that stops nothing that runs, and is explained."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from mm2py.model.flow import Flow
from mm2py.pipeline import epoch_jobs
from mm2py.pipeline.spark import internals, scratch, session
from mm2py.pipeline.spark.scratch import NoScratchError
from mm2py.pipeline.spark.session import SparkHost, SparkStartError
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have temporary files in a folder of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def _is_full(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _is_read_only(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def _host() -> SparkHost:
    clock = LoopClock()
    return SparkHost({}, copy_tasks=1, clock=clock, events=EventLog(clock))


def test_a_node_that_has_no_room_for_its_key_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder can be made on a full disk, a file with something in it cannot; what was made is gone again."""
    monkeypatch.setattr(scratch, "make_key_file", _is_full)
    with pytest.raises(NoScratchError, match="No space left"):
        _host()

    assert list(folder.iterdir()) == []


async def test_spark_without_room_for_its_files_did_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyspark makes a file through which the JVM tells its port: copy tasks pause, and try again."""
    monkeypatch.setattr(session, "launch_gateway", _is_full)
    host = _host()
    with pytest.raises(SparkStartError, match="No space left"):
        session._open(host.settings, host.scratch, lambda _line: None, threading.Event())
    await host.stop(within_s=1)


async def test_an_epoch_that_no_file_can_end_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker may hear of it in another way; the flow that wants it to end goes on."""
    monkeypatch.setattr(Path, "touch", _is_full)
    asked: list[str] = []
    job: Any = SimpleNamespace(end_epoch=lambda: asked.append("end"))
    plan: Any = None
    outcome: Any = asyncio.get_running_loop().create_future()
    epoch_jobs._end_early(epoch_jobs._Running(plan, Path("epoch-1.stop"), job, outcome))

    assert asked == ["end"]


async def test_nothing_that_cannot_be_removed_stops_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk with errors is made read-only: an epoch ends as ever, and so does Spark, on SIGTERM or for a new one."""
    host, clock = _host(), LoopClock()
    runner = epoch_jobs.EpochRunner(host, clock, EventLog(clock))
    asked: list[str] = []
    job: Any = SimpleNamespace(end=lambda: asked.append("end"), rest=lambda _s: asked.append("rest"))
    plan: Any = None
    outcome: Any = asyncio.get_running_loop().create_future()
    outcome.set_result(None)
    monkeypatch.setattr(Path, "unlink", _is_read_only)
    runner._ended((Flow("A", "B"), 0), epoch_jobs._Running(plan, Path("epoch-1.stop"), job, outcome), outcome)
    context: Any = SimpleNamespace(_accumulatorServer=SimpleNamespace(shutdown=_is_read_only))
    internals.end_accumulators(context)
    runner.close()
    monkeypatch.undo()
    await host.stop(within_s=1)

    assert len(asked) == 1


async def test_spark_whose_files_were_removed_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something cleans /tmp: Spark would fail each of its next jobs, for as long as it lives."""
    host = _host()
    first, second = SimpleNamespace(is_alive=True), SimpleNamespace(is_alive=True)
    started, ended = iter([first, second]), []

    async def start() -> Any:
        host._scratch.clear()
        return next(started)

    async def discard(it: Any) -> None:
        ended.append(it)

    monkeypatch.setattr(host, "_start", start)
    monkeypatch.setattr(host, "_discard", discard)
    before = [await host.session(), await host.session()]
    shutil.rmtree(host.scratch)
    after = [await host.session(), await host.session()]
    host._scratch.remove()

    assert (before, after, ended) == ([first, first], [second, second], [first])
