"""
A simulated cluster at ports of this machine, in real time: what speaks Kafka asks it as it asks real brokers.

A broker that is frozen here goes on with what it has begun, as there is no loop that parks it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

from mm2py.devkit.ports import HOST
from tests.simulated.broker import Broker
from tests.simulated.cluster import Cluster
from tests.simulated.loop import Host, SimLoop
from tests.simulated.network import Connection, Network


class _Socket(asyncio.Protocol):
    """A client's connection, as a broker's end of one in memory."""

    def __init__(self, front: _Front, broker: Broker) -> None:
        self.server = broker.host
        self.client = Host(cast("SimLoop", asyncio.get_running_loop()), "client")
        self.to_client = self
        self._front, self._broker = front, broker

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._front.sockets[self] = None
        self._session = self._broker.accepted(cast("Connection", self))
        if not self._broker.accepts:
            transport.close()

    def data_received(self, data: bytes) -> None:
        self._session.received(data)

    def connection_lost(self, _error: Exception | None) -> None:
        self._front.sockets.pop(self, None)
        self._session.lost()

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    def close_by_server(self) -> None:
        self._transport.close()


class _Front:
    """Stands for the network in memory."""

    def __init__(self) -> None:
        self.sockets: dict[_Socket, None] = {}

    def listen(self, *_: object) -> None:
        """Leave it to `served`, which may wait."""

    def drop_host(self, host: Host) -> None:
        for socket in list(self.sockets):
            if socket.server is host:
                socket.close_by_server()


@asynccontextmanager
async def served(name: str, *, brokers: int = 1, **more: Any) -> AsyncIterator[Cluster]:
    """Return a cluster whose brokers listen until the block ends."""
    loop, front = asyncio.get_running_loop(), _Front()
    vars(loop).setdefault("graveyard", [])  # where hosts go that are killed
    cluster = Cluster(name, cast("SimLoop", loop), cast("Network", front), 0, brokers=brokers, **more)
    servers = []
    try:
        for broker in cluster.brokers.values():
            servers.append(await loop.create_server(partial(_Socket, front, broker), HOST, 0))
            broker.advertised = servers[-1].sockets[0].getsockname()
        yield cluster
    finally:
        cluster.host.kill()  # its timers have nothing to do any more
        for server in servers:
            server.close()
        for socket in list(front.sockets):
            socket.close_by_server()
