"""An epoch of records, in transactions or not: what a range that failed or was late changes."""

from __future__ import annotations

from collections.abc import Collection

import attrs
import pytest

from mm2py.model.epoch import Ended, EpochPlan
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.transform.jobs import allowed_s
from mm2py.pipeline.transform.micro_batch import MicroBatch
from mm2py.pipeline.transform.results import MicroBatchResult
from mm2py.pipeline.transform.transactional_micro_batch import TransactionalMicroBatch
from tests.support.clocks import LoopClock
from tests.support.micro_batches import FIRST, SECOND, PretendedJobs, failed, micro_batch_rig, planned, written


async def test_a_range_that_failed_takes_no_other_one_with_it() -> None:
    """What was written at least once counts, and only the rest is looked for at the target."""

    def answer(plan: EpochPlan) -> MicroBatchResult:
        sure, other = plan.partitions
        return MicroBatchResult((written(sure),), {other.source: "Python worker exited unexpectedly"})

    outcomes = await micro_batch_rig(answer).outcomes(MicroBatch)

    assert (outcomes[0].position, outcomes[0].ended, outcomes[0].is_unsure) == (110, Ended.OK, False)
    assert (outcomes[1].position, outcomes[1].ended, outcomes[1].is_unsure) == (100, Ended.INTERRUPTED, True)


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


@attrs.define
class SlowJobs(PretendedJobs):
    """Jobs that are given up unless their ranges of offsets are short."""

    clock: LoopClock = attrs.field(factory=LoopClock)

    async def run(self, plan: EpochPlan, clock: object, alone: Collection[TopicPartition]) -> MicroBatchResult:
        if sum((one.until or 0) - one.position for one in plan.partitions) == 1:
            return await super().run(plan, clock, alone)
        self.plans.append(plan)
        await self.clock.sleep(allowed_s(plan))
        return failed(plan, "it was late and was stopped", is_late=True)


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
