"""Copy tasks that obey: pauses of topics and partitions, rate limits, restarts. Epochs only pretend."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from mm2py.connectors.source.rates import RateShares
from mm2py.core.herder import overrides as verbs
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import (
    RECREATED,
    CopyLimits,
    Ended,
    EpochOutcome,
    EpochPlan,
    PartitionFailure,
    PartitionPlan,
)
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.overrides import NO_OVERRIDES, Overrides, RateLimit
from mm2py.model.rates import Metered, RateShare, RateUse, Unit
from mm2py.model.state import PartitionStage, TaskState
from mm2py.pipeline.copy_job import EpochLostError
from tests.support.clocks import LoopClock
from tests.support.flow_rig import DRAIN_S, EPOCH_S, FLOW
from tests.support.source_tasks import Answer, Group, copied, running


_T0, _T1 = TopicPartition("t", 0), TopicPartition("t", 1)
_BYTES = Metered("", Unit.BYTES)
_NODE = ClusterEndpoint("A", ("a:1",))


def busy(group: Group) -> set[TopicPartition]:
    return set(group.epochs.writers)


def stages(group: Group) -> dict[int, PartitionStage]:
    return {view.source.partition: view.stage for view in group.tasks.partition_views()}


async def test_a_paused_partition_is_left_out_at_once() -> None:
    """The epoch that copies it ends and the next one goes on without it; its copy task keeps it for later."""
    async with running(partitions=4, tasks_max=2) as group:
        await asyncio.sleep(1)
        owners = {view.source: view.task for view in group.tasks.partition_views()}
        other = next(task for task in (0, 1) if task != owners[_T0])
        epochs = {task: len(group.epochs.of_task(task)) for task in (0, 1)}
        group.tasks.apply_overrides(verbs.pause_partition(NO_OVERRIDES, _T0))
        await asyncio.sleep(0.01)
        paused, begun = busy(group), {task: len(group.epochs.of_task(task)) for task in (0, 1)}
        await asyncio.sleep(100)
        still, view = busy(group), group.tasks.partition_views()[0]
        group.tasks.apply_overrides(NO_OVERRIDES)
        await asyncio.sleep(0.01)
        resumed, after = busy(group), {view.source: view.task for view in group.tasks.partition_views()}

    assert _T0 not in paused
    assert len(paused) == 3
    assert _T0 not in still
    assert begun[other] == epochs[other], "the other copy task's epoch went on"
    assert (view.stage, view.is_paused, view.bytes_per_s, view.position) == (PartitionStage.PAUSED, True, 0.0, 10)
    assert len(resumed) == 4
    assert after == owners


async def test_a_paused_topic_leaves_copy_tasks_idle() -> None:
    """No epoch runs for nothing, and none shows the rate of its last epoch; new partitions of the topic wait too."""
    async with running(partitions=2, tasks_max=2) as group:
        await asyncio.sleep(3 * EPOCH_S)
        rates = [view.records_per_s for view in group.tasks.task_views()]
        group.tasks.apply_overrides(verbs.pause_topic(NO_OVERRIDES, "t"))
        await asyncio.sleep(60)
        paused_rates = [(view.records_per_s, view.bytes_per_s) for view in group.tasks.task_views()]
        epochs = len(group.epochs.plans)
        states = {view.state for view in group.tasks.task_views()}
        await asyncio.sleep(60)
        later = len(group.epochs.plans)
        shown = set(stages(group).values())
        group.tasks.apply_overrides(NO_OVERRIDES)
        await asyncio.sleep(0.01)
        resumed = len(busy(group))

    assert all(rates)
    assert paused_rates == [(0.0, 0.0)] * 2
    assert (epochs, later) == (later, epochs)
    assert (states, shown, resumed) == ({TaskState.IDLE}, {PartitionStage.PAUSED}, 2)


async def test_a_copy_task_waits_until_spark_is_up() -> None:
    """It is not shown as running before Spark can run it."""
    async with running(partitions=2, tasks_max=1, starts_s=30) as group:
        await asyncio.sleep(29)
        before = [view.state for view in group.tasks.task_views()]
        await asyncio.sleep(2)
        after = [view.state for view in group.tasks.task_views()]

    assert (before, after) == ([TaskState.WAITING_FOR_SLOT], [TaskState.RUNNING])


async def test_overrides_from_before_the_first_epoch_hold() -> None:
    """A copy task that begins under an order never plans what is paused."""
    async with running(partitions=2, tasks_max=1) as group:
        group.tasks.apply_overrides(Overrides(partitions=frozenset({_T1})))
        await asyncio.sleep(30)

    assert all(it.source == _T0 for _, plan in group.epochs.plans for it in plan.partitions)


async def test_a_paused_topic_is_not_examined() -> None:
    """A topic that is paused while it is created again is not judged before it is resumed."""
    async with running(partitions=2, tasks_max=1) as group:
        await asyncio.sleep(1)
        state = group.tasks.ledger.states[_T0]
        group.tasks.doubts.question(state, Ended.RECREATED, PartitionFailure("another topic"))
        group.tasks.apply_overrides(verbs.pause_topic(NO_OVERRIDES, "t"))
        await asyncio.sleep(1)
        paused = group.tasks.doubts.questions()
        group.tasks.doubts.has_questions.clear()
        group.tasks.apply_overrides(NO_OVERRIDES)
        resumed = group.tasks.doubts.questions()
        is_woken = group.tasks.doubts.has_questions.is_set()

    assert (paused, [it.source for it in resumed], is_woken) == ((), [_T0], True)


async def test_a_restart_tries_at_once_what_is_pausing() -> None:
    """A partition that needs an operator is tried again without its pause, and the other copy task is left alone."""

    def fails(plan: EpochPlan) -> Answer:
        failure = PartitionFailure("a batch is damaged")
        outcome = copied(plan)
        if plan.task == 0:
            failed = [attrs.evolve(it, ended=Ended.FAILED, failure=failure) for it in outcome.partitions]
            return attrs.evolve(outcome, partitions=tuple(failed))
        return outcome

    async with running(fails, partitions=2, tasks_max=2) as group:
        await asyncio.sleep(300)
        before = group.tasks.ailing()
        tried, others = len(group.epochs.of_task(0)), len(group.epochs.of_task(1))
        pause_s = group.tasks.partition_views()[0].retry_in_s or 0
        group.tasks.restart(0)
        await asyncio.sleep(0.01)
        after = len(group.epochs.of_task(0)), len(group.epochs.of_task(1))

    assert before == (0,)
    assert pause_s > 10
    assert after == (tried + 1, others)


async def test_a_restart_has_what_its_history_stopped_checked_at_once() -> None:
    """Only a check of both clusters may go on with it: the copy task itself has nothing to plan, and waits."""
    async with running(partitions=2, tasks_max=1) as group:
        await asyncio.sleep(1)
        tasks, asked = group.tasks, list[int]()
        for state in list(tasks.ledger.states.values()):
            tasks.doubts.question(state, Ended.RECREATED, RECREATED)
            tasks.doubts.stop(state.source, RECREATED)
        await asyncio.sleep(1)
        tasks.doubts.has_questions.clear()
        before, take = tasks.doubts.questions(), tasks.take_partitions
        tasks.take_partitions = lambda task: asked.append(task) or take(task)  # type: ignore[func-returns-value, method-assign]
        tasks.restart(0)
        for _ in range(100):
            await asyncio.sleep(0)
        questions, is_woken = tasks.doubts.questions(), tasks.doubts.has_questions.is_set()

    assert before == ()
    assert ([it.source for it in questions], is_woken) == ([_T0, _T1], True)
    assert asked == [0]


async def test_a_restart_does_not_overtake_a_lost_epoch() -> None:
    """Its back-off is forgotten, but not the time in which the lost epoch may still write."""

    def lost(plan: EpochPlan) -> Answer:
        return EpochLostError(plan.name, "its executor went away", may_still_write=True)

    async with running(lost, partitions=1, tasks_max=1) as group:
        await asyncio.sleep(EPOCH_S + 0.1)
        group.tasks.restart(0)
        await group.epochs.lost.until_quiet(FLOW)  # as the next life of the group does
        quiet_at = asyncio.get_running_loop().time()
        await asyncio.sleep(EPOCH_S)
        began = [at for at, _ in group.epochs.plans]

    assert began[1] == quiet_at == pytest.approx(2 * EPOCH_S + DRAIN_S)


async def test_a_new_limit_ends_the_epochs_that_run() -> None:
    """It counts from the next epoch on, which begins at once; so does its end."""
    async with running(partitions=2, tasks_max=2) as group:
        await asyncio.sleep(1)
        group.tasks.apply_overrides(verbs.set_limit(NO_OVERRIDES, RateLimit(bytes_per_s=1_000.0)))
        await asyncio.sleep(0.01)
        limited = [group.epochs.of_task(task)[-1][1].rates for task in (0, 1)]
        group.tasks.apply_overrides(NO_OVERRIDES)
        await asyncio.sleep(0.01)
        lifted = [group.epochs.of_task(task)[-1][1].rates for task in (0, 1)]

    assert limited == [(RateShare(_BYTES, 500.0),)] * 2
    assert lifted == [(), ()]


def a_plan(task: int, rates: tuple[RateShare, ...], *partitions: TopicPartition) -> EpochPlan:
    planned = tuple(PartitionPlan(it, f"A.{it.topic}", 0, -1, is_unsure=False) for it in partitions)
    return EpochPlan(FLOW, task, 0, _NODE, _NODE, planned, CopyLimits(), 5_000, 2_000, rates=rates)


def an_outcome(plan: EpochPlan, *uses: RateUse) -> EpochOutcome:
    return EpochOutcome(plan.flow, plan.task, plan.epoch, elapsed_s=5.0, rates=uses)


async def test_an_idle_copy_task_s_part_goes_to_the_busy_one() -> None:
    """After an epoch in which one was held up and the other had nothing to do, the one has nearly all of the limit."""
    shares = RateShares(LoopClock())
    owners = {_T0: 0, _T1: 1}
    shares.apply_overrides(verbs.set_limit(NO_OVERRIDES, RateLimit(bytes_per_s=1_000.0)))
    for task, waited_s in ((0, 4.0), (1, 0.0)):
        plan = a_plan(task, shares.plan(task, [TopicPartition("t", task)], owners), TopicPartition("t", task))
        shares.account(plan, an_outcome(plan, RateUse(_BYTES, waited_s * 500, 0.0, waited_s)), 5.0)
        shares.put_back(plan)

    (idle,) = shares.plan(1, [_T1], owners)
    (held_up,) = shares.plan(0, [_T0], owners)

    assert (held_up.per_s, idle.per_s) == (pytest.approx(975.0), pytest.approx(25.0))


async def test_a_bucket_fills_between_epochs() -> None:
    """The boundary is no time lost: what an epoch left, and what came while the next one began, may be taken."""
    shares = RateShares(LoopClock())
    shares.apply_overrides(verbs.set_limit(NO_OVERRIDES, RateLimit(bytes_per_s=1_000.0)))
    plan = a_plan(0, shares.plan(0, [_T0], {_T0: 0}), _T0)
    shares.account(plan, an_outcome(plan, RateUse(_BYTES, 5_000, -700.0, 1.0)), took_s=5.1)
    shares.put_back(plan)
    await asyncio.sleep(0.2)

    (share,) = shares.plan(0, [_T0], {_T0: 0})

    assert (share.per_s, share.level) == (1_000.0, pytest.approx(-400.0))


async def test_a_changed_limit_begins_without_debt() -> None:
    """What was owed to a limit that was replaced is forgotten; other limits keep their buckets."""
    shares, topic = RateShares(LoopClock()), Metered("t", Unit.RECORDS)
    overrides = verbs.set_topic_limit(verbs.set_limit(NO_OVERRIDES, RateLimit(10.0)), "t", RateLimit(records_per_s=5.0))
    is_new = shares.apply_overrides(overrides)
    is_same = shares.apply_overrides(overrides)
    plan = a_plan(0, shares.plan(0, [_T0], {_T0: 0}), _T0)
    shares.account(plan, an_outcome(plan, RateUse(_BYTES, 1, -900.0, 5.0), RateUse(topic, 1, -50.0, 5.0)), 5.0)
    shares.apply_overrides(verbs.set_limit(overrides, RateLimit(1_000.0)))

    found = {share.of: share.level for share in shares.plan(0, [_T0], {_T0: 0})}

    assert (is_new, is_same) == (True, False)
    assert found == {_BYTES: 0.0, topic: -50.0}


async def test_a_topic_s_limit_concerns_those_who_copy_it() -> None:
    """It is shared by its copy tasks alone."""
    shares, other = RateShares(LoopClock()), TopicPartition("u", 0)
    shares.apply_overrides(verbs.set_topic_limit(NO_OVERRIDES, "t", RateLimit(bytes_per_s=100.0)))
    owners = {_T0: 0, _T1: 0, other: 1}

    assert shares.plan(1, [other], owners) == ()
    assert [share.per_s for share in shares.plan(0, [_T0, _T1], owners)] == [100.0]


async def test_a_node_uses_its_part_of_a_limit() -> None:
    """Where several nodes copy a flow, each has as much of a limit as it has of the partitions that it is for."""
    shares, theirs = RateShares(LoopClock()), TopicPartition("u", 0)
    limits = verbs.set_limit(NO_OVERRIDES, RateLimit(bytes_per_s=1_200.0))
    shares.apply_overrides(verbs.set_topic_limit(limits, "t", RateLimit(bytes_per_s=100.0)))
    shares.take_part([_T0], [_T0, _T1, theirs])

    found = {share.of.topic: share.per_s for share in shares.plan(0, [_T0], {_T0: 0})}

    assert found == {"": pytest.approx(400.0), "t": pytest.approx(50.0)}
