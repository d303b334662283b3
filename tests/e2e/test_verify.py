"""``mm2py verify`` as a user runs it, on real Spark."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.java import run_tool
from tests.support.brokers import GUARDED, MakeCluster
from tests.support.commands import run_mm2py
from tests.support.mm2_file import mm2_properties
from tests.support.planting import copy_with
from tests.support.producing import produce
from tests.support.records import plain_records
from tests.support.topics import create_topic


_ACL_TOOL = "org.apache.kafka.tools.AclCommand"


async def _verify(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await run_mm2py("verify", file, "A->B", *arguments, env={"COLUMNS": "200"})


def _file(tmp_path: Path, source: str, target: str, topics: str, **keys: object) -> Path:
    file = tmp_path / "mm2.properties"
    file.write_text(mm2_properties(source, target, topics=topics, **keys))
    return file


async def _two_topics(source: str, target: str, prefix: str) -> None:
    """Make a topic whose copy is sound and one whose copy lacks a record."""
    for topic, plants in ((f"{prefix}-sound", {}), (f"{prefix}-lacking", {0: (777, lambda records: records[1:])})):
        await create_topic(source, topic)
        await create_topic(target, f"A.{topic}")
        await produce(source, topic, [plain_records(5_000)], codec="lz4", batch_records=500, batch_bytes=200_000)
        await copy_with(source, topic, target, f"A.{topic}", plants)


async def test_its_exit_codes_and_what_it_prints(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """0 for equal, 1 for different, 2 if it could not tell; a table for people, JSON for programs."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await _two_topics(source, target, prefix)
    await create_topic(source, f"{prefix}-alone")
    file = _file(tmp_path, source, target, f"{prefix}.*")
    nowhere = tmp_path / "nowhere.properties"
    nowhere.write_text(mm2_properties(source, "127.0.0.1:1", topics="x"))
    sound = await _verify(file, "--topics", f"{prefix}-sound", "--json")
    both = await _verify(file, "--topics", f"{prefix}-sound,{prefix}-lacking")
    # These need no Spark.
    async with asyncio.TaskGroup() as tasks:
        asked = [
            tasks.create_task(_verify(file, "--topics", f"{prefix}-alone")),
            tasks.create_task(_verify(file, "--topics", f"{prefix}-soundd")),
            tasks.create_task(_verify(nowhere)),
        ]
    alone, misspelt, away = (it.result() for it in asked)

    assert sound.returncode == 0, sound
    report = json.loads(sound.stdout)
    assert report["verdict"] == "equal"
    assert report["counts"]["equal"] == 5_000
    assert report["batches_opened"] == 0
    assert both.returncode == 1, both
    assert "upstream offset 500 is missing at downstream offset 500" in both.stdout
    assert "A->B: different. 9,999 records equal, 1 different" in both.stdout
    assert "comparing …" in both.stderr
    assert (alone.returncode, misspelt.returncode, away.returncode) == (2, 2, 2)
    assert f"cluster B has no topic A.{prefix}-alone" in alone.stdout
    assert f"did you mean {prefix}-sound" in misspelt.stderr
    assert "cluster B does not answer at 127.0.0.1:1" in away.stderr


async def test_a_reader_without_rights_is_told_what_to_grant(
    primary: KafkaCluster, make_cluster: MakeCluster, prefix: str, tmp_path: Path
) -> None:
    """If the target denies reading, the verdict is that it cannot tell, and the message names the missing right."""
    guarded = make_cluster("guarded", properties=GUARDED)
    source, target = primary.bootstrap_servers, guarded.bootstrap_servers
    await create_topic(source, prefix)
    await create_topic(target, f"A.{prefix}")
    await produce(source, prefix, [plain_records(100)])
    await copy_with(source, prefix, target, f"A.{prefix}", {})
    acl = ("--bootstrap-server", target, "--force", "--add", "--topic", f"A.{prefix}")
    # With one ACL for it, a topic is no longer open to every principal.
    await asyncio.to_thread(run_tool, _ACL_TOOL, *acl, "--allow-principal", "User:ANONYMOUS", "--operation", "Describe")
    ended = await _verify(_file(tmp_path, source, target, prefix))

    assert ended.returncode == 2, ended
    assert f"grant User:ANONYMOUS READ on topic A.{prefix}" in ended.stdout, ended
