"""A task group's life: up, over, drained, failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from mm2py.connectors.context import FlowContext
from mm2py.connectors.task_group import FlowGroup
from mm2py.errors import BrokerAnsweredError
from mm2py.model.herder.overrides import Wanted
from mm2py.model.herder.share import NO_SHARE, whole_share
from mm2py.model.state import FlowState, GroupView
from mm2py.telemetry.events import (
    ConnectorPaused,
    ConnectorRestarted,
    ConnectorResumed,
    ConnectorStarted,
    ConnectorStopped,
    GroupFailed,
    TaskRestarted,
)
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock
from tests.support.flow_rig import FLOW, HopelessError, flow_context


#: A refusal that ends once the permission is there.
HOPEFUL = BrokerAnsweredError("B", "Fetch", 29, "TOPIC_AUTHORIZATION_FAILED", "mm2-offsets.A.internal-1")

Body = Callable[["ToyGroup"], Awaitable[None]]


class ToyGroup(FlowGroup):
    """A group whose lives are given, the last one again and again."""

    connector = "MirrorToyConnector"
    name = "toy"

    def __init__(self, context: FlowContext, *lives: Body) -> None:
        super().__init__(context)
        self.lives = list(lives)
        self.drained_within_s: float | None = None
        self.worked = self.ended = 0

    async def _live(self) -> None:
        body = self.lives.pop(0) if len(self.lives) > 1 else self.lives[0]
        await body(self)

    async def work(self) -> None:
        """Come up, wait for a drain, and take a second for it."""
        self._came_up()
        self.worked += 1
        await self.requests.run_until_quiet(self.task, [("nothing", asyncio.sleep(3_600))])
        self.drained_within_s = self.requests.drain_within_s
        await asyncio.sleep(1)


async def rest_and_work(group: ToyGroup) -> None:
    """Work whenever the group is not paused, as the real ones do."""
    while await group._goes_on():
        group._came_up()
        group.worked += 1
        await group.requests.run_until_quiet(group.task, [("nothing", asyncio.sleep(3_600))])
    group.ended += 1


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
async def running(events: EventLog, *lives: Body, wanted: Wanted = Wanted.RUNNING) -> AsyncIterator[ToyGroup]:
    """Run a toy group; at the end of the block it has to end by itself."""
    clock = LoopClock()
    context = flow_context(clock, events)
    group = ToyGroup(context, *lives)
    group.requests.want(wanted)
    async with asyncio.timeout(3_600), asyncio.TaskGroup() as tasks:
        tasks.create_task(group.run(), name="group")
        await asyncio.sleep(0.1)
        yield group


async def test_a_drain_lets_a_life_end_what_it_has_begun(events: EventLog) -> None:
    """A group that is up sees the drain and its time, and has its end waited for."""
    async with running(events, ToyGroup.work) as group:
        up = group.state
        group.requests.drain(within_s=7.0)
        await asyncio.sleep(0.1)
        draining = group.state

    assert (up, draining, group.state) == (FlowState.RUNNING, FlowState.DRAINING, FlowState.DRAINED)
    assert group.drained_within_s == 7.0


async def test_a_fall_is_told_counted_and_forgotten_once_it_is_up(events: EventLog) -> None:
    """Between two lives the view says what happened; when the next life is up, only the count stays."""
    async with running(events, fall, fall, ToyGroup.work) as group:
        fallen = group.view()
        await asyncio.sleep(60)
        up = group.view()
        group.requests.drain(within_s=1.0)

    assert fallen == GroupView("MirrorToyConnector", FlowState.RESTARTING, "ValueError: no", "", 1, falls=1)
    assert up == GroupView("MirrorToyConnector", FlowState.RUNNING, "", "", 2, falls=2)
    assert [event.task for event in events.of(TaskRestarted)] == ["A->B/toy", "A->B/toy"]


async def test_what_a_group_waits_for_is_shown_although_its_cluster_answers_others(events: EventLog) -> None:
    """A cluster refuses this group a step on its way up, and does what another group of the flow asks of it."""
    refusals = [HOPEFUL] * 3

    async def refused_at_first() -> None:
        if refusals:
            raise refusals.pop()

    async def wait_and_work(group: ToyGroup) -> None:
        await group._insist("read positions", ["B"], refused_at_first)
        await group.work()

    async with running(events, wait_and_work) as group:
        group._reach.answered(["B"], "emit heartbeats")
        waiting = group.view()
        await asyncio.sleep(60)
        up = group.view()
        group.requests.drain(within_s=1.0)

    assert (waiting.state, up.state) == (FlowState.STARTING, FlowState.RUNNING)
    assert (waiting.last_error, waiting.hint) == (str(HOPEFUL), HOPEFUL.hint)
    assert (up.last_error, up.hint) == ("", "")


async def test_an_error_without_remedy_ends_it_for_good(events: EventLog) -> None:
    """The group stays down with error and hint in its view, and one event says so; a drain leaves it as it is."""
    async with running(events, give_up) as group:
        await asyncio.sleep(600)
        group.requests.drain(within_s=1.0)

    assert group.has_failed
    assert group.view() == GroupView("MirrorToyConnector", FlowState.FAILED, str(HopelessError("no")), "give up", 0)
    assert events.of(GroupFailed) == (GroupFailed(FLOW, "MirrorToyConnector", str(HopelessError("no")), "give up"),)


async def test_a_fall_in_the_drain_is_told_and_has_no_further_life(events: EventLog) -> None:
    """A group that fails while it drains ends at once instead of starting again."""
    async with running(events, fall_in_drain, wait_for_ever) as group:
        group.requests.drain(within_s=1.0)

    assert group.view() == GroupView("MirrorToyConnector", FlowState.DRAINED, "ValueError: too late", "", 1, falls=1)
    assert len(events.of(TaskRestarted)) == 1


async def test_a_paused_group_rests_in_its_life(events: EventLog) -> None:
    """It leaves off and goes on within one life, and says who wanted it; a second word for the same changes nothing."""
    async with running(events, rest_and_work) as group:
        group.requests.want(Wanted.PAUSED, by="ann")
        group.requests.want(Wanted.PAUSED, by="bob")
        await asyncio.sleep(60)
        paused = (group.view(), group.worked, group.ended)
        group.requests.want(Wanted.RUNNING, by="carl")
        await asyncio.sleep(60)
        resumed = (group.view(), group.worked, group.ended)
        group.requests.drain(within_s=1.0)

    assert paused == (GroupView("MirrorToyConnector", FlowState.PAUSED, wanted=Wanted.PAUSED), 1, 0)
    assert resumed == (GroupView("MirrorToyConnector", FlowState.RUNNING), 2, 0)
    assert events.of(ConnectorPaused) == (ConnectorPaused(FLOW, "MirrorToyConnector", "ann"),)
    assert events.of(ConnectorResumed) == (ConnectorResumed(FLOW, "MirrorToyConnector", "carl"),)


@pytest.mark.parametrize(("wanted", "state"), [(Wanted.PAUSED, FlowState.PAUSED), (Wanted.STOPPED, FlowState.STOPPED)])
async def test_a_group_that_is_not_to_run_can_be_drained(events: EventLog, wanted: Wanted, state: FlowState) -> None:
    """From a pause its life ends in good order; a stopped one has none. Either way it is drained at once."""
    async with running(events, rest_and_work) as group:
        group.requests.want(wanted)
        await asyncio.sleep(60)
        before = group.state
        group.requests.drain(within_s=5.0)

    assert (before, group.state, group.ended) == (state, FlowState.DRAINED, 1)
    assert not events.of(ConnectorStarted)
    assert not events.of(ConnectorResumed)


async def test_a_stopped_group_ends_its_life_and_lives_again(events: EventLog) -> None:
    """Its drain has the time that epochs need; while it is stopped it has no life; started, it has another."""
    async with running(events, ToyGroup.work) as group:
        group.requests.want(Wanted.STOPPED, by="ann")
        await asyncio.sleep(0.5)
        draining = group.state
        await asyncio.sleep(60)
        stopped, lives = group.state, group.worked
        group.requests.want(Wanted.RUNNING, by="bob")
        await asyncio.sleep(1)
        started = (group.state, group.worked)
        group.requests.drain(within_s=1.0)

    assert (draining, stopped, lives, started) == (FlowState.DRAINING, FlowState.STOPPED, 1, (FlowState.RUNNING, 2))
    assert events.of(ConnectorStopped) == (ConnectorStopped(FLOW, "MirrorToyConnector", is_deleted=False, by="ann"),)
    assert events.of(ConnectorStarted) == (ConnectorStarted(FLOW, "MirrorToyConnector", "bob"),)


async def test_a_stop_ends_a_life_that_never_came_up(events: EventLog) -> None:
    """A group that waits for its clusters, or pauses after a fall, stops at once."""
    for life in (wait_for_ever, fall):
        async with running(events, life) as group:
            group.requests.want(Wanted.STOPPED)
            await asyncio.sleep(0.1)
            state = group.state
            group.requests.drain(within_s=1.0)

        assert state is FlowState.STOPPED


@pytest.mark.parametrize("wanted", [Wanted.PAUSED, Wanted.STOPPED, Wanted.DELETED])
async def test_overrides_that_were_there_before_it_began_are_obeyed(events: EventLog, wanted: Wanted) -> None:
    """It never does its work."""
    async with running(events, rest_and_work, wanted=wanted) as group:
        await asyncio.sleep(60)
        state = group.state
        group.requests.drain(within_s=1.0)

    assert group.worked == 0
    assert state is (FlowState.PAUSED if wanted is Wanted.PAUSED else FlowState.STOPPED)


async def test_stopped_paused_deleted_and_back(events: EventLog) -> None:
    """Each order leads on from each other one."""
    async with running(events, rest_and_work) as group:
        seen = []
        for wanted in (Wanted.STOPPED, Wanted.PAUSED, Wanted.DELETED, Wanted.STOPPED, Wanted.RUNNING):
            group.requests.want(wanted)
            await asyncio.sleep(60)
            seen.append(group.state.name)
        group.requests.drain(within_s=1.0)

    assert seen == ["STOPPED", "PAUSED", "STOPPED", "STOPPED", "RUNNING"]
    assert [event.is_deleted for event in events.of(ConnectorStopped)] == [False, True, False]


async def test_a_restart_ends_the_life_in_good_order(events: EventLog) -> None:
    """It is counted and told, and the next life begins as soon as the last one is over."""
    async with running(events, ToyGroup.work) as group:
        group.restart(by="ann")
        await asyncio.sleep(1.5)
        view, lives = group.view(), group.worked
        group.requests.drain(within_s=1.0)

    assert (view, lives) == (GroupView("MirrorToyConnector", FlowState.RUNNING, restarts=1), 2)
    assert events.of(ConnectorRestarted) == (ConnectorRestarted(FLOW, "MirrorToyConnector", is_alone=False, by="ann"),)


async def test_a_restart_cuts_the_pause_after_a_fall_short(events: EventLog) -> None:
    """The next life begins at once, not after the pause that the last fall earned."""
    async with running(events, fall, ToyGroup.work) as group:
        group.restart()
        await asyncio.sleep(0.01)
        view = group.view()
        group.requests.drain(within_s=1.0)

    assert view.state is FlowState.RUNNING
    assert (view.restarts, view.falls) == (2, 1)


async def test_what_was_refused_is_forgotten_once_another_config_is_used(events: EventLog) -> None:
    """An operator turned off what the target refuses, which the former life tries to its end."""

    async def refused_to_its_end(group: ToyGroup) -> None:
        group._came_up()
        await group.requests.until(lambda: group.requests.is_quiet)
        await asyncio.sleep(1)
        group._reach.failed("synchronise", HOPEFUL)

    async with running(events, refused_to_its_end, ToyGroup.work) as group:
        group._reach.failed("synchronise", HOPEFUL)
        shown = [[bool(step.error) for step in group._reach.steps()]]
        group.adopt(group.config)
        await asyncio.sleep(60)
        shown.append([bool(step.error) for step in group._reach.steps()])
        group.requests.drain(within_s=1.0)

    assert shown == [[True], [False]]


async def test_a_failed_group_can_be_stopped(events: EventLog) -> None:
    """Then it is stopped and no failure any more, until it is started and fails again."""
    async with running(events, give_up) as group:
        group.requests.want(Wanted.STOPPED)
        await asyncio.sleep(1)
        stopped = group.state
        group.requests.want(Wanted.RUNNING)
        await asyncio.sleep(1)
        started = group.state
        group.requests.drain(within_s=1.0)

    assert (stopped, started) == (FlowState.STOPPED, FlowState.FAILED)
    assert len(events.of(GroupFailed)) == 2


async def test_a_stopped_group_is_not_restarted(events: EventLog) -> None:
    """There is nothing to end, and its offsets may just be altered."""
    async with running(events, rest_and_work) as group:
        group.requests.want(Wanted.STOPPED)
        await asyncio.sleep(1)
        group.restart()
        await asyncio.sleep(1)
        view = group.view()
        group.requests.drain(within_s=1.0)

    assert view == GroupView("MirrorToyConnector", FlowState.STOPPED, wanted=Wanted.STOPPED)


async def test_a_group_that_is_kept_out_stands_by_and_works_once_it_is_admitted(events: EventLog) -> None:
    """It shows which node runs the flow, and begins nothing."""
    async with running(events, rest_and_work) as group:
        group.requests.give(NO_SHARE)
        await asyncio.sleep(5)
        unknown = group.state
        group.requests.give(NO_SHARE, "another node runs A->B", "stop one")
        await asyncio.sleep(5)
        standing_by, worked = group.view(), group.worked
        group.requests.give(whole_share(1))
        await asyncio.sleep(5)
        admitted = (group.state, group.view().last_error, group.worked)
        group.requests.drain(within_s=1)

    assert unknown is FlowState.STARTING
    assert (standing_by.state, standing_by.last_error, standing_by.hint) == (
        FlowState.STANDBY,
        "another node runs A->B",
        "stop one",
    )
    assert admitted == (FlowState.RUNNING, "", worked + 1)


async def _stop(group: ToyGroup) -> None:
    group.requests.want(Wanted.STOPPED)


async def _resume(group: ToyGroup) -> None:
    group.requests.want(Wanted.RUNNING)


async def _restart(group: ToyGroup) -> None:
    group.restart()


async def _nothing(_group: ToyGroup) -> None:
    return


@pytest.mark.parametrize(
    ("lives", "before", "after"),
    [
        pytest.param([rest_and_work], _stop, _resume, id="stopped by an operator"),
        pytest.param([give_up, rest_and_work], _nothing, _restart, id="failed"),
        pytest.param([fall, rest_and_work], _nothing, _nothing, id="in the pause before a restart"),
    ],
)
async def test_what_is_lost_while_a_group_has_no_life_does_not_silence_its_next_one(
    events: EventLog, lives: list[Body], before: Body, after: Body
) -> None:
    """
    The group has no life while this node is thrown out of the flow's group and joins again beside another one.

    Its next life reads what the other node has written, and writes again.
    """
    async with running(events, *lives) as group:
        await before(group)
        await asyncio.sleep(0.1)
        group.requests.depose()
        await asyncio.sleep(0.1)
        await after(group)
        await asyncio.sleep(60)
        found = (group.state, group.requests.is_deposed)
        group.requests.drain(within_s=1.0)

    assert found == (FlowState.RUNNING, False)
    assert group.worked


async def test_a_group_that_is_deposed_knows_it_to_the_end_of_its_life(events: EventLog) -> None:
    """It must write nothing more; its next life may."""
    seen = []

    async def live(group: ToyGroup) -> None:
        await rest_and_work(group)
        seen.append(group.requests.is_deposed)

    async with running(events, live) as group:
        group.requests.depose()
        await asyncio.sleep(60)
        group.requests.drain(within_s=1.0)

    assert seen == [True, False]
