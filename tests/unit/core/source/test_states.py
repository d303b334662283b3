"""Which of very many partitions are looked at between epochs."""

from __future__ import annotations

import attrs
import pytest

from mm2py.core.source.due import WRITE_AHEAD_BYTES, due_positions
from mm2py.core.source.progress import PartitionState
from mm2py.core.source.stalls import why_it_waits
from mm2py.core.source.states import PartitionStates
from mm2py.model.epoch import Ended, LogOffsets, ProducerMark
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position
from mm2py.model.state import PartitionStage


TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
MARK = ProducerMark(7, 0, 50)


def state(source: TopicPartition, **changes: object) -> PartitionState:
    """Make one that is being copied, behind its source and ahead of its written position, as any busy one is."""
    written = Position(source, 100, 99, producer=MARK)
    log = LogOffsets(0, high_watermark=200, last_stable=200)
    copied = PartitionState(source, "A.t", 120, 119, written=written, producer=MARK, unwritten_bytes=2_000, log=log)
    return attrs.evolve(copied, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"producer": None}, id="waits for its position to be written"),
        pytest.param({"is_questioned": True}, id="in question"),
        pytest.param({"is_transformed": True}, id="its position is due at once"),
        pytest.param({"unwritten_bytes": WRITE_AHEAD_BYTES}, id="its position is due early"),
        pytest.param({"stage": PartitionStage.BACKING_OFF}, id="pausing"),
        pytest.param({"stage": PartitionStage.STOPPED}, id="stopped"),
        pytest.param({"ended": Ended.INTERRUPTED}, id="interrupted"),
        pytest.param({"log": LogOffsets(0, high_watermark=200, last_stable=120)}, id="held by a transaction"),
    ],
)
def test_what_needs_more_than_copying_is_found(changes: dict[str, object]) -> None:
    """It is found among others for as long as it does, also if it is dropped meanwhile."""
    states = PartitionStates()
    states[TP], states[OTHER] = state(TP, **changes), state(OTHER)
    found = list(states.of_notable())
    states[TP] = state(TP)
    calm = list(states.notable)
    states[TP] = state(TP, **changes)
    states.drop(TP)

    assert [it.source for it in found] == [TP]
    assert calm == [] == list(states.notable)
    assert list(states) == [OTHER]


def test_what_is_not_found_needs_nothing() -> None:
    """No position of it is due before the interval is over, and nothing blocks it."""
    calm = state(TP)

    assert calm.is_fenced
    assert due_positions([calm], is_interval_over=False) == ()
    assert why_it_waits(calm) is None


def test_what_changes_is_noted_for_each_who_asks() -> None:
    """It begins with all, and what is dropped has changed, too."""
    states = PartitionStates()
    states[TP] = state(TP)
    first, second = states.changes(), states.changes()
    begun = list(first)
    first.clear()
    states[OTHER] = state(OTHER)
    states.drop(TP)

    assert begun == [TP]
    assert list(first) == [OTHER, TP]
    assert list(second) == [TP, OTHER]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"position": 199}, id="behind"),
        pytest.param({"is_unsure": True}, id="unsure"),
        pytest.param({"bytes_per_s": 100.0}, id="its rate fades"),
        pytest.param({"stage": PartitionStage.BACKING_OFF}, id="pausing"),
        pytest.param({"is_questioned": True}, id="in question"),
        pytest.param({"log": LogOffsets()}, id="its end is not known"),
    ],
)
def test_what_is_not_at_rest_is_found(changes: dict[str, object]) -> None:
    """It is found for as long as an epoch that learns nothing of it may mean something."""
    states, resting = PartitionStates(), state(TP, position=200, is_unsure=False)
    states[TP], states[OTHER] = attrs.evolve(resting, **changes), attrs.evolve(resting, source=OTHER)
    found = set(states.moving)
    states[TP] = resting

    assert found == {TP}
    assert not states.moving
