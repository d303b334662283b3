"""Kafka Connect's `/admin/loggers`: from which level on this node logs, shown and changed while it runs."""

from __future__ import annotations

from typing import Final

from mm2py.rest.errors import RestError, bad_request, not_found
from mm2py.rest.route import Answer, Ask, Json, Param, Routes
from mm2py.rest.schemas import STRING, STRINGS, obj, ref
from mm2py.telemetry.levels import LoggerLevel, parse_level


routes = Routes("node", ignores_query=True)
_ALL: Final = "/admin/loggers"
_ONE: Final = _ALL + "/{logger}"
_SCOPE: Final = Param("scope", STRING, "`worker`, this node, or `cluster`: all nodes of a Connect worker (KIP-976)")


def _shown(found: LoggerLevel) -> Json:
    return {"level": found.level, "last_modified": found.modified_ms}


@routes.add(
    "GET",
    _ALL,
    "From which level on each logger logs",
    answers={200: {"type": "object", "additionalProperties": ref("LoggerLevel")}},
)
async def get_loggers(ask: Ask) -> object:
    return {name: _shown(found) for name, found in ask.node.events.levels.all().items()}


@routes.add("GET", _ONE, "From which level on a logger logs", answers={200: ref("LoggerLevel")}, errors=(404,))
async def get_logger(ask: Ask) -> object:
    name = ask.part("logger")
    if (found := ask.node.events.levels.find(name)) is None:
        raise not_found(f"Logger {name} not found.")
    return _shown(found)


@routes.add(
    "PUT",
    _ONE,
    "Set the level of a logger and of all below it until the node ends; the names of those that have it now",
    answers={200: STRINGS, 204: None},
    takes={**obj({"level": STRING}), "additionalProperties": True},
    query=(_SCOPE,),
    errors=(400, 404, 415, 503),
)
async def put_logger(ask: Ask) -> object:
    name, text = ask.part("logger"), (await ask.object()).get("level")
    if not isinstance(text, str):
        raise bad_request("Desired 'level' parameter was not specified in request.")
    if (level := parse_level(text)) is None:
        raise RestError(404, f"invalid log level '{text}'.")  # as in Connect
    if ask.request.query.get("scope") != "cluster":
        return list(ask.node.events.set_level(name, level))
    if ask.node.worker is None:
        ask.node.events.set_level(name, level)
    else:
        await ask.change(ask.node.worker.set_log_level(name, level))
    return Answer(204)
