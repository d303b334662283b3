"""
The part ``idle``: a flow stands idle, then records go into a twentieth of its partitions.

The first seconds are *cold*: the JIT compilers have not seen the load, and nothing is in the caches. *warm* is what was
due after them.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import attrs

from bench.latency import quantile
from bench.scale.arrivals import Window
from bench.scale.report import Row, seconds
from bench.scale.rig import Rig, Start, load, sampled
from bench.tree import Strangers


COLD_NS = 4 * 10**9
WARM_FROM_NS = 10 * 10**9
#: The boundaries of the first epochs are those of a start.
FIRST_EPOCHS = 2


@attrs.frozen
class Boundaries:
    """What the epochs of the copy tasks took beside copying, and how often the topics were refreshed meanwhile."""

    epochs: int
    p50_ms: float
    max_ms: float
    refreshes: int


@attrs.frozen
class Idle:
    """The figures of one run; None is what was not reached within the limit."""

    start: Start
    peak_pss_mib: float
    idle_cores: float | None = None
    idle_broker_cores: float | None = None
    busy_cores: float | None = None
    sent: int = 0
    missing: int = 0
    repeated: int = 0
    cold: Window | None = None
    warm: Window | None = None
    acknowledged: Window | None = None
    boundaries: Boundaries | None = None
    strangers_cores: float = 0.0

    def rows(self) -> list[Row]:
        """Return what is printed."""
        found = [
            ("start to first record", seconds(self.start.first_record_s)),
            ("all topics mirrored", seconds(self.start.all_topics_s)),
            ("all partitions copied", seconds(self.start.all_copied_s)),
            ("peak PSS", f"{self.peak_pss_mib:.0f} MiB"),
        ]
        if self.cold is None or self.warm is None:
            return found
        found += [
            ("idle", f"{self.idle_cores:.3f} cores; brokers {self.idle_broker_cores:.3f}"),
            ("busy", f"{self.busy_cores:.3f} cores"),
            ("latency, cold", str(self.cold)),
            ("latency, warm", str(self.warm)),
            ("until acknowledged", str(self.acknowledged)),
            ("missing, repeated", f"{self.missing}, {self.repeated} of {self.sent}"),
        ]
        if self.boundaries:
            of = self.boundaries
            found.append(("boundary", f"p50 {of.p50_ms:.0f}, max {of.max_ms:.0f} ms of {of.epochs}"))
            found.append(("topic refreshes while busy", str(of.refreshes)))
        found.append(("strangers", f"{self.strangers_cores:.2f} cores"))
        return found


async def measure(rig: Rig) -> Idle:
    """Watch the start, then the flow idle and busy, as far as it gets."""
    order, tree = rig.order, rig.mirror.tree
    async with sampled(rig.mirror):
        start = await rig.start()
    if start.all_topics_s is None:
        return Idle(start, tree.peak_pss_bytes / 2**20)
    await asyncio.sleep(order.settle_s)
    idle, idle_brokers, strangers = await _idle(rig)
    logged = rig.log.stat().st_size
    async with load(rig) as running:
        before = tree.cpu()
        await running.run_for(order.busy_s)
        busy = tree.cpu().since(before).tree_s
        arrivals = await running.end()
    tree.sample_memory()
    first, last = arrivals.first_due_ns, arrivals.last_due_ns
    warm_from = min(first + WARM_FROM_NS, (first + last) // 2)
    return Idle(
        start=start,
        peak_pss_mib=tree.peak_pss_bytes / 2**20,
        idle_cores=idle,
        idle_broker_cores=idle_brokers,
        busy_cores=busy / order.busy_s,
        sent=arrivals.sent,
        missing=arrivals.missing,
        repeated=arrivals.repeated,
        cold=arrivals.window(first, first + COLD_NS),
        warm=arrivals.window(warm_from, last + 1),
        acknowledged=running.acknowledged,
        boundaries=boundaries(rig.log, logged) if rig.candidate.is_ours else None,
        strangers_cores=max(strangers, running.strangers_cores),
    )


async def _idle(rig: Rig) -> tuple[float, float, float]:
    """Return the cores that the mirror, the brokers and strangers use while nothing happens."""
    trees = [rig.mirror.tree, *rig.broker_trees()]
    before, strangers = [tree.cpu() for tree in trees], Strangers()
    await asyncio.sleep(rig.order.idle_s)
    mirror, *brokers = (tree.cpu().since(was).tree_s for tree, was in zip(trees, before, strict=True))
    return mirror / rig.order.idle_s, sum(brokers) / rig.order.idle_s, strangers.cores()


def boundaries(log: Path, from_byte: int) -> Boundaries:
    """Return how long the boundaries of epochs took, and how often topics were refreshed after *from_byte*."""
    took_ms, refreshes = [], 0
    with log.open("rb") as lines:
        for line in lines:
            if b'"epoch_ended"' in line:
                event = json.loads(line)
                if event["epoch"] > FIRST_EPOCHS:
                    took_ms.append(float(event["boundary_ms"]))
            elif b'"topics_refreshed"' in line and lines.tell() > from_byte:
                refreshes += 1
    took_ms.sort()
    if not took_ms:
        return Boundaries(0, 0.0, 0.0, refreshes)
    return Boundaries(len(took_ms), quantile(took_ms, 0.5), took_ms[-1], refreshes)
