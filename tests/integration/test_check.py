"""``mm2py check`` at real clusters: what a mirror would meet, with and without rights."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mm2py.cli import check
from mm2py.cli.exit_code import ExitCode
from mm2py.connectors.reached import WITHIN_S
from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.ports import free_ports
from mm2py.model.flow import TopicPartition
from tests.support.certificates import Authority
from tests.support.eventually import scaled
from tests.support.groups import commit_plainly
from tests.support.mm2_file import COPY_ONLY, mm2_properties
from tests.support.secure_clusters import SecureCluster, scram_line, secure_cluster
from tests.support.topics import create_topic, list_topics


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    made = secure_cluster("secure", tmp_path_factory.mktemp("secure"), authority=Authority())
    with made.cluster:
        yield made


def written(folder: Path, source: str, target: str, alias: str, **keys: object) -> Path:
    path = folder / "mm2.properties"
    path.write_text(mm2_properties(source, target, aliases=(alias, "B"), **keys))
    return path


async def as_json(capsys: pytest.CaptureFixture[str], file: Path) -> tuple[int, dict[str, Any]]:
    code = await asyncio.to_thread(check.main, [str(file), "--json"])
    return code, json.loads(capsys.readouterr().out)


def texts(report: Mapping[str, Any], level: str) -> list[str]:
    found = [*report["findings"], *(finding for flow in report["flows"] for finding in flow["findings"])]
    return sorted(finding["text"] for finding in found if finding["level"] == level)


async def test_all_is_well_and_nothing_was_changed(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clusters, what matches by name, and the machine; not one topic or group is created for it."""
    source, target, alias = primary.bootstrap_servers, backup.bootstrap_servers, prefix[-6:]
    for topic in ("orders", "clicks"):
        await create_topic(source, f"{prefix}.{topic}", partitions=2)
    await create_topic(target, f"{alias}.{prefix}.orders", partitions=2)
    await commit_plainly(source, f"{prefix}-readers", {TopicPartition(f"{prefix}.orders", 0): 0})
    file = written(tmp_path, source, target, alias, topics=f"{prefix}.*", groups=f"{prefix}.*")
    before = await list_topics(target), await list_topics(source)
    code, report = await as_json(capsys, file)
    (flow,) = (flow for flow in report["flows"] if flow["is_enabled"])

    assert (code, report["findings"], flow["findings"]) == (0, [], [])
    assert (flow["flow"], flow["state"]) == (f"{alias}->B", "ready")
    assert (flow["topics"], flow["partitions"], flow["remote_topics"], flow["groups"]) == (2, 4, 1, 1)
    ids = [cluster["cluster_id"] for cluster in report["clusters"]]
    assert len(set(ids)) == 2
    assert all(ids)
    assert report["java"]
    assert (await list_topics(target), await list_topics(source)) == before


async def test_replicas_that_there_are_no_brokers_for(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each replication factor is named, with its topics and the number of brokers."""
    await create_topic(primary.bootstrap_servers, prefix)
    keys = {"topics": f"{prefix},{prefix}-none", "replication.factor": "2", "offset.storage.replication.factor": "3"}
    keys["status.storage.replication.factor"] = "3"
    file = written(tmp_path, primary.bootstrap_servers, backup.bootstrap_servers, prefix[-6:], **keys)
    code, report = await as_json(capsys, file)

    assert code == ExitCode.FAILED
    alias = prefix[-6:]
    assert texts(report, "error") == sorted([
        f"topic {alias}.{prefix} cannot be created: replication.factor is 2, B has 1 broker",
        (
            f"topics mm2-offsets.{alias}.internal, mm2-synced.{alias}.internal cannot be created: "
            "offset.storage.replication.factor is 3, B has 1 broker"
        ),
    ])  # fmt: skip
    of_nodes, unseen = sorted(texts(report, "warning"), reverse=True)
    assert of_nodes == (
        f"topic mm2-status.{alias}.internal cannot be created: status.storage.replication.factor is 3, B has 1 broker; "
        "only several nodes of the flow need it"
    )
    assert unseen.startswith(f"{alias} has no topic {prefix}-none, or does not let User:ANONYMOUS see it")


async def test_rights_that_are_missing(
    primary: KafkaCluster, secure: SecureCluster, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is named with its resource and what it is for, on topics that do not exist yet, too. With the rights of
    docs/security.md none is missing, and what brokers do not tell is called unknown.
    """
    source, alias, user = primary.bootstrap_servers, prefix[-6:], f"user-{prefix[-6:]}"
    await create_topic(source, prefix)
    await secure.set_password(user, "right-pw")
    login = secure.client_keys("SCRAM", sasl_jaas_config=scram_line(user, "right-pw"))
    keys = {f"B.{name}": value for name, value in login.items()}
    file = written(tmp_path, source, "y:1", alias, topics=prefix, **COPY_ONLY, **keys)
    none = await as_json(capsys, file)
    rights = "CREATE,DESCRIBE,READ,WRITE"
    copies, kept = f"topic {alias}. {rights},ALTER,DESCRIBE_CONFIGS", f"topic mm2-offsets.{alias}.internal {rights}"
    await secure.grant(f"User:{user}", copies, kept)
    some = await as_json(capsys, file)
    await secure.grant(f"User:{user}", f"topic mm2- {rights}", f"group {alias}-mm2 READ")
    enough = await as_json(capsys, file)

    remote, positions = f"topic {alias}.{prefix} of B", f"topic mm2-offsets.{alias}.internal of B"
    lacks = f"User:{user} lacks"
    assert [none[0], some[0], enough[0]] == [ExitCode.FAILED, ExitCode.OK, ExitCode.OK]
    assert {
        f"{lacks} CREATE on {remote}, for records",
        f"{lacks} READ, WRITE, DESCRIBE on {remote}, for records",
        f"{lacks} CREATE on {positions}, for positions",
        f"{lacks} READ, WRITE, DESCRIBE on {positions}, for positions",
    } == set(texts(none[1], "error"))
    assert f"{lacks} READ on group {alias}-mm2 of B, for sharing the flow between nodes" in texts(some[1], "warning")
    assert (texts(enough[1], "error"), texts(enough[1], "warning")) == ([], [])
    assert [text.partition(" on ")[2][:16] for text in texts(enough[1], "unknown")] == ["transactional id"]


async def test_what_is_away_hides_nothing_else(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cluster that refuses connections and one that stays silent have a line each, in time; other flows are ready."""
    source, alias = primary.bootstrap_servers, prefix[-6:]
    await create_topic(source, prefix)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        away = {
            "clusters": f"{alias}, B, gone, mute",
            "gone.bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}",
            "mute.bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}",
            "gone->mute.enabled": "true",
            "gone->B.enabled": "true",
        }
        file = written(tmp_path, source, backup.bootstrap_servers, alias, topics=prefix, **away)
        began = time.monotonic()
        code, report = await as_json(capsys, file)
        took_s = time.monotonic() - began
    states = {flow["flow"]: flow["state"] for flow in report["flows"] if flow["is_enabled"]}

    assert code == ExitCode.UNREACHABLE
    assert took_s < scaled(2 * WITHIN_S)
    assert states == {f"{alias}->B": "ready", "gone->B": "waits for gone", "gone->mute": "waits for gone and mute"}
    assert [(one["where"], one["level"]) for one in report["findings"]] == [
        ("gone", "unreachable"),
        ("mute", "unreachable"),
    ]


async def test_a_refused_login_is_something_to_correct(
    primary: KafkaCluster, secure: SecureCluster, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    login = secure.client_keys("SCRAM", sasl_jaas_config=scram_line("nobody", "wrong-pw"))
    keys = {f"B.{name}": value for name, value in login.items()}
    file = written(tmp_path, primary.bootstrap_servers, "y:1", prefix[-6:], topics=prefix, **keys)
    code = await asyncio.to_thread(check.main, [str(file)])
    shown = capsys.readouterr().out

    assert code == ExitCode.FAILED
    assert "User:nobody" in shown
    assert "wrong-pw" not in shown
