"""An epoch of records, in transactions or not: what a range that failed or was late changes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs
import pytest

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, Mm2Error
from mm2py.model.epoch import Ended, EpochPlan, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.transform import Errors
from mm2py.pipeline.transform.dead_letters import DeadLetters
from mm2py.pipeline.transform.find_bad_record import Isolation
from mm2py.pipeline.transform.jobs import LATE, MicroBatchLateError, allowed_s
from mm2py.pipeline.transform.micro_batch import MicroBatch
from mm2py.pipeline.transform.results import BadRecord, MicroBatchResult
from mm2py.pipeline.transform.transactional_micro_batch import TransactionalMicroBatch
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.topic_log import LogRecord, TooFewBrokersError
from tests.support.clocks import LoopClock, now
from tests.support.micro_batches import (
    FIRST,
    SECOND,
    MicroBatchRig,
    PretendedJobs,
    failed,
    micro_batch_rig,
    planned,
    written,
)


async def test_a_range_that_failed_takes_no_other_one_with_it() -> None:
    """What was written at least once counts, and only the rest is looked for at the target."""

    def answer(plan: EpochPlan) -> MicroBatchResult:
        sure, other = plan.partitions
        return MicroBatchResult((written(sure),), {other.source: "Python worker exited unexpectedly"})

    outcomes = await micro_batch_rig(answer).outcomes(MicroBatch)

    assert (outcomes[0].position, outcomes[0].ended, outcomes[0].is_unsure) == (110, Ended.OK, False)
    assert (outcomes[1].position, outcomes[1].ended, outcomes[1].is_unsure) == (100, Ended.INTERRUPTED, True)


@pytest.mark.parametrize("kind", [MicroBatch, TransactionalMicroBatch])
@pytest.mark.parametrize("side", ["source", "target"])
async def test_no_topic_waits_for_another_one_s_leader(kind: type[MicroBatch], side: str) -> None:
    """
    A broker with the only replica of a partition is down, for hours: it is asked for in each epoch, beside the others.

    At the target that is so where its end is unknown, as after a restart.
    """
    made = micro_batch_rig(None, planned(FIRST), attrs.evolve(planned(SECOND), is_unsure=side == "target"))
    made.clusters.leaderless = [SECOND if side == "source" else TopicPartition("A.t", SECOND.partition)]
    begun = now()
    outcomes = await made.outcomes(kind)

    assert (outcomes[0].position, outcomes[0].ended) == (110, Ended.OK)
    assert (outcomes[1].position, outcomes[1].ended) == (100, Ended.INTERRUPTED)
    assert now() - begun < 5


@pytest.mark.parametrize("kind", [MicroBatch, TransactionalMicroBatch])
async def test_a_range_that_failed_is_alone_until_it_is_done(kind: type[MicroBatch]) -> None:
    """It may have been for another range of its job, which it need not fail with again."""
    answers = iter([{SECOND: "Python worker exited unexpectedly"}, {}, {}])

    def answer(plan: EpochPlan) -> MicroBatchResult:
        failed = next(answers)
        return MicroBatchResult(tuple(written(it) for it in plan.partitions if it.source not in failed), failed)

    made = micro_batch_rig(answer)
    for _ in range(3):
        await made.run(kind)

    assert made.asked.alone == [set(), {SECOND}, set()]


async def test_a_record_is_looked_for_whatever_its_failure_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are a transform's own, and may be like ours about a range that took too long."""

    async def found(_isolation: Isolation, _one: PartitionPlan) -> BadRecord:
        return BadRecord(104, "x", "USER_RAISED_EXCEPTION", "the account was stopped")

    monkeypatch.setattr(Isolation, "first_bad", found)
    words = "[USER_RAISED_EXCEPTION] the account was stopped"
    made = micro_batch_rig(lambda plan: failed(plan, words), planned(FIRST))
    await made.outcomes(MicroBatch)

    assert made.task.bad.keys() == {FIRST}


async def test_a_try_that_hangs_loses_nothing_that_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A range fails, and the look for its bad record is not done in time.

    The other range counts: with the whole epoch lost it would be written again.
    """

    def answer(plan: EpochPlan) -> MicroBatchResult:
        sure, other = plan.partitions
        return MicroBatchResult((written(sure),), {other.source: "[USER_RAISED_EXCEPTION] no answer"})

    async def hang(_isolation: Isolation, _one: PartitionPlan) -> None:
        raise MicroBatchLateError("trying transform x")

    monkeypatch.setattr(Isolation, "_found", hang)
    outcomes = await micro_batch_rig(answer).outcomes(MicroBatch)

    assert (outcomes[0].position, outcomes[0].ended) == (110, Ended.OK)
    assert (outcomes[1].position, outcomes[1].ended) == (100, Ended.INTERRUPTED)


@attrs.define
class SlowJobs(PretendedJobs):
    """Jobs that are given up unless their ranges of offsets are short."""

    clock: LoopClock = attrs.field(factory=LoopClock)

    async def run(self, plan: EpochPlan, clock: object, alone: Collection[TopicPartition]) -> MicroBatchResult:
        if sum((one.until or 0) - one.position for one in plan.partitions) == 1:
            return await super().run(plan, clock, alone)
        self.plans.append(plan)
        await self.clock.sleep(allowed_s(plan))
        return failed(plan, LATE, is_late=True)


@pytest.mark.parametrize("kind", [MicroBatch, TransactionalMicroBatch])
async def test_a_transform_that_is_slower_than_its_round_takes_less_until_it_is_not(kind: type[MicroBatch]) -> None:
    """Whether records are written in transactions or not: the same range again would be as late, for ever."""
    made = micro_batch_rig(None, planned(FIRST))
    made.asked = SlowJobs(made.asked.answer, clock=made.clock)
    outcomes = [await made.outcomes(kind) for _ in range(3)]

    assert [it[0].position for it in outcomes] == [100, 100, 110]
    assert [it[0].ended for it in outcomes] == [Ended.INTERRUPTED, Ended.INTERRUPTED, Ended.OK]
    assert [(one.until or 0) - one.position for it in made.asked.plans for one in it.partitions] == [10, 2, 1]
    assert all(it[0].failure is not None and "less is taken at once" in it[0].failure.hint for it in outcomes[:2])


@pytest.mark.parametrize("kind", [MicroBatch, TransactionalMicroBatch])
async def test_a_micro_batch_that_java_has_no_memory_for_becomes_smaller(kind: type[MicroBatch]) -> None:
    """No record is blamed for it: another statement, or another topic's records, may have held the memory."""
    words = "Job aborted due to stage failure: … java.lang.OutOfMemoryError: Java heap space"

    def answer(plan: EpochPlan) -> MicroBatchResult:
        (one,) = plan.partitions
        return failed(plan, words) if (one.until or 0) - one.position > 1 else MicroBatchResult((written(one),))

    made = micro_batch_rig(answer, planned(FIRST))
    outcomes = [await made.outcomes(kind) for _ in range(3)]

    assert [it[0].ended for it in outcomes] == [Ended.INTERRUPTED, Ended.INTERRUPTED, Ended.OK]
    assert [(one.until or 0) - one.position for it in made.asked.plans for one in it.partitions] == [10, 2, 1]
    assert all(it[0].failure is not None and "spark.driver.memory" in it[0].failure.hint for it in outcomes[:2])
    assert not made.task.bad


async def test_only_what_java_was_short_of_is_hinted_at() -> None:
    """It calls a want of threads one of memory, and of two ranges only one may have failed of that."""
    failures = {FIRST: "java.lang.OutOfMemoryError: unable to create native thread", SECOND: "ExecutorLostFailure"}
    made = micro_batch_rig(lambda _plan: MicroBatchResult((), failures), planned(FIRST), planned(SECOND))
    outcomes = await made.outcomes(MicroBatch)
    hints = [it.failure.hint for it in outcomes.values() if it.failure is not None]

    assert "ulimit -u" in hints[0]
    assert "memory" not in hints[0]
    assert hints[1] == "it is tried again by itself"


@attrs.define
class Letters:
    """Dead letters whose topic, or the writing of them, fails as the test decides."""

    fails: Mm2Error | None = None
    written: list[tuple[TopicPartition, int]] = attrs.field(factory=list)

    async def ensure(self) -> None:
        if isinstance(self.fails, TooFewBrokersError):
            raise self.fails

    async def write(self, _plan: object, one: PartitionPlan, bad_records: Sequence[BadRecord]) -> None:
        if self.fails is not None:
            raise self.fails
        self.written += [(one.source, bad.offset) for bad in bad_records]

    async def collect(self, _plan: object, _one: object, bad_records: Sequence[BadRecord]) -> list[LogRecord]:
        return [LogRecord(None, None) for _ in bad_records]


def _rig_with_letters(monkeypatch: pytest.MonkeyPatch, *left_out: TopicPartition) -> tuple[MicroBatchRig, Letters]:
    """Return a rig whose steps leave out a record of each partition of *left_out*, and the dead letters."""
    letters, bad = Letters(), (BadRecord(104, "mask", "DataException", "no good"),)
    monkeypatch.setattr(DeadLetters, "ensure", letters.ensure)
    monkeypatch.setattr(DeadLetters, "write", letters.write)
    monkeypatch.setattr(DeadLetters, "collect", letters.collect)

    def answer(plan: EpochPlan) -> MicroBatchResult:
        done = ((one, written(one)) for one in plan.partitions)
        return MicroBatchResult(
            tuple(attrs.evolve(it, left_out=bad) if one.source in left_out else it for one, it in done)
        )

    made = micro_batch_rig(answer)
    made.task.transform = attrs.evolve(made.task.transform, errors=Errors(are_tolerated=True, dead_letters="dead"))
    return made, letters


_TOO_FEW = TooFewBrokersError("B", "dead", "errors.deadletterqueue.topic.replication.factor", 3, 1)
_TOO_LARGE = BrokerAnsweredError("B", "Produce", ErrorCode.MESSAGE_TOO_LARGE, "MESSAGE_TOO_LARGE")


@pytest.mark.parametrize(
    "error",
    [
        _TOO_LARGE,
        BrokerAnsweredError("B", "Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED"),
        BrokerConnectionError("B", "1", "gone"),
    ],
)
async def test_what_is_written_waits_for_its_dead_letters_and_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, error: Mm2Error
) -> None:
    """
    Two ranges are written, and the dead letter of the first one is refused.

    The second one counts. The first one stays where it was, as what is known of the target does; once the letter can be
    written, it counts without having run again.
    """
    made, letters = _rig_with_letters(monkeypatch, FIRST)
    letters.fails = error
    outcomes = await made.outcomes(MicroBatch)

    assert (outcomes[0].position, outcomes[0].ended, outcomes[0].is_unsure) == (100, Ended.INTERRUPTED, False)
    assert outcomes[0].failure is not None
    assert "dead letters cannot be written to dead" in outcomes[0].failure.message
    assert (outcomes[1].position, outcomes[1].ended) == (110, Ended.OK)

    made.plans = [planned(FIRST)]
    assert (await made.outcomes(MicroBatch))[0].ended is Ended.INTERRUPTED
    letters.fails = None
    outcomes = await made.outcomes(MicroBatch)
    assert (outcomes[0].position, outcomes[0].downstream, outcomes[0].records) == (110, 60, 10)
    assert letters.written == [(FIRST, 104)]
    assert len(made.asked.plans) == 1


async def test_a_transaction_without_its_dead_letters_is_undone_for_one_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    The dead letter of the first partition is refused: its records cannot be taken out of the transaction again.

    It alone has failed and pauses. The others may be planned again at once, and are written without it.
    """
    made, _ = _rig_with_letters(monkeypatch, FIRST)
    made.committer.fails_to_append = _TOO_LARGE
    outcomes = await made.outcomes()

    assert [(it.position, it.ended) for it in outcomes.values()] == [(100, Ended.INTERRUPTED), (100, Ended.OK)]
    assert outcomes[0].failure is not None
    assert "dead letters cannot be written to dead" in outcomes[0].failure.message
    assert made.committer.done[-1] == "undo"

    made.plans = [planned(SECOND)]
    assert (await made.outcomes())[1].position == 110


async def test_in_transactions_a_bad_record_is_known_until_its_dead_letter_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes a search to find it, and only its own partition waits."""
    made, _ = _rig_with_letters(monkeypatch)
    made.task.bad |= {it: BadRecord(100, "x", "USER_RAISED_EXCEPTION", "no good") for it in (FIRST, SECOND)}
    made.committer.fails_to_append = _TOO_LARGE
    outcomes = await made.outcomes()

    assert [(it.position, it.ended) for it in outcomes.values()] == [(100, Ended.INTERRUPTED), (100, Ended.OK)]
    assert made.task.bad.keys() == {FIRST, SECOND}
    made.committer.fails_to_append = None
    assert [it.position for it in (await made.outcomes()).values()] == [101, 101]
    assert not made.asked.plans


async def test_a_record_that_a_statement_fails_on_waits_for_its_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not looked for again, and other partitions go on."""
    made, letters = _rig_with_letters(monkeypatch)
    made.task.bad[FIRST] = BadRecord(100, "x", "USER_RAISED_EXCEPTION", "no good")
    letters.fails = _TOO_LARGE
    outcomes = await made.outcomes(MicroBatch)

    assert [(it.position, it.ended) for it in outcomes.values()] == [(100, Ended.INTERRUPTED), (110, Ended.OK)]
    letters.fails = None
    made.plans = [planned(FIRST)]
    assert (await made.outcomes(MicroBatch))[0].position == 101
    assert letters.written == [(FIRST, 100)]


@pytest.mark.parametrize(("error", "tries"), [(_TOO_LARGE, 2), (BrokerConnectionError("B", "1", "gone"), 1)])
async def test_dead_letters_are_tried_until_they_fail_for_all(
    monkeypatch: pytest.MonkeyPatch, error: Mm2Error, tries: int
) -> None:
    """A letter that is too large keeps no other one waiting; a cluster that is away is not asked for each."""
    made, letters = _rig_with_letters(monkeypatch, FIRST, SECOND)
    asked: list[PartitionPlan] = []

    async def refuse(_log: object, _plan: object, one: PartitionPlan, _bad_records: object) -> None:
        asked.append(one)
        raise error

    monkeypatch.setattr(DeadLetters, "write", refuse)
    outcomes = await made.outcomes(MicroBatch)

    assert [it.ended for it in outcomes.values()] == [Ended.INTERRUPTED] * 2
    assert len(asked) == tries
    assert not letters.written


async def test_what_waits_for_its_dead_letters_is_forgotten_with_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that was created again is at the same position, and none of its records is written."""
    made, letters = _rig_with_letters(monkeypatch, FIRST)
    made.plans = [attrs.evolve(planned(FIRST), topic_id="old")]
    letters.fails = _TOO_LARGE
    await made.outcomes(MicroBatch)
    letters.fails = None
    made.plans = [attrs.evolve(planned(FIRST), topic_id="new")]
    await made.outcomes(MicroBatch)

    assert len(made.asked.plans) == 2


@pytest.mark.parametrize("kind", [MicroBatch, TransactionalMicroBatch])
async def test_nothing_is_written_before_the_topic_of_the_dead_letters_is_there(
    monkeypatch: pytest.MonkeyPatch, kind: type[MicroBatch]
) -> None:
    """More replicas than brokers, the default with one broker, stop the topics, and not all of the flow's tasks."""
    made, letters = _rig_with_letters(monkeypatch)
    letters.fails = _TOO_FEW
    outcomes = await made.outcomes(kind)

    assert [it.ended for it in outcomes.values()] == [Ended.FAILED] * 2
    assert all(it.failure is not None and "replication.factor 3 > 1" in it.failure.message for it in outcomes.values())
    assert not made.asked.plans
