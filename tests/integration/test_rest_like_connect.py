"""Kafka Connect itself, asked the same: our answers have its statuses and its fields."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.java import SERVER_FLAGS, JvmOptions
from mm2py.devkit.ports import free_ports
from mm2py.devkit.process import start_process
from tests.support.eventually import eventually
from tests.support.rest_asking import Asking, asking


_NAME = "MirrorHeartbeatConnector"
_ONE = f"/connectors/{_NAME}"
_CLASS = f"org.apache.kafka.connect.mirror.{_NAME}"
_WITHIN_S = 120.0
#: What is asked of both, one after the other: method, path, body.
_QUESTIONS: tuple[tuple[str, str, object], ...] = (
    ("GET", "/", None),
    ("GET", "/connectors", None),
    ("GET", "/connectors?expand=status&expand=info", None),
    ("GET", _ONE, None),
    ("GET", f"{_ONE}/status", None),
    ("GET", f"{_ONE}/config", None),
    ("GET", f"{_ONE}/tasks", None),
    ("GET", f"{_ONE}/tasks/0/status", None),
    ("GET", f"{_ONE}/tasks/7/status", None),
    ("GET", f"{_ONE}/topics", None),
    ("PUT", f"{_ONE}/topics/reset", None),
    ("GET", "/connectors/nothing/status", None),
    ("GET", "/connector-plugins", None),
    ("GET", f"/connector-plugins/{_CLASS}/config", None),
    ("PUT", f"/connector-plugins/{_CLASS}/config/validate", {"connector.class": _CLASS, "name": _NAME}),
    ("GET", "/health", None),
    ("PUT", f"{_ONE}/pause", None),
    ("PUT", f"{_ONE}/resume", None),
    ("POST", f"{_ONE}/restart", None),
    ("POST", f"{_ONE}/restart?includeTasks=true", None),
    ("POST", f"{_ONE}/tasks/0/restart", None),
    ("PUT", f"{_ONE}/config", {"name": "another"}),
    ("DELETE", "/connectors/nothing", None),
    ("DELETE", "/status", None),
)
#: Where Connect says less well what it means: an address that it has not answers 404 before it looks at the method.
_OTHER_STATUS = {("DELETE", "/status"): (404, 404)}


@pytest.fixture
def connect(backup: KafkaCluster, tmp_path: Path) -> Iterator[str]:
    """A standalone Connect worker with MirrorMaker's heartbeat connector; gives its address."""
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


def _shape(value: object, name: str = "") -> object:
    """Give what an answer looks like: its fields and types, but not its values, and not the keys of a config."""
    if isinstance(value, dict):
        if name in {"config", "offset"} or "connector.class" in value:
            return "a map of texts"
        # Versions of Connect differ in this one; both are there.
        return {key: _shape(one, key) for key, one in sorted(value.items()) if key != "order"}
    if isinstance(value, list):
        return [_shape(value[0])] if value else []
    return type(value).__name__ if value is not None else "str"


async def _of_connect(url: str) -> dict[tuple[str, str], tuple[int, str]]:
    found = {}
    async with aiohttp.ClientSession(url) as session:

        async def is_up() -> bool:
            try:
                async with session.get(f"{_ONE}/status") as answer:
                    status = await answer.json()
                    return answer.status == 200 and bool(status["tasks"]) and status["tasks"][0]["state"] == "RUNNING"
            except aiohttp.ClientError:
                return False

        await eventually(is_up, within_s=_WITHIN_S, what="Connect runs the connector")
        for method, path, body in _QUESTIONS:
            async with session.request(method, path, json=body) as answer:
                found[method, path] = answer.status, await answer.text()
            await asyncio.sleep(0.5)  # it answers before it has done it, and refuses what comes meanwhile
    return found


def _told(text: str) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return "no JSON"


async def test_answers_are_connect_s(connect: str, tmp_path: Path) -> None:
    """To each question both give the same status, and bodies with the same fields of the same types."""
    ask: Asking = asking(tmp_path)
    theirs = await _of_connect(connect)
    different = {}
    for (method, path), (status, text) in theirs.items():
        body = next(body for one, other, body in _QUESTIONS if (one, other) == (method, path))
        got = await ask(method, f"/from:A/to:B{path}", body, Accept="application/json")
        if (method, path) in _OTHER_STATUS:
            if (status, got.status) != _OTHER_STATUS[method, path]:
                different[method, path] = (status, got.status)
            continue
        mine = (got.status, _shape(_told(got.text)))
        wanted = (status, _shape(_told(text)))
        if mine != wanted:
            different[method, path] = (wanted, mine)

    assert different == {}
