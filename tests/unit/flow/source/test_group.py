"""What the source group does while it is paused, and whether it follows its flow, without clusters."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from mm2py.flow.offsets.translations import Translations
from mm2py.flow.source.group import SourceGroup, SourceLife
from mm2py.model.overrides import Wanted
from mm2py.model.share import NO_SHARE, Share, whole_share
from mm2py.model.state import FlowState
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock
from tests.support.flow_rig import flow_context
from tests.support.source_tasks import PretendedEpochs


WHOLE = whole_share(2)
OWNERS_PART = Share(is_owner=True, tasks=frozenset({0}), slots=frozenset(range(512)))
OTHER_PART = attrs.evolve(OWNERS_PART, is_owner=False)


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


@pytest.mark.parametrize(
    ("share", "applied", "wanted", "state", "expected"),
    [
        (WHOLE, WHOLE, Wanted.RUNNING, FlowState.RUNNING, True),
        (WHOLE, NO_SHARE, Wanted.RUNNING, FlowState.STARTING, True),
        (OWNERS_PART, OWNERS_PART, Wanted.RUNNING, FlowState.RUNNING, True),
        (OWNERS_PART, OWNERS_PART, Wanted.RUNNING, FlowState.DRAINED, True),
        (OTHER_PART, OTHER_PART, Wanted.RUNNING, FlowState.RUNNING, False),
        (NO_SHARE, NO_SHARE, Wanted.RUNNING, FlowState.STANDBY, False),
        (NO_SHARE, WHOLE, Wanted.RUNNING, FlowState.DRAINING, False),
        (WHOLE, WHOLE, Wanted.PAUSED, FlowState.PAUSED, True),
        (WHOLE, NO_SHARE, Wanted.PAUSED, FlowState.PAUSED, False),
        (WHOLE, NO_SHARE, Wanted.STOPPED, FlowState.STOPPED, False),
        (OWNERS_PART, OWNERS_PART, Wanted.PAUSED, FlowState.PAUSED, False),
        (WHOLE, OTHER_PART, Wanted.PAUSED, FlowState.PAUSED, False),
        (WHOLE, WHOLE, Wanted.RUNNING, FlowState.RESTARTING, True),
        (WHOLE, NO_SHARE, Wanted.RUNNING, FlowState.RESTARTING, False),
    ],
)
def test_when_all_that_is_copied_is_followed(
    share: Share, applied: Share, wanted: Wanted, state: FlowState, *, expected: bool
) -> None:
    """It copies all itself, or owns the flow and reads what others store, or has read all before it rested."""
    clock = LoopClock()
    context = flow_context(clock, EventLog(clock))
    group = SourceGroup(context, PretendedEpochs(), Translations(flow_runs=1, partition_runs=1))
    group.requests.give(share)
    group.requests.want(wanted)
    group.state, group._applied = state, applied

    assert group.follows_all is expected
