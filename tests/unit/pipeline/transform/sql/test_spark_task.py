"""
What the worker that writes makes of its input.

One that ends early looks like a short one to Spark's Python, and must not to us. That of several ranges is sorted.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import CopyLimits, EpochPlan, PartitionPlan
from mm2py.model.flow import Flow, TopicPartition
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.pipeline.transform.columns import ARROW
from mm2py.pipeline.transform.failures import raised_in
from mm2py.pipeline.transform.sql import spark_task as module
from mm2py.pipeline.transform.sql.spark_task import (
    END,
    InputCutOffError,
    JobTooLargeError,
    by_range,
    split_of,
    whole_input,
    with_row_ids,
)


_NAMES = ("offset", "timestamp", "key", "value", "headers")


def _batch(*offsets: int) -> pa.RecordBatch:
    """Make what Spark's JVM sends: records with these offsets."""
    rows = [{"offset": offset, "timestamp": None, "key": None, "value": None, "headers": None} for offset in offsets]
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([ARROW.field(name) for name in _NAMES]))


@pytest.mark.parametrize(
    "batches",
    [
        [_batch(END)],
        [_batch(1, 2, END)],
        [_batch(1, 2), _batch(END)],
        [_batch(1), _batch(), _batch(2, END), _batch()],
    ],
)
def test_a_whole_input_is_given_without_its_end(batches: list[pa.RecordBatch]) -> None:
    """However Spark cuts it into batches."""
    given = [offset for rows in whole_input(batches) for offset in rows.column("offset").to_pylist()]

    assert given == [1, 2][: sum(batch.num_rows for batch in batches) - 1]


@pytest.mark.parametrize(
    "batches",
    [[], [_batch()], [_batch(1, 2)], [_batch(1), _batch(2)], [_batch(1, END), _batch(2)], [_batch(END, 1)]],
)
def test_an_input_that_is_cut_off_is_no_whole_one(batches: list[pa.RecordBatch]) -> None:
    """It ends between two rows, as it does when the JVM gives up; nor does anything come behind the end."""
    with pytest.raises(InputCutOffError):
        list(whole_input(batches))


def _placed(*places: tuple[str, int, int]) -> pa.RecordBatch:
    """Make rows of a job with several ranges: topic, partition, offset."""
    schema = pa.schema([ARROW.field(name) for name in ("topic", "partition", "offset")])
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, place, strict=True)) for place in places], schema=schema)


def test_rows_are_sorted_by_their_source_in_their_order() -> None:
    """However Spark cuts them into batches; the same partition of another topic is another source."""
    batches = [_placed(("t", 0, 1), ("t", 0, 2)), _placed(("t", 0, 5), ("u", 0, 1), ("t", 1, 7))]
    ranges = [_range("t", 1), _range("t", 0), _range("u", 0)]
    held = by_range(batches, split_of(ranges, has_row_ids=False), limit_bytes=999)

    assert _offsets(held) == {1: [1, 2, 5], 2: [1], 0: [7]}


def _range(topic: str, partition: int, position: int = 0) -> PartitionPlan:
    return PartitionPlan(TopicPartition(topic, partition), f"A.{topic}", position, None, is_unsure=False)


def _offsets(held: dict[int, list[pa.RecordBatch]]) -> dict[int, list[int]]:
    return {number: [row["offset"] for rows in parts for row in rows.to_pylist()] for number, parts in held.items()}


def test_rows_with_ids_get_their_offsets_back() -> None:
    """However Spark cuts them into batches, and whatever a transform drops; each range starts where it will."""
    starts, length = (10, 0, 2**62, 7), 2**40
    offsets = {0: [10, 11, 10 + length], 1: [0, length], 2: [2**62 + 3], 3: [7, 8, 9]}
    ranges = [_range("t", number, start) for number, start in enumerate(starts)]
    parts = [with_row_ids(_batch(*its), number, starts[number]) for number, its in offsets.items()]
    ids = [it for part in parts for it in part.column("offset").to_pylist()]
    split = split_of(ranges, has_row_ids=True)

    assert ids == sorted(set(ids))
    for size in range(1, len(ids) + 1):
        cut = [_batch(*ids[at : at + size]) for at in range(0, len(ids), size)]
        assert _offsets(by_range(cut, split, limit_bytes=9_999)) == offsets
    left = [it for at, it in enumerate(ids) if at not in (0, 4, 5)]
    assert _offsets(by_range([_batch(*left)], split, limit_bytes=999)) == {0: [11, 10 + length], 1: [0], 3: [7, 8, 9]}


def test_a_job_that_holds_too_much_is_refused_once_all_of_it_is_read() -> None:
    """It keeps no more than its limit meanwhile: what went before is let go, what comes is not kept."""
    batches = [_placed(("t", number, 1)) for number in range(10)]
    size_bytes = batches[0].nbytes
    given, alive = iter(batches), len(batches)

    split = split_of([_range("t", number) for number in range(10)], has_row_ids=False)
    assert len(by_range(batches, split, limit_bytes=alive * size_bytes)) == 10
    with pytest.raises(JobTooLargeError, match=f" {alive * size_bytes} bytes"):
        by_range(given, split, limit_bytes=alive * size_bytes - 1)
    assert next(given, None) is None


async def test_a_range_that_cannot_be_written_loses_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each range of a job it is known what became of it: its outcome, or the traceback of what was raised."""

    class Writer:
        def __init__(self, _plan: object, one: PartitionPlan, *_others: object) -> None:
            self._one = one

        async def write(self, _chunks: object) -> str:
            if self._one.source.partition == 1:
                raise ValueError("no good")
            return f"outcome of {self._one.source}"

    monkeypatch.setattr(module, "RangeWriter", Writer)
    ranges = tuple(PartitionPlan(TopicPartition("t", it), "A.t", 0, None, is_unsure=False) for it in range(3))
    nowhere = ClusterEndpoint("B", ("nowhere:1",))
    plan = EpochPlan(Flow("A", "B"), 0, 0, nowhere, nowhere, ranges, CopyLimits(), 0, 0)
    first, bad, last = await module.all_written(plan, [()] * 3, WorkerState())

    assert (first, last) == ("outcome of t-0", "outcome of t-2")
    assert raised_in(str(bad)) == ("ValueError", "no good")
