"""The OpenAPI document (3.1), generated from the application's routes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from mm2py.config.rest import Right
from mm2py.rest.errors import reason
from mm2py.rest.route import Json, Route
from mm2py.rest.schemas import COMPONENTS, STRING, Views, ref
from mm2py.rest.shapes import schemas


_PART: Final = re.compile(r"\{(\w+)(?::[^}]*)?\}")
_NUMBERS: Final = {"partition", "task"}
_PARTS: Final = {
    "source": "The alias of the source cluster",
    "target": "The alias of the target cluster",
    "cluster": "The alias of a cluster",
    "connector": "A connector's name; below a flow MirrorSourceConnector, MirrorCheckpointConnector or "
    "MirrorHeartbeatConnector",
    "plugin": "The class of a connector, transform, predicate or converter, with or without its package",
    "topic": "A topic's name at the source",
    "partition": "A partition's number",
    "task": "A task's number",
    "group": "A consumer group",
    "logger": "A logger: `root`, or a subject of events such as `mm2py.flow`",
    "name": "A file of the page",
}
_TAGS: Final = {
    "node": "The whole node",
    "flow": "One flow, its topics, and its overrides",
    "connect": "Kafka Connect's API, below a flow",
    "worker": "Kafka Connect's API of a worker, `connect-distributed`; other nodes answer 404",
    "page": "The status page, events, and this document",
}
#: Statuses of any path: authentication, permission, wrong host, wrong method, the node is stopping.
_ALWAYS: Final = (401, 403, 429)
_WITH_BODY: Final = (400, 408, 413, 415)


def document(routes: Iterable[Route], version: str) -> Json:
    """Describe *routes*."""
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(_PART.sub(r"{\1}", route.path), {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mm2py",
            "version": version,
            "summary": "Monitor and control a mirror between Kafka clusters",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "security": [{}, {"token": []}, {"password": []}, {"certificate": []}],
        "components": {
            "schemas": {**COMPONENTS, **schemas(Views())},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
                "certificate": {"type": "mutualTLS"},
            },
        },
    }


def _operation(route: Route) -> Json:
    operation: Json = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.tag],
        "description": f"Needs the right to {route.right.name.lower()}." if route.right else "Needs no login.",
        "responses": dict(_responses(route)),
    }
    if route.right is Right.NONE:
        operation["security"] = []
    if parameters := list(_parameters(route)):
        operation["parameters"] = parameters
    if route.takes is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": route.takes}}}
    return operation


def _parameters(route: Route) -> Iterator[Json]:
    for name in _PART.findall(route.path):
        schema: Any = {"type": "integer", "minimum": 0} if name in _NUMBERS else {**STRING, "minLength": 1}
        yield {"name": name, "in": "path", "required": True, "description": _PARTS[name], "schema": schema}
    for param in route.query:
        yield {"name": param.name, "in": "query", "description": param.doc, "schema": param.schema}


def _responses(route: Route) -> Iterator[tuple[str, Json]]:
    for status, schema in route.answers.items():
        described: Json = {"description": reason(status)}
        if isinstance(schema, str):
            described["content"] = {schema: {}}
        elif schema is not None:
            described["content"] = {"application/json": {"schema": schema}}
        if route.path == "/metrics":
            described["content"] |= {
                name: {"schema": STRING} for name in ("text/plain", "application/openmetrics-text")
            }
        if route.path == "/":
            described["content"]["text/html"] = {"schema": STRING}
        yield str(status), described
    errors = {*route.errors, *_ALWAYS, *(_WITH_BODY if route.takes is not None else ())}
    if route.query or not route.ignores_query:
        errors.add(400)
    for status in sorted(errors - set(route.answers)):
        yield (
            str(status),
            {
                "description": reason(status),
                "content": {"application/json": {"schema": ref("Error")}},
            },
        )
