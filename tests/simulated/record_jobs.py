"""
The jobs of record tasks in worker processes, and no Spark: the product's own micro-batches, reader and writer, with a
statement in between that stands for one of Spark SQL.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mm2py.clock import Clock
from mm2py.model.epoch import EpochPlan
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.pipeline.copy_job import EpochLostError
from mm2py.pipeline.transform.failures import TransformFailedError
from mm2py.pipeline.transform.micro_batch import RecordTask
from mm2py.pipeline.transform.read import READ_WITHIN_S, RangeReader
from mm2py.pipeline.transform.results import MicroBatchResult, RangeOutcome
from mm2py.pipeline.transform.task import RecordTasks
from mm2py.pipeline.transform.write import RangeWriter


if TYPE_CHECKING:
    from tests.simulated.epochs import SimEpochs


#: What the statement is called in a file; what it does is done here.
STATEMENT = "SELECT * FROM records WHERE it is none of every seventh, with a value that was changed"
_DROPPED, _MARK = b"7", b"made of "
#: What Spark says of a job whose worker is gone.
_GONE = "Python worker exited unexpectedly (crashed)"


def made_of(value: bytes) -> bytes | None:
    """Return what becomes of a record's value; None if the record is left out."""
    return None if value.endswith(_DROPPED) else _MARK + value


def _selected(rows: pa.RecordBatch) -> pa.RecordBatch:
    made = [made_of(it) for it in rows.column("value").to_pylist()]
    changed = rows.set_column(rows.schema.get_field_index("value"), "value", pa.array(made, pa.binary()))
    return changed.filter(pa.array([it is not None for it in made]))


async def _done(plan: EpochPlan, clock: Clock, state: WorkerState) -> list[RangeOutcome | str]:
    """Read each range, transform it and write it, as `transform.spark_task` does."""
    outcomes: list[RangeOutcome | str] = []
    for one in plan.partitions:
        reader = RangeReader(state.cluster(plan.source, clock), plan.limits, clock, within_s=READ_WITHIN_S)
        try:
            read = reader.read_arrow(one)
            rows = [made async for batch in read if (made := _selected(batch)).num_rows]  # Spark hands on no other
            outcomes.append(await RangeWriter(plan, one, state, clock).write(rows))
        except TransformFailedError as error:
            outcomes.append(str(error))
    return outcomes


class SimJobs:
    """Stands for `TransformJobs`: a micro-batch is one job, of the task's worker."""

    reads_timestamps = True

    def __init__(self, epochs: SimEpochs) -> None:
        self._epochs = epochs

    async def run(self, plan: EpochPlan, clock: Clock, _alone: Collection[TopicPartition]) -> MicroBatchResult:
        """Have the ranges of *plan* done."""
        sources = [one.source for one in plan.partitions]
        try:
            found = await self._epochs.work(plan, functools.partial(_done, plan, clock))
        except EpochLostError:
            return MicroBatchResult((), dict.fromkeys(sources, _GONE))
        done = tuple(it for it in found if not isinstance(it, str))
        failed = {source: it for source, it in zip(sources, found, strict=True) if isinstance(it, str)}
        return MicroBatchResult(done, failed)

    async def stop(self, _clock: Clock) -> None:
        """Do nothing: a job that has failed has ended, or its worker is lost."""


class SimRecordTasks(RecordTasks):
    """Record tasks whose jobs are done without Spark."""

    def __init__(self, epochs: SimEpochs, spark: Any, clock: Clock, events: Any) -> None:
        super().__init__(spark, clock, events)
        self._epochs = epochs

    async def jobs(self, task: RecordTask, _plan: EpochPlan) -> Any:
        """Return the task's jobs, once Spark has started."""
        await self._epochs.ready()
        task.jobs = task.jobs or SimJobs(self._epochs)  # type: ignore[assignment]
        return task.jobs
