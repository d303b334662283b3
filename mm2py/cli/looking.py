"""Commands that show a running daemon: once or repeatedly, as tables or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from mm2py.cli.command import with_hint
from mm2py.cli.parsers import add_json
from mm2py.cli.rest_client import DaemonNotReachableError, NotADaemonError
from mm2py.cli.sheets import Note, Part, draw, plain_lines, show, show_json
from mm2py.clock import Clock


_WATCH_EVERY_S = 2.0

#: Queries the daemon, and returns its answer as JSON values.
Ask = Callable[[], Awaitable[Any]]
#: Formats an answer for display.
Read = Callable[[Any], Sequence[Part]]


def add_arguments(parser: argparse.ArgumentParser, *, is_inner: bool = False) -> None:
    """Declare the output options of a command. An inner parser keeps the values that were parsed before it."""
    group = parser.add_argument_group("the form")
    absent: Any = argparse.SUPPRESS
    add_json(group, "the daemon's own answer, as JSON", is_inner=is_inner)
    group.add_argument(
        "--watch",
        nargs="?",
        type=_seconds,
        const=_WATCH_EVERY_S,
        default=absent if is_inner else None,
        metavar="SECONDS",
        help=f"refresh every SECONDS ({_WATCH_EVERY_S:g}), until Ctrl-C",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"expected seconds from 0.1 to 3600, found {text}")
    return seconds


async def look(ask: Ask, read: Read, options: argparse.Namespace, clock: Clock) -> Any:
    """Show the answer of *ask* as the options say; return the last answer."""
    if options.watch is None:
        answer = await ask()
        if options.json:
            show_json(answer)
        else:
            show(read(answer))
        return answer
    return await _watch(ask, read, options, clock)


async def _watch(ask: Ask, read: Read, options: argparse.Namespace, clock: Clock) -> Any:
    """Refresh until cancelled. An unreachable daemon is waited for, so that a restart can be watched."""
    console = Console()
    if options.json or not console.is_terminal:
        while True:
            for line in await _lines(ask, read, is_json=options.json):
                print(line)
            sys.stdout.flush()
            await clock.sleep(options.watch)
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            live.update(await _drawn(ask, read), refresh=True)
            await clock.sleep(options.watch)


async def _lines(ask: Ask, read: Read, *, is_json: bool) -> list[str]:
    try:
        answer = await ask()
    except (DaemonNotReachableError, NotADaemonError) as error:
        print(f"mm2py: {error}", file=sys.stderr)
        return []
    return [json.dumps(answer, ensure_ascii=False)] if is_json else [*plain_lines(read(answer)), ""]


async def _drawn(ask: Ask, read: Read) -> RenderableType:
    try:
        return draw(read(await ask()))
    except (DaemonNotReachableError, NotADaemonError) as error:
        return Text(with_hint(error), "bold red")


def said(text: str) -> None:
    """Print a sentence."""
    show([Note(text)])
