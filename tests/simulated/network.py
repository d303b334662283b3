"""
A network in memory: TCP connections between hosts, with all that can happen to them.

Each direction of a connection is a line of its own: latency, bandwidth, and chunks in flight. A machine that is cut off
loses nothing, as with TCP: what is on its way waits, until the ends give up. A connection that breaks delivers what is
in flight up to any byte; what the client had sent may still be read by the broker after the client has learnt of the
end: that is how requests are executed late.
"""

from __future__ import annotations

import asyncio
import collections
import random
import socket as real
from collections.abc import Callable
from typing import Any, Protocol

from tests.simulated.loop import HOST, Host, SimLoop


#: How long a machine that is not reachable is silent before the attempt to connect fails.
_CONNECT_S = 75.0


class Listener(Protocol):
    """What listens at an address."""

    host: Host

    @property
    def accepts(self) -> bool:
        """Whether connections are accepted."""

    def accepted(self, line: Connection) -> Session:
        """Take a connection."""


class Session(Protocol):
    """A listener's end of a connection."""

    def received(self, data: bytes) -> None:
        """Take bytes."""

    def lost(self) -> None:
        """Learn that the client is gone."""


class Quality:
    """What the way between two machines is like, in one direction."""

    def __init__(self, latency_s: float = 0.0005, spread_s: float = 0.0005, bytes_per_s: float = 100e6) -> None:
        self.latency_s = latency_s
        self.spread_s = spread_s
        self.bytes_per_s = bytes_per_s


class Direction:
    """Bytes on their way to one end."""

    def __init__(self, network: Network, there: Host, way: tuple[str, str], deliver: Callable[[bytes], None]) -> None:
        self.network = network
        self.there = there
        self.way = way
        self.deliver = deliver
        self.is_over = False
        #: Nothing arrives before: a request may be read long after its connection broke.
        self.not_before = 0.0
        self._flying: collections.deque[bytes] = collections.deque()
        self._waiting = 0
        self._free_at = self._last_at = 0.0
        #: Called once all that was sent has arrived.
        self._end: Callable[[], None] | None = None

    def send(self, data: bytes) -> None:
        if self.is_over or self._end is not None:
            return
        net = self.network
        loop = net.loop
        quality = net.qualities.get(self.way, net.usual) if net.qualities else net.usual
        now = loop._now
        self._free_at = max(self._free_at, now) + len(data) / quality.bytes_per_s
        at = self._free_at + quality.latency_s + net.random.random() * quality.spread_s
        self._last_at = at = max(self._last_at, at)
        self._flying.append(data)
        loop.call_at(at, self._arrive, context=self.there.context)

    def _arrive(self) -> None:
        if self.is_over:
            return
        net = self.network
        if net.blocked and self.way in net.blocked:
            self._waiting += 1
            net.held.setdefault(self.way, []).append(self)
            return
        if self.not_before and self.not_before > net.loop.time():
            net.loop.call_at(self.not_before, self._arrive, context=self.there.context)
            return
        if self._flying:
            self.deliver(self._flying.popleft())
        if self._end is not None:
            self._end_if_empty()

    def heal(self) -> None:
        for _ in range(self._waiting):
            self.network.loop.call_soon(self._arrive, context=self.there.context)
        self._waiting = 0

    def finish(self, end: Callable[[], None]) -> None:
        """Close this direction after what is in flight: the other end learns of it then."""
        if self._end is None and not self.is_over:
            self._end = end
            self._flying.append(b"")
            self.network.loop.call_at(
                max(self._last_at, self.network.loop.time() + self.network.quality(self.way).latency_s),
                self._arrive,
                context=self.there.context,
            )

    def _end_if_empty(self) -> None:
        assert self._end is not None
        if not self._flying and not self.is_over:
            self.is_over = True
            self._end()

    def cut(self, draw: random.Random) -> None:
        """Lose what is in flight from any byte on."""
        whole = b"".join(self._flying)
        kept = whole[: draw.randrange(len(whole) + 1)] if whole else b""
        self._flying = collections.deque([kept] if kept else [])

    def stop(self) -> None:
        self.is_over = True
        self._flying.clear()


class FakeSocket:
    """What the product does with a socket before a transport has it."""

    def __init__(self, *_: object) -> None:
        self.connection: Connection | None = None

    def settimeout(self, _seconds: float) -> None: ...

    def setsockopt(self, *_: object) -> None: ...

    def close(self) -> None:
        if self.connection is not None and self.connection.transport is None:
            self.connection.close_by_client()


class SocketModule:
    """Stands for `socket` in `mm2py.wire.addresses`."""

    socket = FakeSocket
    SOCK_STREAM = real.SOCK_STREAM
    gaierror = real.gaierror

    @staticmethod
    def getaddrinfo(host: str, port: int, **_: Any) -> Any:
        return [(real.AF_INET, real.SOCK_STREAM, 6, "", (host, port))]


class Transport(asyncio.Transport):
    """A client's end."""

    def __init__(self, connection: Connection, sock: FakeSocket) -> None:
        super().__init__({"socket": sock})
        self._connection = connection
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._connection.to_server.send(bytes(data))

    def writelines(self, pieces: Any) -> None:
        self._connection.to_server.send(b"".join(pieces))

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        """Go on: no one sends that much."""

    resume_reading = pause_reading

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._connection.close_by_client()


class Connection:
    """A connection between a client's machine and a listener."""

    def __init__(self, network: Network, client: Host, listener: Listener) -> None:
        self.network = network
        self.client = client
        self.server = listener.host
        self.transport: Transport | None = None
        self.is_open = True
        self._protocol: Any = None
        there, here = self.server.machine, client.machine
        self.to_server = Direction(network, self.server, (here, there), self._to_server)
        self.to_client = Direction(network, client, (there, here), self._to_client)
        self._session = listener.accepted(self)

    def attach(self, transport: Transport, protocol: Any) -> None:
        self.transport, self._protocol = transport, protocol

    def _to_server(self, data: bytes) -> None:
        self._session.received(data)

    def _to_client(self, data: bytes) -> None:
        protocol = self._protocol
        if protocol is None or self.transport is None or self.transport._is_closing:
            return
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)
            return
        view = memoryview(data)
        while view and not self.transport._is_closing:
            room = memoryview(protocol.get_buffer(-1))
            size = min(len(room), len(view))
            room[:size] = view[:size]
            view = view[size:]
            protocol.buffer_updated(size)

    def close_by_client(self) -> None:
        """The client closes: what it has sent still arrives."""
        if self.is_open:
            self.is_open = False
            self.to_client.stop()
            self.to_server.finish(self._session.lost)
            self.network.connections.pop(self, None)
            if self._protocol is not None:
                self.network.loop.call_soon(self._protocol.connection_lost, None, context=self.client.context)

    def close_by_server(self) -> None:
        if self.is_open:
            self.is_open = False
            self.to_server.stop()
            self.to_client.finish(lambda: self._lost(None))
            self.network.connections.pop(self, None)

    def cut(self) -> None:
        """Break at any byte, in both directions; the broker may learn of it later than the client."""
        if self.is_open:
            self.is_open = False
            net = self.network
            net.connections.pop(self, None)
            if net.random.random() < 0.3:  # all of it arrives, late
                self.to_server.not_before = net.loop.time() + net.random.choice((0.05, 1.0, 10.0, 40.0))
            else:
                self.to_server.cut(net.random)
            self.to_client.cut(net.random)
            self.to_client.finish(lambda: self._lost(ConnectionResetError("the connection was reset")))
            self.to_server.finish(self._session.lost)

    def _lost(self, error: Exception | None) -> None:
        if self._protocol is not None and self.transport is not None and not self.transport._is_closing:
            self.transport._is_closing = True
            self._protocol.connection_lost(error)


class Network:
    """All machines and what lies between them."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.loop = loop
        self.random = random.Random(f"network {seed}")
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.connections: dict[Connection, None] = {}
        #: How often each machine has tried to connect.
        self.attempts: collections.Counter[str] = collections.Counter()
        self.usual = Quality()
        self.qualities: dict[tuple[str, str], Quality] = {}
        self.blocked: set[tuple[str, str]] = set()
        self.held: dict[tuple[str, str], list[Direction]] = {}
        loop.network = self

    def quality(self, way: tuple[str, str]) -> Quality:
        return self.qualities.get(way, self.usual)

    def is_blocked(self, way: tuple[str, str]) -> bool:
        return way in self.blocked

    def block(self, *ways: tuple[str, str]) -> None:
        self.blocked.update(ways)

    def unblock(self, *ways: tuple[str, str]) -> None:
        """Let through what has waited on some ways."""
        for way in ways:
            self.blocked.discard(way)
            for direction in dict.fromkeys(self.held.pop(way, [])):
                direction.heal()

    def heal(self) -> None:
        """Let everything through again, and be quick."""
        self.blocked.clear()
        self.qualities.clear()
        held, self.held = self.held, {}
        for directions in held.values():
            for direction in dict.fromkeys(directions):
                direction.heal()

    def listen(self, name: str, port: int, listener: Listener) -> None:
        self.listeners[name, port] = listener

    async def look_up(self, host: str, port: int) -> Any:
        await asyncio.sleep(self.usual.latency_s)
        return SocketModule.getaddrinfo(host, port)

    async def open(self, address: tuple[str, int], protocol: Any) -> tuple[Transport, Any]:
        sock = FakeSocket()
        await self.connect(sock, address)
        return self.attach(sock, protocol)

    async def connect(self, sock: FakeSocket, address: tuple[str, int]) -> None:
        """Connect a socket; where the way there is blocked, nothing answers."""
        client = HOST.get()
        assert client is not None, "who connects?"
        self.attempts[client.machine] += 1
        listener = self.listeners.get(address)
        way = (client.machine, address[0])
        await asyncio.sleep(self.quality(way).latency_s * 2)
        begun = self.loop.time()
        while listener is not None and (self.is_blocked(way) or self.is_blocked(way[::-1])):
            await asyncio.sleep(1.0)
            if self.loop.time() - begun > _CONNECT_S:
                raise TimeoutError(110, "timed out")
        if listener is None or not listener.accepts:
            raise ConnectionRefusedError(111, "connection refused")
        sock.connection = Connection(self, client, listener)
        self.connections[sock.connection] = None

    def attach(self, sock: FakeSocket, protocol: Any) -> tuple[Transport, Any]:
        connection = sock.connection
        assert connection is not None
        transport = Transport(connection, sock)
        connection.attach(transport, protocol)
        protocol.connection_made(transport)
        return transport, protocol

    def drop_host(self, host: Host) -> None:
        """A process has ended: the kernel closes its connections."""
        for connection in [it for it in self.connections if host in (it.client, it.server)]:
            if connection.client is host:
                connection.close_by_client()
            else:
                connection.close_by_server()
