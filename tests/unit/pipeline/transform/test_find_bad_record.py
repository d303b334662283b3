"""Which record a transform fails on: what is found of a range, and what is not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import attrs
import pyarrow as pa

from mm2py.model.epoch import PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.transform import Transform
from mm2py.pipeline.transform.columns import to_arrow
from mm2py.pipeline.transform.find_bad_record import Isolation
from mm2py.wire.batches.record_columns import RecordColumns
from tests.support.clocks import LoopClock


RANGE = PartitionPlan(TopicPartition("t", 0), "A.t", 100, None, is_unsure=False, until=120)
NANOS = 1_750_000_000_123_456_789


@attrs.define
class PretendedJobs:
    """Dry runs that end as the test decides, by the offsets of their records; a reader of as many records as wanted."""

    answer: Callable[[list[int]], str | None]
    timestamps: dict[int, int] = attrs.field(factory=dict)
    tries: list[list[int]] = attrs.field(factory=list)
    transform: Transform = attrs.field(factory=lambda: Transform("x", sql="SELECT 1"))

    async def tried(self, records: pa.Table, _clock: object) -> str | None:
        self.tries.append(records.column("offset").to_pylist())
        return self.answer(self.tries[-1])

    async def read_arrow(self, one: PartitionPlan) -> AsyncIterator[pa.RecordBatch]:
        offsets = list(range(one.position, one.until or 0))
        count = len(offsets)
        stamps = [self.timestamps.get(offset, 1_700_000_000_000) for offset in offsets]
        yield to_arrow(
            one.source, RecordColumns(offsets, stamps, [0] * count, [b""] * count, [b""] * count, [()] * count)
        )

    @property
    def isolation(self) -> Isolation:
        return Isolation(cast("Any", self), cast("Any", self), LoopClock())


def _fails_on(*bad: int) -> Callable[[list[int]], str | None]:
    return lambda offsets: "[USER_RAISED_EXCEPTION] no good" if set(bad) & set(offsets) else None


async def test_a_timestamp_that_spark_cannot_hold_makes_a_record_bad() -> None:
    """
    It is found without a try, even where an earlier record is bad as well, and stays bad.

    The range ends before it the next time, and then the earlier one is found.
    """
    jobs = PretendedJobs(_fails_on(104), {110: NANOS, 115: NANOS})
    found = await jobs.isolation.first_bad(RANGE)

    assert found is not None
    assert (found.offset, found.error) == (110, "TimestampTooLargeError")
    assert f"{NANOS} ms" in found.message
    assert not await jobs.isolation.takes(RANGE, 110)
    assert not jobs.tries

    earlier = await jobs.isolation.first_bad(attrs.evolve(RANGE, until=110))
    assert earlier is not None
    assert (earlier.offset, earlier.error, earlier.message) == (104, "USER_RAISED_EXCEPTION", "no good")
