"""Values that are pickled without the names of their fields."""

from __future__ import annotations

import pickle

import attrs
import pytest

from mm2py.model.epoch import (
    Ended,
    LeaderMark,
    LogOffsets,
    MeasuredTime,
    PartitionFailure,
    PartitionOutcome,
    PartitionPlan,
    ProducerMark,
    Run,
    Runs,
)
from mm2py.model.flow import TopicPartition


OUTCOME = PartitionOutcome(
    TopicPartition("orders", 3),
    position=120,
    downstream=118,
    is_unsure=True,
    ended=Ended.FAILED,
    failure=PartitionFailure("the record is too large", offset=120),
    runs=Runs([Run(100, 99, 20)]),
    known_from=90,
    log=LogOffsets(1, 130, 125),
    last_timestamp_ms=1_700_000_000_000,
    producer=ProducerMark(7, 1, 20, is_contested=True),
    leader=LeaderMark(4, 80),
    stray_from=60,
    age=MeasuredTime(1, 2, 3, 4, 5),
    latency=MeasuredTime(6, 7, 8, 9, 10),
    records=11,
    bytes=12,
    batches_unopened=13,
    batches_rebuilt=14,
    batches_dropped=15,
    resumed_records=16,
    foreign_records=17,
)
PLAN = PartitionPlan(
    TopicPartition("orders", 3), "A.orders", 120, 118, True, 1, ProducerMark(7, 1, 20), "id", "remote-id", True,
    LeaderMark(4, 80), 5, 6, True, 7,
)  # fmt: skip


@pytest.mark.parametrize(("value", "name"), [(OUTCOME, b"resumed_records"), (PLAN, b"remote_topic")])
def test_all_values_arrive_without_names(value: PartitionOutcome | PartitionPlan, name: bytes) -> None:
    pickled = pickle.dumps(value, protocol=5)

    assert all(getattr(value, field.name) != field.default for field in attrs.fields(type(value)))
    assert pickle.loads(pickled) == value
    assert name not in pickled


@pytest.mark.parametrize("count", [0, 1, 8, 9, 1_000])
def test_runs_arrive(count: int) -> None:
    """The copy can be added to like any other."""
    runs = Runs([Run(10 * number, 9 * number, 5) for number in range(count)])
    copied: Runs = pickle.loads(pickle.dumps(runs, protocol=5))
    copied.add(10 * count, 9 * count, 5)

    assert copied == [*runs, Run(10 * count, 9 * count, 5)]
