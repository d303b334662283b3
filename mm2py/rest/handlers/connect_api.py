"""Kafka Connect's REST API, which exists below a flow and at the root of a Connect worker: each operation is declared
once, and so is what is alike in requests and answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import attrs

from mm2py.model.connector_offset import ConnectorOffset
from mm2py.model.overrides import Wanted
from mm2py.rest.errors import bad_request
from mm2py.rest.handlers.flows import WRITE_ERRORS
from mm2py.rest.route import Ask, Json, Param, Routes
from mm2py.rest.schemas import BOOLEAN, CONFIG, CONFIG_PATCH, CONFIG_SENT, STRING, STRINGS, array, ref


Handler = Callable[[Ask], Awaitable[object]]

_EXPANSIONS: Final = ("status", "info")
#: Connect's own states for a connector that is created (KIP-980); Connect takes them in any case.
_INITIAL: Final = {"RUNNING": Wanted.RUNNING, "PAUSED": Wanted.PAUSED, "STOPPED": Wanted.STOPPED}

_ALL: Final = "/connectors"
_ONE: Final = _ALL + "/{connector}"
_TASK: Final = _ONE + "/tasks/{task}"
_PLUGINS: Final = "/connector-plugins"
_PLUGIN: Final = _PLUGINS + "/{plugin}"
_RESTART: Final = (
    Param("includeTasks", BOOLEAN, "Also restart its tasks"),
    Param("onlyFailed", BOOLEAN, "Only failed instances"),
)
_RESTARTED: Final = {204: None, 202: ref("ConnectorStateInfo")}


@attrs.frozen
class Operation:
    """A method on a path below a root of the API."""

    method: str
    path: str
    #: Empty if it is not the same at each root.
    summary: str
    answers: Mapping[int, Json | str | None]
    takes: Json | None = None
    query: tuple[Param, ...] = ()
    #: None: those of every reading operation at the root.
    errors: tuple[int, ...] | None = None


@attrs.frozen
class Root:
    """A path below which the API exists, with the errors of every operation there that reads a connector."""

    routes: Routes
    path: str
    reading_errors: tuple[int, ...]

    def serves(
        self, operation: Operation, summary: str = "", *, errors: tuple[int, ...] | None = None
    ) -> Callable[[Handler], Handler]:
        """Declare that the decorated function answers *operation* here. *summary* and *errors* are for this root."""
        known = self.reading_errors if operation.errors is None else operation.errors
        return self.routes.add(
            operation.method,
            self.path + operation.path,
            summary or operation.summary,
            answers=operation.answers,
            takes=operation.takes,
            query=operation.query,
            errors=known if errors is None else errors,
        )


def _write(
    method: str,
    path: str,
    summary: str,
    answers: Mapping[int, Json | str | None],
    *,
    takes: Json | None = None,
    query: tuple[Param, ...] = (),
) -> Operation:
    return Operation(method, path, summary, answers, takes, query, WRITE_ERRORS)


# Reading.

LIST: Final = Operation(
    "GET",
    _ALL,
    "",
    {200: {"anyOf": [STRINGS, {"type": "object", "additionalProperties": ref("ConnectorExpanded")}]}},
    query=(Param("expand", STRING, "`status`, `info` or both: an object instead of a list"),),
)
GET: Final = Operation("GET", _ONE, "A connector with its config and tasks", {200: ref("ConnectorInfo")})
STATUS: Final = Operation("GET", _ONE + "/status", "A connector's status", {200: ref("ConnectorStateInfo")})
TASKS: Final = Operation("GET", _ONE + "/tasks", "A connector's tasks", {200: array(ref("TaskInfo"))})
TASKS_CONFIG: Final = Operation(
    "GET",
    _ONE + "/tasks-config",
    "The configs of a connector's tasks (older versions of Connect, and kcctl)",
    {200: {"type": "object", "additionalProperties": CONFIG}},
)
TASK_STATUS: Final = Operation("GET", _TASK + "/status", "A task's status", {200: ref("TaskState")})
TOPICS: Final = Operation(
    "GET",
    _ONE + "/topics",
    "The topics that a connector writes at the target",
    {200: {"type": "object", "additionalProperties": {"type": "object", "properties": {"topics": STRINGS}}}},
    errors=(404, 503),
)
RESET_TOPICS: Final = Operation(
    "PUT",
    _ONE + "/topics/reset",
    "Accepted as in Connect: the list always has the connector's current topics",
    {202: None},
)

# Config.

CONFIG_OF: Final = Operation("GET", _ONE + "/config", "", {200: CONFIG})
CREATE: Final = _write("POST", _ALL, "", {201: ref("ConnectorInfo")}, takes=ref("CreateConnector"))
PUT_CONFIG: Final = _write(
    "PUT", _ONE + "/config", "", {200: ref("ConnectorInfo"), 201: ref("ConnectorInfo")}, takes=CONFIG_SENT
)
PATCH_CONFIG: Final = _write("PATCH", _ONE + "/config", "", {200: ref("ConnectorInfo")}, takes=CONFIG_PATCH)
#: Below a flow only: a worker's connector has no file to go back to.
REVERT_CONFIG: Final = _write(
    "DELETE", _ONE + "/config", "Revert all settings of a connector to the file's", {200: ref("ConnectorInfo")}
)
DELETE: Final = _write("DELETE", _ONE, "", {204: None})

# Verbs.

PAUSE: Final = _write("PUT", _ONE + "/pause", "Pause a connector", {202: None})
RESUME: Final = _write("PUT", _ONE + "/resume", "Resume a paused or stopped connector", {202: None})
STOP: Final = _write(
    "PUT",
    _ONE + "/stop",
    "Stop a connector and release its resources, so that its offsets may be altered (KIP-875)",
    {204: None},
)
RESTART: Final = _write("POST", _ONE + "/restart", "Start again", _RESTARTED, query=_RESTART)
#: Below a flow only: Connect has no such method.
PUT_RESTART: Final = _write("PUT", _ONE + "/restart", "The same, as in KIP-382", _RESTARTED, query=_RESTART)
RESTART_TASK: Final = _write("POST", _TASK + "/restart", "Restart one task", {204: None})

# Offsets (KIP-875).

OFFSETS: Final = Operation(
    "GET",
    _ONE + "/offsets",
    "A connector's offsets, as stored on the target cluster",
    {200: ref("ConnectorOffsets")},
    errors=(404, 503),
)
PATCH_OFFSETS: Final = _write(
    "PATCH",
    _ONE + "/offsets",
    "Alter offsets of a stopped connector: the last copied record's, a timestamp to copy from, or null to start over",
    {200: ref("Message")},
    takes=ref("ConnectorOffsetsSent"),
)
RESET_OFFSETS: Final = _write(
    "DELETE",
    _ONE + "/offsets",
    "Remove all offsets of a stopped connector, so that it starts where its settings say",
    {200: ref("Message")},
)

# Plugins.

PLUGINS: Final = Operation(
    "GET",
    _PLUGINS,
    "The available connector classes",
    {200: array(ref("PluginInfo"))},
    query=(Param("connectorsOnly", BOOLEAN, "Accepted without effect: there are only connectors"),),
    errors=(404,),
)
PLUGIN_CONFIG: Final = Operation(
    "GET",
    _PLUGIN + "/config",
    "The settings that a connector takes (KIP-769)",
    {200: array(ref("ConfigKeyInfo"))},
    errors=(404,),
)
VALIDATE: Final = Operation(
    "PUT", _PLUGIN + "/config/validate", "", {200: ref("ConfigInfos")}, takes=CONFIG_SENT, errors=(400, 404)
)


# What requests and answers hold.


def expansions(ask: Ask) -> list[str] | None:
    """Return what a list of connectors is to show of each, None if it is to have names only. As in Connect, unknown
    expansions are ignored.
    """
    if "expand" not in ask.request.query:
        return None
    return [word for word in ask.words("expand") if word in _EXPANSIONS]


@attrs.frozen
class Creation:
    """A connector that is to be created."""

    name: str
    config: Json
    #: None if the request leaves it open.
    wanted: Wanted | None


async def creation(ask: Ask) -> Creation:
    """Read the body of `CREATE`."""
    body = await ask.object()
    name, config, initial = body.get("name"), body.get("config", {}), body.get("initial_state")
    problems = []
    if not isinstance(name, str):
        problems.append("name must be a string")
    if not isinstance(config, dict):
        problems.append("config must be an object")
    wanted = _INITIAL.get(initial.upper()) if isinstance(initial, str) else None
    if wanted is None and initial is not None:
        problems.append(f"initial_state must be one of {', '.join(_INITIAL)}")
    if problems or not isinstance(name, str):
        raise bad_request(*problems)
    return Creation(name.strip(), config, wanted)


async def sent_offsets(ask: Ask) -> object:
    """Read the body of `PATCH_OFFSETS`."""
    body = await ask.object()
    if strange := sorted(set(body) - {"offsets"}):
        raise bad_request(*(f"{name!r} is not known: the body has offsets" for name in strange))
    return body.get("offsets")


def offsets_json(found: Iterable[ConnectorOffset]) -> Json:
    """Show offsets as Connect's ConnectorOffsets."""
    return {
        "offsets": [
            {"partition": dict(one.partition), "offset": None if one.offset is None else dict(one.offset)}
            for one in found
        ]
    }


def offsets_done(what: str) -> Json:
    """Return Connect's message after offsets were *altered* or *reset*."""
    return {"message": f"The offsets for this connector have been {what} successfully"}
