"""What changes connectors in Kafka Connect's API, below a flow and at the root of a Connect worker alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final
from urllib.parse import quote

from mm2py.errors import OverrideConflictError, OverrideRejectedError
from mm2py.model.herder.overrides import Wanted
from mm2py.model.state import FlowView, GroupView
from mm2py.rest import connect
from mm2py.rest.errors import bad_request, not_found
from mm2py.rest.handlers import connect_api as api
from mm2py.rest.handlers.connect_api import Root
from mm2py.rest.plugin_definitions import config_infos
from mm2py.rest.route import Answer, Ask, Json


#: Connect's words.
_OFFSETS_DONE: Final = "The offsets for this connector have been {} successfully"
#: Connect's own states for a connector that is created (KIP-980); Connect takes them in any case.
_INITIAL: Final = {"RUNNING": Wanted.RUNNING, "PAUSED": Wanted.PAUSED, "STOPPED": Wanted.STOPPED}


# Config.


async def _create(root: Root, ask: Ask) -> object:
    root.check(ask)
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
    return await _stored(root, ask, name.strip(), config, wanted, is_new=True)


async def _put(root: Root, ask: Ask) -> object:
    root.check(ask)
    return await _stored(root, ask, ask.part("connector"), await ask.object())


async def _stored(
    root: Root, ask: Ask, name: str, config: Json, wanted: Wanted | None = None, *, is_new: bool = False
) -> Answer:
    is_created = await root.put(ask, name, config, wanted, is_new=is_new)
    one = root.shown(ask, name)
    if not is_created:
        return Answer(200, one.info())
    base = "" if root.is_worker else ask.flow().flow.url_path()
    return Answer(201, one.info(), {"Location": f"{base}/connectors/{quote(one.name, safe='')}"})


async def _patch(root: Root, ask: Ask) -> object:
    one = root.named(ask)
    await root.patch(ask, one.name, await ask.object())
    return root.shown(ask, one.name).info()


async def _validate(root: Root, ask: Ask) -> object:
    plugin = root.connector_class(ask)
    return config_infos(plugin, *await root.judged(ask, plugin, await ask.object()))


# Verbs.


@contextmanager
def _named(one: api.Connector, flow: FlowView, group: GroupView) -> Iterator[None]:
    """Have refusals name the connector as it was asked for, which a flow knows by another name."""

    def renamed(text: str) -> str:
        is_of_worker = one.name != group.connector
        return text.replace(f"{group.connector} of flow {flow.flow}", one.name) if is_of_worker else text

    try:
        yield
    except OverrideRejectedError as error:
        raise OverrideRejectedError(tuple(map(renamed, error.problems))) from error
    except OverrideConflictError as error:
        raise OverrideConflictError(renamed(error.what), error.way_out) from error


async def _want(wanted: Wanted, code: int, root: Root, ask: Ask) -> object:
    await root.want(ask, root.named(ask).name, wanted)
    return Answer(code)


async def restart(root: Root, ask: Ask) -> object:
    """Have all nodes that run a connector restart it. Answer 204 for the connector alone, and 202 with its state for
    more, as Connect does (KIP-745). For a stopped one there is nothing to do, and that is no error.
    """
    one, flow, group = root.running(ask)
    flags = {"include_tasks": ask.flag("includeTasks"), "only_failed": ask.flag("onlyFailed")}
    state = one.status(ask.rest.worker_id)
    connect.mark_restarted(state, **flags)
    if group.wanted is not Wanted.STOPPED:
        with _named(one, flow, group):
            await ask.change(ask.control.restart(flow.flow, group.connector, **flags, by=ask.by))
    return Answer(202, state) if any(flags.values()) else Answer(204)


async def _restart_task(root: Root, ask: Ask) -> object:
    one, flow, group = root.running(ask)
    number = ask.number("task")
    # A flow's node may not have reported it yet; which tasks there are follows from the assignment.
    if root.is_worker and number not in one.tasks:
        raise not_found(f"connector {one.name} has no task {number}")
    await ask.change(ask.control.restart_task(flow.flow, group.connector, number, by=ask.by))
    return Answer(204)


# Offsets.


async def _patch_offsets(root: Root, ask: Ask) -> object:
    one, flow, group = root.running(ask)
    body = await ask.object()
    if strange := sorted(set(body) - {"offsets"}):
        raise bad_request(*(f"{name!r} is not known: the body has offsets" for name in strange))
    with _named(one, flow, group):
        await ask.change(ask.control.alter_offsets(flow.flow, group.connector, body.get("offsets"), by=ask.by))
    return {"message": _OFFSETS_DONE.format("altered")}


async def _reset_offsets(root: Root, ask: Ask) -> object:
    one, flow, group = root.running(ask)
    with _named(one, flow, group):
        await ask.change(ask.control.reset_offsets(flow.flow, group.connector, by=ask.by))
    return {"message": _OFFSETS_DONE.format("reset")}


#: What an operation is called at a root, and what carries it out.
_CHANGES: Final[tuple[tuple[str, api.Operation, api.Handler], ...]] = (
    ("patch_{}offsets", api.PATCH_OFFSETS, _patch_offsets),
    ("reset_{}offsets", api.RESET_OFFSETS, _reset_offsets),
    ("put_{1}config", api.PUT_CONFIG, _put),
    ("patch_{1}config", api.PATCH_CONFIG, _patch),
    ("post_{}connector", api.CREATE, _create),
    ("pause_{}connector", api.PAUSE, partial(_want, Wanted.PAUSED, 202)),
    ("resume_{}connector", api.RESUME, partial(_want, Wanted.RUNNING, 202)),
    ("stop_{}connector", api.STOP, partial(_want, Wanted.STOPPED, 204)),
    ("delete_{}connector", api.DELETE, partial(_want, Wanted.DELETED, 204)),
    ("restart_{}connector", api.RESTART, restart),
    ("restart_{}task", api.RESTART_TASK, _restart_task),
    ("validate_{}config", api.VALIDATE, _validate),
)


def serve(root: Root) -> None:
    """Declare the operations below *root*."""
    for name, operation, answer in _CHANGES:
        root.serve(name, operation, answer)
