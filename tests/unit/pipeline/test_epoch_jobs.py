"""How long the Spark task of a copy task keeps its slot, and a Spark from which no epoch comes back its place."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mm2py.model.flow import Flow
from mm2py.pipeline import epoch_jobs
from mm2py.pipeline.copy_job import CopyJob, EpochLostError
from mm2py.pipeline.spark.session import SparkHost
from mm2py.telemetry.events import SparkEnded
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock
from tests.support.epochs import idle_plan


class _Job(CopyJob):
    """A job whose worker has connected; it notes what becomes of it after an epoch."""

    def __init__(self) -> None:
        session: Any = SimpleNamespace()
        super().__init__(session)
        self.has_connected = True
        self.told: list[str] = []

    def rest(self, _seconds: float) -> None:
        self.told.append("stay")

    def end(self) -> None:
        self.told.append("end")


async def test_no_task_stays_while_an_executor_is_decommissioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no more tasks, and ends when those that it has are over: the next epoch is a job that runs elsewhere."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    clock = LoopClock()
    host = SparkHost({"spark.master": "spark://m:7077"}, copy_tasks=1, clock=clock, events=EventLog(clock))
    runner, job, key = epoch_jobs.EpochRunner(host, clock, EventLog(clock)), _Job(), (Flow("A", "B"), 0)
    plan: Any = None
    for host.loses_executors in (False, True, False):
        outcome: Any = asyncio.get_running_loop().create_future()
        outcome.set_result(None)
        running = runner._running[key] = epoch_jobs._Running(plan, tmp_path / "epoch-1.stop", job, outcome)
        runner._ended(key, running, outcome)
    runner.close()
    await host.stop(within_s=1)

    assert job.told == ["stay", "end", "stay"]


@pytest.mark.parametrize(
    ("comes_back", "ended"),
    [
        pytest.param(False, ["epochs were lost for 120 s, and none came back; it is started again"], id="never"),
        pytest.param(True, [], id="once in between"),
    ],
)
async def test_a_spark_from_which_no_epoch_comes_back_is_started_again(
    comes_back: bool, ended: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its executors' folders were removed, for example: Spark takes them for sound, and has them fail each job."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    clock, events = LoopClock(), EventLog(LoopClock())
    host = SparkHost({"spark.master": "spark://m:7077"}, copy_tasks=1, clock=clock, events=events)

    def answered(*_: object) -> asyncio.Future[bool]:
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(False)
        return answer

    async def job_of(*_: object) -> _Job:
        job = _Job()
        if comes_back and 40 < clock.monotonic() - begun < 80:
            job.outcome.set_result(None)  # type: ignore[arg-type]
        else:
            job.outcome.set_exception(EpochLostError("an epoch", "its folder is gone", may_still_write=False))
        return job

    async def discard(_: object) -> None:
        host._session = None

    session: Any = SimpleNamespace(is_alive=True, begin=answered)
    host._session, begun = session, clock.monotonic()
    monkeypatch.setattr(host, "_discard", discard)
    runner = epoch_jobs.EpochRunner(host, clock, events)
    monkeypatch.setattr(runner, "_job_of", job_of)
    for number in range(8):
        if host._session is None:
            break
        with suppress(EpochLostError):
            await runner.run(idle_plan(0, number))
        await clock.sleep(20.0)
    host._session = None
    runner.close()
    await host.stop(within_s=1)

    assert [event.reason for event in events.of(SparkEnded)] == ended
