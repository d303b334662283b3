"""
What a node costs: it pauses before it tries again, keeps no connection that it does not need, and has as many tasks as
it has work, however long things go wrong.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Iterator

from tests.simulated.cluster import Cluster
from tests.simulated.loop import SimTask
from tests.simulated.network import Network


#: A second and node; nodes that start beside brokers that are down come to some 50.
_MOST_ATTEMPTS = 120
#: A second, of all nodes, beside those that carry records; three that start come to some 180.
_MOST_REQUESTS = 1_000
#: Of a node and flow; with three brokers on each side there are some 50.
_MOST_CONNECTIONS = 120
#: Of a node with its workers; they are counted every so many looks.
_MOST_TASKS, _LOOKS = 400, 10


class Costs:
    """Compares what there was at two moments."""

    def __init__(
        self, network: Network, clusters: tuple[Cluster, ...], *, flows: int, records: Callable[[], int]
    ) -> None:
        """Create them; *records* says how many were copied."""
        self._network, self._clusters, self._flows, self._records = network, clusters, flows, records
        self._at, self._requests, self._looks = 0.0, 0, 0
        self._attempts: collections.Counter[str] = collections.Counter()

    def look(self) -> Iterator[str]:
        """Return what was too much since the last look."""
        now, requests = self._network.loop.time(), sum(sum(it.counts.values()) for it in self._clusters)
        requests -= self._records()  # a remote topic that was lost is filled again as fast as that goes
        seconds = max(1.0, now - self._at)
        for machine, attempts in (self._network.attempts - self._attempts).items():
            if attempts > _MOST_ATTEMPTS * seconds:
                yield f"{machine} tried to connect {attempts} times in {seconds:.0f} s"
        if requests - self._requests > _MOST_REQUESTS * seconds:
            yield f"there were {requests - self._requests} requests in {seconds:.0f} s"
        for machine, open_ones in collections.Counter(it.client.machine for it in self._network.connections).items():
            if open_ones > _MOST_CONNECTIONS * self._flows:
                yield f"{machine} has {open_ones} connections"
        self._looks += 1
        if not self._looks % _LOOKS:
            yield from self._tasks()
        self._at, self._requests, self._attempts = now, requests, self._network.attempts.copy()

    def _tasks(self) -> Iterator[str]:
        hosts = [task.host for task in asyncio.all_tasks(self._network.loop) if isinstance(task, SimTask)]
        machines = collections.Counter(it.machine for it in hosts if it is not None and not it.is_dead)
        yield from (f"{machine} has {count} tasks" for machine, count in machines.items() if count > _MOST_TASKS)
