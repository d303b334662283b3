"""
REST over the network in memory: the product's own server listens there, and operators ask it in HTTP's bytes.

What is lost on the way, late, or cut off befalls REST's connections as any other.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import attrs

from tests.simulated.loop import HOST, Host, SimLoop
from tests.simulated.network import Connection, Network


#: A client waits so long for an answer; the product gives up before.
_PATIENCE_S = 75.0
PORT = 8083


@attrs.frozen
class Answer:
    """What REST answered."""

    status: int
    body: Any

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300


class ListeningSocket:
    """What the product binds in place of a socket: a port of its machine."""

    def __init__(self, _listener: object, _all: object) -> None:
        host = HOST.get()
        assert host is not None, "who listens?"
        self.host = host

    def getsockname(self) -> tuple[str, int]:
        """Return where it is reached."""
        return self.host.machine, PORT

    def serve(self, network: Network, factory: Callable[[], Any]) -> Server:
        """Have connections be accepted by protocols that *factory* makes."""
        server = Server(self.host, factory)
        network.listen(*self.getsockname(), server)
        return server

    def close(self) -> None:
        """Do nothing: its server stops listening."""


def open_listener(listener: object, all_listeners: object) -> list[ListeningSocket]:
    """Stands for the product's function of that name."""
    return [ListeningSocket(listener, all_listeners)]


class Server:
    """Stands for `asyncio.Server`; the network has connections accepted by it."""

    def __init__(self, host: Host, factory: Callable[[], Any]) -> None:
        self.host = host
        self._factory = factory
        self._is_open = True
        #: Kept, so that what runs on a killed host is not cleaned up.
        self._sessions: list[Session] = []

    @property
    def accepts(self) -> bool:
        """Whether connections are accepted."""
        return self._is_open and not self.host.is_dead

    def accepted(self, connection: Connection) -> Session:
        """Take a connection."""
        self._sessions.append(Session(connection, self._factory))
        return self._sessions[-1]

    def close(self) -> None:
        """Take no more connections."""
        self._is_open = False


class Session:
    """The server's end of a connection."""

    def __init__(self, connection: Connection, factory: Callable[[], Any]) -> None:
        self._connection, self._factory = connection, factory
        self._protocol: Any = None

    def received(self, data: bytes) -> None:
        """Hand over what has come; this runs on the server's host, as its protocol is to."""
        if self._protocol is None:
            self._protocol = self._factory()
            self._protocol.connection_made(_ServerTransport(self._connection, self._protocol))
        self._protocol.data_received(data)

    def lost(self) -> None:
        """The client is gone."""
        if self._protocol is not None:
            self._protocol.connection_lost(None)


class _ServerTransport(asyncio.Transport):
    def __init__(self, connection: Connection, protocol: Any) -> None:
        super().__init__({"peername": (connection.client.machine, 0)})
        self._connection, self._protocol = connection, protocol
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._connection.to_client.send(bytes(data))

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(pieces))

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
            self._connection.close_by_server()
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)


class _Client(asyncio.Protocol):
    """Takes all that comes until the server closes."""

    def __init__(self, loop: SimLoop) -> None:
        self.data = bytearray()
        self.ended = loop.create_future()

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(exc)


async def ask(loop: SimLoop, machine: str, method: str, path: str, body: object = None) -> Answer | None:
    """Ask a machine's REST; None if no whole answer came, so that it is not known whether it was carried out."""
    client = _Client(loop)
    sent = b"" if body is None else json.dumps(body).encode()
    kind = f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n" if sent else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: {machine}:{PORT}\r\nConnection: close\r\n{kind}\r\n"
    transport = None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            transport, _ = await loop.network.open((machine, PORT), client)
            transport.write(head.encode() + sent)
            await client.ended
    except (OSError, TimeoutError):
        return None
    finally:
        if transport is not None:
            transport.close()
    return _parsed(bytes(client.data))


def _parsed(data: bytes) -> Answer | None:
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    lengths = [int(it.partition(":")[2]) for it in lines if it.lower().startswith("content-length:")]
    if len(body) < (lengths[0] if lengths else 0) or not data:
        return None
    status = int(lines[0].split()[1])
    is_json = any("application/json" in it.lower() for it in lines)
    return Answer(status, json.loads(body) if body and is_json else body.decode())
