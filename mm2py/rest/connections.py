"""How many connections the clients of a listener may hold: the mirror needs the process's files itself."""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Final, cast

import attrs
from aiohttp import web


#: A process has some thousand files, often no more than 1024. What answers takes turns; 64 may watch the page.
MOST_CONNECTIONS: Final = 256
#: A handshake takes milliseconds.
MOST_HANDSHAKES: Final = 64


@attrs.frozen(eq=False)
class Tls:
    """What a listener speaks TLS with, and how long that may take to begin and to end."""

    context: ssl.SSLContext
    handshake_s: float
    parting_s: float


class LimitedServer:
    """Makes the protocols of connections that were accepted. Beyond the limit the oldest one that asks for nothing is
    closed: a client that holds many keeps no other from being answered. So it is with those that have not agreed on TLS
    yet; asyncio would count them only afterwards.
    """

    def __init__(self, server: web.Server, tls: Tls | None) -> None:
        self._server = server
        self._tls = tls
        self._handshakes: list[_Handshake] = []

    def __call__(self) -> asyncio.BaseProtocol:
        held = self._server.connections
        if len(held) >= MOST_CONNECTIONS:
            # A request has come when its headers are complete; aiohttp has no other sign of it.
            waiting = (it for it in held if it._current_request is None and it.transport is not None)  # noqa: SLF001
            idle = next(waiting, None)
            if idle is None:
                return _Refused()
            idle.force_close()
        made = self._server()
        return made if self._tls is None else self._secured(made, self._tls)

    def _secured(self, made: web.RequestHandler, tls: Tls) -> asyncio.BaseProtocol:
        self._handshakes = [it for it in self._handshakes if it.is_under_way]
        if len(self._handshakes) >= MOST_HANDSHAKES:
            self._handshakes.pop(0).give_up()
        self._handshakes.append(_Handshake(made, tls))
        return self._handshakes[-1]


class _Handshake(SSLProtocol):
    """A connection's TLS, as asyncio itself makes it for a server with a context."""

    def __init__(self, made: web.RequestHandler, tls: Tls) -> None:
        super().__init__(
            asyncio.get_running_loop(),
            made,
            tls.context,
            None,  # type: ignore[arg-type] # no one waits for its end
            server_side=True,
            ssl_handshake_timeout=tls.handshake_s,  # type: ignore[arg-type] # typeshed has whole seconds
            ssl_shutdown_timeout=tls.parting_s,
        )
        self._made = made
        self._line: asyncio.Transport | None = None
        self._is_over = False

    @property
    def is_under_way(self) -> bool:
        return self._made.transport is None and not self._is_over

    def give_up(self) -> None:
        """Hang up; of many that are accepted at once, before this is told of its connection."""
        self._is_over = True
        if self._line is not None:
            self._line.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._line = cast("asyncio.Transport", transport)
        if self._is_over:
            self._line.abort()
        else:
            super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._is_over = True
        super().connection_lost(exc)


class _Refused(asyncio.Protocol):
    """Hangs up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
