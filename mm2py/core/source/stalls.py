"""Topic-partitions that are blocked for a reason that no other event reports. A stopped or questioned one, or one
whose epoch was lost, has its own event. One that is interrupted repeatedly, or that waits for a transaction at the
source to end, has none: it recovers by itself, sooner or later. If that takes too long, it is reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import attrs

from mm2py.core.source.progress import LOST, PartitionState
from mm2py.errors import OpenTransactionError
from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import TopicPartition
from mm2py.model.state import PartitionStage


#: By then a broker that was restarted is back, and a leader has moved.
INTERRUPTED_S = 60.0
#: Some producers keep transactions open for minutes, on purpose; hardly one for longer.
TRANSACTION_S = 300.0
OPEN_TRANSACTION = "OpenTransaction"


@attrs.frozen
class Stall:
    """A topic-partition that is blocked at upstream offset *position*, since when, and why."""

    source: TopicPartition
    position: int
    since: float
    why: PartitionFailure
    is_told: bool = False


@attrs.frozen
class Followed:
    """The blocked partitions; those to report now, and those reported before that continue."""

    stalls: Mapping[TopicPartition, Stall]
    begun: tuple[Stall, ...] = ()
    over: tuple[Stall, ...] = ()


def held_by_transaction(state: PartitionState) -> PartitionFailure | None:
    """Return the open transaction at the source that blocks *state* once everything readable is copied."""
    stable, end = state.log.last_stable, state.log.high_watermark
    if not 0 <= stable == state.position < end:
        return None
    source = state.source
    return PartitionFailure(
        f"a transaction that is still open at the source blocks {source} from being read past offset {stable}; "
        f"it ends at {end}",
        OpenTransactionError.hint,
        OPEN_TRANSACTION,
        stable,
    )


def why_it_waits(state: PartitionState) -> PartitionFailure | None:
    """Return why *state* is not being copied at the moment; None if it is, or if the reason is unknown."""
    if state.stage is PartitionStage.COPYING:
        return None if state.is_questioned else held_by_transaction(state)
    return state.failure


def follow(known: Mapping[TopicPartition, Stall], states: Iterable[PartitionState], *, now: float) -> Followed:
    """Return which of *states* are blocked, given those *known* to be."""
    stalls: dict[TopicPartition, Stall] = {}
    begun, over = [], []
    for state in states:
        before = known.get(state.source) if known else None
        why = why_it_waits(state)
        if before is not None and (state.position != before.position or (why is None and not state.is_questioned)):
            over += [before] if before.is_told else []
            before = None
        if why is None or state.is_questioned or state.stage is PartitionStage.STOPPED:
            continue
        stall = Stall(state.source, state.position, now, why) if before is None else attrs.evolve(before, why=why)
        if not stall.is_told and now - stall.since >= _patience_s(why):
            stall = attrs.evolve(stall, is_told=True)
            begun.append(stall)
        stalls[state.source] = stall
    return Followed(stalls, tuple(begun), tuple(over))


def _patience_s(why: PartitionFailure) -> float:
    if why.error == LOST:
        return math.inf  # reported with each loss
    return TRANSACTION_S if why.error == OPEN_TRANSACTION else INTERRUPTED_S
