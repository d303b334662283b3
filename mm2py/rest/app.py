"""The HTTP application of a listener: routes, access control before them, and errors in Connect's format."""

from __future__ import annotations

import asyncio
import functools
import re
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import attrs
from aiohttp import hdrs, web

import mm2py
from mm2py.config.keys.table import nearest
from mm2py.config.rest import Listener, Right
from mm2py.rest.access.rules import Shown, challenges, is_allowed_origin, judge_host, judge_origin, why_not
from mm2py.rest.errors import RestError, as_rest_error, error_body
from mm2py.rest.handlers import connectors as for_connectors
from mm2py.rest.handlers import flows as for_flows
from mm2py.rest.handlers import loggers as for_loggers
from mm2py.rest.handlers import node as for_node
from mm2py.rest.handlers import page as for_page
from mm2py.rest.handlers import worker as for_worker
from mm2py.rest.openapi import document
from mm2py.rest.page.files import PAGE_NAME, is_open
from mm2py.rest.route import GUEST, NOBODY, Answer, Ask, Json, Rest, Route, Text, encode
from mm2py.telemetry.events import RestFailed


_MOST_BODY_BYTES: Final = 1024 * 1024
#: Time limit of a request; changed overrides wait for the target cluster.
_ANSWER_WITHIN_S: Final = 60.0
#: Longer texts are compressed in a thread.
_COMPRESSED_HERE_BYTES: Final = 64 * 1024
_JSON: Final = "application/json"
#: Endless response: no HEAD.
_ENDLESS: Final = "/stream"

_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The API never answers with a page; the status page has its own policy.
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}

ROUTES: Final[tuple[Route, ...]] = (
    *for_node.routes.all,
    *for_flows.routes.all,
    *for_connectors.routes.all,
    *for_worker.routes.all,
    *for_loggers.routes.all,
    *for_page.routes.all,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@functools.cache
def openapi() -> Json:
    """Return the OpenAPI document of all routes, which is the same for each node."""
    return document(ROUTES, mm2py.__version__)


_REST: Final = web.AppKey("rest", Rest)


def make_app(rest: Rest, listener: Listener) -> web.Application:
    """Return the application of one listener."""
    app = web.Application(middlewares=[_Front(rest, listener)], client_max_size=_MOST_BODY_BYTES)
    app[_REST] = rest
    for resource in _resources():
        app.router.register_resource(resource)
    return app


@functools.cache
def _resources() -> tuple[web.AbstractResource, ...]:
    """Return all routes as aiohttp's. All listeners share them: handlers find their node in the application."""
    router = web.UrlDispatcher()
    for route in ROUTES:
        handler = _handler(route)
        # kcctl and others request /connectors/, Connect's documentation has /connectors.
        # By default aiohttp takes no braces in a part; aliases and groups may have them.
        taken = re.sub(r"\{(\w+)\}", r"{\1:[^/]+}", route.path)
        for path in {taken, taken.rstrip("/") + "/"} if "{name:" not in route.path else {taken}:
            router.add_route(route.method, path, handler)
            if route.method == hdrs.METH_GET and route.path != _ENDLESS:
                router.add_route(hdrs.METH_HEAD, path, handler)
    return tuple(router.resources())


def _handler(route: Route) -> Handler:
    # aiohttp accepts only functions, and inspects them; `_Front` reads the route from it.
    async def handle(request: web.Request) -> web.StreamResponse:
        ask = Ask(request, request.app[_REST])
        if route.tag == "page":
            return _response(await route.handler(ask))
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            answer = await route.handler(ask)
        return _response(answer)

    handle.__dict__["route"] = route
    return handle


def _response(answer: object) -> web.StreamResponse:
    if isinstance(answer, web.StreamResponse):
        return answer
    if isinstance(answer, Text):
        response = web.Response(
            body=answer.content,
            headers={hdrs.CONTENT_TYPE: answer.content_type},
            zlib_executor_size=_COMPRESSED_HERE_BYTES,
        )
        response.enable_compression()  # where the client accepts it, as Prometheus does
        return response
    if not isinstance(answer, Answer):
        answer = Answer(200, answer)
    if answer.body is None:
        return web.Response(status=answer.status, headers=dict(answer.headers))
    return web.Response(
        body=encode(answer.body), status=answer.status, content_type=_JSON, headers=dict(answer.headers)
    )


def _of_error(error: RestError) -> web.Response:
    response = web.Response(body=encode(error_body(error)), status=error.status, content_type=_JSON)
    names, values = error.headers[::2], error.headers[1::2]
    for name, value in zip(names, values, strict=True):
        response.headers.add(name, value)
    return response


class _Front:
    """Middleware of all handlers: access control before them, errors and headers of every answer after them."""

    # aiohttp's mark of a middleware.
    __middleware_version__ = 1

    def __init__(self, rest: Rest, listener: Listener) -> None:
        self._rest = rest
        self._listener = listener

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        shown = _shown(request)
        try:
            response = await self._pass(request, shown, handler)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer and the operator an event
            response = await self._failed(request, error)
        for name, value in _HEADERS.items():
            if not response.prepared:
                response.headers.setdefault(name, value)
        if not response.prepared:
            self._allow(shown, response)
        return response

    async def _pass(self, request: web.Request, shown: Shown, handler: Handler) -> web.StreamResponse:
        settings, rest = self._rest.settings, self._rest
        # Requests of a connection are handled in one task, one after the other.
        GUEST.set(NOBODY)
        if reason := judge_host(shown.host, self._listener, settings):
            raise RestError(403, reason)
        if request.method == hdrs.METH_OPTIONS and hdrs.ACCESS_CONTROL_REQUEST_METHOD in request.headers:
            return self._preflight(request, shown)
        # CORS preflight requests of pages of other origins.
        if reason := judge_origin(shown, settings):
            raise RestError(403, reason)
        route = getattr(request.match_info.handler, "route", None)
        needed = Right.READ if route is None else route.right
        if route is not None and route.tag == "page" and is_open(request):
            needed = Right.NONE
        if needed is not Right.NONE:
            await self._let_in(request, shown, needed)
        if route is None:
            raise _no_such(request, await _match(request, handler))
        route.check_query(request.query)
        if rest.is_draining and needed is Right.WRITE:
            raise RestError(503, "the node is stopping and accepts no more changes", (), ("Retry-After", "30"))
        return await handler(request)

    async def _let_in(self, request: web.Request, shown: Shown, needed: Right) -> None:
        settings, gate = self._rest.settings, self._rest.gate
        anonymous = settings.of_anonymous(self._listener)
        try:
            guest = await gate.who(shown, request.remote or "", settings, anonymous)
        except RestError as error:
            if error.status == 401:  # noqa: PLR2004
                raise await self._ask_who(request, error.message) from error
            raise
        reason = why_not(guest.right, self._listener, settings, is_known=bool(guest.name))
        GUEST.set(attrs.evolve(guest, why_not="" if guest.right is Right.WRITE else reason))
        if guest.right >= needed:
            return
        if guest.name or not settings.has_users:
            raise RestError(403, reason)
        raise await self._ask_who(request, reason)

    async def _ask_who(self, request: web.Request, reason: str) -> RestError:
        # The status page has its own login form; a challenge would make the browser show its dialogue on top.
        is_page = request.headers.get("X-Requested-With") == PAGE_NAME
        has_passwords = not is_page and await self._rest.gate.has_passwords(self._rest.settings)
        asked = challenges(has_passwords=has_passwords)
        return RestError(401, reason, (), tuple(part for one in asked for part in ("WWW-Authenticate", one)))

    async def _failed(self, request: web.Request, error: Exception) -> web.Response:
        known = as_rest_error(error)
        if known is None:
            self._rest.events.emit(
                RestFailed(request.method, request.path, repr(error), "".join(traceback.format_exception(error)))
            )
            known = RestError(500, "a bug in mm2py: its log says more (rest_failed)")
        return _of_error(known)

    # Pages of other origins.

    def _allow(self, shown: Shown, response: web.StreamResponse) -> None:
        if shown.origin and is_allowed_origin(shown, self._rest.settings):
            response.headers["Access-Control-Allow-Origin"] = shown.origin
            response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
            response.headers.add("Vary", "Origin")

    def _preflight(self, request: web.Request, shown: Shown) -> web.Response:
        wanted = attrs.evolve(shown, method=request.headers[hdrs.ACCESS_CONTROL_REQUEST_METHOD].upper())
        if not is_allowed_origin(wanted, self._rest.settings):
            raise RestError(403, f"pages of {shown.origin or 'nowhere'} may not do this here")
        headers = {
            "Access-Control-Allow-Methods": ", ".join(self._rest.settings.allow_methods),
            "Access-Control-Allow-Headers": "Authorization, Content-Type",
            "Access-Control-Allow-Origin": shown.origin,
            "Vary": "Origin",
        }
        return web.Response(status=204, headers=headers)


def _shown(request: web.Request) -> Shown:
    headers: Mapping[str, str] = request.headers
    return Shown(
        method=request.method,
        host=headers.get(hdrs.HOST, ""),
        origin=headers.get(hdrs.ORIGIN, ""),
        fetch_site=headers.get("Sec-Fetch-Site", ""),
        authorization=headers.get(hdrs.AUTHORIZATION, ""),
        subject=subject_of(request),
    )


def subject_of(request: web.Request) -> str:
    """Return the subject of the client's certificate in RFC 4514 form; empty if there is none."""
    ssl_object = None if request.transport is None else request.transport.get_extra_info("ssl_object")
    der = None if ssl_object is None else ssl_object.getpeercert(binary_form=True)
    if not der:
        return ""
    from cryptography import x509  # noqa: PLC0415 - only where clients bring certificates

    return x509.load_der_x509_certificate(der).subject.rfc4514_string()


async def _match(request: web.Request, handler: Handler) -> Exception:
    """Return aiohttp's error for a path without a route."""
    try:
        await handler(request)
    except web.HTTPException as error:
        return error
    return web.HTTPNotFound()


def _no_such(request: web.Request, error: Exception) -> RestError:
    """Return the error for an unknown path, with the path that may have been meant."""
    if isinstance(error, web.HTTPException) and error.status != 404:  # noqa: PLR2004
        known = as_rest_error(error)
        assert known is not None  # noqa: S101 - every HTTPException is known
        return known
    literal = [route.path for route in ROUTES if "{" not in route.path]
    near = nearest(request.path, literal)
    return RestError(
        404, f"HTTP 404 Not Found: there is nothing at {request.path}" + (f"; did you mean {near}?" if near else "")
    )
