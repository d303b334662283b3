"""What a Python worker keeps between the tasks of Spark."""

from __future__ import annotations

import asyncio
import gc

import pytest

from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.pipeline.spark.worker import Worker


def test_old_garbage_is_collected_once_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each epoch only what is new."""
    collected: list[int] = []
    monkeypatch.setattr(gc, "collect", collected.append)
    with asyncio.Runner() as runner:
        now = runner.get_loop().time()
        worker = Worker(runner, WorkerState(), now)
        for hours in (0.0, 0.9, 1.1):
            worker.collected_at = now - 3_600 * hours
            worker.collect()
        worker.collect()

    assert collected == [1, 1, 2, 1]
