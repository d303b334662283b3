"""Which topic-partitions are told to stand still, and when."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from mm2py.core.source.progress import PartitionState, look
from mm2py.core.source.stalls import INTERRUPTED_S, TRANSACTION_S, Stall, follow, held_by_transaction, why_it_waits
from mm2py.model.epoch import LogOffsets, PartitionFailure
from mm2py.model.flow import TopicPartition
from mm2py.model.state import PartitionStage


TP = TopicPartition("t", 0)
AWAY = PartitionFailure("no broker leads t-0 at the source", "start one")
LOST = PartitionFailure("its Python worker was killed", error="EpochLostError")


def state(*, last_stable: int = -1, high_watermark: int = 160, **changes: object) -> PartitionState:
    log = LogOffsets(0, high_watermark, last_stable)
    return attrs.evolve(PartitionState(TP, "A.t", position=100, downstream=99, log=log), **changes)


HELD = state(last_stable=100)
INTERRUPTED = state(stage=PartitionStage.BACKING_OFF, failure=AWAY)


@pytest.mark.parametrize(
    ("found", "is_held"),
    [
        pytest.param(HELD, True, id="all is copied that may be read, and more is there"),
        pytest.param(state(last_stable=120), False, id="more may be read"),
        pytest.param(state(last_stable=100, high_watermark=100), False, id="there is nothing more"),
        pytest.param(state(), False, id="all may be read"),
        pytest.param(look(HELD, log_start_offset=0, high_watermark=170), False, id="unknown what may be read"),
    ],
)
def test_what_a_transaction_holds(found: PartitionState, *, is_held: bool) -> None:
    """A partition waits for a transaction only if nothing else is left to copy."""
    failure = held_by_transaction(found)

    assert (failure is not None) is is_held
    assert failure is None or ("offset 100" in failure.message and "kafka-transactions.sh" in failure.hint)


def moments(states: Sequence[tuple[float, PartitionState]]) -> list[tuple[float, str]]:
    """Return what is reported when *states* are found one after the other, each at its time."""
    known: dict[TopicPartition, Stall] = {}
    told = []
    for now, found in states:
        followed = follow(known, [found], now=now)
        told += [(now, "begun")] * len(followed.begun) + [(now, "over")] * len(followed.over)
        known = dict(followed.stalls)
    return told


STOPPED = state(stage=PartitionStage.STOPPED, failure=AWAY)
OF_LOSSES = attrs.evolve(INTERRUPTED, failure=LOST)
BEHIND = [(0, HELD), (299, HELD), (TRANSACTION_S, HELD), (999, HELD), (1_000, state(position=160))]
ONE_BY_ONE = [(at, state(position=at, last_stable=at)) for at in range(0, 160, 20)]
AGAIN = [(0, INTERRUPTED), (INTERRUPTED_S, INTERRUPTED), (70, attrs.evolve(INTERRUPTED, failures=9)), (80, state())]
MOVES = [(0, INTERRUPTED), (50, attrs.evolve(INTERRUPTED, position=101)), (100, INTERRUPTED)]


@pytest.mark.parametrize(
    ("states", "told"),
    [
        pytest.param(BEHIND, [(TRANSACTION_S, "begun"), (1_000, "over")], id="a transaction stays open, and ends"),
        pytest.param(ONE_BY_ONE, [], id="one transaction after the other, none of them for long"),
        pytest.param(AGAIN, [(INTERRUPTED_S, "begun"), (80, "over")], id="interrupted again and again"),
        pytest.param(MOVES, [], id="interrupted, but it gets on"),
        pytest.param([(0, OF_LOSSES), (9_999, OF_LOSSES)], [], id="each loss of an epoch is told"),
        pytest.param([(0, state()), (9_999, state())], [], id="nothing holds it"),
        pytest.param([*AGAIN[:2], (70, STOPPED), (80, state())], [(60, "begun")], id="then it was stopped"),
    ],
)
def test_a_stall_is_told_once_and_its_end_once(states: Sequence[tuple[float, PartitionState]], told: object) -> None:
    """A blocked partition is reported after some patience, and is over once it moves or nothing holds it."""
    assert moments(states) == told


def test_what_is_no_longer_looked_at_is_forgotten_in_silence() -> None:
    """A partition that is paused or no longer mirrored does not go on."""
    held = follow({}, [HELD], now=0).stalls
    told = follow(held, [HELD], now=TRANSACTION_S)
    gone = follow(told.stalls, [], now=TRANSACTION_S + 5)

    assert len(told.begun) == 1
    assert (gone.stalls, gone.over) == ({}, ())


def test_a_view_says_at_once_why_a_partition_waits() -> None:
    """The reason is in the view before the event is due."""
    assert why_it_waits(INTERRUPTED) == AWAY
    assert why_it_waits(state()) is None
    assert why_it_waits(HELD) == held_by_transaction(HELD)
