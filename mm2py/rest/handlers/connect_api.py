"""Kafka Connect's REST API, which exists below a flow and at the root of a Connect worker: each operation is declared
once, and what only reads is carried out here. `connector_changes` carries out the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar, Final

import attrs

from mm2py.config.importers.mirus import SOURCE_CLASS
from mm2py.config.keys.table import nearest
from mm2py.connectors.plugins import policy_of
from mm2py.core.herder import overrides as verbs
from mm2py.model.herder.overrides import Wanted
from mm2py.model.state import FlowView, GroupView
from mm2py.rest import connect
from mm2py.rest.errors import RestError, bad_request, not_found
from mm2py.rest.handlers.flows import FLOW, WRITE_ERRORS
from mm2py.rest.handlers.known_topics import elsewhere
from mm2py.rest.plugin_definitions import definitions, find_plugin, is_connector
from mm2py.rest.route import Answer, Ask, Json, Param, Routes
from mm2py.rest.schemas import BOOLEAN, CONFIG, CONFIG_PATCH, CONFIG_SENT, STRING, STRINGS, array, ref


Handler = Callable[["Root", Ask], Awaitable[object]]


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
    summary: str
    answers: Mapping[int, Json | str | None]
    takes: Json | None = None
    query: tuple[Param, ...] = ()
    #: None: those of every reading operation at the root.
    errors: tuple[int, ...] | None = None
    #: The summary at a worker's root, if it is another one.
    of_worker: str = ""


def _write(
    method: str,
    path: str,
    summary: str,
    answers: Mapping[int, Json | str | None],
    *,
    takes: Json | None = None,
    query: tuple[Param, ...] = (),
    of_worker: str = "",
) -> Operation:
    return Operation(method, path, summary, answers, takes, query, WRITE_ERRORS, of_worker)


# Reading.

LIST: Final = Operation(
    "GET",
    _ALL,
    "The connectors",
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

CONFIG_OF: Final = Operation(
    "GET", _ONE + "/config", "A connector's config, below a flow the effective one; secrets masked", {200: CONFIG}
)
CREATE: Final = _write(
    "POST",
    _ALL,
    "Run a deleted connector again, or have it paused or stopped; 409 if it exists",
    {201: ref("ConnectorInfo")},
    takes=ref("CreateConnector"),
    of_worker="Create a connector; 409 if it exists",
)
PUT_CONFIG: Final = _write(
    "PUT",
    _ONE + "/config",
    "Replace a connector's settings; omitted keys have the file's values. A deleted one runs again",
    {200: ref("ConnectorInfo"), 201: ref("ConnectorInfo")},
    takes=CONFIG_SENT,
    of_worker="Create a connector, or replace its config; a masked secret stays as it is stored",
)
PATCH_CONFIG: Final = _write(
    "PATCH",
    _ONE + "/config",
    "Change some settings of a connector; null reverts to the file's value (KIP-477)",
    {200: ref("ConnectorInfo")},
    takes=CONFIG_PATCH,
    of_worker="Change some settings of a connector; null removes one (KIP-477)",
)
#: Below a flow only: a worker's connector has no file to go back to.
REVERT_CONFIG: Final = _write(
    "DELETE", _ONE + "/config", "Revert all settings of a connector to the file's", {200: ref("ConnectorInfo")}
)
DELETE: Final = _write(
    "DELETE",
    _ONE,
    "Stop a connector and remove it from the list, until its config is put again. Offsets are kept",
    {204: None},
    of_worker="Remove a connector; its offsets are kept",
)

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
    "The available classes",
    {200: array(ref("PluginInfo"))},
    query=(Param("connectorsOnly", BOOLEAN, "`false` lists transforms, predicates and converters, too"),),
    errors=(400, 404),
)
PLUGIN_CONFIG: Final = Operation(
    "GET",
    _PLUGIN + "/config",
    "The settings that a connector, transform, predicate or converter takes (KIP-769)",
    {200: array(ref("ConfigKeyInfo"))},
    errors=(404,),
)
VALIDATE: Final = Operation(
    "PUT",
    _PLUGIN + "/config/validate",
    "Validate a config without applying it: 200 with all problems",
    {200: ref("ConfigInfos")},
    takes=CONFIG_SENT,
    errors=(400, 404),
    of_worker="Validate a config without applying it: 200 with all problems. That of a connector which exists is "
    "judged together with the others, one under another name alone",
)


# Below a root.


@attrs.frozen
class Connector:
    """A connector as a request finds it."""

    name: str
    #: None if it is not run.
    flow: FlowView | None
    group: GroupView | None
    tasks: Sequence[int]
    #: Returns its config, secrets masked.
    config: Callable[[], Mapping[str, str]]
    #: Why it is not run, and whether that is an error.
    idle: str = ""
    has_failed: bool = False

    def info(self) -> Json:
        """Show it as Connect's ConnectorInfo."""
        return connect.connector_info(self.name, self.config(), self.tasks)

    def status(self, worker_id: str) -> Json:
        """Show its state and that of its tasks as Connect's ConnectorStateInfo."""
        if self.flow is not None and self.group is not None:
            shown = connect.state_info(self.flow, self.group, worker_id)
            return {**shown, "name": self.name, "tasks": [one for one in shown["tasks"] if one["id"] in self.tasks]}
        state = {"state": "FAILED" if self.has_failed else "UNASSIGNED", "worker_id": worker_id}
        connector = {**state, "trace": self.idle} if self.idle else state
        return {"name": self.name, "connector": connector, "tasks": [], "type": "source"}


class Root(ABC):
    """Where the API exists: below a flow, or at the root of a worker. What differs is abstract, and raises what is
    answered.
    """

    is_worker: ClassVar[bool]

    def __init__(self, routes: Routes) -> None:
        """Serve what only reads among *routes*."""
        self._routes = routes
        for name, operation, answer in _READING:
            self.serve(name, operation, answer)

    @abstractmethod
    def check(self, ask: Ask) -> None:
        """Raise if there is no such root here, or if it can have no connector of the name in the path."""

    @abstractmethod
    def all(self, ask: Ask) -> Sequence[Connector]:
        """Return all connectors."""

    @abstractmethod
    def shown(self, ask: Ask, name: str) -> Connector:
        """Return a connector that there is."""

    def named(self, ask: Ask) -> Connector:
        """Return the connector that the path names; raise if there is none."""
        return self.shown(ask, ask.part("connector"))

    @abstractmethod
    async def put(self, ask: Ask, name: str, config: Json, wanted: Wanted | None, *, is_new: bool) -> bool:
        """Create a connector, or replace its config, unless it must be new; return whether it was created."""

    @abstractmethod
    async def patch(self, ask: Ask, name: str, config: Json) -> None:
        """Change some settings of a connector."""

    @abstractmethod
    async def want(self, ask: Ask, name: str, wanted: Wanted) -> None:
        """Set a connector's target state, or delete it."""

    @abstractmethod
    async def judged(self, ask: Ask, plugin: str, config: Json) -> tuple[Mapping[str, str], Mapping[str, list[str]]]:
        """Return the *config* of a connector of a class as it is shown, and the problems of its keys."""

    def serve(self, name: str, operation: Operation, answer: Handler) -> None:
        """Declare that *answer* carries out *operation* here, where it is called *name*."""

        async def handler(ask: Ask) -> object:
            return await answer(self, ask)

        word = "worker_" if self.is_worker else ""
        handler.__name__ = name.format(word, word or "connector_")
        errors = operation.errors
        if errors is None:
            errors = (404, 503) if self.is_worker else (404,)
        elif operation is OFFSETS and self.is_worker:
            errors = (*errors, 409)  # it may not be run
        self._routes.add(
            operation.method,
            ("" if self.is_worker else FLOW) + operation.path,
            (self.is_worker and operation.of_worker) or operation.summary,
            answers=operation.answers,
            takes=operation.takes,
            query=operation.query,
            errors=errors,
        )(handler)

    def plugin(self, ask: Ask) -> str:
        """Return the class that the path names; raise if there is none."""
        self.check(ask)
        name = ask.part("plugin")
        found = find_plugin(name)
        if found is None or (found == SOURCE_CLASS and not self.is_worker):
            known = [one["class"].rpartition(".")[2] for one in connect.plugins(has_mirus=self.is_worker, are_all=True)]
            raise not_found(f"Unknown plugin {name}", nearest(name, known))
        return found

    def connector_class(self, ask: Ask) -> str:
        """Return the connector's class that the path names; raise if it is none."""
        if is_connector(plugin := self.plugin(ask)):
            return plugin
        raise bad_request(f"{plugin} is no connector: it is validated with the config of one that names it")

    def running(self, ask: Ask) -> tuple[Connector, FlowView, GroupView]:
        """Return the connector that the path names; raise if it is not run."""
        one = self.named(ask)
        if one.flow is None or one.group is None:
            raise RestError(409, f"Connector {one.name} is not run: {one.idle or 'it is being started; try again'}")
        return one, one.flow, one.group


async def _list(root: Root, ask: Ask) -> object:
    found = root.all(ask)
    if "expand" not in ask.request.query:
        return [one.name for one in found]
    # As in Connect, unknown expansions are ignored.
    words = [word for word in ask.words("expand") if word in ("info", "status")]
    return {
        one.name: {word: one.info() if word == "info" else one.status(ask.rest.worker_id) for word in words}
        for one in found
    }


async def _info(root: Root, ask: Ask) -> object:
    return root.named(ask).info()


async def _config(root: Root, ask: Ask) -> object:
    return root.named(ask).config()


async def _status(root: Root, ask: Ask) -> object:
    return root.named(ask).status(ask.rest.worker_id)


async def _tasks(root: Root, ask: Ask) -> object:
    one = root.named(ask)
    return connect.task_infos(one.name, one.config(), one.tasks)


async def _tasks_config(root: Root, ask: Ask) -> object:
    one = root.named(ask)
    return dict.fromkeys((f"{one.name}-{number}" for number in one.tasks), one.config())


async def _task_status(root: Root, ask: Ask) -> object:
    one, number = root.named(ask), ask.number("task")
    for state in one.status(ask.rest.worker_id)["tasks"]:
        if state["id"] == number:
            return state
    raise not_found(f"connector {one.name} has no task {number}")


async def _topics(root: Root, ask: Ask) -> object:
    one = root.named(ask)
    topics = [] if one.flow is None or one.group is None else await _active_topics(ask, one.flow, one.group.connector)
    return {one.name: {"topics": topics}}


async def _active_topics(ask: Ask, flow: FlowView, connector: str) -> list[str]:
    """Return the topics that a connector writes, on whichever node."""
    if connector == verbs.SOURCE:
        others = await elsewhere(ask, flow)
        return sorted({one.remote_topic for one in flow.partitions} | {one.remote_topic for one in others.values()})
    settings = next((one for one in ask.node.settings.flows if one.flow == flow.flow), None)
    if settings is None:
        return []
    policy = policy_of(settings.source_connector)
    is_heartbeat = connector == verbs.HEARTBEAT
    return [policy.heartbeats_topic() if is_heartbeat else policy.checkpoints_topic(flow.flow.source)]


async def _reset_topics(root: Root, ask: Ask) -> object:
    root.named(ask)
    return Answer(202)


async def _offsets(root: Root, ask: Ask) -> object:
    _, flow, group = root.running(ask)
    return {
        "offsets": [
            {"partition": dict(one.partition), "offset": None if one.offset is None else dict(one.offset)}
            for one in await ask.control.offsets(flow.flow, group.connector)
        ]
    }


async def _plugin_config(root: Root, ask: Ask) -> object:
    return [one.shown() for one in definitions(root.plugin(ask))]


async def _plugins(root: Root, ask: Ask) -> object:
    root.check(ask)
    are_all = "connectorsOnly" in ask.request.query and not ask.flag("connectorsOnly")
    return connect.plugins(has_mirus=root.is_worker, are_all=are_all)


#: Served at each root: what an operation is called there, and what carries it out.
_READING: Final = (
    ("get_{}connectors", LIST, _list),
    ("get_{}connector", GET, _info),
    ("get_{}config", CONFIG_OF, _config),
    ("get_{}connector_status", STATUS, _status),
    ("get_{}tasks", TASKS, _tasks),
    ("get_{}tasks_config", TASKS_CONFIG, _tasks_config),
    ("get_{}task_status", TASK_STATUS, _task_status),
    ("get_{}active_topics", TOPICS, _topics),
    ("reset_{}active_topics", RESET_TOPICS, _reset_topics),
    ("get_{}offsets", OFFSETS, _offsets),
    ("get_{}plugins", PLUGINS, _plugins),
    ("get_{}plugin_config", PLUGIN_CONFIG, _plugin_config),
)
