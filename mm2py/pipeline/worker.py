"""
What runs inside Spark's Python workers.

Spark reuses its Python workers, so what this module holds lives on from one epoch to the next: one event loop and
one `WorkerState` with its connections and producer ids. Nothing depends on landing in the same worker again.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
from collections import deque
from collections.abc import Iterable

import attrs

from mm2py.clock import SystemClock
from mm2py.model.epoch import EpochOutcome, EpochPlan
from mm2py.pipeline.copier import WorkerState, copy_epoch


@attrs.define
class _Worker:
    """The event loop of this process and what its epochs leave to each other."""

    runner: asyncio.Runner
    state: WorkerState


_workers: list[_Worker] = []


def run_epochs(payload: bytes, rows: Iterable[object]) -> list[EpochOutcome]:
    """Run the pickled plan *payload* to its end; Spark calls it once a job, with the rows of its Spark partition."""
    _exhaust(rows)
    plan: EpochPlan = pickle.loads(payload)  # noqa: S301 (the daemon wrote it)
    worker = _worker()
    return [worker.runner.run(copy_epoch(plan, SystemClock(), worker.state))]


def warm_up(hold_s: float, rows: Iterable[object]) -> list[int]:
    """Get a worker ready and hold its slot for *hold_s*, so that as many workers start as there are slots."""
    _exhaust(rows)
    _worker().runner.run(SystemClock().sleep(hold_s))
    return [1]


def _exhaust(rows: Iterable[object]) -> None:
    # A task that leaves input unread costs its worker: Spark kills it and forks the next one for every job.
    deque(rows, maxlen=0)


def _worker() -> _Worker:
    if not _workers:
        _workers.append(_Worker(asyncio.Runner(), WorkerState()))
        # Spark collects garbage after every task; what was imported to get here need not be looked at each time.
        gc.collect()
        gc.freeze()
    return _workers[0]
