"""``mm2py offsets describe``, ``export``, ``import`` and ``reset`` on real brokers, and Mirus's offsets taken over."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs
import pytest

from mm2py.cli import main as command
from mm2py.cli.exit_code import ExitCode
from mm2py.clock import SystemClock
from mm2py.config.connectors import standalone_settings
from mm2py.config.settings import FlowSettings, load_settings
from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.ports import HOST
from mm2py.herder.connect_worker import read_worker_settings
from mm2py.herder.idle_flow import FlowRunsError, kept_idle
from mm2py.herder.this_node import this_node
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.connector_configs import config_record
from mm2py.model.mirus_offset import LineFormat, MirusOffset, read_line, read_record, write_line
from mm2py.model.positions import Position
from mm2py.model.positions_topic import PositionsTopic
from mm2py.model.state import FlowState
from mm2py.telemetry.events import ResumedExactly, ResumeUnproven
from tests.support.eventually import eventually
from tests.support.flows import running_flow
from tests.support.groups import member
from tests.support.java_programs import java_program
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce
from tests.support.reading import read_topic
from tests.support.records import MIDDLE_MS, NewRecord, assert_written, plain_records
from tests.support.topics import create_topic


@attrs.frozen
class Done:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


Type = Callable[..., Any]


@pytest.fixture
def offsets(capsys: pytest.CaptureFixture[str]) -> Type:
    """Run ``mm2py offsets …`` in this process, which is no terminal to it."""

    async def typed(*words: object) -> Done:
        capsys.readouterr()
        code = await asyncio.to_thread(command.main, ["offsets", *map(str, words)])
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return typed


@attrs.frozen
class Rig:
    """A flow of one topic, its file, and the two clusters."""

    file: Path
    settings: FlowSettings
    source: str
    target: str
    topic: str

    @property
    def remote_topic(self) -> str:
        return f"{self.settings.flow.source}.{self.topic}"

    async def positions(self) -> dict[int, Position]:
        """Read the positions as the flow would."""
        topic, stored = self.settings.source_connector.offset_storage.topic, PositionsTopic(self.settings.flow.source)
        for records in (await read_topic(self.target, topic)).values():
            for record in records:
                stored.take(record)
        return {source.partition: position for source, position in stored.positions.items()}


@pytest.fixture
def rig(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> Rig:
    alias, file = prefix[-6:], tmp_path / "mm2.properties"
    text = mm2_properties(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        aliases=(alias, "B"),
        topics=prefix,
        **{
            "copy.epoch.ms": 1000,
            "copy.drain.ms": 2000,
            "offset.storage.partitions": 3,
            "sync.topic.acls.enabled": "false",
        },
    )
    file.write_text(text)
    settings = next(flow for flow in load_settings(file).flows if flow.flow.source == alias)
    return Rig(file, settings, primary.bootstrap_servers, backup.bootstrap_servers, prefix)


def _table(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


async def _nothing_is_written(rig: Rig, offsets: Type, file: Path) -> None:
    """Try to import *file* while this node runs the flow."""
    refused = await offsets("import", rig.file, file)
    shown = await offsets("import", rig.file, file, "--dry-run")
    seen = await offsets("describe", rig.file)

    node = str(this_node())
    assert (refused.code, node in refused.err, "nothing" in refused.out) == (ExitCode.FAILED, True, False)
    assert (shown.code, node in shown.err, "dry run" in shown.out) == (ExitCode.OK, True, True)
    assert node in seen.out


async def _300_are_shown(rig: Rig, offsets: Type, tmp_path: Path) -> None:
    """Describe both partitions, which have 300 records each, also without the source."""
    alias = rig.settings.flow.source
    described = await offsets("describe", rig.file, f"{alias}->B", "--format", "json", "--partition", 1)
    alone = tmp_path / "without-source.properties"
    alone.write_text(rig.file.read_text().replace(rig.source, f"{HOST}:1"))
    known = await offsets("describe", alone, "--format", "csv")

    assert json.loads(described.out) == {
        "topic": rig.topic,
        "partition": 1,
        "position": 300,
        "source_start": 0,
        "source_end": 300,
        "lag": 0,
        "remote_topic": rig.remote_topic,
        "remote_end": 300,
    }
    assert [line.split(",")[:4] for line in known.out.splitlines()[1:]] == [
        [rig.topic, "0", "300", ""],
        [rig.topic, "1", "300", ""],
    ]
    assert f"cluster {alias} does not answer" in known.err


async def test_positions_go_to_a_file_and_back(
    rig: Rig, offsets: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    What is shown is where the flow stands; set back by a file, it copies again from there, and nothing else.

    While it runs nothing is written, and the one that runs it is named; a dry run never writes. A position that was
    altered has the producer's next epoch, as one altered through REST has.
    """
    records, file = list(plain_records(300)), tmp_path / "positions.csv"
    await create_topic(rig.source, rig.topic, partitions=2)
    await produce(rig.source, rig.topic, [records] * 2)
    alias = rig.settings.flow.source
    file.write_text(f"{alias},{rig.topic},0,250\n{alias},{rig.topic},1,300\n")
    async with running_flow(rig.settings, tmp_path) as running:
        await running.copied(600)
        await _nothing_is_written(rig, offsets, file)
        await running.drain()
    before = await rig.positions()
    await _300_are_shown(rig, offsets, tmp_path)
    exported = await offsets("export", rig.file, "--topics", f"{rig.topic},other.*")
    written = await offsets("import", rig.file, file)
    after = await rig.positions()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    again = await offsets("import", rig.file, "-")
    async with running_flow(rig.settings, tmp_path) as running:
        await running.copied(50)
        await running.drain()

    assert exported.out == f"{alias},{rig.topic},0,300\n{alias},{rig.topic},1,300\n"
    assert written.code == ExitCode.OK, written.err
    assert _table(written.out)[1] == [rig.topic, "0", "300", "250", "50", "0"]
    producer = before[0].producer
    assert producer is not None
    assert after == {
        0: attrs.evolve(
            before[0],
            next_upstream=250,
            leader=None,
            producer=attrs.evolve(producer, producer_epoch=producer.producer_epoch + 1, sequence=0),
        ),
        1: before[1],
    }
    assert (again.code, "nothing changes" in again.out) == (ExitCode.OK, True)
    assert_written([records + records[250:], records], await read_topic(rig.target, rig.remote_topic))
    assert not running.events.of(ResumeUnproven)


async def test_a_node_waits_while_positions_are_written(rig: Rig, tmp_path: Path) -> None:
    """One that starts meanwhile stands by, and copies once the command has left; a second command is refused."""
    await create_topic(rig.source, rig.topic)
    await produce(rig.source, rig.topic, [list(plain_records(10))])
    async with kept_idle(rig.settings, SystemClock()):
        with pytest.raises(FlowRunsError, match=str(this_node())):
            async with kept_idle(rig.settings, SystemClock()):
                pass
        async with running_flow(rig.settings, tmp_path) as waiting:
            await eventually(
                lambda: waiting.runner.view().state is FlowState.STANDBY, within_s=20, what="the flow stands by"
            )
    async with running_flow(rig.settings, tmp_path) as running:
        await running.copied(10)
        await running.drain()

    assert waiting.runner.view().records == 0


async def test_one_wrong_line_refuses_all(rig: Rig, offsets: Type, tmp_path: Path) -> None:
    """Each wrong line is named with its file, and the right ones are not written either."""
    alias, file = rig.settings.flow.source, tmp_path / "positions.json"
    await create_topic(rig.source, rig.topic, partitions=2)
    await produce(rig.source, rig.topic, [list(plain_records(10))] * 2)
    lines = [(rig.topic, 0, 5), (rig.topic, 1, 11), (rig.topic, 2, 0), ("elsewhere", 0, 0), (rig.topic, 0, 6)]
    members = ("connectorId", "topic", "partition", "offset")
    content = "".join(json.dumps(dict(zip(members, (alias, *line), strict=True))) + "\n" for line in lines)
    file.write_text(content + "{\n")
    refused = await offsets("import", rig.file, file)
    shown = await offsets("describe", rig.file, "--format", "csv")

    assert refused.code == ExitCode.FAILED
    assert [line.partition(": ")[0] for line in refused.err.splitlines()] == [
        f"{file}:{number}" for number in (5, 6, 2, 3, 4)
    ]
    assert shown.out.splitlines()[1:] == [f"{rig.topic},{number},,0,10,,{rig.remote_topic},0" for number in (0, 1)]


async def test_a_reset_is_where_the_flow_begins(rig: Rig, offsets: Type, tmp_path: Path) -> None:
    """
    To a time, the end, the start, or no position: what is copied is what lies behind it.

    Without a terminal it has to be confirmed by an option.
    """
    records = list(plain_records(100))
    await create_topic(rig.source, rig.topic, partitions=3)
    await produce(rig.source, rig.topic, [records] * 3)
    unconfirmed = await offsets("reset", rig.file, "--to-latest", "--all-topics")
    misspelt = await offsets("reset", rig.file, "--to-latest", "--topics", rig.topic.upper(), "--yes")
    latest = await offsets("reset", rig.file, "--to-latest", "--all-topics", "--yes")
    timed = await offsets(
        "reset", rig.file, "--to-datetime", MIDDLE_MS + 40, "--topics", rig.topic, "--partition", 1, "--yes"
    )
    dry = await offsets("reset", rig.file, "--remove", "--topics", rig.topic, "--dry-run")
    as_json = await offsets("reset", rig.file, "--to-latest", "--topics", rig.topic, "--dry-run", "--json")
    removed = await offsets("reset", rig.file, "--remove", "--topics", rig.topic, "--partition", 2, "--yes")
    positions = {number: position.next_upstream for number, position in (await rig.positions()).items()}
    async with running_flow(rig.settings, tmp_path) as running:
        await await_arrived(rig.target, rig.remote_topic, 160)
        await running.drain()
    earliest = await offsets("reset", rig.file, "--to-earliest", "--topics", rig.topic, "--partition", 0, "--yes")
    async with running_flow(rig.settings, tmp_path) as running:
        await running.copied(100)
        await running.drain()

    assert (unconfirmed.code, "--yes" in unconfirmed.err) == (ExitCode.BAD_ARGUMENTS, True)
    assert (misspelt.code, "mirrors none of the topics" in misspelt.err) == (ExitCode.FAILED, True)
    for done in (latest, timed, dry, as_json, removed, earliest):
        assert done.code == ExitCode.OK, done.err
    assert _table(latest.out)[1] == [rig.topic, "0", "-", "100", "0", "100"]
    assert _table(timed.out)[1] == [rig.topic, "1", "100", "40", "60", "0"]
    assert [row[3] for row in _table(dry.out)[1:4]] == ["none"] * 3
    assert json.loads(as_json.out) == {
        "flow": str(rig.settings.flow),
        "is_written": False,
        "refusal": None,
        "unchanged": 2,
        "positions": [{"topic": rig.topic, "partition": 1, "from": 40, "to": 100, "copied_again": 0, "skipped": 60}],
    }
    assert positions == {0: 100, 1: 40}
    assert_written([records, records[40:], records], await read_topic(rig.target, rig.remote_topic))


_MIRUS = """\
bootstrap.servers = {target}
group.id = {name}-workers
config.storage.topic = {name}-config
status.storage.topic = {name}-status
offset.storage.topic = {name}-offsets
status.storage.replication.factor = 1
offset.storage.replication.factor = 1
config.storage.replication.factor = 1
copy.epoch.ms = 1000
copy.drain.ms = 2000
"""


def _mirus_files(folder: Path, servers: tuple[str, str], name: str, topic: str) -> tuple[Path, Path, dict[str, str]]:
    """Write the files of a worker and of a connector; return them, and the connector's config."""
    source, target = servers
    worker, connector = folder / "worker.properties", folder / "mirus.json"
    worker.write_text(_MIRUS.format(target=target, name=name))
    body = {
        "name": name,
        "connector.class": "com.salesforce.mirus.MirusSourceConnector",
        "topics.whitelist": topic,
        "destination.topic.name.suffix": ".mirror",
        "consumer.bootstrap.servers": source,
        "consumer.client.id": "mirus",
        "replication.factor": "1",
    }
    connector.write_text(json.dumps(body))
    return worker, connector, body


async def _store_as_mirus(bootstrap: str, stored: str, name: str, topic: str) -> None:
    """Write offsets of the connector to the topic *stored*, and others that are not its own or cannot be read."""
    of_mirus = [(name, topic, 3, 20), (name, topic, 0, 100), (name, topic, 1, 200), (name, topic, 3, 60)]
    others = [("other", topic, 2, 150), (name, "gone", 0, 7)]
    records = [NewRecord(*_as_mirus_stores(*one), (), MIDDLE_MS) for one in (*of_mirus, *others)]
    await create_topic(bootstrap, stored, partitions=1)
    await produce(bootstrap, stored, [[*records, NewRecord(b"broken \x1b", b"", (), MIDDLE_MS)]])


@pytest.mark.parametrize("is_distributed", [False, True], ids=["standalone", "distributed"])
async def test_mirus_is_taken_over_where_it_stopped(
    both_clusters: dict[str, KafkaCluster], prefix: str, offsets: Type, tmp_path: Path, is_distributed: bool
) -> None:
    """
    Each record is there once, whatever Mirus copied after it last wrote its offsets.

    Partition 0 was killed between both; 1 ended in order, 2 was never begun, 3 has a newer offset than its first one.
    The topic also holds offsets of another connector, of a topic that is gone, and a record that cannot be read. While
    workers are left, it is refused.
    """
    primary, backup = (both_clusters[each].bootstrap_servers for each in ("primary", "backup"))
    name, topic = f"mirus-{prefix[-6:]}", prefix
    remote_topic, stored = f"{topic}.mirror", f"{name}-offsets"
    records = [list(plain_records(200, start=1_000 * number)) for number in range(4)]
    await create_topic(primary, topic, partitions=4)
    await produce(primary, topic, records)
    await create_topic(backup, remote_topic, partitions=4)
    await produce(backup, remote_topic, [records[0][:130], records[1][:200], [], records[3][:60]])
    await _store_as_mirus(backup, stored, name, topic)
    worker, connector, body = _mirus_files(tmp_path, (primary, backup), name, topic)
    files: tuple[Path | str, ...] = (worker, "--connector", connector)
    if is_distributed:
        files, kept = (worker,), f"{name}-config"
        await create_topic(backup, kept, partitions=1)
        await produce(backup, kept, [[NewRecord(*config_record(name, body), (), MIDDLE_MS)]])
    dry = await offsets("import", *files, "--from-mirus", stored, "--dry-run")
    async with member(backup, f"{name}-workers", remote_topic):
        refused = await offsets("import", *files, "--from-mirus", stored)
    done = await offsets("import", *files, "--from-mirus", stored)
    shown = await offsets("export", *files)
    imported = standalone_settings(worker, [connector])
    if is_distributed:
        imported = (await read_worker_settings(worker, SystemClock())).settings
    settings = imported.flows[0]
    async with running_flow(settings, tmp_path) as running:
        await await_arrived(backup, remote_topic, 800)
        await running.drain()

    assert done.code == ExitCode.OK, done.err
    assert (refused.code, refused.out) == (ExitCode.FAILED, "")
    assert f"is run by a group of protocol type consumer, at {HOST} (group {name}-workers)" in refused.err
    assert dry.out.replace("dry run: nothing was written", "written") == done.out
    assert [row[:4] for row in _table(done.out)[1:4]] == [
        [topic, "0", "-", "100"],
        [topic, "1", "-", "200"],
        [topic, "3", "-", "60"],
    ]
    assert "gone-0 is left out" in done.err
    assert f"{stored}-0, offset 6: it is not valid JSON" in done.err
    assert settings.source_connector.offset_storage.topic == (
        stored if is_distributed else f"mm2-offsets.{name}.internal"
    )
    assert shown.out.splitlines() == [f"{name},{topic},0,100", f"{name},{topic},1,200", f"{name},{topic},3,60"]
    assert_written(records, await read_topic(backup, remote_topic))
    resumed = {it.source: (it.records, it.position) for it in running.events.of(ResumedExactly)}
    assert resumed[TopicPartition(topic, 0)] == (30, 130)
    assert not running.events.of(ResumeUnproven)


async def test_lines_and_records_are_those_of_mirus_s_libraries() -> None:
    """Jackson and Connect's converter, set up as Mirus does it, write what we write and read what we read."""
    names = ("mirus", "a,b", 'say "x"', " spaced ", "größe", "#hash", "a;b'c", "tab\tb", "a\\b", "\U0001f600")
    each = [
        MirusOffset(name, TopicPartition("t.x-y_z", number), None if number == 3 else number)
        for number, name in enumerate(names)
    ]
    words = [
        (
            quote(one.connector),
            one.source.topic,
            str(one.source.partition),
            "" if one.offset is None else str(one.offset),
        )
        for one in each
    ]
    printed = await asyncio.to_thread(java_program("MirusOffsets").run, *itertools.chain(*words))
    of_each = [printed[at : at + 5] for at in range(0, len(printed), 5)]

    for one, (csv, json_line, read_back, key, value) in zip(each, of_each, strict=True):
        assert (write_line(one, LineFormat.CSV), write_line(one, LineFormat.JSON)) == (csv, json_line)
        assert read_line(csv, LineFormat.CSV) == read_line(read_back, LineFormat.JSON) == one
        assert read_record(key.encode(), value.encode()) == one
    assert _as_mirus_stores("mirus", "t.x-y_z", 0, 0) == (printed[3].encode(), printed[4].encode())


def _as_mirus_stores(connector: str, topic: str, partition: int, offset: int) -> tuple[bytes, bytes]:
    """Return key and value as Connect's JsonConverter writes them for Mirus."""
    key = f'["{connector}",{{"topic":"{topic}","partition":{partition}}}]'
    return key.encode(), f'{{"offset":{offset}}}'.encode()
