"""Spark as the daemon hosts it: without slots, without its JVM, at its end."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from mm2py.pipeline.spark import session as session_module
from mm2py.pipeline.spark.class_archive import make_class_archive
from mm2py.pipeline.spark.session import SparkSession, SparkStartError
from mm2py.pipeline.spark.settings import class_archive
from mm2py.telemetry.events import SparkEnded, SparkLogged, SparkStarted, WaitingForSlot
from tests.support.epochs import FLOW, Spark, idle_plan, lose, spark_of, worker_of
from tests.support.eventually import eventually


async def test_without_a_slot_it_says_so() -> None:
    """An epoch without a slot is reported once, and runs when there is one; the one that has it is not reported."""
    async with spark_of(**{"spark.master": "local[1]"}) as spark:
        async with asyncio.TaskGroup() as group:
            group.create_task(spark.runner.run(idle_plan(0, epoch_ms=600_000)))
            await worker_of(spark, 0)
            before = len(spark.events.of(WaitingForSlot))  # a slow machine needs long for the first one
            second = group.create_task(spark.runner.run(idle_plan(1)))
            await eventually(lambda: spark.runner.is_waiting(FLOW, 1), within_s=20, what="the second one waits")
            spark.runner.nudge(FLOW, 0)

        (waiting,) = spark.events.of(WaitingForSlot)[before:]
        assert (waiting.task, second.result().epoch) == (1, 0)
        assert waiting.waited_s >= 3
        assert not spark.runner.is_waiting(FLOW, 1)


async def test_a_context_that_spark_refuses_has_a_reason() -> None:
    """Spark's own words, which only its JVM knows, are in our error after the JVM was ended."""
    async with spark_of(**{"spark.master": "local[0]"}) as spark:
        with pytest.raises(SparkStartError, match="Asked to run locally with 0 threads"):
            await spark.host.session()


async def test_a_jvm_that_is_killed_as_it_starts_did_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory was short, perhaps: it is an error that ends a daemon with its exit code, and no traceback."""
    warm_up = session_module._warm_up

    def die(session: SparkSession, workers: int) -> None:
        session.process.kill()
        session.process.wait()
        warm_up(session, workers)

    monkeypatch.setattr(session_module, "_warm_up", die)
    async with spark_of() as spark:
        with pytest.raises(SparkStartError, match="its JVM was killed"):
            await spark.host.session()


async def test_a_dead_jvm_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    """When Spark's JVM is killed its epochs are lost, the next one starts Spark again, and a stop leaves nothing."""
    async with spark_of() as spark:
        session = await spark.host.session()
        async with asyncio.TaskGroup() as group:
            lost = group.create_task(lose(spark, idle_plan(epoch_ms=60_000)))
            await worker_of(spark)
            session.process.kill()
        # As py4j does where a call was in the middle of its answer.
        logging.error("Exception while sending command.")  # noqa: LOG015
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
    assert caplog.messages == []


async def test_a_dead_jvm_leaves_nothing_to_the_next() -> None:
    """What pyspark has for a JVM in this process, and the JVM's files, go with it: a daemon has many in its life."""

    def held(spark: Spark) -> tuple[int, int, int]:
        threads = [
            it for it in threading.enumerate() if not it.name.startswith("asyncio")
        ]  # it starts them as it likes
        return len(threads), psutil.Process().num_fds(), len(list(spark.host.scratch.iterdir()))

    async def next_life(spark: Spark) -> None:
        session = await spark.host.session()
        session.process.kill()
        await asyncio.to_thread(session.process.wait)
        await spark.runner.run(idle_plan(epoch_ms=10))

    async with spark_of() as spark:
        await next_life(spark)  # by now what tests before this one left has ended
        gc.collect()
        before = held(spark)
        await next_life(spark)

        def is_as_before() -> bool:
            gc.collect()
            assert all(now <= then for now, then in zip(held(spark), before, strict=True)), held(spark)
            return True

        await eventually(is_as_before, within_s=10, what=f"threads, descriptors and files are {before}")


async def test_what_spark_logs_is_a_line_each_but_for_what_events_of_ours_tell() -> None:
    """A cause of several lines stays with its message; a failed micro-batch is not logged by Spark as well."""
    failed_batch = (
        "Aborting task",
        "Aborting commit for partition 0 (task 36, attempt 0, stage 32.0)",
        "Aborted commit for partition 0 (task 36, attempt 0, stage 32.0)",
        "Data source write support MicroBatchWrite[epoch: 1, writer: x.y.Z@1b84694c] is aborting.",
        "Data source write support MicroBatchWrite[epoch: 1, writer: x.y.Z@1b84694c] aborted.",
        "Query A->B transform.sql [id = 2e01, runId = 243f] terminated with error",
        "Failed to cancel job group 57d0. Cannot find active jobs for it.",
    )
    async with spark_of() as spark:
        jvm: Any = (await spark.host.session()).context._jvm

        def log() -> None:
            toy = jvm.org.apache.logging.log4j.LogManager.getLogger("org.apache.spark.Toy")
            for message in failed_batch:
                toy.error(message, jvm.java.lang.RuntimeException("[NO_GOOD] no good\n\tat a line"))
            toy.error("Aborting stage\nof a toy", jvm.java.lang.RuntimeException("first\n\n\tsecond"))
            toy.warn("nothing more")

        await asyncio.to_thread(log)
        said = await eventually(
            lambda: lines if (lines := spark.events.of(SparkLogged))[-1:] and "more" in lines[-1].line else None,
            within_s=10,
            what="Spark has said it",
        )

    assert [event.line for event in said][-2:] == [
        "ERROR Toy: Aborting stage | of a toy first | second",
        "WARN Toy: nothing more",
    ]
    assert not [event for event in said if "NO_GOOD" in event.line]


async def test_spark_takes_its_classes_from_their_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's JVM maps the archive; one of other classes is ignored without a warning."""
    if not class_archive():
        await make_class_archive(tmp_path)
    archive = Path(class_archive() or class_archive(tmp_path))
    unfit = _spoilt(archive, tmp_path)

    monkeypatch.setattr(session_module, "class_archive", lambda: str(archive))
    async with spark_of() as spark:
        mapped = _mapped((await spark.host.session()).process.pid)
    monkeypatch.setattr(session_module, "class_archive", lambda: str(unfit))
    async with spark_of() as other:
        assert (await other.runner.run(idle_plan())).worker

    assert str(archive) in mapped
    assert not spark.events.of(SparkLogged)
    assert not other.events.of(SparkLogged)


def _spoilt(archive: Path, folder: Path) -> Path:
    unfit = folder / "unfit.jsa"
    unfit.write_bytes(bytes(64) + archive.read_bytes()[64:])
    return unfit


def _mapped(pid: int) -> str:
    """Return the files that a process has in its memory."""
    return Path(f"/proc/{pid}/maps").read_text()
