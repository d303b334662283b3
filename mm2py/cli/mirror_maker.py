"""``connect-mirror-maker.py FILE [--clusters T1 T2 …]``: run a node, like Java MirrorMaker's script of that name."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import os
import random
import signal
import sys
import termios
from collections.abc import Callable, Sequence
from pathlib import Path

import mm2py
from mm2py.cli.checking import refused_here, refused_transforms
from mm2py.cli.command import Parser, printed
from mm2py.cli.exit_code import ExitCode
from mm2py.cli.explaining import explained, find_flows
from mm2py.clock import Clock, SystemClock
from mm2py.config.settings import ConfigError, MirrorSettings, load_settings
from mm2py.daemon import MirrorMaker
from mm2py.errors import Mm2Error
from mm2py.flow.control.connect_worker import ConnectWorker
from mm2py.flow.control.replication_loops import judged
from mm2py.flow.supervise import leaves, supervise
from mm2py.flow.task_group import RESTART_PAUSES
from mm2py.model.health import reasons_unhealthy
from mm2py.model.state import MirrorView, to_json
from mm2py.rest.server import RestServer
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.logs import log_sink
from mm2py.telemetry.metrics import Metrics


_STATUS_EVERY_S = 1.0
_WATCH_EVERY_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments; ``mm2py mirror`` takes the same."""
    parser.add_argument("file", type=Path, metavar="mm2.properties", help="MirrorMaker 2's properties file")
    parser.add_argument(
        "--clusters", nargs="+", default=[], metavar="ALIAS", help="run only the flows whose target is one of these"
    )
    add_common_arguments(parser)


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options shared by all commands that run a node."""
    parser.add_argument("--validate", action="store_true", help="print every problem of the file, and run nothing")
    parser.add_argument(
        "--strict", action="store_true", help="refuse a file with notes, such as unknown keys, as if they were problems"
    )
    parser.add_argument(
        "--explain",
        nargs="?",
        const="",
        metavar="A->B",
        help="print the effective value of every key and where it comes from, for one flow or all, and run nothing",
    )
    parser.add_argument("--changed", action="store_true", help="explain only values that differ from their default")
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        type=override,
        metavar="KEY=VALUE",
        help="a line that is treated as the file's last one; may be given several times",
    )
    parser.add_argument(
        "--watch", action="store_true", help="apply changes of the file as soon as it is saved; SIGHUP does so once"
    )
    parser.add_argument(
        "--status-file",
        type=Path,
        metavar="PATH",
        help="write the state of the flows to this file once a second, as JSON",
    )


def override(text: str) -> tuple[str, str]:
    """Parse ``KEY=VALUE``. Raise ArgumentTypeError if it is something else."""
    key, sign, value = text.partition("=")
    if not key.strip() or not sign:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, found {key!r}")
    return key.strip(), value.strip()


def make_parser(prog: str = "connect-mirror-maker") -> argparse.ArgumentParser:
    parser = Parser(prog=prog, description="Mirror topics between Kafka clusters.")
    add_arguments(parser)
    parser.add_argument("--version", action="version", version=f"mm2py {mm2py.__version__}")
    return parser


def main(arguments: Sequence[str] | None = None, *, prog: str = "connect-mirror-maker") -> int:
    return execute(make_parser(prog).parse_args(arguments))


def execute(options: argparse.Namespace) -> int:
    """Run what the parsed *options* ask for, and return the exit code."""
    return act(
        options,
        lambda: load_settings(options.file, targets=options.clusters, overrides=dict(options.override)),
        files=(options.file,),
    )


def act(
    options: argparse.Namespace,
    load: Callable[[], MirrorSettings],
    *,
    files: Sequence[Path],
    make_worker: Callable[[Clock, EventLog], ConnectWorker] | None = None,
) -> int:
    """Validate, explain or run what *load* reads from *files*; return the exit code. With *make_worker* the node is a
    Connect worker, which then reads its settings itself.
    """

    def read() -> MirrorSettings:
        settings = judged(load())
        if options.strict and settings.notes:
            raise ConfigError(settings.notes)
        return settings

    try:
        settings = read()
    except ConfigError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        return ExitCode.FAILED
    if options.explain is not None or options.changed:
        return printed(lambda: _explain(settings, options.explain or "", only_changed=options.changed))
    if options.validate:
        return printed(lambda: _validate(settings, files))
    watched = files if options.watch else ()
    running = _run(settings, read, status_file=options.status_file, watched=watched, make_worker=make_worker)
    return asyncio.run(running)


def _explain(settings: MirrorSettings, name: str, *, only_changed: bool) -> int:
    flows = find_flows(settings, name)
    if flows is None:
        known = ", ".join(str(flow.flow) for flow in settings.flows)
        print(f"--explain: no flow {name}; there are {known}", file=sys.stderr)
        return ExitCode.BAD_ARGUMENTS
    for line in explained(settings, flows, only_changed=only_changed):
        print(line)
    for note in settings.notes:
        print(f"note: {note}")
    return ExitCode.OK


async def _run(
    settings: MirrorSettings,
    read: Callable[[], MirrorSettings],
    *,
    status_file: Path | None,
    watched: Sequence[Path],
    make_worker: Callable[[Clock, EventLog], ConnectWorker] | None,
) -> int:
    clock = SystemClock()
    events = EventLog(clock, log_sink(log_format=settings.log_format, log_level=settings.log_level))
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
    loop.add_signal_handler(signal.SIGHUP, functools.partial(_hang_up, mirror_maker, has_terminal=_has_terminal()))
    try:
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(_write_status(mirror_maker.view, status_file, clock), name="status file"),
                tasks.create_task(_watch(watched, mirror_maker, clock), name="watch"),
                # The mirror continues, whatever happens to this task.
                tasks.create_task(_serve(server, clock, events), name="rest"),
            ]
            await mirror_maker.run()
            for task in beside:
                task.cancel()
    except* Mm2Error as group:
        for line in dict.fromkeys(_line(error) for error in leaves(group)):
            print(line, file=sys.stderr)
        return_code = ExitCode.NOT_STARTED
    else:
        return_code = ExitCode.FAILED if mirror_maker.has_failed else ExitCode.OK
    return return_code


async def _serve(server: RestServer, clock: Clock, events: EventLog) -> None:
    await supervise("rest", server.run, clock=clock, backoff=RESTART_PAUSES, jitter=random.random, report=events.emit)


def _hang_up(mirror_maker: MirrorMaker, *, has_terminal: bool) -> None:
    """Reload the settings; if the terminal that it was started from is closed, shut down cleanly instead."""
    if has_terminal and not _has_terminal():
        mirror_maker.request_stop(signal.SIGHUP.name)
    else:
        mirror_maker.request_reload()


def _has_terminal() -> bool:
    try:
        termios.tcgetattr(0)
    except (termios.error, OSError):
        return False
    return True


async def _watch(paths: Sequence[Path], mirror_maker: MirrorMaker, clock: Clock) -> None:
    """Reload the settings whenever one of the files was saved."""
    known = {path: _stamp(path) for path in paths}
    while paths:
        await clock.sleep(_WATCH_EVERY_S)
        # While an editor replaces a file, it is missing for a moment.
        now = {path: stamp for path in paths if (stamp := _stamp(path)) is not None}
        if now.items() - known.items():
            known |= now
            mirror_maker.request_reload()


def _validate(settings: MirrorSettings, files: Sequence[Path]) -> int:
    """Print what cannot be used, or notes; return the exit code."""
    refused = refused_here(settings)
    try:
        refused += asyncio.run(refused_transforms(settings))
    except Mm2Error as error:
        print(_line(error), file=sys.stderr)
        return ExitCode.FAILED
    if refused:
        for problem in refused:
            print(problem, file=sys.stderr)
        return ExitCode.FAILED
    for note in settings.notes:
        print(f"note: {note}")
    flows = ", ".join(str(flow.flow) for flow in settings.flows if flow.is_enabled)
    others = ", ".join(str(flow.flow) for flow in settings.flows if not flow.is_enabled)
    only = f"; only heartbeats: {others}" if others else ""
    print(f"{', '.join(map(str, files))}: no problems; flows: {flows or 'none'}{only}")
    return ExitCode.OK


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _line(error: BaseException) -> str:
    hint = error.hint if isinstance(error, Mm2Error) else ""
    return f"mm2py: {error}" + (f"; {hint}" if hint else "")


async def _write_status(look: Callable[[], MirrorView], path: Path | None, clock: Clock) -> None:
    """Write a snapshot of all flows once a second, and once more at the end; replaced atomically."""
    if path is None:
        return
    try:
        while True:
            await asyncio.to_thread(_replace, path, _status(look()))
            await clock.sleep(_STATUS_EVERY_S)
    finally:
        _replace(path, _status(look()))


def _status(view: MirrorView) -> dict[str, object]:
    """Return the status file's content: a node's view, and what is wrong."""
    issues = reasons_unhealthy(view)
    return {**to_json(view), "is_healthy": not issues, "issues": issues}


def _replace(path: Path, content: object) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):  # a full disk must not stop a mirror
        fresh.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        fresh.replace(path)


if __name__ == "__main__":
    sys.exit(main())
