"""Spark as the daemon hosts it: without slots, without its JVM, at its end."""

from __future__ import annotations

import asyncio

from mm2py.telemetry.events import SparkEnded, SparkStarted, WaitingForSlot
from tests.support.epochs import FLOW, idle_plan, lose, run_both, spark_of


async def test_without_a_slot_it_says_so() -> None:
    """An epoch that finds no slot says so once, and runs when there is one; the one that has it says nothing."""
    async with spark_of(**{"spark.master": "local[1]"}) as spark:
        await spark.host.session()

        await run_both(spark, epoch_ms=5_000)

        (waiting,) = spark.events.of(WaitingForSlot)
        assert waiting.waited_s >= 3
        assert not spark.runner.is_waiting(FLOW, waiting.task)


async def test_a_dead_jvm_is_started_again() -> None:
    """When Spark's JVM is killed its epochs are lost, the next one starts Spark anew, and a stop leaves nothing."""
    async with spark_of() as spark:
        session = await spark.host.session()
        async with asyncio.TaskGroup() as group:
            lost = group.create_task(lose(spark, idle_plan(epoch_ms=60_000)))
            await asyncio.sleep(1)
            session.process.kill()
        again = await spark.runner.run(idle_plan())
        second = await spark.host.session()
        scratch = spark.host.scratch

    assert lost.result().may_still_write
    assert again.worker
    assert len(spark.events.of(SparkStarted)) == 2
    assert len(spark.events.of(SparkEnded)) == 1
    assert not session.is_alive
    assert not second.is_alive
    assert not scratch.exists()
