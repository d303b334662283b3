"""
The demo's arguments. They need nothing but Python: ``scripts/demo`` judges them here before it installs anything, and
goes on if this ends with `GOES_ON`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import Final

from mm2py.cli.parsers import Parser


#: The exit code for arguments that the demo can be run with; help ends with 0.
GOES_ON: Final = 75


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="mm2py demo", description="Mirror a stream between two real Kafka clusters on this machine.")
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="how long to write and mirror records (default: 15)"
    )
    parser.add_argument("--rate", type=int, default=5_000, help="records written each second (default: 5000)")
    parser.add_argument(
        "--keep-running",
        action="store_true",
        help="leave clusters and mirror up until Ctrl-C, with a few records a second and a consumer group",
    )
    return parser


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the demo's options; print help or what is wrong, and end the process."""
    options = parser.parse_args(arguments)
    if not 0 < options.seconds < math.inf or options.rate <= 0:
        parser.error("--seconds and --rate must be numbers greater than 0")
    return options


if __name__ == "__main__":
    parse(make_parser(), None)
    sys.exit(GOES_ON)
