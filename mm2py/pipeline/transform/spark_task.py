"""
Record tasks in Spark's Python workers: the offset ranges of a job, and Connect's transforms from end to end.

The ranges are in a local property of the job, which Spark passes to its tasks. So one plan of Spark's serves any range.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable
from typing import Final

from pyspark import TaskContext

from mm2py.clock import SystemClock
from mm2py.errors import Mm2Error, Verdict
from mm2py.model.epoch import EpochPlan
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.pipeline.spark.sealing import unseal
from mm2py.pipeline.spark.worker import exhaust, refuse_repetition, this_worker, uncollected
from mm2py.pipeline.transform.failures import TransformFailedError
from mm2py.pipeline.transform.read import READ_WITHIN_S, RangeReader
from mm2py.pipeline.transform.results import RangeOutcome
from mm2py.pipeline.transform.write import RangeWriter


#: The property with the sealed plan of a job's ranges. Spark redacts properties of such a name in its event log.
PLAN: Final = "mm2py.secret.plan"


class PlanMissingError(Mm2Error):
    """A job without a range asked for records: a transform's function runs an action on its DataFrame."""

    verdict = Verdict.RESTART_TASK

    def __str__(self) -> str:
        return "there are no records outside of a micro-batch: a transform's function cannot run actions like count()"


def range_plan() -> EpochPlan:
    """Return this task's plan. Raise `EpochRepeatedError` if Spark runs it a second time."""
    spark_task = TaskContext.get()
    payload = spark_task.getLocalProperty(PLAN) if spark_task is not None else None
    if payload is None:
        raise PlanMissingError
    plan: EpochPlan = unseal(base64.b64decode(payload))
    refuse_repetition(plan, spark_task)
    return plan


def reader_of(plan: EpochPlan, state: WorkerState) -> RangeReader:
    """Return a reader of *plan*'s source."""
    clock = SystemClock()
    return RangeReader(state.cluster(plan.source, clock), plan.limits, clock, within_s=READ_WITHIN_S)


def transform_ranges(rows: Iterable[object]) -> list[tuple[bytes]]:
    """Read each of this task's ranges, transform it, and write it to the target."""
    exhaust(rows)
    worker, plan = this_worker(), range_plan()
    with uncollected():
        return [(pickle.dumps(worker.run(_transformed(plan, worker.state))),)]


async def _transformed(plan: EpochPlan, state: WorkerState) -> list[RangeOutcome | str]:
    outcomes: list[RangeOutcome | str] = []
    for one in plan.partitions:
        try:
            read = reader_of(plan, state).read_arrow(one, is_for_spark=False)
            rows = [batch async for batch in read]
            outcomes.append(await RangeWriter(plan, one, state, SystemClock()).write(rows))
        except TransformFailedError as error:
            outcomes.append(str(error))
    return outcomes
