"""What a node does in its process beside mirroring."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mm2py.cli import mirror_maker, running
from mm2py.cli.entry import hold_signals
from mm2py.cli.exit_code import ExitCode
from mm2py.cli.running import watch, write_status
from mm2py.cli.saved_files import stamps
from mm2py.clock import SystemClock
from mm2py.config.providers import Stamps
from mm2py.config.settings import MirrorSettings, load_settings
from mm2py.model.state import MirrorView
from mm2py.telemetry.events import StatusFileFailed, StatusFileRecovered
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock


def _without_threads(monkeypatch: pytest.MonkeyPatch, took_s: float = 0.0) -> None:
    """Have the loop run here what is for a thread, in so much time of its own clock."""

    async def run(function: Callable[..., object], *args: object) -> object:
        await asyncio.sleep(took_s)
        return function(*args)

    def started(_executor: object, *call: Any) -> asyncio.Future[object]:
        return asyncio.ensure_future(run(*call))

    monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", started)


async def test_a_status_file_that_cannot_be_written_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is removed while the daemon runs, for some seconds: one event says so, and one that this is over."""
    _without_threads(monkeypatch)
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


async def test_a_status_that_a_full_disk_takes_half_of_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that ends before there is room again would leave it for ever, under a name with its process id."""
    write_text = Path.write_text

    def fill(path: Path, text: str, **options: Any) -> NoReturn:
        write_text(path, text[:9], **options)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    _without_threads(monkeypatch)
    monkeypatch.setattr(Path, "write_text", fill)
    path, clock = tmp_path / "status.json", LoopClock()
    events = EventLog(clock)
    with suppress(TimeoutError):
        async with asyncio.timeout(2):
            await write_status(lambda: MirrorView(0, is_ready=True), path, clock, events)

    assert [event.error for event in events.of(StatusFileFailed)] == ["No space left on device"]
    assert list(os.scandir(tmp_path)) == []


@pytest.mark.parametrize(("took_s", "every_s"), [(0.01, 1.01), (0.1, 2.1), (0.5, 5.5)])
async def test_a_status_file_of_many_partitions_is_written_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took_s: float, every_s: float
) -> None:
    """Half of the time would be spent on it; but once it is older than ten seconds it means a hang."""
    _without_threads(monkeypatch, took_s)
    clock = LoopClock()
    looks: list[float] = []

    def look() -> MirrorView:
        looks.append(clock.monotonic())
        return MirrorView(0, is_ready=True)

    with suppress(TimeoutError):
        async with asyncio.timeout(20):
            await write_status(look, tmp_path / "status.json", clock, EventLog(clock))

    assert looks[1] - looks[0] == pytest.approx(every_s)


async def test_a_node_that_ends_while_its_status_is_written_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is in the midst of it then: the last status is neither mixed with that one nor replaced by it."""
    begun, may_go_on = threading.Event(), threading.Event()
    write_text = Path.write_text

    def slowly(path: Path, text: str, **options: Any) -> int:
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            may_go_on.wait()
        return write_text(path, text, **options)

    monkeypatch.setattr(Path, "write_text", slowly)
    path, clock = tmp_path / "status.json", LoopClock()
    views = (MirrorView(number, is_ready=True) for number in (1, 2))
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write_status(lambda: next(views), path, clock, EventLog(clock)))
        await asyncio.to_thread(begun.wait)
        writing.cancel()
        await asyncio.sleep(0)
        may_go_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()

    assert json.loads(path.read_text())["wall_ms"] == 2
    assert [it.name for it in os.scandir(tmp_path)] == [path.name]


def test_a_file_that_is_saved_while_it_is_loaded_is_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark and more are loaded between reading the file and the first look of `--watch`, for a second or two."""
    path = tmp_path / "mm2.properties"
    path.write_text("clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n")
    reloads: list[str] = []

    def load() -> MirrorSettings:
        settings = load_settings(path)
        path.write_text(path.read_text() + "A->B.topics = orders\n")
        return settings

    async def run_node(*_read: object, watched: Stamps, **_others: object) -> int:
        hold_signals(is_held=False)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await watch(watched, dict, lambda: reloads.append("reload"), SystemClock())
        return ExitCode.OK

    monkeypatch.setattr(running, "run_node", run_node)
    options = mirror_maker.make_parser().parse_args([str(path), "--watch"])

    assert mirror_maker.act(options, load, files=(path,)) == ExitCode.OK
    assert reloads == ["reload"]


async def test_a_file_that_the_settings_refer_to_is_watched_too(tmp_path: Path) -> None:
    """A secret is rotated: its file is saved, and the properties file is not. What is referred to later counts, too."""
    file, first, second = tmp_path / "mm2.properties", tmp_path / "first", tmp_path / "second"
    secret = "A.ssl.key.password = ${{{}}}\n"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
        "config.providers = file, dir\n" + secret.format(f"file:{first}:key")
    )
    first.write_text("key = one\n")
    second.write_text("two")
    read = [load_settings(file)]
    clock, reloads = LoopClock(), list[float]()

    def reload() -> None:
        reloads.append(clock.monotonic())
        read.append(load_settings(file))

    watching = asyncio.create_task(watch(stamps([file]), lambda: read[-1].provided, reload, clock))
    await clock.sleep(10.5)
    first.write_text("key = another\n")
    await clock.sleep(10)
    file.write_text(file.read_text() + secret.format(f"dir:{tmp_path}:second"))
    await clock.sleep(10)
    second.write_text("another")
    await clock.sleep(10)
    watching.cancel()

    assert reloads == [11, 21, 31]


@pytest.mark.parametrize(("pid", "held"), [(1, {signal.SIGHUP, signal.SIGTERM}), (2, {signal.SIGHUP})])
def test_what_is_held_back_while_a_node_loads(
    pid: int, held: set[signal.Signals], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel drops a SIGTERM that the first process of a container does not handle yet; others end at it."""
    monkeypatch.setattr(os, "getpid", lambda: pid)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        hold_signals(is_held=True)
        while_held = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        hold_signals(is_held=False)
        after = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    assert while_held - before == held
    assert after == before
