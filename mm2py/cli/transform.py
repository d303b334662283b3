"""``mm2py transform …``: a few records before and after a flow's transform. Nothing is written."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from mm2py.cli.command import read_flow, run
from mm2py.cli.parsers import Parser, add_json
from mm2py.clock import SystemClock


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mm2py transform",
        description="Show records of a topic before and after the flow's transform. Nothing is written.",
        epilog="example: mm2py transform mm2.properties 'A->B' orders --sample 20",
    )
    parser.add_argument("file", metavar="FILE", help="MirrorMaker 2's properties file")
    parser.add_argument("flow", type=read_flow, metavar="A->B", help="the flow with the transform")
    parser.add_argument("topic", metavar="TOPIC", help="by its name at the source")
    parser.add_argument("--sample", type=int, default=10, metavar="N", help="how many of the newest records (10)")
    add_json(parser, "a line of JSON for each record")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run ``mm2py transform`` with *arguments* and return the exit code."""
    options = make_parser().parse_args(arguments)
    # Spark takes a second to load, and help needs none.
    from mm2py.cli.transform_trial import show  # noqa: PLC0415

    return run(lambda: show(options, SystemClock()))
