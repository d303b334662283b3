"""How long the Spark task of a copy task keeps its slot, and a Spark from which no epoch comes back its place."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mm2py.model.epoch import EpochOutcome, PartitionOutcome
from mm2py.model.flow import Flow
from mm2py.pipeline import epoch_jobs
from mm2py.pipeline.copy_job import CopyJob, EpochLostError
from mm2py.pipeline.spark.session import SparkHost
from mm2py.telemetry.events import SparkEnded
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock
from tests.support.epochs import idle_partitions, idle_plan


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


class _Losing:
    """A Spark that loses epochs each 20 s; *comes_back* says, by the time that has passed, which ones are not lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, comes_back: Callable[[float], bool] = lambda _s: False) -> None:
        self.clock, self.events = LoopClock(), EventLog(LoopClock())
        self.host = SparkHost({"spark.master": "spark://m:7077"}, copy_tasks=1, clock=self.clock, events=self.events)
        self.runner = epoch_jobs.EpochRunner(self.host, self.clock, self.events)
        self.begun, self._comes_back, self.is_stopped = self.clock.monotonic(), comes_back, False
        session: Any = SimpleNamespace(is_alive=True, begin=self._answered)
        self.host._session = session
        monkeypatch.setattr(self.host, "_discard", self._discard)
        monkeypatch.setattr(self.runner, "_job_of", self._job_of)

    @property
    def passed_s(self) -> float:
        return self.clock.monotonic() - self.begun

    async def run(self, *, epoch_ms: int = 100) -> list[str]:
        """Run epochs for 140 s; return why Spark was ended."""
        for number in range(8):
            if self.host._session is None:
                break
            with suppress(EpochLostError):
                await self.runner.run(idle_plan(0, number, epoch_ms=epoch_ms))
            await self.clock.sleep(20.0)
        self.host._session = None
        self.runner.close()
        await self.host.stop(within_s=1)
        return [event.reason for event in self.events.of(SparkEnded)]

    def _answered(self, *_: object) -> asyncio.Future[bool]:
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(self.is_stopped)
        return answer

    async def _job_of(self, *_: object) -> _Job:
        job = _Job()
        if self._comes_back(self.passed_s):
            job.outcome.set_result(None)  # type: ignore[arg-type]
        else:
            job.outcome.set_exception(EpochLostError("an epoch", "its folder is gone", may_still_write=False))
        return job

    async def _discard(self, _: object) -> None:
        self.host._session = None


@pytest.fixture(autouse=True)
def _scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.parametrize(
    ("comes_back", "ended"),
    [
        pytest.param(False, ["epochs were lost for 120 s, and none came back; it is started again"], id="never"),
        pytest.param(True, [], id="once in between"),
    ],
)
async def test_a_spark_from_which_no_epoch_comes_back_is_started_again(
    comes_back: bool, ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its executors' folders were removed, for example: Spark takes them for sound, and has them fail each job."""
    losing = _Losing(monkeypatch, lambda passed_s: comes_back and 40 < passed_s < 80)

    assert await losing.run() == ended


async def test_a_spark_on_which_transforms_get_ahead_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy task whose worker is killed each time, for its memory for example, does not end it for all others."""
    losing = _Losing(monkeypatch)
    plan = idle_plan(1, partitions=idle_partitions(1))
    (one,) = plan.partitions

    async def get_ahead(_: object) -> Any:
        moved = PartitionOutcome(one.source, one.position + 1, None, is_unsure=False)
        return EpochOutcome(flow=plan.flow, task=1, epoch=0, partitions=(moved,))

    async def transform() -> None:
        await losing.clock.sleep(50.0)
        await losing.runner._run_records(plan)

    monkeypatch.setattr(losing.runner.records, "run", get_ahead)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(transform())
        ended = tasks.create_task(losing.run())

    assert ended.result() == []


async def test_a_spark_with_longer_epochs_is_given_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One copy task that loses its epochs does not end those of others, which take two minutes to come back."""
    losing = _Losing(monkeypatch)

    assert await losing.run(epoch_ms=180_000) == []


async def test_losses_of_a_spark_that_was_stopped_say_nothing_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster may take minutes to give the next one executors, and then an epoch is lost there for once."""
    losing = _Losing(monkeypatch)
    for losing.is_stopped in (True, False):
        losing.host._is_spoilt = False
        with suppress(EpochLostError):
            await losing.runner.run(idle_plan())
        await losing.clock.sleep(150.0)
    losing.host._session = None

    assert await losing.run() == []
