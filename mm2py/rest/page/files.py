"""
The status page: its files, its live updates and the recent events.

The page is an ordinary client of the REST interface: it makes changes through the same routes, with the same
permissions. Its own files hold no secrets and need no login: they contain the login form.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import importlib.resources
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.resources.abc import Traversable
from typing import Any

import attrs
from aiohttp import web

from mm2py.clock import Clock
from mm2py.errors import Mm2Error
from mm2py.herder.control import Control
from mm2py.model.flow import Flow
from mm2py.model.herder.overrides import Overrides
from mm2py.rest.errors import RestError, not_found
from mm2py.rest.page.documents import documents
from mm2py.rest.page.history import SAMPLE_EVERY_S, History
from mm2py.rest.page.snapshots import Snapshots
from mm2py.rest.page.stream import LiveStream, Viewer
from mm2py.rest.page.view import elsewhere_rows
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.recent import RecentEvents


STATIC = "/static/"
#: The page's value of the header X-Requested-With.
PAGE_NAME = "mm2py"
_WRITE_WITHIN_S = 10.0

_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".md": "text/markdown",
}
#: No resources of other origins, nothing inline, and no embedding in other sites.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With no-referrer, browsers hide the page's origin from us too, and its requests would look like another site's.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Revalidated each time, usually with 304: a page never mixes the files of two versions.
    "Cache-Control": "no-cache",
}
#: How often a page learns what other nodes copy, which changes when nodes come and go.
_ELSEWHERE_EVERY_S = 2.0
_STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    # Proxies such as nginx would buffer it.
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


@attrs.frozen
class StaticFile:
    """A file of the page."""

    content: bytes
    content_type: str
    etag: str


class Page:
    """
    The status page of a node: routes for an aiohttp application, and a loop that feeds its viewers.

    `run` runs as long as the application; `close` ends all streams, before the application is cleaned up.
    """

    def __init__(
        self, control: Control, snapshots: Snapshots, totals: Snapshots, *, clock: Clock, events: EventLog
    ) -> None:
        """Create it; *totals* are views without partitions, for the history, which needs no viewers."""
        self.recent = RecentEvents(events, clock)
        self.history = History()
        self._control = control
        self._totals = totals
        self._clock = clock
        self._files = _files()
        self.stream = LiveStream(snapshots.view, self._overrides, recent=self.recent, history=self.history, clock=clock)

    async def run(self) -> None:
        """Feed viewers, and record recent figures, forever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.stream.run(), name="rest/page/stream")
            tasks.create_task(self._remember_forever(), name="rest/page/history")
            tasks.create_task(self._follow_other_nodes(), name="rest/page/elsewhere")

    def close(self) -> None:
        """End all streams."""
        self.stream.close()

    async def _remember_forever(self) -> None:
        while True:
            view = self._totals.view()
            self.history.note(attrs.evolve(view, wall_ms=self._clock.wall_ms()))
            await self._clock.sleep(SAMPLE_EVERY_S)

    async def _follow_other_nodes(self) -> None:
        """Keep up with what other nodes copy of the flows that are looked at; a node that stands by has to ask."""
        while True:
            stream = self.stream
            found = {flow: rows for flow, rows in stream.elsewhere.items() if flow in stream.flows}
            for flow in stream.flows:
                with suppress(Mm2Error):  # the flow was removed, or the clusters do not answer
                    found[flow] = elsewhere_rows(await self._control.elsewhere(flow))
            stream.elsewhere = found
            await self._clock.sleep(_ELSEWHERE_EVERY_S)

    def _overrides(self, flow: Flow) -> Overrides | None:
        with suppress(Mm2Error):  # the flow was removed since it was seen
            return self._control.overrides(flow)
        return None

    # The page's files.

    def index(self, request: web.Request) -> web.StreamResponse:
        """Return the page itself."""
        return self._answer(request, "index.html")

    async def get_static(self, request: web.Request) -> web.StreamResponse:
        return self._answer(request, request.match_info["name"])

    def _answer(self, request: web.Request, name: str) -> web.StreamResponse:
        file = self._files.get(name)
        if file is None:
            raise not_found(f"the page has no file {name}")
        headers = {**_HEADERS, "ETag": f'"{file.etag}"'}
        known = request.if_none_match or ()
        if any(tag.value in {file.etag, "*"} for tag in known):
            return web.Response(status=304, headers=headers)
        return web.Response(body=file.content, content_type=file.content_type, charset="utf-8", headers=headers)

    # Events.

    def get_events(self, flow: str = "", level: str = "", after: str = "") -> list[dict[str, Any]]:
        """Return the recent events, oldest first, filtered by *flow*, *level*, and *after* a mark."""
        events = self.recent.since(self.recent.id_of(after))
        return [
            attrs.asdict(one) for one in events if (not flow or one.flow == flow) and (not level or one.level == level)
        ]

    async def get_stream(self, request: web.Request) -> web.StreamResponse:
        """Return live updates: ``?flow=A->B`` with that flow in detail, ``?only=events`` events only.
        ``Last-Event-ID`` or ``?after=`` is the last event that the client has seen.
        """
        after = request.headers.get("Last-Event-ID") or request.query.get("after", "")
        flow = _flow_of(request.query.get("flow", ""))
        if self.stream.is_full:
            raise RestError(503, f"{self.stream.viewers} pages are already open; close some")
        try:
            viewer = self.stream.join(flow, only_events=request.query.get("only") == "events", after=after)
        except LookupError as error:
            raise not_found(f"this node does not run flow {request.query['flow']}") from error
        try:
            return await _send(viewer, request)
        finally:
            self.stream.leave(viewer)


async def _send(viewer: Viewer, request: web.Request) -> web.StreamResponse:
    """Write a viewer's messages until there are no more, or the client stops reading."""
    response = web.StreamResponse(headers=_STREAM_HEADERS)
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(_WRITE_WITHIN_S):
            await response.prepare(request)
        while (message := await viewer.next()) is not None:
            async with asyncio.timeout(_WRITE_WITHIN_S):
                await response.write(message)
        if not viewer.is_slow:
            return response
    # A client that does not read must not keep the connection and its buffers.
    if request.transport is not None:
        request.transport.abort()
    return response


def wants_page(request: web.Request) -> bool:
    """Whether the client is a browser: programs get JSON at ``/``."""
    return request.method in {"GET", "HEAD"} and "text/html" in request.headers.get("Accept", "")


def is_open(request: web.Request) -> bool:
    """Whether the path needs no login: the page's own files."""
    return request.path.startswith(STATIC) or (request.path == "/" and wants_page(request))


def _flow_of(text: str) -> Flow | None:
    """Parse ``A->B``, None for no text. An invalid flow is treated as one that this node does not run."""
    return (Flow.parse(text) or Flow(text, "")) if text else None


@functools.cache
def _files() -> Mapping[str, StaticFile]:
    """Return the page's files by name, as installed with the package."""
    return dict(_read_files())


def _read_files() -> Iterator[tuple[str, StaticFile]]:
    top = importlib.resources.files("mm2py.rest") / "static"
    beside = ((f"docs/{name}", file) for name, file in documents().items())
    for name, file in dict((*_walk(top, ""), *beside)).items():
        content = file.read_bytes()
        suffix = name[name.rfind(".") :]
        etag = hashlib.sha256(content).hexdigest()[:24]
        yield name, StaticFile(content, _TYPES.get(suffix, "text/plain"), etag)


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry
