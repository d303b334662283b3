"""What is known of very many partitions without a look at each is what a look at each of them finds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from mm2py.connectors.context import FlowContext
from mm2py.connectors.measures import FlowMeasures
from mm2py.connectors.source.group import SourceGroup
from mm2py.connectors.source.idle_source import IdleSourceWatch
from mm2py.connectors.source.partitions import SourceTasks
from mm2py.core.lag import tells_end
from mm2py.core.source import due
from mm2py.model.epoch import Ended, EpochOutcome, EpochPlan, PartitionFailure, PartitionOutcome, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.overrides import NO_OVERRIDES
from mm2py.model.state import FlowState, FlowView
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock
from tests.support.flow_rig import SETTINGS, source_context
from tests.support.source_tasks import PretendedEpochs, copied, mirrored, positions


PARTITIONS = 12
STEPS = 200
#: A look at each partition records that it was at rest, so it does not come after each step.
COMPARED = 0.15
UNREACHED = PartitionFailure("the broker did not answer")


class LookingMeasures(FlowMeasures):
    """Those that look at each partition that rests after each epoch."""

    tasks: SourceTasks

    def rest(self, plan: EpochPlan, others: Collection[TopicPartition], *, at: float | None = None) -> None:
        states = self.tasks.ledger.states
        for source in plan.by_source:
            if source not in others and tells_end(None, states[source], fetches=1):
                self.look(states[source], at=at)


class Mirror:
    """A flow's source tasks that run no epoch by themselves."""

    def __init__(self, context: FlowContext, measures: FlowMeasures) -> None:
        self.measures = measures
        measures.lag_holds_s = 40.0
        self.tasks = tasks = SourceTasks(context, PretendedEpochs(), measures)
        look = mirrored(*range(PARTITIONS))
        tasks.adopt(look, positions(look))
        self.ledger = tasks.ledger
        self.group = SourceGroup(context, PretendedEpochs(), None, (), measures)  # type: ignore[arg-type]
        self.group._source_tasks, self.group.state = tasks, FlowState.RUNNING
        self.epochs: dict[int, EpochPlan] = {}
        source = SimpleNamespace(endpoint=SETTINGS.source)
        life: Any = SimpleNamespace(
            source=source, tasks=tasks, topics=SimpleNamespace(watch=lambda see: see({"t": ""}))
        )
        self.watch = IdleSourceWatch(context, measures, life)

    def measured(self, source: TopicPartition) -> tuple[object, ...]:
        """Return what is known of a partition by when it was known."""
        found = self.measures._settled(source)
        return found.asked_s(asyncio.get_running_loop().time()), found.caught_up_at, found.descent

    def view(self, *, has_partitions: bool) -> FlowView:
        return self.group.show(FlowView(SETTINGS.flow, FlowState.RUNNING), has_partitions=has_partitions)

    def begin(self, task: int) -> tuple[PartitionPlan, ...]:
        """Plan an epoch; return what a look at all partitions would plan."""
        own = [self.ledger.states[it] for it in self.tasks.holders.of_task(task) if self.ledger.is_wanted(it)]
        now = asyncio.get_running_loop().time()
        found = tuple(it.plan for it in own if it.retry_at <= now and not it.is_questioned and it.is_fenced)
        planned = self.tasks.take_partitions(task)
        assert {it.source: it for it in found} == {it.source: it for it in planned}
        self.epochs[task] = EpochPlan(
            *(SETTINGS.flow, task, 0, SETTINGS.source, SETTINGS.target, planned),
            limits=SETTINGS.source_connector.limits, epoch_ms=1_000, drain_ms=1_000,
        )  # fmt: skip
        return planned

    async def end(self, task: int, told: dict[TopicPartition, dict[str, object]], **facts: Any) -> None:
        """End an epoch that tells of some of its partitions."""
        plan = self.epochs.pop(task)
        whole: EpochOutcome = copied(plan)
        changed = tuple(_outcome(it, told[it.source]) for it in whole.partitions if it.source in told)
        await self.tasks.outcomes.account(plan, attrs.evolve(whole, partitions=changed, **facts), took_s=1.0)
        self.tasks.put_back(plan)

    def lose(self, task: int) -> None:
        plan, now = self.epochs.pop(task), asyncio.get_running_loop().time()
        self.tasks.outcomes.account_lost(plan, "killed", retry_at=now + 3, quiet_until=now + 2)
        self.tasks.put_back(plan)

    def due(self) -> dict[TopicPartition, object]:
        """Write most of the positions that are due; return all."""
        everything = due.due_positions(self.ledger.states.values(), is_interval_over=True)
        found = self.ledger.due_positions(is_interval_over=True)
        assert sorted(it.source for it in found) == sorted(it.source for it in everything)
        self.ledger.note_written(it for it in found if it.source.partition % 3)
        return {it.source: it for it in found}

    def unread(self) -> frozenset[TopicPartition]:
        """Return the partitions that the source is to be asked about, as a look at each finds."""
        held, after_s = self.tasks.holders.is_held, self.watch._asked_after_s
        watched_s = asyncio.get_running_loop().time() - self.watch._begun_at
        late = {it for it in self.ledger.states if min(self.measures.asked_s(it), watched_s) > after_s}
        return frozenset(it for it in self.ledger.states if it in late or not held(it))


def _outcome(whole: PartitionOutcome, changes: dict[str, object]) -> PartitionOutcome:
    if changes.pop("is_level", True):
        return attrs.evolve(whole, **{"bytes": 0, **changes})
    log = attrs.evolve(whole.log, high_watermark=whole.position + 500)
    return attrs.evolve(whole, log=log, **{"bytes": 0, **changes})


def _told(chance: random.Random, sources: list[TopicPartition]) -> dict[TopicPartition, dict[str, object]]:
    """Return what an epoch tells: of most partitions nothing, for a while of none."""
    found: dict[TopicPartition, dict[str, object]] = {}
    for source in sources if chance.random() < 0.4 else ():
        match chance.randrange(25):
            case 0:
                found[source] = {"bytes": 100}
            case 1:
                found[source] = {"is_level": False}
            case 2:
                found[source] = {"ended": Ended.INTERRUPTED, "failure": UNREACHED, "is_unsure": True}
            case 3:
                found[source] = {"is_level": False, "is_unsure": True}
            case 4:
                found[source] = {"is_unsure": True}
            case _ if chance.random() < 0.3:  # what is unsure, or behind, does not stay so
                found[source] = {}
    return found


def _compare(mirror: Mirror, looking: Mirror) -> None:
    for source in mirror.ledger.states:
        assert mirror.measured(source) == looking.measured(source)
    whole, brief = mirror.view(has_partitions=True), mirror.view(has_partitions=False)
    assert whole == looking.view(has_partitions=True)
    assert (brief.lag, brief.lag_s, brief.records) == (whole.lag, whole.lag_s, whole.records)
    assert brief.tasks == whole.tasks
    assert mirror.tasks.stopped == whole.stopped_partitions
    assert set(mirror.watch._unread()) == mirror.unread() == looking.unread()


async def _step(chance: random.Random, task: int, *both: Mirror) -> None:
    """Let one thing happen to a task, the same in *both*."""
    step, mirror = chance.randrange(20), both[0]
    if task not in mirror.epochs:
        assert both[0].begin(task) == both[1].begin(task)
    elif step == 0:
        for it in both:
            it.lose(task)
    elif step == 1:
        paused = frozenset(chance.sample(sorted(mirror.ledger.states), chance.randrange(3)))
        for it in both:
            it.tasks.apply_overrides(attrs.evolve(NO_OVERRIDES, partitions=paused))
    elif step in (2, 3):
        assert both[0].due() == both[1].due()
    else:
        told = _told(chance, [it.source for it in mirror.epochs[task].partitions])
        facts = {"fetches": chance.choice((0, 1, 1, 1)), "throttled_ms": chance.choice((0, 0, 0, 9))}
        for it in both:
            await it.end(task, {source: dict(changes) for source, changes in told.items()}, **facts)


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_is_missed_without_a_look_at_each(seed: int) -> None:
    """Plans, due positions, views, lag and what the source is asked about, after whatever epochs brought or lost."""
    chance, clock = random.Random(seed), LoopClock()
    context = source_context(clock, EventLog(clock))
    mirror, looking = Mirror(context, FlowMeasures(clock)), Mirror(context, measures := LookingMeasures(clock))
    measures.tasks = looking.tasks
    for _ in range(STEPS):
        await _step(chance, chance.randrange(2), mirror, looking)
        await asyncio.sleep(chance.choice((2.0, 2.0, 2.0, 2.0, 0.5, 5.0, 20.0, 60.0)))
        if chance.random() < COMPARED:
            _compare(mirror, looking)


async def test_a_plan_of_the_same_partitions_is_the_same() -> None:
    """Where nothing has changed since the last epoch, nothing is compared again."""
    clock = LoopClock()
    mirror = Mirror(source_context(clock, EventLog(clock)), FlowMeasures(clock))
    first = mirror.begin(0)
    await mirror.end(0, {})
    again = mirror.begin(0)
    await mirror.end(0, {again[0].source: {}})
    moved = mirror.begin(0)

    assert again is first
    assert [it.position for it in moved] == [10, *(it.position for it in first[1:])]
