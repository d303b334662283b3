"""
The parts ``leaders`` and ``flapping``: leaders of partitions move while records flow.

In ``leaders`` the broker that leads all partitions of one side is killed, started again, and elected again; first at
the source, then at the target. In ``flapping`` every other partition of the source gets the other leader every few
seconds. How long it takes until *all* partitions copy again is found out by one record into each of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import attrs

from bench import elections
from bench.cluster import Cluster, Place
from bench.scale.arrivals import Arrivals, Window
from bench.scale.order import places, remote
from bench.scale.report import Row, milliseconds, seconds
from bench.scale.rig import Load, Rig, Start, load, sampled
from mm2py.devkit.broker import KafkaCluster


LEADS, FOLLOWS = 0, 1
ELECTION_LIMIT_S = 120.0
#: What is thrown away of the time before the leaders move.
WARM_UP_NS = 4 * 10**9


@attrs.frozen
class Move:
    """What happened, when it began and ended on the clock of the records, and how long two things took."""

    name: str
    began_ns: int
    ended_ns: int
    led_s: float
    all_copy_s: float | None


@attrs.frozen
class Moved:
    """A move with the latencies of what was due meanwhile; the longest is the longest pause."""

    move: Move
    latency: Window


@attrs.frozen
class Leaders:
    """The figures of one run of either part."""

    start: Start
    before: Window
    moves: tuple[Moved, ...]
    #: Of partitions whose leader stayed, if there were any.
    others: Window | None
    sent: int
    missing: int
    repeated: int
    acknowledged: Window | None
    strangers_cores: float

    def rows(self) -> list[Row]:
        """Return what is printed."""
        found = [
            ("all partitions copied after the start", seconds(self.start.all_copied_s)),
            ("latency before", str(self.before)),
        ]
        for moved in self.moves:
            name = moved.move.name
            found += [
                (f"{name}: leaders moved", seconds(moved.move.led_s)),
                (f"{name}: all copy again", seconds(moved.move.all_copy_s)),
                (f"{name}: longest pause", milliseconds(moved.latency.max_ms)),
                (f"{name}: latency", str(moved.latency)),
            ]
        if self.others:
            found.append(("latency of those that stayed", str(self.others)))
        found += [
            ("until acknowledged", str(self.acknowledged)),
            ("missing, repeated", f"{self.missing}, {self.repeated} of {self.sent}"),
            ("strangers", f"{self.strangers_cores:.2f} cores"),
        ]
        return found


async def measure_leaders(rig: Rig) -> Leaders:
    """Have all leaders of each side move, and move back."""
    order = rig.order
    async with sampled(rig.mirror):
        start = await rig.start()
    everywhere = places(order.topics)
    mirrored = [remote(place) for place in everywhere]
    await elections.reorder(rig.target, mirrored, [LEADS, FOLLOWS])
    await elections.lead(rig.target, mirrored, LEADS, within_s=ELECTION_LIMIT_S)
    await asyncio.sleep(order.settle_s)
    moves = []
    async with load(rig) as running:
        await running.run_for(order.busy_s)
        began_ns = time.time_ns()
        for name, cluster, asked, those in (
            ("source", rig.clusters[0], rig.source, everywhere),
            ("target", rig.clusters[1], rig.target, mirrored),
        ):
            moves.append(await _moved(rig, f"{name}, killed", _killed(cluster, asked, those)))
            await running.run_for(order.settle_s)
            await asyncio.to_thread(cluster.start, LEADS)
            await running.run_for(order.settle_s)
            moves.append(await _moved(rig, f"{name}, elected", _elected(asked, those)))
            await running.run_for(order.settle_s)
        arrivals = await running.end()
    return _figures(start, began_ns, moves, arrivals, running=running)


async def measure_flapping(rig: Rig) -> Leaders:
    """Have the leaders of every other partition move back and forth."""
    order = rig.order
    async with sampled(rig.mirror):
        start = await rig.start()
    await asyncio.sleep(order.settle_s)
    flapping = [place for place in places(order.topics) if place[1] % 2]
    busy = places(order.busy)
    async with load(rig) as running:
        await running.run_for(order.busy_s)
        began_ns = time.time_ns()
        move = await _moved(rig, "flapping", _flapped(rig, running, flapping))
        arrivals = await running.end()
    among = [index for index, place in enumerate(busy) if place[1] % 2]
    return _figures(start, began_ns, [move], arrivals, running=running, among=among)


async def _moved(rig: Rig, name: str, act: Callable[[], Awaitable[float]]) -> Move:
    """Do *act*, which returns when the last of its moves began; wait until every partition copies again."""
    began_ns = time.time_ns()
    began = await act()
    led = time.monotonic()
    everywhere = places(rig.order.topics)
    mirrored = [remote(place) for place in everywhere]
    before: dict[Place, int] = {}
    while len(before) < len(mirrored):
        before |= await rig.target.ends([place for place in mirrored if place not in before])
    await rig.sow(everywhere)
    copied = await rig.until_grown(before, rig.order.limit_s)
    return Move(name, began_ns, time.time_ns(), led - began, None if copied is None else copied - began)


def _killed(cluster: KafkaCluster, asked: Cluster, those: Sequence[Place]) -> Callable[[], Awaitable[float]]:
    async def act() -> float:
        began = time.monotonic()
        await asyncio.to_thread(cluster.kill, LEADS)
        await elections.until_led_by(asked, those, FOLLOWS, within_s=ELECTION_LIMIT_S)
        return began

    return act


def _elected(asked: Cluster, those: Sequence[Place]) -> Callable[[], Awaitable[float]]:
    async def act() -> float:
        began = time.monotonic()
        await elections.lead(asked, those, LEADS, within_s=ELECTION_LIMIT_S)
        return began

    return act


def _flapped(rig: Rig, running: Load, those: Sequence[Place]) -> Callable[[], Awaitable[float]]:
    async def act() -> float:
        order = rig.order
        until = time.monotonic() + order.busy_s
        leader, other = FOLLOWS, LEADS
        while True:
            began = time.monotonic()
            await elections.reorder(rig.source, those, [leader, other])
            await elections.lead(rig.source, those, leader, within_s=ELECTION_LIMIT_S)
            if time.monotonic() + order.flap_every_s > until:
                return began
            await running.run_for(began + order.flap_every_s - time.monotonic())
            leader, other = other, leader

    return act


def _figures(
    start: Start,
    began_ns: int,
    moves: Sequence[Move],
    arrivals: Arrivals,
    *,
    running: Load,
    among: Sequence[int] | None = None,
) -> Leaders:
    """Put the figures together; *among* are the busy places whose leaders move, if not all do."""
    chosen = None if among is None else set(among)
    others = None
    if chosen is not None:
        stayed = set(range(arrivals.places)) - chosen
        others = arrivals.window(moves[0].began_ns, moves[-1].ended_ns, stayed)
    return Leaders(
        start=start,
        before=arrivals.window(arrivals.first_due_ns + WARM_UP_NS, began_ns),
        moves=tuple(Moved(it, arrivals.window(it.began_ns, it.ended_ns, chosen)) for it in moves),
        others=others,
        sent=arrivals.sent,
        missing=arrivals.missing,
        repeated=arrivals.repeated,
        acknowledged=running.acknowledged,
        strangers_cores=running.strangers_cores,
    )
