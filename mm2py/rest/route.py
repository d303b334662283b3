"""
A route of the REST interface, the request that its handler gets, and what all handlers share.

The application and the OpenAPI document are made from one table of routes, so they cannot disagree.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import attrs
from aiohttp import web

from mm2py.config.keys.table import nearest
from mm2py.config.rest import RestSettings, Right
from mm2py.daemon import MirrorMaker
from mm2py.errors import Mm2Error, shortened
from mm2py.herder.control import Control
from mm2py.model.flow import Flow
from mm2py.model.state import FlowView, MirrorView
from mm2py.rest.access.gate import Gate
from mm2py.rest.access.rules import Guest
from mm2py.rest.errors import RestError, bad_request, not_found
from mm2py.rest.page.files import Page
from mm2py.rest.page.snapshots import Snapshots
from mm2py.telemetry.events import RestChangeFailed
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.metrics import Metrics


Json = dict[str, Any]
T = TypeVar("T")

#: How long a client may take to send a body.
_BODY_WITHIN_S: Final = 15.0
_MOST_PARTITION: Final = 2**31 - 1
#: So many flows are named to one who asks for another.
_NAMED = 5
#: How long a view is prepared. What is missing then is made at once.
_READY_WITHIN_S: Final = 2.0


#: The caller of the current request.
NOBODY: Final = Guest("", Right.NONE)
GUEST: Final[ContextVar[Guest]] = ContextVar("guest", default=NOBODY)


@attrs.frozen
class Param:
    """A query parameter, or a part of the path."""

    name: str
    schema: Json
    doc: str


@attrs.frozen
class Answer:
    """A handler's answer: JSON, or nothing if `body` is None."""

    status: int = 200
    body: object = None
    headers: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Text:
    """An answer in a format other than JSON."""

    content: bytes
    content_type: str


@attrs.frozen
class Route:
    """A method on a path, with its parameters and answers. `answers` has the schema of each successful status, None if
    there is no body; a schema given as text is a media type other than JSON. Errors have Connect's format.
    """

    method: str
    path: str
    right: Right
    summary: str
    handler: Callable[[Ask], Awaitable[object]] = attrs.field(repr=False)
    answers: Mapping[int, Json | str | None] = attrs.field(repr=False)
    takes: Json | None = attrs.field(default=None, repr=False)
    query: tuple[Param, ...] = attrs.field(default=(), repr=False)
    tag: str = "node"
    #: Error statuses besides those that any path may answer.
    errors: tuple[int, ...] = ()
    #: Whether foreign query parameters are ignored, as in Kafka Connect: probes and scrapers add their own.
    ignores_query: bool = False

    @property
    def name(self) -> str:
        """Return the operation's id, its handler's name: ``get_flow_status``."""
        return getattr(self.handler, "__name__", "").strip("_")

    def check_query(self, names: Iterable[str]) -> None:
        """Refuse query parameters that would have no effect; where foreign ones are ignored, only misspelt ones."""
        known = [param.name for param in self.query]
        problems = []
        for name in dict.fromkeys(names):
            near = nearest(name, known)
            if name not in known and (near or not self.ignores_query):
                others = f"known are {', '.join(known)}" if known else "this takes none"
                has = f"did you mean {near}?" if near else others
                problems.append(f"unknown query parameter {shortened(name)!r}: {has}")
        if problems:
            raise bad_request(*problems)


class Routes:
    """Collects the routes of a module; used as a decorator of its handlers."""

    def __init__(self, tag: str, *, ignores_query: bool = False) -> None:
        self.all: list[Route] = []
        self._tag = tag
        self._ignores_query = ignores_query

    def add(
        self,
        method: str,
        path: str,
        summary: str,
        *,
        answers: Mapping[int, Json | str | None],
        right: Right | None = None,
        takes: Json | None = None,
        query: tuple[Param, ...] = (),
        errors: tuple[int, ...] = (),
        ignores_query: bool = False,
    ) -> Callable[[Callable[[Ask], Awaitable[object]]], Callable[[Ask], Awaitable[object]]]:
        """Declare that the decorated function answers *method* on *path*; all but GET need write permission."""
        needed = right if right is not None else Right.READ if method == "GET" else Right.WRITE

        def declare(handler: Callable[[Ask], Awaitable[object]]) -> Callable[[Ask], Awaitable[object]]:
            lenient = ignores_query or self._ignores_query
            self.all.append(
                Route(method, path, needed, summary, handler, answers, takes, query, self._tag, errors, lenient)
            )
            return handler

        return declare


@attrs.define(eq=False)
class Rest:
    """Shared by all listeners of a node: views of it, access control, the page."""

    node: MirrorMaker
    snapshots: Snapshots
    page: Page
    events: EventLog
    gate: Gate
    metrics: Metrics
    #: Returns the OpenAPI document of all routes.
    openapi: Callable[[], Json]
    worker_id: str = ""
    is_draining: bool = False

    @property
    def settings(self) -> RestSettings:
        return self.node.settings.rest

    async def ready(self) -> None:
        """Have the first view, and one after a long time, not hold up all other work; on a busy machine, as far as the
        client need not wait much longer for that.
        """
        if self.snapshots.is_cold:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_READY_WITHIN_S):
                    await self.node.prepare_views()

    def view(self) -> MirrorView:
        """Return a view of all flows, each as all of its nodes run it."""
        return self.snapshots.view()

    def own_view(self) -> MirrorView:
        """Return the same with the figures of this node alone."""
        return self.snapshots.own()

    def forget(self) -> None:
        """Take a new view for the next request, because something changed."""
        self.snapshots.forget()


@attrs.frozen
class Ask:
    """One request, as a handler sees it. Invalid parameters raise the matching error answer."""

    request: web.Request
    rest: Rest

    @property
    def node(self) -> MirrorMaker:
        return self.rest.node

    @property
    def control(self) -> Control:
        return self.rest.node.control

    @property
    def by(self) -> str:
        """Return the caller: the authenticated name, or the address."""
        name = self.guest.name
        return f"{name} at {self.request.remote}" if name else str(self.request.remote or "")

    @property
    def guest(self) -> Guest:
        """Return the admitted caller of this request."""
        return GUEST.get()

    def part(self, name: str) -> str:
        """Return a part of the path."""
        return self.request.match_info[name]

    def number(self, name: str) -> int:
        """Return a numeric part of the path."""
        text = self.part(name)
        number = _number(text)
        if number is None or number > _MOST_PARTITION:
            raise not_found(f"{name} {shortened(text)!r} is not a number of one")
        return number

    def cluster(self) -> str:
        """Return the cluster that the path names; raise if the file does not have it."""
        alias, known = self.part("cluster"), self.node.settings.clusters
        if alias not in known:
            raise not_found(f"there is no cluster {alias}", nearest(alias, known))
        return alias

    def flow(self) -> FlowView:
        """Return the flow that the path names; raise if this node does not run it."""
        flow = Flow.of_url(self.part("source"), self.part("target"))
        view = self.rest.view()
        for found in view.flows:
            if found.flow == flow:
                return found
        flows = [str(one.flow) for one in view.flows]
        near = nearest(str(flow), flows)
        others = f"; it runs {', '.join(flows[:_NAMED])}" if flows and near is None else ""
        raise not_found(f"this node does not run flow {flow}{others}", near)

    def words(self, name: str) -> tuple[str, ...]:
        """Return all values of a query parameter, also those separated by commas."""
        return tuple(word for text in self.request.query.getall(name, ()) for word in text.split(",") if word)

    def flag(self, name: str) -> bool:
        """Return a boolean query parameter; false if it is missing."""
        text = self.request.query.get(name, "false").strip().lower()
        if text not in {"true", "false"}:
            raise bad_request(f"{name} must be true or false, not {text!r}")
        return text == "true"

    def amount(self, name: str, default: int, *, most: int) -> int:
        """Return a query parameter that is a count."""
        text = self.request.query.get(name)
        if text is None:
            return default
        number = _number(text)
        if number is None or number > most:
            raise bad_request(f"{name} must be a number from 0 to {most}, not {shortened(text)!r}")
        return number

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return a query parameter that is one of *choices*; the first if it is missing."""
        text = self.request.query.get(name, choices[0])
        if text not in choices:
            raise bad_request(f"{name} must be one of {', '.join(choices)}, not {text!r}")
        return text

    async def json(self) -> object:
        """Read the body as JSON."""
        if self.request.content_type != "application/json":
            given = self.request.headers.get("Content-Type", "nothing")
            raise RestError(415, f"the body must be JSON, with Content-Type: application/json, not {given}")
        try:
            async with asyncio.timeout(_BODY_WITHIN_S):
                raw = await self.request.read()
        except TimeoutError as error:
            raise RestError(408, f"the body did not arrive within {_BODY_WITHIN_S:g} s") from error
        try:
            return json.loads(raw, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise bad_request(f"the body is not JSON: {error}") from error

    async def object(self) -> Json:
        """Read the body as a JSON object."""
        body = await self.json()
        if not isinstance(body, dict):
            raise bad_request("the body must be a JSON object")
        return body

    async def change(self, work: Coroutine[Any, Any, T]) -> T:
        """Await *work*, which continues if the client disconnects; then renew the view for the next request."""
        # A request's own task is cancelled with it. A change is bounded by the time that its target may take to answer.
        name = f"{self.request.method} {self.request.path}"
        changing = asyncio.get_running_loop().create_task(work, name=name)
        try:
            return await asyncio.shield(changing)
        except asyncio.CancelledError:
            changing.add_done_callback(self._report_unheard)
            raise
        finally:
            self.rest.forget()

    def _report_unheard(self, changing: asyncio.Task[Any]) -> None:
        """Report a change that failed once its client was gone."""
        error = None if changing.cancelled() else changing.exception()
        if error is not None:
            hint = error.hint if isinstance(error, Mm2Error) else ""
            failed = RestChangeFailed(self.request.method, self.request.path, str(error), hint)
            self.rest.events.emit(failed)


def _number(text: str) -> int | None:
    """Return a number without a sign; None if *text* is something else."""
    try:
        return int(text) if text.isascii() and text.isdigit() else None
    except ValueError:  # Python reads no more than some thousand digits
        return None


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not valid JSON")


def finite(value: object) -> object:
    """Return *value* with None for numbers that JSON cannot carry."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [finite(one) for one in value]
    return value


def encode(value: object) -> bytes:
    """Write an answer as JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone surrogate from a client's JSON, which UTF-8 cannot encode, must not fail an answer.
    return text.encode("utf-8", errors="replace")
