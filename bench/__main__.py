"""``python -m bench``: start two brokers, let the candidates take turns on them, print the tables."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from bench import go
from bench.candidates import BEFORE_AT, Candidate
from bench.latency import Load, Span
from bench.report import print_report
from bench.shapes import COPIED, SHAPES_BY_NAME
from bench.turns import Order, Turns
from mm2py.devkit.broker import KafkaCluster, start_clusters
from mm2py.devkit.java import SERVER_FLAGS, JvmOptions


BROKER_JVM = JvmOptions(1024, ("-Xms1024m", *SERVER_FLAGS))
#: Deleted remote topics make room at once; the default keeps their files for a minute.
BROKER_PROPERTIES = {"log.segment.delete.delay.ms": "1000"}
#: The tables' width where there is no terminal to ask.
PLAIN_COLUMNS = 190


_Known = TypeVar("_Known")


def make_parser() -> argparse.ArgumentParser:
    """Declare the arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="The same work through mm2py and through Java MirrorMaker 2, side by side."
    )
    candidates = ", ".join(each.value for each in Candidate if each is not Candidate.BEFORE)
    parser.add_argument(
        "--shapes",
        default=",".join(COPIED),
        help=f"some of {', '.join(SHAPES_BY_NAME)}; all, or none; if not given: {', '.join(COPIED)}",
    )
    usual = ", ".join(each.value for each in Candidate if each.is_usual)
    parser.add_argument("--only", default="all", help=f"some of {candidates}; if not given: {usual}")
    parser.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="run mm2py of another checkout, too, as the candidate *before*"
    )
    parser.add_argument("--records", type=int, default=2_000_000, help="of the first shape; others in proportion")
    parser.add_argument(
        "--records-of",
        type=_records_of,
        action="append",
        default=[],
        metavar="SHAPE=N",
        help="of one shape, which others do not depend on; may be repeated",
    )
    parser.add_argument("--runs", type=int, default=1, help="how often all is repeated; the tables show medians")
    parser.add_argument("--latency-seconds", type=float, default=40.0, help="per candidate; 0 leaves latency out")
    parser.add_argument(
        "--latency-warm-up", type=float, default=10.0, metavar="SECONDS", help="of records that do not count"
    )
    parser.add_argument("--latency-rate", type=int, default=500, metavar="N", help="records a second")
    parser.add_argument("--latency-batch", type=int, default=1, metavar="N", help="records in a batch of the producer")
    parser.add_argument(
        "--tasks", type=int, default=1, help="tasks.max of mm2py and of Java's defaults, as both have it"
    )
    parser.add_argument("--tuned-tasks", type=int, default=1, help="tasks.max of java-tuned; on two cores one is best")
    parser.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of mm2py's configuration, spark.master for example; may be repeated",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every single run to FILE")
    parser.add_argument("--logs", type=Path, metavar="DIRECTORY", help="keep configuration files and logs there")
    return parser


def read_order(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Order:
    """Turn arguments into what is to be done; ends the program when they make no sense."""
    try:
        shapes = _chosen(given.shapes, SHAPES_BY_NAME)
        known = {each.value: each for each in Candidate if given.before or each is not Candidate.BEFORE}
        usual = {name: each for name, each in known.items() if each.is_usual or each is Candidate.BEFORE}
        candidates = tuple(usual.values()) if given.only == "all" else _chosen(given.only, known)
        records_of = {SHAPES_BY_NAME[name].name: records for name, records in given.records_of}
    except KeyError as error:
        parser.error(f"there is no {error}")
    if given.before:
        os.environ[BEFORE_AT] = str(given.before.resolve())
    if not candidates or given.runs < 1 or not (shapes or given.latency_seconds):
        parser.error("nothing to run")
    if any(shape.transforms for shape in shapes) and not all(each.has_transforms for each in candidates):
        parser.error("go has no transforms: leave out either it or the shapes with them")
    return Order(
        shapes=shapes,
        candidates=candidates,
        records=given.records,
        records_of=records_of,
        runs=given.runs,
        latency_span=Span(given.latency_warm_up, given.latency_seconds),
        latency_load=Load(given.latency_rate, given.latency_batch),
        tasks_max=given.tasks,
        tuned_tasks_max=given.tuned_tasks,
        ours=tuple(given.set),
    )


def _records_of(text: str) -> tuple[str, int]:
    name, records = _setting(text)
    return name, int(records)


def _setting(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key, value


def _chosen(text: str, known: dict[str, _Known]) -> tuple[_Known, ...]:
    if text == "all":
        return tuple(known.values())
    return tuple(known[name.strip()] for name in text.split(",") if name.strip() not in {"", "none"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 when a candidate failed."""
    parser = make_parser()
    given = parser.parse_args(arguments)
    order = read_order(parser, given)
    if Candidate.GO in order.candidates:
        try:
            go.binary()
        except go.GoUnusableError as error:
            parser.error(str(error))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # gigabytes are cleared away then, too
    with tempfile.TemporaryDirectory(prefix="mm2py-bench-") as scratch:
        free = shutil.disk_usage(scratch).free
        if order.disk_bytes > free:
            parser.error(f"needs {order.disk_bytes / 1e9:.0f} GB in {scratch}, {free / 1e9:.0f} GB are free")
        source, target = (
            KafkaCluster(name, properties=BROKER_PROPERTIES, jvm=BROKER_JVM, work_dir=Path(scratch) / name)
            for name in ("source", "target")
        )
        turns = Turns(
            order,
            source=source.bootstrap_servers,
            target=target.bootstrap_servers,
            directory=given.logs or Path(scratch) / "runs",
        )
        start_clusters([source, target])
        try:
            asyncio.run(turns.run())
        finally:
            source.stop()
            target.stop()
            console = Console()
            print_report(console if console.is_terminal else Console(width=PLAIN_COLUMNS), turns.results)
            if given.json:
                given.json.write_text(json.dumps(turns.results.as_json(), indent=2) + "\n")
    return 1 if turns.results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
