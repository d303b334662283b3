"""How many jobs the ranges of a micro-batch have, for a statement or function."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mm2py.model.epoch import PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.transform import Transform
from mm2py.pipeline.transform.offset_ranges import MICRO_BATCH_BYTES, RANGE_BYTES
from mm2py.pipeline.transform.sql.column_pruning import Crossing
from mm2py.pipeline.transform.sql.query import Query


def _query(crossing: Crossing, *, takes_many: bool = True) -> Query:
    query = Query(cast("Any", None), Transform("x", sql="SELECT * FROM records"))
    query.takes_many, query.crossing = takes_many, crossing
    return query


def _ranges(count: int, records: int) -> list[PartitionPlan]:
    """Make ranges of so many records each."""
    return [
        PartitionPlan(TopicPartition("t", number), "A.t", 100, None, is_unsure=False, until=100 + records)
        for number in range(count)
    ]


@pytest.mark.parametrize(("ranges", "jobs"), [(1, 1), (8, 8), (9, 4), (200, 4)])
@pytest.mark.parametrize("takes_many", [False, True])
def test_a_few_ranges_have_a_job_each_and_many_have_few(ranges: int, jobs: int, takes_many: bool) -> None:
    """If the transform does not take records one after the other, each range has its own job, however many they are."""
    query = _query(Crossing(), takes_many=takes_many)

    assert query.jobs(_ranges(ranges, 1)) == (jobs if takes_many else ranges)
    assert MICRO_BATCH_BYTES // 4 <= RANGE_BYTES


@pytest.mark.parametrize(
    ("ranges", "records", "jobs"),
    [(1, 1_000_000, 1), (8, 10, 1), (8, 1_249, 1), (8, 1_250, 2), (8, 20_000, 4), (2, 20_000, 2), (200, 1, 1)],
)
def test_rows_with_ids_have_as_few_jobs_as_are_worth_it(ranges: int, records: int, jobs: int) -> None:
    """A job with several ranges costs nothing more then, so a few records have one."""
    assert _query(Crossing(has_row_ids=True)).jobs(_ranges(ranges, records)) == jobs
