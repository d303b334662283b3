"""``mm2py verify`` as a user runs it, on real Spark."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import attrs

from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.java import run_tool
from tests.support.brokers import AUTHORIZED, MakeCluster
from tests.support.eventually import scaled
from tests.support.mm2_file import mm2_properties
from tests.support.planting import copy_with
from tests.support.producing import produce
from tests.support.records import plain_records
from tests.support.topics import create_topic


_ROOT = Path(__file__).parents[2]
_LIMIT_S = 240.0
_ACL_TOOL = "org.apache.kafka.tools.AclCommand"


@attrs.frozen
class Ended:
    """How a command ended."""

    code: int | None
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


async def _verify(file: Path, *arguments: str) -> Ended:
    """Run the command; one that takes too long fails with what it has printed."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mm2py", "verify", str(file), "A->B", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        cwd=file.parent,
    )
    try:
        printed = asyncio.ensure_future(process.communicate())
        done, _ = await asyncio.wait([printed], timeout=scaled(_LIMIT_S))
    finally:
        if process.returncode is None:
            process.kill()
    out, err = await printed
    assert done, f"not within {_LIMIT_S} s: {out.decode()}{err.decode()}"
    return Ended(process.returncode, out.decode(), err.decode())


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
    """0 for equal, 1 for different, 2 where it could not tell; a table for people, JSON for programs."""
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

    assert sound.code == 0, sound
    assert sound.report["verdict"] == "equal"
    assert sound.report["counts"]["equal"] == 5_000
    assert sound.report["batches_opened"] == 0
    assert both.code == 1, both
    assert "upstream offset 500 is missing at downstream offset 500" in both.out
    assert "A->B: different. 9,999 records equal, 1 different" in both.out
    assert "comparing …" in both.err
    assert (alone.code, misspelt.code, away.code) == (2, 2, 2)
    assert f"cluster B has no topic A.{prefix}-alone" in alone.out
    assert f"did you mean {prefix}-sound" in misspelt.err
    assert "cluster B does not answer at 127.0.0.1:1" in away.err


async def test_a_reader_without_rights_is_told_what_to_grant(
    primary: KafkaCluster, make_cluster: MakeCluster, prefix: str, tmp_path: Path
) -> None:
    """Where the target does not let us read, it cannot be told, and the words name the right that lacks."""
    guarded = make_cluster(
        "guarded", properties={**AUTHORIZED, "super.users": "User:admin", "allow.everyone.if.no.acl.found": "true"}
    )
    source, target = primary.bootstrap_servers, guarded.bootstrap_servers
    await create_topic(source, prefix)
    await create_topic(target, f"A.{prefix}")
    await produce(source, prefix, [plain_records(100)])
    await copy_with(source, prefix, target, f"A.{prefix}", {})
    acl = ("--bootstrap-server", target, "--force", "--add", "--topic", f"A.{prefix}")
    # With one rule for it, a topic is no longer everybody's.
    await asyncio.to_thread(run_tool, _ACL_TOOL, *acl, "--allow-principal", "User:ANONYMOUS", "--operation", "Describe")
    ended = await _verify(_file(tmp_path, source, target, prefix))

    assert ended.code == 2, ended
    assert f"grant User:ANONYMOUS READ on topic A.{prefix}" in ended.out, ended
