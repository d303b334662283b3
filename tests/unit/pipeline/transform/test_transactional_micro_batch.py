"""An epoch with transactions: when it commits, when it undoes, and what follows from a commit without an answer."""

from __future__ import annotations

import asyncio
from types import ModuleType

import attrs
import pytest

from mm2py.errors import BrokerConnectionError
from mm2py.model.epoch import Ended, EpochPlan, PartitionFailure, Run
from mm2py.model.positions import Position
from mm2py.pipeline.transform import micro_batch as rounds
from mm2py.pipeline.transform import transactional_micro_batch as exactly_once
from mm2py.pipeline.transform.jobs import allowed_s
from mm2py.pipeline.transform.results import MicroBatchResult
from mm2py.telemetry.events import TransactionFenced
from mm2py.wire.transactions import ProducerFencedError
from tests.support.micro_batches import (
    ENDPOINT,
    FIRST,
    FLOW,
    LIMITS,
    MARK,
    OPEN_END,
    SECOND,
    SOURCE_END,
    TARGET_END,
    TERMS,
    micro_batch_rig,
    planned,
    unanswered,
    written,
)


FENCED = ProducerFencedError("B", TERMS.transactional_id)
LOST = BrokerConnectionError("B", "1", "gone")


async def test_records_and_positions_are_committed_together() -> None:
    """The producer is opened first; batches carry its marks; positions carry none, and stand after the last record."""
    made = micro_batch_rig()
    outcomes = await made.outcomes()

    assert made.committer.done == [
        "open", "begin", (0, 50), (1, 50), [(0, 110, 60, None), (1, 110, 60, None)],
    ]  # fmt: skip
    assert [it.producer for it in made.asked.plans[0].partitions] == [MARK, MARK]
    assert [(it.position, it.downstream, it.producer, it.ended) for it in outcomes.values()] == [
        (110, 60, None, Ended.OK)
    ] * 2


@pytest.mark.parametrize("position", [100, SOURCE_END])
async def test_what_open_transactions_of_the_source_hold_counts_as_lag(position: int) -> None:
    """An epoch reports where the log ends and how far it may be read, whether there is something to read or not."""
    outcomes = await micro_batch_rig(None, attrs.evolve(planned(FIRST), position=position)).outcomes()

    assert [(it.log.high_watermark, it.log.last_stable) for it in outcomes.values()] == [(OPEN_END, SOURCE_END)]


async def test_the_next_epoch_writes_behind_the_marker() -> None:
    """The marker after a transaction's records is not taken for another producer's record."""
    made = micro_batch_rig()
    await made.outcomes()
    made.plans = [attrs.evolve(planned(FIRST), position=105, downstream=60)]
    await made.outcomes()

    assert made.committer.done.count("open") == 1
    assert [it.downstream for it in made.asked.plans[1].partitions] == [61]


async def test_where_nothing_was_kept_downstream_stays_at_the_last_record() -> None:
    """A range that is filtered out moves the position; the marker after it does not count as a record."""
    made = micro_batch_rig(
        lambda plan: MicroBatchResult(tuple(written(it, records=0, runs=(), downstream=50) for it in plan.partitions)),
        planned(FIRST),
    )
    outcomes = await made.outcomes()
    made.plans = [attrs.evolve(planned(FIRST), position=105)]
    await made.outcomes()

    assert (outcomes[0].position, outcomes[0].downstream) == (110, 50)
    assert [it.downstream for it in made.asked.plans[1].partitions] == [51]


@pytest.mark.parametrize("is_missing", [False, True])
async def test_a_doubt_undoes_all_of_it(is_missing: bool) -> None:
    """If the target did not answer for one partition, none has moved, and the producer is opened again."""

    def answer(plan: EpochPlan) -> MicroBatchResult:
        sure, other = plan.partitions
        return MicroBatchResult((written(sure),) if is_missing else (written(sure), unanswered(other)))

    made = micro_batch_rig(answer)
    outcomes = await made.outcomes()
    await made.run()

    assert made.committer.done[:3] == ["open", "begin", "undo"]
    assert made.committer.done[3] == "open"
    assert (outcomes[0].position, outcomes[0].ended) == (100, Ended.OK)
    assert (outcomes[1].position, outcomes[1].ended) == (100, Ended.INTERRUPTED)


async def test_a_refused_partition_does_not_hold_up_the_others_for_long() -> None:
    """It alone is reported as failed; the others are where they were, and may be planned again at once."""

    def answer(plan: EpochPlan) -> MicroBatchResult:
        sure, other = plan.partitions
        refused = written(other, is_unsure=True, ended=Ended.FAILED, failure=PartitionFailure("too large"))
        return MicroBatchResult((written(sure), refused))

    outcomes = await micro_batch_rig(answer).outcomes()

    assert (outcomes[0].ended, outcomes[0].position) == (Ended.OK, 100)
    assert (outcomes[1].ended, outcomes[1].position) == (Ended.FAILED, 100)


@pytest.mark.parametrize("is_one_done", [False, True])
async def test_a_killed_worker_undoes_the_transaction_without_waiting(*, is_one_done: bool) -> None:
    """What was done beside the failure is taken back too; other writers are fenced, so undoing waits for none."""

    def answer(plan: EpochPlan) -> MicroBatchResult:
        done, lost = plan.partitions[:is_one_done], plan.partitions[is_one_done:]
        return MicroBatchResult(
            tuple(map(written, done)), {it.source: "Python worker exited unexpectedly" for it in lost}
        )

    made = micro_batch_rig(answer)
    begun = made.clock.monotonic()
    outcomes = (await made.outcomes()).values()

    assert made.committer.done == ["open", "begin", "undo"]
    assert {(it.ended, it.position, it.is_unsure) for it in outcomes} == {(Ended.INTERRUPTED, 100, False)}
    assert all(it.failure is not None and "exited" in it.failure.message for it in outcomes)
    assert made.clock.monotonic() - begun < 1


async def test_a_commit_without_an_answer_counts_where_it_went_through() -> None:
    """The committed position says that it did: what was written is accounted for, runs and all, and not again."""
    made = micro_batch_rig()
    made.committer.fails_to_commit = LOST
    lost = await made.outcomes()
    made.committer.fails_to_commit = None
    made.committer.stored = {it.source: Position(it.source, 110, 60).at(it.remote_topic) for it in made.plans}
    found = await made.outcomes()

    assert [(it.position, it.ended) for it in lost.values()] == [(100, Ended.INTERRUPTED)] * 2
    assert [(it.position, it.downstream, it.records, list(it.runs)) for it in found.values()] == [
        (110, 60, 10, [Run(100, 51, 10)])
    ] * 2
    assert made.committer.done.count("begin") == 1


async def test_the_same_range_committed_by_another_writer_is_not_ours() -> None:
    """Another writer's records lie elsewhere: what we wrote was undone, and our runs do not translate them."""
    made = micro_batch_rig(None, planned(FIRST))
    made.committer.fails_to_commit = LOST
    await made.outcomes()
    made.committer.fails_to_commit = None
    made.committer.stored = {FIRST: Position(FIRST, 110, 72)}
    outcomes = await made.outcomes()

    assert (outcomes[0].position, outcomes[0].downstream) == (110, 72)
    assert (outcomes[0].records, list(outcomes[0].runs), outcomes[0].known_from) == (0, [], 110)


async def test_a_partition_that_was_away_is_asked_about_when_it_is_back() -> None:
    """Paused while the others find out that their commit went through, it finds out, too, before it writes anything."""
    made = micro_batch_rig()
    both = made.plans
    made.committer.fails_to_commit = LOST
    await made.outcomes()
    made.committer.fails_to_commit = None
    made.committer.stored = {it.source: Position(it.source, 110, 60).at(it.remote_topic) for it in made.plans}
    made.plans = both[:1]
    first = await made.outcomes()
    made.plans = both[1:]
    second = await made.outcomes()

    assert [(it.position, it.records) for it in (*first.values(), *second.values())] == [(110, 10), (110, 10)]
    assert made.committer.done.count("begin") == 1
    assert not made.task.doubtful


async def test_a_commit_without_an_answer_is_repeated_where_it_did_not() -> None:
    """The committed position is the one of before: the same range is written again."""
    made = micro_batch_rig()
    made.committer.fails_to_commit = LOST
    await made.outcomes()
    made.committer.fails_to_commit = None
    outcomes = await made.outcomes()

    assert [it.position for it in outcomes.values()] == [110, 110]
    assert made.committer.done.count("begin") == 2


async def test_a_position_that_another_writer_committed_is_continued() -> None:
    """Where those records went is unknown, so no offset before the new position is translated."""
    made = micro_batch_rig()
    made.committer.stored = {it: Position(it, 300, 250) for it in (FIRST, SECOND)}
    outcomes = await made.outcomes()

    assert made.committer.done == ["open"]
    assert [(it.position, it.downstream, it.is_unsure, it.known_from) for it in outcomes.values()] == [
        (300, 250, True, 300)
    ] * 2


async def test_a_position_that_was_set_back_is_not_written_over() -> None:
    """Another client set the position back: the partition stops and reports it, each time it is tried."""
    made = micro_batch_rig(None, planned(FIRST))
    made.committer.stored = {FIRST: Position(FIRST, 10, 5)}
    for _ in range(2):
        outcomes = await made.outcomes()

        assert outcomes[0].ended is Ended.FAILED
        assert outcomes[0].failure is not None
        assert outcomes[0].failure.error == "PositionSetBack"
    assert made.committer.done == ["open", "open"]


async def test_a_fenced_daemon_says_so_and_keeps_still() -> None:
    """
    Another daemon has taken over, and does so again: that is reported once, and pauses grow.

    Nothing of the other's is undone. Once is no contest: of nodes that share a flow one was frozen, and comes too late.
    """
    made = micro_batch_rig()
    made.committer.fails_to_begin = FENCED
    once = await made.outcomes()
    reported_once = made.events.of(TransactionFenced)
    first = await made.outcomes()
    at_once = await made.outcomes()
    (first_fence,) = made.events.of(TransactionFenced)
    await asyncio.sleep(first_fence.pause_s)
    await made.outcomes()
    again = made.events.of(TransactionFenced)[-1]

    assert ({it.ended for it in once.values()}, reported_once) == ({Ended.INTERRUPTED}, ())
    assert {it.ended for it in (*first.values(), *at_once.values())} == {Ended.FAILED}
    assert {it.failure.error for it in at_once.values() if it.failure} == {"ProducerFencedError"}
    assert made.committer.done == ["open", "begin"] * 3
    assert 10 <= first_fence.pause_s < again.pause_s


async def test_a_worker_that_is_fenced_is_no_reason_to_try_again_at_once() -> None:
    """The target's answer to a worker's batch counts as much, where that happens again."""
    made = micro_batch_rig(
        lambda plan: MicroBatchResult(
            tuple(
                written(it, is_unsure=True, failure=PartitionFailure("x", "", "INVALID_PRODUCER_EPOCH"))
                for it in plan.partitions
            )
        )
    )
    await made.outcomes()
    outcomes = await made.outcomes()

    assert {it.ended for it in outcomes.values()} == {Ended.FAILED}
    assert len(made.events.of(TransactionFenced)) == 1
    assert "undo" not in made.committer.done


async def test_a_transaction_that_lasts_too_long_takes_less_at_once_next_time() -> None:
    """The brokers abort it, which looks like a fence: no other writer is blamed, and the next range is smaller."""
    made = micro_batch_rig()
    made.committer.fails_to_commit, made.committer.is_overdue = FENCED, True
    before = made.task.pace.cut([planned(FIRST)], {FIRST: 10**9}, {})
    outcomes = await made.outcomes()
    after = made.task.pace.cut([planned(FIRST)], {FIRST: 10**9}, {})

    assert {(it.ended, it.failure.error) for it in outcomes.values() if it.failure} == {
        (Ended.INTERRUPTED, "TransactionTimedOut")
    }
    assert not made.events.of(TransactionFenced)
    assert (after[0].until or 0) < (before[0].until or 0)


async def test_what_could_not_be_sent_in_time_is_less_next_time() -> None:
    """A slow target: what is unanswered at the end undoes all of it, as it would again."""
    made = micro_batch_rig(lambda plan: MicroBatchResult(tuple(map(unanswered, plan.partitions))), planned(FIRST))
    await made.outcomes()
    await made.outcomes()

    assert [(it.partitions[0].until or 0) - it.partitions[0].position for it in made.asked.plans] == [10, 2]


def find_behind(monkeypatch: pytest.MonkeyPatch, module: ModuleType, records: int) -> list[tuple[int, int]]:
    """Have so many records found wherever they are looked for; return the ranges in which they were."""
    asked: list[tuple[int, int]] = []

    async def behind(*_: object, after: int, end: int, **__: object) -> int:
        asked.append((after, end))
        return records

    monkeypatch.setattr(module, "records_behind", behind)
    return asked


async def test_a_start_is_committed_before_anything_is_read() -> None:
    """Another node may have decided on a start as well: only the producer that was opened last may write it."""
    made = micro_batch_rig(None, planned(FIRST), planned(SECOND))
    del made.committer.stored[FIRST]
    outcomes = await made.outcomes()

    assert made.committer.done[:5] == ["open", "begin", [(0, 100, 50, None)], "begin", (0, 50)]
    assert made.committer.begun[0] == []
    assert [it.position for it in outcomes.values()] == [110, 110]


async def test_a_start_that_another_node_has_replaced_is_not_written() -> None:
    """Fenced meanwhile, a node writes no start, and next time it finds what was committed."""
    made = micro_batch_rig(None, planned(FIRST))
    stored, made.committer.stored = {FIRST: Position(FIRST, 300, 250)}, {}
    made.committer.fails_to_begin = FENCED
    first = await made.outcomes()
    made.committer.fails_to_begin, made.committer.stored = None, stored
    await asyncio.sleep(made.task.contention.left_s(made.clock.monotonic()))
    second = await made.outcomes()

    assert (first[0].ended, first[0].position) == (Ended.INTERRUPTED, 100)
    assert (second[0].position, second[0].known_from) == (300, 300)


@pytest.mark.parametrize("next_upstream", [100, 300])
async def test_records_of_a_producer_that_was_opened_since_are_no_doubt(
    monkeypatch: pytest.MonkeyPatch, next_upstream: int
) -> None:
    """It has written a position with them, so nothing is in doubt: this node has lost its task."""
    find_behind(monkeypatch, rounds, 3)
    made = micro_batch_rig(None, planned(FIRST, downstream=40))
    made.committer.committed_since = {FIRST: Position(FIRST, next_upstream, 50)}
    outcomes = await made.outcomes()

    is_fenced = next_upstream > 100
    assert outcomes[0].ended is (Ended.INTERRUPTED if is_fenced else Ended.UNPROVEN)
    assert made.committer.is_open is not is_fenced


@pytest.mark.parametrize("records", [0, 2])
async def test_markers_are_no_records_of_another_writer(monkeypatch: pytest.MonkeyPatch, records: int) -> None:
    """Before a range lie four offsets more than the last transaction's marker, and *records* of them are records."""
    asked = find_behind(monkeypatch, exactly_once, records)
    foreign = {"foreign_records": 4, "runs": (Run(100, 55, 10),), "downstream": 64}
    made = micro_batch_rig(lambda plan: MicroBatchResult((written(plan.partitions[0], **foreign),)), planned(FIRST))
    outcomes = await made.outcomes()

    assert asked == [(50, 55)]
    assert (outcomes[0].foreign_records, outcomes[0].position) == (records, 110)


@pytest.mark.parametrize("records", [0, 3])
async def test_only_records_behind_the_position_are_doubted(monkeypatch: pytest.MonkeyPatch, records: int) -> None:
    """After markers it goes on; records that were not accounted for are reported, as without transactions."""
    asked = find_behind(monkeypatch, rounds, records)
    made = micro_batch_rig(None, planned(FIRST, downstream=40))
    outcomes = await made.outcomes()

    assert asked == [(40, TARGET_END)]
    assert (outcomes[0].ended, outcomes[0].position) == ((Ended.UNPROVEN, 100) if records else (Ended.OK, 110))
    assert outcomes[0].downstream == (TARGET_END - 1 if records else TARGET_END + 9)


def test_a_round_is_not_waited_for_behind_the_end_of_its_transaction() -> None:
    """Brokers have aborted it by then: the rest of its work would be for nothing."""
    plan = EpochPlan(FLOW, 0, 0, ENDPOINT, ENDPOINT, (), LIMITS, 500, 500)

    assert allowed_s(plan) == 301
    assert allowed_s(attrs.evolve(plan, transactions=TERMS)) == 61
