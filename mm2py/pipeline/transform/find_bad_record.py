"""
Which record does a transform fail on?

Spark reports what was raised, but not at which record. So the range is transformed again without writing anything, in
halves, until one record is left. It holds the same records each time, and a transform looks at one at a time, so the
first record that fails alone is the one, if nothing fails without it. Whatever else a try fails of, a lost worker for
example, finds none. A try that is not done in time finds none either, and is the last one: what else was written must
not wait, and still counts.
"""

from __future__ import annotations

import attrs
import pyarrow as pa

from mm2py.clock import Clock
from mm2py.model.epoch import PartitionPlan
from mm2py.pipeline.transform.columns import ARROW_IN_MILLIS, TimestampTooLargeError, as_spark_takes
from mm2py.pipeline.transform.failures import is_lost, raised_in
from mm2py.pipeline.transform.jobs import MicroBatchLateError, TransformJobs
from mm2py.pipeline.transform.read import RangeReader
from mm2py.pipeline.transform.results import BadRecord


class Isolation:
    """Looks for records that fail in the ranges of a plan."""

    def __init__(self, jobs: TransformJobs, reader: RangeReader, clock: Clock) -> None:
        self._jobs = jobs
        self._reader = reader
        self._clock = clock
        self._is_late = False

    async def first_bad(self, one: PartitionPlan) -> BadRecord | None:
        """Return the first record of *one*'s range that the transform fails on; None if none was found."""
        try:
            return None if self._is_late else await self._found(one)
        except MicroBatchLateError:
            self._is_late = True
            return None

    async def _found(self, one: PartitionPlan) -> BadRecord | None:
        name = self._jobs.transform.name
        try:
            records = await self._table(one)
        except TimestampTooLargeError as error:
            # One before it may be bad as well: it is found once the range ends before this one.
            return BadRecord(error.offset, name, type(error).__name__, str(error))
        # The first bad record, if there is one, lies in [low, high); all before low are good.
        low, high = 0, len(records)
        end = high
        while low < high:
            words = await self._jobs.tried(records.slice(low, end - low), self._clock)
            if words is None:
                low = end
            elif is_lost(words):
                return None
            elif end - low > 1:
                high = end
            elif await self._jobs.tried(records.slice(low, 0), self._clock) is not None:
                return None  # it fails of no record at all: no Python worker can be started, for example
            else:
                return BadRecord(records.column("offset")[low].as_py(), name, *raised_in(words))
            end = (low + high + 1) // 2
        return None

    async def takes(self, one: PartitionPlan, offset: int) -> bool:
        """Whether the transform takes the record at *offset* by now."""
        try:
            record = await self._table(attrs.evolve(one, position=offset, until=offset + 1))
            return not len(record) or await self._jobs.tried(record, self._clock) is None
        except (TimestampTooLargeError, MicroBatchLateError):
            return False

    async def _table(self, one: PartitionPlan) -> pa.Table:
        return as_spark_takes(await table_of(self._reader, one), has_timestamps=self._jobs.reads_timestamps)


async def table_of(reader: RangeReader, one: PartitionPlan) -> pa.Table:
    """Read the range of *one* into memory, with timestamps in milliseconds."""
    batches = [batch async for batch in reader.read_arrow(one, is_for_spark=False)]
    return pa.Table.from_batches(batches, schema=ARROW_IN_MILLIS)
