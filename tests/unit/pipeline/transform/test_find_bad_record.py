"""Which record a transform fails on: what is found of a range, and what is not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import attrs
import pyarrow as pa
import pytest

from mm2py.model.epoch import PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.transform import Transform
from mm2py.pipeline.transform.columns import to_arrow
from mm2py.pipeline.transform.dry_run import try_out
from mm2py.pipeline.transform.find_bad_record import Isolation, table_of
from mm2py.pipeline.transform.jobs import MicroBatchLateError
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
    reads_timestamps: bool = True

    async def tried(self, records: pa.Table, _clock: object) -> str | None:
        self.tries.append(records.column("offset").to_pylist())
        return self.answer(self.tries[-1])

    async def read_arrow(self, one: PartitionPlan, *, is_for_spark: bool) -> AsyncIterator[pa.RecordBatch]:
        offsets = list(range(one.position, one.until or 0))
        count = len(offsets)
        stamps = [self.timestamps.get(offset, 1_700_000_000_000) for offset in offsets]
        records = RecordColumns(offsets, stamps, [0] * count, [b""] * count, [b""] * count, [()] * count)
        yield to_arrow(one.source, records, is_for_spark=is_for_spark)

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


@pytest.mark.parametrize(("timestamp", "reads_timestamps"), [(NANOS, False), (-1, True)])
async def test_timestamps_that_make_no_record_bad(timestamp: int, *, reads_timestamps: bool) -> None:
    """A statement that writes others in their place takes any; old producers wrote none. The bad record is found."""
    stamps = dict.fromkeys(range(100, 120), timestamp)
    jobs = PretendedJobs(_fails_on(104), stamps, reads_timestamps=reads_timestamps)
    found = await jobs.isolation.first_bad(RANGE)

    assert found is not None
    assert (found.offset, found.message) == (104, "no good")
    assert await jobs.isolation.takes(RANGE, 110)


async def test_a_sample_has_timestamps_as_they_come() -> None:
    """Connect's transforms alone leave them as they are, which is tried without Spark."""
    records = await table_of(cast("Any", PretendedJobs(_fails_on(), {100: NANOS})), RANGE)
    tried = await try_out(cast("Any", None), Transform("x", steps=()), records)

    assert [(one.after.timestamp if one.after else None) for one in tried[:2]] == [NANOS, 1_700_000_000_000]


async def test_the_first_record_that_fails_alone_is_the_bad_one() -> None:
    """Wherever it is, a few tries find it, the last ones of that record alone, and of none."""
    for bad in range(100, 120):
        jobs = PretendedJobs(_fails_on(bad, 119))
        found = await jobs.isolation.first_bad(RANGE)

        assert found is not None
        assert found.offset == bad
        assert jobs.tries[-2:] == [[bad], []]
        assert len(jobs.tries) <= 8


async def test_a_range_of_good_records_has_no_bad_one() -> None:
    """What failed for it may have been another range of its job."""
    jobs = PretendedJobs(_fails_on())

    assert await jobs.isolation.first_bad(RANGE) is None
    assert jobs.tries == [list(range(100, 120))]


async def test_a_record_that_never_failed_alone_is_not_bad() -> None:
    """
    A try fails of something that does not come again.

    All records of it are good when they are tried in halves, the last one as well.
    """
    for accident in range(1, 4):
        jobs = PretendedJobs(_fails_on())
        jobs.answer = lambda offsets, jobs=jobs, at=accident: (
            _fails_on(110)(offsets) if len(jobs.tries) < at else "Job aborted" if len(jobs.tries) == at else None
        )

        assert await jobs.isolation.first_bad(RANGE) is None


async def test_what_fails_of_no_record_makes_none_bad() -> None:
    """No Python worker can be started for a while, of which Spark says anything: the range is tried again."""
    jobs = PretendedJobs(lambda _offsets: "SparkException: Error from python worker: Resource temporarily unavailable")

    assert await jobs.isolation.first_bad(RANGE) is None
    assert jobs.tries[-1] == []


async def test_a_try_that_hangs_is_the_last_one() -> None:
    """
    What the epoch has written of other partitions would be lost with an error, and written again.

    Another range would take as long; a record that stopped its topic stays bad.
    """

    def hang(_offsets: list[int]) -> str | None:
        raise MicroBatchLateError("trying transform x")

    jobs = PretendedJobs(hang)
    isolation = jobs.isolation

    assert await isolation.first_bad(RANGE) is None
    assert await isolation.first_bad(attrs.evolve(RANGE, position=110)) is None
    assert len(jobs.tries) == 1
    assert not await isolation.takes(RANGE, 110)


@pytest.mark.parametrize(
    "words",
    [
        "Job aborted: Python worker exited unexpectedly (crashed)",
        "Job aborted: ExecutorLostFailure (executor 1 exited)",
        "[SPARK_JOB_CANCELLED] Job 8 cancelled part of cancelled job group g SQLSTATE: XXKDA",
        "Spark is gone (Py4JNetworkError)",
        "Job aborted: java.lang.OutOfMemoryError: Java heap space",
    ],
)
async def test_what_spark_lost_makes_no_record_bad(words: str) -> None:
    """From the first try on, or only once a single record is left: the range is tried again."""
    for few in (1, 20):
        jobs = PretendedJobs(lambda offsets, few=few: words if len(offsets) <= few else _fails_on(110)(offsets))

        assert await jobs.isolation.first_bad(RANGE) is None
        assert not await jobs.isolation.takes(RANGE, 110)
