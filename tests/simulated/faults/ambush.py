"""
An ambush waits for a request of a kind, and strikes right before it is executed, or right after.

That is the moment "between the fence is written and the first batch is produced", which random times hardly hit.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tests.simulated.faults.kind import Fault, duration


if TYPE_CHECKING:
    from tests.simulated.broker import Line
    from tests.simulated.cluster import Cluster
    from tests.simulated.node import SimNode
    from tests.simulated.world import World


#: Produce, Fetch, FindCoordinator, Join, Sync, InitProducerId, AddPartitionsToTxn, EndTxn, and what is asked at starts.
_KEYS = (0, 0, 1, 10, 11, 14, 22, 24, 26, 8, 2, 3)
_PRODUCE = 0
_ACTIONS = ("kill", "orphan", "freeze", "cut", "crash", "leader", "coordinator")


class Ambush:
    """Strikes once."""

    def __init__(self, world: World, cluster: Cluster, draw: random.Random) -> None:
        self._world, self._cluster, self._draw = world, cluster, draw
        self._key = draw.choice(_KEYS)
        self._is_before = draw.random() < 0.4
        self._action = draw.choice(_ACTIONS)
        self._left = draw.choice((1, 1, 2, 5))
        self._seconds = duration(draw)
        #: Whether it is for what a flow writes of itself, not for records.
        self._wants_control = self._key == _PRODUCE and draw.random() < 0.6

    def __str__(self) -> str:
        return f"{self._action} {'before' if self._is_before else 'after'} {self._key} at {self._cluster.name}"

    def __call__(self, line: Line, request: Any, *, is_before: bool) -> bool:
        """Strike if it is time; whether the request is not executed."""
        node = self._world.nodes.get(line.client.machine)
        if self._key != request.API_KEY or is_before is not self._is_before or node is None:
            return False
        if self._wants_control and not any("mm2-" in str(topic[0]) for topic in request.topics):
            return False
        self._left -= 1
        if self._left:
            return False
        self._cluster.ambush = None
        self._world.befell("strike", f"{self} ({line.broker.address}, {node.name}) for {self._seconds:.2f} s")
        match self._action:
            case "kill" | "orphan" | "freeze":
                self._strike_node(node)
            case "cut":
                line.connection.cut()
            case "crash":
                return self._crash(line)
            case "leader":
                for partition in self._cluster.all_partitions():
                    if partition.leader == line.broker.node:
                        self._cluster.move_leader(partition)
            case _:
                self._move_coordinators(line)
        return False

    def _strike_node(self, node: SimNode) -> None:
        if not node.is_able:
            return
        if self._action == "freeze":
            node.freeze()
            self._world.later(self._seconds, node.thaw)
        else:
            node.kill(with_workers=self._action == "kill")
            self._world.later(self._seconds, node.start)

    def _crash(self, line: Line) -> bool:
        if sum(broker.is_up for broker in self._cluster.brokers.values()) < 2:
            return False
        self._cluster.crash(line.broker.node)
        self._world.later(self._seconds, lambda: self._cluster.restart(line.broker.node))
        return self._is_before

    def _move_coordinators(self, line: Line) -> None:
        others = [it for it in self._cluster.brokers if it not in self._cluster.fenced]
        for slot in [it for it, at in self._cluster.slots.items() if at == line.broker.node] if others else ():
            self._cluster.move_coordinators(slot, self._draw.choice(others))


def _ambush(world: World, draw: random.Random) -> str:
    cluster = world.a_cluster(draw)
    ambush = cluster.ambush = Ambush(world, cluster, draw)
    return str(ambush)


FAULTS: dict[str, Fault] = {"ambush": _ambush}
