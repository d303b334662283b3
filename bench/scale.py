"""
What a flow of many partitions costs, and how long a busy one waits beside idle ones: ``python -m bench.scale``.

One flow mirrors topics of 50 partitions between clusters of this machine. It stands idle first; then 500 records a
second go into 8 partitions of one more topic. The first seconds are *cold*: the brokers' JIT compilers have not seen
the load.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

from bench import latency
from bench.broker import Broker, connected
from bench.candidates import Candidate
from bench.mirror import Mirror, running_on
from bench.tree import ProcessTree, Strangers
from mm2py.devkit.broker import KafkaCluster, start_clusters
from mm2py.devkit.java import SERVER_FLAGS, JvmOptions
from mm2py.devkit.process import LoggedProcess, start_process


BROKER_JVM = JvmOptions(2048, ("-Xms1g", *SERVER_FLAGS))
PARTITIONS_EACH = 50
BUSY = "busy"
START_LIMIT_S = 300.0
GRACE_S = 30.0
COLD_S = 4.0
WARM_S = 8.0
FETCH_WAIT_MS = 500
SUMMED_UP = "summed-up"


@attrs.frozen
class Window:
    """Latencies of the records of a part of the time, in milliseconds."""

    records: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


@attrs.frozen
class Found:
    """The figures of one run."""

    partitions: int
    all_topics_s: float
    pss_mib: float
    idle_cores: float
    idle_broker_cores: float
    strangers_cores: float
    missing: int
    cold: Window
    warm: Window
    epochs: int
    boundary_p50_ms: float
    boundary_max_ms: float


@attrs.frozen
class Order:
    """What is to be measured."""

    partitions: int
    tasks_max: int
    idle_s: float
    busy_s: float
    epoch_ms: int
    brokers: int


async def measure(order: Order, clusters: Sequence[KafkaCluster], directory: Path) -> Found:
    """Create the topics, run the flow, and measure it idle and busy."""
    source, target = (",".join(cluster.bootstrap_servers.split(",")[:1]) for cluster in clusters)
    async with connected(source) as broker:
        await _create_topics(order, broker)
        await broker.create_topic(BUSY, latency.PARTITIONS)
        async with _running(order, clusters, directory / "mirror") as mirror:
            tree = mirror.tree
            await _until_all_mirrored(order, mirror.process, target)
            all_topics_s = time.monotonic() - mirror.started
            await asyncio.sleep(10)
            brokers = [ProcessTree(cluster.pid(node)) for cluster in clusters for node in range(order.brokers)]
            before, strangers = [it.cpu() for it in (tree, *brokers)], Strangers()
            await asyncio.sleep(order.idle_s)
            idle, *of_brokers = (it.cpu().since(was).tree_s for it, was in zip((tree, *brokers), before, strict=True))
            busy = await _busy(order, source, target, directory)
            epochs = _boundaries(directory / "mirror" / "log")
            return Found(
                partitions=order.partitions + latency.PARTITIONS,
                all_topics_s=all_topics_s,
                pss_mib=tree.sample_memory() / 2**20,
                idle_cores=idle / order.idle_s,
                idle_broker_cores=sum(of_brokers) / order.idle_s,
                strangers_cores=strangers.cores(),
                missing=busy["missing"],
                cold=Window(**busy["cold"]),
                warm=Window(**busy["warm"]),
                epochs=len(epochs),
                boundary_p50_ms=latency.quantile(epochs, 0.5),
                boundary_max_ms=epochs[-1],
            )


async def _create_topics(order: Order, broker: Broker) -> None:
    for number in range(order.partitions // PARTITIONS_EACH):
        await broker.create_topic(f"idle-{number:04}", PARTITIONS_EACH)


def _running(
    order: Order, clusters: Sequence[KafkaCluster], directory: Path
) -> contextlib.AbstractAsyncContextManager[Mirror]:
    source, target = (cluster.bootstrap_servers for cluster in clusters)
    settings = {
        "clusters": "A, B",
        "A.bootstrap.servers": source,
        "B.bootstrap.servers": target,
        "A->B.enabled": "true",
        "A->B.topics": f"idle-.*, {BUSY}",
        "tasks.max": str(order.tasks_max),
        "copy.epoch.ms": str(order.epoch_ms),
        "replication.factor": "1",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "emit.heartbeats.enabled": "false",
        "listeners": "",
        "log.level": "debug",
        "log.format": "json",
    }
    return running_on(Candidate.MM2PY, settings, directory, grace_s=GRACE_S)


async def _until_all_mirrored(order: Order, process: LoggedProcess, target: str) -> None:
    """Wait until every topic has its remote one."""
    deadline = time.monotonic() + START_LIMIT_S
    wanted = order.partitions // PARTITIONS_EACH + 1
    async with connected(target) as broker:
        while time.monotonic() < deadline:
            if not process.is_running:
                raise RuntimeError(f"the daemon ended: {process.log_warnings()}")
            if sum(topic.startswith("A.") for topic in await broker.topics()) >= wanted:
                return
            await asyncio.sleep(0.2)
    raise RuntimeError(f"not all topics are mirrored after {START_LIMIT_S:g} s\n{process.log_warnings()}")


async def _busy(order: Order, source: str, target: str, directory: Path) -> dict[str, Any]:
    """Send and receive records, each in a process of its own, and return what the receiver found."""
    checkout = Path(__file__).parent.parent

    def probe(name: str, module: str, *arguments: str) -> LoggedProcess:
        command = [sys.executable, "-m", module, *arguments]
        return start_process(name, command, log_file=directory / f"{name}.log", cwd=checkout)

    consumer = probe("consume", "bench.scale", "--consume", target, str(order.busy_s))
    await asyncio.sleep(2)
    producer = probe("produce", "bench.latency", "produce", source, BUSY)
    try:
        for _ in range(int(order.busy_s + 60) * 10):
            for line in consumer.log_text().splitlines():
                word, _, rest = line.partition(" ")
                if word == SUMMED_UP:
                    found: dict[str, Any] = json.loads(rest)
                    return found
            if not consumer.is_running:
                break
            await asyncio.sleep(0.1)
        raise RuntimeError(f"nothing from the consumer: {consumer.log_tail()}")
    finally:
        for one in (producer, consumer):
            await asyncio.to_thread(one.kill)


async def consume(bootstrap: str, seconds: float) -> None:
    """Receive what is mirrored, from the first record on, and print the figures of its first and last seconds."""
    async with connected(bootstrap) as broker:
        await broker.await_topic(f"A.{BUSY}", latency.PARTITIONS)
        received = await latency.receive(broker, f"A.{BUSY}", [0] * latency.PARTITIONS, until_s=seconds)
    cold, warm_from = COLD_S * latency.RECORDS_PER_S, (seconds - WARM_S) * latency.RECORDS_PER_S
    windows = {
        "cold": _window([it for number, it in received if number < cold]),
        "warm": _window([it for number, it in received if number >= warm_from]),
        "missing": latency.summed_up(received).missing,
    }
    print(SUMMED_UP, json.dumps(windows), flush=True)


def _window(latencies: Sequence[float]) -> dict[str, float]:
    ordered = sorted(latencies) or [math.nan]
    p50, p99, p999 = (latency.quantile(ordered, share) for share in (0.5, 0.99, 0.999))
    return attrs.asdict(Window(len(ordered), p50, p99, p999, ordered[-1]))


def _boundaries(log: Path) -> list[float]:
    """Return how long the boundaries of epochs took, in order, the first epochs left out."""
    found = []
    for line in log.read_text().splitlines():
        if '"epoch_ended"' in line:
            event = json.loads(line)
            if event["epoch"] > 2:
                found.append(event["boundary_ms"])
    return sorted(found) or [0.0]


def print_report(console: Console, order: Order, found: Found) -> None:
    """Print the figures."""
    table = Table(title=f"{found.partitions} partitions, 8 of them busy, tasks.max = {order.tasks_max}")
    for column in ("what", "measured"):
        table.add_column(column)
    table.add_row("all topics mirrored", f"{found.all_topics_s:.1f} s")
    table.add_row("process tree (PSS)", f"{found.pss_mib:.0f} MiB")
    table.add_row("idle", f"{found.idle_cores:.3f} cores; brokers {found.idle_broker_cores:.3f}")
    for name, window in (("cold", found.cold), ("warm", found.warm)):
        table.add_row(
            f"latency, {name}",
            f"p50 {window.p50_ms:.1f}, p99 {window.p99_ms:.1f}, p99.9 {window.p999_ms:.1f}, max {window.max_ms:.1f} ms "
            f"of {window.records}",
        )
    table.add_row("missing", str(found.missing))
    table.add_row("boundary", f"p50 {found.boundary_p50_ms:.0f}, max {found.boundary_max_ms:.0f} ms of {found.epochs}")
    table.add_row("strangers", f"{found.strangers_cores:.2f} cores")
    console.print(table)


def make_parser() -> argparse.ArgumentParser:
    """Declare the arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description="A busy partition beside idle ones.")
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--brokers", type=int, default=1, help="of each cluster")
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--idle", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--busy", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument("--epoch-ms", type=int, default=10_000)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--consume", nargs=2, metavar=("TARGET", "SECONDS"), help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    given = make_parser().parse_args(arguments)
    if given.consume:
        asyncio.run(consume(given.consume[0], float(given.consume[1])))
        return 0
    order = Order(given.partitions, given.tasks, given.idle, given.busy, given.epoch_ms, given.brokers)
    with tempfile.TemporaryDirectory(prefix="mm2py-bench-") as scratch:
        clusters = [
            KafkaCluster(name, brokers=given.brokers, jvm=BROKER_JVM, work_dir=Path(scratch) / name)
            for name in ("source", "target")
        ]
        start_clusters(clusters)
        try:
            found = asyncio.run(measure(order, clusters, Path(scratch)))
        finally:
            for cluster in clusters:
                cluster.stop()
    print_report(Console(), order, found)
    if given.json:
        given.json.write_text(json.dumps(attrs.asdict(found), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
