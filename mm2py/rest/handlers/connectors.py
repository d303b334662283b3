"""Kafka Connect's addresses, below a flow: its task groups as connectors, with Connect's verbs and status codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mm2py.config.keys.table import nearest
from mm2py.core.control import overrides as verbs
from mm2py.core.control.live_config import read_config
from mm2py.core.control.overrides import CONNECTORS
from mm2py.errors import OverrideRejectedError
from mm2py.flow.plugins import policy_of
from mm2py.model.connector_offset import ConnectorOffset
from mm2py.model.overrides import Overrides, Wanted
from mm2py.model.state import FlowView, GroupView
from mm2py.rest import connect
from mm2py.rest.errors import RestError, bad_request, not_found
from mm2py.rest.handlers.flows import FLOW, WRITE_ERRORS, carry_out, change_overrides, whole
from mm2py.rest.handlers.known_topics import elsewhere
from mm2py.rest.route import Answer, Ask, Json, Param, Routes
from mm2py.rest.schemas import BOOLEAN, CONFIG, CONFIG_PATCH, CONFIG_SENT, STRING, STRINGS, array, ref
from mm2py.rest.shapes import is_gone


_ALL: Final = FLOW + "/connectors"
_ONE: Final = _ALL + "/{connector}"
_TASK: Final = _ONE + "/tasks/{task}"
_PLUGIN: Final = FLOW + "/connector-plugins/{plugin}"
EXPAND: Final = (Param("expand", STRING, "`status`, `info` or both: an object instead of a list"),)
RESTART: Final = (
    Param("includeTasks", BOOLEAN, "Also restart its tasks"),
    Param("onlyFailed", BOOLEAN, "Only failed instances"),
)
EXPANSIONS: Final = ("status", "info")
#: Connect's own states for a connector that is created (KIP-980).
INITIAL: Final = {"RUNNING": Wanted.RUNNING, "PAUSED": Wanted.PAUSED, "STOPPED": Wanted.STOPPED}

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


def _task(ask: Ask) -> tuple[FlowView, GroupView, int]:
    flow, group = _connector(ask)
    number = ask.number("task")
    if number not in connect.task_ids(flow, group):
        raise not_found(f"connector {group.connector} of flow {flow.flow} has no task {number}")
    return flow, group, number


# Reading.


@routes.add(
    "GET",
    _ALL,
    "The connectors of a flow",
    answers={200: {"anyOf": [STRINGS, {"type": "object", "additionalProperties": ref("ConnectorExpanded")}]}},
    query=EXPAND,
    errors=(404,),
)
async def get_connectors(ask: Ask) -> object:
    flow = ask.flow()
    overrides = _overrides(ask, flow)
    listed = connect.connectors(flow, overrides)
    # As in Connect, unknown expansions are ignored.
    wanted = [word for word in ask.words("expand") if word in EXPANSIONS]
    if not wanted:
        return [group.connector for group in listed]
    return {group.connector: {word: _expanded(ask, flow, group, word) for word in wanted} for group in listed}


def _expanded(ask: Ask, flow: FlowView, group: GroupView, what: str) -> Json:
    return _info(ask, flow, group) if what == "info" else connect.state_info(flow, group, ask.rest.worker_id)


def _info(ask: Ask, flow: FlowView, group: GroupView) -> Json:
    return connect.connector_info(flow, group, _config(ask, flow, group.connector))


def _config(ask: Ask, flow: FlowView, connector: str) -> dict[str, str]:
    """Return a connector's effective config: the file's lines and the overrides."""
    return ask.control.connector_config(flow.flow, connector)


@routes.add("GET", _ONE, "A connector with its config and tasks", answers={200: ref("ConnectorInfo")}, errors=(404,))
async def get_connector(ask: Ask) -> object:
    return _info(ask, *_connector(ask))


@routes.add("GET", _ONE + "/status", "A connector's status", answers={200: ref("ConnectorStateInfo")}, errors=(404,))
async def get_connector_status(ask: Ask) -> object:
    return connect.state_info(*_connector(ask), ask.rest.worker_id)


@routes.add("GET", _ONE + "/tasks", "A connector's tasks", answers={200: array(ref("TaskInfo"))}, errors=(404,))
async def get_tasks(ask: Ask) -> object:
    flow, group = _connector(ask)
    config = _config(ask, flow, group.connector)
    return [
        {"id": {"connector": group.connector, "task": number}, "config": config}
        for number in connect.task_ids(flow, group)
    ]


@routes.add(
    "GET",
    _ONE + "/tasks-config",
    "The configs of a connector's tasks (older versions of Connect, and kcctl)",
    answers={200: {"type": "object", "additionalProperties": CONFIG}},
    errors=(404,),
)
async def get_tasks_config(ask: Ask) -> object:
    flow, group = _connector(ask)
    config = _config(ask, flow, group.connector)
    return {f"{group.connector}-{number}": config for number in connect.task_ids(flow, group)}


@routes.add("GET", _TASK + "/status", "A task's status", answers={200: ref("TaskState")}, errors=(404,))
async def get_task_status(ask: Ask) -> object:
    flow, group, number = _task(ask)
    return next(one for one in connect.task_states(flow, group, ask.rest.worker_id) if one["id"] == number)


@routes.add(
    "GET",
    _ONE + "/topics",
    "The topics that a connector writes at the target",
    answers={200: {"type": "object", "additionalProperties": {"type": "object", "properties": {"topics": STRINGS}}}},
    errors=(404, 503),
)
async def get_active_topics(ask: Ask) -> object:
    flow, group = _connector(ask)
    return {group.connector: {"topics": await active_topics(ask, flow, group.connector)}}


async def active_topics(ask: Ask, flow: FlowView, connector: str) -> list[str]:
    """Return the topics that a connector writes, on whichever node."""
    if connector == verbs.SOURCE:
        others = await elsewhere(ask, flow)
        return sorted({one.remote_topic for one in flow.partitions} | {one.remote_topic for one in others.values()})
    settings = next((one for one in ask.node.settings.flows if one.flow == flow.flow), None)
    if settings is None:
        return []
    policy = policy_of(settings)
    is_heartbeat = connector == verbs.HEARTBEAT
    return [policy.heartbeats_topic() if is_heartbeat else policy.checkpoints_topic(flow.flow.source)]


@routes.add(
    "PUT",
    _ONE + "/topics/reset",
    "Accepted as in Connect: the list always has the connector's current topics",
    answers={202: None},
    errors=(404,),
)
async def reset_active_topics(ask: Ask) -> object:
    _connector(ask)
    return Answer(202)


# Config.


@routes.add(
    "GET", _ONE + "/config", "A connector's effective config; secrets masked", answers={200: CONFIG}, errors=(404,)
)
async def get_config(ask: Ask) -> object:
    flow, group = _connector(ask)
    return _config(ask, flow, group.connector)


@routes.add(
    "PUT",
    _ONE + "/config",
    "Run a connector with these settings; omitted keys have the file's values. A deleted one runs again",
    takes=CONFIG_SENT,
    answers={200: ref("ConnectorInfo"), 201: ref("ConnectorInfo")},
    errors=WRITE_ERRORS,
)
async def put_connector_config(ask: Ask) -> object:
    flow = ask.flow()
    return await _put(ask, flow, _known(flow, ask.part("connector")), await ask.object())


def _known(flow: FlowView, name: str) -> str:
    short = connect.short_name(name)
    if short not in CONNECTORS:
        raise not_found(f"flow {flow.flow} has no connector {name}", nearest(short, CONNECTORS))
    return short


async def _put(ask: Ask, flow: FlowView, name: str, body: Mapping[str, Any]) -> Answer:
    is_new = is_gone(_overrides(ask, flow), name)
    if not is_new and name not in {group.connector for group in flow.groups}:
        raise not_found(f"flow {flow.flow} has no connector {name}: the file switches it off")
    await whole(ask, ask.control.put_config(flow.flow, name, _as_names(body), by=ask.by))
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
    config = _config(ask, now, name)
    if group is None:
        info: Json = {"name": name, "config": config, "tasks": [], "type": "source"}
    else:
        info = connect.connector_info(now, group, config)
    if not is_new:
        return Answer(200, info)
    return Answer(201, info, {"Location": flow.flow.url_path("connectors", name)})


@routes.add(
    "PATCH",
    _ONE + "/config",
    "Change some settings of a connector; null reverts to the file's value (KIP-477)",
    takes=CONFIG_PATCH,
    answers={200: ref("ConnectorInfo")},
    errors=WRITE_ERRORS,
)
async def patch_connector_config(ask: Ask) -> object:
    flow, group = _connector(ask)
    body = _as_names(await ask.object())
    await whole(ask, ask.control.patch_config(flow.flow, group.connector, body, by=ask.by))
    return _created(ask, flow, group.connector, is_new=False)


@routes.add(
    "DELETE",
    _ONE + "/config",
    "Revert all settings of a connector to the file's",
    answers={200: ref("ConnectorInfo")},
    errors=WRITE_ERRORS,
)
async def revert_connector_config(ask: Ask) -> object:
    flow, group = _connector(ask)
    await whole(ask, ask.control.revert_config(flow.flow, group.connector, by=ask.by))
    return _created(ask, flow, group.connector, is_new=False)


@routes.add(
    "POST",
    _ALL,
    "Run a deleted connector again; 409 if it exists",
    takes=ref("CreateConnector"),
    answers={201: ref("ConnectorInfo")},
    errors=WRITE_ERRORS,
)
async def post_connector(ask: Ask) -> object:
    flow, body = ask.flow(), await ask.object()
    name, config, initial = body.get("name"), body.get("config", {}), body.get("initial_state")
    problems = [
        problem
        for is_bad, problem in (
            (not isinstance(name, str), "name must be a string"),
            (not isinstance(config, dict), "config must be an object"),
            (initial is not None and initial not in INITIAL, f"initial_state must be one of {', '.join(INITIAL)}"),
        )
        if is_bad
    ]
    if problems or not isinstance(name, str):
        raise bad_request(*problems)
    short = connect.short_name(name.strip())
    if short not in CONNECTORS:
        raise bad_request(f"a flow's connectors are {', '.join(CONNECTORS)}; {name!r} is none of them")
    if not is_gone(_overrides(ask, flow), short):
        raise RestError(409, f"Connector {short} already exists")
    answer = await _put(ask, flow, short, config)
    wanted = INITIAL.get(initial or "RUNNING")
    if wanted is Wanted.PAUSED:
        await change_overrides(ask, flow, lambda overrides: verbs.pause_connector(overrides, short))
    elif wanted is Wanted.STOPPED:
        await change_overrides(ask, flow, lambda overrides: verbs.stop_connector(overrides, short))
    return answer


# Verbs.


@routes.add("PUT", _ONE + "/pause", "Pause a connector", answers={202: None}, errors=WRITE_ERRORS)
async def pause_connector(ask: Ask) -> object:
    flow, group = _connector(ask)
    return await carry_out(ask, flow, verbs.pause_connector, group.connector)


@routes.add("PUT", _ONE + "/resume", "Resume a paused or stopped connector", answers={202: None}, errors=WRITE_ERRORS)
async def resume_connector(ask: Ask) -> object:
    flow, group = _connector(ask)
    return await carry_out(ask, flow, verbs.resume_connector, group.connector)


@routes.add(
    "PUT",
    _ONE + "/stop",
    "Stop a connector and release its resources, so that its offsets may be altered (KIP-875)",
    answers={204: None},
    errors=WRITE_ERRORS,
)
async def stop_connector(ask: Ask) -> object:
    flow, group = _connector(ask)
    return await carry_out(ask, flow, verbs.stop_connector, group.connector, code=204)


@routes.add(
    "DELETE",
    _ONE,
    "Stop a connector and remove it from the list, until its config is put again. Offsets are kept",
    answers={204: None},
    errors=WRITE_ERRORS,
)
async def delete_connector(ask: Ask) -> object:
    flow, group = _connector(ask)
    return await carry_out(ask, flow, verbs.delete_connector, group.connector, code=204)


async def _restart(ask: Ask) -> object:
    """Answer 204 for the connector alone, and 202 with its state for more, as Connect does (KIP-745)."""
    flow, group = _connector(ask)
    include_tasks, only_failed = ask.flag("includeTasks"), ask.flag("onlyFailed")
    state = connect.state_info(flow, group, ask.rest.worker_id)
    connect.mark_restarted(state, include_tasks=include_tasks, only_failed=only_failed)
    restart = ask.control.restart(
        flow.flow, group.connector, include_tasks=include_tasks, only_failed=only_failed, by=ask.by
    )
    await whole(ask, restart)
    return Answer(202, state) if include_tasks or only_failed else Answer(204)


RESTARTED: Final = {204: None, 202: ref("ConnectorStateInfo")}


@routes.add("POST", _ONE + "/restart", "Start again", answers=RESTARTED, query=RESTART, errors=WRITE_ERRORS)
async def restart_connector(ask: Ask) -> object:
    return await _restart(ask)


@routes.add("PUT", _ONE + "/restart", "The same, as in KIP-382", answers=RESTARTED, query=RESTART, errors=WRITE_ERRORS)
async def put_restart_connector(ask: Ask) -> object:
    return await _restart(ask)


@routes.add("POST", _TASK + "/restart", "Restart one task", answers={204: None}, errors=WRITE_ERRORS)
async def restart_task(ask: Ask) -> object:
    # Its node may not have reported it yet; which tasks there are follows from the assignment.
    flow, group = _connector(ask)
    await whole(ask, ask.control.restart_task(flow.flow, group.connector, ask.number("task"), by=ask.by))
    return Answer(204)


# Offsets (KIP-875).


@routes.add(
    "GET",
    _ONE + "/offsets",
    "A connector's offsets, as stored on the target cluster",
    answers={200: ref("ConnectorOffsets")},
    errors=(404, 503),
)
async def get_offsets(ask: Ask) -> object:
    flow, group = _connector(ask)
    return offsets_json(await ask.control.offsets(flow.flow, group.connector))


def offsets_json(found: Iterable[ConnectorOffset]) -> Json:
    """Show offsets as Connect's ConnectorOffsets."""
    return {
        "offsets": [
            {"partition": dict(one.partition), "offset": None if one.offset is None else dict(one.offset)}
            for one in found
        ]
    }


@routes.add(
    "PATCH",
    _ONE + "/offsets",
    "Alter offsets of a stopped connector: the last copied record's, a timestamp to copy from, or null to start over",
    takes=ref("ConnectorOffsetsSent"),
    answers={200: ref("Message")},
    errors=WRITE_ERRORS,
)
async def patch_offsets(ask: Ask) -> object:
    flow, group = _connector(ask)
    body = await ask.object()
    if strange := sorted(set(body) - {"offsets"}):
        raise bad_request(*(f"{name!r} is not known: the body has offsets" for name in strange))
    await whole(ask, ask.control.alter_offsets(flow.flow, group.connector, body.get("offsets"), by=ask.by))
    return {"message": "The offsets for this connector have been altered successfully"}


@routes.add(
    "DELETE",
    _ONE + "/offsets",
    "Remove all offsets of a stopped connector, so that it starts where its settings say",
    answers={200: ref("Message")},
    errors=WRITE_ERRORS,
)
async def reset_offsets(ask: Ask) -> object:
    flow, group = _connector(ask)
    await whole(ask, ask.control.reset_offsets(flow.flow, group.connector, by=ask.by))
    return {"message": "The offsets for this connector have been reset successfully"}


# Plugins.


@routes.add(
    "GET",
    FLOW + "/connector-plugins",
    "The available connector classes",
    answers={200: array(ref("PluginInfo"))},
    query=(Param("connectorsOnly", BOOLEAN, "Accepted without effect: there are only connectors"),),
    errors=(404,),
)
async def get_plugins(ask: Ask) -> object:
    ask.flow()
    return connect.plugins()


def _plugin(ask: Ask) -> str:
    ask.flow()
    name = ask.part("plugin")
    short = connect.short_name(name)
    if short not in CONNECTORS:
        raise not_found(f"there is no connector class {name}", nearest(short, CONNECTORS))
    return short


@routes.add(
    "GET",
    _PLUGIN + "/config",
    "The settings that a connector takes (KIP-769)",
    answers={200: array(ref("ConfigKeyInfo"))},
    errors=(404,),
)
async def get_plugin_config(ask: Ask) -> object:
    _plugin(ask)
    return [connect.key_info(row, order) for order, row in enumerate(connect.rows(), 1)]


@routes.add(
    "PUT",
    _PLUGIN + "/config/validate",
    "Validate a config without applying it: 200 with all problems",
    takes=CONFIG_SENT,
    answers={200: ref("ConfigInfos")},
    right=None,
    errors=(400, 404),
)
async def validate_config(ask: Ask) -> object:
    name, flow = _plugin(ask), ask.flow()
    body = _as_names(await ask.object())
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
    return connect.config_infos(connect.PACKAGE + name, texts, problems)
