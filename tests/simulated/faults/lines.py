"""What befalls the network: cuts, partitions, slow and thin lines, clusters that are away."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from tests.simulated.faults.kind import Fault, duration
from tests.simulated.network import Quality


if TYPE_CHECKING:
    from tests.simulated.cluster import Cluster
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


def _away(world: World, draw: random.Random) -> str:
    """A cluster is away for long enough to be noticed: for one node or for all, in silence; or its brokers are down."""
    cluster = draw.choice((world.source, world.target))
    seconds = draw.choice((9.0, 15.0, 15.0, 40.0)) * (0.8 + draw.random())
    if draw.random() < 0.4:
        return f"{cluster.name} without power for {seconds:.2f} s{_lose_power(world, cluster, seconds, draw)}"
    some = list(world.nodes) if draw.random() < 0.4 else [draw.choice(list(world.nodes))]
    addresses = [it.address for it in cluster.brokers.values()]
    ways = [way for node in some for it in addresses for way in ((node, it), (it, node))]
    world.network.block(*ways)
    world.later(seconds, lambda: world.network.unblock(*ways))
    return f"{cluster.name} from {','.join(some)} for {seconds:.2f} s"


def _lose_power(world: World, cluster: Cluster, seconds: float, draw: random.Random) -> str:
    """All brokers of a cluster end; sometimes a node as well, which is back before they are."""
    for broker in (it for it in cluster.brokers.values() if it.is_up):
        cluster.crash(broker.node)
        world.later(seconds + draw.random(), partial(cluster.restart, broker.node))
    node = world.a_node(draw) if draw.random() < 0.6 else None
    if node is None:
        return ""
    node.kill()
    world.later(draw.random(), node.start)
    return f", and {node.name}"


FAULTS: dict[str, Fault] = {"cut": _cut, "partition": _partition, "slow": _slow, "away": _away}
