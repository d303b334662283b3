"""``mm2py verify mm2.properties A->B``: verify that remote topics equal their sources, or show the differences."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from mm2py.cli.command import read_flow
from mm2py.cli.parsers import Parser, add_json


#: How a time before now begins, which looks like another option.
_AGO = re.compile(r"-\d")
_DESCRIPTION = "Compare the topics of a flow's source with their copies at its target, record by record."
_EPILOG = """\
MOMENT is an offset of the source (1500), a time before now (-90m, -12h, -2d), or a time of day in UTC
(2026-11-21T15:00, or with an offset of its own: 2026-11-21T15:00+01:00).

exit codes: 0 equal, 1 different, 2 could not tell

examples:
  mm2py verify mm2.properties 'A->B'
  mm2py verify mm2.properties 'A->B' --topics 'orders,payments-.*' --from -24h
  mm2py verify mm2.properties 'A->B' --sample 0.05 --seed 7 --json
  mm2py verify worker.properties 'mirus-source->target'
"""


def make_parser() -> argparse.ArgumentParser:
    """Declare the arguments."""
    parser = Parser(
        prog="mm2py verify",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", type=Path, metavar="mm2.properties", help="MirrorMaker 2's properties file; or a Connect worker's, "
        "with connectors in its config topic or named by --connector",
    )  # fmt: skip
    parser.add_argument("flow", type=read_flow, metavar="A->B", help="the flow whose topics are compared")
    parser.add_argument(
        "--connector", action="append", default=[], type=Path, metavar="FILE",
        help="a connector's file or JSON, as connect-standalone runs it; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--topics", default="", metavar="NAMES", help="names or regular expressions, with commas between"
    )
    parser.add_argument("--from", dest="start", default="", metavar="MOMENT", help="compare from here on")
    parser.add_argument("--to", dest="end", default="", metavar="MOMENT", help="compare up to here")
    parser.add_argument("--sample", type=float, default=1.0, metavar="SHARE", help="only a share, 0.1 for a tenth")
    parser.add_argument("--seed", type=int, default=None, help="seed of the sample; without it a new one each time")
    parser.add_argument(
        "--ignore-expired", action="store_true", help="ignore records that retention has removed on one side only"
    )
    parser.add_argument(
        "--slots", type=int, default=None, help="slices compared in parallel; default: the number of processors"
    )
    add_json(parser, "print the whole result as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run ``mm2py verify`` with *arguments* and return the exit code."""
    options = make_parser().parse_args(list(_joined(arguments)))
    # Spark takes a second to load, and help needs none.
    from mm2py.cli.comparing import compare  # noqa: PLC0415

    return compare(options)


def _joined(arguments: Sequence[str]) -> Iterator[str]:
    """Join an option and a duration that begins with a minus, which would look like another option."""
    left = list(arguments)
    while left:
        first = left.pop(0)
        if first in {"--from", "--to"} and left and _AGO.match(left[0]):
            yield f"{first}={left.pop(0)}"
        else:
            yield first
