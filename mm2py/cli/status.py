"""``mm2py status``: the state of a running daemon, and whether anything needs attention."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import ClassVar

import attrs

from mm2py.cli import looking, rest_client
from mm2py.cli.command import Parser, run
from mm2py.cli.flow_pages import node_name, status_page
from mm2py.cli.rest_client import connected, read_address
from mm2py.clock import Clock, SystemClock
from mm2py.errors import Mm2Error


_EXAMPLES = """\
examples:
  mm2py status
  mm2py status --watch
  mm2py status --check --json --url https://mirror-1:8443 --token-file ~/.mm2py-token
"""


@attrs.define(eq=False)
class UnhealthyError(Mm2Error):
    """Something on a node needs attention; the details are printed."""

    hint: ClassVar[str] = "mm2py flow 'A->B' has details of a flow, docs/runbooks.md what to do"

    node: str

    def __str__(self) -> str:
        return f"{self.node} needs attention"


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mm2py status",
        description="Show a running daemon, its flows, and their problems.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="exit with code 2 if something needs attention")
    rest_client.add_arguments(parser)
    looking.add_arguments(parser)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run ``mm2py status`` with *arguments* and return the exit code."""
    options = make_parser().parse_args(arguments)
    return run(lambda: _status(options, SystemClock()))


async def _status(options: argparse.Namespace, clock: Clock) -> None:
    async with connected(read_address(options)) as rest:
        status = await looking.look(lambda: rest.ask("GET", "/status"), status_page, options, clock)
    if options.check and not status["is_healthy"]:
        raise UnhealthyError(node_name(status))
