"""Epochs on real Spark: what they cost to lose, how they end, and that they copy."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import secrets
import signal
import urllib.request
from ipaddress import ip_address

import attrs
import psutil
import pytest
from py4j.finalizer import ThreadSafeFinalizer
from pyspark.errors.exceptions.captured import install_exception_handler

from mm2py.clock import SystemClock
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import CopyLimits, EpochOutcome, EpochPlan, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.sent_plan import MANY
from mm2py.pipeline.copy_job import EpochLostError
from mm2py.wire.cluster import Cluster
from tests.support.copying import fenced
from tests.support.daemon import process_tree
from tests.support.epochs import FLOW, Spark, idle_partitions, idle_plan, lose, worker_of
from tests.support.eventually import eventually, scaled
from tests.support.mirrored import await_arrived
from tests.support.producing import produce_numbers
from tests.support.reading import read_numbers
from tests.support.records import assert_numbers
from tests.support.topics import create_topic


pytestmark = pytest.mark.asyncio(loop_scope="module")


def copy_plan(primary: KafkaCluster, backup: KafkaCluster, topic: str, partitions: int) -> EpochPlan:
    """Plan an epoch that copies a topic from its start."""
    return EpochPlan(
        FLOW,
        0,
        7,
        ClusterEndpoint("A", tuple(primary.bootstrap_servers.split(","))),
        ClusterEndpoint("B", tuple(backup.bootstrap_servers.split(","))),
        tuple(
            PartitionPlan(TopicPartition(topic, number), f"A.{topic}", 0, -1, is_unsure=True)
            for number in range(partitions)
        ),
        CopyLimits(),
        epoch_ms=600_000,
        drain_ms=10_000,
    )


async def copied(spark: Spark, plan: EpochPlan, records: int) -> EpochOutcome:
    """Run an epoch, and end it once its remote topic holds that many records."""
    async with asyncio.TaskGroup() as group:
        running = group.create_task(spark.runner.run(plan))
        await await_arrived(plan.target.bootstrap_servers[0], plan.partitions[0].remote_topic, records)
        spark.runner.nudge(FLOW, 0)
    return running.result()


async def test_an_epoch_copies(spark: Spark, primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> None:
    """A plan goes in, records arrive at the target, and the outcome has the new position."""
    await create_topic(primary.bootstrap_servers, prefix, partitions=2)
    await create_topic(backup.bootstrap_servers, f"A.{prefix}", partitions=2)
    await produce_numbers(primary.bootstrap_servers, prefix, count=10_000, partitions=2)

    plan = copy_plan(primary, backup, prefix, 2)
    async with Cluster(plan.target, SystemClock()) as target:
        partitions = await fenced(dict(enumerate(plan.partitions)), target)
    outcome = await copied(spark, attrs.evolve(plan, partitions=tuple(partitions.values())), 10_000)

    assert_numbers(await read_numbers(backup.bootstrap_servers, f"A.{prefix}"), 10_000)
    assert outcome.records == 10_000
    assert {(it.position, it.downstream, it.is_unsure) for it in outcome.partitions} == {(5_000, 4_999, False)}


async def test_a_worker_that_lacks_the_plan_before_gets_all_of_the_next(
    spark: Spark, primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """Of many partitions a worker is sent what is different; one that is new since then copies all the same."""
    count = MANY + 1
    await create_topic(primary.bootstrap_servers, prefix, partitions=count)
    await create_topic(backup.bootstrap_servers, f"A.{prefix}", partitions=count)
    plan = copy_plan(primary, backup, prefix, count)
    async with Cluster(plan.target, SystemClock()) as target:
        partitions = await fenced(dict(enumerate(plan.partitions)), target)
    tracker = (await spark.host.session()).context.statusTracker()
    outcomes = []
    for rounds in range(3):
        await produce_numbers(primary.bootstrap_servers, prefix, count=10, partitions=count)
        whole = attrs.evolve(plan, partitions=tuple(partitions.values()))
        outcomes.append(await copied(spark, whole, 10 * (rounds + 1)))
        for it in outcomes[-1].partitions:
            partitions[it.source.partition] = attrs.evolve(
                partitions[it.source.partition],
                position=it.position,
                downstream=it.downstream,
                is_unsure=it.is_unsure,
                producer=it.producer,
            )
        if rounds == 1:
            os.kill(int(outcomes[-1].worker.rpartition(":")[2]), signal.SIGKILL)
            # Until Spark has noticed, its task would be given the next plan, and that epoch be lost.
            await eventually(lambda: not tracker.getActiveJobsIds(), within_s=10, what="the task has ended")

    assert [outcome.records for outcome in outcomes] == [10, 10, 10]
    workers = [outcome.worker for outcome in outcomes]
    assert workers[0] == workers[1] != workers[2]


async def test_workers_are_reused(spark: Spark) -> None:
    """Epochs that follow each other run in one Python worker, with the event loop and connections it has."""
    outcomes = [await spark.runner.run(idle_plan(epoch=number)) for number in range(5)]

    assert len({outcome.worker for outcome in outcomes}) == 1


async def test_an_epoch_leaves_nothing_in_the_jvm(spark: Spark) -> None:
    """What Spark's JVM is to delete at its end does not grow with each epoch: a daemon lives for months."""
    session = await spark.host.session()

    def remembered() -> int:
        hook = session.context._jvm.java.lang.Class.forName("java.io.DeleteOnExitHook")  # type: ignore[union-attr]
        files = hook.getDeclaredField("files")
        files.setAccessible(True)
        return int(files.get(None).size())

    await spark.runner.run(idle_plan())
    before = await asyncio.to_thread(remembered)
    for number in range(5):
        await spark.runner.run(idle_plan(epoch=number, epoch_ms=10))

    assert await asyncio.to_thread(remembered) == before


async def test_an_epoch_holds_nothing_of_the_jvm(spark: Spark) -> None:
    """
    What an epoch had in Spark's JVM is released with it, not when Python's garbage collector next comes to it.

    In a daemon with many partitions that is after hundreds of epochs, each with a plan of its own.
    """
    await spark.runner.run(idle_plan())
    gc.collect()
    gc.disable()
    try:
        held = len(ThreadSafeFinalizer.finalizers)
        for number in range(5):
            await spark.runner.run(idle_plan(epoch=number, epoch_ms=10))

        await eventually(lambda: len(ThreadSafeFinalizer.finalizers) <= held, within_s=10, what="all is released")
    finally:
        gc.enable()


async def test_a_large_plan_leaves_no_file(spark: Spark) -> None:
    """
    The plan of 50 000 partitions goes where small ones go.

    Spark itself writes a function of more than 1 MiB to a file for each job, and deletes it when it ends.
    """

    def files() -> set[str]:
        return {file.name for file in spark.host.scratch.rglob("*") if file.is_file()}

    padded = attrs.evolve(idle_plan(epoch_ms=10).source, alias=secrets.token_hex(4_000_000))
    await spark.runner.run(idle_plan(epoch_ms=10))
    before = await asyncio.to_thread(files)
    await spark.runner.run(attrs.evolve(idle_plan(epoch_ms=10), source=padded))

    assert await asyncio.to_thread(files) == before


async def test_copy_tasks_run_side_by_side(spark: Spark) -> None:
    """Two copy tasks on two slots run at the same time, each in a worker of its own."""
    async with asyncio.TaskGroup() as group:
        for task in (0, 1):
            group.create_task(spark.runner.run(idle_plan(task, epoch_ms=600_000)))
        workers = [await worker_of(spark, task) for task in (0, 1)]
        for task in (0, 1):
            spark.runner.nudge(FLOW, task)

    assert workers[0] != workers[1]


async def test_embedded_spark_is_reached_from_this_machine_alone(spark: Spark) -> None:
    """Spark's UI shows environment and jobs without a login: neither it nor any other port is open to the network."""
    session = await spark.host.session()
    processes = await asyncio.to_thread(process_tree, session.process.pid)
    listening = [
        ip_address(line.laddr.ip)
        for process in processes
        for line in process.net_connections("tcp")
        if line.status == psutil.CONN_LISTEN
    ]

    assert listening, "the UI at least"
    assert [str(it) for it in listening if not (getattr(it, "ipv4_mapped", None) or it).is_loopback] == []


async def test_an_epoch_is_a_line_in_the_spark_ui(spark: Spark) -> None:
    """Spark's own page names each job after flow, task and its first epoch."""
    plan = idle_plan(task=5, epoch=17)
    await spark.runner.run(plan)
    session = await spark.host.session()
    url = f"{session.context.uiWebUrl}/api/v1/applications/{session.context.applicationId}/jobs"

    def descriptions() -> list[str]:
        # The first answer has Spark load what it needs for it.
        with urllib.request.urlopen(url, timeout=scaled(30)) as answer:
            return [job.get("description", "") for job in json.load(answer)]

    async def is_listed() -> bool:
        return "A->B source 5, from epoch 17" in await asyncio.to_thread(descriptions)

    # The page learns of a job a moment later.
    await eventually(is_listed, within_s=20, what="the epoch is listed")


async def test_a_nudge_ends_an_epoch(spark: Spark) -> None:
    """An epoch that is nudged ends at once and in good order."""
    async with asyncio.timeout(scaled(20)), asyncio.TaskGroup() as group:
        running = group.create_task(spark.runner.run(idle_plan(epoch_ms=600_000)))
        await worker_of(spark)
        is_nudged = spark.runner.nudge(FLOW, 0)

    assert is_nudged
    assert running.result().elapsed_s < scaled(5)
    assert not spark.runner.nudge(FLOW, 0)


@pytest.mark.parametrize("uses_sql", [False, True])
async def test_a_task_that_raises_is_a_lost_epoch(spark: Spark, *, uses_sql: bool) -> None:
    """
    Of the task's error one line is left, and it is known that the task writes nothing any more.

    It is the same beside a transform in Spark SQL, which has pyspark raise other errors in the whole process.
    """
    if uses_sql:
        install_exception_handler()
    (partition,) = idle_partitions(1)
    senseless = idle_plan(partitions=(attrs.evolve(partition, remote_topic=7),))

    with pytest.raises(EpochLostError) as lost:
        await spark.runner.run(senseless)

    assert lost.value.cause.startswith("AttributeError: ")
    assert not lost.value.may_still_write


async def test_a_killed_worker_is_a_lost_epoch(spark: Spark) -> None:
    """A SIGKILL of the Python worker loses its epoch and no other; the next one runs in a fresh worker."""
    async with asyncio.TaskGroup() as group:
        lost = group.create_task(lose(spark, idle_plan(epoch_ms=60_000)))
        victim = await worker_of(spark)
        victim.kill()
    again = await spark.runner.run(idle_plan())

    assert "worker" in lost.result().cause
    assert not lost.result().may_still_write
    assert not again.worker.endswith(f":{victim.pid}")


async def test_settling_outlives_the_awaiter(spark: Spark) -> None:
    """An epoch whose awaiter was cancelled goes on in Spark, until its flow settles."""
    async with asyncio.TaskGroup() as group:
        running = group.create_task(spark.runner.run(idle_plan(epoch_ms=60_000)))
        await worker_of(spark)
        running.cancel()
    is_running = spark.runner.nudge(FLOW, 0)

    async with asyncio.timeout(scaled(10)):
        await spark.runner.settle(FLOW)

    assert is_running
    assert not spark.runner.nudge(FLOW, 0)
