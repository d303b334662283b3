"""``mm2py events``, and ``mm2py flow A->B events``: what happened on a running node, or to one flow."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from mm2py.cli import rest_client
from mm2py.cli.command import run
from mm2py.cli.parsers import Parser, add_json
from mm2py.cli.rest_client import DaemonNotReachableError, RestClient, connected, read_address
from mm2py.cli.sheets import clean
from mm2py.clock import Clock, SystemClock


_FOLLOW_AGAIN_S = 1.0
#: The levels of events, each with those after it.
_LEVELS: Final = ("debug", "info", "warn", "error")
_EXAMPLES = """\
examples:
  mm2py events --level warn
  mm2py events --follow --json
"""


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mm2py events",
        description="Show recent events of a running daemon, those of its flows too.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_event_arguments(parser)
    add_json(parser, "a line of JSON for each event")
    rest_client.add_arguments(parser)
    parser.set_defaults(flow=None)
    return parser


def add_event_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which events are shown."""
    parser.add_argument("--level", choices=_LEVELS, default=_LEVELS[0], help="only these, and more severe ones")
    parser.add_argument("--follow", action="store_true", help="print new events until Ctrl-C")


def main(arguments: Sequence[str]) -> int:
    """Run ``mm2py events`` with *arguments* and return the exit code."""
    options = make_parser().parse_args(arguments)
    return run(lambda: _run(options, SystemClock()))


async def _run(options: argparse.Namespace, clock: Clock) -> None:
    async with connected(read_address(options)) as rest:
        await show_events(options, rest, clock)


async def show_events(options: argparse.Namespace, rest: RestClient, clock: Clock) -> None:
    """Show recent events, and with --follow new ones, until Ctrl-C or the end of the daemon."""
    of_flow = {} if options.flow is None else {"flow": str(options.flow)}
    events = (await rest.ask("GET", "/events", query=of_flow))["events"]
    _tell(events, options)
    last = str(events[-1]["mark"]) if events else ""
    is_away = False
    while options.follow:
        query = {**of_flow, "only": "events", "after": last}
        try:
            async for event in rest.follow("/stream", query=query):
                is_away = False
                if event.kind == "event":
                    _tell([json.loads(event.data)], options)
                    last = event.id
        except DaemonNotReachableError as error:
            # With --follow, users want to see the daemon come back.
            if not is_away:
                print(f"mm2py: {error}; waiting for it", file=sys.stderr)
            is_away = True
        await clock.sleep(_FOLLOW_AGAIN_S)


def _tell(events: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> None:
    shown = _LEVELS[_LEVELS.index(options.level) :]
    for event in events:
        if event["level"] in shown:
            print(json.dumps(event, ensure_ascii=False) if options.json else event_line(event))
    sys.stdout.flush()


def event_line(event: Mapping[str, Any]) -> str:
    """Return an event on one line."""
    when = datetime.fromtimestamp(event["wall_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return clean(f"{when}Z  {event['level']:<5}  {event['name']}  {event['text']}".rstrip())
