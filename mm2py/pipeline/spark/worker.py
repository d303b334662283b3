"""
A Python worker of Spark, as every task of ours finds it.

Spark reuses its Python workers, so what this module holds lives on from one epoch to the next: one event loop and
one `WorkerState` with its connections and fetch sessions. Nothing depends on landing in the same worker again.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final, TypeVar

import attrs
from pyspark import TaskContext

from mm2py.clock import SystemClock
from mm2py.errors import Mm2Error, Verdict
from mm2py.model.epoch import EpochPlan
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.wire.connections import allow_for_lookups


_T = TypeVar("_T")

#: Generations of Python's garbage collector.
_YOUNG: Final = 1
_ALL: Final = 2
#: Arguments of gc.set_threshold: what is old is not collected.
_SELDOM: Final = (200_000, 10, 1_000_000)
#: Old garbage is rare: what epochs leave behind has no cycles by then.
_ALL_EVERY_S: Final = 3_600.0


@attrs.define(eq=False)
class EpochRepeatedError(Mm2Error):
    """
    Spark ran an epoch's plan a second time by itself.

    It does so, whatever ``spark.task.maxFailures`` says, when it lost an executor through no fault of the task: its
    host went down or was taken away. The plan does not know what the first run wrote, which may still be writing.
    """

    verdict: ClassVar[Verdict] = Verdict.RESTART_TASK
    hint: ClassVar[str] = "the daemon plans the epoch's topic-partitions again; look for the cause in Spark's log"

    epoch: str

    def __str__(self) -> str:
        return f"Spark lost the executor of {self.epoch} and ran its plan again, which would repeat records"


@attrs.define
class Worker:
    """The event loop of this process and what its epochs leave to each other."""

    runner: asyncio.Runner
    state: WorkerState
    #: When all garbage was last collected, by the event loop's time.
    collected_at: float

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run *work* to its end. `Runner.run` would also make a text of its result, records and all."""
        return self.runner.get_loop().run_until_complete(work)

    def collect(self) -> None:
        """Collect what has become garbage since this was last called; once an hour older garbage, too."""
        now = self.runner.get_loop().time()
        is_all = now - self.collected_at >= _ALL_EVERY_S
        gc.collect(_ALL if is_all else _YOUNG)
        if is_all:
            self.collected_at = now


_workers: list[Worker] = []


@contextmanager
def uncollected() -> Iterator[None]:
    """Have no garbage collected meanwhile: over records, which hold no cycles, that takes as long as all else."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def seldom_collected() -> Iterator[None]:
    """
    Have garbage collected by `Worker.collect`, or where very much has piled up.

    With thousands of partitions a full collection takes a tenth of a second, in which nothing is copied.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def refuse_repetition(plan: EpochPlan, spark_task: TaskContext | None) -> None:
    """Raise `EpochRepeatedError` where Spark runs a task of *plan* again by itself."""
    if spark_task is not None and spark_task.attemptNumber() > 0:
        raise EpochRepeatedError(plan.name)


def warm_up(hold_s: float, rows: Iterable[object]) -> list[int]:
    """Get a worker ready and hold its slot for *hold_s*, so that as many workers start as there are slots."""
    exhaust(rows)
    this_worker().run(SystemClock().sleep(hold_s))
    return [1]


def exhaust(rows: Iterable[object]) -> None:
    """Read *rows* to their end."""
    # A task that leaves input unread costs its worker: Spark kills it and forks the next one for every job.
    deque(rows, maxlen=0)


def this_worker() -> Worker:
    """Return what this process keeps between its tasks."""
    if not _workers:
        runner = asyncio.Runner()
        allow_for_lookups(runner.get_loop())
        _workers.append(Worker(runner, WorkerState(), runner.get_loop().time()))
        # Spark collects garbage after every task; what was imported to get here need not be looked at each time.
        gc.collect()
        gc.freeze()
    return _workers[0]
