"""What befalls nodes, their workers and their machines, and what operators do to them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulated.faults.kind import Fault, duration


if TYPE_CHECKING:
    from tests.simulated.world import World


def _kill(world: World, draw: random.Random) -> str:
    node = world.a_node(draw)
    if node is None:
        return ""
    is_whole = draw.random() < 0.6
    node.kill(with_workers=is_whole)
    seconds = duration(draw)
    world.later(seconds, node.start)
    return f"{node.name}{'' if is_whole else ' without its workers'} for {seconds:.2f} s"


def _worker(world: World, draw: random.Random) -> str:
    node = world.a_node(draw)
    epochs = node.epochs if node is not None else None
    if node is None or epochs is None or not epochs.workers:
        return ""
    key = draw.choice(list(epochs.workers))
    epochs.kill_worker(key, world.network)
    return f"{node.name} task {key[1]}"


def _freeze(world: World, draw: random.Random) -> str:
    node = world.a_node(draw)
    if node is None:
        return ""
    node.freeze()
    seconds = duration(draw)
    world.later(seconds, node.thaw)
    return f"{node.name} for {seconds:.2f} s"


def _sleep(world: World, draw: random.Random) -> str:
    """All nodes sleep for hours, as suspended machines do; brokers forget producers meanwhile."""
    if draw.random() < 0.7 or not all(it.is_able for it in world.nodes.values()):
        return ""
    hours = draw.choice((0.3, 11.9, 13, 25))
    for node in world.nodes.values():
        node.freeze()
        world.later(hours * 3600 + draw.random() * 30, node.thaw)
    world.rests_until = world.loop.time() + hours * 3600
    return f"of all for {hours} h"


def _drain(world: World, draw: random.Random) -> str:
    node = world.a_node(draw)
    if node is None:
        return ""
    node.stop()
    seconds = 15 + duration(draw)
    world.later(seconds, node.start)
    return f"{node.name}, back after {seconds:.2f} s"


def _clock(world: World, draw: random.Random) -> str:
    node = world.a_node(draw)
    if node is None:
        return ""
    ms = draw.choice((-3_600_000, -5_000, 5_000, 600_000, 86_400_000))
    node.turn_clock(ms)
    return f"{node.name} by {ms} ms"


def _operator(world: World, draw: random.Random) -> str:
    """Operators ask a node for something by REST, and have all as it was later."""
    return world.operators.ask_for_something(draw)


def _reload(world: World, draw: random.Random) -> str:
    """A node's file is changed, or changed back, and the node is told to read it again, as by SIGHUP."""
    node = world.a_node(draw)
    if node is None or node.node is None or node.host is None:
        return ""
    node.change_file()
    node.host.call_later(0, node.node.request_reload)
    return f"{node.name} reads its {'changed' if node.is_changed else 'first'} file"


FAULTS: dict[str, Fault] = {
    "kill": _kill,
    "worker": _worker,
    "freeze": _freeze,
    "sleep": _sleep,
    "drain": _drain,
    "clock": _clock,
    "operator": _operator,
    "reload": _reload,
}
