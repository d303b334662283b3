"""The root, the status page's routes, and the OpenAPI document."""

from __future__ import annotations

from typing import Final

from mm2py.config.keys.table import nearest
from mm2py.config.rest import Right
from mm2py.rest.errors import bad_request, not_found
from mm2py.rest.handlers.flows import FLOW
from mm2py.rest.handlers.node import server_info
from mm2py.rest.page.files import wants_page
from mm2py.rest.page.history import COLUMNS, RANGES
from mm2py.rest.plugin_definitions import VERSION
from mm2py.rest.route import Ask, Param, Routes
from mm2py.rest.schemas import BOOLEAN, NUMBER, STRING, array, nullable, obj, ref


_LEVELS: Final = ("debug", "info", "warn", "error")
_EVENT: Final = {"type": "object", "additionalProperties": True}
_FLOW: Final = Param("flow", STRING, "Only this flow, `A->B`")
_AFTER: Final = Param("after", STRING, "Only events after the one with this mark")

routes = Routes("page")


@routes.add(
    "GET",
    "/",
    "Version information, as at Connect's root; the status page if the client accepts HTML",
    answers={200: ref("ServerInfo")},
    ignores_query=True,
)
async def get_root(ask: Ask) -> object:
    if wants_page(ask.request):
        return ask.rest.page.index(ask.request)
    if ask.node.worker is not None:
        return server_info(ask.node.worker.store.cluster_id, VERSION)
    return server_info(", ".join(sorted({flow.flow.target for flow in ask.rest.view().flows})))


@routes.add(
    "GET",
    "/static/{name:.+}",
    "The status page's files",
    answers={200: "*/*"},
    right=Right.NONE,
    errors=(404,),
    ignores_query=True,
)
async def get_static(ask: Ask) -> object:
    return await ask.rest.page.get_static(ask.request)


@routes.add(
    "GET",
    "/stream",
    "Live updates for the status page, as server-sent events",
    answers={200: "text/event-stream"},
    query=(_FLOW, _AFTER, Param("only", {"type": "string", "enum": ["events"]}, "Events alone")),
    errors=(404, 503),
)
async def get_stream(ask: Ask) -> object:
    ask.choice("only", ("", "events"))
    await ask.rest.ready()
    return await ask.rest.page.get_stream(ask.request)


@routes.add(
    "GET",
    "/events",
    "Recent events, oldest first",
    answers={200: obj({"events": array(_EVENT)})},
    query=(_FLOW, _AFTER, Param("level", {"type": "string", "enum": list(_LEVELS)}, "Only events of this level")),
    errors=(400, 404),
)
async def get_events(ask: Ask) -> object:
    flow, level = ask.request.query.get("flow", ""), ask.request.query.get("level", "").lower()
    if level and level not in _LEVELS:
        raise bad_request(f"level must be one of {', '.join(_LEVELS)}, not {level!r}")
    found = ask.rest.page.get_events(flow, level, ask.request.query.get("after", ""))
    flows = [str(one.flow) for one in ask.rest.view().flows]
    # A flow that was removed from the file may still have events.
    if flow and flow not in flows and not found:
        raise not_found(f"this node does not run flow {flow}", nearest(flow, flows))
    return {"events": found}


@routes.add(
    "GET",
    FLOW + "/history",
    "What a flow copied lately, column by column: rates are means, all other figures the greatest of each interval",
    answers={200: obj({name: array(nullable(NUMBER)) for name in COLUMNS})},
    query=(Param("range", {"type": "string", "enum": list(RANGES)}, "How much of it, in at most 300 points"),),
    errors=(400, 404),
)
async def get_history(ask: Ask) -> object:
    return ask.rest.page.history.of(ask.flow().flow, ask.choice("range", tuple(RANGES)))


@routes.add(
    "GET",
    "/whoami",
    "The caller's name and permissions",
    answers={200: obj({"name": STRING, "may_read": BOOLEAN, "may_write": BOOLEAN, "why_not": STRING})},
)
async def get_whoami(ask: Ask) -> object:
    guest = ask.guest
    may_write = guest.right is Right.WRITE
    return {"name": guest.name, "may_read": True, "may_write": may_write, "why_not": guest.why_not}


@routes.add("GET", "/openapi.json", "This API, as OpenAPI 3.1", answers={200: _EVENT})
async def get_openapi(ask: Ask) -> object:
    return ask.rest.openapi()
