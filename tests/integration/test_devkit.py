"""The library of the other tests: brokers, records written and read back, processes that are watched."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mm2py.devkit.broker import BrokerNotStartedError, KafkaCluster
from mm2py.devkit.jars import java_command, kafka_jars
from mm2py.devkit.process import start_process
from tests.support.brokers import MakeCluster
from tests.support.daemon import Daemon
from tests.support.java_mm2 import JavaMirrorMaker2, JavaMm2FailedError
from tests.support.producing import (
    produce,
)
from tests.support.reading import raw_record_set, split_batches
from tests.support.records import (
    plain_records,
)
from tests.support.topics import (
    create_topic,
)


def test_brokers_take_their_classes_from_their_archive(primary: KafkaCluster) -> None:
    """It is made before the first of them starts."""
    archive = kafka_jars().class_archive(java_command())

    assert archive.stat().st_size > 0
    assert str(archive) in Path(f"/proc/{primary.pid(0)}/maps").read_text()


async def test_raw_record_sets_are_whole_batches(primary: KafkaCluster, prefix: str) -> None:
    """A raw fetch from inside a batch begins at that batch's base offset."""
    await create_topic(primary.bootstrap_servers, prefix)
    await produce(primary.bootstrap_servers, prefix, [plain_records(20)], batch_records=10)

    batches = split_batches(await raw_record_set(primary.bootstrap_servers, prefix, 0, 15))

    assert [(batch.base_offset, batch.count) for batch in batches] == [(10, 10)]


def test_a_broker_that_cannot_start_says_why(make_cluster: MakeCluster) -> None:
    """A wrong setting ends in one error that carries the broker's own words."""
    with pytest.raises(BrokerNotStartedError, match="Invalid value many"):
        make_cluster("wrong", properties={"num.io.threads": "many"})
    with pytest.raises(BrokerNotStartedError, match="exit code 1"):
        make_cluster("elsewhere", properties={"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://192.0.2.1:9"})


def test_java_mirror_maker_2_that_cannot_start_says_why(tmp_path: Path) -> None:
    """A missing properties file ends in one error that carries Java's own words."""
    java = JavaMirrorMaker2(tmp_path / "none.properties", log_file=tmp_path / "java.log")

    with pytest.raises(JavaMm2FailedError, match=r"none\.properties"):
        java.start()


async def test_the_daemon_is_watched_through_its_log(tmp_path: Path) -> None:
    """Events are found by name and facts, other lines are skipped, and the exit code is reported."""
    process = start_process("the daemon", [sys.executable, "-u", "-c", _TALKER], log_file=tmp_path / "daemon.log")
    watched = Daemon(process, 0)
    try:
        event = await watched.wait_for_event("flow_started", flow="A->B")

        assert event["task"] == 2
        assert [event["flow"] for event in watched.events("flow_started")] == ["B->A", "A->B"]
        assert await watched.sigterm() == 7

        with pytest.raises(RuntimeError, match="never logged flow_stopped"):
            await watched.wait_for_event("flow_stopped")
    finally:
        await watched.kill()


_TALKER = """
import json, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("not an event")
print("{half an event")
print(json.dumps({"event": "flow_started", "flow": "B->A"}))
print(json.dumps({"event": "flow_started", "flow": "A->B", "task": 2}))
time.sleep(60)
"""
