"""A task group's life: up, over, drained, failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import ClassVar

import attrs
import pytest

from mm2py.errors import Mm2Error, Verdict
from mm2py.flow.group import FlowGroup, Surroundings
from mm2py.flow.reach import Reach
from mm2py.model.state import FlowState, GroupView
from mm2py.telemetry.events import GroupFailed, TaskRestarted
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock
from tests.unit.flow.test_source import FLOW, SETTINGS


Body = Callable[["ToyGroup"], Awaitable[None]]


@attrs.define(eq=False)
class HopelessError(Mm2Error):
    """An error nobody can do anything about."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW
    hint: ClassVar[str] = "give up"

    what: str


class ToyGroup(FlowGroup):
    """A group whose lives are given, the last one again and again."""

    connector = "MirrorToyConnector"
    name = "toy"

    def __init__(self, around: Surroundings, *lives: Body) -> None:
        super().__init__(around)
        self.lives = list(lives)
        self.drained_within_s: float | None = None

    async def _live(self) -> None:
        body = self.lives.pop(0) if len(self.lives) > 1 else self.lives[0]
        await body(self)

    async def work(self) -> None:
        """Come up, wait for a drain, and take a second for it."""
        self._came_up()
        await self._run_until_drained([("nothing", asyncio.sleep(3_600))])
        self.drained_within_s = self._drain_within_s
        await asyncio.sleep(1)


async def fall(_group: ToyGroup) -> None:
    raise ValueError("no")


async def give_up(_group: ToyGroup) -> None:
    raise HopelessError("no")


async def wait_for_ever(_group: ToyGroup) -> None:
    await asyncio.Event().wait()


async def fall_in_drain(group: ToyGroup) -> None:
    await group.work()
    raise ValueError("too late")


@pytest.fixture
def events() -> EventLog:
    return EventLog(LoopClock())


@asynccontextmanager
async def running(events: EventLog, *lives: Body) -> AsyncIterator[ToyGroup]:
    """Run a toy group; at the end of the block it has to end by itself."""
    clock = LoopClock()
    around = Surroundings(SETTINGS, Reach(FLOW, clock, events, lambda: 0.5), clock, events, lambda: 0.5)
    group = ToyGroup(around, *lives)
    async with asyncio.timeout(3_600), asyncio.TaskGroup() as tasks:
        tasks.create_task(group.run(), name="group")
        await asyncio.sleep(0.1)
        yield group


async def test_a_drain_lets_a_life_end_what_it_has_begun(events: EventLog) -> None:
    """A group that is up sees the drain and its time, and has its end waited for."""
    async with running(events, ToyGroup.work) as group:
        up = group.state
        group.drain(within_s=7.0)
        await asyncio.sleep(0.1)
        draining = group.state

    assert (up, draining, group.state) == (FlowState.RUNNING, FlowState.DRAINING, FlowState.DRAINED)
    assert group.drained_within_s == 7.0


async def test_a_drain_before_it_is_up_ends_it_at_once(events: EventLog) -> None:
    """A group that still waits for its clusters, or pauses after a fall, has nothing to drain."""
    async with running(events, wait_for_ever) as starting:
        starting.drain(within_s=60.0)
    async with running(events, fall) as falling:
        falling.drain(within_s=60.0)

    assert (starting.state, falling.state) == (FlowState.DRAINED, FlowState.DRAINED)
    assert asyncio.get_running_loop().time() < 5


async def test_a_fall_is_told_counted_and_forgotten_once_it_is_up(events: EventLog) -> None:
    """Between two lives the view says what happened; when the next life is up, only the count stays."""
    async with running(events, fall, fall, ToyGroup.work) as group:
        fallen = group.view()
        await asyncio.sleep(60)
        up = group.view()
        group.drain(within_s=1.0)

    assert fallen == GroupView("MirrorToyConnector", FlowState.RESTARTING, "ValueError: no", "", 1)
    assert up == GroupView("MirrorToyConnector", FlowState.RUNNING, "", "", 2)
    assert [event.task for event in events.of(TaskRestarted)] == ["A->B/toy", "A->B/toy"]


async def test_an_error_without_remedy_ends_it_for_good(events: EventLog) -> None:
    """The group returns, its view keeps error and hint, and one event says so."""
    async with running(events, give_up) as group:
        pass
    group.drain(within_s=1.0)

    assert group.has_failed
    assert group.view() == GroupView("MirrorToyConnector", FlowState.FAILED, str(HopelessError("no")), "give up", 0)
    assert events.of(GroupFailed) == (GroupFailed(FLOW, "MirrorToyConnector", str(HopelessError("no")), "give up"),)


async def test_a_fall_in_the_drain_is_told_and_has_no_further_life(events: EventLog) -> None:
    """A group that falls over while it drains ends at once instead of starting anew."""
    async with running(events, fall_in_drain, wait_for_ever) as group:
        group.drain(within_s=1.0)

    assert group.view() == GroupView("MirrorToyConnector", FlowState.DRAINED, "ValueError: too late", "", 1)
    assert len(events.of(TaskRestarted)) == 1
