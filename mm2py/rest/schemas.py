"""JSON schemas of REST's requests and answers: generated from the views' classes; Connect's formats are written by
hand.
"""

from __future__ import annotations

import enum
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from mm2py.model.flow import Flow


Json = dict[str, Any]

STRING: Final[Json] = {"type": "string"}
INTEGER: Final[Json] = {"type": "integer"}
NUMBER: Final[Json] = {"type": "number"}
BOOLEAN: Final[Json] = {"type": "boolean"}
STRINGS: Final[Json] = {"type": "array", "items": STRING}
#: A connector's config: Connect's map of strings.
CONFIG: Final[Json] = {"type": "object", "additionalProperties": STRING}
#: A config in a request: numbers and booleans are accepted as text.
CONFIG_SENT: Final[Json] = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
CONFIG_PATCH: Final[Json] = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
}

_PLAIN: Final[dict[object, Json]] = {int: INTEGER, float: NUMBER, str: STRING, bool: BOOLEAN, Flow: STRING}


def ref(name: str) -> Json:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Json) -> Json:
    return {"type": "array", "items": items}


def obj(properties: Mapping[str, Json], *optional: str) -> Json:
    """Return the schema of an object all of whose properties are required, except *optional* ones."""
    needed = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": needed}


def nullable(schema: Json) -> Json:
    if isinstance(kind := schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [kind, "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


class Views:
    """Schemas of views, as `model.state.to_json` writes them, by class name."""

    def __init__(self) -> None:
        self.found: dict[str, Json] = {}

    def of(self, kind: Any) -> Json:  # noqa: PLR0911 - a kind of type after the other
        """Return the schema of a type; classes of views are collected in `found` and referenced."""
        if kind in _PLAIN:
            return _PLAIN[kind]
        origin, of = typing.get_origin(kind), typing.get_args(kind)
        if origin in {typing.Union, types.UnionType}:
            [inner] = [one for one in of if one is not types.NoneType]
            return nullable(self.of(inner))
        if origin is not None and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(of[1])}
        if origin is not None and issubclass(origin, Sequence | frozenset | set):
            return array(self.of(of[0]))
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return {"type": "string", "enum": [member.name.lower() for member in kind]}
        if attrs.has(kind):
            return self._of_class(kind)
        return {}

    def _of_class(self, kind: type) -> Json:
        if kind.__name__ not in self.found:
            self.found[kind.__name__] = {}
            self.found[kind.__name__] = obj({name: self.of(hint) for name, hint in _hints(kind).items()})
        return ref(kind.__name__)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in attrs.fields(kind)}


CONNECT_STATE: Final[Json] = {
    "type": "string",
    "enum": ["UNASSIGNED", "RUNNING", "PAUSED", "FAILED", "RESTARTING", "STOPPED"],
}
_STATE: Final[Json] = {"state": CONNECT_STATE, "worker_id": STRING, "trace": STRING, "version": STRING}
_TASK_ID: Final = obj({"connector": STRING, "task": INTEGER})


def _offset(*values: str) -> Json:
    partition = {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}
    return obj(
        {"partition": partition, "offset": {"type": ["object", "null"], "additionalProperties": {"type": list(values)}}}
    )


_OFFSET: Final = _offset("integer", "null")
#: Also the timestamp from which to copy, as text.
_OFFSET_SENT: Final = _offset("integer", "null", "string")
LIMIT: Final = obj({"bytes_per_s": nullable(NUMBER), "records_per_s": nullable(NUMBER)})
LIMIT_SENT: Final[Json] = {
    "type": "object",
    "properties": {name: {"type": ["number", "string", "null"]} for name in ("bytes_per_s", "records_per_s")},
    "additionalProperties": False,
}

TOPICS_SENT: Final[Json] = {
    **obj({"topics": {**STRINGS, "minItems": 1}}),
    "additionalProperties": False,
}

#: Kafka Connect's own formats (org.apache.kafka.connect.runtime.rest.entities), and some of ours.
COMPONENTS: Final[dict[str, Json]] = {
    "Error": obj({"error_code": INTEGER, "message": STRING, "problems": STRINGS}, "problems"),
    "ServerInfo": obj({"version": STRING, "commit": STRING, "kafka_cluster_id": STRING}),
    "TaskState": obj({"id": INTEGER, **_STATE}, "trace", "version"),
    "ConnectorStateInfo": obj(
        {
            "name": STRING,
            "connector": obj(_STATE, "trace", "version"),
            "tasks": array(ref("TaskState")),
            "type": STRING,
        }
    ),
    "ConnectorInfo": obj({"name": STRING, "config": CONFIG, "tasks": array(_TASK_ID), "type": STRING}),
    "ConnectorExpanded": obj({"status": ref("ConnectorStateInfo"), "info": ref("ConnectorInfo")}, "status", "info"),
    "CreateConnector": {
        **obj({"name": STRING, "config": CONFIG_SENT, "initial_state": STRING}, "config", "initial_state"),
    },
    "TaskInfo": obj({"id": _TASK_ID, "config": CONFIG}),
    "ConnectorOffsets": obj({"offsets": array(_OFFSET)}),
    "ConnectorOffsetsSent": {**obj({"offsets": array(_OFFSET_SENT)}), "additionalProperties": False},
    "Message": obj({"message": STRING}),
    "PluginInfo": obj({"class": STRING, "type": STRING, "version": STRING}),
    "ConfigKeyInfo": obj(
        {
            "name": STRING,
            "type": STRING,
            "required": BOOLEAN,
            "default_value": nullable(STRING),
            "importance": STRING,
            "documentation": STRING,
            "group": nullable(STRING),
            "order": INTEGER,
            "order_in_group": INTEGER,
            "width": STRING,
            "display_name": STRING,
            "dependents": STRINGS,
        }
    ),
    "ConfigValueInfo": obj(
        {
            "name": STRING,
            "value": nullable(STRING),
            "recommended_values": STRINGS,
            "errors": STRINGS,
            "visible": BOOLEAN,
        }
    ),
    "ConfigInfos": obj(
        {
            "name": STRING,
            "error_count": INTEGER,
            "groups": STRINGS,
            "configs": array(obj({"definition": ref("ConfigKeyInfo"), "value": ref("ConfigValueInfo")})),
        }
    ),
    "LoggerLevel": obj({"level": STRING, "last_modified": nullable(INTEGER)}),
    "WorkerStatus": obj({"status": STRING, "message": STRING}),
    "Health": obj({"status": STRING, "reasons": STRINGS}),
    "Limit": LIMIT,
    "Setting": obj(
        {
            "connector": STRING,
            "key": STRING,
            "value": STRING,
            "file_value": nullable(STRING),
            "origin": STRING,
            "documentation": STRING,
            "why_not": STRING,
            "restarts": STRING,
        },
        "origin",
        "documentation",
        "why_not",
        "restarts",
    ),
    "Overrides": obj(
        {
            "flow": STRING,
            "connectors": CONFIG,
            "topics": STRINGS,
            "partitions": array(obj({"topic": STRING, "partition": INTEGER})),
            "limit": ref("Limit"),
            "topic_limits": {"type": "object", "additionalProperties": ref("Limit")},
            "config": {"type": "object", "additionalProperties": CONFIG},
            "pauses": {"type": "object", "additionalProperties": obj({"by": STRING, "at_ms": INTEGER})},
        }
    ),
}
