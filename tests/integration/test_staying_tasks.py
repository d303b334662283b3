"""Spark tasks that stay for the next epochs of their copy task: when they do, and what becomes of them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import cast

import psutil
import pytest

from mm2py.clock import SystemClock
from mm2py.pipeline import epoch_jobs
from mm2py.pipeline.copy.sent_plan import MANY, KeptPlan
from mm2py.pipeline.copy_job import CopyJob, EpochLostError
from mm2py.pipeline.plan_server import PlanServer
from mm2py.pipeline.spark.session import SparkSession
from mm2py.telemetry.journal import EventLog
from tests.support.epochs import (
    FLOW,
    Spark,
    idle_partitions,
    idle_plan,
    jobs,
    lose,
    repeat,
    repeat_side_by_side,
    worker_of,
)
from tests.support.eventually import eventually, long_enough, scaled


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine a plan takes longer to follow another, and a job to get its slot."""
    monkeypatch.setattr(epoch_jobs, "_REST_S", long_enough(1.0))
    monkeypatch.setattr(epoch_jobs, "SLOT_PATIENCE_S", scaled(3.0))


async def active_jobs(spark: Spark) -> int:
    """Return how many jobs run."""
    session = await spark.host.session()
    return len(await asyncio.to_thread(session.context.statusTracker().getActiveJobsIds))


async def until_idle(spark: Spark) -> None:
    """End tasks that wait for a plan, and wait until no job runs."""
    await spark.runner.settle(FLOW)
    await has_ended(spark)


async def has_ended(spark: Spark) -> None:
    """Wait until no job runs; tasks that wait for a plan end by themselves after a while."""

    async def is_idle() -> bool:
        return await active_jobs(spark) == 0

    await eventually(is_idle, within_s=10, what="all Spark jobs have ended")


async def test_a_spark_task_runs_one_epoch_after_the_other(spark: Spark) -> None:
    """Epochs that follow each other are one Spark job, each with an outcome of its own; without a next one it ends."""
    await until_idle(spark)
    before = await jobs(spark)
    outcomes = await repeat(spark, 0, 5)
    given = await jobs(spark) - before
    await has_ended(spark)

    assert [outcome.epoch for outcome in outcomes] == [0, 1, 2, 3, 4]
    assert given == 1


async def test_tasks_that_begin_at_the_same_moment_share_one_socket(tmp_path: Path) -> None:
    """All copy tasks of a daemon do. Each had the socket made again, and all but the last one listened in vain."""

    def sockets() -> int:
        lines = psutil.Process().net_connections("unix")
        return sum(str(it.laddr).endswith("epoch-plans.sock") for it in lines)

    clock = SystemClock()
    server, before = PlanServer(tmp_path, clock, EventLog(clock), port=None), sockets()
    places = await asyncio.gather(*(server.expect(CopyJob(cast("SparkSession", None))) for _ in range(3)))
    made = sockets() - before
    server.close()

    assert len({place.job for place in filter(None, places)}) == 3
    assert made == 1


async def test_a_socket_that_was_removed_is_made_again(tmp_path: Path) -> None:
    """With the daemon's other temporary files: without it each epoch would be a job of its own from then on."""
    clock = SystemClock()
    server, path = PlanServer(tmp_path, clock, EventLog(clock), port=None), tmp_path / "epoch-plans.sock"
    await server.expect(CopyJob(cast("SparkSession", None)))
    path.unlink()
    await server.expect(CopyJob(cast("SparkSession", None)))
    is_there = path.exists()
    server.close()

    assert is_there


async def test_no_task_stays_where_another_needs_its_slot(spark: Spark) -> None:
    """Five copy tasks on three slots take turns: none keeps a slot between two epochs, and none waits for long."""
    await until_idle(spark)
    outcomes, given = await repeat_side_by_side(spark, 5, 10)

    assert [len(each) for each in outcomes] == [10] * 5
    # The last ones that are left have room.
    assert given > 30
    assert not spark.events.counts["waiting_for_slot"]


async def test_a_flow_that_settles_ends_its_tasks(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow whose life ends leaves no Spark task behind that waits for its next plan."""
    monkeypatch.setattr(epoch_jobs, "_REST_S", 3_600.0)
    await repeat(spark, 0, 2)
    await spark.runner.settle(FLOW)

    await has_ended(spark)


async def test_a_worker_that_is_killed_between_two_epochs(spark: Spark) -> None:
    """Whether the daemon has noticed or not, the next epoch runs elsewhere or is lost, and may not write any more."""
    (outcome,) = await repeat(spark, 0, 1)
    os.kill(int(outcome.worker.rpartition(":")[2]), signal.SIGKILL)
    losses: list[EpochLostError] = []
    try:
        await spark.runner.run(idle_plan(0, 1))
    except EpochLostError as error:
        losses.append(error)
    again = await spark.runner.run(idle_plan(0, 2))

    assert [(lost.epoch, lost.may_still_write) for lost in losses] in ([], [(idle_plan(0, 1).name, False)])
    assert again.epoch == 2
    assert again.worker != outcome.worker


async def test_a_worker_that_is_killed_in_a_later_epoch(spark: Spark) -> None:
    """Of the epochs of one Spark job the one under way is lost, not those before, and its loss has its own name."""
    await repeat(spark, 0, 1)
    async with asyncio.TaskGroup() as group:
        lost = group.create_task(lose(spark, idle_plan(0, 1, epoch_ms=60_000)))
        (await worker_of(spark)).kill()

    assert lost.result().epoch == idle_plan(0, 1).name
    assert "worker" in lost.result().cause
    assert not lost.result().may_still_write


async def test_a_cancelled_epoch_ends_with_its_own_outcome(spark: Spark) -> None:
    """What nobody waits for any more is not taken for the outcome of the next epoch."""
    await repeat(spark, 0, 1)
    running = asyncio.create_task(spark.runner.run(idle_plan(0, 1, epoch_ms=1_000)))
    await asyncio.sleep(0.2)
    running.cancel()
    await asyncio.wait({running})
    await spark.runner.settle(FLOW)
    outcome = await spark.runner.run(idle_plan(0, 2))

    assert outcome.epoch == 2


async def test_a_worker_asks_for_the_plan_that_it_lacks(spark: Spark) -> None:
    """A worker that is sent the difference to a plan that it does not have gets the whole one, in the same job."""
    partitions = idle_partitions(MANY + 1)
    await until_idle(spark)
    before = await jobs(spark)
    await spark.runner.run(idle_plan(0, 0, partitions=partitions))
    spark.runner._known[FLOW, 0] = KeptPlan(1_000_000, {it.source: it for it in partitions}, tuple(partitions))
    outcome = await spark.runner.run(idle_plan(0, 1, partitions=partitions))

    assert outcome.epoch == 1
    assert len(outcome.partitions) == len(partitions)
    assert await jobs(spark) - before == 1


async def test_nothing_is_kept_of_a_flow_that_has_settled(spark: Spark) -> None:
    """It may have been removed: its threads end, and its last plans are gone. If it comes back, its epochs run."""
    await repeat(spark, 0, 2)
    await spark.runner.settle(FLOW)

    def threads() -> list[str]:
        return [it.name for it in threading.enumerate() if it.name.startswith(f"{FLOW}/source/")]

    await eventually(lambda: not threads(), within_s=10, what="its threads have ended")
    kept = [key for key in (*spark.runner._known, *spark.runner._threads) if key[0] == FLOW]
    outcomes = await repeat(spark, 0, 2)

    assert kept == []
    assert [outcome.epoch for outcome in outcomes] == [0, 1]
