"""
What runs inside Spark's Python workers.

Spark reuses its Python workers, so what this module holds lives on from one epoch to the next: one event loop and
one `WorkerState` with its connections and fetch sessions. Nothing depends on landing in the same worker again.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, TypeVar

import attrs
from pyspark import TaskContext

from mm2py.clock import SystemClock
from mm2py.errors import Mm2Error, Verdict
from mm2py.model.epoch import EpochOutcome, EpochPlan
from mm2py.model.verify import SliceOutcome, VerifyPlan
from mm2py.pipeline.copier import WorkerState, copy_epoch, worker_name
from mm2py.pipeline.records.mailbox import Mailbox
from mm2py.pipeline.records.outcome import StretchOutcome
from mm2py.pipeline.records.reading import READ_WITHIN_S, StretchReader
from mm2py.pipeline.records.row import Chunk
from mm2py.pipeline.records.writing import StretchWriter
from mm2py.pipeline.sealing import unseal
from mm2py.pipeline.verify_slice import compare_slice


_T = TypeVar("_T")


@attrs.define(eq=False)
class EpochRepeatedError(Mm2Error):
    """
    Spark ran an epoch's plan a second time by itself.

    It does so, whatever ``spark.task.maxFailures`` says, when it lost an executor through no fault of the task: its
    host went down or was taken away. The plan does not know what the first run wrote, which may still be writing.
    """

    verdict: ClassVar[Verdict] = Verdict.RESTART_TASK
    hint: ClassVar[str] = "the daemon plans the epoch's topic-partitions anew; look for the cause in Spark's log"

    epoch: str

    def __str__(self) -> str:
        return f"Spark lost the executor of {self.epoch} and ran its plan again, which would repeat records"


@attrs.define
class _Worker:
    """The event loop of this process and what its epochs leave to each other."""

    runner: asyncio.Runner
    state: WorkerState

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run *work* to its end. `Runner.run` would also make a text of its result, records and all."""
        return self.runner.get_loop().run_until_complete(work)


_workers: list[_Worker] = []


def run_epochs(payload: bytes, rows: Iterable[object]) -> list[EpochOutcome]:
    """Run the sealed plan *payload* to its end; Spark calls it once a job, with the rows of its Spark partition."""
    _exhaust(rows)
    plan: EpochPlan = unseal(payload)
    refuse_repetition(plan, TaskContext.get())
    _leave_name(plan)
    worker = this_worker()
    return [worker.run(copy_epoch(plan, SystemClock(), worker.state))]


def name_file(stop_file: str) -> str:
    """Give the file in which the worker of an epoch leaves its name, beside the one that ends the epoch."""
    return f"{stop_file}.worker"


def _leave_name(plan: EpochPlan) -> None:
    """Say which process this is, where the daemon can see it: should the epoch hang, it has to be ended by force."""
    if plan.stop_file is not None:
        with suppress(OSError), open(name_file(plan.stop_file), "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(worker_name())


def transform_stretches(folder: str, number: int, payloads: Iterable[bytes]) -> list[StretchOutcome]:
    """
    Send the stretches of the sealed plans in *payloads* through their steps, to the target.

    What becomes of each is noted in *folder* too, where this process can see that: it counts though the job may fail.
    """
    worker, spark_task = this_worker(), TaskContext.get()
    plans: list[EpochPlan] = [unseal(payload) for payload in payloads]
    for plan in plans:
        refuse_repetition(plan, spark_task)
    with uncollected():
        return worker.run(_transformed(plans, worker.state, Mailbox(folder), number))


async def _transformed(
    plans: Sequence[EpochPlan], state: WorkerState, mailbox: Mailbox, number: int
) -> list[StretchOutcome]:
    outcomes: list[StretchOutcome] = []
    clock = SystemClock()
    for plan in plans:
        (one,) = plan.partitions
        reader = StretchReader(state.cluster(plan.source, clock), plan.limits, clock, within_s=READ_WITHIN_S)
        chunks = [
            Chunk(columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers)
            async for columns in reader.read(one)
        ]
        outcome = await StretchWriter(plan, one, state, clock).write(chunks)
        mailbox.note(number, one.source, outcome)
        outcomes.append(outcome)
    return outcomes


@contextmanager
def uncollected() -> Iterator[None]:
    """Have no garbage collected meanwhile: over records, which hold no cycles, that takes as long as all else."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def refuse_repetition(plan: EpochPlan, spark_task: TaskContext | None) -> None:
    """Raise `EpochRepeatedError` where Spark runs a task of *plan* again by itself."""
    if spark_task is not None and spark_task.attemptNumber() > 0:
        raise EpochRepeatedError(plan.name)


def compare_slices(payloads: Iterable[bytes]) -> list[SliceOutcome]:
    """Compare the slices of the sealed plans in *payloads*; nothing is written, so Spark may do it again."""
    worker, clock = this_worker(), SystemClock()
    outcomes: list[SliceOutcome] = []
    for payload in payloads:
        plan: VerifyPlan = unseal(payload)
        clusters = worker.state.cluster(plan.source, clock), worker.state.cluster(plan.target, clock)
        for part in plan.slices:
            with uncollected():
                outcomes.append(worker.run(compare_slice(plan, part, clusters, clock)))
    return outcomes


def warm_up(hold_s: float, rows: Iterable[object]) -> list[int]:
    """Get a worker ready and hold its slot for *hold_s*, so that as many workers start as there are slots."""
    _exhaust(rows)
    this_worker().run(SystemClock().sleep(hold_s))
    return [1]


def _exhaust(rows: Iterable[object]) -> None:
    # A task that leaves input unread costs its worker: Spark kills it and forks the next one for every job.
    deque(rows, maxlen=0)


def this_worker() -> _Worker:
    """Give what this process keeps between its tasks."""
    if not _workers:
        _workers.append(_Worker(asyncio.Runner(), WorkerState()))
        # Spark collects garbage after every task; what was imported to get here need not be looked at each time.
        gc.collect()
        gc.freeze()
    return _workers[0]
