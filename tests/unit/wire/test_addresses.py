"""Connecting to a host by whichever of its addresses answers."""

from __future__ import annotations

import asyncio
import socket

import pytest

from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.wire.addresses import connected
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.metadata import Broker


_TURNS = 12


class _Noted(socket.socket):
    made: list[_Noted]

    def __init__(self, *args: int) -> None:
        super().__init__(*args)
        self.made.append(self)


async def test_no_socket_is_left_if_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever turn of the event loop it is in: also in those right after the socket has connected."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _Noted.made = []
    monkeypatch.setattr("mm2py.wire.addresses.socket.socket", _Noted)
    done = 0
    async with server:
        for turns in range(_TURNS):
            connecting = asyncio.ensure_future(connected("127.0.0.1", port))
            for _ in range(turns):
                await asyncio.sleep(0)
            connecting.cancel()
            (found,) = await asyncio.gather(connecting, return_exceptions=True)
            if isinstance(found, socket.socket):
                found.close()
                done += 1
        await asyncio.sleep(0)

    assert 0 < done < _TURNS
    assert _Noted.made
    assert [line for line in _Noted.made if line.fileno() >= 0] == []


async def test_addresses_that_refuse_and_ports_that_cannot_be() -> None:
    """The error says what the last address answered; a port beyond all is told before anyone is asked."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            await connected("127.0.0.1", port)

    with pytest.raises(ValueError, match="there is no port 99999"):
        await connected("127.0.0.1", 99_999)


async def test_an_address_of_ipv6_is_told_from_its_port() -> None:
    """Operators see it in brackets, as they write it; ``2001:db8::5:9092`` is another address."""
    with pytest.raises(BrokerConnectionError, match=r"broker \[::1\]:1 of"):  # nothing listens there
        await BrokerConnection.open(ClusterEndpoint("A", ("[::1]:1",)), "::1", 1)

    assert (str(Broker(1, "2001:db8::5", 9092)), str(Broker(2, "b", 9092))) == ("[2001:db8::5]:9092", "b:9092")
