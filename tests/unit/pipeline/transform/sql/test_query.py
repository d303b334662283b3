"""How many jobs the ranges of a micro-batch have, for a statement or function."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mm2py.model.transform import Transform
from mm2py.pipeline.transform.offset_ranges import MICRO_BATCH_BYTES, RANGE_BYTES
from mm2py.pipeline.transform.sql.query import Query


@pytest.mark.parametrize(("ranges", "jobs"), [(1, 1), (8, 8), (9, 4), (200, 4)])
@pytest.mark.parametrize("has_many", [False, True])
def test_few_ranges_have_a_job_each_and_many_have_few(ranges: int, jobs: int, has_many: bool) -> None:
    """If the transform does not take records one after the other, each range has its own job, however many they are."""
    query = Query(cast("Any", None), Transform("x", sql="SELECT * FROM records"))
    query.takes_many = has_many

    assert query.jobs(ranges) == (jobs if has_many else ranges)
    assert MICRO_BATCH_BYTES // 4 <= RANGE_BYTES
