"""A Connect worker's own addresses: its connectors are created, changed and removed here, with Connect's status codes.

Each of them is a task group of a flow, which has addresses of its own below the flow's. What is not run is listed too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mm2py.config.explain import masked
from mm2py.config.importers.connect import ConnectorClass, kind_of
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


def _tasks(flow: FlowView, group: GroupView) -> list[int]:
    """Return the numbers of a connector's tasks. As in Connect there are no more than partitions."""
    numbers = connect.task_ids(flow, group)
    if group.connector != ConnectorClass.SOURCE.value:
        return numbers
    busy = {task.task for task in flow.tasks if task.partitions}
    return [number for number in numbers if number in busy]


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


class _WorkerRoot(api.Root):
    """A worker, whose connectors are changed in its config topic."""

    is_worker = True

    def check(self, ask: Ask) -> None:
        _worker(ask)

    def all(self, ask: Ask) -> list[api.Connector]:
        return [self.shown(ask, name) for name in _connectors(ask)]

    def shown(self, ask: Ask, name: str) -> api.Connector:
        known = _connectors(ask)
        if (stored := known.get(name)) is None:
            raise not_found(f"Connector {name} not found", nearest(name, list(known)))
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

    async def put(self, ask: Ask, name: str, config: Json, wanted: Wanted | None, *, is_new: bool) -> bool:
        texts = _texts(config, name)
        return await ask.change(_worker(ask).put(name, texts, by=ask.by, wanted=wanted, is_new=is_new))

    async def patch(self, ask: Ask, name: str, config: Json) -> None:
        texts = _texts({key: one for key, one in config.items() if one is not None}, name)
        changes = {**texts, **{key: None for key, one in config.items() if one is None and key != "name"}}
        await ask.change(_worker(ask).patch(name, changes, by=ask.by))

    async def want(self, ask: Ask, name: str, wanted: Wanted) -> None:
        worker, by = _worker(ask), ask.by
        await ask.change(worker.delete(name, by=by) if wanted is Wanted.DELETED else worker.want(name, wanted, by=by))

    async def judged(self, ask: Ask, plugin: str, config: Json) -> tuple[Mapping[str, str], Mapping[str, list[str]]]:
        texts = _texts(config, str(config.get("name") or "connector"))
        if kind_of(texts.get("connector.class", plugin)) is not kind_of(plugin):
            raise bad_request(f"connector.class is {texts['connector.class']}, and the address names {plugin}")
        problems = {} if "name" in config else {"name": [_NO_NAME]}
        for one in await _worker(ask).check_apart(texts["name"], {**texts, "connector.class": plugin}):
            message = f"{one.message} ({one.hint})" if one.hint else one.message
            problems.setdefault(one.key or "name", []).append(message)
        return masked(texts), problems


_root: Final = _WorkerRoot(routes)


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


connector_changes.serve(_root)
