"""A flow's groups side by side: who ends first, and what one group's trouble means for the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
import pytest

from mm2py.connectors.checkpoint.group import CheckpointGroup
from mm2py.connectors.context import FlowContext
from mm2py.connectors.heartbeat import HeartbeatGroup
from mm2py.connectors.source.group import SourceGroup
from mm2py.connectors.task_group import FlowGroup
from mm2py.core.herder import overrides as verbs
from mm2py.core.herder.overrides import CHECKPOINT, HEARTBEAT, SOURCE
from mm2py.core.offsets.translation import Precision, Translated
from mm2py.errors import OverrideConflictError, UnknownConnectorError, UnknownTaskError
from mm2py.herder.requests import FlowRequests
from mm2py.herder.runner import FlowRunner
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.overrides import NO_OVERRIDES, Overrides, RateLimit, Wanted
from mm2py.model.herder.restart import Restart
from mm2py.model.positions import Position, encode_position
from mm2py.model.state import FlowState, FlowView, HeartbeatsView
from mm2py.telemetry.events import (
    ConnectorStopped,
    GroupFailed,
    PartitionPaused,
    PartitionResumed,
    RateLimited,
    RateLimitLifted,
    TaskRestarted,
    TopicPaused,
    TopicResumed,
)
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import LogRecord, TopicLog
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import FakeBrokers, topics_with
from tests.support.flow_rig import FLOW, SETTINGS, HopelessError, changed, checkpoint_context, flow_context
from tests.support.source_tasks import PretendedEpochs


class ToyGroup(FlowGroup):
    """A group that takes its time to end, or has a trouble."""

    connector = "MirrorToyConnector"
    name = "toy"

    def __init__(
        self, context: FlowContext, ended: list[FlowGroup], *, failure: Exception | None, end_s: float
    ) -> None:
        super().__init__(context)
        self.failure = failure
        self._ended = ended
        self._end_s = end_s

    async def _live(self) -> None:
        if self.failure is not None:
            raise self.failure
        self._came_up()
        await self.requests.draining.wait()
        await asyncio.sleep(self._end_s)
        self._ended.append(self)

    def apply_overrides(self, _overrides: Overrides) -> None:
        return

    def show(self, view: FlowView, *, has_partitions: bool = True) -> FlowView:  # noqa: ARG002
        return view

    def consumer_groups(self) -> tuple[()]:
        return ()

    def counted(self) -> HeartbeatsView:
        return HeartbeatsView(0, None)


@attrs.define
class FlowRig:
    """A flow of three toy groups; `ended` has them in the order in which they ended, and `told` whether the flow was
    over each time that its end was reported.
    """

    runner: FlowRunner
    source: ToyGroup
    checkpoints: ToyGroup
    heartbeats: ToyGroup
    events: EventLog
    ended: list[FlowGroup]
    told: list[bool]


@asynccontextmanager
async def rig(
    source: Exception | None = None, checkpoints: Exception | None = None, heartbeats: Exception | None = None
) -> AsyncIterator[FlowRig]:
    """Run a flow whose groups have these troubles; it must have ended by itself soon after the block."""
    clock = LoopClock()
    events, ended = EventLog(clock), list[FlowGroup]()
    context = flow_context(clock, events)
    runner = FlowRunner(SETTINGS, PretendedEpochs(), clock=clock, events=events, jitter=lambda: 0.5)
    toys = [
        ToyGroup(context, ended, failure=failure, end_s=end_s)
        for failure, end_s in ((source, 3.0), (checkpoints, 0.5), (heartbeats, 0.1))
    ]
    runner._source = cast("SourceGroup", toys[0])
    runner._checkpoints = cast("CheckpointGroup", toys[1])
    runner._heartbeats = cast("HeartbeatGroup", toys[2])
    nodes = runner.sharing.nodes if runner.sharing is not None else None
    runner.requests, runner.sharing = FlowRequests(context, runner._source, toys, nodes), None
    async with asyncio.timeout(600), asyncio.TaskGroup() as tasks:
        told = list[bool]()
        tasks.create_task(runner.run(lambda: told.append(runner.is_over)), name="flow")
        await asyncio.sleep(0.1)
        yield FlowRig(runner, *toys, events, ended, told)


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


@pytest.mark.parametrize("failure", [ValueError("no"), HopelessError("no")], ids=["fails", "fails for good"])
async def test_no_group_stops_another(failure: Exception) -> None:
    """Checkpoints and heartbeats in trouble leave the copying alone; the flow's state is the source's."""
    async with rig(checkpoints=failure, heartbeats=failure) as flow:
        await asyncio.sleep(300)
        view, restarts = flow.runner.view(), flow.source.view().restarts
        flow.runner.drain(within_s=1.0)

    assert (view.state, restarts) == (FlowState.RUNNING, 0)
    assert {group.state for group in view.groups[1:]} <= {FlowState.RESTARTING, FlowState.FAILED}
    assert flow.events.of(TaskRestarted) or len(flow.events.of(GroupFailed)) == 2
    assert flow.runner.has_failed is isinstance(failure, HopelessError)


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
    beats = attrs.evolve(SETTINGS.heartbeat_connector, is_emitted=emits_heartbeats)
    settings = changed(attrs.evolve(SETTINGS, heartbeat_connector=beats), is_enabled=is_enabled)
    runner = FlowRunner(settings, PretendedEpochs(), clock=clock, events=EventLog(clock), jitter=lambda: 0.5)

    view = runner.view()

    assert [group.connector for group in view.groups] == expected
    assert (view.heartbeats is not None) is emits_heartbeats


async def test_overrides_reach_the_group_that_they_are_about() -> None:
    """One group rests while the others go on; the flow's picture shows what is wanted and what is so."""
    async with rig() as flow:
        flow.checkpoints.connector = CHECKPOINT
        flow.runner.requests.apply(verbs.want_connector(NO_OVERRIDES, CHECKPOINT, Wanted.STOPPED), by="ann")
        await asyncio.sleep(60)
        view = flow.runner.view()
        deleted = verbs.want_connector(flow.runner.requests.overrides, CHECKPOINT, Wanted.DELETED)
        flow.runner.requests.apply(deleted, by="bob")
        await asyncio.sleep(60)
        deleted = flow.runner.view()
        flow.runner.requests.apply(NO_OVERRIDES)
        await asyncio.sleep(60)
        back = flow.runner.view()
        flow.runner.drain(within_s=5.0)

    assert [(group.state, group.wanted) for group in view.groups] == [
        (FlowState.RUNNING, Wanted.RUNNING),
        (FlowState.STOPPED, Wanted.STOPPED),
        (FlowState.RUNNING, Wanted.RUNNING),
    ]
    assert [group.connector for group in deleted.groups] == ["MirrorToyConnector"] * 2
    assert [group.state for group in back.groups] == [FlowState.RUNNING] * 3
    assert [(event.is_deleted, event.by) for event in flow.events.of(ConnectorStopped)] == [
        (False, "ann"),
        (True, "bob"),
    ]


async def test_a_stopped_lead_is_no_end() -> None:
    """The daemon stays up for a stopped flow, which an operator may resume, and drains it at once."""
    async with rig() as flow:
        flow.source.connector = SOURCE
        flow.runner.requests.apply(verbs.want_connector(NO_OVERRIDES, SOURCE, Wanted.STOPPED))
        await asyncio.sleep(60)
        state, is_over = flow.runner.view().state, flow.runner.is_over
        flow.runner.drain(within_s=5.0)
        await asyncio.sleep(4)
        ended = flow.runner.view().state

    assert (state, is_over, ended) == (FlowState.STOPPED, False, FlowState.DRAINED)
    assert flow.runner.is_over


async def test_a_flow_that_failed_is_over_until_it_is_restarted() -> None:
    """The end of the flow is reported each time that it fails."""
    async with rig(source=HopelessError("no")) as flow:
        flow.runner.requests.restart_here(Restart("MirrorToyConnector"))
        await asyncio.sleep(1)
        failed_again = flow.runner.is_over
        flow.source.failure = None
        flow.runner.requests.restart_here(Restart("MirrorToyConnector"))
        await asyncio.sleep(1)
        runs, state = not flow.runner.is_over, flow.runner.view().state
        flow.runner.drain(within_s=5.0)

    assert (failed_again, runs, state) == (True, True, FlowState.RUNNING)
    assert flow.told == [True, True, True]


@pytest.mark.parametrize(
    ("include_tasks", "only_failed", "state", "expected"),
    [
        (True, False, FlowState.RUNNING, ["restart"]),
        (False, False, FlowState.RUNNING, ["alone"]),
        (True, True, FlowState.RUNNING, ["task 2"]),
        (False, True, FlowState.RUNNING, []),
        (False, True, FlowState.FAILED, ["restart"]),
        (False, False, FlowState.RESTARTING, ["restart"]),
        (True, True, FlowState.FAILED, ["restart"]),
    ],
)
async def test_what_a_restart_touches(
    state: FlowState, expected: list[str], *, include_tasks: bool, only_failed: bool
) -> None:
    """As KIP-745 has it: tasks where they are asked for, and only what is down where that is asked for."""
    async with rig() as flow:
        done: list[str] = []
        group = cast("Any", flow.source)
        group.restart = lambda **_: done.append("restart")
        group.restart_alone = lambda **_: done.append("alone")
        group.lost_tasks = lambda: (2,)
        group.restart_task = lambda task, **_: done.append(f"task {task}")
        before, group.state = group.state, state
        flow.runner.requests.restart_here(Restart("MirrorToyConnector", None, include_tasks, only_failed))
        group.state = before
        flow.runner.drain(within_s=5.0)

    assert done == expected


async def test_other_settings_restart_only_the_connector_that_reads_them() -> None:
    """The others go on meanwhile; a setting by which nodes share the flow is left to a restart of the flow."""
    other = changed(SETTINGS, checkpoint_connector=attrs.evolve(SETTINGS.checkpoint_connector, groups=("billing",)))
    async with rig() as flow:
        flow.checkpoints.connector = CHECKPOINT
        is_done = flow.runner.adopt(other)
        await asyncio.sleep(1)
        restarts = [group.view().restarts for group in (flow.source, flow.checkpoints, flow.heartbeats)]
        in_use = flow.runner.settings, flow.checkpoints.config
        flow.source.connector = SOURCE
        later = changed(other, topic_sync=attrs.evolve(other.source_connector.topic_sync, acls_enabled=False))
        flow.runner.adopt(later)
        await asyncio.sleep(1)
        then = [group.view().restarts for group in (flow.source, flow.checkpoints, flow.heartbeats)]
        is_too_much = flow.runner.adopt(
            changed(other, copying=attrs.evolve(other.source_connector.copying, tasks_max=7))
        )
        flow.runner.drain(within_s=5.0)

    assert (is_done, restarts, in_use) == (True, [0, 1, 0], (other, other.checkpoint_connector))
    assert (then, flow.source.config) == ([1, 1, 0], later.source_connector)
    assert (is_too_much, flow.runner.settings) == (False, later)


async def test_a_refresh_restarts_nothing() -> None:
    """The groups that follow something at the source look for it, if operators want them to run."""
    async with rig() as flow:
        looked: list[str] = []
        for group in (flow.source, flow.checkpoints, flow.heartbeats):
            group.connector = {flow.source: SOURCE, flow.checkpoints: CHECKPOINT, flow.heartbeats: HEARTBEAT}[group]
            cast("Any", group).refresh = lambda name=group.connector: looked.append(name)
        cast("Any", flow.heartbeats).follows_source = False
        requests = flow.runner.requests
        await requests.refresh()
        requests.apply(verbs.want_connector(NO_OVERRIDES, SOURCE, Wanted.PAUSED))
        await requests.refresh()
        requests.apply(verbs.pause_flow(NO_OVERRIDES, (SOURCE, CHECKPOINT, HEARTBEAT)))
        with pytest.raises(OverrideConflictError, match="follows no topics now: resume it"):
            await requests.refresh()
        restarts = [group.view().restarts for group in (flow.source, flow.checkpoints, flow.heartbeats)]
        flow.runner.drain(within_s=5.0)

    assert looked == [SOURCE, CHECKPOINT, CHECKPOINT]
    assert restarts == [0, 0, 0]


async def test_what_is_not_there_is_not_restarted() -> None:
    """Unknown names, tasks and stopped connectors are told apart."""
    async with rig() as flow:
        flow.heartbeats.connector = HEARTBEAT
        with pytest.raises(UnknownConnectorError, match="A->B has no connector MirrorToy"):
            await flow.runner.requests.restart(Restart("MirrorToy"))
        with pytest.raises(UnknownTaskError, match="has no task 1"):
            await flow.runner.requests.restart(Restart(HEARTBEAT, 1))
        await flow.runner.requests.restart(Restart(HEARTBEAT, 0))
        flow.runner.requests.apply(verbs.want_connector(NO_OVERRIDES, HEARTBEAT, Wanted.STOPPED))
        with pytest.raises(OverrideConflictError, match="is stopped: resume it"):
            await flow.runner.requests.restart(Restart(HEARTBEAT))
        flow.runner.drain(within_s=5.0)

    assert flow.heartbeats.view().restarts == 1


async def test_what_is_ordered_is_told_and_shown() -> None:
    """Who paused and limited what, once for each change."""
    async with rig() as flow:
        overrides = verbs.pause_topic(verbs.pause_partition(NO_OVERRIDES, TopicPartition("t", 1)), "u")
        overrides = verbs.set_topic_limit(verbs.set_limit(overrides, RateLimit(5.0)), "v", RateLimit(records_per_s=7.0))
        runner = FlowRunner(SETTINGS, PretendedEpochs(), clock=LoopClock(), events=flow.events, jitter=lambda: 0.5)
        for again in (overrides, overrides):
            runner.requests.apply(again, by="ann")
        view = runner.view()
        successor = FlowRunner(SETTINGS, PretendedEpochs(), clock=LoopClock(), events=flow.events, jitter=lambda: 0.5)
        successor.requests.apply(overrides, by="ann", is_news=False)
        runner.requests.apply(NO_OVERRIDES, by="bob")
        flow.runner.drain(within_s=5.0)

    assert (view.paused_topics, view.paused_partitions) == (("u",), (TopicPartition("t", 1),))
    assert (view.limit, view.topic_limits) == (RateLimit(5.0), {"v": RateLimit(records_per_s=7.0)})
    assert flow.events.of(TopicPaused) == (TopicPaused(FLOW, "u", "ann"),)
    assert flow.events.of(PartitionPaused) == (PartitionPaused(FLOW, TopicPartition("t", 1), "ann"),)
    assert flow.events.of(RateLimited) == (
        RateLimited(FLOW, "", 5.0, None, "ann"),
        RateLimited(FLOW, "v", None, 7.0, "ann"),
    )
    kinds = (TopicResumed, PartitionResumed, RateLimitLifted)
    assert [len(flow.events.of(kind)) for kind in kinds] == [1, 1, 2]


@pytest.mark.parametrize("wanted", [Wanted.PAUSED, Wanted.STOPPED])
async def test_groups_are_translated_while_copying_rests_from_the_start(
    wanted: Wanted,
) -> None:
    """The source connector was paused or stopped, then the node restarted: the stored positions are read."""
    brokers, clock, source = FakeBrokers(), LoopClock(), TopicPartition("orders", 0)
    topic = SETTINGS.source_connector.offset_storage.topic
    brokers.topics = topics_with(topic, [0])
    runner = FlowRunner(SETTINGS, PretendedEpochs(), clock=clock, events=EventLog(clock), jitter=lambda: 0.5)
    runner.requests.apply(verbs.want_connector(NO_OVERRIDES, SOURCE, wanted))
    async with Cluster(brokers.endpoint, clock, opener=brokers.open) as target:
        key, value, headers = encode_position("A", Position(source, 100, 49))
        await TopicLog(target, topic).append([LogRecord(key, value, tuple(headers))])
        unasked = Cluster(brokers.endpoint, clock)
        found = runner._offset_syncs(checkpoint_context(clock, EventLog(clock)), unasked, target)
        await found.refresh()

    assert found.downstream(source, 100) == Translated(50, Precision.EXACT)
    assert found.source_of(TopicPartition("A.orders", 0)) == source
