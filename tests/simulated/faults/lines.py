"""What befalls the network: cuts, partitions, slow and thin lines."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulated.faults.kind import Fault, duration
from tests.simulated.network import Quality


if TYPE_CHECKING:
    from tests.simulated.world import World


def _cut(world: World, draw: random.Random) -> str:
    able = list(world.network.connections)
    some = [it for it in able if draw.random() < 0.2] or ([draw.choice(able)] if able else [])
    for connection in some:
        connection.cut()
    return f"{len(some)} connections" if some else ""


def _partition(world: World, draw: random.Random) -> str:
    """Nothing passes between a node and brokers, one way or both."""
    node, cluster = draw.choice(list(world.nodes)), world.a_cluster(draw)
    brokers = [it.address for it in cluster.brokers.values()]
    some = brokers if draw.random() < 0.4 else [draw.choice(brokers)]
    which = draw.choice(("both", "there", "back"))
    ways = [(node, it) for it in some if which != "back"] + [(it, node) for it in some if which != "there"]
    world.network.block(*ways)
    seconds = duration(draw)
    world.later(seconds, lambda: world.network.unblock(*ways))
    return f"{node} and {','.join(some)} {which} for {seconds:.2f} s"


def _slow(world: World, draw: random.Random) -> str:
    node, cluster = draw.choice(list(world.nodes)), world.a_cluster(draw)
    quality = Quality(draw.choice((0.02, 0.2, 1.0)), 0.05, draw.choice((1e4, 1e5, 1e7)))
    brokers = [broker.address for broker in cluster.brokers.values()]
    ways = [way for broker in brokers for way in ((node, broker), (broker, node))]
    for way in ways:
        world.network.qualities[way] = quality
    seconds = duration(draw)

    def mend() -> None:
        for way in ways:
            world.network.qualities.pop(way, None)

    world.later(seconds, mend)
    return f"{node} {cluster.name} {quality.latency_s} s for {seconds:.2f} s"


FAULTS: dict[str, Fault] = {"cut": _cut, "partition": _partition, "slow": _slow}
