"""A flow's groups side by side: who ends first, and what one group's trouble means for the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar, cast

import attrs
import pytest

from mm2py.errors import Mm2Error, Verdict
from mm2py.flow.checkpoint_group import CheckpointGroup
from mm2py.flow.group import FlowGroup, Surroundings
from mm2py.flow.heartbeat_group import HeartbeatGroup
from mm2py.flow.reach import Reach
from mm2py.flow.runner import FlowRunner
from mm2py.flow.source_group import SourceGroup
from mm2py.model.state import FlowState, FlowView, HeartbeatsView
from mm2py.telemetry.events import GroupFailed, TaskRestarted
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock
from tests.unit.flow.test_source import FLOW, SETTINGS, PretendedEpochs


@attrs.define(eq=False)
class HopelessError(Mm2Error):
    """An error nobody can do anything about."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW

    what: str


class ToyGroup(FlowGroup):
    """A group that takes its time to end, or has a trouble."""

    connector = "MirrorToyConnector"
    name = "toy"

    def __init__(
        self, around: Surroundings, ended: list[FlowGroup], *, trouble: Exception | None, end_s: float
    ) -> None:
        super().__init__(around)
        self.trouble = trouble
        self._ended = ended
        self._end_s = end_s

    async def _live(self) -> None:
        if self.trouble is not None:
            raise self.trouble
        self._came_up()
        await self._draining.wait()
        await asyncio.sleep(self._end_s)
        self._ended.append(self)

    def show(self, view: FlowView) -> FlowView:
        return view

    def consumer_groups(self) -> tuple[()]:
        return ()

    def counted(self) -> HeartbeatsView:
        return HeartbeatsView(0, None)


@attrs.define
class Rig:
    """A flow of three toy groups; `ended` has them in the order in which they ended."""

    runner: FlowRunner
    source: ToyGroup
    checkpoints: ToyGroup
    heartbeats: ToyGroup
    events: EventLog
    ended: list[FlowGroup]


@asynccontextmanager
async def rig(
    source: Exception | None = None, checkpoints: Exception | None = None, heartbeats: Exception | None = None
) -> AsyncIterator[Rig]:
    """Run a flow whose groups have these troubles; it must have ended by itself soon after the block."""
    clock = LoopClock()
    events, ended = EventLog(clock), list[FlowGroup]()
    around = Surroundings(SETTINGS, Reach(FLOW, clock, events, lambda: 0.5), clock, events, lambda: 0.5)
    runner = FlowRunner(SETTINGS, PretendedEpochs(), clock=clock, events=events, luck=lambda: 0.5)
    toys = [
        ToyGroup(around, ended, trouble=trouble, end_s=end_s)
        for trouble, end_s in ((source, 3.0), (checkpoints, 0.5), (heartbeats, 0.1))
    ]
    runner._source = cast("SourceGroup", toys[0])
    runner._checkpoints = cast("CheckpointGroup", toys[1])
    runner._heartbeats = cast("HeartbeatGroup", toys[2])
    async with asyncio.timeout(600), asyncio.TaskGroup() as tasks:
        tasks.create_task(runner.run(), name="flow")
        await asyncio.sleep(0.1)
        yield Rig(runner, *toys, events, ended)


async def test_checkpoints_are_drained_behind_the_last_record() -> None:
    """Heartbeats end at once, the source when its epochs do, and only then the checkpoint group hears of it."""
    async with rig() as flow:
        flow.runner.drain(within_s=9.0)
        await asyncio.sleep(1)
        states = [group.state for group in (flow.source, flow.checkpoints, flow.heartbeats)]
        await asyncio.sleep(2.2)
        between = flow.runner.view().state

    assert states == [FlowState.DRAINING, FlowState.RUNNING, FlowState.DRAINED]
    assert between is FlowState.DRAINING
    assert flow.ended == [flow.heartbeats, flow.source, flow.checkpoints]
    assert flow.runner.view().state is FlowState.DRAINED


@pytest.mark.parametrize("trouble", [ValueError("no"), HopelessError("no")], ids=["falls over", "fails for good"])
async def test_no_group_stops_another(trouble: Exception) -> None:
    """Checkpoints and heartbeats in trouble leave the copying alone; the flow's state is the source's."""
    async with rig(checkpoints=trouble, heartbeats=trouble) as flow:
        await asyncio.sleep(300)
        view, restarts = flow.runner.view(), flow.source.view().restarts
        flow.runner.drain(within_s=1.0)

    assert (view.state, restarts) == (FlowState.RUNNING, 0)
    assert {group.state for group in view.groups[1:]} <= {FlowState.RESTARTING, FlowState.FAILED}
    assert flow.events.of(TaskRestarted) or len(flow.events.of(GroupFailed)) == 2
    assert flow.runner.has_failed is isinstance(trouble, HopelessError)


async def test_heartbeats_outlive_a_source_group_that_failed() -> None:
    """The flow is over, because what it is there for is; its heartbeats go on until it is drained."""
    async with rig(source=HopelessError("no")) as flow:
        await asyncio.sleep(60)
        is_over, view = flow.runner.is_over, flow.runner.view()
        flow.runner.drain(within_s=1.0)

    assert is_over
    assert view.state is FlowState.FAILED
    assert flow.heartbeats.state is FlowState.DRAINED
    assert flow.ended == [flow.heartbeats, flow.checkpoints]


@pytest.mark.parametrize(
    ("is_enabled", "emits_heartbeats", "expected"),
    [
        (True, True, ["MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector"]),
        (True, False, ["MirrorSourceConnector", "MirrorCheckpointConnector"]),
        (False, True, ["MirrorHeartbeatConnector"]),
    ],
)
async def test_a_flow_has_the_groups_that_its_settings_ask_for(
    expected: list[str], *, is_enabled: bool, emits_heartbeats: bool
) -> None:
    """Disabled heartbeats have no group; a flow that is not enabled has no other (MirrorHeartBeatConnectorTest)."""
    clock = LoopClock()
    settings = attrs.evolve(SETTINGS, is_enabled=is_enabled, emits_heartbeats=emits_heartbeats)
    runner = FlowRunner(settings, PretendedEpochs(), clock=clock, events=EventLog(clock), luck=lambda: 0.5)

    view = runner.view()

    assert [group.connector for group in view.groups] == expected
    assert (view.heartbeats is not None) is emits_heartbeats
