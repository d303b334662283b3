"""Spark tasks that stay on the executors of a cluster, which get their plans from the driver over the network."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from mm2py.pipeline import epoch_jobs
from mm2py.pipeline.copy.next_plans import NOTHING, Cipher, Messages, PlansFrom
from mm2py.pipeline.copy_job import CopyJob
from mm2py.telemetry.events import CopyTasksNotReached
from tests.support.epochs import FLOW, Spark, idle_plan, jobs, repeat, repeat_side_by_side, spark_of
from tests.support.eventually import eventually, scaled
from tests.support.spark import spark_cluster, why_nothing_can_be_hidden


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def spark(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Spark]:
    """
    A cluster with two cores, which is asked for both.

    Its executors do not see the driver's files, as on another machine, where the kernel allows that.
    """
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="disc-") as disc:
        patch.setattr(tempfile, "tempdir", disc)
        hidden = None if why_nothing_can_be_hidden(folder) else Path(disc)
        with spark_cluster(folder, workers=1, hidden=hidden) as cluster:
            async with spark_of(**cluster.settings()) as started:
                await started.host.session()
                yield started


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine a plan takes longer to follow another, a job to get its slot, and an epoch to end."""
    monkeypatch.setattr(epoch_jobs, "_REST_S", scaled(1.0))
    monkeypatch.setattr(epoch_jobs, "SLOT_PATIENCE_S", scaled(3.0))
    monkeypatch.setattr(epoch_jobs, "_SETTLE_SLACK_S", scaled(2.0))


async def test_a_spark_task_of_a_cluster_runs_one_epoch_after_the_other(spark: Spark) -> None:
    """Two copy tasks need a Spark job each for all of their epochs, although the cluster has no core to spare."""
    # Python may take longer to start than some epochs, and no task stays until both have connected.
    for _ in range(20):
        _, given = await repeat_side_by_side(spark, 2, 2)
        if given <= 2:
            break
    outcomes, given = await repeat_side_by_side(spark, 2, 10)

    assert [[outcome.epoch for outcome in each] for each in outcomes] == [list(range(10))] * 2
    assert given <= 2


async def test_no_task_of_a_cluster_stays_where_another_needs_its_core(spark: Spark) -> None:
    """Five copy tasks on two cores take turns, and none waits for long."""
    await spark.runner.settle(FLOW)
    outcomes, given = await repeat_side_by_side(spark, 5, 10)

    assert [len(each) for each in outcomes] == [10] * 5
    assert given > 30
    assert not spark.events.counts["waiting_for_slot"]


@pytest.mark.parametrize("how", ["nudge", "nudge before it has connected", "settle"])
async def test_an_epoch_of_a_cluster_ends_early(spark: Spark, how: str) -> None:
    """An executor that cannot see the driver's files ends the epoch when it is told so, and that one alone."""
    await repeat(spark, 0, 1)
    if how == "nudge before it has connected":
        await spark.runner.settle(FLOW)
    async with asyncio.timeout(scaled(20)), asyncio.TaskGroup() as group:
        running = group.create_task(spark.runner.run(idle_plan(0, 1, epoch_ms=60_000)))
        if how != "nudge before it has connected":
            await asyncio.sleep(0.5)
        if how == "settle":
            await spark.runner.settle(FLOW)
        else:
            await eventually(lambda: spark.runner.nudge(FLOW, 0), within_s=5, what="it is told", every_s=0.001)
    again = await spark.runner.run(idle_plan(0, 2, epoch_ms=300))

    assert running.result().epoch == 1
    assert again.elapsed_s >= 0.3


async def test_a_stranger_learns_and_says_nothing(spark: Spark) -> None:
    """Who does not have a job's key is not served, and the worker that has it still is."""
    session = await spark.host.session()
    job = CopyJob(session)
    place = await spark.runner._plans.expect(job)
    assert place is not None
    assert not isinstance(place.address, str)

    async def says(content: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*place.address)
        writer.write(content)
        answer = await reader.read()
        writer.close()
        return answer

    number = place.job.to_bytes(8, "big")
    strange = [
        number + (1 << 40).to_bytes(8, "big"),
        number + (16).to_bytes(8, "big") + bytes(16),
        (999_999).to_bytes(8, "big") + bytes(8),
    ]
    async with asyncio.timeout(scaled(5)):
        answers = [await says(content) for content in strange]
    assert answers == [b""] * 3
    assert not job.has_connected

    reader, writer = await asyncio.open_connection(*place.address)
    writer.write(number)
    ours = Messages(reader, writer, Cipher(place.key, is_worker=True))
    ours.write(NOTHING)
    await eventually(lambda: job.has_connected, within_s=5, what="the worker is served")
    job.end()
    assert await ours.read() is None
    writer.close()
    assert place.key.hex() not in repr(place)


async def test_executors_that_cannot_connect_run_a_job_for_each_epoch(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported once, with the worker, and they are not asked to try again for a while."""
    await spark.runner.settle(FLOW)
    plans = spark.runner._plans
    expect = plans.expect

    async def behind_a_firewall(job: CopyJob) -> PlansFrom | None:
        place = await expect(job)
        return None if place is None else PlansFrom(place.job, ("127.0.0.1", 1), place.key)

    monkeypatch.setattr(plans, "expect", behind_a_firewall)
    before = await jobs(spark)
    outcomes = await repeat(spark, 0, 4)
    given = await jobs(spark) - before
    reported = spark.events.of(CopyTasksNotReached)

    assert [outcome.epoch for outcome in outcomes] == [0, 1, 2, 3]
    assert given == 4
    assert [(event.worker, event.error) for event in reported] == [(outcomes[0].worker, "it did not connect")]
    assert await expect(CopyJob(await spark.host.session())) is None
