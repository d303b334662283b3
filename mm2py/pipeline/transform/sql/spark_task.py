"""
Both ends of a statement or function in Spark's Python workers: one reads offset ranges, the other one writes them.

If a transform fails in Spark's JVM, the input of the worker that writes ends as if it were complete, and the worker
would write a part of it. So a row of ours follows the last one; Spark computes it only after all others. Of a job with
several ranges nothing is written before that row either: what was written of a job that fails is not known.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from mm2py.clock import SystemClock
from mm2py.errors import Mm2Error
from mm2py.model.epoch import EpochPlan, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.pipeline.spark.worker import exhaust, this_worker, uncollected
from mm2py.pipeline.transform.columns import NAMES
from mm2py.pipeline.transform.offset_ranges import RANGE_BYTES
from mm2py.pipeline.transform.results import RangeOutcome
from mm2py.pipeline.transform.spark_task import range_plan, reader_of
from mm2py.pipeline.transform.sql.carried_columns import CarriedColumns, kept_for_writer
from mm2py.pipeline.transform.write import RangeWriter


OUTCOME: Final = "outcome"
#: The offset of that row.
END: Final = -(2**63)
#: What the ranges of a job are estimated to hold together, and as much again.
_MOST_BYTES: Final = 2 * RANGE_BYTES
_OFFSET: Final = "offset"
#: Below these bits of a row's id, where in its range it is; above them, the range's number in its job.
_BITS: Final = 48


@attrs.define(eq=False)
class InputCutOffError(Mm2Error):
    """The transform of this Spark task failed in the JVM: its input ends too early."""

    def __str__(self) -> str:
        return "the input of this Spark task was cut off, because the transform has failed"


@attrs.define(eq=False)
class JobTooLargeError(Mm2Error):
    """The ranges of this Spark task hold more than it may have in memory; fewer at once hold less."""

    size_bytes: int

    def __str__(self) -> str:
        return f"the ranges of this Spark task hold {self.size_bytes} bytes, more than are written at once"


#: Which rows of a batch are of which range of the job: the range's number, and its rows with their offsets.
Split = Callable[[pa.RecordBatch], Iterable[tuple[int, pa.RecordBatch]]]


def read_ranges(
    names: Sequence[str], carried: Sequence[str], rows: Iterator[pa.RecordBatch], *, has_row_ids: bool
) -> Iterator[pa.RecordBatch]:
    """Return the columns *names* of the records in this task's ranges, one range after the other; keep *carried*."""
    exhaust(rows)
    plan, here = range_plan(), this_worker()
    reader = reader_of(plan, here.state)
    wanted = tuple(name for name in NAMES if name in names or name in carried)
    for number, one in enumerate(plan.partitions):
        offset_range = reader.read_arrow(one, wanted)
        with kept_for_writer(number, carried) as keep:
            while (batch := here.run(anext(offset_range, None))) is not None:
                keep(batch)
                read = batch.select(list(names))
                yield with_row_ids(read, number, one.position) if has_row_ids else read


def write_ranges(
    carried: Sequence[str], batches: Iterator[pa.RecordBatch], *, has_row_ids: bool
) -> Iterator[pa.RecordBatch]:
    """Write the transformed records of this task's ranges to the target, and return the outcomes."""
    plan, here = range_plan(), this_worker()
    count = len(plan.partitions)
    with uncollected(), CarriedColumns(carried, count) as columns:
        limit_bytes = _MOST_BYTES if count > 1 else sys.maxsize
        split = split_of(plan.partitions, has_row_ids=has_row_ids)
        held = by_range(whole_input(batches), split, limit_bytes=limit_bytes, held_bytes=columns.size_bytes)
        each = [columns.joined(number, held.get(number, ())) for number in range(count)]
        outcomes = here.run(all_written(plan, each, here.state))
    yield pa.RecordBatch.from_pydict({OUTCOME: [pickle.dumps(outcomes)]})


async def all_written(
    plan: EpochPlan, rows: Sequence[Sequence[pa.RecordBatch]], state: WorkerState
) -> list[RangeOutcome | str]:
    """Write the *rows* of each range; return its outcome, or why it failed."""
    outcomes: list[RangeOutcome | str] = []
    for one, its in zip(plan.partitions, rows, strict=True):
        try:
            outcomes.append(await RangeWriter(plan, one, state, SystemClock()).write(its))
        except Exception:  # noqa: BLE001 - the outcomes of the others must not be lost with it
            outcomes.append(traceback.format_exc())
    return outcomes


def split_of(ranges: Sequence[PartitionPlan], *, has_row_ids: bool) -> Split:
    """Return what tells the rows of *ranges* apart: by their ids, or else by topic and partition where need be."""
    if has_row_ids:
        positions = [one.position for one in ranges]
        return lambda rows: by_row_id(rows, positions)
    if len(ranges) == 1:
        return lambda rows: ((0, rows),)
    numbers = {one.source: number for number, one in enumerate(ranges)}
    return lambda rows: _by_source(rows, numbers)


def _by_source(rows: pa.RecordBatch, numbers: Mapping[TopicPartition, int]) -> Iterator[tuple[int, pa.RecordBatch]]:
    at = 0
    places = zip(rows.column("topic").to_pylist(), rows.column("partition").to_pylist(), strict=True)
    for place, same in groupby(places):
        count = sum(1 for _ in same)
        yield numbers[TopicPartition(*place)], rows.slice(at, count)
        at += count


def by_range(
    rows: Iterable[pa.RecordBatch], split: Split, *, limit_bytes: int, held_bytes: Callable[[], int] = int
) -> dict[int, list[pa.RecordBatch]]:
    """
    Sort rows by the number of their range.

    Raise `JobTooLargeError` at the end if they take too much memory with *held_bytes*, which is asked for then.
    """
    held: dict[int, list[pa.RecordBatch]] = {}
    size_bytes = 0
    for batch in rows:
        size_bytes += batch.nbytes
        if size_bytes > limit_bytes:
            held.clear()
            continue
        for number, its in split(batch):
            held.setdefault(number, []).append(its)
    size_bytes += held_bytes()
    if size_bytes > limit_bytes:
        raise JobTooLargeError(size_bytes)
    return held


def whole_input(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return all rows but the last one, which is ours. Raise `InputCutOffError` if it is missing."""
    is_whole = False
    for batch in batches:
        if is_whole or not batch.num_rows:
            is_whole = is_whole and not batch.num_rows
            continue
        is_whole = batch.column("offset")[-1].as_py() == END
        rows = batch.slice(0, batch.num_rows - 1) if is_whole else batch
        if rows.num_rows:
            yield rows
    if not is_whole:
        raise InputCutOffError


def with_row_ids(rows: pa.RecordBatch, number: int, position: int) -> pa.RecordBatch:
    """
    Return *rows* of the job's range *number*, which starts at *position*, with ids instead of offsets.

    An id says whose the row is and which one, so that nothing else has to cross to Spark's JVM and back for that. Only
    a transform that passes offsets on and never looks at them can have it.
    """
    return _shifted(rows, (number << _BITS) - position)


def by_row_id(rows: pa.RecordBatch, positions: Sequence[int]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each range with its number and with their offsets; *positions* are where all ranges start."""
    ids = rows.column(_OFFSET)
    at = 0
    while at < rows.num_rows:
        number = ids[at].as_py() >> _BITS
        end = bisect_left(range(rows.num_rows), (number + 1) << _BITS, at, key=lambda row: ids[row].as_py())
        yield number, _shifted(rows.slice(at, end - at), positions[number] - (number << _BITS))
        at = end


def _shifted(rows: pa.RecordBatch, by: int) -> pa.RecordBatch:
    index = rows.schema.get_field_index(_OFFSET)
    shifted = pc.add(rows.column(index), pa.scalar(by, pa.int64()))
    return rows.set_column(index, rows.schema.field(index), shifted)
