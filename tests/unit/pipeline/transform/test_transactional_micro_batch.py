"""An epoch with transactions: when it commits, when it undoes, and what follows from a commit without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import attrs
import pytest

from mm2py.clock import Clock
from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import (
    CopyLimits,
    Ended,
    EpochOutcome,
    EpochPlan,
    PartitionFailure,
    PartitionOutcome,
    PartitionPlan,
    ProducerMark,
    Run,
    Transactions,
)
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.positions import Position
from mm2py.model.transform import Transform
from mm2py.pipeline.transform import micro_batch as rounds
from mm2py.pipeline.transform.jobs import allowed_s
from mm2py.pipeline.transform.micro_batch import MicroBatch, RecordTask
from mm2py.pipeline.transform.results import MicroBatchResult, RangeOutcome
from mm2py.pipeline.transform.transaction import Committer
from mm2py.pipeline.transform.transactional_micro_batch import TransactionalMicroBatch
from mm2py.telemetry.events import TransactionFenced
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.transactions import ProducerFencedError
from tests.support.clocks import LoopClock


FLOW, TERMS = Flow("A", "B"), Transactions("mm2py-A->B-x", "positions", 60_000)
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
MARK = ProducerMark(7, 3, 40)
#: The source ends there; the target has records up to 49 and a marker behind them.
SOURCE_END, TARGET_END = 110, 51
#: Behind the source's end, records of transactions that are open.
OPEN_END = 150
FENCED = ProducerFencedError("B", TERMS.transactional_id)
LOST = BrokerConnectionError("B", "1", "gone")


@attrs.define
class PretendedCommitter:
    """A committer that notes what is asked of it, and fails as the test decides."""

    committed: dict[TopicPartition, Position]
    fails_to_begin: Exception | None = None
    fails_to_commit: Exception | None = None
    is_open: bool = False
    is_begun: bool = False
    is_overdue: bool = False
    terms: Transactions = TERMS
    done: list[object] = attrs.field(factory=list)
    #: The remote partitions that each transaction began with.
    begun: list[list[TopicPartition]] = attrs.field(factory=list)

    async def open(self) -> Mapping[TopicPartition, Position]:
        self.done.append("open")
        self.is_open, self.is_begun = True, False
        return self.committed

    async def begin(self, remotes: Collection[TopicPartition], _sources: Collection[TopicPartition]) -> None:
        self.done.append("begin")
        self.begun.append(sorted(remotes))
        self.is_open, self.is_begun = False, True
        if self.fails_to_begin is not None:
            raise self.fails_to_begin

    def mark(self, _remote: TopicPartition) -> ProducerMark:
        return MARK

    def wrote(self, remote: TopicPartition, mark: ProducerMark) -> None:
        self.done.append((remote.partition, mark.sequence))

    async def commit(self, positions: Collection[Position]) -> None:
        self.done.append([(it.source.partition, it.next_upstream, it.downstream, it.producer) for it in positions])
        if self.fails_to_commit is not None:
            raise self.fails_to_commit
        self.is_open, self.is_begun = True, False

    async def undo(self) -> None:
        self.done.append("undo")
        self.is_begun = False


@attrs.define
class PretendedCluster:
    """Both clusters: every source partition ends at SOURCE_END, every remote one at TARGET_END."""

    async def ensure_metadata(self, _topics: Collection[str]) -> None:
        return

    async def list_offsets(
        self, partitions: Collection[TopicPartition], _when: int, *, reads_committed: bool = False
    ) -> dict[Any, int]:
        source_end = SOURCE_END if reads_committed else OPEN_END
        return {it: TARGET_END if it.topic.startswith("A.") else source_end for it in partitions}


@attrs.define
class PretendedJobs:
    """Jobs that say what they are told to, of the plan that they got."""

    answer: Callable[[EpochPlan], MicroBatchResult]
    plans: list[EpochPlan] = attrs.field(factory=list)
    alone: list[set[TopicPartition]] = attrs.field(factory=list)

    async def run(self, plan: EpochPlan, _clock: object, alone: Collection[TopicPartition]) -> MicroBatchResult:
        self.plans.append(plan)
        self.alone.append(set(alone))
        return self.answer(plan)

    async def stop(self, _clock: Clock) -> None:
        return


def planned(source: TopicPartition, *, downstream: int = 50) -> PartitionPlan:
    return PartitionPlan(source, "A.t", 100, downstream, is_unsure=False)


def written(one: PartitionPlan, **changes: Any) -> RangeOutcome:
    """Report that ten records of a partition were written after its end."""
    at = (one.downstream or 0) + 1
    outcome = PartitionOutcome(
        one.source, 110, at + 9, is_unsure=False, records=10, runs=(Run(100, at, 10),), producer=ProducerMark(7, 3, 50)
    )
    return RangeOutcome(attrs.evolve(outcome, **changes))


def unanswered(one: PartitionPlan) -> RangeOutcome:
    return written(one, is_unsure=True, position=100, downstream=50, records=0, runs=())


def failed(plan: EpochPlan, words: str, *, is_late: bool = False) -> MicroBatchResult:
    """Report that all ranges of a plan failed."""
    return MicroBatchResult((), {one.source: words for one in plan.partitions}, is_late)


@attrs.define
class MicroBatchRig:
    """A record task, and what its epochs find around them."""

    task: RecordTask
    committer: PretendedCommitter
    asked: PretendedJobs
    events: EventLog
    clock: LoopClock
    plans: Sequence[PartitionPlan]

    async def run(self, kind: type[MicroBatch] = TransactionalMicroBatch) -> EpochOutcome:
        plan = EpochPlan(FLOW, 0, 0, ENDPOINT, ENDPOINT, tuple(self.plans), LIMITS, 500, 500, transactions=TERMS)
        return await kind(cast("Any", self), self.task, plan).run()

    async def outcomes(self, kind: type[MicroBatch] = TransactionalMicroBatch) -> dict[int, PartitionOutcome]:
        return {it.source.partition: it for it in (await self.run(kind)).partitions}

    async def jobs(self, _task: RecordTask, _plan: EpochPlan) -> PretendedJobs:
        return self.asked

    def cluster(self, _endpoint: ClusterEndpoint) -> Cluster:
        return cast("Cluster", PretendedCluster())


ENDPOINT = ClusterEndpoint("B", ("nowhere:1",))
LIMITS = CopyLimits(reads_committed=True)


def rig(answer: Callable[[EpochPlan], MicroBatchResult] | None = None, *plans: PartitionPlan) -> MicroBatchRig:
    """Make one whose partitions are at 100, committed so, and whose jobs write what they get."""
    plans = plans or (planned(FIRST), planned(SECOND))
    committer = PretendedCommitter({it.source: Position(it.source, it.position, it.downstream) for it in plans})
    task = RecordTask(Transform("x", sql="SELECT 1"), committer=cast("Committer", committer))
    clock = LoopClock()
    jobs = PretendedJobs(answer or (lambda plan: MicroBatchResult(tuple(map(written, plan.partitions)))))
    return MicroBatchRig(task, committer, jobs, EventLog(clock), clock, plans)


async def test_records_and_positions_are_committed_together() -> None:
    """The producer is opened first; batches carry its marks; positions carry none, and stand behind the last record."""
    made = rig()
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
    """An epoch tells where the log ends and how far it may be read, be there something to read or not."""
    outcomes = await rig(None, attrs.evolve(planned(FIRST), position=position)).outcomes()

    assert [(it.log.high_watermark, it.log.last_stable) for it in outcomes.values()] == [(OPEN_END, SOURCE_END)]


async def test_the_next_epoch_writes_behind_the_marker() -> None:
    """The marker after a transaction's records is not taken for another producer's record."""
    made = rig()
    await made.outcomes()
    made.plans = [attrs.evolve(planned(FIRST), position=105, downstream=60)]
    await made.outcomes()

    assert made.committer.done.count("open") == 1
    assert [it.downstream for it in made.asked.plans[1].partitions] == [61]


async def test_where_nothing_was_kept_downstream_stays_at_the_last_record() -> None:
    """A stretch that is filtered out moves the position; the marker behind it does not count as a record."""
    made = rig(
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

    made = rig(answer)
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

    outcomes = await rig(answer).outcomes()

    assert (outcomes[0].ended, outcomes[0].position) == (Ended.OK, 100)
    assert (outcomes[1].ended, outcomes[1].position) == (Ended.FAILED, 100)


async def test_a_killed_worker_undoes_the_transaction_without_waiting() -> None:
    """Its other writers are fenced, so undoing waits for none of them."""
    made = rig(lambda plan: failed(plan, "Python worker exited unexpectedly"))
    begun = made.clock.monotonic()
    outcomes = await made.outcomes()

    assert made.committer.done == ["open", "begin", "undo"]
    assert {it.ended for it in outcomes.values()} == {Ended.INTERRUPTED}
    assert not any(it.is_unsure for it in outcomes.values())
    assert made.clock.monotonic() - begun < 1


async def test_a_stretch_that_failed_takes_no_other_one_with_it() -> None:
    """What was written at least once counts, and only the rest is looked for at the target."""

    def answer(plan: EpochPlan) -> MicroBatchResult:
        sure, other = plan.partitions
        return MicroBatchResult((written(sure),), {other.source: "Python worker exited unexpectedly"})

    outcomes = await rig(answer).outcomes(MicroBatch)

    assert (outcomes[0].position, outcomes[0].ended, outcomes[0].is_unsure) == (110, Ended.OK, False)
    assert (outcomes[1].position, outcomes[1].ended, outcomes[1].is_unsure) == (100, Ended.INTERRUPTED, True)


@pytest.mark.parametrize("kind", [MicroBatch, TransactionalMicroBatch])
async def test_a_range_that_failed_is_alone_until_it_is_done(kind: type[MicroBatch]) -> None:
    """It may have been for another range of its job, which it need not fail with again."""
    answers = iter([{SECOND: "Python worker exited unexpectedly"}, {}, {}])

    def answer(plan: EpochPlan) -> MicroBatchResult:
        failed = next(answers)
        return MicroBatchResult(tuple(written(it) for it in plan.partitions if it.source not in failed), failed)

    made = rig(answer)
    for _ in range(3):
        await made.run(kind)

    assert made.asked.alone == [set(), {SECOND}, set()]


async def test_a_transaction_takes_back_what_was_done_beside_a_failure() -> None:
    """All of it is one transaction; the message says of both what went wrong."""

    def answer(plan: EpochPlan) -> MicroBatchResult:
        sure, other = plan.partitions
        return MicroBatchResult((written(sure),), {other.source: "Python worker exited unexpectedly"})

    made = rig(answer)
    outcomes = await made.outcomes()

    assert made.committer.done == ["open", "begin", "undo"]
    assert {it.position for it in outcomes.values()} == {100}
    assert all(it.failure is not None and "exited" in it.failure.message for it in outcomes.values())


async def test_a_commit_without_an_answer_counts_where_it_went_through() -> None:
    """The committed position says that it did: what was written is accounted for, runs and all, and not again."""
    made = rig()
    made.committer.fails_to_commit = LOST
    lost = await made.outcomes()
    made.committer.fails_to_commit = None
    made.committer.committed = {it: Position(it, 110, 60) for it in (FIRST, SECOND)}
    found = await made.outcomes()

    assert [(it.position, it.ended) for it in lost.values()] == [(100, Ended.INTERRUPTED)] * 2
    assert [(it.position, it.downstream, it.records, list(it.runs)) for it in found.values()] == [
        (110, 60, 10, [Run(100, 51, 10)])
    ] * 2
    assert made.committer.done.count("begin") == 1


async def test_the_same_range_committed_by_another_writer_is_not_ours() -> None:
    """Another writer's records lie elsewhere: what we wrote was undone, and our runs do not translate them."""
    made = rig(None, planned(FIRST))
    made.committer.fails_to_commit = LOST
    await made.outcomes()
    made.committer.fails_to_commit = None
    made.committer.committed = {FIRST: Position(FIRST, 110, 72)}
    outcomes = await made.outcomes()

    assert (outcomes[0].position, outcomes[0].downstream) == (110, 72)
    assert (outcomes[0].records, list(outcomes[0].runs), outcomes[0].known_from) == (0, [], 110)


async def test_a_partition_that_was_away_is_asked_about_when_it_is_back() -> None:
    """Paused while the others find out that their commit went through, it finds out, too, before it writes anything."""
    made = rig()
    both = made.plans
    made.committer.fails_to_commit = LOST
    await made.outcomes()
    made.committer.fails_to_commit = None
    made.committer.committed = {it: Position(it, 110, 60) for it in (FIRST, SECOND)}
    made.plans = both[:1]
    first = await made.outcomes()
    made.plans = both[1:]
    second = await made.outcomes()

    assert [(it.position, it.records) for it in (*first.values(), *second.values())] == [(110, 10), (110, 10)]
    assert made.committer.done.count("begin") == 1
    assert not made.task.doubtful


async def test_a_commit_without_an_answer_is_repeated_where_it_did_not() -> None:
    """The committed position is the one of before: the same stretch is written again."""
    made = rig()
    made.committer.fails_to_commit = LOST
    await made.outcomes()
    made.committer.fails_to_commit = None
    outcomes = await made.outcomes()

    assert [it.position for it in outcomes.values()] == [110, 110]
    assert made.committer.done.count("begin") == 2


async def test_a_position_that_another_writer_committed_is_continued() -> None:
    """Where those records went is unknown, so no offset before the new position is translated."""
    made = rig()
    made.committer.committed = {it: Position(it, 300, 250) for it in (FIRST, SECOND)}
    outcomes = await made.outcomes()

    assert made.committer.done == ["open"]
    assert [(it.position, it.downstream, it.is_unsure, it.known_from) for it in outcomes.values()] == [
        (300, 250, True, 300)
    ] * 2


@pytest.mark.parametrize("records", [0, 3])
async def test_only_records_behind_the_position_are_doubted(monkeypatch: pytest.MonkeyPatch, records: int) -> None:
    """After markers it goes on; records that were not accounted for are reported, as without transactions."""
    asked: list[tuple[int, int]] = []

    async def behind(*_: object, after: int, end: int, **__: object) -> int:
        asked.append((after, end))
        return records

    monkeypatch.setattr(rounds, "records_behind", behind)
    made = rig(None, planned(FIRST, downstream=40))
    outcomes = await made.outcomes()

    assert asked == [(40, TARGET_END)]
    assert (outcomes[0].ended, outcomes[0].position) == ((Ended.UNPROVEN, 100) if records else (Ended.OK, 110))
    assert outcomes[0].downstream == (TARGET_END - 1 if records else TARGET_END + 9)


async def test_a_position_that_was_set_back_is_not_written_over() -> None:
    """Another client set the position back: the partition stops and reports it, each time it is tried."""
    made = rig(None, planned(FIRST))
    made.committer.committed = {FIRST: Position(FIRST, 10, 5)}
    for _ in range(2):
        outcomes = await made.outcomes()

        assert outcomes[0].ended is Ended.FAILED
        assert outcomes[0].failure is not None
        assert outcomes[0].failure.error == "PositionSetBack"
    assert made.committer.done == ["open", "open"]


async def test_a_fenced_daemon_says_so_and_keeps_still() -> None:
    """Another daemon has taken over: that is reported once, nothing of the other's is undone, and pauses grow."""
    made = rig()
    made.committer.fails_to_begin = FENCED
    first = await made.outcomes()
    at_once = await made.outcomes()
    (told,) = made.events.of(TransactionFenced)
    await asyncio.sleep(told.pause_s)
    await made.outcomes()
    again = made.events.of(TransactionFenced)[-1]

    assert {it.ended for it in (*first.values(), *at_once.values())} == {Ended.FAILED}
    assert {it.failure.error for it in at_once.values() if it.failure} == {"ProducerFencedError"}
    assert made.committer.done == ["open", "begin", "open", "begin"]
    assert 10 <= told.pause_s < again.pause_s


async def test_a_worker_that_is_fenced_is_no_reason_to_try_again_at_once() -> None:
    """What the target says to a worker's batch counts as much."""
    made = rig(
        lambda plan: MicroBatchResult(
            tuple(
                written(it, is_unsure=True, failure=PartitionFailure("x", "", "INVALID_PRODUCER_EPOCH"))
                for it in plan.partitions
            )
        )
    )
    outcomes = await made.outcomes()

    assert {it.ended for it in outcomes.values()} == {Ended.FAILED}
    assert len(made.events.of(TransactionFenced)) == 1
    assert "undo" not in made.committer.done


async def test_a_transaction_that_lasts_too_long_takes_less_at_once_next_time() -> None:
    """The brokers abort it, which looks like a fence: no other writer is blamed, and the next range is smaller."""
    made = rig()
    made.committer.fails_to_commit, made.committer.is_overdue = FENCED, True
    before = made.task.pace.cut([planned(FIRST)], {FIRST: 10**9}, {})
    outcomes = await made.outcomes()
    after = made.task.pace.cut([planned(FIRST)], {FIRST: 10**9}, {})

    assert {(it.ended, it.failure.error) for it in outcomes.values() if it.failure} == {
        (Ended.INTERRUPTED, "TransactionTimedOut")
    }
    assert not made.events.of(TransactionFenced)
    assert (after[0].until or 0) < (before[0].until or 0)


@attrs.define
class SlowJobs(PretendedJobs):
    """One that is given up unless its stretches are short."""

    clock: LoopClock = attrs.field(factory=LoopClock)

    async def run(self, plan: EpochPlan, clock: object, alone: Collection[TopicPartition]) -> MicroBatchResult:
        if sum((one.until or 0) - one.position for one in plan.partitions) == 1:
            return await super().run(plan, clock, alone)
        self.plans.append(plan)
        await self.clock.sleep(allowed_s(plan))
        return failed(plan, "it was late and was stopped", is_late=True)


@pytest.mark.parametrize("kind", [MicroBatch, TransactionalMicroBatch])
async def test_a_transform_that_is_slower_than_its_round_takes_less_until_it_is_not(kind: type[MicroBatch]) -> None:
    """Whether records are written in transactions or not: the same stretch again would be as late, for ever."""
    made = rig(None, planned(FIRST))
    made.asked = SlowJobs(made.asked.answer, clock=made.clock)
    outcomes = [await made.outcomes(kind) for _ in range(3)]

    assert [it[0].position for it in outcomes] == [100, 100, 110]
    assert [it[0].ended for it in outcomes] == [Ended.INTERRUPTED, Ended.INTERRUPTED, Ended.OK]
    assert [(one.until or 0) - one.position for it in made.asked.plans for one in it.partitions] == [10, 2, 1]
    assert all(it[0].failure is not None and "less is taken at once" in it[0].failure.hint for it in outcomes[:2])


def test_a_round_is_not_waited_for_behind_the_end_of_its_transaction() -> None:
    """Brokers have aborted it by then: the rest of its work would be for nothing."""
    plan = EpochPlan(FLOW, 0, 0, ENDPOINT, ENDPOINT, (), LIMITS, 500, 500)

    assert allowed_s(plan) == 301
    assert allowed_s(attrs.evolve(plan, transactions=TERMS)) == 61


async def test_what_could_not_be_sent_in_time_is_less_next_time() -> None:
    """A slow target: what is unanswered at the end undoes all of it, as it would again."""
    made = rig(lambda plan: MicroBatchResult(tuple(map(unanswered, plan.partitions))), planned(FIRST))
    await made.outcomes()
    await made.outcomes()

    assert [(it.partitions[0].until or 0) - it.partitions[0].position for it in made.asked.plans] == [10, 2]
