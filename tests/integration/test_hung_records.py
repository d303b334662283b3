"""Record tasks behind processes that hang: noticed, ended, done again, and nothing is there twice."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import attrs
import psutil
import pytest
import pytest_asyncio

from mm2py.clock import SystemClock
from mm2py.config.settings import FlowSettings
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.state import TaskState
from mm2py.model.transform import Transform
from mm2py.pipeline.spark import processes, stillness
from mm2py.pipeline.transform import backend, task
from mm2py.pipeline.transform.backend import RoundLateError
from mm2py.pipeline.transform.micro_batch import RecordTask
from mm2py.telemetry.events import CopyTaskLate, SparkHung
from tests.support.epochs import Spark, idle_plan, spark_of
from tests.support.eventually import eventually, scaled
from tests.support.flows import flow_settings, running_flow
from tests.support.producing import produce
from tests.support.reading import read_topic
from tests.support.records import MIDDLE_MS, NewRecord
from tests.support.topics import create_topic


pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

#: Spark, a query and its workers come up first.
_LONG_S = 150.0
_STEPS = {
    "transforms": "mark",
    "transforms.mark.type": "org.apache.kafka.connect.transforms.InsertHeader",
    "transforms.mark.header": "seen",
    "transforms.mark.value.literal": "yes",
}


@pytest.fixture
def short_bounds(monkeypatch: pytest.MonkeyPatch) -> _Bounds:
    return _Bounds(monkeypatch)


class _Bounds:
    """Bounds are made for slow machines; here something hangs for good, once it is said so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def shorten(self) -> None:
        self._monkeypatch.setattr(backend, "ROUND_SLACK_S", scaled(2.0))
        self._monkeypatch.setattr(task, "START_WITHIN_S", scaled(5.0))
        self._monkeypatch.setattr(stillness, "STILL_FOR_S", scaled(3.0))

    def restore(self) -> None:
        self._monkeypatch.undo()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Spark]:
    """Spark for the tests of this module."""
    async with spark_of() as started:
        await started.runner.run(idle_plan())
        yield started


@pytest.fixture
def spark(shared: Spark) -> Spark:
    """Spark, and what is said about it in this test."""
    shared.events._ring.clear()
    return shared


def _exactly_once(source: KafkaCluster, target: KafkaCluster, alias: str, topic: str, **keys: object) -> FlowSettings:
    return flow_settings(
        source.bootstrap_servers,
        target.bootstrap_servers,
        alias=alias,
        **{
            "tasks.max": 1,
            "B.producer.transaction.timeout.ms": 300_000,
            "B.exactly.once.source.support": "enabled",
            f"{alias}->B.exactly.once.support": "required",
            f"{alias}->B.topics": topic,
            f"{alias}.consumer.isolation.level": "read_committed",
            **{f"{alias}->B.{key}": value for key, value in keys.items()},
        },
    )


async def _write(source: KafkaCluster, topic: str, values: Mapping[int, list[bytes]]) -> None:
    records = [[NewRecord(None, value, (), MIDDLE_MS) for value in values[number]] for number in sorted(values)]
    await produce(source.bootstrap_servers, topic, records)


async def _committed(target: KafkaCluster, topic: str) -> dict[int, list[bytes | None]]:
    found = await read_topic(target.bootstrap_servers, topic, reads_committed=True)
    return {number: [record.value for record in records] for number, records in found.items()}


async def _python_below(spark: Spark) -> list[psutil.Process]:
    """Give Spark's Python processes, but for those that it forks others from for tasks."""
    jvm = (await spark.host.session()).process.pid
    commands = {process: _command(process) for process in processes.below(jvm)}
    return [
        process
        for process, command in commands.items()
        if command and (process.ppid() != jvm or "mm2py.pipeline.fork_server" not in command)
    ]


def _command(process: psutil.Process) -> list[str]:
    """Give how a process was started; nothing of one that has ended."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


async def test_a_record_task_goes_on_behind_stopped_workers(
    spark: Spark,
    primary: KafkaCluster,
    backup: KafkaCluster,
    *,
    prefix: str,
    tmp_path: Path,
    short_bounds: _Bounds,
) -> None:
    """Its round is late, Spark kills the workers, and consumers of committed records see each record once."""
    before = {number: [b"%d-%d" % (number, at) for at in range(500)] for number in (0, 1)}
    behind = {number: [b"%d-%d" % (number, at) for at in range(500, 900)] for number in (0, 1)}
    await create_topic(primary.bootstrap_servers, prefix, partitions=2)
    await _write(primary, prefix, before)
    async with running_flow(_exactly_once(primary, backup, "HW", prefix, **_STEPS), tmp_path, spark=spark) as flow:
        view = flow.runner.view
        await eventually(lambda: view().records == 1_000, within_s=_LONG_S, what="it is mirrored")
        stopped = await _python_below(spark)
        for worker in stopped:
            worker.send_signal(signal.SIGSTOP)
        short_bounds.shorten()
        await _write(primary, prefix, behind)
        await eventually(lambda: view().tasks[0].state is TaskState.LATE, within_s=30, what="it is late")
        short_bounds.restore()
        await eventually(lambda: view().records == 1_800, within_s=_LONG_S, what="all is mirrored")
        await flow.drain()

    assert stopped
    assert len(spark.events.of(CopyTaskLate)) == 1
    assert not spark.events.of(SparkHung)
    assert await _committed(backup, f"HW.{prefix}") == {number: before[number] + behind[number] for number in (0, 1)}


async def test_stopped_planners_keep_no_query_from_starting(spark: Spark, short_bounds: _Bounds) -> None:
    """The start of a query is late and lost, what Spark plans queries with is killed, and the next one starts."""
    transform = Transform("plain", sql="SELECT * FROM records WHERE value IS NOT NULL")
    plan, record_task = attrs.evolve(idle_plan(), transform=transform), RecordTask(transform)
    first = await spark.runner.records.query(record_task, plan)
    await first.stop(SystemClock())
    record_task.query = None
    stopped = [planner for planner in await _python_below(spark) if "pyspark.daemon" in _command(planner)]
    for planner in stopped:
        planner.send_signal(signal.SIGSTOP)
    short_bounds.shorten()
    async with asyncio.timeout(scaled(60)):
        with pytest.raises(RoundLateError):
            await spark.runner.records.query(record_task, plan)
    short_bounds.restore()
    again = await spark.runner.records.query(record_task, plan)
    await again.stop(SystemClock())

    assert stopped
    assert [(late.task, late.worker) for late in spark.events.of(CopyTaskLate)] == [(0, "")]
    assert record_task.is_late
    assert not spark.events.of(SparkHung)
