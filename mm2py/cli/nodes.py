"""``mm2py nodes``: which nodes run each flow, as one of them knows them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mm2py.cli import looking, rest_client
from mm2py.cli.command import run
from mm2py.cli.parsers import Parser
from mm2py.cli.rest_client import connected, read_address
from mm2py.cli.sheets import Part, Sheet, at_least, count, rate, size, span, text
from mm2py.clock import Clock, SystemClock


#: What counts more than a node's part in the flow.
_FAILING = ("unreachable", "has_failures")
_EXAMPLES = """\
examples:
  mm2py nodes
  mm2py nodes --watch
  mm2py nodes --json --url https://mirror-1:8443
"""


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mm2py nodes",
        description="Show the nodes that run each flow of a running daemon: their tasks, rates and problems.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    rest_client.add_arguments(parser)
    looking.add_arguments(parser)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run ``mm2py nodes`` with *arguments* and return the exit code."""
    options = make_parser().parse_args(arguments)
    return run(lambda: _nodes(options, SystemClock()))


async def _nodes(options: argparse.Namespace, clock: Clock) -> None:
    async with connected(read_address(options)) as rest:
        await looking.look(lambda: rest.ask("GET", "/nodes"), nodes_page, options, clock)


def nodes_page(answer: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Part]:
    """Show the nodes of all flows in one table."""
    return [nodes_sheet((flow, node) for flow, nodes in answer.items() for node in nodes)]


def nodes_sheet(nodes: Iterable[tuple[str, Mapping[str, Any]]], title: str = "") -> Sheet:
    """Return a table of nodes, each with its flow."""
    columns = (
        "flow", "node", "state", "tasks", ">for", ">partitions", ">records/s", ">bytes/s", ">lag", ">last heard",
        "remarks",
    )  # fmt: skip
    rows = [
        (
            flow,
            node["worker_id"],
            node_state(node),
            ", ".join(map(str, node["assigned"])) or "-",
            span(_seconds(node.get("tasks_for_ms"))),
            count(node["partitions"]),
            rate(node["records_per_s"]),
            size(node["bytes_per_s"]),
            at_least(count(node["lag"]), bool(node["lag"] and node["unknown_lags"])),
            "-" if node["is_this"] else span(_seconds(node["heard_ms"])),
            _remarks(node),
        )
        for flow, node in nodes
    ]
    return Sheet(columns, tuple(rows), title=title, empty="this node runs no flow")


def node_state(node: Mapping[str, Any]) -> str:
    """Return what a node does for a flow, in a word."""
    if not node["answers"]:
        return "silent" if node["is_member"] else "gone"
    if node["is_drained"]:
        return "draining" if node["assigned"] else "drained"
    if (state := str(node.get("state"))) in _FAILING:
        return state.replace("_", " ")
    if node["is_owner"]:
        return "owner"
    return "running" if node["assigned"] else "standby"


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _remarks(node: Mapping[str, Any]) -> str:
    owner = f"owner for {span(_seconds(node['owner_for_ms']))}" if node.get("owner_for_ms") is not None else ""
    differs = f"settings differ: {', '.join(node['differs'])}" if node["differs"] else ""
    return text("; ".join(filter(None, ["this node" if node["is_this"] else "", owner, differs, *node["issues"]])))
