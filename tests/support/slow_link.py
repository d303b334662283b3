"""
A bad line in front of a broker: a TCP proxy that lets only so many bytes a second through, or delivers them late, or
lets nothing through for a while.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import attrs

from mm2py.devkit.ports import HOST


#: What may wait inside the proxy on its way to the broker is a few of these, so that the sender soon feels it.
_CHUNK_BYTES = 16 * 1024
#: Who has sent as much writes records.
_BULK_BYTES = 64 * 1024


@attrs.define(eq=False)
class _Connection:
    """What one connection has carried to the broker, and whether it may carry more, there and back."""

    may_pass: asyncio.Event = attrs.field(factory=asyncio.Event)
    may_return: asyncio.Event = attrs.field(factory=asyncio.Event)
    sent_bytes: int = 0


class SlowLink:
    """All connections through it share the rate; what the broker sends comes back at full speed."""

    def __init__(self, to_port: int, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self._to_port = to_port
        self._free_at = 0.0
        self._connections: set[_Connection] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._is_cut = False

    def cut(self) -> None:
        """
        Let nothing through in either direction until `release`, nor the end of a connection.

        So it is where a network drops packets: connections stay open, and what is new gets no answer.
        """
        self._is_cut = True
        for connection in self._connections:
            connection.may_pass.clear()
            connection.may_return.clear()

    def hold_writers(self) -> int:
        """
        Stop what is on its way on connections that have written records; return how many these are.

        It stays on its way, also when the sender closes its end. Connections that are opened from now on pass.
        """
        writers = [connection for connection in self._connections if connection.sent_bytes >= _BULK_BYTES]
        for connection in writers:
            connection.may_pass.clear()
        return len(writers)

    def release(self) -> None:
        """Deliver what was held, and let everything through from now on."""
        self._is_cut = False
        for connection in self._connections:
            connection.may_pass.set()
            connection.may_return.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it."""
        connection = _Connection()
        self._connections.add(connection)
        if not self._is_cut:
            connection.may_pass.set()
            connection.may_return.set()
        if (serving := asyncio.current_task()) is not None:
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)
        try:
            with suppress(OSError):
                await connection.may_pass.wait()
                await self._carry(reader, writer, connection)
        finally:
            writer.close()
            self._connections.discard(connection)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection) -> None:
        broker_reader, broker_writer = await asyncio.open_connection(HOST, self._to_port, limit=_CHUNK_BYTES)
        both = [
            asyncio.ensure_future(self._carry_there(reader, broker_writer, connection)),
            asyncio.ensure_future(self._carry_back(broker_reader, writer, connection)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in both:
                direction.cancel()
            broker_writer.close()

    async def end(self) -> None:
        """End all connections: one that is open when the event loop ends is a warning in a later test."""
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        if serving:
            await asyncio.wait(serving)

    async def _carry_there(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._wait_for_turn(len(data))
                await connection.may_pass.wait()
                connection.sent_bytes += len(data)
                writer.write(data)
                await writer.drain()
            await connection.may_pass.wait()

    async def _carry_back(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                await connection.may_return.wait()
                writer.write(data)
                await writer.drain()
            await connection.may_return.wait()

    async def _wait_for_turn(self, size: int) -> None:
        now = asyncio.get_running_loop().time()
        self._free_at = max(now, self._free_at) + size / self.bytes_per_s
        await asyncio.sleep(self._free_at - now)


@asynccontextmanager
async def slow_link(port: int, to_port: int, *, bytes_per_s: float = math.inf) -> AsyncIterator[SlowLink]:
    """Listen on *port* and pass on to *to_port* at that rate until the end of the block."""
    link = SlowLink(to_port, bytes_per_s)
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit it; left alone, the kernel would take in megabytes.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * _CHUNK_BYTES)
    listening.bind((HOST, port))
    server = await asyncio.start_server(link.serve, sock=listening, limit=_CHUNK_BYTES)
    try:
        yield link
    finally:
        link.release()
        server.close()
        await link.end()
