"""The REST server: an application for each listener, for as long as the daemon runs. Nothing that happens here stops a
mirror. A port in use, or an unusable certificate, is an event, and is retried. Certificates that are replaced on disk
are used for new connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final

import attrs
from aiohttp import web

from mm2py.clock import Clock
from mm2py.config.rest import Listener, RestSettings, Right
from mm2py.core.backoff import Backoff
from mm2py.daemon import MirrorMaker
from mm2py.model.endpoint import Security
from mm2py.rest.access.gate import Gate
from mm2py.rest.app import make_app, openapi
from mm2py.rest.connections import LimitedServer, Tls
from mm2py.rest.page.files import Page
from mm2py.rest.page.snapshots import UNWATCHED_PART, Snapshots
from mm2py.rest.route import Rest
from mm2py.telemetry.events import RestListening, RestUnavailable
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.metrics import Metrics
from mm2py.wire.security.contexts import SecuritySettingsError, renew_server_context, server_context, state_of_files


_PAUSES: Final = Backoff(1.0, 60.0)
#: How often key stores are checked for changes.
_CERTIFICATES_EVERY_S: Final = 10.0
#: Time limit of open requests when the server ends; streams are ended before.
_END_WITHIN_S: Final = 2.0
_KEEP_ALIVE_S: Final = 75.0
_BACKLOG: Final = 128
#: How long TLS may take to begin and to end: a connection has a file then.
_HANDSHAKE_S: Final = 10.0
_PARTING_S: Final = 5.0
_HINTS: Final = {
    errno.EADDRINUSE: "another process uses this port; stop it, or set listeners to another port",
    errno.EADDRNOTAVAIL: "this machine has no such address; correct listeners",
    errno.EACCES: "ports below 1024 need a special privilege; set listeners to a higher one",
}
_WHO: Final = {
    Right.NONE: "authenticated users only",
    Right.READ: "everyone may read",
    Right.WRITE: "everyone may do everything",
}


class RestServer:
    """
    Serves one node. `run` listens until it is cancelled, and then closes open connections.
    """

    def __init__(
        self,
        node: MirrorMaker,
        *,
        clock: Clock,
        events: EventLog,
        metrics: Metrics,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._events = events
        self._jitter = jitter
        self._settings = node.settings.rest
        snapshots = Snapshots(node.view, clock)
        totals = Snapshots(partial(node.view, has_partitions=False), clock, UNWATCHED_PART)
        page = Page(node.control, snapshots, totals, clock=clock, events=node.events)
        self.rest = Rest(node, snapshots, page, events, Gate(clock, events), metrics, openapi)
        self.rest.worker_id = worker_id(self._settings, {})
        self._ports: dict[Listener, int] = {}

    def drain(self) -> None:
        """Report from now on that the node is stopping; it can be viewed until the end, but not changed."""
        self.rest.is_draining = True

    async def run(self) -> None:
        """Listen at all addresses of the settings, if there are any."""
        if not self._settings.listeners:
            return
        # The library would log malformed requests; they are answered, which is sufficient.
        logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._feed_page(), name="rest/page")
            for listener in self._settings.listeners:
                tasks.create_task(self._serve_forever(listener), name=f"rest/{listener}")

    async def _feed_page(self) -> None:
        try:
            await self.rest.page.run()
        finally:
            # Streams would keep their connections until the end.
            self.rest.page.close()

    async def _serve_forever(self, listener: Listener) -> None:
        """Listen at one address, retrying until it is available."""
        pauses, last = _PAUSES.pauses(self._jitter), ""
        while True:
            try:
                async with self._listening(listener) as context:
                    await self._renew_forever(context)
            except SecuritySettingsError as error:
                reason, hint = f"{error.key}: {error.problem}", "correct the file or the setting"
            except OSError as error:
                reason = error.strerror or str(error)
                hint = _HINTS.get(error.errno or 0, "correct listeners")
            pause_s = next(pauses)
            if reason != last:
                self._events.emit(RestUnavailable(str(listener), reason, hint, pause_s))
                last = reason
            await self._clock.sleep(pause_s)

    @contextlib.asynccontextmanager
    async def _listening(self, listener: Listener) -> AsyncIterator[ssl.SSLContext | None]:
        context = await asyncio.to_thread(self._context) if listener.scheme == "https" else None
        opened = await _opened(listener, self._settings.listeners)
        runner = web.AppRunner(
            make_app(self.rest, listener),
            access_log=None,
            handle_signals=False,
            shutdown_timeout=_END_WITHIN_S,
            keepalive_timeout=_KEEP_ALIVE_S,
            handler_cancellation=True,
        )
        servers: list[asyncio.Server] = []
        try:
            await runner.setup()
            assert runner.server is not None  # noqa: S101 - it is set up
            tls = None if context is None else Tls(context, _HANDSHAKE_S, _PARTING_S)
            limited, loop = LimitedServer(runner.server, tls), asyncio.get_running_loop()
            for one in opened:
                server = await loop.create_server(limited, sock=one, backlog=_BACKLOG)
                servers.append(server)  # at once: those before one that fails are closed
            self._tell(attrs.evolve(listener, port=opened[0].getsockname()[1]), listener)
            yield context
        finally:
            for server in servers:
                server.close()
            # Open requests get their time, although this task is being cancelled.
            await runner.cleanup()
            for one in opened:
                one.close()

    def _tell(self, bound: Listener, listener: Listener) -> None:
        self._ports[listener] = bound.port
        self.rest.worker_id = worker_id(self._settings, self._ports)
        self.rest.page.stream.worker_id = self.rest.worker_id
        self._events.emit(RestListening(str(bound), _WHO[self.rest.settings.of_anonymous(listener)]))

    # TLS.

    def _context(self) -> ssl.SSLContext:
        return server_context("rest", dict(self._settings.tls), self._settings.client_auth)

    async def _renew_forever(self, context: ssl.SSLContext | None) -> None:
        """Load key stores that were replaced. If one cannot be read, the old one stays in use, the problem is reported,
        and it is tried again: corrected permissions do not change the state of a file.
        """
        security = Security("SSL", self._settings.tls)
        known, problem = await asyncio.to_thread(state_of_files, security), ""
        while True:
            await self._clock.sleep(_CERTIFICATES_EVERY_S)
            now = await asyncio.to_thread(state_of_files, security)
            if context is None or (now == known and not problem):
                continue
            known, last, problem = now, problem, ""
            try:
                await asyncio.to_thread(renew_server_context, context, "rest", dict(self._settings.tls))
            except SecuritySettingsError as error:
                problem = f"{error.key}: {error.problem}"
                if problem != last:
                    hint = "the previous certificate stays in use; correct the file"
                    self._events.emit(RestUnavailable("https", problem, hint, 0.0))


async def _opened(listener: Listener, all_listeners: Sequence[Listener]) -> list[socket.socket]:
    """Open a listener's sockets in a thread, because names are resolved; none stays open after a cancellation."""
    opening = asyncio.get_running_loop().run_in_executor(None, open_listener, listener, all_listeners)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            for one in await opening:
                one.close()
        raise


def open_listener(listener: Listener, all_listeners: Sequence[Listener]) -> list[socket.socket]:
    """Open a listener's sockets: one for each address of its host. Raise OSError if one cannot be opened."""
    opened: list[socket.socket] = []
    port = listener.port
    try:
        for family, address in _addresses(listener, all_listeners):
            made = socket.socket(family, socket.SOCK_STREAM)
            opened.append(made)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind((address, port))
            made.setblocking(False)  # noqa: FBT003 - its only argument
            # Port 0: the port of the first socket is used for all addresses.
            port = made.getsockname()[1]
    except OSError:
        for one in opened:
            one.close()
        raise
    return opened


def _addresses(listener: Listener, all_listeners: Sequence[Listener]) -> Sequence[tuple[int, str]]:
    # [::] is all addresses, those of IPv4 too, as in Java; unless another line has these.
    is_alone = all(other is listener or other.port != listener.port for other in all_listeners)
    if not listener.host or (listener.host == "::" and is_alone):
        both = [(socket.AF_INET, "0.0.0.0")]  # noqa: S104 - that is what was asked for
        return [*both, (socket.AF_INET6, "::")] if _has_ipv6() else both
    found = socket.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    pairs = dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found)
    # localhost may have an IPv6 address on machines without IPv6.
    usable = [pair for pair in pairs if pair[0] != socket.AF_INET6 or _has_ipv6()]
    return usable or list(pairs)


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def worker_id(settings: RestSettings, ports: dict[Listener, int]) -> str:
    """Return the worker id in Connect's format: ``host:port``."""
    listeners = settings.listeners
    wanted = settings.advertised_listener
    one = next((it for it in listeners if it.scheme == wanted), listeners[0] if listeners else Listener("", "", 0))
    host = settings.advertised_host or (one.host if one.host not in {"", "0.0.0.0", "::"} else socket.getfqdn())  # noqa: S104
    port = settings.advertised_port or ports.get(one, one.port)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
