"""The source task group with epochs that only pretend."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import attrs
import pytest

from mm2py.connectors import measures as flow_measures
from mm2py.connectors.source import partitions as source_partitions
from mm2py.connectors.source.partitions import SourceTasks
from mm2py.core.source.progress import PartitionState
from mm2py.model.epoch import (
    RECREATED,
    Ended,
    EpochOutcome,
    EpochPlan,
    PartitionFailure,
)
from mm2py.model.flow import TopicPartition
from mm2py.model.state import PartitionStage, PartitionView, TaskState
from mm2py.pipeline.copy_job import EpochLostError
from mm2py.pipeline.spark.java import JavaMissingError
from mm2py.pipeline.spark.session import SparkStartError
from mm2py.telemetry.events import (
    CopyTaskLost,
    CopyTaskRecovered,
    EpochEnded,
    PartitionStopped,
    ResumedExactly,
    ResumeUnproven,
)
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock
from tests.support.eventually import eventually
from tests.support.flow_rig import DRAIN_S, EPOCH_S, source_context
from tests.support.source_tasks import (
    MARK,
    Answer,
    PretendedEpochs,
    copied,
    mirrored,
    positions,
    running,
)


async def test_epoch_follows_epoch() -> None:
    """Each copy task runs one epoch after the other, each from where the last one ended."""
    async with running() as group:
        await asyncio.sleep(20)

    for task in (0, 1):
        plans = [plan for _, plan in group.epochs.of_task(task)]
        assert [plan.epoch for plan in plans] == list(range(len(plans)))
        assert [plan.partitions[0].position for plan in plans] == [10 * number for number in range(len(plans))]
        assert [plan.partitions[0].is_unsure for plan in plans[:2]] == [True, False]


async def test_views_are_prepared_in_turns_with_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tens of thousands of partitions that takes a second; the next view finds those that stand still."""
    made: list[int] = []
    view_of = flow_measures._view_of

    def noted(state: PartitionState, *rest: Any, **facts: Any) -> PartitionView:
        made.append(state.source.partition)
        return view_of(state, *rest, **facts)

    async def others() -> None:
        while True:
            turns.append(len(made))
            await asyncio.sleep(0)

    def nothing_left(plan: EpochPlan) -> EpochOutcome:
        return copied(plan) if plan.epoch == 0 else attrs.evolve(copied(plan), partitions=())

    monkeypatch.setattr(source_partitions, "_VIEWS_AT_ONCE", 3)
    monkeypatch.setattr(flow_measures, "_view_of", noted)
    turns: list[int] = []
    async with running(nothing_left, partitions=8) as group:
        await asyncio.sleep(200)
        beside = asyncio.create_task(others())
        await group.tasks.prepare_views()
        beside.cancel()
        prepared = len(made)
        views = group.tasks.partition_views()

    assert {3, 6, 8} <= set(turns)
    assert prepared == len(made) == len(views) == 8


async def test_boundaries_of_copy_tasks_do_not_coincide() -> None:
    """Not all copy tasks pause at once, also after all their epochs ended early at one moment."""
    async with running() as group:
        await asyncio.sleep(20.5)
        for task in (0, 1):
            group.tasks.restart(task)
        await asyncio.sleep(20)

    for begun, ended in ((10, 20), (30, 40)):
        first, second = ([at for at, _ in group.epochs.of_task(task) if begun < at < ended] for task in (0, 1))
        assert min(abs(one - other) for one in first for other in second) == pytest.approx(EPOCH_S / 2, abs=0.01)
        assert max(later - at for at, later in itertools.pairwise(first)) <= EPOCH_S + 0.01


async def test_a_drain_takes_effect_at_once() -> None:
    """A drain ends running epochs and takes over what they did."""
    async with running() as group:
        await asyncio.sleep(1)
        begun = asyncio.get_running_loop().time()

    assert asyncio.get_running_loop().time() == begun
    assert sum(state.records for state in group.tasks.ledger.states.values()) == 40
    assert {event.task for event in group.events.of(EpochEnded)} == {0, 1}


async def test_a_refresh_without_news_leaves_states_as_they_are() -> None:
    """Their plans and views are kept; one whose remote topic takes other batches now is planned so."""
    async with running(partitions=2) as group:
        ledger = group.tasks.ledger
        before, look = dict(ledger.states), mirrored(0, 1)
        group.tasks.adopt(look, {})
        unchanged = dict(ledger.states)
        first, second = look.places
        place = attrs.evolve(look.places[second], max_message_bytes=10)
        group.tasks.adopt(attrs.evolve(look, places={**look.places, second: place}), {})

        assert all(unchanged[source] is state for source, state in before.items())
        assert ledger.states[first] is before[first]
        assert ledger.states[second].plan.max_message_bytes == 10


async def test_a_move_waits_for_its_holder() -> None:
    """A partition that moves is never held by two copy tasks, and is copied by the new one at once."""

    def hot(plan: EpochPlan) -> EpochOutcome:
        outcome = copied(plan)
        return attrs.evolve(
            outcome,
            partitions=tuple(
                attrs.evolve(it, bytes=100_000_000 if it.source.partition in (0, 2) else 10)
                for it in outcome.partitions
            ),
        )

    async with running(hot) as group:
        await asyncio.sleep(25)
        before = {it.source: it.task for it in group.tasks.partition_views()}
        await asyncio.sleep(10)
        after = {it.source: it.task for it in group.tasks.partition_views()}
        await asyncio.sleep(0.01)
        busy = dict(group.epochs.writers)

    assert before[TopicPartition("t", 0)] == before[TopicPartition("t", 2)]
    assert after[TopicPartition("t", 0)] != after[TopicPartition("t", 2)]
    assert busy == after


async def test_partitions_that_are_gone_keep_their_position() -> None:
    """A partition that is no longer mirrored is not planned, and its position is still due."""
    async with running(partitions=2, tasks_max=1) as group:
        await asyncio.sleep(1)
        group.tasks.adopt(mirrored(0), {})
        await asyncio.sleep(1)
        planned = [it.source.partition for it in group.epochs.plans[-1][1].partitions]

    assert planned == [0]
    assert TopicPartition("t", 1) in {
        position.source for position in group.tasks.ledger.due_positions(is_interval_over=True)
    }
    assert [view.source.partition for view in group.tasks.partition_views()] == [0]


@pytest.mark.parametrize(
    ("may_still_write", "quiet_s"),
    [pytest.param(True, EPOCH_S + DRAIN_S, id="unknown"), pytest.param(False, DRAIN_S, id="dead worker")],
)
async def test_a_lost_epoch_is_planned_again_alone(may_still_write: bool, quiet_s: float) -> None:
    """A lost copy task waits until the lost epoch can no longer write, then looks; the others go on meanwhile."""

    def lose_first(plan: EpochPlan) -> Answer:
        if plan.task == 0 and plan.epoch == 1:
            return EpochLostError(plan.name, "its Python worker was killed", may_still_write)
        return copied(plan)

    async with running(lose_first) as group:
        await asyncio.sleep(60)

    (at_lost, lost), (at_again, again) = group.epochs.of_task(0)[1:3]
    assert at_again - (at_lost + EPOCH_S) == pytest.approx(quiet_s + 1.0)
    assert [it.position for it in again.partitions] == [it.position for it in lost.partitions]
    assert all(it.is_unsure for it in again.partitions)
    assert sum(at_lost < at < at_again for at, _ in group.epochs.of_task(1)) >= 1
    assert [(event.task, event.cause) for event in group.events.of(CopyTaskLost)] == [
        (0, "its Python worker was killed")
    ]
    assert [(event.task, event.lost_epochs) for event in group.events.of(CopyTaskRecovered)] == [(0, 1)]


async def test_a_late_epoch_shows_until_one_is_back() -> None:
    """The copy task is late while its epoch is, while that may still write, and until the next one has ended."""
    lost = [EpochLostError("A->B", "it was late", may_still_write=True, is_late=True)]
    async with running(lambda plan: lost.pop() if lost else copied(plan), partitions=1, tasks_max=1) as group:
        group.epochs.late.add(0)
        await asyncio.sleep(0.1)
        while_it_hangs = group.tasks.task_views()[0].state
        group.epochs.late.clear()
        await asyncio.sleep(EPOCH_S)
        while_it_may_write, ailing = group.tasks.task_views()[0].state, group.tasks.ailing()
        await eventually(lambda: len(group.epochs.plans) == 2, within_s=60, what="it is planned again")
        while_the_next_one_runs = group.tasks.task_views()[0].state
        await asyncio.sleep(EPOCH_S + 0.1)
        afterwards = group.tasks.task_views()[0].state

    assert [while_it_hangs, while_it_may_write, while_the_next_one_runs] == [TaskState.LATE] * 3
    assert afterwards is TaskState.RUNNING
    assert ailing == (0,)


async def test_losses_back_off() -> None:
    """A copy task that is lost again and again pauses longer and longer, and shows why."""
    async with running(lambda plan: EpochLostError(plan.name, "boom", False), partitions=1, tasks_max=1) as group:
        await asyncio.sleep(60)
        (view,) = group.tasks.task_views()

    pauses = [event.retry_in_s - DRAIN_S for event in group.events.of(CopyTaskLost)]
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert (view.state, view.last_error, view.lost_epochs) == (TaskState.BACKING_OFF, "boom", len(pauses))


async def test_a_drain_ends_a_pause() -> None:
    """A copy task that pauses after a loss does not hold up a drain."""
    async with running(lambda plan: EpochLostError(plan.name, "boom"), partitions=1, tasks_max=1):
        await asyncio.sleep(6)
        begun = asyncio.get_running_loop().time()

    assert asyncio.get_running_loop().time() == begun


async def test_without_java_the_flow_stops() -> None:
    """An error that says the flow must stop ends the group."""
    with pytest.raises(ExceptionGroup) as failure:
        async with running(refusals=[JavaMissingError("java on the PATH")]):
            await asyncio.sleep(60)

    assert failure.group_contains(JavaMissingError)


async def test_it_waits_for_spark() -> None:
    """While Spark cannot be started the copy task tries again and again, and then copies."""
    refusals = [SparkStartError("spark://h:1", "refused") for _ in range(3)]
    async with running(partitions=1, tasks_max=1, refusals=refusals) as group:
        await asyncio.sleep(8)

    assert [event.retry_in_s for event in group.events.of(CopyTaskLost)] == [1.0, 2.0, 4.0]
    assert group.epochs.plans[0][0] == 7.0


async def test_a_drain_does_not_wait_for_spark() -> None:
    """Copy tasks that wait until Spark is up end at once, and nothing is copied."""
    begun = asyncio.get_running_loop().time()
    async with running(partitions=2, tasks_max=2, starts_s=600) as group:
        await asyncio.sleep(1)

    assert asyncio.get_running_loop().time() - begun == pytest.approx(1)
    assert group.epochs.plans == []


async def test_a_stopped_partition_stops_alone() -> None:
    """A partition that needs attention is tried again at long intervals, the others go on without it."""
    failure = PartitionFailure("corrupt record batch", "check the disk", "CorruptBatchError", 17)

    def fail_one(plan: EpochPlan) -> EpochOutcome:
        outcome = copied(plan)
        return attrs.evolve(
            outcome,
            partitions=tuple(
                attrs.evolve(it, ended=Ended.FAILED, failure=failure, position=0, records=0)
                if it.source.partition == 0
                else it
                for it in outcome.partitions
            ),
        )

    async with running(fail_one, partitions=2, tasks_max=1) as group:
        await asyncio.sleep(120)
        stopped, fine = group.tasks.partition_views()

    tried = [at for at, plan in group.epochs.plans if TopicPartition("t", 0) in {it.source for it in plan.partitions}]
    told = group.events.of(PartitionStopped)
    assert (stopped.stage, stopped.failure) == (PartitionStage.STOPPED, failure)
    assert (fine.stage, fine.failure) == (PartitionStage.COPYING, None)
    assert fine.records > 200
    assert len(tried) == len(told) == 5
    assert (told[0].ended, told[0].offset, told[0].hint) == ("failed", 17, "check the disk")


async def test_a_partition_is_planned_as_soon_as_its_pause_is_over() -> None:
    """A stopped partition does not wait for the end of the others' epoch once its pause is over."""
    failures = iter([True])

    def fail_once(plan: EpochPlan) -> EpochOutcome:
        outcome = copied(plan)
        if next(failures, False):
            first, *others = outcome.partitions
            failed = attrs.evolve(first, ended=Ended.FAILED, failure=PartitionFailure("no"), position=0)
            return attrs.evolve(outcome, partitions=(failed, *others))
        return outcome

    async with running(fail_once, partitions=2, tasks_max=1) as group:
        await asyncio.sleep(30)

    at = [at for at, plan in group.epochs.plans if len(plan.partitions) == 2]
    assert 5.0 <= at[1] - EPOCH_S < 6.0


async def test_a_recreated_topic_is_put_in_question() -> None:
    """A position is not used for another topic of its name: nothing is copied until the doubt is settled."""
    async with running(partitions=1, tasks_max=1) as group:
        await asyncio.sleep(1)
        look = mirrored(0, topic_id="id-2")
        group.tasks.adopt(look, positions(look))
        group.tasks.adopt(look, positions(look))
        await asyncio.sleep(60)
        (state,) = group.tasks.doubts.questions()
        for _ in range(3):
            group.tasks.doubts.stop(state.source, RECREATED)
        (view,) = group.tasks.partition_views()

    (told,) = group.events.of(PartitionStopped)
    assert (state.ended, view.stage, view.bytes_per_s) == (Ended.RECREATED, PartitionStage.STOPPED, 0.0)
    assert told.retry_in_s is view.retry_in_s is None
    assert len(group.epochs.plans) == 1


async def test_an_outcome_of_the_old_topic_changes_nothing_of_the_new_one() -> None:
    """Once a partition goes on with the new topic, what an epoch says of the one before it is not about it."""
    async with running(partitions=1, tasks_max=1) as group:
        await asyncio.sleep(1)
        (state,) = group.tasks.ledger.states.values()
        group.tasks.doubts.reset(attrs.evolve(state, topic_id="id-2", position=500), breaks_history=True)
        await asyncio.sleep(EPOCH_S)
        positions_then = [plan.partitions[0].position for _, plan in group.epochs.plans]

    assert positions_then == [0, 500]


async def test_a_partition_in_question_keeps_no_other_waiting() -> None:
    """While one partition is in question for a minute, the other is copied in every epoch; then both are."""

    def out_of_range(plan: EpochPlan) -> EpochOutcome:
        outcome = copied(plan)
        if plan.epoch:
            return outcome
        first, *others = outcome.partitions
        return attrs.evolve(
            outcome, partitions=(attrs.evolve(first, ended=Ended.OUT_OF_RANGE, position=0, records=0), *others)
        )

    broken: list[PartitionState] = []
    async with running(out_of_range, partitions=2, tasks_max=1) as group:
        group.tasks.doubts.break_listeners.append(broken.append)
        await asyncio.wait_for(group.tasks.doubts.has_questions.wait(), 10)
        await asyncio.sleep(60)
        (state,) = group.tasks.doubts.questions()
        now = asyncio.get_running_loop().time()
        after = attrs.evolve(state, position=500, downstream=99, is_unsure=False, is_questioned=False, retry_at=now)
        group.tasks.doubts.reset(after, breaks_history=True)
        await asyncio.sleep(12)

    counts = [len(plan.partitions) for _, plan in group.epochs.plans]
    again = next(plan for _, plan in group.epochs.plans[1:] if len(plan.partitions) > 1)
    assert counts[0] == 2
    assert set(counts[1:12]) == {1}
    assert again.by_source[state.source].position == 500
    assert broken == [after]
    assert not group.events.of(PartitionStopped)


async def test_a_cleared_partition_continues_where_it_was() -> None:
    """If nothing is wrong after all, the partition is planned again after a moment, and nothing is reported."""
    async with running(partitions=1, tasks_max=1) as group:
        await asyncio.sleep(1)
        look = mirrored(0, topic_id="id-2")
        group.tasks.adopt(look, positions(look))
        await asyncio.sleep(10)
        (state,) = group.tasks.doubts.questions()
        group.tasks.doubts.clear(state.source)
        await asyncio.sleep(10)

    assert len(group.epochs.plans) > 1
    assert group.epochs.plans[-1][1].partitions[0].position >= state.position
    assert not group.events.of(PartitionStopped)


async def test_resumes_are_told() -> None:
    """What a resume found at the target is reported, exact or unproven."""

    def resume(plan: EpochPlan) -> EpochOutcome:
        if plan.epoch:
            return copied(plan)
        exact, unproven = copied(plan).partitions
        return attrs.evolve(
            copied(plan),
            partitions=(
                attrs.evolve(exact, resumed_records=7),
                attrs.evolve(unproven, ended=Ended.UNPROVEN, position=0, downstream=-1, records=0),
            ),
        )

    async with running(resume, partitions=2, tasks_max=1) as group:
        await asyncio.sleep(6)

    assert [(event.source.partition, event.records) for event in group.events.of(ResumedExactly)] == [(0, 7)]
    assert [event.source.partition for event in group.events.of(ResumeUnproven)] == [1]
    again = group.epochs.plans[1][1].partitions[1]
    assert (again.position, again.is_unsure) == (0, False)


async def test_a_partition_without_a_producer_keeps_no_other_waiting() -> None:
    """It is planned once the positions topic names who writes it; until then its view says what keeps it back."""
    async with running(partitions=1, tasks_max=1) as group:
        look = mirrored(0, 1)
        known = positions(look)
        group.tasks.adopt(look, known, unwritten={TopicPartition("t", 1)})
        await asyncio.sleep(EPOCH_S * 1.5)
        (waiting,) = group.tasks.ledger.unfenced()
        group.tasks.ledger.note_unfenced([waiting], PartitionFailure("the target is away"))
        held_back = group.tasks.partition_views()[1]
        before = [plan for _, plan in group.epochs.plans]
        group.tasks.note_fenced([attrs.evolve(waiting.standing, producer=MARK)])
        await asyncio.sleep(0.1)

    assert all(len(plan.partitions) == 1 for plan in before)
    assert (held_back.stage, held_back.failure) == (
        PartitionStage.BACKING_OFF,
        PartitionFailure("the target is away"),
    )
    assert [(it.source.partition, it.producer) for it in group.epochs.plans[-1][1].partitions] == [(0, MARK), (1, MARK)]
    assert group.tasks.ledger.states[TopicPartition("t", 1)].stage is PartitionStage.COPYING


async def test_only_partitions_without_a_producer_leave_a_copy_task_idle() -> None:
    """A copy task that may plan nothing yet waits to be told, and does not ask again and again."""
    clock = LoopClock()
    epochs = PretendedEpochs()
    tasks = SourceTasks(source_context(clock, EventLog(clock)), epochs)
    look = mirrored(0)
    tasks.adopt(look, positions(look), unwritten=set(look.places))
    async with asyncio.TaskGroup() as group:
        group.create_task(tasks.run())
        await asyncio.sleep(60)
        assert tasks.ledger.has_unfenced.is_set()
        assert epochs.plans == []
        tasks.note_fenced([attrs.evolve(it.standing, producer=MARK) for it in tasks.ledger.unfenced()])
        await asyncio.sleep(1)
        tasks.drain()

    assert len(epochs.plans) == 1
