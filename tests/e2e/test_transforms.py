"""Topics with a transform are mirrored record by record, beside others that travel unopened, with the same promises."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import pytest

from mm2py.cli.exit_code import ExitCode
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import TopicPartition
from tests.support.checkpointing import checkpoints_in
from tests.support.commands import run_mm2py
from tests.support.daemon import Daemon, shared_daemon
from tests.support.eventually import eventually
from tests.support.groups import commit_plainly
from tests.support.mirrored import arrived, assert_mirrored, await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce, produce_numbers
from tests.support.reading import read_numbers, read_topic
from tests.support.records import MIDDLE_MS, NewRecord, Record
from tests.support.topics import create_topic, end_offsets, list_topics


_CONNECT = "org.apache.kafka.connect.transforms"
_COUNT = 30_000
_BAD = 15_000
_FEW = 2_000
#: Spark and its workers come up first, on a machine that other tests use too.
_LONG_S = 200.0


def _stages(running: Daemon, topic: str, flow: str) -> set[str]:
    return {view["stage"] for view in running.partition_views(topic, flow).values()}


@attrs.frozen
class _Mirror:
    """
    One daemon for the tests that only look at what it did.

    TF has statements, a function and a router; TC Connect's chain; TD lets bad records pass.
    """

    running: Daemon
    source: str
    target: str
    start: str
    file: Path

    def topic(self, name: str) -> str:
        return f"{self.start}-{name}"

    def remote(self, name: str, alias: str = "TF") -> str:
        return f"{alias}.{self.start}-{name}"

    async def ask(self, method: str, path: str, body: object = None) -> str:
        """Send a request to REST and give what it answers."""
        url = (await self.running.wait_for_event("rest_listening"))["url"].rstrip("/")
        async with aiohttp.ClientSession() as session, session.request(method, url + path, json=body) as answer:
            text = await answer.text()
            assert answer.status < 300, text
            return text

    async def type(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run ``mm2py …`` on the daemon's file."""
        return await run_mm2py(*words)


def _strange() -> list[NewRecord]:
    """Make records that a mask must leave alone but for digits: tombstones, headers, timestamps out of order."""
    headers = ((), (("a", b"1"), ("a", None)), (("é", b""),))
    return [
        NewRecord(
            None if number % 5 == 0 else b"key-%d" % number,
            None if number % 7 == 0 else b"value %d" % number,
            headers[number % 3],
            MIDDLE_MS + (number * 37) % 1_000,
        )
        for number in range(_FEW)
    ]


def _accounts() -> Iterator[NewRecord]:
    """Make JSON for Connect's chain; every fourth record is marked as debugging."""
    for number in range(_COUNT):
        value = {"number": number, "iban": f"DE{number:020}", "country": "DE", "note": "ä"}
        headers = (("debug", b"1"),) if number % 4 == 0 else (("kept", b"1"),)
        yield NewRecord(None, json.dumps(value).encode(), headers, MIDDLE_MS + number)


async def _prepare(source: str, start: str) -> None:
    for name, partitions in (
        ("filtered", 2),
        ("plain", 2),
        ("masked", 2),
        ("mask-strange", 1),
        ("broken", 1),
        ("wrong", 1),
        ("chain", 1),
    ):
        await create_topic(source, f"{start}-{name}", partitions=partitions)
    for name, partitions in (("filtered", 2), ("plain", 2), ("masked", 2), ("broken", 1)):
        await produce_numbers(source, f"{start}-{name}", count=_COUNT, partitions=partitions)
    await produce_numbers(source, f"{start}-wrong", count=_FEW, partitions=1)
    await produce(source, f"{start}-mask-strange", [_strange()])
    await produce(source, f"{start}-chain", [_accounts()], batch_bytes=65_536)


def _rules(start: str) -> dict[str, object]:
    breaks = f"IF(offset = {_BAD}, CAST(raise_error('no good') AS BINARY), value) AS value"
    return {
        "TF->B.topics": f"{start}-(filtered|plain|mask.*|broken|wrong)",
        f"TF->B.transform.{start}-filtered.sql": "SELECT * FROM records WHERE offset % 10 = 0",
        f"TF->B.transform.{start}-mask.*.function": "tests.support.transforms:masked",
        f"TF->B.transform.{start}-broken.sql": f"SELECT * EXCEPT (value), {breaks} FROM records",
        f"TF->B.transform.{start}-wrong.sql": "SELECT * EXCEPT (value), amount AS value FROM records",
        "TF->B.transforms": "route",
        "TF->B.transforms.route.type": f"{_CONNECT}.RegexRouter",
        "TF->B.transforms.route.regex": "(.*)-plain",
        "TF->B.transforms.route.replacement": "$1-routed",
        "TC->B.topics": f"{start}-chain",
        "TC->B.transforms": "noDebug, mask, rename, route",
        "TC->B.transforms.noDebug.type": f"{_CONNECT}.Filter",
        "TC->B.transforms.noDebug.predicate": "isDebug",
        "TC->B.transforms.mask.type": f"{_CONNECT}.MaskField$Value",
        "TC->B.transforms.mask.fields": "iban",
        "TC->B.transforms.rename.type": f"{_CONNECT}.ReplaceField$Value",
        "TC->B.transforms.rename.exclude": "country",
        "TC->B.transforms.rename.renames": "number:id",
        "TC->B.transforms.route.type": f"{_CONNECT}.RegexRouter",
        "TC->B.transforms.route.regex": "(.*)-chain",
        "TC->B.transforms.route.replacement": "$1-accounts",
        "TC->B.predicates": "isDebug",
        "TC->B.predicates.isDebug.type": f"{_CONNECT}.predicates.HasHeaderKey",
        "TC->B.predicates.isDebug.name": "debug",
        "TD->B.topics": f"{start}-broken",
        "TD->B.transform.sql": f"SELECT * EXCEPT (value), {breaks} FROM records",
        "TD->B.errors.tolerance": "all",
        "TD->B.errors.deadletterqueue.topic.name": f"{start}-dead",
        "TD->B.errors.deadletterqueue.topic.replication.factor": "1",
        "TD->B.errors.deadletterqueue.context.headers.enable": "true",
    }


@pytest.fixture(scope="module")
def mirror(primary: KafkaCluster, backup: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Mirror]:
    start = f"transforms-{secrets.token_hex(3)}"
    asyncio.run(_prepare(primary.bootstrap_servers, start))
    others = {f"{alias}.bootstrap.servers": primary.bootstrap_servers for alias in ("TC", "TD")}
    keys = {
        "clusters": "TF, TC, TD, B",
        **others,
        "TC->B.enabled": "true",
        "TD->B.enabled": "true",
        "groups": f"{start}-.*",
        "emit.checkpoints.interval.seconds": 1,
        "copy.epoch.ms": 1000,
        "checkpoints.topic.replication.factor": 1,
        **_rules(start),
    }
    properties = mm2_properties(primary.bootstrap_servers, backup.bootstrap_servers, aliases=("TF", "B"), **keys)
    folder = tmp_path_factory.mktemp("transforms")
    with shared_daemon(folder, properties) as running:
        yield _Mirror(running, primary.bootstrap_servers, backup.bootstrap_servers, start, folder / "mm2.properties")


async def test_a_filter_drops_nine_of_ten(mirror: _Mirror) -> None:
    """Of 30 000 records those that the statement keeps arrive, in order; what is left out counts as read."""
    topic = mirror.topic("filtered")
    await await_arrived(mirror.target, mirror.remote("filtered"), _COUNT // 10, within_s=_LONG_S)
    await mirror.running.wait_for_positions(topic, "TF->B", [_COUNT // 2] * 2, within_s=_LONG_S)

    source = await read_numbers(mirror.source, topic)
    found = await read_numbers(mirror.target, mirror.remote("filtered"))
    assert found == {partition: numbers[::10] for partition, numbers in source.items()}
    views = mirror.running.partition_views(topic, "TF->B").values()
    assert [(view["records"], view["lag"]) for view in views] == [(_COUNT // 20, 0)] * 2


async def test_topics_without_a_transform_stay_unopened_and_are_routed(mirror: _Mirror) -> None:
    """A router names the remote topic, as the policy renames it; the batches are the source's."""
    await assert_mirrored(mirror.source, mirror.topic("plain"), mirror.target, mirror.remote("routed"), _COUNT)

    assert mirror.remote("plain") not in await list_topics(mirror.target)
    metrics = await mirror.ask("GET", "/metrics")
    (unopened,) = [
        float(line.split()[-1])
        for line in metrics.splitlines()
        if line.startswith("mm2py_flow_batches_total{") and '"unopened"' in line and '"TF"' in line
    ]
    assert unopened > 0


async def test_a_function_masks_values_and_nothing_else(mirror: _Mirror) -> None:
    """Keys, headers, timestamps and tombstones are the source's; digits in values are gone, of 30 000 others too."""
    await await_arrived(mirror.target, mirror.remote("mask-strange"), _FEW, within_s=_LONG_S)
    await await_arrived(mirror.target, mirror.remote("masked"), _COUNT, within_s=_LONG_S)

    found = (await read_topic(mirror.target, mirror.remote("mask-strange")))[0]
    wanted = [
        (record.key, record.value and re.sub(rb"[0-9]", b"x", record.value), record.headers, record.timestamp_ms)
        for record in _strange()
    ]
    assert [_plain(record) for record in found] == wanted
    masked = await read_topic(mirror.target, mirror.remote("masked"))
    assert {partition: len(records) for partition, records in masked.items()} == {0: _COUNT // 2, 1: _COUNT // 2}
    assert {record.value[:12] for records in masked.values() for record in records if record.value} == {b"x" * 12}


def _plain(record: Record) -> tuple[bytes | None, bytes | None, Any, int]:
    return record.key, record.value, record.headers, record.timestamp_ms


async def test_connects_chain_filters_masks_and_renames(mirror: _Mirror) -> None:
    """Of 30 000 JSON records each goes through all steps, under Java's names, to the router's topic."""
    wanted = [
        (None, {"id": number, "iban": "", "note": "ä"}, (("kept", b"1"),), MIDDLE_MS + number)
        for number in range(_COUNT)
        if number % 4
    ]
    remote = mirror.remote("accounts", "TC")
    await await_arrived(mirror.target, remote, len(wanted), within_s=_LONG_S)

    found = (await read_topic(mirror.target, remote))[0]
    assert [(it.key, json.loads(it.value or b""), it.headers, it.timestamp_ms) for it in found] == wanted


async def test_a_record_that_fails_stops_its_topic_at_it(mirror: _Mirror) -> None:
    """All records before it are mirrored once; an event has its place and the cause, and other topics go on."""
    topic = mirror.topic("broken")
    stopped = await mirror.running.wait_for_event("partition_stopped", within_s=_LONG_S, flow="TF->B", topic=topic)
    await await_arrived(mirror.target, mirror.remote("broken"), _BAD)

    assert stopped["offset"] == _BAD
    assert f"TF->B, {topic}-0, offset {_BAD}: transform.{topic}.sql fails" in stopped["message"]
    assert "no good" in stopped["message"]
    await eventually(lambda: _stages(mirror.running, topic, "TF->B") == {"stopped"}, within_s=10, what="it is stopped")
    assert (await read_numbers(mirror.target, mirror.remote("broken")))[0] == list(range(_BAD))


async def test_a_failure_is_told_once(mirror: _Mirror) -> None:
    """An event of ours reports why a transform failed; Spark's messages and its workers' stacks are not logged."""
    for flow, name in (("TF->B", "partition_stopped"), ("TD->B", "record_left_out")):
        await mirror.running.wait_for_event(name, within_s=_LONG_S, flow=flow, topic=mirror.topic("broken"))

    said = [event["line"] for event in mirror.running.events("spark_logged")]
    about_it = re.compile(r"no good|[Aa]bort|terminated|Traceback|BrokenPipe|^\s")
    assert [line for line in said if about_it.search(line)] == []


async def test_a_tolerated_record_goes_to_the_dead_letters(mirror: _Mirror) -> None:
    """All others are mirrored; the one that fails lies in the dead letters as it was, with Connect's headers."""
    topic = mirror.topic("broken")
    left_out = await mirror.running.wait_for_event("record_left_out", within_s=_LONG_S, flow="TD->B", topic=topic)
    await await_arrived(mirror.target, mirror.remote("broken", "TD"), _COUNT - 1, within_s=_LONG_S)

    assert (left_out["offset"], left_out["dead_letters"]) == (_BAD, mirror.topic("dead"))
    found = (await read_numbers(mirror.target, mirror.remote("broken", "TD")))[0]
    assert found == [number for number in range(_COUNT) if number != _BAD]
    (letter,) = (await read_topic(mirror.target, mirror.topic("dead")))[0]
    assert int((letter.value or b"")[:12]) == _BAD
    headers = dict(letter.headers)
    assert headers["__connect.errors.topic"] == topic.encode()
    assert headers["__connect.errors.offset"] == str(_BAD).encode()
    assert headers["__connect.errors.exception.message"] == b"no good"


async def test_a_wrong_statement_stops_its_topic_alone(mirror: _Mirror) -> None:
    """A statement that Spark cannot resolve is reported with the column's name; nothing of the topic is written."""
    topic = mirror.topic("wrong")
    stopped = await mirror.running.wait_for_event("partition_stopped", within_s=_LONG_S, topic=topic)

    assert f"transform.{topic}.sql" in stopped["message"]
    assert "`amount`" in stopped["message"]
    assert await arrived(mirror.target, mirror.remote("wrong")) == 0


async def test_a_wrong_statement_is_refused_before_anything_runs(mirror: _Mirror) -> None:
    """``--validate`` names its file, line, key and column, has no other problem, and ends with an error."""
    line = next(at for at, text in enumerate(mirror.file.read_text().splitlines(), 1) if "amount" in text)

    done = await mirror.type("mirror", str(mirror.file), "--validate")

    assert done.returncode == ExitCode.FAILED
    (said,) = [said for said in done.stderr.splitlines() if not said.startswith("note: ")]
    assert said.startswith(f"mm2.properties:{line}: TF->B.transform.{mirror.topic('wrong')}.sql: ")
    assert "`amount`" in said


async def test_a_groups_offset_becomes_that_of_the_next_record_that_was_kept(mirror: _Mirror) -> None:
    """Offsets are translated through a filter, never to what the group has not read, and through a router."""
    group, topic, plain = mirror.topic("group"), mirror.topic("filtered"), mirror.topic("plain")
    await mirror.running.wait_for_positions(topic, "TF->B", [_COUNT // 2] * 2, within_s=_LONG_S)
    read = {TopicPartition(topic, 0): 7_500, TopicPartition(topic, 1): 7_491, TopicPartition(plain, 0): 10_000}
    await commit_plainly(mirror.source, group, read)
    wanted = {
        TopicPartition(mirror.remote("filtered"), 0): 750,
        TopicPartition(mirror.remote("filtered"), 1): 750,
        TopicPartition(mirror.remote("routed"), 0): 10_000,
    }

    async def translated() -> bool:
        checkpoints = await checkpoints_in(mirror.target, "TF.checkpoints.internal", group)
        found = {it.remote: it.downstream for it in checkpoints}
        assert found == wanted, f"{found}"
        return True

    await eventually(translated, within_s=60, what="checkpoints of the group")


async def test_a_paused_topic_waits(mirror: _Mirror) -> None:
    """An operator pauses a topic with a transform, and resumes it, as any other; metrics show its lag."""
    topic, remote = mirror.topic("mask-strange"), mirror.remote("mask-strange")
    await await_arrived(mirror.target, remote, _FEW, within_s=_LONG_S)
    await mirror.ask("PUT", f"/from:TF/to:B/topics/{topic}/pause")
    await eventually(lambda: _stages(mirror.running, topic, "TF->B") == {"paused"}, within_s=30, what="it is paused")
    await produce(mirror.source, topic, [[NewRecord(None, b"1", (), MIDDLE_MS)]])
    await _a_moment_of_work(mirror)
    held_back = await arrived(mirror.target, remote)
    await mirror.ask("PUT", f"/from:TF/to:B/topics/{topic}/resume")
    await await_arrived(mirror.target, remote, _FEW + 1)

    assert held_back == _FEW
    await mirror.running.wait_for_positions(topic, "TF->B", [_FEW + 1], within_s=_LONG_S)


@pytest.mark.parametrize(("name", "alias", "remote"), [("masked", "TF", "masked"), ("chain", "TC", "accounts")])
async def test_a_limit_holds_for_a_transformed_topic(mirror: _Mirror, name: str, alias: str, remote: str) -> None:
    """Whatever transforms it, no more records a second are read than an operator allows."""
    count, per_s, target = 1_500, 500, mirror.remote(remote, alias)
    topic, limit = mirror.topic(name), f"/from:{alias}/to:B/topics/{mirror.topic(name)}/limit"
    before = await _settled(mirror, topic, f"{alias}->B", target)
    await mirror.ask("PUT", limit, {"records_per_s": per_s})
    begun = time.monotonic()
    await produce(mirror.source, topic, [[NewRecord(None, b'{"iban": "1"}', (), MIDDLE_MS)] * count])
    await await_arrived(mirror.target, target, before + count)
    took_s = time.monotonic() - begun
    await mirror.ask("DELETE", limit)

    # A second's worth may go through at once, and half a second's is taken at a time.
    assert took_s > (count - 1.5 * per_s) / per_s


async def _settled(mirror: _Mirror, topic: str, flow: str, remote_topic: str) -> int:
    """Wait until nothing of a topic is left to mirror; return how many records the remote topic holds."""

    def is_done() -> bool:
        lags = {view["lag"] for view in mirror.running.partition_views(topic, flow).values()}
        assert lags == {0}, f"lags are {lags}"
        return True

    await eventually(is_done, within_s=_LONG_S, what=f"{topic} is mirrored")
    return await arrived(mirror.target, remote_topic)


async def _a_moment_of_work(mirror: _Mirror) -> None:
    """Wait until another topic of the same transform was mirrored once more."""
    remote = mirror.remote("masked")
    before = await await_arrived(mirror.target, remote, _COUNT, within_s=_LONG_S)
    await produce(mirror.source, mirror.topic("masked"), [[NewRecord(None, b"9" * 12, (), MIDDLE_MS)]])
    await await_arrived(mirror.target, remote, before + 1)


async def test_a_sample_shows_records_before_and_after(mirror: _Mirror) -> None:
    """``mm2py transform`` prints what becomes of the newest records, and writes nothing."""
    topic, remote = mirror.topic("filtered"), mirror.remote("filtered")
    await mirror.running.wait_for_positions(topic, "TF->B", [_COUNT // 2] * 2, within_s=_LONG_S)
    before = await end_offsets(mirror.target, remote)

    done = await mirror.type("transform", str(mirror.file), "TF->B", topic, "--sample", "20")

    assert done.returncode == 0, done.stderr
    assert f"TF->B  {topic} -> {remote}" in done.stdout
    assert f"{topic}-0 offset {_COUNT // 2 - 10}\n  before" in done.stdout
    assert "20 records: 0 changed, 18 dropped, 0 fail; nothing was written" in done.stdout
    assert await end_offsets(mirror.target, remote) == before


async def test_a_transformed_topic_is_not_called_different(mirror: _Mirror) -> None:
    """``mm2py verify`` compares topics that are copied unopened, and reports why it cannot compare the others."""
    await assert_mirrored(mirror.source, mirror.topic("plain"), mirror.target, mirror.remote("routed"), _COUNT)

    topics = f"{mirror.topic('plain')},{mirror.topic('filtered')}"
    done = await mirror.type("verify", str(mirror.file), "TF->B", "--topics", topics, "--json")

    report = json.loads(done.stdout)
    found = {row["source"]["topic"]: (row["verdict"], row["reasons"]) for row in report["partitions"]}
    assert done.returncode == 2, done.stderr
    assert found == {
        mirror.topic("plain"): ("equal", []),
        mirror.topic("filtered"): ("could not tell", ["a transform changes its records on their way"]),
    }
    assert report["batches_unopened"] > 0


async def test_an_invalid_file_changes_nothing(mirror: _Mirror) -> None:
    """A reload of a file with a wrong line is refused with the line's place, and no flow drains."""
    await mirror.running.wait_for_event("spark_started", within_s=_LONG_S)
    text = mirror.file.read_text()

    mirror.file.write_text(text + "TF->B.tasks.max = many\n")
    os.kill(mirror.running.pid, signal.SIGHUP)
    refused = await mirror.running.wait_for_event("settings_refused")
    mirror.file.write_text(text)

    assert refused["problems"][0].startswith(f"mm2.properties:{len(text.splitlines()) + 1}: ")
    assert "tasks.max" in refused["problems"][0]
    assert not list(mirror.running.events("flow_drained"))


async def test_a_removed_flow_transforms_nothing_more(mirror: _Mirror) -> None:
    """A reload that takes a flow away ends its rounds; other flows go on, untouched, in the same Spark."""
    await mirror.running.wait_for_event("record_left_out", within_s=_LONG_S, flow="TD->B")
    await await_arrived(mirror.target, mirror.remote("broken", "TD"), _COUNT - 1, within_s=_LONG_S)
    await await_arrived(mirror.target, mirror.remote("filtered"), _COUNT // 10, within_s=_LONG_S)
    text = mirror.file.read_text()

    mirror.file.write_text(text.replace("TD->B.enabled = true", "TD->B.enabled = false"))
    os.kill(mirror.running.pid, signal.SIGHUP)
    reloaded = await mirror.running.wait_for_event("settings_reloaded", removed=["TD->B"])
    await produce_numbers(mirror.source, mirror.topic("broken"), count=10, partitions=1)
    await produce_numbers(mirror.source, mirror.topic("filtered"), count=1_000, partitions=2)
    await await_arrived(mirror.target, mirror.remote("filtered"), _COUNT // 10 + 100, within_s=_LONG_S)

    assert await arrived(mirror.target, mirror.remote("broken", "TD")) == _COUNT - 1
    assert (reloaded["changed"], sorted(reloaded["unchanged"])) == ([], ["TC->B", "TF->B"])
    assert [event["flow"] for event in mirror.running.events("flow_drained")] == ["TD->B"]
