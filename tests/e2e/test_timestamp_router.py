"""A TimestampRouter sends the records of one topic to several remote topics, which come into being with the records."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.date_pattern import DAY_MS
from tests.support.commands import run_mm2py
from tests.support.daemon import Daemon, daemon, spark_workers
from tests.support.eventually import eventually, scaled
from tests.support.mirrored import arrived, await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce, producer
from tests.support.reading import read_numbers, read_topic
from tests.support.records import MIDDLE_MS, NewRecord, Record
from tests.support.topics import create_topic, list_topics, topic_configs


_CONNECT = "org.apache.kafka.connect.transforms"
_PARTITIONS, _EACH = 4, 25_000
_DAYS = ("20240101", "20240102", "20240103", "20240104")
#: Spark and its workers come up first, on a machine that other tests use too.
_LONG_S = 200.0
#: In exactly-once mode: records of both partitions, and how many of them have one day.
_COUNT, _OF_A_DAY = 20_000, 2_500

pytestmark = pytest.mark.timeout(600)


def _day(number: int) -> int:
    """Four days, one after the other; now and then a record is a day late."""
    day = number * len(_DAYS) // _EACH
    return max(0, day - 1) if number % 50 == 0 else day


def _records(partition: int) -> list[NewRecord]:
    return [
        NewRecord(
            b"key-%d" % number if number % 3 else None,
            b"%012d" % (number * _PARTITIONS + partition) if number % 11 else None,
            (("late", b"1"),) if number % 50 == 0 else (),
            MIDDLE_MS + _day(number) * DAY_MS + number,
        )
        for number in range(_EACH)
    ]


def _content(records: list[Record]) -> list[tuple[object, ...]]:
    return [(it.key, it.value, it.headers, it.timestamp_ms) for it in records]


def _router(flow: str, **others: str) -> dict[str, object]:
    """Give the settings of a flow with a router by days and nothing else; *others* are settings of the step."""
    settings = {"type": f"{_CONNECT}.TimestampRouter", **others}
    return {f"{flow}.transforms": "days", **{f"{flow}.transforms.days.{key}": text for key, text in settings.items()}}


async def test_each_day_has_a_topic_of_its_own(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    100 000 records of four days, and one of a fifth that begins while the daemon runs.

    Each remote topic has exactly its day's records, in the source's order, with its configs. Another flow may have
    three remote topics and stops before the record that needs a fourth; a statement's results are routed, too, where
    they have a header.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(
        source, prefix, partitions=_PARTITIONS, configs={"retention.ms": "-1", "segment.ms": "123456789"}
    )
    written = [_records(partition) for partition in range(_PARTITIONS)]
    await produce(source, prefix, written, batch_bytes=65_536)
    properties = mm2_properties(
        source,
        target,
        aliases=("DA", "B"),
        **{
            "clusters": "DA, DB, DC, B",
            **{f"{alias}.bootstrap.servers": source for alias in ("DB", "DC")},
            **{f"{alias}->B.enabled": "true" for alias in ("DB", "DC")},
            "topics": prefix,
            "refresh.topics.interval.seconds": 600,  # nobody waits for it
            **_router("DA->B"),
            **_router("DB->B"),
            "DB->B.timestamp.router.topics.max": 3,
            "DC->B.transform.sql": "SELECT * FROM records WHERE offset % 10 = 0",
            **_router("DC->B", **{"topic.format": "${topic}.${timestamp}", "timestamp.format": "yyyy-MM"}),
            "DC->B.transforms.days.predicate": "isLate",
            "DC->B.predicates": "isLate",
            "DC->B.predicates.isLate.type": f"{_CONNECT}.predicates.HasHeaderKey",
            "DC->B.predicates.isLate.name": "late",
        },
    )
    async with daemon(tmp_path, properties) as running:
        for day in range(len(_DAYS)):
            count = sum(_day(number) == day for number in range(_EACH)) * _PARTITIONS
            await await_arrived(target, f"DA.{prefix}-{_DAYS[day]}", count, within_s=_LONG_S)
        written[0].append(NewRecord(None, b"new", (), MIDDLE_MS + 4 * DAY_MS))
        await produce(source, prefix, [written[0][-1:]])
        await await_arrived(target, f"DA.{prefix}-20240105", 1, within_s=_LONG_S)
        stopped = await running.wait_for_event("partition_stopped", within_s=_LONG_S, flow="DB->B")
        await running.wait_for_positions(prefix, "DC->B", [_EACH + 1, _EACH, _EACH, _EACH], within_s=_LONG_S)
        shown = await run_mm2py("transform", str(tmp_path / "mm2.properties"), "DA->B", prefix, "--sample", "4")
        compared = await run_mm2py("verify", str(tmp_path / "mm2.properties"), "DA->B")
        await running.wait_for_positions(prefix, "DA->B", [_EACH + 1, _EACH, _EACH, _EACH])
        assert await running.sigterm() == 0

    for day, name in enumerate(_DAYS):
        found = await read_topic(target, f"DA.{prefix}-{name}")
        assert sorted(found) == list(range(_PARTITIONS))
        for partition, records in found.items():
            wanted = [it for number, it in enumerate(written[partition][:_EACH]) if _day(number) == day]
            assert _content(records) == [(it.key, it.value, it.headers, it.timestamp_ms) for it in wanted]
    configs = await topic_configs(target, f"DA.{prefix}-20240105")
    assert (configs["retention.ms"], configs["segment.ms"]) == ("-1", "123456789")
    await _assert_bounded(target, prefix, stopped["message"], written)
    await _assert_under_a_predicate(target, prefix, written)
    assert f"to DA.{prefix}-20240104" in shown.stdout, shown.stdout + shown.stderr
    assert "TimestampRouter" in compared.stdout, compared.stdout + compared.stderr
    assert compared.returncode == 2


async def _assert_bounded(target: str, prefix: str, message: str, written: list[list[NewRecord]]) -> None:
    """Look at the flow that may have three remote topics: its partitions end before the fourth day."""
    assert f"needs remote topic DB.{prefix}-20240104: {prefix} has 3 remote topics already" in message
    assert "timestamp.router.topics.max is 3" in message
    names = {topic for topic in await list_topics(target) if topic.startswith(f"DB.{prefix}")}
    assert names == {f"DB.{prefix}-{day}" for day in _DAYS[:3]}
    first = next(number for number in range(_EACH) if _day(number) == 3)
    found = [await read_topic(target, name) for name in sorted(names)]
    for partition in range(_PARTITIONS):
        wanted = [it.timestamp_ms for it in written[partition][:first]]
        assert sorted(it.timestamp_ms for one in found for it in one[partition]) == sorted(wanted)


async def _assert_under_a_predicate(target: str, prefix: str, written: list[list[NewRecord]]) -> None:
    """Look at the flow that routes late records alone, of those that its statement keeps."""
    routed, others = await read_topic(target, f"DC.{prefix}.2024-01"), await read_topic(target, f"DC.{prefix}")
    for partition in range(_PARTITIONS):
        kept = [it for number, it in enumerate(written[partition]) if number % 10 == 0]
        assert [it.timestamp_ms for it in routed[partition]] == [it.timestamp_ms for it in kept if it.headers]
        assert [it.timestamp_ms for it in others[partition]] == [it.timestamp_ms for it in kept if not it.headers]


@attrs.define
class _Stream:
    """Numbers dealt out to two partitions, of one day after the other."""

    sent: int = 0
    is_done: asyncio.Event = attrs.field(factory=asyncio.Event)

    async def done(self) -> None:
        async with asyncio.timeout(scaled(_LONG_S)):
            await self.is_done.wait()

    async def write(self, source: str, topic: str) -> None:
        async with producer(source) as connected:
            while self.sent < _COUNT:
                for partition in (0, 1):
                    batch = connected.create_batch()
                    for number in range(self.sent + partition, self.sent + 100, 2):
                        at_ms = MIDDLE_MS + number // _OF_A_DAY * DAY_MS + number
                        batch.append(timestamp=at_ms, key=None, value=b"%012d" % number, headers=[])
                    await (await connected.send_batch(batch, topic, partition=partition))
                self.sent += 100
                await asyncio.sleep(0.1)
        self.is_done.set()


@asynccontextmanager
async def _streaming(source: str, topic: str) -> AsyncIterator[_Stream]:
    stream = _Stream()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(stream.write(source, topic))
        yield stream


async def test_kills_neither_lose_nor_repeat_a_record_of_any_day(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """In exactly-once mode workers and daemon are killed while days begin; each record is in its day's topic once."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix, partitions=2)
    properties = mm2_properties(
        source,
        target,
        aliases=("DX", "B"),
        **{
            "B.exactly.once.source.support": "enabled",
            "DX->B.exactly.once.support": "required",
            "DX.consumer.isolation.level": "read_committed",
            "DX->B.topics": prefix,
            "copy.epoch.ms": 1000,
            **_router("DX->B"),
        },
    )
    names = [f"DX.{prefix}-202401{day + 1:02}" for day in range(_COUNT // _OF_A_DAY)]
    async with _streaming(source, prefix) as stream:
        async with daemon(tmp_path, properties) as running:
            await await_arrived(target, names[0], _OF_A_DAY // 2, within_s=_LONG_S)
            for worker in spark_workers(running.pid):
                os.kill(worker, signal.SIGKILL)
            await _killed_in_a_later_day(running, target, names, stream.sent)
        async with daemon(tmp_path, properties) as running:
            await _killed_in_a_later_day(running, target, names, stream.sent)
        async with daemon(tmp_path, properties) as running:
            await stream.done()
            await running.wait_for_positions(prefix, "DX->B", [_COUNT // 2] * 2, within_s=_LONG_S)
            assert await running.sigterm() == 0

    for day, name in enumerate(names):
        numbers = range(day * _OF_A_DAY, (day + 1) * _OF_A_DAY)
        wanted = {partition: [number for number in numbers if number % 2 == partition] for partition in (0, 1)}
        assert await read_numbers(target, name, reads_committed=True) == wanted


async def _killed_in_a_later_day(running: Daemon, target: str, names: list[str], sent: int) -> None:
    """Kill the daemon once it has caught up with what was sent by now."""
    day = min(sent // _OF_A_DAY + 1, len(names) - 1)

    async def has_begun() -> bool:
        return await arrived(target, names[day]) > 0

    await eventually(has_begun, within_s=_LONG_S, what=f"{names[day]} has records")
    await running.kill()
    await eventually(lambda: not running.orphans(), within_s=60, what="all that it had started has ended")
