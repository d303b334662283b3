"""
Columns that a transform leaves alone, past Spark's JVM from the worker that reads them to the one that writes them.

Both are processes of one Spark task, on one machine. The columns lie in a file of Spark's own directory meanwhile,
with the offsets that tell which rows they belong to: a transform may have dropped some.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkFiles, TaskContext

from mm2py.errors import Mm2Error


_OFFSET: Final = "offset"


class CarriedColumnsLostError(Mm2Error):
    """What the worker that reads has put aside does not fit what the transform has made."""

    def __str__(self) -> str:
        return "columns that were carried past Spark's JVM do not fit the rows that it gave back"


def _path(number: int) -> Path:
    """Return the file of this Spark task's range of that number."""
    spark_task = TaskContext.get()
    attempt = spark_task.taskAttemptId() if spark_task is not None else 0
    return Path(SparkFiles.getRootDirectory(), f"mm2py-carried-{attempt}-{number}")


@contextmanager
def kept_for_writer(number: int, names: Sequence[str]) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yield what puts the columns *names* of a batch aside; all are there once the block ends."""
    if not names:
        yield lambda _batch: None
        return
    columns = [_OFFSET, *names]
    # They are records, which are nobody else's business.
    with os.fdopen(os.open(_path(number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        writer: pa.RecordBatchStreamWriter | None = None

        def keep(batch: pa.RecordBatch) -> None:
            nonlocal writer
            kept = batch.select(columns)
            if writer is None:
                writer = pa.ipc.new_stream(file, kept.schema)
            writer.write_batch(kept)

        yield keep
        if writer is not None:
            writer.close()


class CarriedColumns:
    """The columns *names* of this Spark task's ranges; their files are removed at the end."""

    def __init__(self, names: Sequence[str], ranges: int) -> None:
        self._paths = [_path(number) for number in range(ranges)] if names else []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for path in self._paths:
            path.unlink(missing_ok=True)

    def size_bytes(self) -> int:
        """Return how large they are, once all rows are there."""
        return sum(path.stat().st_size for path in self._paths)

    def joined(self, number: int, rows: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Return the *rows* of a range with their columns. Raise `CarriedColumnsLostError`."""
        if not self._paths or not rows:
            return list(rows)
        made = pa.Table.from_batches(rows)
        with pa.memory_map(str(self._paths[number])) as file:
            kept = pa.ipc.open_stream(file).read_all()
        if not made[_OFFSET].equals(kept[_OFFSET]):
            at = pc.index_in(made[_OFFSET].combine_chunks(), value_set=kept[_OFFSET].combine_chunks())
            if at.null_count:
                raise CarriedColumnsLostError
            kept = kept.take(at)
        for name in kept.column_names:
            if name != _OFFSET:
                made = made.append_column(kept.schema.field(name), kept[name])
        batches: list[pa.RecordBatch] = made.to_batches()
        return batches
