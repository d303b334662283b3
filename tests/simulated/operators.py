"""What operators ask nodes for, by the same object that REST asks."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from mm2py.errors import Mm2Error
from mm2py.model.flow import Flow
from mm2py.model.overrides import NO_OVERRIDES, Overrides, Wanted
from tests.simulated.node import SimNode


if TYPE_CHECKING:
    from tests.simulated.world import World


FLOW, SOURCE = Flow("A", "B"), "MirrorSourceConnector"
_CHANGES = {
    "pause": Overrides(groups={SOURCE: Wanted.PAUSED}),
    "stop": Overrides(groups={SOURCE: Wanted.STOPPED}),
    "topic": Overrides(topics=frozenset({"orders"})),
    "config": Overrides(config={SOURCE: {"refresh.topics.interval.seconds": "7"}}),
    "undo": NO_OVERRIDES,
}


def ask(world: World, node: SimNode, what: str) -> None:
    """Ask a node for something; that it may be refused is noted, and is no failure."""
    assert node.host is not None
    node.host.start(_ask(world, node, what), f"operator {what}")


async def _ask(world: World, node: SimNode, what: str) -> None:
    assert node.node is not None
    control = node.node.control
    try:
        match what:
            case "restart":
                await control.restart(FLOW, SOURCE, include_tasks=True, by="operator")
            case "drain" | "undrain":
                control.drain_node(is_drained=what == "drain", by="operator")
            case _:
                await control.change_overrides(FLOW, lambda _: _CHANGES[what], by="operator")
        world.journal.tell("operator", what, node.name, "done")
    except Mm2Error as error:
        world.journal.tell("operator", what, node.name, type(error).__name__)


def undo(world: World, draw: random.Random) -> None:
    """Take all back that was asked for."""
    for node in world.nodes.values():
        if node.is_running and node.node is not None:
            ask(world, node, "undrain")
    able = world.a_node(draw)
    if able is not None and able.node is not None:
        ask(world, able, "undo")
