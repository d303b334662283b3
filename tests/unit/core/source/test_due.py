"""What is due between two epochs."""

from __future__ import annotations

import attrs
import pytest

from mm2py.core.source.due import WRITE_AHEAD_BYTES, Plans, due_positions, fence, next_retry_at, write
from mm2py.core.source.progress import PartitionState, Repair
from mm2py.model.epoch import ProducerMark
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position


TP = TopicPartition("t", 0)
MARK = ProducerMark(7, 0, 50)


def state(**changes: object) -> PartitionState:
    written = Position(TP, 100, 99, producer=MARK).at("A.t")
    return attrs.evolve(
        PartitionState(TP, "A.t", position=100, downstream=99, written=written, producer=MARK), **changes
    )


@pytest.mark.parametrize(
    ("changes", "is_fenced"),
    [
        ({}, True),
        ({"producer": attrs.evolve(MARK, is_contested=True)}, True),
        ({"producer": None}, False),
        ({"producer": attrs.evolve(MARK, producer_id=8)}, False),
        ({"producer": attrs.evolve(MARK, producer_epoch=1)}, False),
        ({"written": None}, False),
        ({"written": Position(TP, 100, 99)}, False),
        ({"producer": None, "repair": Repair(1, 100, 99, None, 95)}, True),
        ({"producer": None, "is_transformed": True}, True),
        ({"written": None, "is_transformed": True}, False),
    ],
)
def test_nothing_is_planned_before_it_is_fenced(changes: dict[str, object], is_fenced: bool) -> None:
    """A partition waits until the positions topic names its producer; a search, and a transform, for a position."""
    waiting = state(**changes)

    assert waiting.is_fenced is is_fenced
    assert len(Plans([TP]).next({TP: waiting}, (), now=1.0)) == (1 if is_fenced else 0)
    assert (next_retry_at([waiting]) is None) is not is_fenced


def test_a_partition_is_copied_with_the_producer_that_was_written() -> None:
    """What was stored for it is what it is planned with; before that nothing is."""
    waiting = state(producer=None, written=None)
    fenced = fence(waiting, attrs.evolve(waiting.standing, producer=MARK))

    assert [plan.producer for plan in Plans([TP]).next({TP: fenced}, (), now=1.0)] == [MARK]
    assert due_positions([fenced], is_interval_over=True) == ()


@pytest.mark.parametrize("change", [{"position": 50}, {"downstream": 120}, {"topic_id": "another"}])
def test_a_partition_that_changed_while_it_was_written_waits_on(change: dict[str, object]) -> None:
    """Sequences count from the position that was stored with the producer, so another one is stored first."""
    waiting = state(producer=None, written=None)
    changed = attrs.evolve(waiting, **change)

    assert fence(changed, attrs.evolve(waiting.standing, producer=MARK)) == changed


def test_positions_are_due_when_they_moved() -> None:
    """At the end of the interval all positions that moved are due, before it only those that moved far."""
    still = state()
    moved = state(position=150, downstream=149)
    far = state(source=TopicPartition("t", 1), position=150, unwritten_bytes=WRITE_AHEAD_BYTES)

    assert (moved.standing, far.standing) == due_positions([still, moved, far], is_interval_over=True)
    assert (far.standing,) == due_positions([still, moved, far], is_interval_over=False)


def test_a_position_without_a_producer_waits_for_one() -> None:
    """Written without, it would hide which producer the next one has to replace."""
    assert due_positions([state(position=150, downstream=149, producer=None)], is_interval_over=True) == ()


def test_positions_of_transformed_topics_do_not_wait() -> None:
    """What was written since would be written again after a crash: it cannot be compared with its source."""
    moved = state(position=150, downstream=149)
    other = state(source=TopicPartition("u", 1), position=150, downstream=149, is_transformed=True)

    assert due_positions([moved, other], is_interval_over=False) == (other.standing,)


def test_positions_of_transactions_are_not_written_beside_them() -> None:
    """One that was written late would take back what a later transaction committed."""
    moved = state(position=150, downstream=149)
    there, far = TopicPartition("u", 1), WRITE_AHEAD_BYTES
    other = state(source=there, position=150, downstream=149, unwritten_bytes=far, is_transformed=True)

    for is_over in (False, True):
        due = due_positions([moved, other], is_interval_over=is_over, is_exactly_once=True)
        assert due == ((moved.standing,) if is_over else ())


def test_a_written_position_is_not_due_again() -> None:
    """Once a position is written nothing is due, until the partition moves on."""
    moved = state(position=150, downstream=149, unwritten_bytes=5)
    written = write(moved, moved.standing)

    assert due_positions([written], is_interval_over=True) == ()
    assert written.unwritten_bytes == 0


def test_a_position_that_moved_while_it_was_written_stays_due() -> None:
    """What was copied during the write is due at the next one."""
    moved = state(position=150, downstream=149)
    moved_on = attrs.evolve(moved, position=170, downstream=169)

    written = write(moved_on, moved.standing)

    assert (moved_on.standing,) == due_positions([written], is_interval_over=True)
