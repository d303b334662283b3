"""Record tasks whose processes hang: noticed, killed, run again, and no record is there twice."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path

import attrs
import psutil
import pytest

from mm2py.config.settings import FlowSettings
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.state import TaskState
from mm2py.model.transform import Transform
from mm2py.pipeline.spark import processes
from mm2py.pipeline.transform import jobs, task
from mm2py.pipeline.transform.jobs import MicroBatchLateError
from mm2py.pipeline.transform.micro_batch import RecordTask
from mm2py.telemetry.events import CopyTaskLate, SparkHung
from tests.support.epochs import Spark, idle_plan
from tests.support.eventually import eventually, long_enough, scaled
from tests.support.flows import flow_settings, running_flow
from tests.support.mm2_file import MARKING
from tests.support.producing import produce
from tests.support.reading import read_topic
from tests.support.records import MIDDLE_MS, NewRecord
from tests.support.topics import await_stable, create_topic
from tests.support.transforms import released


pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

#: Spark and its workers come up first.
_LONG_S = 150.0
_PLAIN = "SELECT * FROM records WHERE value IS NOT NULL"


@pytest.fixture
def short_bounds(monkeypatch: pytest.MonkeyPatch) -> _Bounds:
    return _Bounds(monkeypatch)


class _Bounds:
    """Shorter bounds: the defaults are for slow machines, and here processes hang for good."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def shorten(self) -> None:
        self._monkeypatch.setattr(jobs, "MICRO_BATCH_SLACK_S", long_enough(2.0))
        self._monkeypatch.setattr(task, "MICRO_BATCH_SLACK_S", long_enough(5.0))

    def restore(self) -> None:
        self._monkeypatch.undo()

    def widen(self) -> None:
        """Leave time for workers to start on a busy machine, but not as much as the default."""
        self._monkeypatch.setattr(jobs, "MICRO_BATCH_SLACK_S", long_enough(20.0))


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
    await await_stable(target.bootstrap_servers, topic)
    found = await read_topic(target.bootstrap_servers, topic, reads_committed=True)
    return {number: [record.value for record in records] for number, records in found.items()}


async def _python_below(spark: Spark) -> list[psutil.Process]:
    """Return Spark's Python processes, but for those that it forks others from for tasks."""
    jvm = (await spark.host.session()).process.pid
    commands = {process: _command(process) for process in processes.below(jvm)}
    return [
        process
        for process, command in commands.items()
        if command and (process.ppid() != jvm or "mm2py.pipeline.spark.fork_server" not in command)
    ]


def _command(process: psutil.Process) -> list[str]:
    """Return how a process was started; nothing of one that has ended."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


@pytest.mark.soak(only="a hung transform is ended below")
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
    async with running_flow(_exactly_once(primary, backup, "HW", prefix, **MARKING), tmp_path, spark=spark) as flow:
        view = flow.runner.view
        await eventually(lambda: view().records == 1_000, within_s=_LONG_S, what="it is mirrored")
        stopped = await _python_below(spark)
        for worker in stopped:
            worker.send_signal(signal.SIGSTOP)
        short_bounds.shorten()
        await _write(primary, prefix, behind)
        await eventually(lambda: view().tasks[0].state is TaskState.LATE, within_s=30, what="it is late")
        # Spark may have more idle workers than it needs at once, so the next attempt may get another stopped one.
        short_bounds.widen()
        await eventually(lambda: view().records == 1_800, within_s=_LONG_S, what="all is mirrored")
        await flow.drain()

    assert stopped
    assert 1 <= len(spark.events.of(CopyTaskLate)) <= len(stopped)
    assert not spark.events.of(SparkHung)
    assert await _committed(backup, f"HW.{prefix}") == {number: before[number] + behind[number] for number in (0, 1)}


async def test_a_function_that_hangs_keeps_no_other_transform_waiting(spark: Spark, short_bounds: _Bounds) -> None:
    """The preparation of its transform is late and given up; those of others go on, in the same Spark."""
    stuck, plain = Transform("stuck", function="tests.support.transforms:stuck"), Transform("plain", sql=_PLAIN)
    record_task = RecordTask(stuck)
    records = spark.runner.records
    await records.jobs(RecordTask(plain), attrs.evolve(idle_plan(), transform=plain))
    short_bounds.shorten()
    try:
        async with asyncio.timeout(scaled(60)):
            with pytest.raises(MicroBatchLateError):
                await records.jobs(record_task, attrs.evolve(idle_plan(), transform=stuck))
        short_bounds.restore()
        async with asyncio.timeout(scaled(60)):
            ready = await records.jobs(RecordTask(plain), attrs.evolve(idle_plan(), transform=plain))
    finally:
        released.set()

    assert ready.transform == plain
    assert [(late.task, late.worker) for late in spark.events.of(CopyTaskLate)] == [(0, "")]
    assert record_task.is_late
    assert not spark.events.of(SparkHung)
