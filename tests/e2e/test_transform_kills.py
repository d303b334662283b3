"""A topic with a transform whose workers and daemon are killed: at least once, with possible repetitions reported."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from mm2py.devkit.broker import KafkaCluster
from tests.support.daemon import Daemon, daemon, spark_workers
from tests.support.eventually import eventually
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import numbered_stream, produce
from tests.support.reading import read_numbers, read_topic
from tests.support.records import MIDDLE_MS, NewRecord
from tests.support.topics import create_topic


_COUNT = 8_000
_BAD = 3_000
#: Spark and its workers come up first, each time.
_LONG_S = 200.0


def _properties(primary: KafkaCluster, backup: KafkaCluster, topic: str, dead: str, mark: str) -> str:
    """Return a file whose transform marks each record, and fails on one, which goes to *dead*."""
    value = f"concat(substring(CAST(value AS STRING), 1, 12), '{mark}')"
    bad = f"partition = 1 AND offset = {_BAD}"
    sql = f"SELECT * EXCEPT (value), IF({bad}, CAST(raise_error('bad') AS STRING), {value}) AS value FROM records"
    keys: dict[str, object] = {
        "TK->B.topics": topic,
        "TK->B.transform.sql": sql,
        "copy.epoch.ms": 1000,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": dead,
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    return mm2_properties(primary.bootstrap_servers, backup.bootstrap_servers, aliases=("TK", "B"), **keys)


@pytest.mark.soak(only="kills of exactly-once transforms are more exacting")
async def test_kills_and_a_reload_lose_nothing(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    Python workers are killed in the middle of a stream, then the daemon, then the transform is changed by a reload.

    Every record is at the target as its transform made it, in order but for ranges that are written again, and
    no more are there twice than was reported; a bad record is in the dead letters.
    """
    dead, remote = f"{prefix}-dead", f"TK.{prefix}"
    await create_topic(primary.bootstrap_servers, prefix, partitions=2)
    before, after = (_properties(primary, backup, prefix, dead, mark) for mark in ("one", "two"))
    reported: Counter[int] = Counter()
    async with numbered_stream(
        primary.bootstrap_servers, prefix, count=_COUNT, partitions=2, rate=500, open_ended=True
    ) as stream:
        async with daemon(tmp_path, before) as running:
            await await_arrived(backup.bootstrap_servers, remote, 1, within_s=_LONG_S)
            for worker in spark_workers(running.pid):
                with suppress(ProcessLookupError):  # Spark ends some once one is gone
                    os.kill(worker, signal.SIGKILL)
            seen = stream.sent
            await await_arrived(backup.bootstrap_servers, remote, seen, within_s=_LONG_S)
            await running.kill()
            reported += _repeats_reported(running)
            left_out = list(running.events("record_left_out"))
            await eventually(lambda: not running.orphans(), within_s=60, what="all that it had started has ended")
        async with daemon(tmp_path, before) as running:
            count = await stream.done()
            first, second = (count + 1) // 2, count // 2
            await running.wait_for_positions(prefix, "TK->B", [first, second], within_s=_LONG_S)
            # Where Spark took long to start, the first daemon has come past it.
            if not left_out:
                left_out = [await running.wait_for_event("record_left_out")]
            assert (left_out[0]["offset"], left_out[0]["dead_letters"]) == (_BAD, dead)
            (tmp_path / "mm2.properties").write_text(after)
            os.kill(running.pid, signal.SIGHUP)
            await running.wait_for_event("settings_reloaded", within_s=_LONG_S)
            await produce(primary.bootstrap_servers, prefix, [[NewRecord(None, b"%012d" % count, (), MIDDLE_MS)], []])
            await running.wait_for_positions(prefix, "TK->B", [first + 1, second], within_s=_LONG_S)
            assert await running.sigterm() == 0
            reported += _repeats_reported(running)

    source = await read_numbers(primary.bootstrap_servers, prefix)
    found = await read_topic(backup.bootstrap_servers, remote)
    lost = source[1].pop(_BAD)
    assert (found[0][-1].value or b"") == b"%012dtwo" % count
    for partition, records in found.items():
        numbers = [int((record.value or b"")[:12]) for record in records]
        assert list(dict.fromkeys(numbers)) == source[partition]
        assert len(numbers) - len(source[partition]) <= reported[partition]
        assert {(record.value or b"")[12:] for record in records if int((record.value or b"")[:12]) < count} == {b"one"}
    letters = (await read_topic(backup.bootstrap_servers, dead))[0]
    assert {int((letter.value or b"")[:12]) for letter in letters} == {lost}


def _repeats_reported(running: Daemon) -> Counter[int]:
    """Return how many records of each partition may be there twice, by the daemon's events."""
    reported: Counter[int] = Counter()
    for event in running.events("resume_unproven"):
        number = re.search(r"up to (\d+) are written twice", event["message"])
        assert number is not None, event
        reported[event["partition"]] += int(number[1])
    return reported
