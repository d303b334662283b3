"""``connect-distributed WORKER``: run the connectors of a worker's config topic, like Connect's script of that name and
Mirus's ``mirus-worker-start``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mm2py.cli.mirror_maker import act, add_common_arguments
from mm2py.cli.parsers import KafkaToolParser
from mm2py.clock import Clock
from mm2py.config.importers.lines import read_worker
from mm2py.config.settings import MirrorSettings
from mm2py.telemetry.journal import EventLog


def make_parser(prog: str = "connect-distributed") -> argparse.ArgumentParser:
    parser = KafkaToolParser(
        prog=prog,
        description="Run MirrorMaker's and Mirus's connectors that are created and changed over REST. Their configs "
        "lie in the worker's config topic; the worker starts without any.",
    )
    parser.add_argument("worker", type=Path, metavar="worker.properties", help="the worker's file: the target cluster")
    add_common_arguments(parser)
    # Of Mirus's start script, where it may precede the file.
    parser.add_argument("-loggc", action="store_true", help="accepted: there is no log of Java's garbage collector")
    return parser


def main(arguments: Sequence[str] | None = None, *, prog: str = "connect-distributed") -> int:
    options = make_parser(prog).parse_args(arguments)
    # It brings a Kafka client, which help does not need.
    from mm2py.herder.composition import compose  # noqa: PLC0415
    from mm2py.herder.connect_worker import ConnectWorker  # noqa: PLC0415

    path, overrides = options.worker, dict(options.override)

    def load() -> MirrorSettings:
        return compose(path, read_worker(path, overrides), {}).settings

    def make_worker(clock: Clock, events: EventLog) -> ConnectWorker:
        return ConnectWorker(path, overrides, clock=clock, events=events, is_strict=options.strict)

    return act(options, load, files=(path,), make_worker=make_worker)


#: Mirus's name of the command.
mirus_worker_start = partial(main, prog="mirus-worker-start")


if __name__ == "__main__":
    sys.exit(main())
