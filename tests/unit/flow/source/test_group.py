"""What the source group does while it is paused, without clusters."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from mm2py.flow.offsets.translations import Translations
from mm2py.flow.source.group import SourceGroup, SourceLife
from mm2py.model.overrides import Wanted
from mm2py.model.state import FlowState
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock
from tests.support.flow_rig import flow_context
from tests.support.source_tasks import PretendedEpochs


class Watch:
    """Looks at something every second."""

    name = "watch"

    def __init__(self) -> None:
        self.looks = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.looks += 1

    async def finish(self) -> None:
        return


async def test_a_paused_group_keeps_watch_and_looks_at_topics_when_it_goes_on() -> None:
    """How far the source has gone on is known in a pause too; what changed there meanwhile is found out behind it."""
    clock, refreshes = LoopClock(), list[float]()
    events = EventLog(clock)
    context = flow_context(clock, events)
    group = SourceGroup(context, PretendedEpochs(), Translations(flow_runs=1, partition_runs=1))
    life = SimpleNamespace(
        writer=SimpleNamespace(run=asyncio.Event().wait),
        topics=SimpleNamespace(want_refresh=lambda: refreshes.append(clock.monotonic())),
    )
    watch = Watch()
    group.requests.want(Wanted.PAUSED)
    async with asyncio.TaskGroup() as tasks:
        resting = tasks.create_task(group._rest(cast("SourceLife", life), [cast("Any", watch)]))
        await asyncio.sleep(60.5)
        state, looks = group.state, watch.looks
        group.requests.want(Wanted.RUNNING)

    assert (state, looks) == (FlowState.PAUSED, 60)
    assert resting.result()
    assert refreshes == [60.5]
