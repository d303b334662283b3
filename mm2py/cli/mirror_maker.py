"""``connect-mirror-maker.py FILE [--clusters T1 T2 …]``: run a node, like Java MirrorMaker's script of that name."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

import mm2py
from mm2py.cli.checking import needs_spark, refused_here
from mm2py.cli.command import drop_unwritten, error_line, print_refused, printed
from mm2py.cli.entry import hold_signals
from mm2py.cli.exit_code import ExitCode
from mm2py.cli.explaining import explained, explained_json, find_flows
from mm2py.cli.parsers import Parser, add_json
from mm2py.cli.saved_files import stamps
from mm2py.cli.sheets import show_json
from mm2py.clock import Clock
from mm2py.config.settings import ConfigError, MirrorSettings, Problem, load_settings
from mm2py.errors import Mm2Error
from mm2py.herder.replication_loops import judged


if TYPE_CHECKING:
    from mm2py.herder.connect_worker import ConnectWorker
    from mm2py.telemetry.journal import EventLog


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
    add_json(parser, "what --validate or --explain find, as JSON")
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
        help="write the state of the flows to this file about once a second, as JSON",
    )
    parser.add_argument("--version", action="version", version=f"mm2py {mm2py.__version__}")


def override(text: str) -> tuple[str, str]:
    """Parse ``KEY=VALUE``. Raise ArgumentTypeError if it is something else."""
    key, sign, value = text.partition("=")
    if not key.strip() or not sign:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, found {key!r}")
    return key.strip(), value.strip()


def make_parser(prog: str = "connect-mirror-maker") -> argparse.ArgumentParser:
    parser = Parser(prog=prog, description="Mirror topics between Kafka clusters.")
    parser.add_argument("file", type=Path, metavar="mm2.properties", help="MirrorMaker 2's properties file")
    parser.add_argument(
        "--clusters", nargs="+", default=[], metavar="ALIAS", help="run only the flows whose target is one of these"
    )
    add_common_arguments(parser)
    return parser


def main(arguments: Sequence[str] | None = None, *, prog: str = "connect-mirror-maker") -> int:
    options = make_parser(prog).parse_args(arguments)
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

    has_terminal, explains = os.isatty(0), options.explain is not None or options.changed
    if explains or options.validate:
        hold_signals(is_held=False)
    elif options.json:
        print("--json needs --validate or --explain", file=sys.stderr)
        return ExitCode.BAD_ARGUMENTS

    def read() -> MirrorSettings:
        settings = judged(load())
        if options.strict and settings.notes:
            raise ConfigError(settings.notes)
        return settings

    watched = stamps(files if options.watch else ())
    try:
        settings = read()
    except ConfigError as error:
        return printed(partial(_refuse, files, error.problems, error.notes, is_json=options.json))
    if explains:
        return printed(lambda: _explain(settings, options, files))
    if options.validate:
        return printed(lambda: _validate(settings, files, is_json=options.json))
    if options.status_file is not None and (refusal := _refused_status_file(options.status_file)):
        print(f"--status-file {options.status_file}: {refusal}", file=sys.stderr)
        return ExitCode.BAD_ARGUMENTS
    hold_signals(is_held=True)
    # Spark, the daemon and REST take seconds to load, and nothing above needs them.
    from mm2py.cli.running import run_node  # noqa: PLC0415

    running = run_node(
        settings,
        read,
        status_file=options.status_file,
        watched=watched,
        has_terminal=has_terminal,
        make_worker=make_worker,
    )
    try:
        code = asyncio.run(running)
    except Mm2Error as error:  # before there was anything to stop
        print(error_line(error), file=sys.stderr)
        code = ExitCode.NOT_STARTED
    drop_unwritten(sys.stderr)
    return code


def _refused_status_file(path: Path) -> str:
    """Return why a status file cannot be written there, or nothing."""
    if path.is_dir():
        return "it is a folder"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    # It is replaced as a whole, so its own permissions say nothing.
    return "" if os.access(path.parent, os.W_OK | os.X_OK) else f"the folder {path.parent} is not writable"


def verdict_json(
    files: Sequence[Path], code: ExitCode, problems: Iterable[Problem], notes: Iterable[Problem]
) -> dict[str, Any]:
    """Return what every judgement of *files* begins with, as JSON values."""
    return {
        "files": list(map(str, files)),
        "exit_code": int(code),
        "problems": [attrs.asdict(problem) for problem in problems],
        "notes": [attrs.asdict(note) for note in notes],
    }


def _refuse(files: Sequence[Path], problems: Iterable[Problem], notes: Iterable[Problem], *, is_json: bool) -> ExitCode:
    """Print why *files* cannot be used; return the exit code."""
    if is_json:
        show_json(verdict_json(files, ExitCode.FAILED, problems, notes))
    else:
        print_refused(problems, notes)
    return ExitCode.FAILED


def _explain(settings: MirrorSettings, options: argparse.Namespace, files: Sequence[Path]) -> int:
    flows = find_flows(settings, options.explain or "")
    if flows is None:
        known = ", ".join(str(flow.flow) for flow in settings.flows)
        print(f"--explain: no flow {options.explain}; there are {known}", file=sys.stderr)
        return ExitCode.BAD_ARGUMENTS
    if options.json:
        rows = explained_json(settings, flows, only_changed=options.changed)
        show_json(verdict_json(files, ExitCode.OK, (), settings.notes) | {"settings": rows})
        return ExitCode.OK
    for line in explained(settings, flows, only_changed=options.changed):
        print(line)
    for note in settings.notes:
        print(f"note: {note}")
    return ExitCode.OK


async def refused_files(settings: MirrorSettings) -> list[Problem]:
    """Return all that `refused_here` finds, and what Spark refuses of transforms, if there is any for it. Raise
    `Mm2Error` if Spark does not start.
    """
    refused = refused_here(settings)
    if needs_spark(settings):
        # Spark takes seconds to load.
        from mm2py.cli.transform_checks import refused_transforms  # noqa: PLC0415

        refused += await refused_transforms(settings)
    return refused


def _validate(settings: MirrorSettings, files: Sequence[Path], *, is_json: bool) -> int:
    """Print what cannot be used, and notes; return the exit code."""
    try:
        refused = asyncio.run(refused_files(settings))
    except Mm2Error as error:
        print(error_line(error), file=sys.stderr)
        return ExitCode.FAILED
    if refused:
        return _refuse(files, refused, settings.notes, is_json=is_json)
    if is_json:
        flows_json = [{"flow": str(flow.flow), "is_enabled": flow.reads_source} for flow in settings.flows]
        show_json(verdict_json(files, ExitCode.OK, (), settings.notes) | {"flows": flows_json})
        return ExitCode.OK
    for note in settings.notes:
        print(f"note: {note}")
    flows = ", ".join(str(flow.flow) for flow in settings.flows if flow.reads_source)
    others = ", ".join(str(flow.flow) for flow in settings.flows if not flow.reads_source)
    only = f"; only heartbeats: {others}" if others else ""
    print(f"{', '.join(map(str, files))}: no problems; flows: {flows or 'none'}{only}")
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
