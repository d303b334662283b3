"""
Both ends of a statement or function in Spark's Python workers: one reads an offset range, the other one writes it.

If a transform fails in Spark's JVM, the input of the worker that writes ends as if it were complete, and the worker
would write a part of the range. So a row of ours follows the last one; Spark computes it only after all others.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
import pyarrow as pa

from mm2py.clock import SystemClock
from mm2py.errors import Mm2Error
from mm2py.model.epoch import EpochPlan
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.pipeline.spark.worker import exhaust, this_worker, uncollected
from mm2py.pipeline.transform.columns import chunk_of, to_arrow
from mm2py.pipeline.transform.record import Chunk
from mm2py.pipeline.transform.results import RangeOutcome
from mm2py.pipeline.transform.spark_task import range_plan, reader_of
from mm2py.pipeline.transform.write import RangeWriter


OUTCOME: Final = "outcome"
#: The offset of that row.
END: Final = -(2**63)


@attrs.define(eq=False)
class InputCutOffError(Mm2Error):
    """The transform of this Spark task failed in the JVM: its input ends too early."""

    def __str__(self) -> str:
        return "the input of this Spark task was cut off, because the transform has failed"


def read_range(names: Sequence[str], rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the columns *names* of the records in this task's range."""
    exhaust(rows)
    plan, here = range_plan(), this_worker()
    (one,) = plan.partitions
    offset_range = reader_of(plan, here.state).read(one)
    while (columns := here.run(anext(offset_range, None))) is not None:
        yield to_arrow(one.source.topic, one.source.partition, columns, names)


def write_range(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the transformed records of this task's range to the target, and return the outcome."""
    plan, here = range_plan(), this_worker()
    with uncollected():
        outcome = here.run(_written(plan, batches, here.state))
    yield pa.RecordBatch.from_pydict({OUTCOME: [pickle.dumps([outcome])]})


async def _written(plan: EpochPlan, batches: Iterator[pa.RecordBatch], state: WorkerState) -> RangeOutcome:
    (one,) = plan.partitions
    return await RangeWriter(plan, one, state, SystemClock()).write(whole_input(batches, one.source))


def whole_input(batches: Iterator[pa.RecordBatch], source: TopicPartition) -> Iterator[Chunk]:
    """Return all rows but the last one, which is ours. Raise `InputCutOffError` if it is missing."""
    is_whole = False
    for batch in batches:
        if is_whole or not batch.num_rows:
            is_whole = is_whole and not batch.num_rows
            continue
        is_whole = batch.column("offset")[-1].as_py() == END
        rows = batch.slice(0, batch.num_rows - 1) if is_whole else batch
        if rows.num_rows:
            yield chunk_of(rows, source)
    if not is_whole:
        raise InputCutOffError
