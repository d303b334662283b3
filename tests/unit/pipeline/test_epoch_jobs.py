"""How long the Spark task of a copy task keeps its slot."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mm2py.model.flow import Flow
from mm2py.pipeline import epoch_jobs
from mm2py.pipeline.copy_job import CopyJob
from mm2py.pipeline.spark.session import SparkHost
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock


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


@pytest.mark.parametrize(
    ("master", "told"), [("local[*]", ["stay", "stay", "stay"]), ("spark://m:7077", ["stay", "stay", "end"])]
)
async def test_a_task_of_a_cluster_leaves_its_executor_now_and_then(
    master: str, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    An executor that is decommissioned takes no more tasks, and ends when those that it has are over.

    The next epoch is a new job, which runs elsewhere. Embedded Spark goes nowhere.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    clock = LoopClock()
    host = SparkHost({"spark.master": master}, copy_tasks=1, clock=clock, events=EventLog(clock))
    runner, job, key = epoch_jobs.EpochRunner(host, clock, EventLog(clock)), _Job(), (Flow("A", "B"), 0)
    plan: Any = None
    for _ in range(3):
        outcome: Any = asyncio.get_running_loop().create_future()
        outcome.set_result(None)
        running = runner._running[key] = epoch_jobs._Running(plan, tmp_path / "epoch-1.stop", job, outcome)
        runner._ended(key, running, outcome)
        await clock.sleep(35.0)
    runner.close()
    await host.stop(within_s=1)

    assert job.told == told
