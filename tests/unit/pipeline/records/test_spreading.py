"""A stretch whose records go to several remote topics, over a model of the target."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from mm2py.model.date_pattern import DAY_MS
from mm2py.model.epoch import (
    CopyLimits,
    Ended,
    EpochPlan,
    Lane,
    PartitionOutcome,
    PartitionPlan,
    ProducerMark,
    Transactions,
    WantedLane,
)
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.transform import Errors, Step, Transform
from mm2py.pipeline.records.lanes import LaneUse
from mm2py.pipeline.records.outcome import StretchOutcome
from mm2py.pipeline.records.row import Chunk
from mm2py.pipeline.records.rows import Rows
from mm2py.pipeline.records.writing import StretchWriter
from mm2py.wire.error_codes import ErrorCode
from tests.support.clocks import LoopClock
from tests.support.copy_rig import worker_of
from tests.support.model_cluster import ModelCluster, ModelPartition


SOURCE = TopicPartition("orders", 0)
_DAYS = Step("days", "TimestampRouter", {"topic.format": "${topic}-${timestamp}", "timestamp.format": "D"})
LANES = {f"orders-{day}": Lane(f"orders-{day}", f"A.orders-{day}", 1, 1_000) for day in (1, 2)}


def rows(*days: int, value: bytes = b"v") -> Chunk:
    """Make records from offset 10 on, each of a day of the year."""
    count = len(days)
    offsets = range(10, 10 + count)
    return Chunk(offsets, [(day - 1) * DAY_MS for day in days], [None] * count, [value] * count, [()] * count)


class Target:
    """A model of the target, with the remote topics of two days, and what was written there."""

    def __init__(self) -> None:
        self.source, self.cluster = ModelCluster.of("A", "orders"), ModelCluster.of("B", "A.orders-1")
        self.cluster.partitions[TopicPartition("A.orders-2", 0)] = ModelPartition()
        self.worker = worker_of(self.source, self.cluster)

    async def write(
        self,
        *chunks: Chunk,
        errors: Errors | None = None,
        step: Step = _DAYS,
        transform: Transform | None = None,
        **plan: Any,
    ) -> StretchOutcome:
        until = 10 + sum(map(len, chunks))
        one = PartitionPlan(SOURCE, "A.orders-${timestamp}", 10, None, is_unsure=False, until=until, lanes=LANES)
        one = attrs.evolve(one, **plan)
        transform = transform or Transform("transforms", steps=(step,), errors=errors or Errors())
        epoch = self.epoch_of(one, transform=transform)
        return await StretchWriter(epoch, one, self.worker, LoopClock()).write(chunks)

    def epoch_of(self, one: PartitionPlan, **facts: Any) -> EpochPlan:
        return EpochPlan(
            Flow("A", "B"), 0, 0, self.source.endpoint, self.cluster.endpoint, (one,), CopyLimits(), 1_000, 500, **facts
        )  # fmt: skip

    def log(self, day: int) -> ModelPartition:
        return self.cluster.partitions[TopicPartition(f"A.orders-{day}", 0)]

    def days(self, day: int) -> list[int]:
        return [record.timestamp // DAY_MS + 1 for record in self.log(day).records()]


@pytest.fixture
async def target() -> Target:
    return Target()


async def test_each_record_goes_to_the_topic_of_its_day(target: Target) -> None:
    """All are there, and the position moves over all of them; nothing is said of offsets at the target."""
    written = await target.write(rows(1, 2, 1), attrs.evolve(rows(2, 2), offsets=range(13, 15)))

    assert (target.days(1), target.days(2)) == ([1, 1], [2, 2, 2])
    told = written.partition
    assert (told.position, told.records, told.ended, told.is_unsure) == (15, 5, Ended.OK, False)
    assert (told.downstream, tuple(told.runs), told.producer, written.wanted) == (None, (), None, ())
    assert set(written.used) == set(written.marks) == set(LANES)


async def test_writers_go_on_with_their_sequences(target: Target) -> None:
    """The next stretch of a remote partition has the same producer; each remote partition has its own sequences."""
    first = await target.write(rows(1, 2, 2))
    lanes = {name: attrs.evolve(lane, producer=first.marks[name]) for name, lane in LANES.items()}
    second = await target.write(rows(1, 1, 2), lanes=lanes)

    assert {name: mark.sequence for name, mark in first.marks.items()} == {"orders-1": 1, "orders-2": 2}
    assert {name: mark.sequence for name, mark in second.marks.items()} == {"orders-1": 3, "orders-2": 3}
    assert {mark.producer_id for mark in (*first.marks.values(), *second.marks.values())} == {
        first.marks["orders-1"].producer_id
    }
    assert len(target.log(1).records()) == 3


async def test_the_first_record_without_a_topic_ends_the_stretch_before_it(target: Target) -> None:
    """What is before it is written; all topics that it and those behind it need are told with the first record."""
    written = await target.write(rows(1, 2, 3, 1, 4, 3))

    assert (target.days(1), target.days(2)) == ([1], [2])
    assert (written.partition.position, written.partition.ended) == (12, Ended.OK)
    assert written.wanted == (WantedLane("orders-3", 12, 2 * DAY_MS), WantedLane("orders-4", 14, 3 * DAY_MS))


async def test_a_remote_topic_with_too_few_partitions_is_wanted(target: Target) -> None:
    """It must grow first."""
    written = await target.write(rows(1), source=TopicPartition("orders", 1))

    assert [it.name for it in written.wanted] == ["orders-1"]
    assert written.partition.position == 10


async def test_nothing_behind_a_record_that_is_too_large_is_written(target: Target) -> None:
    """Else it would be there twice once the record was dealt with."""
    large = rows(2, value=b"x" * 5_000)
    chunks = rows(2, 1), attrs.evolve(large, offsets=[12]), attrs.evolve(rows(1, 3), offsets=[13, 14])
    written = await target.write(*chunks)

    assert (target.days(1), target.days(2)) == ([1], [2])
    assert (written.partition.position, written.partition.ended, written.wanted) == (12, Ended.FAILED, ())
    assert written.partition.failure is not None
    assert written.partition.failure.error == "RecordTooLargeError"


@pytest.mark.parametrize("is_away", [False, True], ids=["refused", "without a leader"])
async def test_the_position_stays_before_what_one_topic_does_not_take(target: Target, *, is_away: bool) -> None:
    """What others took behind it is in doubt: a transaction is undone, without one it is written again."""
    if is_away:
        target.log(2).leader = None
    target.cluster.produce_fault = lambda tp, _: (ErrorCode.INVALID_TIMESTAMP, False) if "2" in tp.topic else None
    written = await target.write(rows(1, 2, 1))

    told = written.partition
    assert target.days(1) == [1, 1]
    assert (told.position, told.is_unsure) == (11, True)
    assert told.ended is (Ended.INTERRUPTED if is_away else Ended.FAILED)
    assert told.failure is not None
    assert "A.orders-2" in told.failure.message
    assert written.wanted == ()
    assert is_away or set(written.marks) == {"orders-1"}


@pytest.mark.parametrize("is_tolerated", [False, True])
async def test_a_name_that_no_topic_can_have_is_a_record_that_fails(target: Target, *, is_tolerated: bool) -> None:
    """It stops the topic, or is left out."""
    step = attrs.evolve(_DAYS, settings={**_DAYS.settings, "timestamp.format": "D''"})
    lanes = {"orders-1'": LANES["orders-1"]}
    written = await target.write(rows(1, 1), errors=Errors(are_tolerated=is_tolerated), step=step, lanes=lanes)

    assert target.days(1) == []
    if is_tolerated:
        assert [(bad.offset, bad.stage) for bad in written.left_out] == [(10, "transforms"), (11, "transforms")]
        assert (written.partition.position, written.partition.ended) == (12, Ended.OK)
    else:
        assert (written.partition.position, written.partition.ended) == (10, Ended.FAILED)
        assert written.partition.failure is not None
        assert 'DataException: no topic can be called "orders-1\'"' in written.partition.failure.message


ROUTING = Transform("transform.orders.sql", sql="SELECT", routes=True)


async def test_each_record_goes_where_its_row_says(target: Target) -> None:
    """To a topic and a partition; a place that is not there ends the stretch before the record."""
    target.cluster.partitions[TopicPartition("A.orders-2", 3)] = ModelPartition()
    lanes = {
        "orders-1": LANES["orders-1"],
        "orders-2/3": Lane("orders-2", "A.orders-2", 4, 1_000, partition=3),
        "orders-1/1": Lane("orders-1", "A.orders-1", 1, 1_000, partition=1),
    }
    places = [("orders-1", 0), ("orders-2", 3), ("orders-1", 0), ("orders-1", 1), ("orders-1", 0)]
    chunk = attrs.evolve(rows(1, 2, 1, 1, 1), places=places)
    written = await target.write(chunk, lanes=lanes, transform=ROUTING)

    assert target.days(1) == [1, 1]
    assert len(target.cluster.partitions[TopicPartition("A.orders-2", 3)].records()) == 1
    assert (written.partition.position, written.partition.ended) == (13, Ended.OK)
    assert written.wanted == (WantedLane("orders-1", 13, 0, 1),)
    assert set(written.marks) == {"orders-1", "orders-2/3"}


@pytest.mark.parametrize("topic", ["or ders", "..", "x" * 250])
async def test_a_topic_that_there_cannot_be_stops_the_topic(target: Target, topic: str) -> None:
    """What is before the record is written."""
    written = await target.write(attrs.evolve(rows(1, 1), places=[("orders-1", 0), (topic, 0)]), transform=ROUTING)

    assert (written.partition.position, written.partition.ended) == (11, Ended.FAILED)
    assert written.partition.failure is not None
    assert "orders-0, offset 11, column topic: transform.orders.sql fails" in written.partition.failure.message


@pytest.mark.parametrize("transactions", [None, Transactions("mm2py-x", "positions")])
async def test_in_a_transaction_records_keep_their_partition(target: Target, transactions: Transactions | None) -> None:
    """Two stretches would write to one partition as the same producer."""
    one = planned(position=10, until=12)
    epoch = target.epoch_of(one, transform=ROUTING, transactions=transactions)
    taken = Rows(epoch, one)
    given = [way for way, _ in taken.routed([attrs.evolve(rows(1, 1), places=[("orders-1", 0), ("orders-1", 1)])])]

    if transactions is None:
        assert (given, taken.failure, taken.done_until) == ([("orders-1", None), ("orders-1", 1)], None, 12)
    else:
        assert (given, taken.done_until) == ([("orders-1", None)], 11)
        assert taken.failure is not None
        assert "offset 11, column partition: transform.orders.sql fails" in taken.failure.message


# What is kept between stretches.


MARK = ProducerMark(5, 0, 7)


def planned(**plan: Any) -> PartitionPlan:
    return attrs.evolve(PartitionPlan(SOURCE, "x", 10, None, is_unsure=False, lanes=LANES), **plan)


def told(*wanted: str, ended: Ended = Ended.OK, **facts: Any) -> StretchOutcome:
    outcome = PartitionOutcome(SOURCE, 10, None, is_unsure=False, ended=ended)
    return StretchOutcome(outcome, wanted=tuple(WantedLane(name, 10, 0) for name in wanted), **facts)


def test_a_stretch_may_use_what_the_ones_before_used_or_wanted() -> None:
    """A lane that is there but was not used of late is no reason to wait."""
    use = LaneUse()
    first = use.narrowed(planned())
    outcome = use.learn(planned(), told("orders-2"))
    second = use.narrowed(planned())

    assert first.lanes == {}
    assert (outcome.ended, outcome.wanted) == (Ended.OK, ())
    assert second.lanes == {"orders-2": LANES["orders-2"]}


def test_what_is_not_there_is_waited_for_if_it_is_the_first() -> None:
    """Others are told, so that they are made meanwhile."""
    use = LaneUse()
    waits, goes_on = use.learn(planned(), told("new", "orders-1")), use.learn(planned(), told("orders-1", "new"))
    fails = use.learn(planned(), told("new", ended=Ended.INTERRUPTED))

    assert [(it.ended, [one.name for one in it.wanted]) for it in (waits, goes_on, fails)] == [
        (Ended.WANTING, ["new"]),
        (Ended.OK, ["new"]),
        (Ended.INTERRUPTED, ["new"]),
    ]


def test_a_lane_without_the_partition_is_not_there() -> None:
    """The remote topic must grow."""
    other = planned(source=TopicPartition("orders", 1))
    use = LaneUse()

    assert use.learn(other, told("orders-1")).ended is Ended.WANTING
    assert use.narrowed(other).lanes == {}


def test_a_lane_of_another_partition_is_one_of_its_own() -> None:
    """The remote topic is the same, who writes there is not."""
    use = LaneUse()
    wanted = (WantedLane("orders-1", 10, 0, 2), WantedLane("orders-2", 11, 0))
    lanes = {"orders-1": Lane("orders-1", "A.orders-1", 3), "orders-2": LANES["orders-2"]}
    outcome = use.learn(planned(lanes=lanes), attrs.evolve(told(), wanted=wanted, marks={"orders-1/2": MARK}))
    narrowed = use.narrowed(planned(lanes=lanes)).lanes or {}

    assert (outcome.wanted, set(narrowed)) == ((), {"orders-1/2", "orders-2"})
    assert narrowed["orders-1/2"].remote(SOURCE) == TopicPartition("A.orders-1", 2)
    assert narrowed["orders-1/2"].producer == MARK
    assert narrowed["orders-2"].remote(SOURCE) == TopicPartition("A.orders-2", 0)
    short = use.learn(planned(), attrs.evolve(told(), wanted=wanted))
    assert [it.key for it in short.wanted] == ["orders-1/2"]


def test_lanes_that_are_not_used_are_left_out_but_their_writers_are_known() -> None:
    """After sixteen stretches; one whose remote topic is gone is forgotten for good."""
    use = LaneUse()
    use.learn(planned(), told(used=("orders-1", "orders-2"), marks={"orders-1": MARK, "orders-2": MARK}))
    for _ in range(20):
        use.narrowed(planned())
        use.learn(planned(), told(used=("orders-2",), marks={"orders-2": MARK}))
    kept = use.narrowed(planned()).lanes
    use.learn(planned(), told("orders-1"))
    again = use.narrowed(planned()).lanes
    gone = use.narrowed(planned(lanes={})).lanes

    assert kept is not None
    assert {name: lane.producer for name, lane in kept.items()} == {"orders-2": MARK}
    assert again is not None
    assert {name: lane.producer for name, lane in again.items()} == {"orders-1": MARK, "orders-2": MARK}
    assert gone == {}


def test_what_others_took_behind_a_refused_record_is_not_written_again_and_again() -> None:
    """The record that one remote topic refuses is tried alone; once it is taken, stretches grow to what they were."""
    use = LaneUse()
    untils = []
    for is_unsure in (False, True, True, False, False, True, *[False] * 20):
        untils.append(use.narrowed(planned(until=1_000_000)).until)
        stretch = told(ended=Ended.FAILED if is_unsure else Ended.OK)
        use.learn(planned(), attrs.evolve(stretch, partition=attrs.evolve(stretch.partition, is_unsure=is_unsure)))

    assert untils[:8] == [1_000_000, 1_000_000, 11, 11, 12, 14, 11, 12]
    assert untils[-1] == 1_000_000


def test_who_wrote_a_stretch_that_nobody_tells_of_is_not_gone_on_with() -> None:
    """It may still be writing: its sequences mean nothing any more."""
    use = LaneUse()
    use.learn(planned(), told(used=("orders-1", "orders-2"), marks={"orders-1": MARK, "orders-2": MARK}))
    lost = use.narrowed(planned()).lanes
    after = use.narrowed(planned()).lanes

    assert lost is not None
    assert after is not None
    assert [lane.producer for lane in lost.values()] == [MARK, MARK]
    assert [lane.producer for lane in after.values()] == [None, None]


def test_who_did_not_write_in_a_stretch_goes_on() -> None:
    """A stretch that used one of two lanes leaves the other as it was."""
    use = LaneUse()
    use.learn(planned(), told(used=("orders-1", "orders-2"), marks={"orders-1": MARK, "orders-2": MARK}))
    use.narrowed(planned())
    use.learn(planned(), told(used=("orders-1",)))
    lanes = use.narrowed(planned()).lanes

    assert lanes is not None
    assert {name: lane.producer for name, lane in lanes.items()} == {"orders-1": None, "orders-2": MARK}
