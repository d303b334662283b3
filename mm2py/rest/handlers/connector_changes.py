"""What changes connectors in Kafka Connect's API, below a flow and at the root of a Connect worker alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs

from mm2py.errors import OverrideConflictError, OverrideRejectedError
from mm2py.model.herder.overrides import Wanted
from mm2py.model.state import FlowView, GroupView
from mm2py.rest import connect
from mm2py.rest.errors import bad_request
from mm2py.rest.handlers import connect_api as api
from mm2py.rest.handlers.connect_api import Root
from mm2py.rest.handlers.flows import whole
from mm2py.rest.route import Answer, Ask, Json


#: Connect's words.
_OFFSETS_DONE: Final = "The offsets for this connector have been {} successfully"
#: Connect's own states for a connector that is created (KIP-980); Connect takes them in any case.
_INITIAL: Final = {"RUNNING": Wanted.RUNNING, "PAUSED": Wanted.PAUSED, "STOPPED": Wanted.STOPPED}


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
            await whole(ask, ask.control.restart(flow.flow, group.connector, **flags, by=ask.by))
    return Answer(202, state) if any(flags.values()) else Answer(204)


async def _patch_offsets(root: Root, ask: Ask) -> object:
    one, flow, group = root.running(ask)
    body = await ask.object()
    if strange := sorted(set(body) - {"offsets"}):
        raise bad_request(*(f"{name!r} is not known: the body has offsets" for name in strange))
    with _named(one, flow, group):
        await whole(ask, ask.control.alter_offsets(flow.flow, group.connector, body.get("offsets"), by=ask.by))
    return {"message": _OFFSETS_DONE.format("altered")}


async def _reset_offsets(root: Root, ask: Ask) -> object:
    one, flow, group = root.running(ask)
    with _named(one, flow, group):
        await whole(ask, ask.control.reset_offsets(flow.flow, group.connector, by=ask.by))
    return {"message": _OFFSETS_DONE.format("reset")}


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


#: What an operation is called at a root, and what carries it out.
_CHANGES: Final = (
    ("patch_{}offsets", api.PATCH_OFFSETS, _patch_offsets),
    ("reset_{}offsets", api.RESET_OFFSETS, _reset_offsets),
)


def serve(root: Root) -> None:
    """Declare the operations below *root*."""
    for name, operation, answer in _CHANGES:
        root.serve(name, operation, answer)
