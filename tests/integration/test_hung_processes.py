"""Processes that hang: a Python worker or Spark's JVM is stopped (SIGSTOP), and its epochs are recovered."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest

from mm2py.connectors.source import idle_source as source_watch
from mm2py.devkit.broker import KafkaCluster
from mm2py.model import epoch as model_epoch
from mm2py.model.health import reasons_unhealthy
from mm2py.model.state import MirrorView, TaskState
from mm2py.pipeline import epoch_jobs as epoch_module
from mm2py.pipeline.spark import processes
from mm2py.pipeline.spark import session as session_module
from mm2py.telemetry.events import CopyTaskLate, CopyTaskLost, CopyTaskRecovered, SparkHung
from tests.support.epochs import FLOW, Spark, idle_plan, lose, worker_of
from tests.support.eventually import eventually, long_enough, scaled
from tests.support.flows import flow_settings, running_flow
from tests.support.producing import produce_numbers
from tests.support.reading import read_numbers
from tests.support.records import assert_numbers
from tests.support.topics import create_topic


pytestmark = pytest.mark.asyncio(loop_scope="module")

_STORY = (CopyTaskLate, CopyTaskLost, CopyTaskRecovered)


@pytest.fixture(autouse=True)
def _short_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds are made for slow machines; here a process is stopped for good."""
    monkeypatch.setattr(model_epoch, "SETTLING_MS", 1_000)
    monkeypatch.setattr(epoch_module, "SLACK_S", long_enough(3.0))
    monkeypatch.setattr(epoch_module, "_ANSWERS_WITHIN_S", long_enough(3.0))
    monkeypatch.setattr(session_module, "_ASK_EVERY_S", 1.0)
    monkeypatch.setattr(source_watch, "_LOOK_EVERY_S", 1.0)


def _is_dead(process: psutil.Process) -> bool:
    """Whether a process has ended, even if its parent has not waited for it yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_a_stopped_worker_is_noticed_and_killed(spark: Spark) -> None:
    """Its epoch is reported late once, no other is lost, and when it is given up its worker cannot write any more."""
    async with asyncio.timeout(scaled(60)), asyncio.TaskGroup() as group:
        lost = group.create_task(lose(spark, idle_plan(task=0, epoch=5, epoch_ms=3_000)))
        other = group.create_task(spark.runner.run(idle_plan(task=1, epoch_ms=9_000)))
        worker = await worker_of(spark)
        worker.send_signal(signal.SIGSTOP)
        await eventually(lambda: spark.events.of(CopyTaskLate), within_s=20, what="it is late")
    again = await spark.runner.run(idle_plan(epoch=6))

    (late,) = spark.events.of(CopyTaskLate)
    assert (late.task, late.epoch, late.worker.rpartition(":")[2]) == (0, 5, str(worker.pid))
    assert (lost.result().is_late, lost.result().may_still_write) == (True, False)
    assert _is_dead(worker)
    assert other.result().worker
    assert again.worker
    assert not spark.events.of(SparkHung)
    assert not spark.runner.is_late(FLOW, 0)


async def test_a_worker_that_was_stopped_before_its_epoch_began_is_killed_by_spark(spark: Spark) -> None:
    """A worker without a recorded process for its epoch is killed by Spark once the epoch's job is cancelled."""
    outcome = await spark.runner.run(idle_plan())
    idle = psutil.Process(int(outcome.worker.rpartition(":")[2])).parent().children()  # type: ignore[union-attr]
    for worker in idle:
        worker.send_signal(signal.SIGSTOP)
    try:
        async with asyncio.timeout(scaled(60)):
            lost = await lose(spark, idle_plan(epoch=1))
            await eventually(lambda: any(map(_is_dead, idle)), within_s=10, what="one is killed")
    finally:
        processes.kill(idle)

    assert [late.worker for late in spark.events.of(CopyTaskLate)] == [""]
    assert (lost.is_late, lost.may_still_write) == (True, True)
    assert not spark.events.of(SparkHung)


async def test_a_stopped_jvm_is_killed_and_started_again(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its epoch is late and lost, its child processes end with it, and the next epoch runs in a new Spark."""
    session = await spark.host.session()
    async with asyncio.timeout(scaled(90)), asyncio.TaskGroup() as group:
        lost = group.create_task(lose(spark, idle_plan(epoch_ms=3_000)))
        worker = await worker_of(spark)
        os.kill(session.process.pid, signal.SIGSTOP)
        worker.send_signal(signal.SIGSTOP)
    # A new Spark starts Python from nothing.
    monkeypatch.setattr(epoch_module, "SLACK_S", scaled(15.0))
    again = await spark.runner.run(idle_plan(epoch=1))

    assert len(spark.events.of(CopyTaskLate)) == len(spark.events.of(SparkHung)) == 1
    assert lost.result().is_late
    assert again.worker
    await eventually(lambda: not session.is_alive, within_s=10, what="its JVM has ended")
    assert _is_dead(worker)


def _is_still(pid: int) -> bool:
    """Whether all threads of a process are stopped."""
    states = [file.read_text().rpartition(") ")[2][0] for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) <= {"T"}


async def test_a_silent_jvm_is_killed_whatever_waits_for_it(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an epoch that could be late, a JVM that does not answer a call is killed for its silence."""
    monkeypatch.setattr(session_module, "SILENT_FOR_S", 3.0)
    session = await spark.host.session()
    async with asyncio.timeout(scaled(60)), asyncio.TaskGroup() as group:
        watch = group.create_task(spark.host.watch())
        os.kill(session.process.pid, signal.SIGSTOP)
        # The signal is on its way to each of its threads: until it is there, they still answer.
        await eventually(lambda: _is_still(session.process.pid), within_s=10, what="the JVM stands still")
        await session.begin(session_module.is_stopped, session)
        watch.cancel()

    assert [hung.reason for hung in spark.events.of(SparkHung)] == ["its JVM has not answered for 3 s"]
    await eventually(lambda: not session.is_alive, within_s=10, what="its JVM has ended")


async def test_a_flow_whose_worker_hangs_is_not_ready_and_goes_on_exactly(
    spark: Spark,
    primary: KafkaCluster,
    backup: KafkaCluster,
    prefix: str,
    tmp_path: Path,
    *,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    A worker is stopped in the middle of a flow, and 4 000 records come at the source meanwhile.

    The lag shows them while the epoch is held, the copy task is late and keeps the flow from being ready, then it goes
    on, and nothing is missing or there twice.
    """
    monkeypatch.setattr(epoch_module, "SLACK_S", long_enough(8.0))
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    before, meanwhile = f"{prefix}-before", f"{prefix}-meanwhile"
    for topic in (before, meanwhile):
        await create_topic(source, topic, partitions=2)
    await produce_numbers(source, before, count=2_000, partitions=2)
    settings = flow_settings(source, target, **{"A->B.topics": f"{prefix}.*", "tasks.max": 1})
    async with running_flow(settings, tmp_path, spark=spark) as flow:
        view = flow.runner.view
        await eventually(lambda: view().lag == 0 and view().records == 2_000, within_s=60, what="it is mirrored")
        (await worker_of(spark)).send_signal(signal.SIGSTOP)
        await produce_numbers(source, meanwhile, count=4_000, partitions=2)
        await eventually(lambda: view().lag == 4_000, within_s=20, what="the lag shows what came meanwhile")
        was_late = bool(spark.events.of(CopyTaskLate))
        await eventually(lambda: view().tasks[0].state is TaskState.LATE, within_s=20, what="the copy task is late")
        reasons = reasons_unhealthy(MirrorView(0, is_ready=True, flows=(view(),)))
        await eventually(lambda: view().lag == 0 and view().records == 6_000, within_s=60, what="all is mirrored")
        recovered = reasons_unhealthy(MirrorView(0, is_ready=True, flows=(view(),)))
        await flow.drain()

    assert not was_late  # a late epoch gives up its partitions, and they are asked about for that alone
    assert [type(it.event) for it in spark.events if isinstance(it.event, _STORY)] == list(_STORY)
    assert reasons == ["A->B: the epoch of copy task 0 is late"]
    assert not recovered
    assert_numbers(await read_numbers(target, f"A.{before}"), 2_000)
    assert_numbers(await read_numbers(target, f"A.{meanwhile}"), 4_000)


async def test_a_spark_that_hangs_as_a_whole_stops_in_time(spark: Spark) -> None:
    """A daemon that drains while JVM and worker are stopped ends, and leaves neither running. This test comes last."""
    session = await spark.host.session()
    async with asyncio.timeout(scaled(60)), asyncio.TaskGroup() as group:
        running = group.create_task(lose(spark, idle_plan(epoch_ms=60_000)))
        worker = await worker_of(spark)
        os.kill(session.process.pid, signal.SIGSTOP)
        worker.send_signal(signal.SIGSTOP)
        await spark.host.stop(within_s=2)
        await running

    await eventually(lambda: not session.is_alive, within_s=10, what="its JVM has ended")
    assert _is_dead(worker)
