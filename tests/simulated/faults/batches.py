"""What befalls single batches among others that are on their way to the target."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tests.simulated import requests
from tests.simulated.faults.kind import Fault
from tests.simulated.network import Quality


if TYPE_CHECKING:
    from tests.simulated.broker import Line
    from tests.simulated.world import World


_PRODUCE = 0
_MORE_THAN_THERE_ARE = 99


class _OneOfMany:
    """Waits for a request with batches of mirrored topics, and strikes some."""

    what = ""

    def __init__(self, world: World, draw: random.Random) -> None:
        self._world, self._cluster, self._draw = world, world.target, draw
        self._passes, self._left = draw.choice((0, 1, 3)), 1

    def __call__(self, line: Line, request: Any, *, is_before: bool) -> bool:
        """Strike if it is time; whether the request is not executed."""
        if not is_before:
            self._mend()
            return False
        if request.API_KEY != _PRODUCE or line.client.machine not in self._world.nodes or self._is_control(request):
            return False
        self._passes -= 1
        if self._passes >= 0:
            return False
        self._world.befell("strike", f"{line.broker.address} and a batch of {line.client}: {self.what}")
        return self._strike(line, request)

    def _strike(self, _line: Line, _request: Any) -> bool:
        raise NotImplementedError

    def _mend(self) -> None:
        """Have all as it was once the request was executed."""

    def _is_control(self, request: Any) -> bool:
        known = [self._cluster.by_id.get(named) for named, *_ in request.topics]
        names = [named if it is None else it.name for it, (named, *_) in zip(known, request.topics, strict=True)]
        return not any(it in self._world.topics.values() for it in names)


class _Refused(_OneOfMany):
    """A leader refuses some, for a lack of replicas just then."""

    what = "refused"

    def __init__(self, world: World, draw: random.Random) -> None:
        super().__init__(world, draw)
        self._left, self._usual = draw.choice((1, 1, 2)), 0

    def _strike(self, _line: Line, _request: Any) -> bool:
        self._left -= 1
        self._usual, self._cluster.min_isr = self._cluster.min_isr, _MORE_THAN_THERE_ARE
        return False

    def _mend(self) -> None:
        if self._usual:
            self._cluster.min_isr, self._usual = self._usual, 0
            self._cluster.ambush = self if self._left else None


class _Late(_OneOfMany):
    """A batch is executed so late that its worker is gone, and the next one has looked for it."""

    what = "late, its worker is killed"

    def _strike(self, line: Line, request: Any) -> bool:
        self._cluster.ambush = None
        node = self._world.nodes[line.client.machine]
        epochs = node.epochs
        key = next((it for it, (host, _) in epochs.workers.items() if host is line.client), None) if epochs else None
        if epochs is None or key is None:
            return False
        line.broker.host.call_later(
            self._draw.uniform(4.0, 8.0), requests.HANDLERS[_PRODUCE], line.broker, line, request, lambda _: None
        )
        epochs.kill_worker(key, self._world.network)
        return True


def _begin(world: World, draw: random.Random, strike: type[_OneOfMany]) -> str:
    """Have batches come one upon the other, with several in flight, and one of them struck."""
    partition = draw.choice(world.source.partitions_of(world.topics))
    for number in range(30):
        world.outside.call_later(0.03 * number, world.workload.append_to, partition)
    addresses = [it.address for it in world.target.brokers.values()]
    ways = [way for node in world.nodes for it in addresses for way in ((node, it), (it, node))]
    for way in ways:
        world.network.qualities[way] = Quality(0.15, 0.02, 1e7)

    def mend() -> None:
        for way in ways:
            world.network.qualities.pop(way, None)

    world.later(draw.choice((3.0, 10.0)), mend)
    world.target.ambush = strike(world, draw)
    return f"among others of {partition}"


def _refused(world: World, draw: random.Random) -> str:
    return _begin(world, draw, _Refused)


def _late(world: World, draw: random.Random) -> str:
    return _begin(world, draw, _Late)


FAULTS: dict[str, Fault] = {"refused": _refused, "late": _late}
