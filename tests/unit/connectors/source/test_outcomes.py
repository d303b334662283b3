"""What came of an epoch is accounted for in turns of the event loop, and the next plan waits only for what it needs."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import pytest

from mm2py.connectors.measures import FlowMeasures
from mm2py.connectors.source.partitions import SourceTasks
from mm2py.core.source import progress
from mm2py.model.epoch import EpochPlan
from mm2py.model.flow import TopicPartition
from mm2py.telemetry.events import EpochEnded
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock
from tests.support.flow_rig import DRAIN_S, EPOCH_S, SETTINGS, source_context
from tests.support.source_tasks import PretendedEpochs, copied, mirrored, positions


def _planned(partitions: int, measures: FlowMeasures | None = None) -> tuple[SourceTasks, EventLog, EpochPlan]:
    """Plan an epoch of one of two copy tasks that have so many partitions."""
    clock = LoopClock()
    events = EventLog(clock)
    tasks = SourceTasks(source_context(clock, events), PretendedEpochs(), measures)
    look = mirrored(*range(partitions))
    tasks.adopt(look, positions(look))
    plan = EpochPlan(
        *(SETTINGS.flow, 0, 0, SETTINGS.source, SETTINGS.target, tasks.take_partitions(0)),
        limits=SETTINGS.source_connector.limits, epoch_ms=1_000, drain_ms=1_000,
    )  # fmt: skip
    return tasks, events, plan


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_large_outcome_leaves_others_their_turn(is_cancelled: bool) -> None:
    """While thousands of partitions are accounted for, others run; all are accounted for even if that is cancelled."""
    tasks, events, plan = _planned(4_000)
    accounting = asyncio.ensure_future(tasks.outcomes.account(plan, copied(plan), took_s=1.0))
    turns = 0
    while not accounting.done():
        await asyncio.sleep(0)
        turns += 1
        if is_cancelled:
            accounting.cancel()

    assert accounting.cancelled() == is_cancelled
    assert turns >= (2 if is_cancelled else 4)
    assert {tasks.ledger.states[it.source].position for it in plan.partitions} == {10}
    await asyncio.sleep(0)
    assert [event.partitions for event in events.of(EpochEnded)] == [len(plan.partitions)]


async def test_the_next_plan_waits_for_no_partition_without_news() -> None:
    """
    Those of which an epoch tells nothing are accounted for in later turns; by then they may be gone.

    What they carried fades, and their end at the source is known to be where it was. Others are measured then, too.
    """
    measures = FlowMeasures(LoopClock())
    tasks, events, plan = _planned(4_000, measures)
    states, asked_s = tasks.ledger.states, measures.asked_s
    await tasks.outcomes.account(plan, attrs.evolve(copied(plan), fetches=1), took_s=1.0)
    await asyncio.sleep(0.5)
    first, gone, *others = (it.source for it in plan.partitions)
    carried = {source: states[source].bytes_per_s or 0.0 for source in (first, *others)}
    whole = copied(plan)
    await tasks.outcomes.account(plan, attrs.evolve(whole, partitions=whole.partitions[:1], fetches=1), took_s=1.0)

    assert {asked_s(source) for source in (first, *others)} == {0.5}
    assert len(events.of(EpochEnded)) == 1
    await asyncio.sleep(0)
    assert asked_s(first) == 0.0
    states.drop(gone)
    await asyncio.sleep(0.1)
    assert len(events.of(EpochEnded)) == 2
    assert all((states[source].bytes_per_s or 0.0) < carried[source] for source in others)


@pytest.mark.parametrize("are_idle", [False, True])
@pytest.mark.parametrize("why", [{"throttled_ms": 9_000}, {"is_complete": False}])
async def test_an_answer_that_does_not_come_tells_no_end(are_idle: bool, why: dict[str, Any]) -> None:
    """
    Brokers answer a client above its quota with nothing, however much there is to read. Others answer in time.

    Taken for news that no partition has anything new, that would show a lag of 0 where all grow.
    """
    measures = FlowMeasures(LoopClock())
    tasks, _, plan = _planned(3, measures)
    await tasks.outcomes.account(plan, attrs.evolve(copied(plan), fetches=1), took_s=1.0)
    if are_idle:  # planned as they are, without a rate that fades
        states = tasks.ledger.states
        for it in plan.partitions:
            states[it.source] = attrs.evolve(states[it.source], bytes_per_s=0.0)
        plan = attrs.evolve(plan, partitions=tuple(states[it.source].plan for it in plan.partitions))
    await asyncio.sleep(0.5)
    empty = attrs.evolve(copied(plan), partitions=(), fetches=1, **why)
    await tasks.outcomes.account(plan, empty, took_s=1.0)
    await asyncio.sleep(0.1)

    assert {measures.asked_s(it.source) for it in plan.partitions} == {0.6}


@pytest.mark.parametrize("is_told", [False, True])
async def test_what_was_learnt_before_a_standstill_is_as_old_as_it(is_told: bool) -> None:
    """
    The process is stopped for two minutes while an epoch runs. The answer that was there before is read as it wakes.

    The epoch ends at once, and its lag is of before. It counts again once the next epoch, or a look, has found it out.
    """
    measures = FlowMeasures(LoopClock())
    tasks, _, plan = _planned(3, measures)
    await tasks.outcomes.account(plan, attrs.evolve(copied(plan), fetches=1), took_s=1.0)
    await asyncio.sleep(120)
    late = attrs.evolve(copied(plan), partitions=copied(plan).partitions if is_told else (), fetches=1)
    await tasks.outcomes.account(plan, late, took_s=119.0)
    await asyncio.sleep(0)
    after = {measures.asked_s(it.source) for it in plan.partitions}
    await tasks.outcomes.account(plan, late, took_s=1.0)
    await asyncio.sleep(0)

    assert after == {119.0 - (EPOCH_S + DRAIN_S)}
    assert {measures.asked_s(it.source) for it in plan.partitions} == {0.0}


async def test_an_end_from_before_a_standstill_takes_no_newer_one_s_place() -> None:
    """
    As the process wakes, the source is asked for its end, and reports 60. Then an epoch ends whose answer is of before.

    What it copied counts. What is left is counted up to the newer end.
    """
    measures = FlowMeasures(LoopClock())
    tasks, _, plan = _planned(3, measures)
    states = tasks.ledger.states
    await asyncio.sleep(120)
    for source in plan.by_source:
        states[source] = progress.look(states[source], log_start_offset=0, high_watermark=60)
        measures.look(states[source])
    await tasks.outcomes.account(plan, attrs.evolve(copied(plan), fetches=1), took_s=119.0)
    late = {(states[it].position, states[it].lag) for it in plan.by_source}
    await tasks.outcomes.account(plan, attrs.evolve(copied(plan), fetches=1), took_s=1.0)

    assert late == {(10, 50)}
    assert {(states[it].position, states[it].lag) for it in plan.by_source} == {(10, 0)}


async def test_positions_that_are_written_at_once_have_their_translations() -> None:
    """What listeners are told in a later turn, they are told before if someone asks for it; and once."""
    tasks, _, plan = _planned(3, FlowMeasures(LoopClock()))
    told: list[tuple[TopicPartition, int]] = []
    tasks.outcomes.listeners.append(lambda outcome, begun_at: told.append((outcome.source, begun_at)))
    await tasks.outcomes.account(plan, copied(plan), took_s=1.0)
    before = len(told)
    tasks.outcomes.measure()
    at_once = list(told)
    await asyncio.sleep(0)

    assert before == 0
    assert at_once == told == [(it.source, it.position) for it in plan.partitions]
