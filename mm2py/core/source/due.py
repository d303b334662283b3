"""What is due between two epochs: where a partition starts, which positions are written, and when it may be planned. A
position is written before anything is sent that depends on it, with the producer that sends it; later whenever it is
worth it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from mm2py.core.source.progress import PartitionState, Repair
from mm2py.model.epoch import PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position


#: After this many bytes a position is written ahead of its interval, so that a resume has little to scan.
WRITE_AHEAD_BYTES = 256 * 1024 * 1024


@attrs.frozen
class RemotePartition:
    """
    The remote partition of a topic-partition, its batch size limit, and whether it keeps timestamps for sure.

    `has_appeared` says that the source did not have the partition when this life of the flow began.
    """

    remote_topic: str
    topic_id: str | None
    max_message_bytes: int
    remote_topic_id: str | None = None
    keeps_timestamps: bool = False
    has_appeared: bool = False


def begin(position: Position, place: RemotePartition, *, is_written: bool = True) -> PartitionState:
    """Continue from a *position* that was read, or decided; unknown topic ids become those of the existing topics."""
    state = PartitionState(
        source=position.source,
        remote_topic=place.remote_topic,
        position=position.next_upstream,
        downstream=position.downstream,
        written=position if is_written else None,
        topic_id=position.topic_id or place.topic_id,
        remote_topic_id=position.remote_topic_id or place.remote_topic_id,
        producer=position.producer,
        produced_ms=position.written_ms,
        leader=position.leader,
    )
    if position.search_from is None:
        return state
    search = Repair(0, state.position, None, state.remote_topic_id, None, is_start=True)
    return attrs.evolve(state, position=position.search_from, repair=search)


def put(state: PartitionState, place: RemotePartition, *, is_transformed: bool) -> PartitionState:
    """Record where the partition goes. Where that is nothing new it is the same object, with the plan that it has."""
    before = state.remote_topic, state.is_transformed, state.max_message_bytes, state.keeps_timestamps
    if before == (place.remote_topic, is_transformed, place.max_message_bytes, place.keeps_timestamps):
        return state
    return attrs.evolve(
        state,
        remote_topic=place.remote_topic,
        is_transformed=is_transformed,
        max_message_bytes=place.max_message_bytes,
        keeps_timestamps=place.keeps_timestamps,
    )


def write(state: PartitionState, written: Position) -> PartitionState:
    """Record that the positions topic now has *written*."""
    unwritten = state.unwritten_bytes if state.position > written.next_upstream else 0
    return attrs.evolve(state, written=written, unwritten_bytes=unwritten)


def fence(state: PartitionState, written: Position) -> PartitionState:
    """Record that the positions topic has *written*, and copy with its producer; skip one that has changed since."""
    if state.is_fenced or attrs.evolve(state.standing, producer=written.producer) != written:
        return state
    return write(attrs.evolve(state, producer=written.producer, produced_ms=None), written)


def take_over(state: PartitionState, written: Position) -> PartitionState:
    """Continue from a position that another node has *written*, with the producer that it has claimed."""
    place = RemotePartition(state.remote_topic, state.topic_id, state.max_message_bytes, state.remote_topic_id)
    begun = begin(written, place)
    return attrs.evolve(
        state,
        position=begun.position,
        downstream=begun.downstream,
        is_unsure=True,
        written=written,
        topic_id=begun.topic_id,
        remote_topic_id=begun.remote_topic_id,
        producer=begun.producer,
        produced_ms=None,
        leader=begun.leader,
        repair=begun.repair,
    )


def due_positions(
    states: Iterable[PartitionState], *, is_interval_over: bool, is_exactly_once: bool = False
) -> tuple[Position, ...]:
    """Return the positions to be written now. All that changed, or before the interval is over those that advanced
    far, and those of transformed topics: after a crash, their records are written again from the written position on.
    With *is_exactly_once* these belong to transactions, which write them: one written here could come after a later
    one.
    """
    return tuple(
        state.standing
        for state in states
        # First what keeps out most of very many.
        if (is_interval_over or state.unwritten_bytes >= WRITE_AHEAD_BYTES or state.is_transformed)
        and state.repair is None
        and (state.producer is not None or state.is_transformed)  # else it is written with its next producer
        and not (is_exactly_once and state.is_transformed)
        and state.standing != state.written
    )


class Plans:
    """The plans of those of some partitions that may be written to, and whose back-off, if any, is over. They are kept
    from epoch to epoch: of very many, few change, and records wait for this.
    """

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.by_source: dict[TopicPartition, PartitionPlan] = {}
        #: Those that could not be planned.
        self.left = dict.fromkeys(partitions)
        self._all: tuple[PartitionPlan, ...] = ()

    def next(
        self, states: Mapping[TopicPartition, PartitionState], changed: Iterable[TopicPartition], *, now: float
    ) -> tuple[PartitionPlan, ...]:
        """Return the plans for the next epoch, in which others than *changed* are as in the last one; the same object
        if all are.
        """
        plans, left = self.by_source, self.left
        is_new = False
        for source in [*left, *[it for it in changed if it in plans]]:
            state = states[source]
            before = plans.get(source)
            if state.retry_at <= now and not state.is_questioned and state.is_fenced:
                plans[source] = state.plan
                left.pop(source, None)
            else:
                plans.pop(source, None)
                left[source] = None
            is_new = is_new or plans.get(source) is not before
        if is_new:
            self._all = tuple(plans.values())
        return self._all


def next_retry_at(states: Iterable[PartitionState]) -> float | None:
    """Return when the first of *states* may be planned; None if none has such a time. See `Plans`."""
    return min((state.retry_at for state in states if not state.is_questioned and state.is_fenced), default=None)
