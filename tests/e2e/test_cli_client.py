"""``mm2py status`` and ``mm2py flow`` against a running daemon, as people type them and as scripts read them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import pytest

from mm2py.cli.exit_code import ExitCode
from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.ports import HOST, free_ports
from mm2py.devkit.process import start_process
from tests.support.certificates import Authority
from tests.support.daemon import Daemon, shared_daemon
from tests.support.eventually import eventually, scaled
from tests.support.mirrored import arrived, await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce_numbers
from tests.support.topics import create_topic, delete_topic


ROOT = Path(__file__).parents[2]
_COUNT = 300
_ALIASES = ("cliA", "cliB")
_FLOW = "cliA->cliB"
_ORDERS, _BILLS, _AGAIN = "cli-orders", "cli-bills", "again-cli"
_READER, _WRITER = "reads-" + "x" * 32, "writes-" + "x" * 32
#: The first word of each row of a table; heads are in capitals.
_FIRST_WORD = re.compile(r"^(\S+)", re.MULTILINE)


@attrs.frozen
class Client:
    """Types commands to one daemon; unless a test names a token, with the right to write."""

    daemon: Daemon
    http: str
    https: str
    authority: Path
    source: str
    target: str

    def type(self, *words: str, token: str | None = _WRITER, url: str = "") -> subprocess.CompletedProcess[str]:
        """Run ``mm2py …``; return what it printed and its exit code."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("MM2PY_")}
        env |= {"PYTHONPATH": str(ROOT), "MM2PY_URL": url or self.http}
        if token is not None:
            env["MM2PY_TOKEN"] = token
        line = [sys.executable, "-m", "mm2py", *words]
        return subprocess.run(line, env=env, check=False, capture_output=True, text=True, timeout=scaled(60))

    def flow(self, *words: str) -> str:
        """Run ``mm2py flow cliA->cliB …``, which must succeed; return what it printed."""
        done = self.type("flow", _FLOW, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.flow(*words, "--json"))


@pytest.fixture(scope="module")
def client(primary: KafkaCluster, backup: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One daemon for all of these, that wants tokens and listens to http and https."""
    directory = tmp_path_factory.mktemp("cli")
    http, https = free_ports(2)
    authority = Authority()
    (directory / "authority.pem").write_text(authority.pem)
    authority.sign("rest", HOST, "localhost").write_pem(directory / "rest.pem")
    properties = mm2_properties(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        aliases=_ALIASES,
        **{
            "topics": "cli-.*, again-cli",
            "topics.exclude": "cli[AB].*",
            "copy.epoch.ms": 1000,
            "cliB.offset.flush.interval.ms": 1000,
            "listeners": f"http://{HOST}:{http}, https://{HOST}:{https}",
            "listeners.https.ssl.keystore.type": "PEM",
            "listeners.https.ssl.keystore.location": directory / "rest.pem",
            "rest.auth.read.tokens": _READER,
            "rest.auth.write.tokens": _WRITER,
        },
    )
    asyncio.run(_fill(primary.bootstrap_servers))
    with shared_daemon(directory, properties) as running:
        asyncio.run(_await_copied(backup.bootstrap_servers))
        yield Client(
            running,
            http=f"http://{HOST}:{http}",
            https=f"https://{HOST}:{https}",
            authority=directory / "authority.pem",
            source=primary.bootstrap_servers,
            target=backup.bootstrap_servers,
        )


async def _fill(source: str) -> None:
    for topic in (_ORDERS, _BILLS):
        await create_topic(source, topic, partitions=2)
        await produce_numbers(source, topic, count=_COUNT, partitions=2)


async def _await_copied(target: str) -> None:
    for topic in (_ORDERS, _BILLS):
        await await_arrived(target, f"cliA.{topic}", _COUNT, within_s=180)


async def test_status(client: Client) -> None:
    """A healthy node is shown as healthy, in a table and by the exit code; --json prints the daemon's answer."""

    def healthy() -> bool:
        return client.type("status", "--check").returncode == ExitCode.OK

    await eventually(healthy, within_s=60, what="the node is healthy", every_s=1)
    table, plain = client.type("status").stdout, json.loads(client.type("status", "--json").stdout)

    assert _FLOW in _FIRST_WORD.findall(table)
    assert "\x1b" not in table
    assert {flow["flow"]: flow["state"] for flow in plain["flows"]}[_FLOW] == "running"


async def test_nodes_and_a_drain(client: Client) -> None:
    """A node that is alone is shown with all tasks; a drain says that no other node can take them, and is ended."""
    table, plain = client.type("nodes").stdout, json.loads(client.type("nodes", "--json").stdout)
    drained = client.type("node", "drain").stdout
    undrained = client.type("node", "undrain")
    refused = client.type("node", "drain", token=_READER)
    await eventually(
        lambda: client.type("status", "--check").returncode == ExitCode.OK,
        within_s=60,
        what="it copies again",
        every_s=1,
    )

    ((this,),) = [plain[_FLOW]]
    assert (this["is_this"], this["is_owner"], this["answers"]) == (True, True, True)
    assert this["worker_id"] in table
    assert f"no other node can take tasks of {_FLOW}" in drained
    assert "takes part" in undrained.stdout
    assert refused.returncode != ExitCode.OK


async def test_a_flow_and_what_belongs_to_it(client: Client) -> None:
    """A flow's page names its clusters and connectors; its topics are searched; its offsets have Connect's shape."""

    def with_positions() -> bool:
        return {entry["partition"]["topic"] for entry in client.json("offsets")["offsets"]} == {_ORDERS, _BILLS}

    words = _FIRST_WORD.findall(client.flow())
    topics = client.json("topics", "--search", "bill")
    await eventually(with_positions, within_s=30, what="both topics have positions", every_s=0.5)

    assert {"cliA", "cliB", "MirrorSourceConnector", "MirrorCheckpointConnector"} <= set(words)
    assert [topic["topic"] for topic in topics["topics"]] == [_BILLS]
    assert _FIRST_WORD.findall(client.flow("topics", "--sort", "lag"))[0] == "TOPIC"
    assert client.flow("groups")


async def test_a_topic_is_paused_and_resumed(client: Client) -> None:
    """What is written to a paused topic waits, and is copied once it is resumed; others go on."""
    before = await arrived(client.target, f"cliA.{_ORDERS}")
    client.flow("pause", "--topic", _ORDERS)

    def paused() -> bool:
        return {topic["topic"]: topic["stage"] for topic in client.json("topics")["topics"]}[_ORDERS] == "paused"

    await eventually(paused, within_s=30, what="the topic is paused", every_s=0.5)
    others = await arrived(client.target, f"cliA.{_BILLS}")
    for topic in (_ORDERS, _BILLS):
        await produce_numbers(client.source, topic, count=10, partitions=2)
    await await_arrived(client.target, f"cliA.{_BILLS}", others + 10)
    while_paused = await arrived(client.target, f"cliA.{_ORDERS}")
    listed = client.flow()
    client.flow("resume", "--topic", _ORDERS)
    await await_arrived(client.target, f"cliA.{_ORDERS}", before + 10)

    assert while_paused == before
    assert f"topic {_ORDERS}" in listed
    assert "Overrides" not in client.flow()


def test_limits(client: Client) -> None:
    """A limit is set with a unit, shown, set for a topic alone, and taken away."""
    client.flow("limit", "--bytes-per-s", "10M")
    client.flow("limit", "--topic", _BILLS, "--records-per-s", "5k")
    shown = client.flow("limit")
    client.flow("limit", "--none")
    client.flow("limit", "--none", "--topic", _BILLS)

    assert "10.0 MB/s" in shown
    assert "5,000 records/s" in shown
    assert client.json("limit")["limit"] == {"bytes_per_s": None, "records_per_s": None}


async def test_settings_change_while_it_runs(client: Client) -> None:
    """A setting counts within seconds, is shown beside the file's, and is taken back; problems come all at once."""
    bad = client.type("flow", _FLOW, "config", "set", "tasks.max=many", "no.such.key=1")
    client.flow("config", "set", f"topics={_BILLS}")

    def only_bills() -> bool:
        return [topic["topic"] for topic in client.json("topics")["topics"]] == [_BILLS]

    await eventually(only_bills, within_s=60, what="only one topic is mirrored", every_s=0.5)
    shown = client.flow("config", "get", "topics")
    client.flow("config", "revert")

    def both() -> bool:
        return len(client.json("topics")["topics"]) == 2

    await eventually(both, within_s=60, what="both topics are mirrored again", every_s=0.5)
    assert bad.returncode == ExitCode.FAILED
    assert "tasks.max" in bad.stderr
    assert "no.such.key" in bad.stderr
    assert shown.splitlines()[0] == "Set while it runs"
    assert "cli-.*" in shown


async def test_events_are_followed(client: Client, tmp_path: Path) -> None:
    """`events --follow` prints what other clients do as it happens, and each event once."""
    env = {"PYTHONPATH": str(ROOT), "MM2PY_URL": client.http, "MM2PY_TOKEN": _READER}
    line = [sys.executable, "-m", "mm2py", "flow", _FLOW, "events", "--follow"]
    following = start_process("follow", line, log_file=tmp_path / "events", env=env)
    try:
        recent = client.flow("events").count("flow_started")
        await eventually(
            lambda: following.log_text().count("flow_started") >= recent > 0, within_s=30, what="recent ones are shown"
        )
        started = following.log_text().count("flow_started")
        seen = following.log_text().count("topic_paused")
        client.flow("pause", "--topic", _BILLS)
        client.flow("resume", "--topic", _BILLS)
        await eventually(
            lambda: following.log_text().count("topic_paused") > seen, within_s=30, what="the new event is shown"
        )
        assert following.log_text().count("flow_started") == started
    finally:
        following.terminate()

    assert "Traceback" not in following.log_text()


def test_who_may_do_what(client: Client) -> None:
    """Without credentials nothing is shown; a reader sees all, and a refusal names the right that a change needs."""
    without, reader = client.type("status", token=None), client.type("status", token=_READER)
    refused = client.type("flow", _FLOW, "pause", token=_READER)

    assert (without.returncode, reader.returncode, refused.returncode) == (2, 0, 2)
    assert "MM2PY_TOKEN" in without.stderr
    assert "needs permission to write" in refused.stderr
    assert _READER not in refused.stderr


def test_https(client: Client) -> None:
    """A certificate is checked: its authority must be given, or the check switched off explicitly."""
    distrusted = client.type("status", url=client.https)
    trusted = client.type("status", "--cacert", str(client.authority), url=client.https)
    careless = client.type("status", "--insecure", url=client.https)

    assert (distrusted.returncode, trusted.returncode, careless.returncode) == (2, 0, 0)
    assert "--cacert" in distrusted.stderr


def test_a_daemon_that_is_not_there(client: Client) -> None:
    """The error is one line with a hint, without a traceback."""
    (port,) = free_ports(1)
    done = client.type("status", url=f"http://{HOST}:{port}")

    assert done.returncode == ExitCode.FAILED
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "connection refused" in done.stderr
    assert "--url" in done.stderr


async def test_a_stopped_partition_is_an_issue_everywhere(client: Client) -> None:
    """
    A topic is deleted and created again, which stops its partition: the command, REST and metrics all show it, and a
    hint; its lag is unknown. Following the hint while the mirror runs makes the node healthy again.
    """
    await create_topic(client.source, _AGAIN)
    await produce_numbers(client.source, _AGAIN, count=_COUNT, partitions=1)
    await await_arrived(client.target, f"cliA.{_AGAIN}", _COUNT, within_s=60)
    await delete_topic(client.source, _AGAIN)
    await create_topic(client.source, _AGAIN)
    await produce_numbers(client.source, _AGAIN, count=10, partitions=1)

    def unhealthy() -> subprocess.CompletedProcess[str] | None:
        done = client.type("status", "--check")
        is_told = f"partition {_AGAIN}-0 is stopped" in " ".join(done.stdout.split())
        return done if is_told and done.returncode == ExitCode.FAILED else None

    told = await eventually(unhealthy, within_s=90, what="the partition is stopped", every_s=1)
    answers = {
        path: await _get(client, path) for path in ("/health/ready", f"/from:{_FLOW.replace('->', '/to:')}/health")
    }
    metrics = await _get(client, "/metrics")
    [shown] = client.json("topics", "--search", _AGAIN)["topics"]
    client.flow("config", "set", "copy.on.source.recreated=earliest")
    await await_arrived(client.target, f"cliA.{_AGAIN}", _COUNT + 10, within_s=90)
    client.flow("config", "revert")

    def healthy() -> bool:
        return client.type("status", "--check").returncode == ExitCode.OK

    await eventually(healthy, within_s=90, what="the node is healthy again", every_s=1)

    assert f"{_FLOW}: partition {_AGAIN}-0 is stopped" in " ".join(told.stdout.split())
    assert f"mm2py flow '{_FLOW}' config set copy.on.source.recreated=earliest" in " ".join(told.stdout.split())
    assert {path: status for path, (status, _) in answers.items()} == dict.fromkeys(answers, 503)
    assert all(f"{_AGAIN}-0 is stopped" in text for _, text in answers.values())
    assert "\nmm2py_healthy 0\n" in metrics[1]
    assert (shown["stage"], shown["lag"], shown["lag_s"]) == ("stopped", None, None)


async def _get(client: Client, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {_READER}"}) as session,
        session.get(client.http + path) as answer,
    ):
        return answer.status, await answer.text()
