"""The progress of each topic-partition, and the effect of an epoch's outcome. A position advances only to what an
outcome proves. The rest of an outcome decides when the partition is planned again: at once, after a short pause because
a broker was unavailable, or after a long one because it needs attention.
"""

from __future__ import annotations

import enum
import functools
import math

import attrs

from mm2py.core.backoff import Backoff
from mm2py.model.counters import Counters
from mm2py.model.epoch import (
    Ended,
    LeaderMark,
    LogOffsets,
    PartitionFailure,
    PartitionOutcome,
    PartitionPlan,
    ProducerMark,
)
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position
from mm2py.model.state import PartitionStage


#: Brokers forget a producer after a day without a batch of it (`producer.id.expiration.ms`).
PRODUCER_LIFE_MS = 12 * 3_600_000
#: The weight of a new measurement against earlier ones.
_FRESH_SHARE = 0.5
#: Bytes per second. Less means nothing for the assignment, and each step of a rate that fades is a new state.
_LEAST_RATE = 64.0
#: The error of an epoch that brought no outcome.
LOST = "EpochLostError"
#: Endings that put the history of the source or the target in doubt: `core.source.broken_history` decides.
QUESTIONABLE = frozenset({Ended.OUT_OF_RANGE, Ended.TARGET_REWOUND, Ended.RECREATED, Ended.TRUNCATED})
#: A broker was unavailable or a leader moved; the first pause is 0, because the copier has already waited.
_INTERRUPTED = Backoff(0.5, 5.0)
#: An operator has to act, and may have done so.
_STOPPED = Backoff(5.0, 300.0)


class Occurrence(enum.Enum):
    """News in an outcome, for events."""

    RESUMED_EXACTLY = enum.auto()
    RESUME_UNPROVEN = enum.auto()
    #: There was no position, and the target's records are not in the source: it is copied from its end on.
    RECORDS_SKIPPED = enum.auto()
    INTERRUPTED = enum.auto()
    STOPPED = enum.auto()
    RECOVERED = enum.auto()
    #: The remote topic has another writer, seen for the first time.
    FOREIGN_RECORDS = enum.auto()
    #: The source or the target does not match the position: both clusters must be checked.
    QUESTIONED = enum.auto()
    #: The source topic was created again, and holds what is at the target.
    REBUILT = enum.auto()


@attrs.frozen
class Repair:
    """
    A search for the target's last record in the source, because the target has lost records that were copied.

    `position`, `downstream` and `remote_topic_id` are the former values, which stay stored until the search succeeds.
    The record lies before `found_before` at the source, and is at `found_at` at the target, or the last one there.
    """

    attempt: int
    position: int
    downstream: int | None
    remote_topic_id: str | None
    found_before: int | None
    found_at: int | None = None
    #: Nothing is lost: the partition has no position yet, and starts at `position` if the search finds nothing.
    is_start: bool = False
    #: The source topic was created again, and is compared with the target: it may have been rebuilt from there. Then
    #: `topic_id` is that of the former one, of which `left` records were never copied.
    is_rebuilt: bool = False
    topic_id: str | None = None
    left: int = 0


@attrs.frozen
class PartitionState(Counters):
    """
    One topic-partition between two epochs.

    a. Everything before `position` is at the target, and the last of it is at `downstream` if that is known.
    b. While `is_unsure`, more may be there.
    c. `written` is what the positions topic holds, or gets by a transaction before its first record; it is never ahead
       of `position`. Before it `is_fenced` nothing is planned.
    d. Nothing is planned before `retry_at`, in the clock's monotonic seconds.
    e. While `is_questioned` nothing is planned at all; both clusters are checked, not before `look_at`.
    f. While there is a `repair`, `position` is a guess and is not written.
    """

    source: TopicPartition
    remote_topic: str
    position: int
    downstream: int | None
    is_unsure: bool = True
    written: Position | None = None
    #: Whether its records go through a transform.
    is_transformed: bool = False
    topic_id: str | None = None
    remote_topic_id: str | None = None
    producer: ProducerMark | None = None
    #: When the broker took a batch of that producer, or its position was written; None if that is unknown.
    produced_ms: int | None = None
    leader: LeaderMark | None = None
    repair: Repair | None = None
    #: From here on the target has lost copied records, and has a batch that belongs further back.
    stray_from: int | None = None
    is_questioned: bool = False
    look_at: float = 0.0
    max_message_bytes: int = 1_048_588
    keeps_timestamps: bool = False
    stage: PartitionStage = PartitionStage.COPYING
    failures: int = 0
    failed_at: float = 0.0
    retry_at: float = 0.0
    #: Before this a lost epoch may still write; a pause is never shortened beyond it.
    quiet_until: float = 0.0
    failure: PartitionFailure | None = None
    ended: Ended = Ended.OK
    bytes_per_s: float | None = None
    unwritten_bytes: int = 0
    log: LogOffsets = attrs.field(factory=LogOffsets)
    last_timestamp_ms: int = -1

    @property
    def lag(self) -> int | None:
        """
        Return how many records the target is behind, as of the last fetch answer; None if that is unknown.

        An end before the position, or a source that is questioned, is not what was copied until now: a topic that was
        deleted and created again has as many records to copy as its mirror decides, and none while it is compared.
        """
        left = self.log.high_watermark - self.position
        return None if left < 0 or self.is_questioned or self.is_compared else left

    @property
    def is_compared(self) -> bool:
        """Whether its source topic was created again, and may hold what its remote one does."""
        return self.repair is not None and self.repair.is_rebuilt

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is left to copy, and an epoch that learns nothing of the partition changes nothing."""
        is_level = self.log.high_watermark == self.position and not self.is_questioned
        return is_level and not self.is_unsure and not self.bytes_per_s and self.stage is PartitionStage.COPYING

    @property
    def is_lost(self) -> bool:
        """Whether its last epoch was lost: the target may hold more than the position says."""
        return self.is_unsure and self.failure is not None and self.failure.error == LOST

    @functools.cached_property
    def standing(self) -> Position:
        """What the positions topic should hold."""
        mark = self.producer
        if mark is not None and mark.is_contested:
            mark = attrs.evolve(mark, is_contested=False)
        stands = Position(
            self.source, self.position, self.downstream, self.topic_id, mark, self.remote_topic_id, self.leader
        ).at(self.remote_topic)
        if self.repair is None or not self.repair.is_start:
            return stands
        return attrs.evolve(stands, next_upstream=self.repair.position, leader=None, search_from=self.position)

    @functools.cached_property
    def is_fenced(self) -> bool:
        """Whether the positions topic has the start of the copy and its producer. Only then may anything be sent: the
        daemon that follows after a crash, at any moment, then sends the same records with the same sequences, and the
        broker accepts none of them twice. A search (`repair`) sends nothing, and of a transformed topic records are
        written at least once, or in transactions.
        """
        if self.written is None or self.is_transformed or self.repair is not None:
            return self.written is not None
        return self.producer is not None and self.producer.identity == self.written.producer_identity

    @functools.cached_property
    def plan(self) -> PartitionPlan:
        """The plan of this partition's next epoch; the same object for as long as the state is."""
        return PartitionPlan(
            source=self.source,
            remote_topic=self.remote_topic,
            position=self.position,
            downstream=self.downstream,
            is_unsure=self.is_unsure,
            max_message_bytes=self.max_message_bytes,
            keeps_timestamps=self.keeps_timestamps,
            producer=self.producer,
            topic_id=self.topic_id,
            remote_topic_id=self.remote_topic_id,
            leader=self.leader,
            found_before=self.repair.found_before if self.repair is not None else None,
            found_at=self.repair.found_at if self.repair is not None else None,
            is_rebuilt=self.is_compared,
        )


@attrs.frozen
class Accounted:
    """A partition after an epoch, and what happened to it there."""

    state: PartitionState
    occurrences: tuple[Occurrence, ...] = ()


def account(
    state: PartitionState,
    outcome: PartitionOutcome | None,
    *,
    elapsed_s: float,
    now: float,
    wall_ms: int,
    jitter: float,
    is_told: bool = False,
) -> Accounted:
    """
    Apply an epoch's outcome to a partition; *outcome* is None if it did nothing and learnt nothing. If *is_told*, that
    is because its broker has answered that there is nothing new.

    *now* is the clock's monotonic time, *wall_ms* its wall time, *jitter* the random part of the next pause.
    """
    if outcome is None:
        # Whatever interrupted it is over, although nothing came of it: there is nothing left to copy.
        is_back = is_told and state.stage is PartitionStage.BACKING_OFF and not state.is_unsure and state.lag == 0
        back = attrs.evolve(_copying(state, is_unsure=False), failure=None, ended=Ended.OK) if is_back else state
        return Accounted(_faded(back))
    moved = _counted(state, outcome, elapsed_s, wall_ms)
    if state.is_questioned:
        # It is already in question; the epoch's ending may have another cause.
        return Accounted(attrs.evolve(moved, ended=state.ended, failure=state.failure))
    occurrences = _found(state, outcome)
    if outcome.ended in QUESTIONABLE or (outcome.ended is Ended.UNPROVEN and _is_repairing(state)):
        moved = question(moved, outcome.ended, outcome.failure, now=now)
        return Accounted(moved, (*occurrences, Occurrence.QUESTIONED))
    match outcome.ended:
        case Ended.OK:
            moved = _gone_well(state, moved, outcome)
        case Ended.UNPROVEN:
            occurrences.append(Occurrence.RESUME_UNPROVEN if state.repair is None else Occurrence.RECORDS_SKIPPED)
            # From here on at least once: the target's records prove nothing, and the copy is appended.
            moved = _copying(moved, is_unsure=False)
        case Ended.INTERRUPTED:
            occurrences.append(Occurrence.INTERRUPTED)
            failures = 1 if outcome.records else state.failures + 1
            pause_s = _INTERRUPTED.pause_s(failures - 1, jitter)
            moved = _pausing(moved, _interrupted(state), failures, now, pause_s)
        case Ended.FAILED:
            failures = state.failures + 1 if state.stage is PartitionStage.STOPPED else 1
            occurrences.append(Occurrence.STOPPED)
            moved = _pausing(moved, PartitionStage.STOPPED, failures, now, _STOPPED.pause_s(failures, jitter))
    if state.stage is PartitionStage.STOPPED and moved.stage is PartitionStage.COPYING:
        occurrences.append(Occurrence.RECOVERED)
    return Accounted(moved, tuple(occurrences))


def _found(state: PartitionState, outcome: PartitionOutcome) -> list[Occurrence]:
    """Return what was found at the target."""
    found = [Occurrence.RESUMED_EXACTLY] if outcome.resumed_records and not _is_repairing(state) else []
    if state.is_compared and _is_found(outcome):
        found.append(Occurrence.REBUILT)
    if outcome.foreign_records and not state.foreign_records:
        found.append(Occurrence.FOREIGN_RECORDS)
    return found


def _gone_well(state: PartitionState, moved: PartitionState, outcome: PartitionOutcome) -> PartitionState:
    """Return what has *moved* in an epoch without a failure; what is stopped stays so until it is known to get on."""
    if state.stage is PartitionStage.STOPPED and _is_untried(state, outcome):
        return attrs.evolve(moved, ended=state.ended, failure=state.failure)
    if state.stage is not PartitionStage.COPYING or state.failures or state.failed_at or state.retry_at:
        return _copying(moved, is_unsure=outcome.is_unsure)
    return moved


def _is_untried(state: PartitionState, outcome: PartitionOutcome) -> bool:
    """Whether there is something to copy that the target has not answered for: held back by a quota, for example."""
    ends = [it for it in (outcome.log.high_watermark, outcome.log.last_stable) if it >= 0]
    has_moved = outcome.records > 0 or outcome.position > state.position
    return not has_moved and outcome.position < min(ends, default=math.inf)


def followed(rate: float, known: float | None) -> float:
    """Return what follows the rates of the last few epochs, from the newest one and what was *known* before."""
    return rate * _FRESH_SHARE + (rate if known is None else known) * (1 - _FRESH_SHARE)


def _faded(state: PartitionState) -> PartitionState:
    if not state.bytes_per_s:
        return state
    faded = state.bytes_per_s * (1 - _FRESH_SHARE)
    return attrs.evolve(state, bytes_per_s=faded if faded >= _LEAST_RATE else 0.0)


def _counted(state: PartitionState, outcome: PartitionOutcome, elapsed_s: float, wall_ms: int) -> PartitionState:
    if outcome.ended is Ended.UNPROVEN and state.repair is not None:
        stood = {"position": state.repair.position, "leader": None} if state.repair.is_start else {"downstream": None}
        outcome = attrs.evolve(outcome, **stood)
    # A position never goes back: what was proven stays proven.
    has_moved = outcome.position >= state.position
    rate = outcome.bytes / elapsed_s if elapsed_s > 0 else 0.0
    return attrs.evolve(
        state,
        position=outcome.position if has_moved else state.position,
        downstream=outcome.downstream if has_moved else state.downstream,
        producer=outcome.producer if has_moved else state.producer,
        produced_ms=wall_ms if outcome.records else state.produced_ms,
        leader=outcome.leader if has_moved else state.leader,
        repair=None if outcome.downstream is not None else state.repair,
        stray_from=_stray_from(state, outcome),
        is_unsure=outcome.is_unsure,
        ended=outcome.ended,
        failure=outcome.failure,
        bytes_per_s=followed(rate, state.bytes_per_s),
        unwritten_bytes=state.unwritten_bytes + outcome.bytes,
        log=state.log.newer(outcome.log),
        last_timestamp_ms=outcome.last_timestamp_ms if outcome.last_timestamp_ms >= 0 else state.last_timestamp_ms,
        **state.counts_with(outcome),
    )


def _is_found(outcome: PartitionOutcome) -> bool:
    """Whether a search succeeded in this epoch."""
    return outcome.downstream is not None and outcome.ended is not Ended.UNPROVEN


def _is_repairing(state: PartitionState) -> bool:
    return state.repair is not None and not state.repair.is_start


def _stray_from(state: PartitionState, outcome: PartitionOutcome) -> int | None:
    if outcome.stray_from is not None:
        return outcome.stray_from
    is_repaired = state.repair is not None and outcome.downstream is not None
    return None if is_repaired else state.stray_from


def _copying(state: PartitionState, *, is_unsure: bool) -> PartitionState:
    return attrs.evolve(
        state, stage=PartitionStage.COPYING, is_unsure=is_unsure, failures=0, failed_at=0.0, retry_at=0.0
    )


def _pausing(state: PartitionState, stage: PartitionStage, failures: int, now: float, pause_s: float) -> PartitionState:
    failed_at = state.failed_at if state.stage is stage else now
    return attrs.evolve(state, stage=stage, failures=failures, failed_at=failed_at, retry_at=now + pause_s)


def _interrupted(state: PartitionState) -> PartitionStage:
    """Return the stage after an interruption; what was stopped stays so until it is reported as recovered."""
    return PartitionStage.STOPPED if state.stage is PartitionStage.STOPPED else PartitionStage.BACKING_OFF


def lose(state: PartitionState, *, retry_at: float, cause: str, quiet_until: float = 0.0) -> PartitionState:
    """Record that the partition's epoch is lost: the target may have more than is known."""
    state = attrs.evolve(state, quiet_until=quiet_until)
    failure = PartitionFailure(message=cause, error=LOST)
    is_cut_short = state.repair is not None and state.stray_from is not None
    state = _unrepaired(attrs.evolve(state, is_unsure=True))
    if is_cut_short:
        # The target's records are now in an order that a resume cannot verify.
        state = question(state, Ended.TARGET_REWOUND, failure, now=retry_at)
    if state.is_questioned:
        return attrs.evolve(state, look_at=max(state.look_at, retry_at))
    return attrs.evolve(state, stage=_interrupted(state), retry_at=retry_at, failure=failure)


def renew(state: PartitionState, *, wall_ms: int) -> PartitionState:
    """
    Replace a producer that the broker may have forgotten, after `PRODUCER_LIFE_MS` without a batch.

    The broker takes any sequence from a producer that it does not know. So where a node has slept, its sequences may be
    old ones: it asks the positions topic, and the target, what other nodes have copied since.
    """
    if state.producer is None or state.produced_ms is None or state.is_transformed or state.repair is not None:
        return state
    if state.is_questioned or wall_ms - state.produced_ms < PRODUCER_LIFE_MS:
        return state
    return attrs.evolve(state, producer=None, is_unsure=True)


def hasten(state: PartitionState, *, now: float) -> PartitionState:
    """End the back-off of a partition early, or check it at once, but not before a lost epoch can no longer write."""
    at = max(now, state.quiet_until)
    if state.is_questioned:
        return attrs.evolve(state, look_at=min(state.look_at, at))
    return attrs.evolve(state, retry_at=min(state.retry_at, at))


def question(state: PartitionState, ended: Ended, failure: PartitionFailure | None, *, now: float) -> PartitionState:
    """Put the partition in question: both clusters must be checked before it is planned again."""
    is_stopped = state.stage is PartitionStage.STOPPED
    return attrs.evolve(
        state,
        stage=PartitionStage.STOPPED if is_stopped else PartitionStage.BACKING_OFF,
        ended=ended,
        failure=failure,
        failed_at=state.failed_at if is_stopped else now,
        retry_at=math.inf,
        is_questioned=True,
        look_at=now,
        bytes_per_s=0.0,
    )


def clear_doubt(state: PartitionState, *, now: float, jitter: float) -> PartitionState:
    """Clear the doubt: both clusters match the position."""
    pause_s = _INTERRUPTED.pause_s(state.failures, jitter)
    return attrs.evolve(
        _unrepaired(state), is_questioned=False, failures=state.failures + 1, retry_at=now + pause_s, look_at=0.0
    )


def _unrepaired(state: PartitionState) -> PartitionState:
    """Abandon a search: the former values apply again. A search for a start is restarted."""
    stood = state.repair
    if stood is None or stood.is_start:
        return state
    return attrs.evolve(
        state,
        position=stood.position,
        downstream=stood.downstream,
        topic_id=stood.topic_id if stood.is_rebuilt else state.topic_id,
        remote_topic_id=stood.remote_topic_id,
        is_unsure=True,
        repair=None,
    )


def stop(state: PartitionState, failure: PartitionFailure, *, now: float, jitter: float) -> PartitionState:
    """Stop the partition because of the state of both clusters; they are checked again later."""
    is_stopped = state.stage is PartitionStage.STOPPED
    failures = state.failures + 1 if is_stopped else 1
    return attrs.evolve(
        _unrepaired(state),
        stage=PartitionStage.STOPPED,
        failure=failure,
        failures=failures,
        failed_at=state.failed_at if is_stopped else now,
        retry_at=math.inf,
        is_questioned=True,
        look_at=now + _STOPPED.pause_s(failures, jitter),
        bytes_per_s=0.0,
    )


def look(state: PartitionState, *, log_start_offset: int, high_watermark: int) -> PartitionState:
    """Record the source's start and end offsets while it is not being read."""
    if (log_start_offset, high_watermark) == (state.log.start, state.log.high_watermark):
        return state
    # The last stable offset is unknown now: it was not queried.
    return attrs.evolve(state, log=LogOffsets(log_start_offset, high_watermark))


def hold_back(state: PartitionState, failure: PartitionFailure, *, now: float) -> PartitionState:
    """Record why a partition that is not fenced yet cannot be planned."""
    if state.stage is PartitionStage.STOPPED:
        return state
    return attrs.evolve(_pausing(state, PartitionStage.BACKING_OFF, state.failures, now, 0.0), failure=failure)
