"""An epoch of unopened batches as a Spark task."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from pyspark import TaskContext

from mm2py.clock import SystemClock
from mm2py.model.epoch import EpochOutcome, EpochPlan
from mm2py.pipeline.copy.epoch import copy_epoch
from mm2py.pipeline.copy.sent_plan import SentPlan
from mm2py.pipeline.copy.worker_state import worker_name
from mm2py.pipeline.spark.sealing import unseal
from mm2py.pipeline.spark.worker import exhaust, refuse_repetition, this_worker


def run_epochs(payload: bytes, rows: Iterable[object]) -> list[EpochOutcome | None]:
    """
    Run the sealed `SentPlan` *payload* to its end; Spark calls it once a job, with the rows of its Spark partition.

    The outcome is None if this worker needs the whole plan.
    """
    exhaust(rows)
    sent: SentPlan = unseal(payload)
    refuse_repetition(sent.plan, TaskContext.get())
    worker = this_worker()
    plan = worker.state.plans.whole(sent)
    if plan is None:
        return [None]
    _leave_name(plan)
    return [worker.run(copy_epoch(plan, SystemClock(), worker.state))]


def name_file(stop_file: str) -> str:
    """Return the file in which the worker of an epoch leaves its name, beside the one that ends the epoch."""
    return f"{stop_file}.worker"


def _leave_name(plan: EpochPlan) -> None:
    """Report which process this is, where the daemon can see it: should the epoch hang, it has to be ended by force."""
    if plan.stop_file is not None:
        with suppress(OSError), open(name_file(plan.stop_file), "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(worker_name())
