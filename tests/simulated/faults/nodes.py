"""What befalls nodes, their workers and their machines, and what operators do to them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulated.faults.kind import Fault, duration


if TYPE_CHECKING:
    from mm2py.model.flow import Flow
    from tests.simulated.epochs import SimEpochs
    from tests.simulated.node import SimNode
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


def _busy(world: World, draw: random.Random) -> tuple[SimNode, SimEpochs, tuple[Flow, int]] | None:
    """Draw a worker of a node that runs."""
    node = world.a_node(draw)
    epochs = node.epochs if node is not None else None
    if node is None or epochs is None or not epochs.workers:
        return None
    return node, epochs, draw.choice(list(epochs.workers))


def _worker(world: World, draw: random.Random) -> str:
    if (found := _busy(world, draw)) is None:
        return ""
    node, epochs, key = found
    epochs.kill_worker(key, world.network)
    return f"{node.name} task {key[1]}"


def _hang(world: World, draw: random.Random) -> str:
    """A worker hangs, and its daemon does not: its epoch ends late, what it had to give away is given by then."""
    if (found := _busy(world, draw)) is None:
        return ""
    node, epochs, key = found
    host, _ = epochs.workers[key]
    host.freeze()
    seconds = draw.choice((1.0, 3.0, 8.0, 15.0)) * (0.5 + draw.random())
    world.later(seconds, lambda: None if host.is_dead else host.thaw())
    return f"{node.name} task {key[1]} for {seconds:.2f} s"


def _executor(world: World, draw: random.Random) -> str:
    """A worker is lost that goes on copying until its epoch is over."""
    if (found := _busy(world, draw)) is None:
        return ""
    node, epochs, key = found
    host = epochs.lose_contact(key)

    def end() -> None:
        host.kill()
        world.network.drop_host(host)

    world.later(60.0, end)
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
    is_cut_off = draw.random() < 0.5
    for node in world.nodes.values():
        node.freeze()
        for line in [it for it in world.network.connections if is_cut_off and it.client.machine == node.name]:
            line.cut()  # what is acknowledged now is not heard of
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


def _apart(world: World, draw: random.Random) -> str:
    """Each node is told that it is alone, and owns all: what keeps them from harm is not the group."""
    apart, group = world.target.apart, world.checker.groups[0]
    if len(world.nodes) < 2 or group in apart:
        return ""
    apart[group] = None
    seconds = draw.choice((10.0, 30.0, 60.0)) * (0.5 + draw.random())
    world.later(seconds, lambda: apart.pop(group, None))
    return f"all nodes for {seconds:.2f} s"


def _operator(world: World, draw: random.Random) -> str:
    """Operators ask a node for something by REST, and have all as it was later."""
    return world.operators.ask_for_something(draw)


def _reload(world: World, draw: random.Random) -> str:
    """A node's file is changed, or changed back, and the node is told to read it again, as by SIGHUP."""
    node = world.a_node(draw)
    if node is None:
        return ""
    node.reload()
    return f"{node.name} reads its {'changed' if node.is_changed else 'first'} file"


FAULTS: dict[str, Fault] = {
    "kill": _kill,
    "worker": _worker,
    "hang": _hang,
    "executor": _executor,
    "freeze": _freeze,
    "sleep": _sleep,
    "drain": _drain,
    "clock": _clock,
    "apart": _apart,
    "operator": _operator,
    "reload": _reload,
}
