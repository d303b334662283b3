"""Kafka Connect's addresses, below a flow: its task groups as connectors, with Connect's verbs and status codes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from mm2py.config.keys.table import nearest
from mm2py.core.herder import overrides as verbs
from mm2py.core.herder.live_config import read_config
from mm2py.core.herder.overrides import CONNECTORS
from mm2py.errors import OverrideRejectedError
from mm2py.model.herder.overrides import Overrides, Wanted
from mm2py.model.state import FlowView, GroupView
from mm2py.rest import connect
from mm2py.rest.errors import RestError, bad_request, not_found
from mm2py.rest.handlers import connect_api as api
from mm2py.rest.handlers import connector_changes
from mm2py.rest.handlers.flows import FLOW, carry_out, whole
from mm2py.rest.plugin_definitions import config_infos
from mm2py.rest.route import Answer, Ask, Routes
from mm2py.rest.shapes import is_gone


routes = Routes("connect", ignores_query=True)


def _overrides(ask: Ask, flow: FlowView) -> Overrides:
    return ask.control.overrides(flow.flow)


def _connector(ask: Ask) -> tuple[FlowView, GroupView]:
    """Return the connector that the path names; raise if the flow does not have it, or if it was deleted."""
    flow, name = ask.flow(), ask.part("connector")
    listed = {group.connector: group for group in connect.connectors(flow, _overrides(ask, flow))}
    short = connect.short_name(name)
    if short not in listed:
        raise not_found(f"flow {flow.flow} has no connector {name}", nearest(short, listed))
    return flow, listed[short]


def _shown(ask: Ask, flow: FlowView, group: GroupView) -> api.Connector:
    config = functools.partial(ask.control.connector_config, flow.flow, group.connector)
    return api.Connector(group.connector, flow, group, connect.task_ids(flow, group), config)


def _all(ask: Ask) -> list[api.Connector]:
    flow = ask.flow()
    return [_shown(ask, flow, group) for group in connect.connectors(flow, _overrides(ask, flow))]


def _named(ask: Ask) -> api.Connector:
    return _shown(ask, *_connector(ask))


_root: Final = api.Root(
    routes, FLOW, "", _all, _named, Ask.flow, has_mirus=False, reading_errors=(404,), running_errors=(404, 503)
)
connector_changes.serve(_root)


# Config.


@_root.serves(
    api.PUT_CONFIG, "Replace a connector's settings; omitted keys have the file's values. A deleted one runs again"
)
async def put_connector_config(ask: Ask) -> object:
    flow = ask.flow()
    return await _put(ask, flow, _known(flow, ask.part("connector")), await ask.object())


def _known(flow: FlowView, name: str) -> str:
    short = connect.short_name(name)
    if short not in CONNECTORS:
        raise not_found(f"flow {flow.flow} has no connector {name}", nearest(short, CONNECTORS))
    return short


async def _put(
    ask: Ask, flow: FlowView, name: str, body: Mapping[str, Any], *, wanted: Wanted = Wanted.RUNNING
) -> Answer:
    is_new = is_gone(_overrides(ask, flow), name)
    if not is_new and name not in {group.connector for group in flow.groups}:
        raise not_found(f"flow {flow.flow} has no connector {name}: the file switches it off")
    putting = ask.control.put_config(flow.flow, name, _as_names(body), sent=body, wanted=wanted, by=ask.by)
    await whole(ask, putting)
    return _created(ask, flow, name, is_new=is_new)


def _as_names(body: Mapping[str, Any]) -> dict[str, Any]:
    """Accept Connect's other ways to name a connector: its class without the package, and so on."""
    shown = dict(body)
    if isinstance(named := shown.get("connector.class"), str):
        short = connect.short_name(named.strip())
        shown["connector.class"] = connect.PACKAGE + short if short in CONNECTORS else named
    return shown


def _created(ask: Ask, flow: FlowView, name: str, *, is_new: bool) -> Answer:
    now = next((one for one in ask.rest.view().flows if one.flow == flow.flow), flow)
    group = next((one for one in now.groups if one.connector == name), None)
    tasks = [] if group is None else connect.task_ids(now, group)
    info = connect.connector_info(name, ask.control.connector_config(now.flow, name), tasks)
    if not is_new:
        return Answer(200, info)
    return Answer(201, info, {"Location": flow.flow.url_path("connectors", name)})


@_root.serves(api.PATCH_CONFIG, "Change some settings of a connector; null reverts to the file's value (KIP-477)")
async def patch_connector_config(ask: Ask) -> object:
    flow, group = _connector(ask)
    body = _as_names(await ask.object())
    await whole(ask, ask.control.patch_config(flow.flow, group.connector, body, by=ask.by))
    return _created(ask, flow, group.connector, is_new=False)


@_root.serves(api.REVERT_CONFIG)
async def revert_connector_config(ask: Ask) -> object:
    flow, group = _connector(ask)
    await whole(ask, ask.control.revert_config(flow.flow, group.connector, by=ask.by))
    return _created(ask, flow, group.connector, is_new=False)


@_root.serves(api.CREATE, "Run a deleted connector again, or have it paused or stopped; 409 if it exists")
async def post_connector(ask: Ask) -> object:
    flow, asked = ask.flow(), await connector_changes.creation(ask)
    short = connect.short_name(asked.name)
    if short not in CONNECTORS:
        raise bad_request(f"a flow's connectors are {', '.join(CONNECTORS)}; {asked.name!r} is none of them")
    if not is_gone(_overrides(ask, flow), short):
        raise RestError(409, f"Connector {short} already exists")
    return await _put(ask, flow, short, asked.config, wanted=asked.wanted or Wanted.RUNNING)


# Verbs.


@_root.serves(api.PAUSE)
async def pause_connector(ask: Ask) -> object:
    flow, group = _connector(ask)
    return await carry_out(ask, flow, verbs.pause_connector, group.connector)


@_root.serves(api.RESUME)
async def resume_connector(ask: Ask) -> object:
    flow, group = _connector(ask)
    return await carry_out(ask, flow, verbs.resume_connector, group.connector)


@_root.serves(api.STOP)
async def stop_connector(ask: Ask) -> object:
    flow, group = _connector(ask)
    return await carry_out(ask, flow, verbs.stop_connector, group.connector, code=204)


@_root.serves(
    api.DELETE, "Stop a connector and remove it from the list, until its config is put again. Offsets are kept"
)
async def delete_connector(ask: Ask) -> object:
    flow, group = _connector(ask)
    return await carry_out(ask, flow, verbs.delete_connector, group.connector, code=204)


@_root.serves(api.RESTART)
async def restart_connector(ask: Ask) -> object:
    return await connector_changes.restart(_root, ask)


@_root.serves(api.PUT_RESTART)
async def put_restart_connector(ask: Ask) -> object:
    return await connector_changes.restart(_root, ask)


@_root.serves(api.RESTART_TASK)
async def restart_task(ask: Ask) -> object:
    # Its node may not have reported it yet; which tasks there are follows from the assignment.
    flow, group = _connector(ask)
    await whole(ask, ask.control.restart_task(flow.flow, group.connector, ask.number("task"), by=ask.by))
    return Answer(204)


# Plugins.


@_root.serves(api.VALIDATE, "Validate a config without applying it: 200 with all problems")
async def validate_config(ask: Ask) -> object:
    class_name, flow = _root.connector_class(ask), ask.flow()
    name = connect.short_name(class_name)
    body = _as_names(await ask.object())
    if (given := body.get("connector.class", class_name)) != class_name:
        raise bad_request(f"connector.class is {given}, and the address names {name}")
    problems: dict[str, list[str]] = {}
    texts = {}
    if isinstance(body.get("name"), str) and body["name"].strip():
        # The connector's name is not checked here: tools send made-up names.
        texts["name"] = body.pop("name")
    for key, value in body.items():
        text = connect.as_text(value)
        texts[key] = "" if text is None else text
        try:
            asked = read_config(flow.flow, name, {key: value}, ask.node.settings)
        except OverrideRejectedError as error:
            problems[key] = list(error.problems)
        else:
            if asked.problems:
                problems[key] = list(asked.problems)
    return config_infos(class_name, texts, problems)
