"""The addresses of a Connect worker: what is created, changed and removed there, and what is refused."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from mm2py.model.connector_configs import RestartRequest
from mm2py.model.overrides import Wanted
from mm2py.model.state import FlowState
from tests.support.rest_asking import Asking
from tests.support.rest_node import CONNECTOR


NAME = "MirrorSourceConnector"
NORTH = {**CONNECTOR, "name": "north", "source.cluster.alias": "C"}
FOREIGN = {"connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector"}


async def test_create_and_remove(ask: Asking) -> None:
    """Connect's statuses: 201 with the connector's address, 409 if it exists, 204, 404."""
    created = await ask("POST", "/connectors", {"name": "north/1", "config": {**NORTH, "name": "north/1"}})
    again = await ask("POST", "/connectors", {"name": "north/1", "config": {**NORTH, "name": "north/1"}})
    listed = await ask("GET", "/connectors")
    removed = await ask("DELETE", "/connectors/north%2F1")
    gone = await ask("DELETE", "/connectors/north%2F1")

    assert (created.status, created.headers["Location"]) == (201, "/connectors/north%2F1")
    assert created.json["tasks"] == []
    assert created.json["config"]["topics"] == NORTH["topics"]
    assert (again.status, again.json["message"]) == (409, "Connector north/1 already exists")
    assert listed.json == [NAME, "north/1"]
    assert (removed.status, gone.status) == (204, 404)
    assert gone.json == {"error_code": 404, "message": "Connector north/1 not found"}


async def test_unknown_connectors_are_no_empty_list(ask: Asking) -> None:
    """Until the topic was read, a client has to come back later; what runs there is not known."""
    store: Any = None if ask.node.worker is None else ask.node.worker.store
    store.is_read = False
    answers = [await ask("GET", path) for path in ("/connectors", f"/connectors/{NAME}/status")]

    assert [answer.status for answer in answers] == [503, 503]
    assert answers[0].headers["Retry-After"] == "5"


async def test_health_is_connect_s(ask: Asking) -> None:
    """A probe of Connect's own address needs no login, and fails until the connectors are known (KIP-1017)."""
    store: Any = None if ask.node.worker is None else ask.node.worker.store
    healthy = await ask("GET", "/health")
    store.is_read = False
    starting = await ask("GET", "/health")

    assert (healthy.status, healthy.json["status"]) == (200, "healthy")
    ask.node._worker[:] = [None]
    without = await ask("GET", "/health")

    assert (starting.status, starting.json["status"]) == (503, "starting")
    assert (without.status, without.json) == (200, healthy.json)


async def test_put_creates_and_replaces(ask: Asking) -> None:
    """201 and 200; numbers and booleans become text."""
    new = await ask("PUT", "/connectors/north/config", {**NORTH, "tasks.max": 3, "emit.checkpoints.enabled": False})
    old = await ask("PUT", "/connectors/north/config", NORTH)

    assert (new.status, old.status) == (201, 200)
    assert new.json["config"] == {
        **NORTH,
        "source.cluster.sasl.jaas.config": "***",
        "tasks.max": "3",
        "emit.checkpoints.enabled": "false",
    }
    assert "tasks.max" not in old.json["config"]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({**NORTH, "tasks.max": "many", "sync.topic.acls.enabled": "maybe"}, ("tasks.max", "sync.topic.acls.enabled")),
        ({**NORTH, "name": "south"}, ("(south) doesn't match connector name in the URL (north)",)),
        ({**NORTH, "topcis": "orders"}, ("topcis: unknown key, refused", "did you mean topics?")),
        ({**NORTH, "topics": ["orders"]}, ("topics must be a string",)),
        ({**NORTH, "source.cluster.alias": "A"}, ("A->B has a MirrorSourceConnector already",)),
        ({**NORTH, "source.cluster.ssl.key.password": "***"}, ("ssl.key.password: is masked",)),
        ({**NORTH, "topics": "\ud800"}, ("surrogate",)),
        (FOREIGN, ("mm2py has no connector org.apache.kafka.connect.file.FileStreamSinkConnector",)),
        ({}, ("connector.class: missing",)),
    ],
    ids=["values", "name", "slip", "list", "twice", "mask", "surrogate", "foreign", "empty"],
)
async def test_what_does_not_fit_is_not_stored(ask: Asking, config: dict[str, object], says: tuple[str, ...]) -> None:
    """400 with every problem."""
    got = await ask("PUT", "/connectors/north/config", config)

    assert got.status == 400
    assert all(words in got.json["message"] for words in says)
    assert (await ask("GET", "/connectors")).json == [NAME]


async def test_what_is_shown_may_be_put_back(ask: Asking) -> None:
    """A masked secret stays as it is stored, also where others change."""
    path = f"/connectors/{NAME}/config"
    shown = (await ask("GET", path)).json
    put = await ask("PUT", path, shown)
    patched = await ask("PATCH", path, {"topics": None, "tasks.max": 2, "source.cluster.sasl.jaas.config": "***"})

    assert shown["source.cluster.sasl.jaas.config"] == "***"
    assert (put.status, patched.status) == (200, 200)
    assert ask.node.worker is not None
    stored = ask.node.worker.store.connectors[NAME].config
    assert stored == {**{key: one for key, one in CONNECTOR.items() if key != "topics"}, "tasks.max": "2"}


async def test_states_are_kept_in_the_topic(ask: Asking) -> None:
    """Pause, stop and resume write the target state; a new connector may begin with one."""
    worker = ask.node.worker
    assert worker is not None
    found = []
    for verb, status in (("pause", 202), ("stop", 204), ("resume", 202)):
        assert (await ask("PUT", f"/connectors/{NAME}/{verb}")).status == status
        found.append(worker.store.connectors[NAME].wanted)
    await ask("POST", "/connectors", {"name": "north", "config": NORTH, "initial_state": "STOPPED"})

    assert found == [Wanted.PAUSED, Wanted.STOPPED, Wanted.RUNNING]
    assert worker.store.connectors["north"].wanted is Wanted.STOPPED


async def test_a_status_has_no_more_tasks_than_partitions(ask: Asking) -> None:
    """As in Connect, where a connector without topics has no tasks."""
    before = (await ask("GET", f"/connectors/{NAME}/status")).json
    (flow,) = ask.node.shown.flows
    idle = tuple(attrs.evolve(task, partitions=0) for task in flow.tasks)
    ask.node.shown = attrs.evolve(ask.node.shown, flows=(attrs.evolve(flow, tasks=idle),))
    ask.server.rest.forget()
    after = (await ask("GET", f"/connectors/{NAME}/status")).json

    assert before["name"] == NAME
    assert [task["id"] for task in before["tasks"]] == [task.task for task in flow.tasks if task.partitions]
    assert before["tasks"]
    assert after["tasks"] == []


async def test_a_connector_that_is_not_run_is_shown(ask: Asking) -> None:
    """A checkpoint connector waits for its source; what is to be done with it there is 409."""
    checkpoint = {**NORTH, "connector.class": "MirrorCheckpointConnector"}
    created = await ask("PUT", "/connectors/north/config", checkpoint)
    status = (await ask("GET", "/connectors/north/status")).json
    restart = await ask("POST", "/connectors/north/restart")

    assert created.status == 201
    assert status["connector"]["state"] == "UNASSIGNED"
    assert "waits for a MirrorSourceConnector of C->B" in status["connector"]["trace"]
    assert restart.status == 409


async def test_a_restart_reaches_every_node(ask: Asking) -> None:
    """It goes through the topic, because several nodes may run a flow together. To restart a stopped connector is no
    error in Connect, and does nothing.
    """
    alone = await ask("POST", f"/connectors/{NAME}/restart")
    whole = await ask("POST", f"/connectors/{NAME}/restart?includeTasks=true")
    (flow,) = ask.node.shown.flows
    groups = tuple(attrs.evolve(group, state=FlowState.STOPPED) for group in flow.groups)
    ask.node.shown = attrs.evolve(ask.node.shown, flows=(attrs.evolve(flow, groups=groups),))
    ask.server.rest.forget()
    stopped = [await ask("POST", f"/connectors/{NAME}/restart{query}") for query in ("", "?includeTasks=true")]

    assert (alone.status, whole.status, *(answer.status for answer in stopped)) == (204, 202, 204, 202)
    assert whole.json["connector"]["state"] == "RESTARTING"
    assert (stopped[1].json["connector"]["state"], stopped[1].json["tasks"]) == ("STOPPED", [])
    assert ask.node.worker is not None
    store: Any = ask.node.worker.store
    assert store.restarts == [
        RestartRequest(NAME, include_tasks=include_tasks, only_failed=False)
        for include_tasks in (False, True, False, True)
    ]


async def test_validation_names_each_key(ask: Asking) -> None:
    """Together with the other connectors, and nothing is stored."""
    path = "/connector-plugins/org.apache.kafka.connect.mirror.MirrorSourceConnector/config/validate"
    config = {**NORTH, "tasks.max": "many", "source.cluster.alias": "A"}
    got = await ask("PUT", path, config)
    nameless = await ask("PUT", path, {key: value for key, value in config.items() if key != "name"})
    errors = {one["value"]["name"] for one in got.json["configs"] if one["value"]["errors"]}

    assert got.status == 200
    assert (got.json["error_count"], errors) == (2, {"tasks.max", "connector.class"})
    assert nameless.json["error_count"] == 3
    assert (await ask("GET", "/connectors")).json == [NAME]


async def test_the_plugins_are_ours(ask: Asking) -> None:
    """MirrorMaker's three and Mirus's."""
    plugins = (await ask("GET", "/connector-plugins")).json

    assert [plugin["class"].rpartition(".")[2] for plugin in plugins] == [
        "MirrorSourceConnector",
        "MirrorCheckpointConnector",
        "MirrorHeartbeatConnector",
        "MirusSourceConnector",
    ]


async def test_views_name_connectors_as_they_were_created(ask: Asking) -> None:
    """A flow's task groups have the names of their connectors; one without a connector has none."""
    await ask("DELETE", f"/connectors/{NAME}")
    await ask("POST", "/connectors", {"name": "north", "config": {**CONNECTOR, "name": "north"}})
    [flow] = ask.node.shown.flows
    assert ask.node.worker is not None
    shown = ask.node.worker.named(flow)

    assert [group.name for group in shown.groups] == ["north", "", ""]
    assert [group.connector for group in shown.groups] == [group.connector for group in flow.groups]
