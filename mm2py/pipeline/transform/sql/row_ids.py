"""
One number for each row of a job with several offset ranges, in the place of its offset.

It says whose the row is and which one, so that nothing else has to cross to Spark's JVM and back for that. Only a
transform that passes offsets on and never looks at them can have it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc


_OFFSET: Final = "offset"
#: Below these bits, where in its range a row is; above them, the range's number in its job.
_BITS: Final = 48


def with_row_ids(rows: pa.RecordBatch, number: int, position: int) -> pa.RecordBatch:
    """Return *rows* of the job's range *number*, which starts at *position*, with ids instead of offsets."""
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
