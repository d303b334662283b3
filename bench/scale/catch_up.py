"""
The part ``catch-up``: a flow is paused, records pile up at the source, and it catches up beside live ones.

Meanwhile records flow into other partitions of the source, and a producer that has nothing to do with the mirror writes
to the target. What both wait for longer than before is what the others notice of the catching up.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import attrs

from bench.batches import ProducerId, Template, batches_of
from bench.cluster import Place
from bench.latency import quantile
from bench.scale.arrivals import Window
from bench.scale.order import places, remote
from bench.scale.report import Row, seconds
from bench.scale.rig import Load, Rig, Start, bystander, load, sampled
from bench.shapes import SHAPES_BY_NAME
from mm2py.clock import SystemClock


#: What is thrown away of the time before the outage.
WARM_UP_NS = 4 * 10**9
#: What is thrown away of the time after it: the flow starts again, and what is live has a backlog of its own.
RESUMING_NS = 4 * 10**9
#: How old the outstanding records are, at most.
OUTAGE_MS = 2 * 3_600_000
WRITERS, PLACES_A_REQUEST = 4, 16
LOOK_EVERY_S = 1.0
#: What is promised of the time to level; what is nearer than a tenth of the whole is not worth knowing.
CLOSE, LAST_PART = 0.2, 0.1


@attrs.frozen
class Look:
    """How long it was to take until all is level, so many seconds after the flow went on; None if unknown."""

    at_s: float
    seconds_until_level: float | None


@attrs.frozen
class Foretold:
    """How well the time to level was foretold."""

    looks: int
    known: int
    close: int
    #: What was foretold, by what it took from then on.
    median_ratio: float

    def __str__(self) -> str:
        return (
            f"{self.close} of {self.known} within a fifth, median {self.median_ratio:.2f} of what it took; "
            f"unknown at {self.looks - self.known} of {self.looks} looks"
        )


def foretold(looks: Sequence[Look], took_s: float) -> Foretold:
    """Compare what was shown with how long it was in the end."""
    counted = [look for look in looks if look.at_s < took_s * (1 - LAST_PART)]
    ratios = sorted(
        look.seconds_until_level / (took_s - look.at_s) for look in counted if look.seconds_until_level is not None
    )
    close = sum(abs(ratio - 1) <= CLOSE for ratio in ratios)
    return Foretold(len(counted), len(ratios), close, quantile(ratios, 0.5) if ratios else 0.0)


@attrs.frozen
class CatchUp:
    """The figures of one run; None is what was not reached within the limit."""

    start: Start
    behind: int
    live: int
    outstanding_mb: float
    took_s: float | None
    #: None if it was not level in time.
    level: Foretold | None
    others_before: Window
    others_meanwhile: Window
    live_before: Window
    live_meanwhile: Window
    sent: int
    missing: int
    repeated: int
    strangers_cores: float

    def rows(self) -> list[Row]:
        """Return what is printed."""
        rate = f", {self.outstanding_mb / self.took_s:.1f} MB/s" if self.took_s else ""
        more_ms = self.others_meanwhile.p99_ms - self.others_before.p99_ms
        return [
            ("outstanding", f"{self.outstanding_mb:.0f} MB on {self.behind} partitions"),
            ("until all are level", seconds(self.took_s) + rate),
            ("time to level", "-" if self.level is None else str(self.level)),
            ("producer at the target, before", str(self.others_before)),
            ("producer at the target, meanwhile", f"{self.others_meanwhile}; p99 {more_ms:+.1f} ms"),
            (f"latency of {self.live} live partitions, before", str(self.live_before)),
            (f"latency of {self.live} live partitions, meanwhile", str(self.live_meanwhile)),
            ("missing, repeated", f"{self.missing}, {self.repeated} of {self.sent}"),
            ("strangers", f"{self.strangers_cores:.2f} cores"),
        ]


async def measure(rig: Rig) -> CatchUp:
    """Pause the flow in the middle of the load, write what is to be caught up with, and watch until it is."""
    order = rig.order
    async with sampled(rig.mirror):
        start = await rig.start()
    await asyncio.sleep(order.settle_s)
    behind = places(order.behind)
    async with load(rig) as running, bystander(rig) as other:
        began_ns = time.time_ns()
        await running.run_for(order.busy_s)
        outage_ns = time.time_ns()
        await rig.ask("PUT", "/pause")
        written = await _write_backlog(rig, behind)
        await running.run_for(order.settle_s)
        await rig.ask("PUT", "/resume")
        resumed_ns = time.time_ns()
        took_s, looks = await _until_level(rig, running, behind)
        ended_ns = time.time_ns()
        acknowledged = await other.end()
        arrivals = await running.end()
    settled_ns = min(resumed_ns + RESUMING_NS, (resumed_ns + ended_ns) // 2)
    return CatchUp(
        start=start,
        behind=len(behind),
        live=sum(order.busy.values()),
        outstanding_mb=written / 1e6,
        took_s=took_s,
        level=None if took_s is None else foretold(looks, took_s),
        others_before=acknowledged.window(began_ns + WARM_UP_NS, outage_ns),
        others_meanwhile=acknowledged.window(resumed_ns, ended_ns),
        live_before=arrivals.window(began_ns + WARM_UP_NS, outage_ns),
        live_meanwhile=arrivals.window(settled_ns, ended_ns),
        sent=arrivals.sent,
        missing=arrivals.missing,
        repeated=arrivals.repeated,
        strangers_cores=running.strangers_cores,
    )


async def _write_backlog(rig: Rig, where: Sequence[Place]) -> int:
    """Write as many bytes as are to be outstanding to *where*, evenly; return how many it were."""
    await rig.source.refresh({topic for topic, _ in where})
    producer, templates = await rig.source.init_producer_id(), batches_of(SHAPES_BY_NAME["json"])
    parts = [where[number::WRITERS] for number in range(min(WRITERS, len(where)))]
    most = rig.order.backlog_bytes // len(parts)
    async with asyncio.TaskGroup() as tasks:
        writers = [
            tasks.create_task(_write_part(rig, part, producer, templates, most), name=f"write-{number}")
            for number, part in enumerate(parts)
        ]
    return sum(writer.result() for writer in writers)


async def _write_part(
    rig: Rig, where: Sequence[Place], producer: ProducerId, templates: Iterator[Template], most: int
) -> int:
    sequences, written = Counter[Place](), 0
    from_ms = SystemClock().wall_ms() - OUTAGE_MS
    while written < most:
        for at in range(0, len(where), PLACES_A_REQUEST):
            batches = {}
            for place in where[at : at + PLACES_A_REQUEST]:
                template = next(templates)
                batches[place] = template.stamped(producer, sequences[place], from_ms + OUTAGE_MS * written // most)
                sequences[place] += template.records
                written += len(batches[place])
            await rig.source.produce(batches)
    return written


async def _until_level(rig: Rig, running: Load, where: Sequence[Place]) -> tuple[float | None, list[Look]]:
    """Wait until all of *where* is copied; return how long that took, and what was said of it meanwhile."""
    ends = {remote(place): end for place, end in (await rig.source.ends(where)).items()}
    began, looks = time.monotonic(), list[Look]()
    left = dict(ends)
    while time.monotonic() < began + rig.order.limit_s:
        running.check()
        shown = (await rig.ask("GET", "/status"))["seconds_until_level"]
        looks.append(Look(time.monotonic() - began, shown))
        found = await rig.target.ends(left)
        left = {place: end for place, end in left.items() if found.get(place, 0) < end}
        if not left:
            return time.monotonic() - began, looks
        await asyncio.sleep(LOOK_EVERY_S)
    return None, looks
