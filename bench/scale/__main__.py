"""
What a flow of many partitions costs, and how long busy ones wait: ``python -m bench.scale PART``.

One flow mirrors topics of 50 partitions between clusters of this machine. The parts are explained in the README.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs
from rich.console import Console

from bench.broker import BenchBrokerError
from bench.candidates import Candidate
from bench.mirror import MirrorFailedError
from bench.scale import catch_up, create, idle, leaders
from bench.scale.order import Order, Part
from bench.scale.report import Row, print_report
from bench.scale.rig import Rig, clusters_of, rig
from bench.scale.simulated.measure import measure as measure_simulated
from mm2py.devkit.broker import KafkaCluster, start_clusters


PLAIN_COLUMNS = 150
PARTITIONS = {
    Part.IDLE: 10_000,
    Part.CREATE: 1_000,
    Part.LEADERS: 1_000,
    Part.FLAPPING: 1_000,
    Part.SIMULATED: 50_000,
    Part.CATCH_UP: 200,
}
BUSY_S = {
    Part.IDLE: 40.0,
    Part.CREATE: 15.0,
    Part.LEADERS: 15.0,
    Part.FLAPPING: 40.0,
    Part.SIMULATED: 20.0,
    Part.CATCH_UP: 20.0,
}
#: Once a flight recording is asked for, a broker is given time to write it.
BROKER_GRACE_S = 30.0


class Found(Protocol):
    """The figures of any part."""

    def rows(self) -> list[Row]:
        """Return what is printed."""
        ...


MEASURES: dict[Part, Callable[[Rig], Awaitable[Found]]] = {
    Part.IDLE: idle.measure,
    Part.CREATE: create.measure,
    Part.LEADERS: leaders.measure_leaders,
    Part.FLAPPING: leaders.measure_flapping,
    Part.CATCH_UP: catch_up.measure,
}


def make_parser() -> argparse.ArgumentParser:
    """Declare the arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description="Many partitions in one flow.")
    parts = [part.value for part in Part]
    parser.add_argument("part", nargs="?", choices=parts, default=Part.IDLE.value)
    parser.add_argument("--only", default="mm2py", help="some of mm2py, java; each gets clusters of its own")
    parser.add_argument("--partitions", type=int, help="idle: 10 000, simulated: 50 000, catch-up: 200, else 1 000")
    parser.add_argument("--busy-topics", type=int, help="if not given, a twentieth")
    parser.add_argument("--brokers", type=int, help="of each cluster: 1, or 2 where leaders move")
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--rate", type=int, default=500, metavar="RECORDS", help="a second, in all")
    parser.add_argument("--refresh", type=int, default=20, metavar="SECONDS", help="refresh.topics.interval.seconds")
    parser.add_argument("--settle", type=float, default=10.0, metavar="SECONDS", help="from one step to the next")
    parser.add_argument("--idle", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--busy", type=float, metavar="SECONDS", help="before topics are created or leaders move, too")
    parser.add_argument("--limit", type=float, default=300.0, metavar="SECONDS", help="for what a mirror may not do")
    parser.add_argument("--topics", type=int, default=1000, help="how many `create` creates")
    parser.add_argument("--topic-partitions", type=int, default=1, help="of each of these")
    parser.add_argument("--flap-every", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument("--backlog", type=int, default=1024, metavar="MIB", help="what `catch-up` catches up with")
    parser.add_argument("--catch-up-latency", type=int, default=10, metavar="MS", help="catch.up.latency.ms, or -1")
    parser.add_argument("--epoch-ms", type=int, default=10_000)
    parser.add_argument("--profile", action="store_true", help="profile mm2py and record the brokers; needs --logs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--logs", type=Path, metavar="DIRECTORY", help="keep configuration files and logs there")
    return parser


def read_order(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Order:
    """Turn arguments into what is to be done; ends the program when they make no sense."""
    part = Part(given.part)
    moves = part in {Part.LEADERS, Part.FLAPPING}
    brokers = given.brokers or (2 if moves else 1)
    if moves and brokers != 2:
        parser.error(f"{part.value} takes two brokers")
    if part is Part.CATCH_UP and given.only != Candidate.MM2PY.value:
        parser.error("catch-up pauses the flow and reads the time to level, so it takes mm2py")
    if given.profile and not given.logs:
        parser.error("--profile needs --logs")
    if part is Part.SIMULATED and (brokers != 1 or given.only != Candidate.MM2PY.value):
        parser.error("the simulated brokers are one a side, and speak to mm2py alone")
    order = Order(
        part=part,
        partitions=given.partitions or PARTITIONS[part],
        busy_topics=given.busy_topics,
        brokers=brokers,
        tasks_max=given.tasks,
        rate=given.rate,
        idle_s=given.idle,
        settle_s=given.settle,
        refresh_s=given.refresh,
        busy_s=given.busy or BUSY_S[part],
        epoch_ms=given.epoch_ms,
        limit_s=given.limit,
        new_topics=given.topics,
        new_partitions=given.topic_partitions,
        flap_every_s=given.flap_every,
        backlog_bytes=given.backlog * 2**20,
        catch_up_ms=given.catch_up_latency,
        is_profiled=given.profile,
    )
    if part is Part.CATCH_UP and not order.behind:
        parser.error("some topics must not be busy, to have a backlog")
    if not 0 < len(order.busy) <= len(order.topics):
        parser.error(f"of {len(order.topics)} topics some must be busy")
    return order


def run(order: Order, candidate: Candidate, scratch: Path, logs: Path) -> Found:
    """Measure one candidate between clusters of its own."""
    logs.mkdir(parents=True)
    scratch.mkdir(parents=True)
    if order.part is Part.SIMULATED:
        return asyncio.run(measure_simulated(order, candidate, logs))
    clusters = clusters_of(order, scratch, logs)
    start_clusters(clusters)

    async def measure() -> Found:
        async with rig(order, candidate, clusters, logs) as running:
            return await MEASURES[order.part](running)

    try:
        return asyncio.run(measure())
    finally:
        for cluster in clusters:
            _stop(cluster, logs, is_profiled=order.is_profiled)


def _stop(cluster: KafkaCluster, logs: Path, *, is_profiled: bool) -> None:
    """End the brokers and keep their logs."""
    for node in cluster.nodes if is_profiled else ():
        cluster.terminate(node.broker_id, grace_s=BROKER_GRACE_S)
    cluster.stop()
    for node in cluster.nodes:
        with contextlib.suppress(OSError):
            shutil.copy(node.log_file, logs / f"{cluster.name}-{node.broker_id}.log")


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when a candidate failed."""
    parser = make_parser()
    given = parser.parse_args(arguments)
    order = read_order(parser, given)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        candidates = [Candidate(name.strip()) for name in given.only.split(",")]
    except ValueError as error:
        parser.error(str(error))
    found: dict[str, Any] = {}
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mm2py-bench-") as scratch:
        for candidate in candidates:
            logs = (given.logs or Path(scratch) / "logs").resolve() / candidate.value
            try:
                found[candidate.value] = run(order, candidate, Path(scratch) / candidate.value, logs)
            except* (MirrorFailedError, BenchBrokerError, TimeoutError) as group:
                failures += [
                    f"{type(error).__name__}: {error}\n{getattr(error, 'log_tail', '')}" for error in _leaves(group)
                ]
    console = Console()
    rows = {name: figures.rows() for name, figures in found.items()}
    print_report(console if console.is_terminal else Console(width=PLAIN_COLUMNS), order, rows)
    for failure in failures:
        print(failure, file=sys.stderr)
    if given.json:
        figures = {name: attrs.asdict(it) for name, it in found.items()}
        given.json.write_text(json.dumps({"part": order.part.value, **figures}, indent=2) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
