"""The open connections to one cluster's brokers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import attrs

from mm2py.clock import Clock
from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.metadata import Broker
from mm2py.wire.security.door import Door, Opener


_DEFAULT_PORT = 9092
#: As many as there may be names at the same time that no server answers for.
_THREADS_MAX = 256


def allow_for_lookups(loop: asyncio.AbstractEventLoop) -> None:
    """
    Have *loop* use as many threads as host names need that hang.

    A name server that is silent keeps a thread for up to half a minute with each attempt to connect. asyncio's own few
    would all wait for it, and with them the connections to other clusters, and whatever else is done on threads.
    """
    loop.set_default_executor(ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="asyncio"))


@attrs.define(eq=False)
class _Backoff:
    """When a broker that refused may be tried again."""

    failures: int = 0
    not_before: float = 0.0


@attrs.define(eq=False)
class _Line:
    """The one connection to a broker for one purpose; the lock lets one caller open it while the others wait."""

    broker: Broker
    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    connection: BrokerConnection | None = None

    def open_connection(self) -> BrokerConnection | None:
        return None if self.connection is None or self.connection.is_closed else self.connection

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


class Connections:
    """
    Opens connections on demand, keeps them, and owns the pauses after failed attempts.

    There is at most one for each broker and *purpose*: a fetch that the broker holds back does not stand in front of a
    produce. The pauses are a broker's, whatever the purpose.
    """

    def __init__(self, endpoint: ClusterEndpoint, clock: Clock, opener: Opener) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._door = Door(endpoint, clock, opener)
        self._lines: dict[tuple[int, str], _Line] = {}
        self._backoffs: dict[int, _Backoff] = {}
        #: Brokers that did not answer in time, and have not since.
        self._doubted: set[int] = set()
        self._is_closed = False
        # It spreads load and guards nothing.
        self._random = random.Random()  # noqa: S311

    def close(self) -> None:
        """Close every connection, and open none any more."""
        self._is_closed = True
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    async def get(self, broker: Broker, purpose: str) -> BrokerConnection:
        """Return the open connection to *broker* for *purpose*; if there is none, open it after the broker's pause."""
        alias, line = self._endpoint.alias, self._line(broker, purpose)
        if (known := line.open_connection()) is not None:
            return known
        async with line.lock:
            if (known := line.open_connection()) is not None:
                return known
            line.connection = None
            backoff = self._backoffs.setdefault(broker.node_id, _Backoff())
            await self._clock.sleep(max(0.0, backoff.not_before - self._clock.monotonic()))
            try:
                connection = await self._door.open(broker.host, broker.port)
            except BrokerConnectionError:
                self._failed(backoff)
                raise
            if self._is_closed:
                connection.close()
                raise BrokerConnectionError(alias, str(broker), "the cluster was closed meanwhile")
            if self._lines.get((broker.node_id, purpose)) is not line:
                connection.close()
                raise BrokerConnectionError(alias, str(broker), "the broker moved meanwhile")
            backoff.failures, backoff.not_before = 0, 0.0
            self.trust(broker.node_id)
            line.connection = connection
            return connection

    def _line(self, broker: Broker, purpose: str) -> _Line:
        if self._is_closed:
            raise BrokerConnectionError(self._endpoint.alias, str(broker.node_id), "the cluster is closed")
        line = self._lines.get((broker.node_id, purpose))
        if line is None or line.broker != broker:
            if line is not None:
                line.close()
            line = self._lines[broker.node_id, purpose] = _Line(broker)
        return line

    def _failed(self, backoff: _Backoff) -> None:
        backoff.failures += 1
        longest_ms = self._endpoint.reconnect_backoff_max_ms
        pause_ms = min(longest_ms, self._endpoint.reconnect_backoff_ms * 2 ** min(backoff.failures - 1, 16))
        # Spread by a fifth, as Kafka's clients do, so that not all of them reconnect at once.
        backoff.not_before = self._clock.monotonic() + pause_ms / 1000 * self._random.uniform(0.8, 1.2)

    async def open_server(self, server: str) -> BrokerConnection:
        """Open a connection to a bootstrap server; it is the caller's to close."""
        host, port = address_of(server)
        return await self._door.open(host, port)

    def doubt(self, node_id: int) -> None:
        """Ask other brokers before a silent one. Its connections stay open: on a busy machine it may only be slow, and
        what waits for its answers must not fail.
        """
        self._doubted.add(node_id)

    def trust(self, node_id: int) -> None:
        """Note that a broker has answered."""
        self._doubted.discard(node_id)

    def drop_moved(self, brokers: Mapping[int, Broker]) -> None:
        """Close the connections to addresses that *brokers* have left."""
        # A broker that is merely missing may be fenced for a moment while its connections still work.
        for (node_id, purpose), line in list(self._lines.items()):
            if brokers.get(node_id, line.broker) != line.broker and not line.lock.locked():
                line.close()
                del self._lines[node_id, purpose]

    def by_promise(self, brokers: Mapping[int, Broker], purpose: str) -> list[int]:
        """Order the brokers: connected ones, those that may be tried at once, those in back-off, doubted ones."""
        now = self._clock.monotonic()

        def promise(node_id: int) -> int:
            if node_id in self._doubted:
                return 3
            line = self._lines.get((node_id, purpose))
            if line is not None and line.open_connection() is not None:
                return 0
            return 1 if self._backoffs.get(node_id, _Backoff()).not_before <= now else 2

        nodes = list(brokers)
        self._random.shuffle(nodes)
        return sorted(nodes, key=promise)


def address_of(server: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[v6]:port``; the port is Kafka's own where none is given."""
    bare = server.strip().rsplit("://", 1)[-1]
    if bare.startswith("["):
        host, _, rest = bare[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = bare.rpartition(":") if bare.count(":") == 1 else (bare, "", "")
    return host, int(port) if port else _DEFAULT_PORT
