"""A Connect worker's own addresses: its connectors are created, changed and removed here, with Connect's status codes.

Each of them is a task group of a flow, which has addresses of its own below the flow's. What is not run is listed too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import attrs

from mm2py.config.importers.distributed import masked
from mm2py.config.importers.mirus import SOURCE_CLASS
from mm2py.config.importers.standalone import ConnectorClass, kind_of
from mm2py.config.keys.table import nearest
from mm2py.config.rest import Right
from mm2py.flow.control.connect_worker import ConnectWorker, Idleness
from mm2py.model.connector_configs import RestartRequest, StoredConnector
from mm2py.model.overrides import Wanted
from mm2py.model.state import FlowView, GroupView
from mm2py.rest import connect
from mm2py.rest.errors import RETRY_AFTER_S, RestError, bad_request, not_found
from mm2py.rest.handlers import connect_api as api
from mm2py.rest.handlers.connectors import active_topics
from mm2py.rest.handlers.flows import whole
from mm2py.rest.route import Answer, Ask, Json, Routes
from mm2py.rest.schemas import ref


routes = Routes("worker", ignores_query=True)
_root: Final = api.Root(routes, "", reading_errors=(404, 503))
#: Connect's words.
_NO_NAME: Final = 'Missing required configuration "name" which has no default value.'
_NOT_READ: Final = "the worker's config topic has not been read yet; its log says why"


@attrs.frozen
class _Shown:
    """A connector as stored, and its flow and task group if it is run."""

    name: str
    stored: StoredConnector
    flow: FlowView | None
    group: GroupView | None
    #: Why it is not run.
    idle: str
    has_failed: bool

    @property
    def config(self) -> dict[str, str]:
        return {**masked(self.stored.config), "name": self.name}


def _worker(ask: Ask) -> ConnectWorker:
    if (worker := ask.node.worker) is not None:
        return worker
    flows = ask.rest.view().flows
    near = f"{flows[0].flow.url_path()}{ask.request.path}" if flows else None
    raise not_found(f"HTTP 404 Not Found: there is nothing at {ask.request.path}", near)


def _connectors(ask: Ask) -> Mapping[str, StoredConnector]:
    """Return the worker's connectors; raise as long as they are unknown."""
    worker = _worker(ask)
    if not worker.store.is_read:
        headers = ("Retry-After", str(RETRY_AFTER_S))
        raise RestError(503, _NOT_READ, (), headers)
    return worker.store.connectors


def _shown(ask: Ask, name: str, stored: StoredConnector) -> _Shown:
    worker = _worker(ask)
    place, idle = worker.composition.places.get(name), worker.composition.idle.get(name)
    flows = ask.rest.view().flows
    flow = next((one for one in flows if place is not None and one.flow == place.flow), None)
    groups = () if flow is None else flow.groups
    group = next((one for one in groups if place is not None and one.connector == place.group), None)
    has_failed = idle is not None and idle.why is Idleness.INVALID
    return _Shown(name, stored, flow, group, str(idle) if idle is not None else "", has_failed)


def _connector(ask: Ask) -> _Shown:
    """Return the connector that the path names."""
    known, name = _connectors(ask), ask.part("connector")
    if (stored := known.get(name)) is None:
        raise not_found(f"Connector {name} not found", nearest(name, list(known)))
    return _shown(ask, name, stored)


def _running(ask: Ask) -> tuple[_Shown, FlowView, GroupView]:
    """Return the connector that the path names; raise if it is not run."""
    shown = _connector(ask)
    if shown.flow is None or shown.group is None:
        raise RestError(409, f"Connector {shown.name} is not run: {shown.idle or 'it is being started; try again'}")
    return shown, shown.flow, shown.group


# Reading.


@routes.add(
    "GET",
    "/health",
    "Whether a worker has started, in Connect's format (KIP-1017); a node without connectors of its own has",
    answers={200: ref("WorkerStatus"), 503: ref("WorkerStatus")},
    right=Right.NONE,
    errors=(),
)
async def get_worker_health(ask: Ask) -> object:
    if ask.node.worker is None or ask.node.worker.store.is_read:
        return {"status": "healthy", "message": "The worker is ready to handle requests."}
    return Answer(503, {"status": "starting", "message": f"The worker is starting: {_NOT_READ}."})


def _status(ask: Ask, shown: _Shown) -> Json:
    if shown.flow is not None and shown.group is not None:
        state = connect.state_info(shown.flow, shown.group, ask.rest.worker_id)
        numbers = _tasks(shown)
        tasks = [one for one in state["tasks"] if one["id"] in numbers]
        return {**state, "name": shown.name, "tasks": tasks}
    state = {"state": "FAILED" if shown.has_failed else "UNASSIGNED", "worker_id": ask.rest.worker_id}
    return {
        "name": shown.name,
        "connector": {**state, "trace": shown.idle} if shown.idle else state,
        "tasks": [],
        "type": "source",
    }


def _tasks(shown: _Shown) -> list[int]:
    """Return the numbers of a connector's tasks. As in Connect there are no more than partitions."""
    flow, group = shown.flow, shown.group
    if flow is None or group is None:
        return []
    numbers = connect.task_ids(flow, group)
    if group.connector != ConnectorClass.SOURCE.value:
        return numbers
    busy = {task.task for task in flow.tasks if task.partitions}
    return [number for number in numbers if number in busy]


def _info(shown: _Shown) -> Json:
    return connect.connector_info(shown.name, shown.config, _tasks(shown))


@_root.serves(api.LIST, "The connectors of a worker")
async def get_worker_connectors(ask: Ask) -> object:
    stored = _connectors(ask)
    wanted = api.expansions(ask)
    if wanted is None:
        return list(stored)
    shown = [_shown(ask, name, one) for name, one in stored.items()]
    return {one.name: {word: _info(one) if word == "info" else _status(ask, one) for word in wanted} for one in shown}


@_root.serves(api.GET)
async def get_worker_connector(ask: Ask) -> object:
    return _info(_connector(ask))


@_root.serves(api.CONFIG_OF, "A connector's config; secrets masked")
async def get_worker_config(ask: Ask) -> object:
    return _connector(ask).config


@_root.serves(api.STATUS)
async def get_worker_connector_status(ask: Ask) -> object:
    return _status(ask, _connector(ask))


@_root.serves(api.TASKS)
async def get_worker_tasks(ask: Ask) -> object:
    shown = _connector(ask)
    return connect.task_infos(shown.name, shown.config, _tasks(shown))


@_root.serves(api.TASKS_CONFIG)
async def get_worker_tasks_config(ask: Ask) -> object:
    shown = _connector(ask)
    return {f"{shown.name}-{number}": shown.config for number in _tasks(shown)}


@_root.serves(api.TASK_STATUS)
async def get_worker_task_status(ask: Ask) -> object:
    shown, number = _connector(ask), ask.number("task")
    for one in _status(ask, shown)["tasks"]:
        if one["id"] == number:
            return one
    raise not_found(f"connector {shown.name} has no task {number}")


@_root.serves(api.TOPICS)
async def get_worker_topics(ask: Ask) -> object:
    shown = _connector(ask)
    if shown.flow is None or shown.group is None:
        return {shown.name: {"topics": []}}
    return {shown.name: {"topics": await active_topics(ask, shown.flow, shown.group.connector)}}


@_root.serves(api.RESET_TOPICS)
async def reset_worker_topics(ask: Ask) -> object:
    _connector(ask)
    return Answer(202)


# Changing.


def _texts(config: Json, name: str) -> dict[str, str]:
    """Return a config as Connect reads it: scalars become text, null is no value."""
    problems = [f"{key} must be a string" for key, one in config.items() if isinstance(one, dict | list)]
    texts = {key: text for key, one in config.items() if (text := connect.as_text(one)) is not None}
    try:
        "".join((name, *texts, *texts.values())).encode()
    except UnicodeEncodeError:
        problems.append("a name or value has half of a surrogate pair, which no topic can store")
    if not name.strip() or not name.isprintable():
        problems.append("name may be neither empty nor have control characters")
    if texts.get("name", name) != name:
        problems.append(
            f"Connector name configuration ({texts['name']}) doesn't match connector name in the URL ({name})"
        )
    if problems:
        raise bad_request(*problems)
    return {**texts, "name": name}


async def _put(ask: Ask, name: str, config: Json, *, wanted: Wanted | None = None, is_new: bool = False) -> Answer:
    worker = _worker(ask)
    texts = _texts(config, name)
    created = await whole(ask, worker.put(name, texts, by=ask.by, wanted=wanted, is_new=is_new))
    info = _info(_shown(ask, name, worker.store.connectors.get(name, StoredConnector(texts))))
    if not created:
        return Answer(200, info)
    return Answer(201, info, {"Location": f"/connectors/{quote(name, safe='')}"})


@_root.serves(api.CREATE, "Create a connector; 409 if it exists")
async def post_worker_connector(ask: Ask) -> object:
    _worker(ask)
    asked = await api.creation(ask)
    return await _put(ask, asked.name, asked.config, wanted=asked.wanted, is_new=True)


@_root.serves(api.PUT_CONFIG, "Create a connector, or replace its config; a masked secret stays as it is stored")
async def put_worker_config(ask: Ask) -> object:
    _worker(ask)
    return await _put(ask, ask.part("connector"), await ask.object())


@_root.serves(api.PATCH_CONFIG, "Change some settings of a connector; null removes one (KIP-477)")
async def patch_worker_config(ask: Ask) -> object:
    shown, body = _connector(ask), await ask.object()
    texts = _texts({key: one for key, one in body.items() if one is not None}, shown.name)
    changes = {**texts, **{key: None for key, one in body.items() if one is None and key != "name"}}
    await whole(ask, _worker(ask).patch(shown.name, changes, by=ask.by))
    return _info(_connector(ask))


@_root.serves(api.DELETE, "Remove a connector; its offsets are kept")
async def delete_worker_connector(ask: Ask) -> object:
    await whole(ask, _worker(ask).delete(_connector(ask).name, by=ask.by))
    return Answer(204)


async def _want(ask: Ask, wanted: Wanted, code: int) -> Answer:
    await whole(ask, _worker(ask).want(_connector(ask).name, wanted, by=ask.by))
    return Answer(code)


@_root.serves(api.PAUSE)
async def pause_worker_connector(ask: Ask) -> object:
    return await _want(ask, Wanted.PAUSED, 202)


@_root.serves(api.RESUME)
async def resume_worker_connector(ask: Ask) -> object:
    return await _want(ask, Wanted.RUNNING, 202)


@_root.serves(api.STOP)
async def stop_worker_connector(ask: Ask) -> object:
    return await _want(ask, Wanted.STOPPED, 204)


async def _restart(ask: Ask) -> Answer:
    """Ask all nodes of the worker, this one too: each restarts what it runs of the connector. If that is stopped, none
    runs any of it, and that is no error.
    """
    shown, _, _ = _running(ask)
    include_tasks, only_failed = ask.flag("includeTasks"), ask.flag("onlyFailed")
    state = _status(ask, shown)
    connect.mark_restarted(state, include_tasks=include_tasks, only_failed=only_failed)
    await whole(ask, _worker(ask).request_restart(RestartRequest(shown.name, include_tasks, only_failed), by=ask.by))
    return Answer(202, state) if include_tasks or only_failed else Answer(204)


@_root.serves(api.RESTART)
async def restart_worker_connector(ask: Ask) -> object:
    return await _restart(ask)


@_root.serves(api.RESTART_TASK)
async def restart_worker_task(ask: Ask) -> object:
    shown, flow, group = _running(ask)
    number = ask.number("task")
    if number not in _tasks(shown):
        raise not_found(f"connector {shown.name} has no task {number}")
    await whole(ask, ask.control.restart_task(flow.flow, group.connector, number, by=ask.by))
    return Answer(204)


# Offsets (KIP-875).


@_root.serves(api.OFFSETS, errors=(404, 409, 503))
async def get_worker_offsets(ask: Ask) -> object:
    _, flow, group = _running(ask)
    return api.offsets_json(await ask.control.offsets(flow.flow, group.connector))


@_root.serves(api.PATCH_OFFSETS)
async def patch_worker_offsets(ask: Ask) -> object:
    _, flow, group = _running(ask)
    offsets = await api.sent_offsets(ask)
    await whole(ask, ask.control.alter_offsets(flow.flow, group.connector, offsets, by=ask.by))
    return api.offsets_done("altered")


@_root.serves(api.RESET_OFFSETS)
async def reset_worker_offsets(ask: Ask) -> object:
    _, flow, group = _running(ask)
    await whole(ask, ask.control.reset_offsets(flow.flow, group.connector, by=ask.by))
    return api.offsets_done("reset")


# Plugins.


@_root.serves(api.PLUGINS)
async def get_worker_plugins(ask: Ask) -> object:
    _worker(ask)
    found = connect.plugins()
    return [*found, {**found[0], "class": SOURCE_CLASS}]


def _plugin(ask: Ask) -> str:
    _worker(ask)
    name = ask.part("plugin")
    kind = kind_of(name)
    if kind is None:
        raise not_found(f"there is no connector class {name}", nearest(name, [one.value for one in ConnectorClass]))
    return SOURCE_CLASS if kind is ConnectorClass.MIRUS else connect.PACKAGE + kind.value


@_root.serves(api.PLUGIN_CONFIG)
async def get_worker_plugin_config(ask: Ask) -> object:
    _plugin(ask)
    return [connect.key_info(row, order) for order, row in enumerate(connect.rows(), 1)]


@_root.serves(
    api.VALIDATE, "Validate a config without applying it, together with the other connectors: 200 with all problems"
)
async def validate_worker_config(ask: Ask) -> object:
    class_name, body = _plugin(ask), await ask.object()
    name: Any = body.get("name") or "connector"
    texts = _texts(body, str(name))
    if kind_of(texts.get("connector.class", class_name)) is not kind_of(class_name):
        raise bad_request(f"connector.class is {texts['connector.class']}, and the address names {class_name}")
    problems = {} if "name" in body else {"name": [_NO_NAME]}
    for one in await _worker(ask).check(texts["name"], {**texts, "connector.class": class_name}):
        message = f"{one.message} ({one.hint})" if one.hint else one.message
        problems.setdefault(one.key or "name", []).append(message)
    return connect.config_infos(class_name, masked(texts), problems)
