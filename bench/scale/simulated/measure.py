"""
The part ``simulated``: one daemon between two clusters that are simulated.

What is measured is the mirror's own: the brokers are a process that does as little as it can.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import attrs

from bench.candidates import Candidate
from bench.mirror import Mirror, MirrorFailedError, running_on
from bench.scale.idle import Boundaries, boundaries
from bench.scale.order import Order
from bench.scale.report import Row, seconds
from bench.scale.rig import CHECKOUT, GRACE_S, sampled
from bench.scale.simulated import watched
from bench.tree import TICKS_PER_S, ProcessTree, Strangers, all_processes, pss_bytes
from mm2py.devkit.ports import free_ports
from mm2py.devkit.process import LoggedProcess, start_process


READY_S, POLL_S = 60.0, 0.2
HOST = "127.0.0.1"

#: What is asked of the daemon, by the path: a node's status, its metrics, a page of a flow's topics.
VIEWS = ("/status", "/metrics", "/from:A/to:B/topics")
#: The page's live updates: the first messages, with every row.
STREAM = "/stream?flow=A-%3EB"
STREAM_S = 5.0


@attrs.frozen
class View:
    """One answer of the REST server."""

    path: str
    took_ms: float
    size: int

    def __str__(self) -> str:
        return f"{self.took_ms:.0f} ms, {self.size / 1e6:.2f} MB"


@attrs.frozen
class Turns:
    """Turns of the daemon's event loop in a span of time that took 20 ms of CPU time or more."""

    count: int
    #: How many took 50 ms or more.
    long: int
    most_ms: float
    #: Of which the garbage collector's.
    most_gc_ms: float
    slowest: str

    def __str__(self) -> str:
        return f"{self.long} of 50 ms or more, longest {self.most_ms:.0f} ms ({self.slowest})"


@attrs.frozen
class Simulated:
    """The figures of one run; None is what was not reached within the limit."""

    first_record_s: float | None
    all_copied_s: float | None
    start_cpu_s: float
    start_turns: Turns
    peak_pss_mib: float
    daemon_pss_mib: float = 0.0
    idle_cores: float = 0.0
    idle_daemon_cores: float = 0.0
    idle_broker_cores: float = 0.0
    idle_turns: Turns | None = None
    refreshes_s: tuple[float, ...] = ()
    views: tuple[View, ...] = ()
    view_turns: Turns | None = None
    busy_cores: float = 0.0
    busy_daemon_cores: float = 0.0
    busy_turns: Turns | None = None
    sent: int = 0
    missing: int = 0
    repeated: int = 0
    warm_p50_ms: float = 0.0
    warm_p99_ms: float = 0.0
    boundaries: Boundaries | None = None
    strangers_cores: float = 0.0

    def rows(self) -> list[Row]:
        """Return what is printed."""
        found = [
            ("start to first record", seconds(self.first_record_s)),
            ("all partitions copied", seconds(self.all_copied_s)),
            ("CPU time until then", f"{self.start_cpu_s:.1f} s"),
            ("event loop at the start", str(self.start_turns)),
            ("peak PSS", f"{self.peak_pss_mib:.0f} MiB"),
        ]
        if self.idle_turns is None:
            return found
        refreshes = ", ".join(f"{it:.1f} s" for it in self.refreshes_s) or "-"
        found += [
            ("PSS of the daemon", f"{self.daemon_pss_mib:.0f} MiB"),
            ("idle", f"{self.idle_cores:.3f} cores, {self.idle_daemon_cores:.3f} of them the daemon's"),
            ("simulated brokers, idle", f"{self.idle_broker_cores:.3f} cores"),
            ("event loop, idle", str(self.idle_turns)),
            ("topic refreshes", refreshes),
            *((view.path, str(view)) for view in self.views),
            ("event loop, asked", str(self.view_turns)),
            ("busy", f"{self.busy_cores:.3f} cores, {self.busy_daemon_cores:.3f} of them the daemon's"),
            ("event loop, busy", str(self.busy_turns)),
            ("latency, warm", f"p50 {self.warm_p50_ms:.1f}, p99 {self.warm_p99_ms:.1f} ms"),
            ("missing, repeated", f"{self.missing}, {self.repeated} of {self.sent}"),
        ]
        if self.boundaries:
            of = self.boundaries
            found.append(("boundary", f"p50 {of.p50_ms:.0f}, max {of.max_ms:.0f} ms of {of.epochs}"))
        found.append(("strangers", f"{self.strangers_cores:.2f} cores"))
        return found


@attrs.frozen(eq=False)
class _Rig:
    order: Order
    mirror: Mirror
    brokers: LoggedProcess
    port: int
    directory: Path

    def said(self, what: str) -> dict[str, Any] | None:
        """Return what the brokers reported of *what*, or None."""
        return next((it for it in _lines(self.brokers.log_text()) if it["what"] == what), None)

    async def until(self, what: str, within_s: float) -> dict[str, Any] | None:
        """Wait until the brokers report *what*."""
        deadline = time.monotonic() + within_s
        while (found := self.said(what)) is None and time.monotonic() < deadline:
            self.mirror.check()
            await asyncio.sleep(POLL_S)
        return found

    def daemon_cpu_s(self) -> float:
        return all_processes()[self.mirror.process.pid].own / TICKS_PER_S

    def turns(self, since: float) -> Turns:
        """Return the long turns of the event loop after *since*."""
        file = self.directory / "turns"
        found = [it for it in _lines(file.read_text() if file.exists() else "") if it["at"] >= since]
        slowest = max(found, key=lambda it: float(it["cpu_ms"]), default={"cpu_ms": 0.0, "gc_ms": 0.0, "what": "-"})
        long = sum(it["cpu_ms"] >= 50 for it in found)
        what = slowest["what"] if len(slowest["what"]) <= 60 else f"{slowest['what'][:30]} … {slowest['what'][-28:]}"
        return Turns(len(found), long, slowest["cpu_ms"], slowest["gc_ms"], what)


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]


async def measure(order: Order, candidate: Candidate, directory: Path) -> Simulated:
    """Watch a start, then the flow idle, asked and busy."""
    async with _rig(order, candidate, directory) as rig:
        started, tree = rig.mirror.started, rig.mirror.tree
        async with sampled(rig.mirror):
            copied = await rig.until("all partitions", order.limit_s)
        first = rig.said("first record")
        cpu_s = tree.cpu().tree_s
        found = Simulated(
            first_record_s=first["at"] - started if first else None,
            all_copied_s=copied["at"] - started if copied else None,
            start_cpu_s=cpu_s,
            start_turns=rig.turns(started),
            peak_pss_mib=tree.peak_pss_bytes / 2**20,
        )
        if copied is None:
            return found
        await asyncio.sleep(order.settle_s)
        found = await _idle(rig, found)
        found = await _asked(rig, found)
        return await _busy(rig, found)


async def _idle(rig: _Rig, found: Simulated) -> Simulated:
    brokers, strangers = ProcessTree(rig.brokers.pid), Strangers()
    since, tree = time.monotonic(), rig.mirror.tree
    before, own, theirs = tree.cpu(), rig.daemon_cpu_s(), brokers.cpu()
    await asyncio.sleep(rig.order.idle_s)
    took_s = time.monotonic() - since
    found = attrs.evolve(
        found,
        idle_cores=tree.cpu().since(before).tree_s / took_s,
        idle_daemon_cores=(rig.daemon_cpu_s() - own) / took_s,
        idle_broker_cores=brokers.cpu().since(theirs).tree_s / took_s,
        idle_turns=rig.turns(since),
        refreshes_s=_refreshes(rig.directory / "mirror" / "log"),
        strangers_cores=strangers.cores(),
    )
    tree.sample_memory()
    return attrs.evolve(
        found,
        peak_pss_mib=tree.peak_pss_bytes / 2**20,
        daemon_pss_mib=pss_bytes(rig.mirror.process.pid) / 2**20,
    )


async def _asked(rig: _Rig, found: Simulated) -> Simulated:
    since, views = time.monotonic(), []
    async with aiohttp.ClientSession(f"http://{HOST}:{rig.port}") as http:
        for path in VIEWS:
            begun = time.monotonic()
            async with http.get(path) as response:
                size = len(await response.read())
            views.append(View(path, (time.monotonic() - begun) * 1000, size))
        begun, size = time.monotonic(), 0
        first_ms = 0.0
        try:
            async with asyncio.timeout(STREAM_S), http.get(STREAM) as response:
                async for piece in response.content.iter_any():
                    size, first_ms = size + len(piece), (time.monotonic() - begun) * 1000
        except TimeoutError:
            views.append(View(f"/stream of {STREAM_S:.0f} s", first_ms, size))
    return attrs.evolve(found, views=tuple(views), view_turns=rig.turns(since))


async def _busy(rig: _Rig, found: Simulated) -> Simulated:
    order, tree = rig.order, rig.mirror.tree
    since, strangers = time.monotonic(), Strangers()
    before, own = tree.cpu(), rig.daemon_cpu_s()
    rig.brokers.signal(signal.SIGUSR1)
    await asyncio.sleep(order.busy_s)
    took_s = time.monotonic() - since
    cores, daemon = tree.cpu().since(before).tree_s / took_s, (rig.daemon_cpu_s() - own) / took_s
    rig.brokers.signal(signal.SIGUSR1)
    load = await rig.until("load", READY_S)
    if load is None:
        raise rig.mirror.failed("the simulated brokers never said what had arrived")
    return attrs.evolve(
        found,
        busy_cores=cores,
        busy_daemon_cores=daemon,
        busy_turns=rig.turns(since),
        sent=load["sent"],
        missing=load["missing"],
        repeated=load["repeated"],
        warm_p50_ms=load["warm"]["p50_ms"],
        warm_p99_ms=load["warm"]["p99_ms"],
        boundaries=boundaries(rig.directory / "mirror" / "log", 0),
        strangers_cores=max(found.strangers_cores, strangers.cores()),
    )


def _refreshes(log: Path) -> tuple[float, ...]:
    """Return how long the refreshes of the topics took, the first left out, which creates them."""
    with log.open("rb") as lines:
        found = [json.loads(line) for line in lines if b'"topics_refreshed"' in line]
    return tuple(it["took_ms"] / 1000 for it in found[1:])


@asynccontextmanager
async def _rig(order: Order, candidate: Candidate, directory: Path) -> AsyncIterator[_Rig]:
    """Start the brokers, and the mirror between them."""
    file = directory / "order.json"
    plan = {"topics": order.topics, "busy": sorted(order.busy), "rate": order.rate}
    await asyncio.to_thread(file.write_text, json.dumps(plan))
    environment = {"PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-m", "bench.scale.simulated", str(file)]
    brokers = start_process("brokers", command, log_file=directory / "brokers.log", cwd=directory, env=environment)
    try:
        ports = await _ports(candidate, brokers)
        (port,) = free_ports(1)
        settings = order.settings(candidate, *(f"{HOST}:{it}" for it in ports), port)
        turns = directory / "turns"
        async with running_on(
            candidate, settings, directory / "mirror", grace_s=GRACE_S, module=watched.__name__,
            environment={watched.FILE: str(turns)},
            profile=directory / "mirror.cprofile" if order.is_profiled else None,
        ) as mirror:  # fmt: skip
            yield _Rig(order, mirror, brokers, port, directory)
    finally:
        await asyncio.to_thread(brokers.terminate)


async def _ports(candidate: Candidate, brokers: LoggedProcess) -> list[int]:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and brokers.is_running:
        for said in _lines(brokers.log_text()):
            ports: list[int] = said["ports"]
            return ports
        await asyncio.sleep(POLL_S)
    raise MirrorFailedError(candidate.value, "the simulated brokers did not start", brokers.log_tail())
