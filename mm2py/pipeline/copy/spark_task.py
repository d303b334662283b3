"""Epochs of unopened batches in a Spark task."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from pyspark import TaskContext

from mm2py.clock import SystemClock
from mm2py.model.epoch import EpochOutcome, EpochPlan
from mm2py.pipeline.copy.epoch import copy_epoch
from mm2py.pipeline.copy.next_plans import NextPlans, PlansFrom
from mm2py.pipeline.copy.sent_plan import SentPlan
from mm2py.pipeline.copy.worker_state import WorkerState, worker_name
from mm2py.pipeline.spark.sealing import unseal
from mm2py.pipeline.spark.worker import Worker, exhaust, refuse_repetition, seldom_collected, this_worker


def run_epochs(payload: bytes, plans_from: PlansFrom | None, rows: Iterable[object]) -> list[EpochOutcome | None]:
    """
    Run the sealed `SentPlan` *payload* to its end, and the plans that follow; Spark calls it once a job, with the rows
    of its Spark partition.

    Where *plans_from* names a socket of the daemon's, further plans come from there until it is closed.
    The last outcome is returned: it need not have arrived there. It is None if this worker needs the whole first plan.
    """
    exhaust(rows)
    sent: SentPlan = unseal(payload)
    refuse_repetition(sent.plan, TaskContext.get())
    worker = this_worker()
    with seldom_collected():
        return [worker.run(_run(sent, plans_from, worker))]


async def _run(sent: SentPlan, plans_from: PlansFrom | None, worker: Worker) -> EpochOutcome | None:
    if plans_from is None:
        return await _run_one(sent, worker.state, None)
    async with asyncio.TaskGroup() as tasks:
        next_plans = NextPlans(plans_from, tasks)
        try:
            while True:
                outcome = await _run_one(sent, worker.state, next_plans.is_asked_to_end)
                # While the daemon plans the next epoch.
                asyncio.get_running_loop().call_soon(worker.collect)
                payload = await next_plans.after(outcome)
                if payload is None:
                    return outcome
                sent = unseal(payload)
        finally:
            await next_plans.close()


async def _run_one(sent: SentPlan, state: WorkerState, is_asked_to_end: asyncio.Event | None) -> EpochOutcome | None:
    plan = state.plans.whole(sent)
    if plan is None:
        return None
    _leave_name(plan)
    return await copy_epoch(plan, SystemClock(), state, is_asked_to_end)


def name_file(stop_file: str) -> str:
    """Return the file in which the worker of an epoch leaves its name, beside the one that ends the epoch."""
    return f"{stop_file}.worker"


def _leave_name(plan: EpochPlan) -> None:
    """Report which process this is, where the daemon can see it: should the epoch hang, it has to be ended by force."""
    if plan.stop_file is not None:
        with suppress(OSError), open(name_file(plan.stop_file), "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(worker_name())
