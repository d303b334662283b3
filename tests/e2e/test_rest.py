"""REST and page of a daemon between real clusters: every address, the effect of changes, and what a browser shows."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import aiohttp
import attrs
import jsonschema_rs
import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.rest.app import ROUTES, openapi
from mm2py.rest.route import Route
from tests.support.browser import chromium, looking
from tests.support.daemon import Daemon, shared_daemon
from tests.support.eventually import eventually
from tests.support.mirrored import assert_mirrored, await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import numbered_stream, produce_numbers
from tests.support.rest_asking import path_of
from tests.support.rest_fuzz import fuzz
from tests.support.soaking import rounds
from tests.support.topics import create_topic


_COUNT = 1_000
_ALIASES = ("restA", "restB")
_FLOW = "/from:restA/to:restB"
_SOURCE = f"{_FLOW}/connectors/MirrorSourceConnector"
_TOPIC, _OTHER, _SEEN = "rest-orders", "rest-invoices", "rest-seen"
_PARTS = {
    "source": "restA",
    "target": "restB",
    "cluster": "restA",
    "connector": "MirrorSourceConnector",
    "plugin": "MirrorSourceConnector",
    "topic": _TOPIC,
    "partition": "0",
    "task": "0",
    "group": "rest-readers",
    "logger": "root",
    "name:.+": "index.html",
}
_TOKEN, _READER = "do-" + "x" * 32, "see-" + "x" * 32
_SCHEMA_COMPONENTS = openapi()


@attrs.frozen
class Running:
    """A daemon that runs, and how to ask it."""

    daemon: Daemon
    url: str

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status and the JSON of an answer, or None if it has no body."""
        headers = {"Authorization": f"Bearer {_TOKEN}"}
        async with (
            aiohttp.ClientSession(self.url, headers=headers) as session,
            session.request(method, path, json=body) as answer,
        ):
            text = await answer.text()
            is_json = answer.content_type == "application/json" and text
            return answer.status, json.loads(text) if is_json else text or None


def _properties(primary: KafkaCluster, backup: KafkaCluster, **keys: object) -> str:
    settings: dict[str, Any] = {
        "topics": "rest-.*",
        "topics.exclude": "rest-.*-excluded, rest[AB].*",
        "groups": "rest-.*",
        "tasks.max": 2,
        "copy.epoch.ms": 1000,
        "emit.heartbeats.enabled": "true",
        "emit.checkpoints.interval.seconds": 1,
        "rest.auth.write.tokens": _TOKEN,
        "rest.auth.read.tokens": _READER,
        **keys,
    }
    return mm2_properties(primary.bootstrap_servers, backup.bootstrap_servers, aliases=_ALIASES, **settings)


async def _url_of(running: Daemon) -> str:
    return str((await running.wait_for_event("rest_listening"))["url"])


async def _fill(primary: KafkaCluster, backup: KafkaCluster) -> None:
    for topic in (_TOPIC, _OTHER):
        await create_topic(primary.bootstrap_servers, topic, partitions=2)
        await produce_numbers(primary.bootstrap_servers, topic, count=_COUNT, partitions=2)
    await create_topic(primary.bootstrap_servers, _SEEN, partitions=2)


async def _ready(running: Running, primary: KafkaCluster, backup: KafkaCluster) -> None:
    for topic in (_TOPIC, _OTHER):
        await assert_mirrored(primary.bootstrap_servers, topic, backup.bootstrap_servers, f"restA.{topic}", _COUNT)

    async def is_ready() -> bool:
        status, _ = await running.ask("GET", "/health/ready")
        return status == 200

    await eventually(is_ready, within_s=60, what="the node is ready")


@pytest.fixture(scope="module")
def running(primary: KafkaCluster, backup: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One daemon for all tests of this file that leave it alive, with two topics mirrored."""
    asyncio.run(_fill(primary, backup))
    with shared_daemon(tmp_path_factory.mktemp("rest"), _properties(primary, backup)) as started:
        found = Running(started, asyncio.run(_url_of(started)))
        asyncio.run(_ready(found, primary, backup))
        yield found


def _judge(route: Route, status: int, body: object) -> None:
    """Validate an answer against the OpenAPI document."""
    path = re.sub(r"\{(\w+):[^}]*\}", r"{\1}", route.path)
    described = _SCHEMA_COMPONENTS["paths"][path][route.method.lower()]["responses"][str(status)]
    schema = described.get("content", {}).get("application/json", {}).get("schema")
    if schema is not None and isinstance(body, dict | list):
        jsonschema_rs.validator_for({**schema, "components": _SCHEMA_COMPONENTS["components"]}).validate(body)


_READING = [route for route in ROUTES if route.method == "GET" and route.path not in {"/stream", "/openapi.json"}]


async def test_every_address_shows_something(running: Running) -> None:
    """
    Each GET answers 200 with what the document describes; only the group is unknown, as none has committed yet, and
    the node is no Connect worker; its health is asked for as that of one.
    """
    found = {}
    for route in _READING:
        status, body = await running.ask("GET", path_of(route, _PARTS))
        found[route.path] = status
        _judge(route, status, body)

    missing = {_FLOW_GROUP, *(route.path for route in _READING if route.tag == "worker")} - {"/health"}
    assert {path: status for path, status in found.items() if status != 200} == dict.fromkeys(missing, 404)


_FLOW_GROUP = "/from:{source}/to:{target}/groups/{group}"


async def test_connect_s_verbs_change_what_the_flow_does(running: Running) -> None:
    """Pause, resume, stop, restart and delete answer as Connect does, and its status follows within seconds."""
    seen = []

    async def follows(state: str) -> None:
        async def is_so() -> bool:
            status, body = await running.ask("GET", f"{_SOURCE}/status")
            return status == 200 and body["connector"]["state"] == state

        await eventually(is_so, within_s=30, what=f"the connector is {state}")

    for method, verb, answer, state in (
        ("PUT", "pause", 202, "PAUSED"),
        ("PUT", "resume", 202, "RUNNING"),
        ("POST", "restart?includeTasks=true&onlyFailed=false", 202, "RUNNING"),
        ("POST", "restart", 204, "RUNNING"),
        ("POST", "tasks/0/restart", 204, "RUNNING"),
        ("PUT", "stop", 204, "STOPPED"),
    ):
        lives = _lives(running)
        status, _ = await running.ask(method, f"{_SOURCE}/{verb}")
        seen.append((verb, status, answer))
        if "includeTasks" in verb:  # until it has ended its tasks, it is running
            await eventually(lambda since=lives: _lives(running) > since, within_s=30, what="it begins again")  # type: ignore[misc]
        await follows(state)
    stopped, offsets = await running.ask("GET", f"{_SOURCE}/offsets")
    _, tasks = await running.ask("GET", f"{_SOURCE}/tasks")
    deleted, _ = await running.ask("DELETE", _SOURCE)
    listed = await running.ask("GET", f"{_FLOW}/connectors")
    gone, _ = await running.ask("GET", f"{_SOURCE}/status")
    created, _ = await running.ask("PUT", f"{_SOURCE}/config", {})
    await follows("RUNNING")

    assert [verb for verb, status, answer in seen if status != answer] == []
    assert stopped == 200
    assert {one["partition"]["topic"] for one in offsets["offsets"]} >= {_TOPIC, _OTHER}
    assert tasks == []
    assert (deleted, gone, created) == (204, 404, 201)
    assert "MirrorSourceConnector" not in listed[1]


def _lives(running: Running) -> int:
    return len(list(running.daemon.events("positions_read")))


async def test_offsets_are_altered_only_while_stopped(running: Running) -> None:
    """KIP-875: a running connector's offsets stay; altering needs a stop, and each problem of a body is named."""
    body = {"offsets": [{"partition": {"cluster": "restA", "topic": _OTHER, "partition": 0}, "offset": {"offset": 1}}]}
    refused, why = await running.ask("PATCH", f"{_SOURCE}/offsets", body)
    bad, problems = await running.ask("PATCH", f"{_SOURCE}/offsets", {"offsets": [{"partition": {}, "offset": {}}]})

    assert refused == 400
    assert "stop" in why["message"]
    assert bad == 400
    assert "topic is missing" in problems["message"]


async def test_records_are_seen_while_they_flow(primary: KafkaCluster, backup: KafkaCluster, running: Running) -> None:
    """After a log-in on the page, counts, rates and plots move while records arrive, without a reload."""
    async with chromium() as browser, looking(browser, running.url, expects=("401",)) as seen:
        await seen.open("#/flow/restA-%3ErestB/topics")
        await seen.sees("Log in")
        await seen.log_in(_READER)
        await seen.sees("Live", "header")
        await seen.sees(_SEEN, "table.topics")
        await seen.evaluate("window.wasHere = true")
        await seen.page.get_by_role("tab", name="Plots").click()
        copied = seen.page.locator(".tile", has_text="Copied").locator(".tile-value")

        async def moves() -> bool:
            before = await copied.inner_text()
            await seen.page.wait_for_timeout(1_500)
            return await copied.inner_text() != before

        async def is_fast() -> bool:
            return await seen.text(".tile-value") not in {"", "0/s"}

        source = primary.bootstrap_servers
        async with numbered_stream(source, _SEEN, count=1, partitions=2, rate=500, open_ended=True) as stream:
            await await_arrived(backup.bootstrap_servers, f"restA.{_SEEN}", 1_000)
            await eventually(moves, within_s=30, what="the count of copied records moves")
            await eventually(is_fast, within_s=30, what="the rate is not nothing")
            await stream.done()

        assert await seen.evaluate("window.wasHere") is True
        assert await seen.page.locator(".plot canvas").count() == 6
        await seen.keep_picture("daemon-flow")


@pytest.mark.soak
async def test_whatever_is_sent_the_answer_is_of_the_document(running: Running) -> None:
    """Requests of all kinds, to names that are there and to others, meet no bug and no undocumented answer."""
    names = {**_PARTS, "topic": "rest-invoices", "name": "index.html"}
    try:
        sent, wrong = await asyncio.to_thread(fuzz, running.url, names, token=_TOKEN, examples=rounds(1, soak=30))
    finally:
        await running.ask("DELETE", f"{_FLOW}/overrides")

    assert wrong == []
    assert sent >= 2 * (len(ROUTES) - 4), "a few are not asked: what never ends, or drains the node"
    assert not list(running.daemon.events("rest_failed"))
