"""How many connections the clients of a listener may hold: the mirror needs the process's files itself."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web


#: A process has some thousand files, often no more than 1024. What answers takes turns; 64 may watch the page.
MOST_CONNECTIONS: Final = 256


class LimitedServer:
    """Makes the protocols of connections that were accepted. Beyond the limit the oldest one that asks for nothing is
    closed: a client that holds many keeps no other from being answered.
    """

    def __init__(self, server: web.Server) -> None:
        self._server = server

    def __call__(self) -> asyncio.Protocol:
        held = self._server.connections
        if len(held) < MOST_CONNECTIONS:
            return self._server()
        # A request has come when its headers are complete; aiohttp has no other sign of it.
        waiting = (it for it in held if it._current_request is None and it.transport is not None)  # noqa: SLF001
        idle = next(waiting, None)
        if idle is None:
            return _Refused()
        idle.force_close()
        return self._server()


class _Refused(asyncio.Protocol):
    """Hangs up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
