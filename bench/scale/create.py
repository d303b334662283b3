"""The part ``create``: many topics are created at once while records go into others."""

from __future__ import annotations

import asyncio
import time

import attrs

from bench.cluster import RETRY_S
from bench.scale.arrivals import Window
from bench.scale.order import places, remote
from bench.scale.report import Row, seconds
from bench.scale.rig import Rig, Start, load, sampled


#: What is thrown away of the time before the topics are created.
WARM_UP_NS = 4 * 10**9


@attrs.frozen
class Create:
    """The figures of one run; times count from the first request that creates topics."""

    start: Start
    topics: int
    created_s: float
    all_remote_s: float | None
    all_copied_s: float | None
    before: Window
    meanwhile: Window
    sent: int
    missing: int
    repeated: int
    acknowledged: Window | None
    strangers_cores: float

    def rows(self) -> list[Row]:
        """Return what is printed."""
        return [
            ("all partitions copied after the start", seconds(self.start.all_copied_s)),
            (f"{self.topics} topics created at the source", seconds(self.created_s)),
            ("all have remote topics", seconds(self.all_remote_s)),
            ("all are copied", seconds(self.all_copied_s)),
            ("latency of busy partitions, before", str(self.before)),
            ("latency of busy partitions, meanwhile", str(self.meanwhile)),
            ("until acknowledged", str(self.acknowledged)),
            ("missing, repeated", f"{self.missing}, {self.repeated} of {self.sent}"),
            ("strangers", f"{self.strangers_cores:.2f} cores"),
        ]


async def measure(rig: Rig) -> Create:
    """Create the topics in the middle of the load, and wait until records of all of them are at the target."""
    order = rig.order
    async with sampled(rig.mirror):
        start = await rig.start()
    await asyncio.sleep(order.settle_s)
    async with load(rig) as running:
        await running.run_for(order.busy_s)
        began, began_ns = time.monotonic(), time.time_ns()
        await rig.source.create_topics(order.created, replicas=order.replicas)
        created_s = time.monotonic() - began
        await rig.sow(places(order.created))
        remote_s = await _until_remote(rig, began)
        copied = None
        if remote_s is not None:
            every = dict.fromkeys((remote(place) for place in places(order.created)), 0)
            copied = await rig.until_grown(every, began + order.limit_s - time.monotonic())
        ended_ns = time.time_ns()
        arrivals = await running.end()
    return Create(
        start=start,
        topics=order.new_topics,
        created_s=created_s,
        all_remote_s=remote_s,
        all_copied_s=None if copied is None else copied - began,
        before=arrivals.window(arrivals.first_due_ns + WARM_UP_NS, began_ns),
        meanwhile=arrivals.window(began_ns, ended_ns),
        sent=arrivals.sent,
        missing=arrivals.missing,
        repeated=arrivals.repeated,
        acknowledged=running.acknowledged,
        strangers_cores=running.strangers_cores,
    )


async def _until_remote(rig: Rig, began: float) -> float | None:
    """Return after how many seconds every new topic had a remote one, or None."""
    left = {remote((topic, 0)) for topic in rig.order.created}
    while time.monotonic() < began + rig.order.limit_s:
        rig.mirror.check()
        left -= (await rig.target.ends(left)).keys()
        if not left:
            return time.monotonic() - began
        await asyncio.sleep(RETRY_S)
    return None
