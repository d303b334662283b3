"""How far a topic-partition is, and what follows from an epoch's outcome."""

from __future__ import annotations

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.core.source.due import Plans, RemotePartition, begin, due_positions, next_retry_at
from mm2py.core.source.progress import (
    PRODUCER_LIFE_MS,
    Occurrence,
    PartitionState,
    Repair,
    account,
    clear_doubt,
    hasten,
    lose,
    question,
    renew,
    stop,
)
from mm2py.model.epoch import Ended, LogOffsets, PartitionFailure, PartitionOutcome, PartitionPlan, ProducerMark
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position
from mm2py.model.state import PartitionStage


TP = TopicPartition("t", 0)
NOW = 1_000.0
WALL_MS = 1_700_000_000_000
FAILURE = PartitionFailure("it broke", "mend it", "BrokenError")
MARK = ProducerMark(7, 0, 0)
REPAIR = Repair(1, 100, 99, None, 95)


def state(**changes: object) -> PartitionState:
    written = Position(TP, 100, 99, producer=MARK)
    return attrs.evolve(
        PartitionState(TP, "A.t", position=100, downstream=99, written=written, producer=MARK), **changes
    )


def next_plans(state: PartitionState, *, now: float) -> tuple[PartitionPlan, ...]:
    return Plans([state.source]).next({state.source: state}, (), now=now)


def outcome(**changes: object) -> PartitionOutcome:
    told = PartitionOutcome(
        TP,
        position=150,
        downstream=149,
        is_unsure=False,
        records=50,
        bytes=5_000,
        log=LogOffsets(high_watermark=160),
        producer=ProducerMark(7, 0, 50),
    )
    return attrs.evolve(told, **changes)


def after(before: PartitionState, told: PartitionOutcome | None) -> tuple[PartitionState, tuple[Occurrence, ...]]:
    accounted = account(before, told, elapsed_s=2.0, now=NOW, wall_ms=WALL_MS, jitter=0.5)
    return accounted.state, accounted.occurrences


def test_a_good_epoch_moves_the_position() -> None:
    """Position, numbers and lag follow the outcome, and nothing is unsure any more."""
    moved, occurrences = after(state(), outcome())

    assert (moved.position, moved.downstream, moved.is_unsure) == (150, 149, False)
    assert (moved.records, moved.bytes, moved.lag, moved.bytes_per_s) == (50, 5_000, 10, 2_500.0)
    assert moved.produced_ms == WALL_MS
    assert after(moved, outcome(records=0))[0].produced_ms == WALL_MS
    assert after(state(), outcome(records=0))[0].produced_ms is None
    assert occurrences == ()


def test_the_lag_of_another_history_is_unknown() -> None:
    """If the source ends before the position, or is questioned, how much is left to copy is not known; it is not 0."""
    behind = state(position=20_989, log=LogOffsets(high_watermark=3_681))
    questioned = question(state(log=LogOffsets(high_watermark=160)), Ended.RECREATED, FAILURE, now=NOW)

    assert state(position=160, log=LogOffsets(high_watermark=160)).lag == 0
    assert (behind.lag, questioned.lag) == (None, None)


def test_rates_are_smoothed() -> None:
    """A fresh measurement counts half, and a silent partition's rate fades."""
    moved, _ = after(state(bytes_per_s=500.0), outcome())
    silent, _ = after(moved, None)

    assert moved.bytes_per_s == 1_500.0
    assert silent.bytes_per_s == 750.0


@pytest.mark.parametrize(
    ("changes", "is_told", "stage"),
    [
        ({}, True, PartitionStage.COPYING),
        ({}, False, PartitionStage.BACKING_OFF),
        ({"log": LogOffsets(high_watermark=11)}, True, PartitionStage.BACKING_OFF),
        ({"is_unsure": True}, True, PartitionStage.BACKING_OFF),
        ({"stage": PartitionStage.STOPPED}, True, PartitionStage.STOPPED),
    ],
    ids=["level", "not asked", "behind", "unsure", "stopped"],
)
def test_an_interruption_is_over_once_nothing_is_left_to_copy(
    changes: dict[str, object], is_told: bool, stage: PartitionStage
) -> None:
    """Nothing may come for days; the partition would be reported as held up all the while."""
    failure = PartitionFailure("no answer", "look", "Silent")
    paused = {"stage": PartitionStage.BACKING_OFF, "failures": 3, "failed_at": 5.0, "retry_at": 9.0, "failure": failure}
    level = {"position": 10, "is_unsure": False, "log": LogOffsets(high_watermark=10), "ended": Ended.INTERRUPTED}
    before = state(**{**paused, **level, **changes})

    after = account(before, None, elapsed_s=2.0, now=NOW, wall_ms=WALL_MS, jitter=0.5, is_told=is_told).state

    assert after.stage is stage
    is_over = stage is PartitionStage.COPYING
    assert (after.failure, after.failures, after.retry_at) == ((None, 0, 0.0) if is_over else (failure, 3, 9.0))


@pytest.mark.parametrize(
    ("before", "told", "stage", "retry_at", "occurrence"),
    [
        pytest.param(
            state(), outcome(ended=Ended.INTERRUPTED, records=0), PartitionStage.BACKING_OFF, NOW,
            Occurrence.INTERRUPTED, id="interrupted for the first time: the epoch was pause enough",
        ),
        pytest.param(
            state(stage=PartitionStage.BACKING_OFF, failures=3), outcome(ended=Ended.INTERRUPTED, records=0),
            PartitionStage.BACKING_OFF, NOW + 2.0, Occurrence.INTERRUPTED, id="interrupted again and again",
        ),
        pytest.param(
            state(stage=PartitionStage.BACKING_OFF, failures=3), outcome(ended=Ended.INTERRUPTED),
            PartitionStage.BACKING_OFF, NOW, Occurrence.INTERRUPTED, id="interrupted after progress",
        ),
        pytest.param(
            state(), outcome(ended=Ended.FAILED, failure=FAILURE), PartitionStage.STOPPED, NOW + 5.0,
            Occurrence.STOPPED, id="failed",
        ),
        pytest.param(
            state(stage=PartitionStage.STOPPED, failures=2), outcome(ended=Ended.FAILED, failure=FAILURE),
            PartitionStage.STOPPED, NOW + 20.0, Occurrence.STOPPED, id="failed for the third time",
        ),
        pytest.param(
            state(stage=PartitionStage.STOPPED, failures=99), outcome(ended=Ended.FAILED, failure=FAILURE),
            PartitionStage.STOPPED, NOW + 300.0, Occurrence.STOPPED, id="failed for days",
        ),
        pytest.param(
            state(), outcome(ended=Ended.OUT_OF_RANGE, failure=FAILURE), PartitionStage.BACKING_OFF, math.inf,
            Occurrence.QUESTIONED, id="out of range",
        ),
        pytest.param(
            state(), outcome(ended=Ended.TARGET_REWOUND, failure=FAILURE), PartitionStage.BACKING_OFF, math.inf,
            Occurrence.QUESTIONED, id="rewound",
        ),
        pytest.param(
            state(stage=PartitionStage.STOPPED), outcome(ended=Ended.TRUNCATED, failure=FAILURE),
            PartitionStage.STOPPED, math.inf, Occurrence.QUESTIONED, id="truncated, and stopped before",
        ),
        pytest.param(
            state(repair=REPAIR, downstream=None), outcome(ended=Ended.UNPROVEN, downstream=None),
            PartitionStage.BACKING_OFF, math.inf, Occurrence.QUESTIONED, id="a search found nothing",
        ),
        pytest.param(
            state(stage=PartitionStage.STOPPED, failures=2, retry_at=NOW - 1), outcome(), PartitionStage.COPYING, 0.0,
            Occurrence.RECOVERED, id="recovered",
        ),
        pytest.param(
            state(), outcome(resumed_records=7), PartitionStage.COPYING, 0.0, Occurrence.RESUMED_EXACTLY, id="resumed",
        ),
        pytest.param(
            state(), outcome(ended=Ended.UNPROVEN, is_unsure=True, position=100, downstream=99),
            PartitionStage.COPYING, 0.0, Occurrence.RESUME_UNPROVEN, id="unproven",
        ),
    ],
)  # fmt: skip
def test_endings(
    before: PartitionState, told: PartitionOutcome, stage: PartitionStage, retry_at: float, occurrence: Occurrence
) -> None:
    """Each way to end decides when the partition is planned again, and what is reported."""
    moved, occurrences = after(before, told)

    assert (stage, retry_at, (occurrence,)) == (moved.stage, moved.retry_at, occurrences)


def test_unproven_goes_on_at_least_once() -> None:
    """What cannot be proven is copied again from the position, without another look."""
    moved, _ = after(state(), outcome(ended=Ended.UNPROVEN, is_unsure=True, position=100, downstream=99))

    assert (moved.position, moved.is_unsure) == (100, False)


def test_a_search_that_finds_nothing_leaves_open_where_the_target_ends() -> None:
    """Records that are searched for have no place at the target; that its end is known explains nothing."""
    moved, _ = after(state(repair=REPAIR, downstream=None), outcome(ended=Ended.UNPROVEN, position=50, downstream=120))

    assert (moved.downstream, moved.repair) == (None, REPAIR)


SEARCHED = Position(TP, 100, None, search_from=20)


def searching() -> PartitionState:
    return begin(SEARCHED, RemotePartition("A.t", None, 1_048_588))


def test_a_start_is_searched_for_before_it_counts() -> None:
    """The search goes through the source from its start, and nothing is written before it is over."""
    (plan,) = next_plans(searching(), now=NOW)
    lost = lose(searching(), retry_at=NOW, cause="its Python worker was killed")

    assert (plan.position, plan.downstream, plan.is_unsure) == (20, None, True)
    assert due_positions([searching()], is_interval_over=True) == ()
    assert next_plans(lost, now=NOW) == (plan,)


def test_a_start_that_was_found_is_gone_on_behind() -> None:
    """If the target's last record is in the source, the setting for a start does not matter."""
    moved, occurrences = after(searching(), outcome(resumed_records=30, position=50, downstream=29))

    assert (moved.position, moved.downstream, moved.repair) == (50, 29, None)
    assert occurrences == (Occurrence.RESUMED_EXACTLY,)
    assert due_positions([moved], is_interval_over=True) == (moved.standing,)


def test_a_start_that_was_not_found_is_as_the_setting_says() -> None:
    """What the target ends with is not in the source: copying begins at the source's end, which is reported."""
    moved, occurrences = after(
        searching(), outcome(ended=Ended.UNPROVEN, is_unsure=True, position=20, downstream=29, records=0)
    )

    assert (moved.position, moved.downstream, moved.is_unsure, moved.repair) == (100, 29, False, None)
    assert (moved.stage, occurrences) == (PartitionStage.COPYING, (Occurrence.RECORDS_SKIPPED,))


def test_foreign_records_are_told_once() -> None:
    """Another producer's records in the remote topic are reported the first time, and counted each time."""
    first, told = after(state(), outcome(foreign_records=3))
    again, silent = after(first, outcome(foreign_records=2))

    assert (told, silent) == ((Occurrence.FOREIGN_RECORDS,), ())
    assert again.foreign_records == 5


def test_a_stop_remembers_when_it_began() -> None:
    """A partition that fails again and again is stopped since the first time."""
    first, _ = after(state(), outcome(ended=Ended.FAILED, failure=FAILURE))
    accounted = account(
        first,
        outcome(ended=Ended.FAILED, failure=FAILURE),
        elapsed_s=1.0,
        now=NOW + 60,
        wall_ms=WALL_MS,
        jitter=0.5,
    )

    assert accounted.state.failed_at == NOW
    assert accounted.state.failure == FAILURE


@pytest.mark.parametrize(
    ("ended", "occurrences"),
    [
        (Ended.OK, (Occurrence.RECOVERED,)),
        (Ended.UNPROVEN, (Occurrence.RESUME_UNPROVEN, Occurrence.RECOVERED)),
    ],
)
def test_a_stop_is_over_when_it_is_reported(ended: Ended, occurrences: tuple[Occurrence, ...]) -> None:
    """A broker restarts while a partition is stopped: it stays stopped, is tried again soon, and recovers later."""
    stopped, _ = after(state(), outcome(ended=Ended.FAILED, failure=FAILURE, records=0))
    interrupted, _ = after(stopped, outcome(ended=Ended.INTERRUPTED, failure=FAILURE, records=0))
    moved, reported = after(interrupted, outcome(ended=ended))

    assert (interrupted.stage, interrupted.failed_at) == (PartitionStage.STOPPED, NOW)
    assert interrupted.retry_at - NOW < 1
    assert (moved.stage, reported) == (PartitionStage.COPYING, occurrences)


@pytest.mark.parametrize(
    ("log", "stage"),
    [
        (LogOffsets(high_watermark=160), PartitionStage.STOPPED),
        (LogOffsets(), PartitionStage.STOPPED),
        (LogOffsets(high_watermark=100), PartitionStage.COPYING),
        (LogOffsets(high_watermark=160, last_stable=100), PartitionStage.COPYING),
    ],
)
def test_what_was_not_tried_has_not_recovered(log: LogOffsets, stage: PartitionStage) -> None:
    """
    A quota of the target holds back what it would refuse, for a whole epoch: the stop is not over, nor is its reason
    forgotten, and it is tried on. Where nothing is left to copy, there is nothing that could be refused.
    """
    stopped, _ = after(state(), outcome(ended=Ended.FAILED, failure=FAILURE, records=0, position=100, downstream=99))
    held, reported = after(
        attrs.evolve(stopped, retry_at=NOW), outcome(records=0, bytes=0, position=100, downstream=99, log=log)
    )

    assert held.stage is stage
    assert held.failure == (FAILURE if stage is PartitionStage.STOPPED else None)
    assert (Occurrence.RECOVERED in reported) is (stage is PartitionStage.COPYING)
    assert len(next_plans(held, now=NOW)) == 1


def test_a_lost_epoch_leaves_everything_unsure() -> None:
    """Nothing is taken over from a lost epoch, and the partition waits until it can no longer write."""
    sure = state(is_unsure=False)

    lost = lose(sure, retry_at=NOW + 10, cause="its Python worker was killed")

    assert (lost.position, lost.downstream, lost.is_unsure) == (100, 99, True)
    assert next_plans(lost, now=NOW + 9) == ()
    assert len(next_plans(lost, now=NOW + 10)) == 1


def test_a_stop_without_an_epoch_is_not_planned() -> None:
    """A partition that must not be copied is never planned, but checked again at growing intervals."""
    stopped = stop(state(), FAILURE, now=NOW, jitter=0.5)
    again = stop(stopped, FAILURE, now=NOW + 10, jitter=0.5)

    assert next_plans(stopped, now=1e12) == ()
    assert [it.look_at for it in (stopped, again)] == [NOW + 5, NOW + 20]
    assert again.failed_at == NOW


def test_what_is_pausing_is_hastened_as_far_as_a_lost_epoch_allows() -> None:
    """What waits for its next attempt is tried at once, what is stopped without an epoch is checked at once."""
    pausing, stopped = state(retry_at=NOW + 60), stop(state(), FAILURE, now=NOW, jitter=0.5)
    soon, checked = hasten(pausing, now=NOW + 1), hasten(stopped, now=NOW + 1)
    after_lost = [hasten(attrs.evolve(it, quiet_until=NOW + 3), now=NOW + 1) for it in (pausing, stopped)]

    assert soon.retry_at == NOW + 1
    assert (checked.look_at, checked.retry_at) == (NOW + 1, math.inf)
    assert [after_lost[0].retry_at, after_lost[1].look_at] == [NOW + 3, NOW + 3]
    assert hasten(checked, now=NOW + 2) == checked


def test_a_partition_in_question_is_not_planned_until_it_is_cleared() -> None:
    """While both clusters are examined nothing is copied; a cleared doubt is planned again after a short pause."""
    questioned = question(state(), Ended.TRUNCATED, FAILURE, now=NOW)
    cleared = clear_doubt(questioned, now=NOW + 1, jitter=0.5)

    assert next_plans(questioned, now=1e12) == ()
    assert len(next_plans(cleared, now=NOW + 10)) == 1
    assert cleared.is_unsure == questioned.is_unsure


def test_an_outcome_does_not_answer_a_question() -> None:
    """What an epoch did that ended meanwhile is counted; the partition stays in question."""
    questioned = question(state(), Ended.TARGET_REWOUND, FAILURE, now=NOW)
    moved, occurrences = after(questioned, outcome())

    assert (moved.position, moved.is_questioned, moved.ended, occurrences) == (150, True, Ended.TARGET_REWOUND, ())


def test_a_search_is_neither_written_nor_kept_when_its_epoch_is_lost() -> None:
    """The stored position stays what it was until the search has found something; a lost epoch gives it up."""
    searching = state(position=90, downstream=None, written=None, repair=REPAIR)
    found, _ = after(searching, outcome(position=95, downstream=94))
    lost = lose(searching, retry_at=NOW, cause="killed")

    assert due_positions([searching], is_interval_over=True) == ()
    assert [it.next_upstream for it in due_positions([found], is_interval_over=True)] == [95]
    assert (lost.position, lost.downstream, lost.is_unsure, lost.repair) == (100, 99, True, None)


@given(
    position=st.integers(0, 200),
    ended=st.sampled_from(Ended),
    records=st.integers(0, 100),
    unsure=st.booleans(),
    stage=st.sampled_from(PartitionStage),
)
def test_positions_never_go_back_nor_beyond_what_is_proven(
    position: int, ended: Ended, records: int, unsure: bool, stage: PartitionStage
) -> None:
    """Whatever an outcome says, the position is the planned one or the proven one, whichever is later."""
    told = outcome(position=position, downstream=position - 1, ended=ended, records=records, is_unsure=unsure)

    moved, _ = after(state(stage=stage), told)

    assert max(100, position) == moved.position
    assert moved.position - 1 == moved.downstream


def test_a_producer_goes_with_its_position() -> None:
    """The next plan carries the outcome's producer; a contested one is not written as such."""
    contested = ProducerMark(7, 0, 50, is_contested=True)
    moved, _ = after(state(), outcome(ended=Ended.INTERRUPTED, failure=FAILURE, producer=contested))
    forgotten, _ = after(moved, outcome(ended=Ended.INTERRUPTED, failure=FAILURE, producer=None))

    assert (moved.plan.producer, moved.standing.producer) == (contested, ProducerMark(7, 0, 50))
    assert forgotten.plan.producer is None


def test_the_next_retry_is_the_first_of_all() -> None:
    """A copy task waits for the first of its partitions, and not for one in question, which is not planned."""
    assert next_retry_at([state(retry_at=7.0), state(retry_at=5.0)]) == 5.0
    assert next_retry_at([state(retry_at=7.0), state(retry_at=5.0, is_questioned=True)]) == 7.0
    assert next_retry_at([]) is None


def test_a_producer_that_brokers_may_have_forgotten_is_renewed() -> None:
    """After half a day without a batch another node may have gone on, so the target is compared first."""
    idle = attrs.evolve(state(), produced_ms=1_000, is_unsure=False, producer=ProducerMark(7, 0, 90))
    due = 1_000 + PRODUCER_LIFE_MS
    renewed = renew(idle, wall_ms=due)

    assert renew(idle, wall_ms=due - 1) == idle
    assert (renewed.producer, renewed.is_unsure, renewed.position) == (None, True, idle.position)
    for change in ({"produced_ms": None}, {"is_transformed": True}, {"is_questioned": True}, {"repair": REPAIR}):
        other = attrs.evolve(idle, **change)
        assert renew(other, wall_ms=due) == other
