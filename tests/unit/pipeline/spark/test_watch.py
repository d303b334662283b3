"""A Spark that runs is watched: whether its cluster still has executors for it."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from mm2py.pipeline.spark import internals, session
from mm2py.pipeline.spark.session import SparkHost
from mm2py.telemetry.events import SparkEnded
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock


def _context(master: str, *, executors: int, jobs: Sequence[int], decommissioned: int = 0) -> Any:
    """Return a context of Spark's whose driver is one of the executors."""
    known, leaving = (SimpleNamespace(size=lambda count=count: count) for count in (executors, decommissioned))
    backend = SimpleNamespace(executorsPendingDecommission=lambda: leaving)
    spark = SimpleNamespace(
        getExecutorMemoryStatus=lambda: known, schedulerBackend=lambda: backend, isStopped=lambda: False
    )
    tracker = SimpleNamespace(getActiveJobsIds=lambda: jobs)
    return SimpleNamespace(master=master, _jsc=SimpleNamespace(sc=lambda: spark), statusTracker=lambda: tracker)


@pytest.mark.parametrize(
    ("master", "executors", "jobs", "lacks"),
    [
        pytest.param("spark://m:7077", 1, [3], True, id="the driver is alone"),
        pytest.param("spark://m:7077", 2, [3], False, id="there is one"),
        pytest.param("spark://m:7077", 1, [], False, id="nothing to do"),
        pytest.param("local[2]", 1, [3], False, id="embedded"),
        pytest.param("yarn", 1, [3], False, id="a cluster that remembers what it was asked for"),
    ],
)
def test_which_spark_lacks_executors(master: str, executors: int, jobs: list[int], lacks: bool) -> None:
    """Only a standalone cluster forgets a driver, and only one with something to do needs executors."""
    assert internals.executors(_context(master, executors=executors, jobs=jobs)) == (lacks, False)


def test_an_executor_is_decommissioned() -> None:
    """Any cluster may do that."""
    assert internals.executors(_context("yarn", executors=3, jobs=[3], decommissioned=1)) == (False, True)


def test_a_spark_that_is_gone_lacks_nothing() -> None:
    """Its end has its own story."""

    def is_gone() -> None:
        raise Py4JNetworkError

    gone: Any = SimpleNamespace(master="spark://m:7077", _jsc=SimpleNamespace(sc=is_gone))
    assert internals.executors(gone) == (False, False)


@pytest.mark.parametrize(
    ("answers", "ended"),
    [
        pytest.param([True] * 12, ["it has had no executor for 60 s; it is started again"], id="for a minute"),
        pytest.param([*[True] * 11, False, *[True] * 11, False], [], id="two times, not as long"),
    ],
)
async def test_a_spark_without_executors_is_started_again(
    answers: list[bool], ended: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A standalone master is restarted without a recovery mode, ends the executors of our driver, and gives it no others.

    Its jobs would wait for ever. An executor that is replaced, as after the loss of a machine, takes less time.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    buried: list[object] = []
    monkeypatch.setattr(session, "_bury", buried.append)
    clock, left = LoopClock(), iter(answers)
    host = SparkHost({"spark.master": "spark://m:7077"}, copy_tasks=1, clock=clock, events=EventLog(clock))
    first: Any = SimpleNamespace(is_alive=True, context=None)
    host._session = first

    async def ask(*_: object) -> tuple[bool, bool]:
        return next(left, False), False

    monkeypatch.setattr(host, "ask", ask)
    with suppress(TimeoutError):
        async with asyncio.timeout(150):
            await host.watch()
    host._scratch.remove()

    assert [event.reason for event in host._events.of(SparkEnded)] == ended
    assert buried == [first] * len(ended)
    assert host.is_up is not bool(ended)


async def test_no_spark_is_started_while_another_one_is_being_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark keeps its context for the whole process: what ends one would take it from the next one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said: list[str] = []
    has_begun, is_over = threading.Event(), threading.Event()

    def bury(_: object) -> None:
        said.append("ending")
        has_begun.set()
        is_over.wait(30)
        said.append("ended")

    async def start() -> Any:
        said.append("started")
        return SimpleNamespace(is_alive=True)

    clock = LoopClock()
    host = SparkHost({}, copy_tasks=1, clock=clock, events=EventLog(clock))
    first: Any = SimpleNamespace(is_alive=True)
    host._session = first
    monkeypatch.setattr(session, "_bury", bury)
    monkeypatch.setattr(host, "_start", start)
    async with asyncio.TaskGroup() as tasks:
        ending = tasks.create_task(host.replace(first, "no use"))
        await asyncio.to_thread(has_begun.wait, 30)  # virtual time would be over before a thread begins
        ending.cancel()
        tasks.create_task(host.session())
        await asyncio.sleep(0.01)
        is_over.set()
    host._scratch.remove()

    assert said == ["ending", "ended", "started"]
