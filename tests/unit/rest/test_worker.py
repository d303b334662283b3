"""The addresses of a Connect worker: what is created, changed and removed there, and what is refused."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from mm2py.config.rest import Right
from mm2py.errors import RestartNotPassedOnError
from mm2py.model.herder.connector_configs import KeyValue, config_record
from mm2py.model.herder.overrides import Wanted
from mm2py.model.state import FlowState
from tests.support.rest_asking import Asking
from tests.support.rest_node import CONNECTOR


NAME = "MirrorSourceConnector"
NORTH = {**CONNECTOR, "name": "north", "source.cluster.alias": "C"}
FOREIGN = {"connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector"}
#: The same source as the connector that is there, and the target by another name.
TWICE = {**NORTH, "source.cluster.alias": "A", "target.cluster.alias": "C"}


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
        (TWICE, ("has source A and the same target, as B",)),
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


async def test_secrets_are_shown_to_those_who_may_write_if_that_is_set(ask: Asking) -> None:
    """A tool that waits until it reads what it wrote comes to an end; who may only read sees none."""
    path, secret = f"/connectors/{NAME}/config", "source.cluster.sasl.jaas.config"
    hidden = (await ask("GET", path)).json
    rest = attrs.evolve(ask.node.settings.rest, shows_secrets=True)
    ask.node.settings = attrs.evolve(ask.node.settings, rest=rest)
    put = await ask("PUT", path, {**CONNECTOR, secret: "new"})
    shown = (await ask("GET", path)).json
    ask.node.settings = attrs.evolve(ask.node.settings, rest=attrs.evolve(rest, anonymous=Right.READ))
    of_reader = (await ask("GET", path)).json

    assert hidden[secret] == of_reader[secret] == "***"
    assert shown == put.json["config"] == {**CONNECTOR, secret: "new"}


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
    """One of another class, which a worker of Java's has stored; what is to be done with it there is 409."""
    store: Any = None if ask.node.worker is None else ask.node.worker.store

    async def decide() -> list[KeyValue]:
        return [config_record("north", FOREIGN)]

    await store.change(decide)
    status = (await ask("GET", "/connectors/north/status")).json
    restart = await ask("POST", "/connectors/north/restart")

    assert status["connector"]["state"] == "UNASSIGNED"
    assert f"mm2py has no connector {FOREIGN['connector.class']}" in status["connector"]["trace"]
    assert restart.status == 409


async def test_a_restart_reaches_every_node(ask: Asking) -> None:
    """As one that is asked for at the flow's address. To restart a stopped connector is no error in Connect, and does
    nothing. What cannot be passed on to other nodes is an error.
    """
    alone = await ask("POST", f"/connectors/{NAME}/restart")
    whole = await ask("POST", f"/connectors/{NAME}/restart?includeTasks=true")
    ask.node.control.failure = RestartNotPassedOnError("A->B", "there:8083", "it does not answer")
    lost = [await ask("POST", f"{at}/connectors/{NAME}/restart") for at in ("", "/from:A/to:B")]
    (flow,) = ask.node.shown.flows
    groups = tuple(attrs.evolve(group, state=FlowState.STOPPED, wanted=Wanted.STOPPED) for group in flow.groups)
    ask.node.shown = attrs.evolve(ask.node.shown, flows=(attrs.evolve(flow, groups=groups),))
    ask.server.rest.forget()
    stopped = [await ask("POST", f"/connectors/{NAME}/restart{query}") for query in ("", "?includeTasks=true")]

    assert (alone.status, whole.status, *(answer.status for answer in stopped)) == (204, 202, 204, 202)
    assert whole.json["connector"]["state"] == "RESTARTING"
    assert (stopped[1].json["connector"]["state"], stopped[1].json["tasks"]) == ("STOPPED", [])
    assert ask.node.control.restarts == [("A->B", NAME, include_tasks, False) for include_tasks in (False, True)]
    assert (lost[0].status, lost[0].json, lost[0].headers["Retry-After"]) == (503, lost[1].json, "5")


_VALIDATE = "/connector-plugins/org.apache.kafka.connect.mirror.MirrorSourceConnector/config/validate"


def _errors(infos: dict[str, Any]) -> dict[str, list[str]]:
    return {one["value"]["name"]: one["value"]["errors"] for one in infos["configs"] if one["value"]["errors"]}


async def test_validation_names_each_key(ask: Asking) -> None:
    """All problems of a config at once, by the names that were sent, also of what it names; nothing is stored."""
    config = {
        **NORTH,
        "tasks.max": "many",
        "topic.filter.class": "no.Filter",
        "transforms": "a, b",
        "transforms.a.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.a.regex": "(",
        "transforms.b.type": "Nope",
    }
    got = await ask("PUT", _VALIDATE, config)
    nameless = await ask("PUT", _VALIDATE, {key: value for key, value in config.items() if key != "name"})
    errors = _errors(got.json)

    assert got.status == 200
    assert set(errors) == {
        "tasks.max", "topic.filter.class", "transforms.a.regex", "transforms.a.replacement", "transforms.b.type",
    }  # fmt: skip
    assert got.json["error_count"] == 5
    assert not any("->" in text for texts in errors.values() for text in texts)
    assert set(_errors(nameless.json)) == {*errors, "name"}
    assert (await ask("GET", "/connectors")).json == [NAME]


async def test_a_config_under_another_name_is_judged_alone(ask: Asking) -> None:
    """Tools make up a name to ask whether a connector's own config is right; what exists is judged with the others."""
    alone = await ask("PUT", _VALIDATE, {**CONNECTOR, "name": "dummy-name"})
    created = await ask("PUT", "/connectors/north/config", NORTH)
    beside = await ask("PUT", _VALIDATE, TWICE)
    path = _VALIDATE.replace("Source", "Checkpoint")
    checkpoint = {**CONNECTOR, "name": "cp", "connector.class": "MirrorCheckpointConnector"}
    of_checkpoint = await ask("PUT", path, {**checkpoint, "groups": "("})
    without = await ask("PUT", _VALIDATE, {"connector.class": NAME, "name": "x", "tasks.max": "many"})

    assert (alone.json["error_count"], created.status) == (0, 201)
    assert "has source A and the same target, as B" in str(_errors(beside.json))
    assert set(_errors(of_checkpoint.json)) == {"groups"}
    assert {"source.cluster.alias", "tasks.max"} <= set(_errors(without.json))


@pytest.mark.parametrize(
    "key",
    ["replication.policy.class", "topic.filter.class", "group.filter.class", "config.property.filter.class"],
)
async def test_a_class_that_cannot_be_loaded_is_refused(ask: Asking, key: str) -> None:
    """At once, where it is sent, and not by a connector that fails later; what is stored stays."""
    path, bad = "/connectors/north/config", {key: "no.such.Class"}
    kind = "MirrorCheckpointConnector" if key == "group.filter.class" else NAME
    good = {**NORTH, "connector.class": kind}
    first = await ask("PUT", path, {**good, **bad})
    created = await ask("PUT", path, good)
    answers = [first, await ask("PUT", path, {**good, **bad}), await ask("PATCH", path, bad)]
    judged = await ask("PUT", _VALIDATE.replace(NAME, kind), {**good, **bad, "name": "another"})

    assert [created.status, *(answer.status for answer in answers)] == [201, 400, 400, 400]
    assert all(f"{key}: no.such.Class: " in answer.json["message"] for answer in answers)
    assert _errors(judged.json).keys() == {key}
    assert key not in (await ask("GET", path)).json


async def test_the_plugins_are_ours(ask: Asking) -> None:
    """MirrorMaker's three and Mirus's; on demand what a connector can name, too."""
    plugins = (await ask("GET", "/connector-plugins")).json
    more = (await ask("GET", "/connector-plugins?connectorsOnly=false")).json

    assert [plugin["class"].rpartition(".")[2] for plugin in plugins] == [
        "MirrorSourceConnector",
        "MirrorCheckpointConnector",
        "MirrorHeartbeatConnector",
        "MirusSourceConnector",
    ]
    assert more[:4] == plugins
    assert {one["type"] for one in more} == {"source", "transformation", "predicate", "converter", "header_converter"}
    assert "org.apache.kafka.connect.transforms.predicates.TopicNameMatches" in {one["class"] for one in more}


async def test_a_plugin_s_definitions_are_those_of_its_class(ask: Asking) -> None:
    """A form made of them has what the class takes; a config's transforms come with their own keys."""
    found = {}
    for plugin in ("MirrorSource", "MirrorCheckpoint", "MirrorHeartbeat", "MirusSource"):
        found[plugin] = (await ask("GET", f"/connector-plugins/{plugin}Connector/config")).json
    (alias,) = (one for one in found["MirrorSource"] if one["name"] == "source.cluster.alias")
    config = {**NORTH, "transforms": "a", "transforms.a.type": "RegexRouter", "transforms.a.regex": "a"}
    infos = (await ask("PUT", _VALIDATE, config)).json
    nested = [one["definition"] for one in infos["configs"] if one["definition"]["group"] == "Transforms: a"]

    assert [len(keys) for keys in found.values()] == [118, 113, 102, 36]
    assert (alias["required"], alias["importance"], alias["group"]) == (True, "HIGH", None)
    assert [one["name"].removeprefix("transforms.a.") for one in nested] == [
        "type", "plugin.version", "regex", "replacement", "negate", "predicate",
    ]  # fmt: skip
    assert "Transforms: a" in infos["groups"]


async def test_transforms_predicates_and_converters_have_definitions_too(ask: Asking) -> None:
    """Each class that is listed; they are not validated by themselves, as in Connect."""
    listed = (await ask("GET", "/connector-plugins?connectorsOnly=false")).json
    keys = {one["class"]: (await ask("GET", f"/connector-plugins/{one['class']}/config")).json for one in listed}
    router = (await ask("GET", "/connector-plugins/RegexRouter/config")).json
    unknown = await ask("GET", "/connector-plugins/RegxRouter/config")
    alone = await ask("PUT", "/connector-plugins/RegexRouter/config/validate", {"regex": "a", "replacement": "b"})

    assert all(isinstance(found, list) and all(one["documentation"] for one in found[:1]) for found in keys.values())
    assert [one["name"] for one in router] == ["regex", "replacement"]
    assert (unknown.status, alone.status) == (404, 400)
    assert unknown.json["message"] == "Unknown plugin RegxRouter; did you mean RegexRouter?"


async def test_a_form_gets_defaults_and_no_masks(ask: Asking) -> None:
    """What Connect's client takes if nothing is set is no secret; what is set may be one."""
    sent = {"source.cluster.ssl.truststore.password": "hush", "sasl.jaas.config": "hush", "transforms": " "}
    infos = (await ask("PUT", _VALIDATE, {**NORTH, **sent})).json
    values = {one["value"]["name"]: one["value"]["value"] for one in infos["configs"]}

    assert (values["ssl.protocol"], values["sasl.kerberos.kinit.cmd"]) == ("TLSv1.3", "/usr/bin/kinit")
    assert values["sasl.jaas.config"] == "***"
    assert "hush" not in str(infos)


async def test_views_name_connectors_as_they_were_created(ask: Asking) -> None:
    """A flow's task groups have the names of their connectors; one without a connector has none."""
    await ask("DELETE", f"/connectors/{NAME}")
    await ask("POST", "/connectors", {"name": "north", "config": {**CONNECTOR, "name": "north"}})
    [flow] = ask.node.shown.flows
    assert ask.node.worker is not None
    shown = ask.node.worker.named(flow)

    assert [group.name for group in shown.groups] == ["north", "", ""]
    assert [group.connector for group in shown.groups] == [group.connector for group in flow.groups]
