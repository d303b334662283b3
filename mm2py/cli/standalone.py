"""``connect-standalone WORKER CONNECTOR …``: run MirrorMaker's or Mirus's connectors, like Connect's script."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mm2py.cli.mirror_maker import act, add_common_arguments
from mm2py.cli.parsers import KafkaToolParser
from mm2py.config.connectors import standalone_settings
from mm2py.config.settings import MirrorSettings


def make_parser(prog: str = "connect-standalone") -> argparse.ArgumentParser:
    parser = KafkaToolParser(prog=prog, description="Mirror topics as the connectors of a standalone worker would.")
    parser.add_argument("worker", type=Path, metavar="worker.properties", help="the worker's file: the target cluster")
    parser.add_argument(
        "connectors",
        nargs="+",
        type=Path,
        metavar="connector.properties",
        help="a MirrorSourceConnector's, MirrorCheckpointConnector's, MirrorHeartbeatConnector's or "
        "MirusSourceConnector's file; all connectors of a flow run together. JSON as posted to Connect is accepted, "
        "too",
    )
    add_common_arguments(parser)
    return parser


def main(arguments: Sequence[str] | None = None, *, prog: str = "connect-standalone") -> int:
    options = make_parser(prog).parse_args(arguments)

    def load() -> MirrorSettings:
        return standalone_settings(options.worker, options.connectors, overrides=dict(options.override))

    return act(options, load, files=(options.worker, *options.connectors))


if __name__ == "__main__":
    sys.exit(main())
