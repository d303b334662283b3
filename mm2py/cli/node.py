"""``mm2py node``: drain a running node of its copy tasks, or have it take them again."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from mm2py.cli import looking, rest_client
from mm2py.cli.command import run
from mm2py.cli.parsers import Parser, add_json
from mm2py.cli.rest_client import connected, read_address


_EXAMPLES = """\
examples:
  mm2py node drain --url http://mirror-2:8083
  mm2py node undrain --url http://mirror-2:8083

A drained node keeps running, but other nodes take its copy tasks. Without other nodes its flows are not copied.
A restart of the node ends the drain, too.
"""
_REQUESTS = {"drain": ("PUT", "/node/drain"), "undrain": ("PUT", "/node/resume"), "show": ("GET", "/node/drain")}


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mm2py node",
        description="Move all copy tasks of a running node to the other nodes, or have it take tasks again.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("verb", choices=sorted(_REQUESTS), help="what to do with the node; show changes nothing")
    add_json(parser, "the daemon's own answer, as JSON")
    rest_client.add_arguments(parser)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run ``mm2py node`` with *arguments* and return the exit code."""
    options = make_parser().parse_args(arguments)
    return run(lambda: _node(options))


async def _node(options: argparse.Namespace) -> None:
    method, path = _REQUESTS[options.verb]
    async with connected(read_address(options)) as rest:
        answer = await rest.ask(method, path)
    if options.json:
        print(json.dumps(answer, ensure_ascii=False))
        return
    for sentence in drain_sentences(answer):
        looking.said(sentence)


def drain_sentences(answer: dict[str, Any]) -> list[str]:
    """Return in words whether a node is drained, and what it still runs."""
    node, left = answer["worker_id"], sum(answer["tasks"].values())
    tasks = f"{left} copy task{'' if left == 1 else 's'}"
    if not answer["is_drained"]:
        return [f"node {node} takes part; it has {tasks}"]
    said = [f"node {node} drains: it still has {tasks}" if left else f"node {node} is drained"]
    if alone := answer["without_others"]:
        said.append(f"no other node can take tasks of {', '.join(alone)}: start one, or undrain this one")
    return said
