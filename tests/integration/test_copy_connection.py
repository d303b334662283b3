"""A connection over a real socket: opened, used, closed; the other end is a fake broker."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Self

import pytest

from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.wire.connection import BrokerConnection


ENDPOINT = ClusterEndpoint("A", ("b:9092",), client_id="mm2py", request_timeout_ms=5_000)


class FakeBroker:
    """A real socket that answers ApiVersions, and every other request as the test decides."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int, bytes]] = []
        self.port = 0
        self._server: asyncio.Server | None = None
        self._serving: list[asyncio.Task[None] | None] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        for task in self._serving:
            if task is not None:
                await task

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.append(asyncio.current_task())
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                key, version, correlation_id = struct.unpack_from(">hhi", request)
                self.requests.append((key, version, request))
                body = _API_VERSIONS if key == 18 else b"answer to %d" % correlation_id
                for byte in struct.pack(">ii", len(body) + 4, correlation_id) + body:
                    writer.write(bytes([byte]))
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


#: No error; Produce, Fetch and ApiVersions.
_API_VERSIONS = struct.pack(">hi", 0, 3) + struct.pack(">hhhhhhhhh", 0, 0, 9, 1, 0, 11, 18, 0, 0)


async def test_open_over_a_real_socket() -> None:
    """An open connection knows the broker's versions, raw requests are answered, and nothing is left open."""
    async with FakeBroker() as broker:
        connection = await BrokerConnection.open(ENDPOINT, "127.0.0.1", broker.port)
        first = await connection.request_raw(1, 11, [b"abc"])
        second = await connection.request_raw(0, 8, [b"def"])
        connection.close()
        await asyncio.sleep(0)

        assert connection.versions[1] == (0, 11)
        assert bytes(first[4:]).startswith(b"answer to")
        assert bytes(second[4:]) != bytes(first[4:])
        assert [(key, version) for key, version, _ in broker.requests[-2:]] == [(1, 11), (0, 8)]
        assert broker.requests[-2][2].endswith(b"abc")


async def test_open_raises_our_error_if_the_connection_is_refused() -> None:
    """A refused connection is a `BrokerConnectionError` that names cluster, broker and cause."""
    async with FakeBroker() as broker:
        port = broker.port

    with pytest.raises(BrokerConnectionError) as caught:
        await BrokerConnection.open(ENDPOINT, "127.0.0.1", port)
    assert (caught.value.cluster, caught.value.broker) == ("A", f"127.0.0.1:{port}")
    assert caught.value.cause


async def test_a_machine_that_is_gone_does_not_stand_before_its_name_s_other_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a name's two addresses the first one is silent, as that of a machine that is gone: the second one is used."""
    async with FakeBroker() as broker:
        with silent(broker.port) as address:
            found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (it, broker.port)) for it in (address, "127.0.0.1")]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
            connection = await BrokerConnection.open(ENDPOINT, "brokers.example", broker.port)
            connection.close()
            await asyncio.sleep(0)

    assert connection.versions[1] == (0, 11)


@contextlib.contextmanager
def silent(port: int) -> Iterator[str]:
    """Yield an address that lets no connection at *port* come about: its queue of those not accepted is full."""
    with contextlib.ExitStack() as opened:
        listening = opened.enter_context(socket.socket())
        listening.bind(("127.0.0.2", port))
        listening.listen(0)
        for _ in range(4):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.2", port))
        yield "127.0.0.2"
