"""The daemon as a user starts it, watched through its log, ended by signals."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from mm2py.devkit.process import LoggedProcess, start_process
from tests.support.eventually import eventually, scaled


_ROOT = Path(__file__).parents[2]
_MODULE = "mm2py.cli.mirror_maker"
_DRAIN_LIMIT_S = 60.0

Event = dict[str, Any]


class Daemon:
    """
    One ``mm2py.cli.mirror_maker`` process, which is what ``scripts/connect-mirror-maker.py`` runs.

    It logs JSON, one event a line, because its output is not a terminal. `events` starts with this run.
    """

    def __init__(self, process: LoggedProcess, log_start: int) -> None:
        self._process = process
        self._log_start = self._read_to = log_start
        self._events: list[Event] = []
        self._status_file = _status_file(process.log_file)
        self._orphans: list[psutil.Process] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs, -9 after SIGKILL."""
        return self._process.exit_code

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    def log_text(self) -> str:
        """Return everything that this run has printed."""
        with self._process.log_file.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def log_tail(self, lines: int = 60) -> str:
        """Return the last lines that this run has printed."""
        return "\n".join(self.log_text().splitlines()[-lines:])

    def events(self, name: str | None = None) -> Iterator[Event]:
        """Return the events logged so far, those called *name* or all; lines that are not ours are left out."""
        self._read_on()
        return iter([event for event in self._events if name is None or event.get("event") == name])

    def _read_on(self) -> None:
        """Take in whole lines that have been added; the last one may still be half written."""
        with self._process.log_file.open("rb") as log:
            log.seek(self._read_to)
            added, newline, _ = log.read().rpartition(b"\n")
        self._read_to += len(added + newline)
        for line in added.splitlines():
            if line.startswith(b"{"):
                with suppress(ValueError):
                    self._events.append(json.loads(line))

    async def wait_for_event(
        self,
        name: str,
        *,
        within_s: float = 60.0,
        where: Callable[[Event], bool] = bool,
        **facts: object,
    ) -> Event:
        """Wait until an event of that name with these facts was logged; fail at once when the daemon has ended."""

        def found() -> Event | None:
            is_running = self.is_running
            for event in self.events(name):
                if where(event) and all(event.get(fact) == value for fact, value in facts.items()):
                    return event
            if not is_running:
                message = f"the daemon ended with {self.exit_code} and never logged {name}:\n{self.log_tail()}"
                raise RuntimeError(message)
            return None

        try:
            return await eventually(found, within_s=within_s, what=f"the daemon logs {name} {facts}")
        except AssertionError as error:
            message = f"{error}\n{self.log_tail()}"
            raise AssertionError(message) from error

    def flow_view(self, flow: str = "A->B") -> dict[str, Any]:
        """Return the view of a flow that the daemon wrote last, at most a second ago; empty before the first."""
        try:
            status = json.loads(self._status_file.read_text())
        except FileNotFoundError:
            return {}
        found: dict[str, Any] = next((view for view in status["flows"] if view["flow"] == flow), {})
        return found

    def partition_views(self, topic: str, flow: str = "A->B") -> dict[int, dict[str, Any]]:
        """Return the views of a topic's partitions in a flow."""
        views = self.flow_view(flow).get("partitions", ())
        return {view["source"]["partition"]: view for view in views if view["source"]["topic"] == topic}

    async def wait_for_positions(self, topic: str, flow: str, wanted: Sequence[int], *, within_s: float = 60.0) -> None:
        """Wait until a topic's partitions are mirrored up to these upstream offsets."""

        def there() -> bool:
            found = [view["position"] for view in self.partition_views(topic, flow).values()]
            assert found == list(wanted), f"positions are {found}"
            return True

        await eventually(there, within_s=within_s, what=f"{topic} is read to {wanted}")

    async def wait(self, *, within_s: float = _DRAIN_LIMIT_S) -> int:
        """Wait for its end; return the exit code."""
        try:
            return await asyncio.to_thread(self._process.wait, scaled(within_s))
        except TimeoutError as error:
            message = f"{error}\n{self.log_tail()}"
            raise AssertionError(message) from error

    async def sigterm(self, *, within_s: float = _DRAIN_LIMIT_S) -> int:
        """Ask it to drain and end, as an operator would; return the exit code."""
        return await self.send_signal(15, within_s=within_s)

    async def send_signal(self, number: int, *, within_s: float = _DRAIN_LIMIT_S) -> int:
        """Send a signal that ends it and wait; return the exit code."""
        self._process.signal(number)
        return await self.wait(within_s=within_s)

    async def sigterm_all(self, *, within_s: float = _DRAIN_LIMIT_S) -> int:
        """Send SIGTERM to it and to all that it started, as systemd does by default; return the exit code."""
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        return await self.wait(within_s=within_s)

    async def kill(self) -> None:
        """End the daemon's own process with SIGKILL. What it had started must notice by itself."""
        self._orphans = self.tree()[1:]
        await asyncio.to_thread(self._process.kill)

    def orphans(self) -> list[psutil.Process]:
        """Return what it had started when it was killed and still runs."""
        return still_running(self._orphans)

    def tree(self) -> list[psutil.Process]:
        """Return the daemon's process and all below it."""
        return process_tree(self.pid)

    def spark_workers(self) -> list[int]:
        """Return the process ids of the Python workers that run its Spark tasks."""
        return spark_workers(self.pid)


def process_tree(pid: int) -> list[psutil.Process]:
    """Return a process and all below it, none when it has ended."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def still_running(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return those that have not ended. One that waits for its parent to ask for its exit code has."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def spark_workers(pid: int) -> list[int]:
    """Return Spark's Python workers below a process: children of the Python daemon that an executor's Java started."""
    parents, names = {}, {}
    for process in process_tree(pid)[1:]:
        with suppress(psutil.NoSuchProcess):
            parents[process.pid], names[process.pid] = process.ppid(), process.name()

    def name(number: int | None) -> str:
        return names.get(number, "") if number else ""

    return sorted(
        number
        for number, parent in parents.items()
        if name(number).startswith("python")
        and name(parent).startswith("python")
        and name(parents.get(parent)) == "java"
    )


@asynccontextmanager
async def daemon(
    work_dir: Path,
    properties: str,
    *,
    clusters: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    name: str = "mm2",
) -> AsyncIterator[Daemon]:
    """
    Run the daemon with these settings; at the end of the block it is killed with all that it started.

    Runs of the same *work_dir* and *name* share a log file, one after the other, but not their events.
    """
    started = await asyncio.to_thread(_start, work_dir, properties, clusters, env or {}, name)
    try:
        yield started
    finally:
        await asyncio.to_thread(_end, started)


@asynccontextmanager
async def command(work_dir: Path, module: str, *arguments: str, name: str = "mm2") -> AsyncIterator[Daemon]:
    """Run a node by another of mm2py's commands, in *work_dir*; at the end of the block it is killed as above."""
    started = await asyncio.to_thread(_launch, work_dir, module, arguments, {}, name)
    try:
        yield started
    finally:
        await asyncio.to_thread(_end, started)


@contextmanager
def shared_daemon(work_dir: Path, properties: str) -> Iterator[Daemon]:
    """Run a daemon for fixtures that live longer than a test and its event loop."""
    started = _start(work_dir, properties, (), {}, "mm2")
    try:
        yield started
    finally:
        _end(started)


def _start(work_dir: Path, properties: str, clusters: tuple[str, ...], env: Mapping[str, str], name: str) -> Daemon:
    file = work_dir / f"{name}.properties"
    file.write_text(properties)
    return _launch(work_dir, _MODULE, [str(file), *(["--clusters", *clusters] if clusters else [])], env, name)


def _launch(work_dir: Path, module: str, arguments: Sequence[str], env: Mapping[str, str], name: str) -> Daemon:
    log_file = work_dir / f"{name}.log"
    _status_file(log_file).unlink(missing_ok=True)
    line = [sys.executable, "-m", module, "--status-file", str(_status_file(log_file)), *arguments]
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    log_start = log_file.stat().st_size if log_file.exists() else 0
    process = start_process("the daemon", line, log_file=log_file, env={"PYTHONPATH": path, **env}, cwd=work_dir)
    return Daemon(process, log_start)


def _status_file(log_file: Path) -> Path:
    return log_file.with_suffix(".status.json")


def _end(running: Daemon) -> None:
    """Kill the daemon and then, each by its own id, what it leaves behind."""
    below = [*running.tree()[1:], *running._orphans]
    running._process.kill()
    for process in below:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(below, timeout=10)
