"""Kafka Connect's addresses, below a flow: its task groups as connectors, with Connect's verbs and status codes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from mm2py.config.keys.table import nearest
from mm2py.core.herder import overrides as verbs
from mm2py.core.herder.live_config import read_config
from mm2py.core.herder.overrides import CONNECTORS, SOURCE
from mm2py.errors import OverrideRejectedError
from mm2py.model.herder.overrides import Wanted
from mm2py.rest import connect
from mm2py.rest.errors import RestError, bad_request, not_found
from mm2py.rest.handlers import connect_api as api
from mm2py.rest.handlers import connector_changes
from mm2py.rest.handlers.flows import carry_out
from mm2py.rest.route import Ask, Json, Routes


routes = Routes("connect", ignores_query=True)


class _FlowRoot(api.Root):
    """A flow, whose connectors are changed by overrides."""

    is_worker = False

    def check(self, ask: Ask) -> None:
        flow, name = ask.flow(), ask.request.match_info.get("connector", SOURCE)
        if (short := connect.short_name(name)) not in CONNECTORS:
            raise not_found(f"flow {flow.flow} has no connector {name}", nearest(short, CONNECTORS))

    def all(self, ask: Ask) -> list[api.Connector]:
        return [self.shown(ask, name) for name in self._listed(ask)]

    def _listed(self, ask: Ask) -> list[str]:
        flow = ask.flow()
        return [group.connector for group in connect.connectors(flow, ask.control.overrides(flow.flow))]

    def named(self, ask: Ask) -> api.Connector:
        name, listed = ask.part("connector"), self._listed(ask)
        if (short := connect.short_name(name)) not in listed:
            raise not_found(f"flow {ask.flow().flow} has no connector {name}", nearest(short, listed))
        return self.shown(ask, short)

    def shown(self, ask: Ask, name: str) -> api.Connector:
        flow, short = ask.flow(), connect.short_name(name)
        group = next((one for one in flow.groups if one.connector == short), None)
        tasks = [] if group is None else connect.task_ids(flow, group)
        config = functools.partial(ask.control.connector_config, flow.flow, short)
        return api.Connector(short, flow, group, tasks, config)

    async def put(self, ask: Ask, name: str, config: Json, wanted: Wanted | None, *, is_new: bool) -> bool:
        flow, short = ask.flow(), connect.short_name(name)
        if short not in CONNECTORS:
            raise bad_request(f"a flow's connectors are {', '.join(CONNECTORS)}; {name!r} is none of them")
        was_gone = ask.control.overrides(flow.flow).wanted(short) is Wanted.DELETED
        if is_new and not was_gone:
            raise RestError(409, f"Connector {short} already exists")
        if not was_gone and short not in {group.connector for group in flow.groups}:
            raise not_found(f"flow {flow.flow} has no connector {short}: the file switches it off")
        as_names, wanted = _as_names(config), wanted or Wanted.RUNNING
        await ask.change(ask.control.put_config(flow.flow, short, as_names, sent=config, wanted=wanted, by=ask.by))
        return was_gone

    async def patch(self, ask: Ask, name: str, config: Json) -> None:
        await ask.change(ask.control.patch_config(ask.flow().flow, name, _as_names(config), by=ask.by))

    async def want(self, ask: Ask, name: str, wanted: Wanted) -> None:
        await carry_out(ask, ask.flow(), verbs.want_connector, name, wanted)

    async def judged(self, ask: Ask, plugin: str, config: Json) -> tuple[Mapping[str, str], Mapping[str, list[str]]]:
        flow, name = ask.flow(), connect.short_name(plugin)
        body = _as_names(config)
        if (given := body.get("connector.class", plugin)) != plugin:
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
                wrong = read_config(flow.flow, name, {key: value}, ask.node.settings).problems
            except OverrideRejectedError as error:
                wrong = error.problems
            if wrong:
                problems[key] = list(wrong)
        return texts, problems


def _as_names(body: Json) -> Json:
    """Accept Connect's other ways to name a connector: its class without the package, and so on."""
    shown = dict(body)
    if isinstance(named := shown.get("connector.class"), str):
        short = connect.short_name(named.strip())
        shown["connector.class"] = connect.PACKAGE + short if short in CONNECTORS else named
    return shown


async def _revert(root: api.Root, ask: Ask) -> object:
    one = root.named(ask)
    await ask.change(ask.control.revert_config(ask.flow().flow, one.name, by=ask.by))
    return root.shown(ask, one.name).info()


_root: Final = _FlowRoot(routes)
connector_changes.serve(_root)
_root.serve("revert_connector_config", api.REVERT_CONFIG, _revert)
_root.serve("put_restart_connector", api.PUT_RESTART, connector_changes.restart)
