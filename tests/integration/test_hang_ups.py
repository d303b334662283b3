"""Brokers that hang up: their ends and their proxies are told from settings of security that are wrong."""

from __future__ import annotations

import asyncio
import struct
import tracemalloc

import pytest

from mm2py.clock import SystemClock
from mm2py.errors import BrokerConnectionError, ClusterUnreachableError
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.wire.cluster import Cluster
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.security.access import BrokerAccessError, ClusterAccessError
from mm2py.wire.security.tls_probe import speaks_tls


async def test_a_broker_that_hangs_up_is_not_a_wrong_port() -> None:
    """A closed port is not taken for one without TLS, so a broker that ends is not blamed on the settings."""

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        without = await speaks_tls("127.0.0.1", port)
    closed = await speaks_tls("127.0.0.1", port)

    assert (without, closed) == (False, None)


@pytest.mark.parametrize(("protocol", "answers"), [("SSL", 0), ("PLAINTEXT", 0), ("PLAINTEXT", 1)])
async def test_a_proxy_without_its_broker_refuses_nothing(protocol: str, answers: int) -> None:
    """It closes what it accepts at once, or the broker ends at the first request: no setting of security is wrong."""
    left = answers

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        if left:
            left -= 1
            request = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
            answer = request[4:8] + struct.pack(">hi6h", 0, 2, 3, 0, 8, 18, 0, 0)  # versions of two requests
            writer.write(len(answer).to_bytes(4) + answer)
            await reader.read(1)
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        end = ClusterEndpoint("A", (f"127.0.0.1:{port}",), security=Security(protocol))
        cluster = Cluster(end, SystemClock())
        with pytest.raises(ClusterUnreachableError) as caught:
            await cluster.connect()
        await cluster.close()

    assert left == 0
    assert not isinstance(caught.value, ClusterAccessError)
    # Nor does a broker that takes no more connections from this machine answer the first request of another one.
    assert ("max.connections.per.ip" in str(caught.value)) == (answers == 0)


@pytest.mark.parametrize("protocol", ["SSL", "PLAINTEXT"])
async def test_what_is_no_broker_is_not_one_that_takes_no_more_connections(protocol: str) -> None:
    """The port is that of a web server: it answers, in its own way, and only then closes the connection."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    end = ClusterEndpoint("A", (f"127.0.0.1:{port}",), security=Security(protocol))
    tracemalloc.start()
    async with server:
        with pytest.raises(BrokerConnectionError, match="not how a Kafka broker answers") as caught:
            await BrokerConnection.open(end, "127.0.0.1", port)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert not isinstance(caught.value, BrokerAccessError)
    assert most_bytes < 16 << 20  # of what it claims to answer, a billion bytes
