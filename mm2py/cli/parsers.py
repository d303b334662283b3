"""Argument parsers of the commands. They need nothing but Python, so that the demo's arguments can be judged before
there is anything else.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from mm2py.cli.exit_code import ExitCode


class Parser(argparse.ArgumentParser):
    """An argument parser with Java MirrorMaker's exit code for bad arguments."""

    bad_arguments = ExitCode.BAD_ARGUMENTS

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {message}", file=sys.stderr)
        sys.exit(self.bad_arguments)


def add_json(parser: argparse._ActionsContainer, text: str = "the same as JSON", *, is_inner: bool = False) -> None:
    """Declare ``--json``. An inner parser keeps the value that was parsed before it."""
    default = argparse.SUPPRESS if is_inner else False
    parser.add_argument("--json", action="store_true", default=default, help=text)


class FreeOrderParser(Parser):
    """One that takes options between its words, too: ``config set --connector source KEY=VALUE``."""

    _is_sorting = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._is_sorting:  # argparse does so by parsing twice
            return super().parse_known_args(args, namespace)
        self._is_sorting = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_sorting = False


class KafkaToolParser(Parser):
    """One with the exit code of Kafka's other tools."""

    bad_arguments = ExitCode.BAD_USAGE
