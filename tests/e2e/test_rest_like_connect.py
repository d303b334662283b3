"""Kafka Connect itself and a running daemon, asked the same: our answers have its statuses and its fields."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.java import SERVER_FLAGS, JvmOptions
from mm2py.devkit.ports import free_ports
from mm2py.devkit.process import start_process
from tests.support.daemon import shared_daemon
from tests.support.eventually import eventually
from tests.support.mm2_file import mm2_properties


_NAME: Final = "MirrorHeartbeatConnector"
_ONE: Final = f"/connectors/{_NAME}"
_CLASS: Final = f"org.apache.kafka.connect.mirror.{_NAME}"
_WITHIN_S: Final = 120.0
_PARTITION: Final = {"sourceClusterAlias": "likeA", "targetClusterAlias": "likeB"}
_OFFSETS: Final = {"offsets": [{"partition": _PARTITION, "offset": {"offset": 0}}]}
#: How many keys each class takes.
_COUNTS: Final = {"Source": 118, "Checkpoint": 113, "Heartbeat": 102}
_STEPS: Final = "org.apache.kafka.connect.transforms."
_ROUTED: Final = {
    "name": "routed",
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "likeC",
    "target.cluster.alias": "likeD",
    "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "transforms": "route, mask",
    "transforms.route.type": f"{_STEPS}RegexRouter",
    "transforms.route.regex": r"likeC\.(.*)",
    "transforms.route.replacement": "$1",
    "transforms.route.plugin.version": "4.3.1",
    "transforms.mask.type": f"{_STEPS}MaskField$Value",
    "transforms.mask.fields": "name, address",
    "transforms.mask.predicate": "some",
    "transforms.mask.negate": "TRUE",
    "predicates": "some",
    "predicates.some.type": f"{_STEPS}predicates.TopicNameMatches",
    "predicates.some.pattern": ".*",
}
#: In place of a body: the connector's own config, to create it again.
_AGAIN: Final = "again"
#: What is asked of both, one after the other: method, path, body, and the connector's state that comes of it. To
#: restart a connector that is not there is left out: a standalone worker answers 500.
_QUESTIONS: Final[tuple[tuple[str, str, object, str], ...]] = (
    ("GET", "/", None, ""),
    ("GET", "/connectors", None, ""),
    ("GET", "/connectors?expand=status&expand=info", None, ""),
    ("GET", "/connectors?expand=nothing", None, ""),
    ("GET", _ONE, None, ""),
    ("GET", f"{_ONE}/status", None, ""),
    ("GET", f"{_ONE}/config", None, ""),
    ("GET", f"{_ONE}/tasks", None, ""),
    ("GET", f"{_ONE}/tasks/0/status", None, ""),
    ("GET", f"{_ONE}/tasks/7/status", None, ""),
    ("GET", f"{_ONE}/topics", None, ""),
    ("PUT", f"{_ONE}/topics/reset", None, ""),
    ("GET", "/connectors/nothing/status", None, ""),
    ("GET", "/connector-plugins", None, ""),
    ("GET", f"/connector-plugins/{_CLASS}/config", None, ""),
    ("GET", "/connector-plugins/RegexRouter/config", None, ""),
    ("GET", "/connector-plugins/ByteArray/config", None, ""),
    ("GET", "/connector-plugins/NoSuchRouter/config", None, ""),
    ("PUT", "/connector-plugins/RegexRouter/config/validate", {"connector.class": _CLASS, "name": _NAME}, ""),
    ("PUT", f"/connector-plugins/{_CLASS}/config/validate", {"connector.class": _CLASS, "name": _NAME}, ""),
    ("PUT", f"/connector-plugins/{_CLASS}/config/validate", {"connector.class": _CLASS, "name": "made-up"}, ""),
    ("PUT", f"/connector-plugins/{_CLASS}/config/validate", {"connector.class": "MirrorSourceConnector"}, ""),
    ("GET", "/health", None, ""),
    ("PATCH", f"{_ONE}/offsets", _OFFSETS, ""),
    ("DELETE", f"{_ONE}/offsets", None, ""),
    ("PUT", f"{_ONE}/pause", None, "PAUSED"),
    ("PUT", f"{_ONE}/resume", None, "RUNNING"),
    ("POST", f"{_ONE}/restart", None, "RUNNING"),
    ("POST", f"{_ONE}/restart?includeTasks=true", None, "RUNNING"),
    ("POST", f"{_ONE}/restart?onlyFailed=true", None, "RUNNING"),
    ("POST", f"{_ONE}/restart?includeTasks=true&onlyFailed=true", None, "RUNNING"),
    ("POST", f"{_ONE}/tasks/0/restart", None, "RUNNING"),
    ("PUT", f"{_ONE}/stop", None, "STOPPED"),
    ("POST", f"{_ONE}/restart", None, "STOPPED"),
    ("POST", f"{_ONE}/restart?onlyFailed=true", None, "STOPPED"),
    ("PATCH", f"{_ONE}/offsets", {"offsets": []}, ""),
    ("PATCH", f"{_ONE}/offsets", _OFFSETS, ""),
    ("DELETE", f"{_ONE}/offsets", None, ""),
    ("PUT", f"{_ONE}/resume", None, "RUNNING"),
    ("PUT", f"{_ONE}/config", {"name": "another"}, ""),
    ("PUT", "/connectors/nothing/pause", None, ""),
    ("DELETE", "/connectors/nothing", None, ""),
    ("DELETE", "/connectors", None, ""),
    ("DELETE", _ONE, None, ""),
    ("POST", "/connectors", _AGAIN, "STOPPED"),
    ("PUT", f"{_ONE}/resume", None, "RUNNING"),
)


@pytest.fixture
def connect(backup: KafkaCluster, tmp_path: Path) -> Iterator[str]:
    """Run a standalone Connect worker with MirrorMaker's heartbeat connector; yields its address."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
    worker = {
        "bootstrap.servers": backup.bootstrap_servers,
        "listeners": url,
        "key.converter": converter,
        "value.converter": converter,
        "offset.storage.file.filename": tmp_path / "offsets",
    }
    connector = {
        "name": _NAME,
        "connector.class": _CLASS,
        "source.cluster.alias": "likeA",
        "target.cluster.alias": "likeB",
        "source.cluster.bootstrap.servers": backup.bootstrap_servers,
        "target.cluster.bootstrap.servers": backup.bootstrap_servers,
        "heartbeats.topic.replication.factor": 1,
    }
    files = []
    for name, lines in (("worker", worker), ("connector", connector)):
        file = tmp_path / f"{name}.properties"
        file.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
        files.append(str(file))
    command = JvmOptions(heap_mb=256, flags=SERVER_FLAGS).command(
        "org.apache.kafka.connect.cli.ConnectStandalone", *files, scratch=tmp_path
    )
    process = start_process("Kafka Connect", command, log_file=tmp_path / "connect.log")
    try:
        yield url
    finally:
        process.kill()


@pytest.fixture
def mirror(primary: KafkaCluster, backup: KafkaCluster, tmp_path: Path) -> Iterator[str]:
    """Run a daemon; yields the address of its flow."""
    properties = mm2_properties(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        aliases=("likeC", "likeD"),
        **{"topics": "nothing", "emit.heartbeats.enabled": "true"},
    )
    with shared_daemon(tmp_path, properties) as running:
        url = asyncio.run(running.wait_for_event("rest_listening", within_s=60))["url"]
        yield f"{url}/from:likeC/to:likeD"


def _shape(value: object, name: str = "") -> object:
    """
    Return what an answer looks like: its fields and types, but not its values, and not the keys of a config.

    Of connectors by their names only the one that both have is compared. The list of problems of a refused config is
    ours alone.
    """
    if isinstance(value, dict):
        if name in {"config", "offset"} or "connector.class" in value:
            return "a map of texts"
        if _NAME in value:
            return {_NAME: _shape(value[_NAME])}
        if set(value) == {"topics"}:
            return "the topics it wrote to"
        # Versions of Connect differ in "order"; both are there.
        return {key: _shape(one, key) for key, one in sorted(value.items()) if key not in {"order", "problems"}}
    if isinstance(value, list):
        return [_shape(value[0])] if value else []
    return type(value).__name__ if value is not None else "str"


def _said(path: str, told: Any) -> object:
    """Return what tools read from an answer's values: which parts are restarted, and what is wrong with a name."""
    if "/restart?" in path:
        return [told["connector"]["state"], *(task["state"] for task in told["tasks"])]
    if path.endswith("/validate"):
        return [one["value"]["errors"] for one in told.get("configs", ()) if one["value"]["name"] == "name"]
    return None


def _told(text: str) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return "no JSON"


async def _answers(url: str) -> list[tuple[int, object, object]]:
    """Ask the questions; return status and shape of each answer, and what of its values counts."""
    found = []
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:

        async def is_now(state: str) -> bool:
            try:
                async with session.get(f"{url}{_ONE}/status") as answer:
                    assert answer.status == 200
                    status = await answer.json()
            except aiohttp.ClientError as error:
                raise AssertionError(error) from error
            # A connector that is stopped has no tasks.
            states = {status["connector"]["state"], *(task["state"] for task in status["tasks"])}
            assert states == {state}
            assert bool(status["tasks"]) == (state != "STOPPED")
            return True

        await eventually(partial(is_now, "RUNNING"), within_s=_WITHIN_S, what="the connector runs")
        async with session.get(f"{url}{_ONE}/config") as answer:
            again = {"name": _NAME, "config": await answer.json(), "initial_state": "stopped"}
        for method, path, body, state in _QUESTIONS:
            sent = again if body == _AGAIN else body
            async with session.request(method, f"{url}{path}", json=sent) as answer:
                told = _told(await answer.text())
                found.append((answer.status, _shape(told), _said(path, told)))
            if state:
                await eventually(partial(is_now, state), within_s=_WITHIN_S, what=f"the connector is {state}")
    return found


async def _definitions(url: str, plugins: Iterable[str]) -> dict[str, list[dict[str, object]]]:
    """Return what each class takes, in order, but for the words that describe it."""
    found = {}
    async with aiohttp.ClientSession() as session:
        for plugin in plugins:
            async with session.get(f"{url}/connector-plugins/{plugin}/config") as answer:
                found[plugin] = [_plain(one) for one in await answer.json()]
    return found


def _plain(definition: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in definition.items() if name not in {"documentation", "order"}}


async def _others(url: str) -> dict[str, object]:
    """Return transforms, predicates and converters, with their versions."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{url}/connector-plugins?connectorsOnly=false") as answer,
    ):
        return {one["class"]: one["version"] for one in await answer.json() if one["type"] not in {"source", "sink"}}


async def _validated(url: str, config: dict[str, str]) -> tuple[object, ...]:
    """Return what a config becomes: groups, and keys with definition and value. That a flow refuses it is left out: its
    transforms come from the file.
    """
    path = f"{url}/connector-plugins/MirrorSourceConnector/config/validate"
    async with aiohttp.ClientSession() as session, session.put(path, json=config) as answer:
        told = await answer.json()
    keys = [(_plain(one["definition"]), one["value"]["value"], one["value"]["visible"]) for one in told["configs"]]
    values = [one["value"] for one in told["configs"]]
    versions = [one["recommended_values"] for one in values if one["name"].endswith(".plugin.version")]
    return told["name"], told["groups"], keys, versions


async def _version(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/") as answer:
        return str((await answer.json())["version"])


async def test_answers_are_connect_s(connect: str, mirror: str) -> None:
    """To each question both give the same status, and bodies with the same fields of the same types; and each class has
    the same keys, with the same types, defaults and places.
    """
    theirs, ours = await _answers(connect), await _answers(mirror)
    # Tools judge by it what they may ask for.
    versions = [await _version(url) for url in (connect, mirror)]
    plugins = await _others(mirror)
    of_theirs, of_ours = [
        await _definitions(url, (*(f"Mirror{name}Connector" for name in _COUNTS), *plugins))
        for url in (connect, mirror)
    ]
    infos = [await _validated(url, _ROUTED) for url in (connect, mirror)]

    assert plugins == {name: version for name, version in (await _others(connect)).items() if name in plugins}
    assert {name: len(of_theirs[f"Mirror{name}Connector"]) for name in _COUNTS} == _COUNTS
    assert of_ours == of_theirs
    assert infos[1] == infos[0]
    asked = [f"{method} {path}" for method, path, _, _ in _QUESTIONS]
    assert versions[0] == versions[1]
    assert dict(enumerate(zip(asked, ours, strict=True))) == dict(enumerate(zip(asked, theirs, strict=True)))
