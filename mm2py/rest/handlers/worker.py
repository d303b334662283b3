"""A Connect worker's own addresses: its connectors are created, changed and removed here, with Connect's status codes.

Each of them is a task group of a flow, which has addresses of its own below the flow's. What is not run is listed too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from mm2py.config.importers.connect import ConnectorClass, kind_of
from mm2py.config.importers.distributed import masked
from mm2py.config.keys.table import nearest
from mm2py.config.rest import Right
from mm2py.herder.composition import Idleness
from mm2py.herder.connect_worker import ConnectWorker
from mm2py.model.herder.connector_configs import StoredConnector
from mm2py.model.herder.overrides import Wanted
from mm2py.model.state import FlowView, GroupView
from mm2py.rest import connect
from mm2py.rest.errors import RETRY_AFTER_S, RestError, bad_request, not_found
from mm2py.rest.handlers import connect_api as api
from mm2py.rest.handlers import connector_changes
from mm2py.rest.handlers.flows import whole
from mm2py.rest.plugin_definitions import config_infos
from mm2py.rest.route import Answer, Ask, Json, Routes
from mm2py.rest.schemas import ref


routes = Routes("worker", ignores_query=True)
#: Connect's words.
_NO_NAME: Final = 'Missing required configuration "name" which has no default value.'
_NOT_READ: Final = "the worker's config topic has not been read yet; its log says why"


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


def _shown(ask: Ask, name: str, stored: StoredConnector) -> api.Connector:
    shows_secrets = ask.node.settings.rest.shows_secrets and ask.guest.right is Right.WRITE
    composition = _worker(ask).composition
    place, idle = composition.places.get(name), composition.idle.get(name)
    flow = next((one for one in ask.rest.view().flows if place is not None and one.flow == place.flow), None)
    groups = () if flow is None else flow.groups
    group = next((one for one in groups if place is not None and one.connector == place.group), None)
    return api.Connector(
        name,
        flow,
        group,
        tasks=[] if flow is None or group is None else _tasks(flow, group),
        config=lambda: {**(stored.config if shows_secrets else masked(stored.config)), "name": name},
        idle="" if idle is None else str(idle),
        has_failed=idle is not None and idle.why is Idleness.INVALID,
    )


def _tasks(flow: FlowView, group: GroupView) -> list[int]:
    """Return the numbers of a connector's tasks. As in Connect there are no more than partitions."""
    numbers = connect.task_ids(flow, group)
    if group.connector != ConnectorClass.SOURCE.value:
        return numbers
    busy = {task.task for task in flow.tasks if task.partitions}
    return [number for number in numbers if number in busy]


def _all(ask: Ask) -> list[api.Connector]:
    return [_shown(ask, name, stored) for name, stored in _connectors(ask).items()]


def _named(ask: Ask) -> api.Connector:
    known, name = _connectors(ask), ask.part("connector")
    if (stored := known.get(name)) is None:
        raise not_found(f"Connector {name} not found", nearest(name, list(known)))
    return _shown(ask, name, stored)


_root: Final = api.Root(
    routes,
    "",
    "worker_",
    _all,
    _named,
    _worker,
    has_mirus=True,
    reading_errors=(404, 503),
    running_errors=(404, 409, 503),
)
connector_changes.serve(_root)


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
    info = _shown(ask, name, worker.store.connectors.get(name, StoredConnector(texts))).info()
    if not created:
        return Answer(200, info)
    return Answer(201, info, {"Location": f"/connectors/{quote(name, safe='')}"})


@_root.serves(api.CREATE, "Create a connector; 409 if it exists")
async def post_worker_connector(ask: Ask) -> object:
    _worker(ask)
    asked = await connector_changes.creation(ask)
    return await _put(ask, asked.name, asked.config, wanted=asked.wanted, is_new=True)


@_root.serves(api.PUT_CONFIG, "Create a connector, or replace its config; a masked secret stays as it is stored")
async def put_worker_config(ask: Ask) -> object:
    _worker(ask)
    return await _put(ask, ask.part("connector"), await ask.object())


@_root.serves(api.PATCH_CONFIG, "Change some settings of a connector; null removes one (KIP-477)")
async def patch_worker_config(ask: Ask) -> object:
    shown, body = _named(ask), await ask.object()
    texts = _texts({key: one for key, one in body.items() if one is not None}, shown.name)
    changes = {**texts, **{key: None for key, one in body.items() if one is None and key != "name"}}
    await whole(ask, _worker(ask).patch(shown.name, changes, by=ask.by))
    return _named(ask).info()


@_root.serves(api.DELETE, "Remove a connector; its offsets are kept")
async def delete_worker_connector(ask: Ask) -> object:
    await whole(ask, _worker(ask).delete(_named(ask).name, by=ask.by))
    return Answer(204)


async def _want(ask: Ask, wanted: Wanted, code: int) -> Answer:
    await whole(ask, _worker(ask).want(_named(ask).name, wanted, by=ask.by))
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


@_root.serves(api.RESTART)
async def restart_worker_connector(ask: Ask) -> object:
    return await connector_changes.restart(_root, ask)


@_root.serves(api.RESTART_TASK)
async def restart_worker_task(ask: Ask) -> object:
    shown, flow, group = _root.running(ask)
    number = ask.number("task")
    if number not in shown.tasks:
        raise not_found(f"connector {shown.name} has no task {number}")
    await whole(ask, ask.control.restart_task(flow.flow, group.connector, number, by=ask.by))
    return Answer(204)


# Plugins.


@_root.serves(
    api.VALIDATE,
    "Validate a config without applying it: 200 with all problems. That of a connector which exists is judged together "
    "with the others, one under another name alone",
)
async def validate_worker_config(ask: Ask) -> object:
    class_name, body = _root.connector_class(ask), await ask.object()
    name: Any = body.get("name") or "connector"
    texts = _texts(body, str(name))
    if kind_of(texts.get("connector.class", class_name)) is not kind_of(class_name):
        raise bad_request(f"connector.class is {texts['connector.class']}, and the address names {class_name}")
    problems = {} if "name" in body else {"name": [_NO_NAME]}
    for one in await _worker(ask).check_apart(texts["name"], {**texts, "connector.class": class_name}):
        message = f"{one.message} ({one.hint})" if one.hint else one.message
        problems.setdefault(one.key or "name", []).append(message)
    return config_infos(class_name, masked(texts), problems)
