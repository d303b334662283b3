"""Altering offsets: what Java refuses is refused, with every problem named, and which positions follow."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from mm2py.core.herder.connector_offsets import Altered, PartitionOffsets, altered_positions, read_offsets
from mm2py.errors import OverrideRejectedError
from mm2py.model.connector_offset import CHECKPOINT, HEARTBEAT, SOURCE, ConnectorOffset
from mm2py.model.epoch import LeaderMark, ProducerMark
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.positions import Position


FLOW = Flow("A", "B")
TP = TopicPartition("t", 0)
T0 = {"cluster": "A", "topic": "t", "partition": 0}
GROUP = {"group": "g", "topic": "A.t", "partition": 0}
PLACE = PartitionOffsets(start=100, end=1000, topic_id="up", remote_end=700, remote_topic_id="down", remote_topic="A.t")


def test_a_body_as_connect_gives_it_is_taken() -> None:
    """What GET shows can be sent back; null removes an offset, whatever its partition is."""
    body = [
        {"partition": T0, "offset": {"offset": 41}},
        {"partition": {"old": "garbage"}, "offset": None},
    ]

    assert read_offsets(FLOW, SOURCE, body) == (
        ConnectorOffset(T0, {"offset": 41}),
        ConnectorOffset({"old": "garbage"}, None),
    )


@pytest.mark.parametrize(
    ("connector", "partition", "offset", "problem"),
    [
        (SOURCE, None, {"offset": 1}, "partition must be an object"),
        (SOURCE, {"topic": "t", "partition": 0}, {"offset": 1}, "cluster is missing"),
        (SOURCE, {**T0, "topic": 7}, {"offset": 1}, "topic must be a string"),
        (SOURCE, {**T0, "partition": "0"}, {"offset": 1}, "partition must be a whole number"),
        (SOURCE, {**T0, "partition": True}, {"offset": 1}, "partition must be a whole number"),
        (SOURCE, {**T0, "partition": -1}, {"offset": 1}, "partition must be from 0"),
        (SOURCE, {**T0, "partition": 2**31}, {"offset": 1}, "partition must be from 0"),
        (SOURCE, {**T0, "cluster": "C"}, {"offset": 1}, "the source of flow A->B is 'A'"),
        (SOURCE, {**T0, "extra": 1}, {"offset": 1}, "'extra' is not known"),
        (SOURCE, T0, 5, "offset must be an object or null"),
        (SOURCE, T0, {}, "offset is missing"),
        (SOURCE, T0, {"offset": "5"}, "offset must be a whole number"),
        (SOURCE, T0, {"offset": -1}, "offset must be from 0"),
        (SOURCE, T0, {"offset": 1, "position": 2}, "'position' is not known"),
        (SOURCE, T0, {"timestamp": "2026-11-01"}, "offset: timestamp: '2026-11-01' has no time zone"),
        (SOURCE, T0, {"timestamp": None}, "offset: timestamp: expected"),
        (SOURCE, T0, {"timestamp": True}, "offset: timestamp: expected"),
        (SOURCE, T0, {"offset": 1, "timestamp": 0}, "'timestamp' is not known"),
        (CHECKPOINT, GROUP, {"timestamp": 0}, "offset is missing"),
        (CHECKPOINT, GROUP, {"offset": 1}, "only 0 and null"),
        (CHECKPOINT, T0, {"offset": 0}, "group is missing"),
        (HEARTBEAT, {"sourceClusterAlias": "A"}, {"offset": 0}, "targetClusterAlias is missing"),
    ],
)
def test_what_java_refuses_is_refused(connector: str, partition: Any, offset: Any, problem: str) -> None:
    """Each thing that is wrong is named (MirrorSourceConnectorTest.testAlterOffsets… and its siblings)."""
    with pytest.raises(OverrideRejectedError) as refused:
        read_offsets(FLOW, connector, [{"partition": partition, "offset": offset}])

    assert any(problem in one for one in refused.value.problems), refused.value.problems


@pytest.mark.parametrize("body", [None, {}, [], "x"])
def test_nothing_is_no_request(body: Any) -> None:
    """At least one partition must be named."""
    with pytest.raises(OverrideRejectedError, match="at least one"):
        read_offsets(FLOW, SOURCE, body)


def test_every_problem_is_named() -> None:
    """All entries are checked, and a partition that is named twice is refused."""
    body = [{"offset": None}, {"partition": T0, "offset": None}, {"partition": T0, "offset": None}, 5]

    with pytest.raises(OverrideRejectedError) as refused:
        read_offsets(FLOW, SOURCE, body)

    assert [problem.split(":")[0].split(" ")[0] for problem in refused.value.problems] == [
        "offsets[0]",
        "offsets[2]",
        "offsets[3]",
    ]


def _alter(offset: int, before: Position | None, place: PartitionOffsets | str = PLACE) -> tuple[Altered, ...]:
    return altered_positions(
        [ConnectorOffset(T0, {"offset": offset})], {} if before is None else {TP: before}, {TP: place}
    )


BEFORE = Position(TP, 801, 699, "up", ProducerMark(5, 2, 640), "down", LeaderMark(3, 0))


def test_a_position_is_set_back_behind_what_the_target_holds() -> None:
    """What is copied again is appended; the producer goes on in a new epoch, and no leader is known to hold."""
    (altered,) = _alter(700, BEFORE)

    assert altered == Altered(Position(TP, 701, 699, "up", ProducerMark(5, 3, 0), "down"), repeated=100)


def test_a_position_is_set_forward() -> None:
    """What lies between is never copied."""
    (altered,) = _alter(900, BEFORE)

    assert (altered.position.next_upstream, altered.repeated, altered.skipped) == (901, 0, 100)


def test_what_is_gone_cannot_be_copied_again() -> None:
    """Before the source's start there is nothing: the position stands at the start, or a resume would ask why."""
    (altered,) = _alter(5, BEFORE)

    assert (altered.position.next_upstream, altered.repeated) == (100, 701)


def test_what_is_gone_before_it_was_copied_is_skipped() -> None:
    """No start reports it later: the position lies behind it."""
    (altered,) = _alter(5, attrs.evolve(BEFORE, next_upstream=40))

    assert (altered.position.next_upstream, altered.repeated, altered.skipped) == (100, 0, 60)


def test_the_offset_that_stands_there_changes_nothing() -> None:
    """Who sends back what was shown gets an exact resume, as if nothing had been sent."""
    assert _alter(800, BEFORE) == ()


def test_a_partition_that_was_never_copied() -> None:
    """It begins at the altered offset, without a producer."""
    (altered,) = _alter(499, None)

    assert altered == Altered(Position(TP, 500, 699, "up", remote_topic_id="down"), skipped=400)


def test_an_epoch_of_a_producer_is_used_up_in_time() -> None:
    """A producer whose epochs are at their end gives way to a new one."""
    (altered,) = _alter(700, Position(TP, 801, 699, producer=ProducerMark(5, 32766, 1)))

    assert altered.position.producer is None


def test_what_cannot_be_is_refused_with_all_reasons() -> None:
    """Past the source's end, or where there is no such partition."""
    asked = [ConnectorOffset(T0, {"offset": 1000}), ConnectorOffset({**T0, "partition": 9}, {"offset": 1})]

    with pytest.raises(OverrideRejectedError) as refused:
        altered_positions(asked, {}, {TP: PLACE, TopicPartition("t", 9): "the source has no such topic-partition"})

    assert [problem.split(":")[0] for problem in refused.value.problems] == ["t-0", "t-9"]


@pytest.mark.parametrize(("since", "position"), [(400, 400), (100, 100), (1000, 1000)])
def test_a_timestamp_becomes_a_position(since: int, position: int) -> None:
    """Copying goes on at the first record of that time, at the end if there is none."""
    (asked,) = read_offsets(FLOW, SOURCE, [{"partition": T0, "offset": {"timestamp": "2026-11-01T00:00:00Z"}}])
    (altered,) = altered_positions([asked], {}, {TP: attrs.evolve(PLACE, since=since)})

    assert asked.timestamp_ms == 1_793_491_200_000
    assert altered.position.next_upstream == position
    assert altered.skipped == position - PLACE.start


@pytest.mark.parametrize("before", [None, BEFORE, Position(TP, 501, 499)])
def test_a_position_of_another_mirror_claims_nothing_about_the_target(before: Position | None) -> None:
    """The resume finds what that mirror copied after it. A producer that was there goes on in its next epoch."""
    producer = ProducerMark(5, 3, 0) if before is BEFORE else None
    asked = [ConnectorOffset(T0, {"offset": 500})]
    (altered,) = altered_positions(asked, {} if before is None else {TP: before}, {TP: PLACE}, is_taken_over=True)

    assert altered == Altered(Position(TP, 501, topic_id="up", remote_topic_id="down", producer=producer))


def test_an_empty_remote_partition_has_nothing_to_look_for() -> None:
    """Mirus's producer chose partitions by key: records of this one may all be in others, and are not copied again."""
    place = {TP: attrs.evolve(PLACE, remote_end=0)}
    asked = [ConnectorOffset(T0, {"offset": 500})]
    (altered,) = altered_positions(asked, {}, place, is_taken_over=True)

    assert altered == Altered(Position(TP, 501, -1, topic_id="up", remote_topic_id="down"))
    assert altered_positions(asked, {TP: altered.position}, place, is_taken_over=True) == ()


def test_java_s_position_under_an_empty_remote_partition_is_set_even_where_it_is() -> None:
    """An operator wants nothing before it: if it stayed as it is, all of that would be copied."""
    place, asked = {TP: attrs.evolve(PLACE, remote_end=0)}, [ConnectorOffset(T0, {"offset": 500})]
    (altered,) = altered_positions(asked, {TP: Position(TP, 501)}, place)

    assert altered == Altered(Position(TP, 501, -1, topic_id="up", remote_topic_id="down"))
    assert altered_positions(asked, {TP: altered.position}, place) == ()
    assert altered_positions(asked, {TP: Position(TP, 501)}, {TP: PLACE}) == ()


def test_a_position_that_was_taken_over_already_stays() -> None:
    """The same command twice changes nothing the second time."""
    before = {TP: Position(TP, 501, topic_id="up", remote_topic_id="down")}

    assert altered_positions([ConnectorOffset(T0, {"offset": 500})], before, {TP: PLACE}, is_taken_over=True) == ()
