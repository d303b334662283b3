"""A node in this process: the mirror, REST, and what a signal or a saved file makes of them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import attrs

from mm2py.cli.command import error_line
from mm2py.cli.entry import hold_signals
from mm2py.cli.exit_code import ExitCode
from mm2py.cli.saved_files import stamps
from mm2py.clock import Clock, SystemClock
from mm2py.config.providers import Stamps
from mm2py.config.settings import MirrorSettings
from mm2py.connectors.supervise import leaves, supervise
from mm2py.daemon import MirrorMaker
from mm2py.errors import Mm2Error
from mm2py.herder.connect_worker import ConnectWorker
from mm2py.herder.replication_loops import judged
from mm2py.model.health import reasons_unhealthy, shown
from mm2py.model.state import MirrorView
from mm2py.model.view_json import to_json
from mm2py.rest.server import RestServer
from mm2py.telemetry.events import StatusFileFailed, StatusFileRecovered
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.levels import LogLevels
from mm2py.telemetry.logs import log_sink
from mm2py.telemetry.metrics import Metrics


#: How often the status file is written: with tens of thousands of partitions so rarely that it takes a twentieth of the
#: time, but never so rarely that it looks like that of a process that hangs.
_STATUS_EVERY_S, _STATUS_LEAST_OFTEN_S = 1.0, 5.0
_STATUS_PART = 1 / 20
_WATCH_EVERY_S = 1.0


async def run_node(
    settings: MirrorSettings,
    read: Callable[[], MirrorSettings],
    *,
    status_file: Path | None,
    watched: Stamps,
    has_terminal: bool,
    make_worker: Callable[[Clock, EventLog], ConnectWorker] | None,
) -> int:
    """Run a node with *settings* until it ends, and return the exit code; `mirror_maker.act` has the rest. It was
    started from a terminal if it *has_terminal*, and answers SIGHUP from now on.
    """
    clock = SystemClock()
    levels = LogLevels(settings.log_level)
    events = EventLog(clock, log_sink(log_format=settings.log_format, levels=levels), levels)
    worker = make_worker(clock, events) if make_worker is not None else None
    read_again = read if worker is None else lambda: judged(worker.read())
    mirror_maker = MirrorMaker(settings, clock=clock, events=events, read_again=read_again, worker=worker)
    loop = asyncio.get_running_loop()
    metrics = Metrics(events, partitions_max=settings.metrics_partitions_max, topics_max=settings.metrics_topics_max)
    server = RestServer(mirror_maker, clock=clock, events=events, metrics=metrics)
    mirror_maker.rest_address = lambda: server.rest.worker_id if settings.rest.listeners else ""

    def stop(reason: str) -> None:
        server.drain()
        mirror_maker.request_stop(reason)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    loop.add_signal_handler(signal.SIGHUP, functools.partial(_hang_up, mirror_maker, has_terminal=has_terminal))
    hold_signals(is_held=False)
    try:
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(write_status(mirror_maker.view, status_file, clock, events), name="status file"),
                tasks.create_task(
                    watch(watched, lambda: mirror_maker.provided, mirror_maker.request_reload, clock),
                    name="watch",
                ),
                # The mirror continues, whatever happens to this task.
                tasks.create_task(_serve(server, clock, events), name="rest"),
            ]
            await mirror_maker.run()
            for task in beside:
                task.cancel()
    except* Mm2Error as group:
        for line in dict.fromkeys(error_line(error) for error in leaves(group)):
            with contextlib.suppress(OSError):  # the exit code says it, too
                print(line, file=sys.stderr)
        return_code = ExitCode.NOT_STARTED
    else:
        return_code = ExitCode.FAILED if mirror_maker.has_failed else ExitCode.OK
    return return_code


async def _serve(server: RestServer, clock: Clock, events: EventLog) -> None:
    await supervise("rest", server.run, clock=clock, jitter=random.random, report=events.emit)


def _hang_up(mirror_maker: MirrorMaker, *, has_terminal: bool) -> None:
    """Reload the settings; if the terminal that it was started from is closed, shut down cleanly instead."""
    if has_terminal and not os.isatty(0):
        mirror_maker.request_stop(signal.SIGHUP.name)
    else:
        mirror_maker.request_reload()


async def watch(read: Stamps, provided: Callable[[], Stamps], reload: Callable[[], None], clock: Clock) -> None:
    """Call *reload* whenever one of the files was saved, or one that they refer to, which *provided* returns, was saved
    or appeared; *read* are the files' stamps from before they were read, and none if they are not to be watched.
    """
    known = dict(read)
    while known:
        known = {**provided(), **known}
        # While an editor replaces a file, it is missing for a moment.
        now = {path: stamp for path, stamp in stamps(known).items() if stamp is not None}
        if now.items() - known.items():
            known |= now
            reload()
        await clock.sleep(_WATCH_EVERY_S)


async def write_status(look: Callable[[], MirrorView], path: Path | None, clock: Clock, events: EventLog) -> None:
    """Write a snapshot of all flows about once a second, and once more at the end; replaced atomically. Report once
    that it cannot be written, and once that it can be again.
    """
    if path is None:
        return
    failed_at: float | None = None
    loop = asyncio.get_running_loop()
    try:
        while True:
            began = clock.monotonic()
            writing = loop.run_in_executor(None, _replace, path, _status(look()))
            try:
                error = await asyncio.shield(writing)
            finally:  # a node that ends meanwhile would write beside it, into the same file
                await asyncio.wait([writing])
            rest_s = (clock.monotonic() - began) / _STATUS_PART
            if error and failed_at is None:
                failed_at = clock.monotonic()
                events.emit(StatusFileFailed(str(path), error))
            elif not error and failed_at is not None:
                events.emit(StatusFileRecovered(str(path), clock.monotonic() - failed_at))
                failed_at = None
            await clock.sleep(min(max(_STATUS_EVERY_S, rest_s), _STATUS_LEAST_OFTEN_S))
    finally:
        _replace(path, _status(look()))


def _status(view: MirrorView) -> dict[str, object]:
    """Return the status file's content: a node's view, and what is wrong."""
    issues = reasons_unhealthy(view)
    view = attrs.evolve(view, flows=tuple(map(shown, view.flows)))
    return {**to_json(view), "is_healthy": not issues, "issues": issues}


def _replace(path: Path, content: object) -> str:
    """Replace a file's content; return why that failed, or nothing. A full disk must not stop a mirror."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # half of it would take room, and stay if this node ends
            fresh.unlink(missing_ok=True)
        return error.strerror or str(error)
    return ""
