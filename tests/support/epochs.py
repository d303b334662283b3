"""Epochs on a Spark of the test's own process: how to start it, and plans that have nothing to copy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import psutil

from mm2py.clock import SystemClock
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import CopyLimits, EpochOutcome, EpochPlan, PartitionPlan
from mm2py.model.flow import Flow, TopicPartition
from mm2py.pipeline.copy_job import EpochLostError
from mm2py.pipeline.epoch_jobs import EpochRunner
from mm2py.pipeline.spark.session import SparkHost
from mm2py.telemetry.journal import EventLog
from tests.support.eventually import eventually, scaled


FLOW = Flow("A", "B")
#: No broker listens there: an epoch between such clusters only passes its time.
_NOWHERE = ClusterEndpoint("A", ("127.0.0.1:1",))


@attrs.define
class Spark:
    """Spark with two slots, and what was said about it."""

    host: SparkHost
    runner: EpochRunner
    events: EventLog


@asynccontextmanager
async def spark_of(**settings: str) -> AsyncIterator[Spark]:
    """Host Spark with these settings; pyspark allows one at a time in a process."""
    clock = SystemClock()
    events = EventLog(clock)
    host = SparkHost(settings, copy_tasks=2, clock=clock, events=events)
    runner = EpochRunner(host, clock, events)
    try:
        yield Spark(host, runner, events)
    finally:
        await runner.records.close()
        runner.close()
        await host.stop(within_s=10)


def idle_plan(
    task: int = 0, epoch: int = 0, *, epoch_ms: int = 100, partitions: tuple[PartitionPlan, ...] = ()
) -> EpochPlan:
    """Plan an epoch that has nothing to copy, or nowhere to copy it."""
    return EpochPlan(FLOW, task, epoch, _NOWHERE, _NOWHERE, partitions, CopyLimits(), epoch_ms, drain_ms=500)


def idle_partitions(count: int) -> tuple[PartitionPlan, ...]:
    """Plan *count* partitions of a topic that no broker has."""
    return tuple(PartitionPlan(TopicPartition("t", number), "A.t", 0, -1, is_unsure=False) for number in range(count))


async def worker_of(spark: Spark, task: int = 0) -> psutil.Process:
    """Wait until the epoch of a copy task runs, and return the Python worker that does so."""

    def found() -> str:
        running = spark.runner._running.get((FLOW, task))
        return running.worker if running is not None else ""

    name = await eventually(found, within_s=20, what="the worker has left its name")
    return psutil.Process(int(name.rpartition(":")[2]))


async def jobs(spark: Spark) -> int:
    """Return how many jobs Spark has been given."""
    session = await spark.host.session()
    return int(await asyncio.to_thread(lambda: session.context._jsc.sc().dagScheduler().numTotalJobs()))


async def repeat(spark: Spark, task: int, times: int) -> list[EpochOutcome]:
    """Run epochs of a copy task, each right after the other."""
    return [await spark.runner.run(idle_plan(task, epoch)) for epoch in range(times)]


async def repeat_side_by_side(spark: Spark, tasks: int, times: int) -> tuple[list[list[EpochOutcome]], int]:
    """Run epochs of some copy tasks, and return those of each; and how many jobs Spark was given for them."""
    before = await jobs(spark)
    async with asyncio.timeout(scaled(60)), asyncio.TaskGroup() as group:
        running = [group.create_task(repeat(spark, task, times)) for task in range(tasks)]
    return [it.result() for it in running], await jobs(spark) - before


async def lose(spark: Spark, plan: EpochPlan) -> EpochLostError:
    """Run an epoch that is to be lost, and return the loss."""
    try:
        await spark.runner.run(plan)
    except EpochLostError as error:
        return error
    message = f"{plan.name} was not lost"
    raise AssertionError(message)
