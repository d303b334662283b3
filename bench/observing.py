"""
What it costs a daemon to be watched: ``python -m bench.observing``.

One daemon runs 20 flows with 2 000 partitions between two brokers of this machine, with a trickle of records through
all of them. Its process's CPU time is taken in turns: unobserved, and while it is scraped as Prometheus does
and pages are open. The difference is the price. Scrapes are timed at the client, from the request to the last byte.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import attrs
from aiokafka.record._crecords import DefaultRecordBatchBuilder
from rich.console import Console
from rich.table import Table

from bench.broker import Broker, connected
from bench.candidates import Candidate
from bench.latency import quantile
from bench.mirror import running_on
from bench.tree import PROC, TICKS_PER_S, ProcessStat, ProcessTree, Strangers
from mm2py.devkit.broker import KafkaCluster, start_clusters
from mm2py.devkit.java import SERVER_FLAGS, JvmOptions
from mm2py.devkit.ports import HOST, free_ports
from mm2py.devkit.process import LoggedProcess


BROKER_JVM = JvmOptions(1024, ("-Xms512m", *SERVER_FLAGS))
START_LIMIT_S = 300.0
SETTLE_S = 15.0
GRACE_S = 30.0
TRICKLE_EVERY_S = 1.0
ACCEPTED = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"

#: The goals of the issue: a share of one core for being watched, and the time of a scrape.
MOST_CORES = 0.05
MOST_SCRAPE_MS = 200.0


@attrs.frozen
class Order:
    """What is to be measured."""

    flows: int
    partitions: int
    scrape_every_s: float
    pages: int
    turn_s: float
    turns: int
    records_per_s: int

    @property
    def partitions_each(self) -> int:
        return self.partitions // self.flows


@attrs.define
class Seen:
    """What the watchers saw."""

    scrapes_ms: list[float] = attrs.field(factory=list)
    scrape_bytes: int = 0
    sent_bytes: int = 0
    page_bytes: int = 0


@attrs.frozen
class Turn:
    """One turn of the daemon: the cores that its own process, and its whole tree, used."""

    is_watched: bool
    daemon_cores: float
    tree_cores: float
    strangers_cores: float


@attrs.frozen
class Daemon:
    """The watched process."""

    process: LoggedProcess
    tree: ProcessTree
    url: str

    def own_s(self) -> float:
        """Return the CPU time of the daemon's own process so far: that of the flows' driver and of REST."""
        return ProcessStat.parse((PROC / str(self.process.pid) / "stat").read_text()).own / TICKS_PER_S


async def measure(order: Order, source: str, target: str, directory: Path) -> tuple[list[Turn], Seen]:
    """Create the topics, run the daemon, and take turns."""
    async with connected(source) as broker:
        for number in range(order.flows):
            await broker.create_topic(topic(number), order.partitions_each)
        async with _daemon(order, source, target, directory) as daemon, asyncio.TaskGroup() as tasks:
            await _until_all_copied(order, daemon)
            trickle = tasks.create_task(_trickle(order, broker), name="trickle")
            await asyncio.sleep(SETTLE_S)
            turns, seen = [], Seen()
            for number in range(2 * order.turns):
                turns.append(await _turn(order, daemon, seen, is_watched=number % 2 == 1))
                _say(turns[-1])
            trickle.cancel()
        return turns, seen


def topic(number: int) -> str:
    return f"watched-{number}"


async def _turn(order: Order, daemon: Daemon, seen: Seen, *, is_watched: bool) -> Turn:
    async with asyncio.TaskGroup() as tasks:
        watchers = [tasks.create_task(work, name="watcher") for work in _watchers(order, daemon, seen, is_watched)]
        await asyncio.sleep(2.0)  # a page gets a snapshot when it is opened; that is not what a second costs
        own_s, tree, strangers, begun = daemon.own_s(), daemon.tree.cpu(), Strangers(), time.monotonic()
        await asyncio.sleep(order.turn_s)
        took_s = time.monotonic() - begun
        turn = Turn(
            is_watched,
            (daemon.own_s() - own_s) / took_s,
            daemon.tree.cpu().since(tree).tree_s / took_s,
            strangers.cores(),
        )
        for watcher in watchers:
            watcher.cancel()
    return turn


def _watchers(order: Order, daemon: Daemon, seen: Seen, is_watched: bool) -> list[Coroutine[Any, Any, None]]:  # noqa: FBT001
    if not is_watched:
        return []
    pages = [_look(daemon, seen, f"S{number}->B" if number % 2 == 0 else "") for number in range(order.pages)]
    return [_scrape_forever(order, daemon, seen), *pages]


async def _scrape_forever(order: Order, daemon: Daemon, seen: Seen) -> None:
    """Scrape as Prometheus does: one connection, gzip taken."""
    headers = {"Accept": ACCEPTED, "Accept-Encoding": "gzip"}
    async with aiohttp.ClientSession(auto_decompress=False, headers=headers) as http:
        while True:
            begun = time.monotonic()
            async with http.get(f"{daemon.url}/metrics") as response:
                response.raise_for_status()
                body = await response.read()
            took_s = time.monotonic() - begun
            seen.scrapes_ms.append(took_s * 1000)
            seen.sent_bytes = len(body)
            await asyncio.sleep(max(0.0, order.scrape_every_s - took_s))


async def _look(daemon: Daemon, seen: Seen, flow: str) -> None:
    """Hold a page open: that of a flow, or the overview."""
    timeout = aiohttp.ClientTimeout(total=None)
    query = {"flow": flow} if flow else {}
    async with (
        aiohttp.ClientSession(timeout=timeout) as http,
        http.get(f"{daemon.url}/stream", params=query) as response,
    ):
        response.raise_for_status()
        async for chunk in response.content.iter_any():
            seen.page_bytes += len(chunk)


async def _trickle(order: Order, broker: Broker) -> None:
    """Write single records to all partitions, topic by topic, in an even stream."""
    turn, sent = 0, 0.0
    while True:
        sent += order.records_per_s * TRICKLE_EVERY_S
        while sent >= order.partitions_each:
            batch = _batch(turn)
            await broker.produce(
                topic(turn % order.flows), [(partition, batch) for partition in range(order.partitions_each)]
            )
            sent -= order.partitions_each
            turn += 1
        await asyncio.sleep(TRICKLE_EVERY_S)


def _batch(turn: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    builder.append(0, time.time_ns() // 1_000_000, b"key", b"%d" % turn + b"." * 200, [])
    return bytes(builder.build())


@contextlib.asynccontextmanager
async def _daemon(order: Order, source: str, target: str, directory: Path) -> AsyncIterator[Daemon]:
    (port,) = free_ports(1)
    settings = _properties(order, source, target, port)
    async with running_on(Candidate.MM2PY, settings, directory / "mirror", grace_s=GRACE_S) as mirror:
        yield Daemon(mirror.process, mirror.tree, f"http://{HOST}:{port}")


def _properties(order: Order, source: str, target: str, port: int) -> dict[str, str]:
    aliases = [f"S{number}" for number in range(order.flows)]
    settings = {
        "clusters": ", ".join([*aliases, "B"]),
        "B.bootstrap.servers": target,
        "listeners": f"http://{HOST}:{port}",
        "replication.factor": "1",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        # Else every pair of aliases is a flow that emits heartbeats: 420 of them.
        "emit.heartbeats.enabled": "false",
        # A label for each partition is what is to be paid for.
        "metrics.partitions.max": str(order.partitions),
    }
    for number, alias in enumerate(aliases):
        settings |= {
            f"{alias}.bootstrap.servers": source,
            f"{alias}->B.enabled": "true",
            f"{alias}->B.topics": topic(number),
        }
    return settings


async def _until_all_copied(order: Order, daemon: Daemon) -> None:
    """Wait until every partition of every flow is being copied."""
    deadline = time.monotonic() + START_LIMIT_S
    said = "nothing yet"
    async with aiohttp.ClientSession() as http:
        while time.monotonic() < deadline:
            if not daemon.process.is_running:
                raise RuntimeError(f"the daemon ended: {daemon.process.log_warnings()}")
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with asyncio.timeout(10), http.get(f"{daemon.url}/status") as response:
                    flows = (await response.json())["flows"]
                partitions = sum(flow["partitions"] for flow in flows)
                states = {flow["state"] for flow in flows}
                said = f"{len(flows)} flows {states} with {partitions} partitions"
                if partitions >= order.partitions and states == {"running"}:
                    return
            await asyncio.sleep(1)
    raise RuntimeError(
        f"not all partitions are copied after {START_LIMIT_S:g} s: {said}\n{daemon.process.log_warnings()}"
    )


def _say(turn: Turn) -> None:
    print(
        f"{'watched' if turn.is_watched else 'alone  '}  daemon {turn.daemon_cores:.3f} cores, "
        f"tree {turn.tree_cores:.3f}, strangers {turn.strangers_cores:.2f}",
        flush=True,
    )


@attrs.frozen
class Report:
    """The figures."""

    alone_cores: float
    watched_cores: float
    cost_cores: float
    scrapes: int
    scrape_p50_ms: float
    scrape_p99_ms: float
    scrape_max_ms: float
    scrape_sent_bytes: int
    #: Each of them, in the order of time.
    scrapes_ms: tuple[float, ...]
    page_bytes_per_s: float
    strangers_cores: float

    @property
    def is_met(self) -> bool:
        """Whether the goals are met."""
        return self.cost_cores < MOST_CORES and self.scrape_p99_ms < MOST_SCRAPE_MS


def report(order: Order, turns: Sequence[Turn], seen: Seen) -> Report:
    """Sum up."""

    def median(pick: Callable[[Turn], float], *, is_watched: bool) -> float:
        return statistics.median(pick(turn) for turn in turns if turn.is_watched is is_watched)

    alone = median(lambda turn: turn.daemon_cores, is_watched=False)
    watched = median(lambda turn: turn.daemon_cores, is_watched=True)
    scrapes = sorted(seen.scrapes_ms)
    watched_s = order.turns * (order.turn_s + 2.0)
    return Report(
        alone_cores=alone,
        watched_cores=watched,
        cost_cores=watched - alone,
        scrapes=len(scrapes),
        scrape_p50_ms=quantile(scrapes, 0.5),
        scrape_p99_ms=quantile(scrapes, 0.99),
        scrape_max_ms=scrapes[-1],
        scrape_sent_bytes=seen.sent_bytes,
        scrapes_ms=tuple(seen.scrapes_ms),
        page_bytes_per_s=seen.page_bytes / watched_s / max(1, order.pages),
        strangers_cores=statistics.median(turn.strangers_cores for turn in turns),
    )


def print_report(console: Console, order: Order, found: Report) -> None:
    """Print the figures beside the goals."""
    table = Table(title=f"{order.flows} flows, {order.partitions} partitions, {order.pages} pages, "
                  f"a scrape every {order.scrape_every_s:g} s")  # fmt: skip
    for column in ("what", "measured", "goal"):
        table.add_column(column)
    table.add_row("daemon alone", f"{found.alone_cores:.3f} cores", "")
    table.add_row("daemon watched", f"{found.watched_cores:.3f} cores", "")
    table.add_row("cost of being watched", f"{found.cost_cores:.3f} cores", f"< {MOST_CORES:g}")
    table.add_row(f"scrape p50 of {found.scrapes}", f"{found.scrape_p50_ms:.1f} ms", "")
    table.add_row("scrape p99", f"{found.scrape_p99_ms:.1f} ms", f"< {MOST_SCRAPE_MS:g} ms")
    table.add_row("scrape max", f"{found.scrape_max_ms:.1f} ms", "")
    table.add_row("a scrape on the wire", f"{found.scrape_sent_bytes / 1000:.0f} kB", "")
    table.add_row("a page on the wire", f"{found.page_bytes_per_s / 1000:.1f} kB/s", "")
    table.add_row("strangers", f"{found.strangers_cores:.2f} cores", "< 0.1 to be worth quoting")
    console.print(table)


def make_parser() -> argparse.ArgumentParser:
    """Declare the arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench.observing", description="What being watched costs a daemon.")
    parser.add_argument("--flows", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=2000, help="of all flows together")
    parser.add_argument("--scrape-every", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument("--pages", type=int, default=2, help="the first shows a flow, the second the overview, …")
    parser.add_argument("--turn", type=float, default=60.0, metavar="SECONDS", help="of one turn, watched or alone")
    parser.add_argument("--turns", type=int, default=2, help="of each kind")
    parser.add_argument("--records", type=int, default=200, metavar="PER SECOND", help="through all flows together")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where a goal is missed."""
    given = make_parser().parse_args(arguments)
    order = Order(
        flows=given.flows,
        partitions=given.partitions,
        scrape_every_s=given.scrape_every,
        pages=given.pages,
        turn_s=given.turn,
        turns=given.turns,
        records_per_s=given.records,
    )
    with tempfile.TemporaryDirectory(prefix="mm2py-bench-") as scratch:
        clusters = [KafkaCluster(name, jvm=BROKER_JVM, work_dir=Path(scratch) / name) for name in ("source", "target")]
        start_clusters(clusters)
        try:
            source, target = (cluster.bootstrap_servers for cluster in clusters)
            turns, seen = asyncio.run(measure(order, source, target, Path(scratch)))
        finally:
            for cluster in clusters:
                cluster.stop()
    found = report(order, turns, seen)
    print_report(Console(), order, found)
    if given.json:
        given.json.write_text(json.dumps(attrs.asdict(found), indent=2) + "\n")
    return 0 if found.is_met else 1


if __name__ == "__main__":
    sys.exit(main())
