"""``mm2py status``: the state of a running daemon, and whether anything needs attention."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from mm2py.cli import looking, rest_client
from mm2py.cli.command import run
from mm2py.cli.exit_code import ExitCode
from mm2py.cli.flow_pages import node_name, status_page
from mm2py.cli.parsers import Parser
from mm2py.cli.rest_client import connected, read_address
from mm2py.cli.sheets import clean
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

    node: str
    hint: str  # type: ignore[misc] # it names a flow and the node's address

    def __str__(self) -> str:
        return f"{self.node} needs attention"


def unhealthy(status: Mapping[str, Any], url: str) -> UnhealthyError:
    """Return what is to be reported of a node at *url* that needs attention, with what to type or read next."""
    flows = [flow["flow"] for flow in status["flows"] if flow["issues"]]
    details = f"mm2py flow '{clean(flows[0])}' has details, " if flows else ""
    return UnhealthyError(node_name(status), f"{details}{url.rstrip('/')}/static/docs/runbooks.md what to do")


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mm2py status",
        description="Show a running daemon, its flows, and their problems.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit with code 2 if something needs attention, with 3 if that cannot be found out",
    )
    rest_client.add_arguments(parser)
    looking.add_arguments(parser)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run ``mm2py status`` with *arguments* and return the exit code."""
    options = make_parser().parse_args(arguments)
    return run(lambda: _status(options, SystemClock()), code_of=lambda error: _code_of(error, options))


def _code_of(error: Mm2Error, options: argparse.Namespace) -> int:
    """Return the exit code of an *error*: that of a check if nothing is known of the node, because it does not answer,
    or not to this caller.
    """
    return ExitCode.FAILED if isinstance(error, UnhealthyError) or not options.check else ExitCode.UNREACHABLE


async def _status(options: argparse.Namespace, clock: Clock) -> None:
    address = read_address(options)
    async with connected(address) as rest:
        status = await looking.look(lambda: rest.ask("GET", "/status"), status_page, options, clock)
    if options.check and not status["is_healthy"]:
        raise unhealthy(status, str(address))
