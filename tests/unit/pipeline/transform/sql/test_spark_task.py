"""An input that ends early looks like a short one to Spark's Python, and must not to us."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mm2py.model.flow import TopicPartition
from mm2py.pipeline.transform.columns import ARROW
from mm2py.pipeline.transform.sql.spark_task import END, InputCutOffError, whole_input


_SOURCE = TopicPartition("t", 3)
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
    given = [offset for chunk in whole_input(iter(batches), _SOURCE) for offset in chunk.offsets]

    assert given == [1, 2][: sum(batch.num_rows for batch in batches) - 1]


@pytest.mark.parametrize(
    "batches",
    [[], [_batch()], [_batch(1, 2)], [_batch(1), _batch(2)], [_batch(1, END), _batch(2)], [_batch(END, 1)]],
)
def test_an_input_that_is_cut_off_is_no_whole_one(batches: list[pa.RecordBatch]) -> None:
    """It ends between two rows, as it does when the JVM gives up; nor does anything come behind the end."""
    with pytest.raises(InputCutOffError):
        list(whole_input(iter(batches), _SOURCE))
