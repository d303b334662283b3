"""One flow: its task groups run in parallel, each with its own life. No group stops another. A drain ends the source
group first, because checkpoints depend on what it copied last; the checkpoint group follows.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.core.sharing import Work, flow_tasks
from mm2py.errors import Mm2Error, OverrideConflictError, UnknownConnectorError, UnknownTaskError, Verdict
from mm2py.flow.checkpoint.group import CheckpointGroup
from mm2py.flow.control.override_events import events_of
from mm2py.flow.heartbeat import HeartbeatGroup
from mm2py.flow.measures import FlowMeasures
from mm2py.flow.membership import FlowMembership
from mm2py.flow.nodes import FlowNodes
from mm2py.flow.offsets.offset_syncs import OffsetSyncs
from mm2py.flow.offsets.reverse import ReverseFlow
from mm2py.flow.offsets.translations import Translations
from mm2py.flow.reach import Reach
from mm2py.flow.shared_restarts import SharedRestarts
from mm2py.flow.source.broken_history import BrokenHistory
from mm2py.flow.source.copy_task import Epochs
from mm2py.flow.source.group import SourceGroup, SourceLife
from mm2py.flow.source.idle_source import IdleSourceWatch
from mm2py.flow.source.stall_watch import Stalls, StallWatch
from mm2py.flow.task_group import FlowContext, FlowGroup
from mm2py.flow.this_node import this_node
from mm2py.flow.topics.acls import AclSync
from mm2py.flow.topics.configs import ConfigSync
from mm2py.flow.topics.elsewhere import PartsElsewhere
from mm2py.model.elsewhere import Elsewhere
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.node import Node
from mm2py.model.node_settings import NodeSettings
from mm2py.model.node_status import noticeable_rates
from mm2py.model.overrides import NO_OVERRIDES, Overrides, Wanted
from mm2py.model.restart import Restart
from mm2py.model.share import Candidate, NodeLoad
from mm2py.model.state import FlowState, FlowView, GroupView, NodeView
from mm2py.telemetry.journal import EventLog
from mm2py.wire.security.contexts import principal_of


#: Time limit for ending groups without epochs.
_QUICK_DRAIN_S = 3.0
#: Pause between attempts to start Spark, and between looks whether other nodes have what this one had.
_SPARK_RETRY_S = 5.0
_PARTED_LOOK_S = 0.05
_ENDS = (FlowState.DRAINED, FlowState.FAILED)
_DOWN = (FlowState.FAILED, FlowState.RESTARTING)
#: Verdicts of errors that are retried before a flow starts.
_PASSING = (Verdict.RETRY, Verdict.REFRESH_METADATA)


class FlowRunner:
    """Runs the groups of one flow until they are drained, and returns a view of it at any time. The *lead* is the main
    group of the flow: the source group, or the heartbeat group of a flow that only emits heartbeats. The flow's state
    is the lead's.
    """

    #: Whether one node runs all of the flow, as the driver of a Spark cluster, and the others stand by.
    is_for_one_node = False

    def __init__(
        self,
        settings: FlowSettings,
        epochs: Epochs,
        *,
        clock: Clock,
        events: EventLog,
        jitter: Callable[[], float],
        measures: FlowMeasures | None = None,
        us: Callable[[], Node] = this_node,
        before_takeover: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """
        Create a runner; *us* returns this node as seen by others that would run the same flow.

        *before_takeover* runs, with retries, before the flow continues where another node left it.
        """
        self.settings = settings
        #: Called when the flow is over: see `is_over`.
        self.on_end: Callable[[], None] = lambda: None
        self._has_ended = False
        #: The overrides that apply to the flow.
        self.overrides = NO_OVERRIDES
        #: Who changed them last, and the wall time.
        self._changed = ("", 0)
        ends = {end.alias: end for end in (settings.source, settings.target)}
        #: Which of its clusters answers.
        self.reach = Reach(settings.flow, clock, events, jitter, lambda alias: principal_of(ends[alias]))
        self._clock, self._events, self._epochs = clock, events, epochs
        self._draining = asyncio.Event()
        self._drain_within_s = 0.0
        #: What prevents the flow from starting: state, error and hint.
        self._held: tuple[FlowState, str, str] | None = None
        context = FlowContext(settings, self.reach, clock, events, jitter)
        #: The source group fills them, the checkpoint group reads them.
        self.translations = Translations(
            flow_runs=settings.offset_syncs.flow_runs_max, partition_runs=settings.offset_syncs.partition_runs_max
        )
        self.reverse = ReverseFlow(settings, clock)
        #: They outlive this runner, if the daemon keeps them.
        self._measures = measures or FlowMeasures(clock)
        sides = (
            partial(OffsetSyncs, context, self.translations),
            partial(ConfigSync, context),
            partial(AclSync, context),
            partial(BrokenHistory, context, undone={}),
            partial(StallWatch, context, Stalls()),
        )
        watches = (partial(IdleSourceWatch, context, self._measures),)
        self._source = (
            SourceGroup(context, epochs, self.translations, sides, self._measures, watches=watches)
            if settings.is_enabled
            else None
        )
        self._checkpoints = self._make_checkpoints(context) if settings.is_enabled else None
        self._heartbeats = HeartbeatGroup(context) if settings.heartbeats.is_emitted else None
        self._us = us = partial(_named, us, settings.membership.instance)
        #: What this node and the others that run the flow know of each other; None if it only emits heartbeats.
        self.nodes = FlowNodes(context, us, self._own_view) if self._source is not None else None
        self._membership = FlowMembership(context, us, before_takeover) if self._source is not None else None
        self._restarts: SharedRestarts | None = None
        self._parts: PartsElsewhere | None = None
        #: Since when operators want each connector in its target state.
        self._wanted_since: dict[str, float] = {}
        self._connect_nodes(context)

    def _connect_nodes(self, context: FlowContext) -> None:
        """Connect what concerns the nodes of the flow, if it does more than to emit heartbeats."""
        source, nodes, membership = self._source, self.nodes, self._membership
        if source is None or nodes is None or membership is None:
            return
        source.on_life = self._follow
        context.writers.on_fenced = membership.doubt
        membership.on_assignment = nodes.know
        membership.load = self._share_load
        membership.leader.work, membership.leader.load_of = self._shared_work, self._load_of
        self._restarts = SharedRestarts(context, nodes, self._named, self.restart_here)
        self._parts = PartsElsewhere(context, nodes, source)

    def _follow(self, life: SourceLife) -> None:
        for one in (self.nodes, self._parts):
            if one is not None:
                one.follow(life)

    def _share_load(self) -> NodeLoad:
        """Return what this node does, for the leader of the flow's group."""
        elsewhere = self.nodes.elsewhere() if self.nodes is not None else (0.0, 0)
        return NodeLoad(noticeable_rates(self._own_view().partitions), *elsewhere)

    def _load_of(self, member: Candidate) -> NodeLoad:
        """Return what another node does, by its last report; this one's own as it is now."""
        status = self.nodes.others.get(member.node.id) if self.nodes is not None else None
        if status is not None:
            return status.load
        return self._share_load() if member.node.id == self._us().id else member.load

    def _shared_work(self) -> Work:
        """Return what there is to share between the flow's nodes, as far as this one knows."""
        tasks = flow_tasks(self.settings)
        if self.nodes is None:
            return Work(*tasks)
        return Work(*tasks, self.nodes.slots(), self.nodes.loads(), is_for_one_node=self.is_for_one_node)

    def _make_checkpoints(self, context: FlowContext) -> CheckpointGroup | None:
        if not self.settings.checkpoints.is_emitted:
            return None
        return CheckpointGroup(
            context, forward=self.translations.downstream, way_back=self.reverse.translation, measures=self._measures
        )

    @property
    def flow(self) -> Flow:
        return self.settings.flow

    @property
    def has_failed(self) -> bool:
        """Whether a group failed permanently."""
        is_held = self._held is not None and self._held[0] is FlowState.FAILED
        return is_held or any(group.has_failed for group in self._groups)

    @property
    def _groups(self) -> tuple[FlowGroup, ...]:
        return tuple(group for group in (self._source, self._checkpoints, self._heartbeats) if group is not None)

    @property
    def _lead(self) -> FlowGroup:
        return self._groups[0]

    def drain(self, *, within_s: float) -> None:
        """Ask the flow to end its epochs, write its positions and return from `run`."""
        self._drain_within_s = within_s
        self._draining.set()

    def share_settings(
        self, settings: Callable[[], NodeSettings], follow: Callable[[Mapping[str, str | None]], Awaitable[bool]]
    ) -> None:
        """Have the flow's nodes compare their *settings*, and *follow* those of its owner: see `SettingsAgreement`."""
        if self._membership is not None:
            self._membership.agreement.settings, self._membership.agreement.follow = settings, follow

    def compare_settings(self) -> None:
        """Have the nodes of the flow compare their settings again: this node's may have changed."""
        if self._membership is not None:
            self._membership.compare_settings()

    def hand_over(self, settings: FlowSettings) -> None:
        """Keep the flow's membership for this node's next runner, which has other *settings*; see `succeed`."""
        is_same = (settings.group_id, settings.membership.instance) == (
            self.settings.group_id,
            self.settings.membership.instance,
        )
        if self._membership is not None and is_same:
            self._membership.hand_over()
        if self.nodes is not None:
            self.nodes.hand_over()

    def succeed(self, before: FlowRunner) -> None:
        """Continue with the membership of the runner *before*; joining again would take seconds."""
        if self._membership is not None and before._membership is not None:
            self._membership.place = before._membership.place
            self._membership.agreement.succeed(before._membership.agreement)

    def hold(self, error: Mm2Error | None, state: FlowState | None = None) -> None:
        """Show what prevents the flow from starting, which needs attention unless it is retried; None: nothing."""
        self._held = None
        if error is not None:
            state = state or (FlowState.STARTING if error.verdict in _PASSING else FlowState.FAILED)
            self._held = (state, str(error), error.hint)

    @property
    def is_draining(self) -> bool:
        """Whether the flow was asked to end."""
        return self._draining.is_set()

    async def until_draining(self) -> None:
        """Wait until the flow is asked to end."""
        await self._draining.wait()

    @property
    def is_over(self) -> bool:
        """Whether the lead was drained, or failed permanently; not if operators stopped it."""
        return self._has_ended or self._lead.has_failed

    @property
    def is_at_rest(self) -> bool:
        """Whether there is nothing to drain: every group has ended, or failed permanently."""
        return self._has_ended or all(group.has_failed for group in self._groups)

    async def run(self) -> None:
        """Run the flow until each of its groups is drained."""
        self._lead.on_failure = self.on_end
        async with asyncio.TaskGroup() as tasks:
            place = self._keep_place(tasks)
            running = {
                group: tasks.create_task(self._run_group(group), name=f"{self.flow}/{group.name}/group")
                for group in self._groups
            }
            drain = tasks.create_task(self._drain_in_order(running), name=f"{self.flow}/drain")
            await asyncio.wait(running.values())
            for task in (drain, *place):
                task.cancel()

    def _keep_place(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Let the groups work only while this node runs the flow."""
        if self._membership is None:
            return []
        groups = [group for group in self._groups if group is not self._heartbeats]
        self._membership.begin(groups, self._heartbeats)
        place = [tasks.create_task(self._membership.run(), name=f"{self.flow}/membership")]
        if not self.is_for_one_node:
            self._membership.is_ready = False
            place.append(tasks.create_task(self._await_spark(self._membership), name=f"{self.flow}/spark"))
        if self.nodes is not None:
            place.append(tasks.create_task(self.nodes.run(), name=f"{self.flow}/nodes"))
        return place

    async def _await_spark(self, membership: FlowMembership) -> None:
        """Leave the flow's tasks to other nodes until Spark has started here."""
        while True:
            try:
                await self._epochs.ready()
            except Mm2Error:  # a node that has tasks reports it
                await self._clock.sleep(_SPARK_RETRY_S)
            else:
                membership.note_ready()
                return

    async def part(self, *, within_s: float) -> None:
        """Prepare the end of this node: a static member keeps its place; other nodes take over what any other one has,
        which it copies until they have noticed.
        """
        if self._membership is None or self.nodes is None:
            return
        if self._membership.come_back():
            self.nodes.hand_over()
            return
        if self._membership.has_given:
            return  # no other node takes over: this one writes the last checkpoints, once all is copied
        self._membership.drain(is_drained=True, is_ending=True)
        until = self._clock.monotonic() + within_s
        while not self._membership.has_given and self._clock.monotonic() < until:
            await self._clock.sleep(_PARTED_LOOK_S)

    async def _run_group(self, group: FlowGroup) -> None:
        await group.run()
        if group is self._lead:
            self._has_ended = True
            self.on_end()

    # Requests of operators.

    def set_drained(self, *, is_drained: bool) -> None:
        """Have this node take no tasks of the flow, or take them again."""
        if self.nodes is not None and self.nodes.is_drained is not is_drained:
            self.nodes.is_drained = is_drained
            if self._membership is not None:
                self._membership.drain(is_drained=is_drained)
            self.nodes.wake()

    def apply_overrides(self, overrides: Overrides, *, by: str = "", at_ms: int = 0) -> None:
        """
        Apply *overrides* from now on: to task groups at once, pauses and limits from the next epoch on.

        May be called before `run`. *by* is who changed them last, *at_ms* the wall time of that.
        """
        before, self.overrides = self.overrides, overrides
        self._changed = (by, at_ms)
        for event in events_of(self.flow, before, overrides, by):
            self._events.emit(event)
        if self._source is not None:
            self._source.apply_overrides(overrides)
        for group in self._groups:
            if (wanted := overrides.wanted(group.connector)) is not group.requests.wanted:
                self._wanted_since[group.connector] = self._clock.monotonic()
            group.requests.want(wanted, by=by)
        if self.nodes is not None:
            self.nodes.wake()  # the other nodes read them, too

    async def elsewhere(self, *, must_know: bool) -> Mapping[TopicPartition, Elsewhere]:
        """Return the partitions that other nodes copy; see `PartsElsewhere.find`."""
        return {} if self._parts is None else await self._parts.find(must_know=must_know)

    def not_stopped(self, connector: str, revision: int) -> tuple[str, ...]:
        """Return the names of other nodes that have not reported yet that they stopped a connector, which this one has:
        under overrides of that *revision*, and since operators want it.
        """
        since = self._wanted_since.get(connector, -math.inf)
        return () if self.nodes is None else self.nodes.not_stopped(connector, revision, since)

    async def restart(self, restart: Restart) -> None:
        """Restart a connector or a task on whichever node of the flow runs it; see `SharedRestarts.ask`."""
        if self._restarts is not None:
            await self._restarts.ask(restart)
        elif not self.restart_here(restart):
            raise UnknownTaskError(str(self.flow), restart.connector, restart.task or 0)

    def restart_here(self, restart: Restart) -> bool:
        """
        Restart what this node runs of a connector or of a task; return whether it runs any of it.

        A connector restarts as in Connect (KIP-745). Without `include_tasks` its copy tasks continue meanwhile; with
        `only_failed` working parts are left alone. A failed group restarts as a whole in any case. A copy task ends its
        epoch, cancels its back-off and plans again; other groups only have task 0.
        """
        group, by = self._named(restart.connector), restart.by
        if group.state is FlowState.STANDBY:
            return False
        if restart.task is not None:
            return group.restart_task(restart.task, by=by)
        if group.state in _DOWN:
            group.restart(by=by)
        elif restart.only_failed:
            for task in group.lost_tasks() if restart.include_tasks else ():
                group.restart_task(task, by=by)
        elif restart.include_tasks:
            group.restart(by=by)
        else:
            group.restart_alone(by=by)
        return True

    def _named(self, connector: str) -> FlowGroup:
        for group in self._groups:
            if group.connector == connector and group.requests.wanted is not Wanted.DELETED:
                if group.requests.wanted is Wanted.STOPPED:
                    raise OverrideConflictError(f"{connector} of {self.flow} is stopped", "resume it instead")
                return group
        raise UnknownConnectorError(str(self.flow), connector)

    async def _drain_in_order(self, running: dict[FlowGroup, asyncio.Task[None]]) -> None:
        await self._draining.wait()
        for group in running:
            if group is not self._checkpoints:
                group.requests.drain(within_s=self._drain_within_s if group is self._source else _QUICK_DRAIN_S)
        if self._checkpoints is not None:
            await asyncio.wait({running[self._lead]})
            self._checkpoints.requests.drain(within_s=_QUICK_DRAIN_S)

    # Views.

    @property
    def load(self) -> tuple[float, int]:
        """The bytes per second that this node copies, and the number of its copy tasks."""
        return self._source.totals() if self._source is not None else (0.0, 0)

    def view(self) -> FlowView:
        """Return a view of what this node runs of the flow, with the nodes that run it."""
        view = self._own_view()
        return view if self.nodes is None else attrs.evolve(view, nodes=self.nodes.views(view))

    def node_views(self) -> tuple[NodeView, ...]:
        """Return the nodes that run the flow, even if this is the only one."""
        return () if self.nodes is None else self.nodes.all_views(self._own_view())

    def _own_view(self) -> FlowView:
        """Return a view of what this node runs of the flow."""
        groups = tuple(self._view_of(group) for group in self._groups if group.requests.wanted is not Wanted.DELETED)
        lead, overrides = self._view_of(self._lead), self.overrides
        view = FlowView(
            self.flow,
            self._state(),
            clusters=self.reach.view(),
            last_error=lead.last_error,
            hint=lead.hint,
            groups=groups,
            consumer_groups=self._checkpoints.consumer_groups() if self._checkpoints is not None else (),
            heartbeats=self._heartbeats.counted() if self._heartbeats is not None else None,
            steps=self.reach.steps(),
            paused_topics=tuple(sorted(overrides.topics)),
            paused_partitions=tuple(sorted(overrides.partitions)),
            limit=overrides.limit,
            topic_limits=overrides.topic_limits,
            overrides_by=self._changed[0],
            overrides_ms=self._changed[1],
        )
        return self._source.show(view) if self._source is not None else view

    def _view_of(self, group: FlowGroup) -> GroupView:
        view = group.view()
        if self._held is None:
            return view
        state, error, hint = self._held
        return attrs.evolve(view, state=state, last_error=error, hint=hint)

    def _state(self) -> FlowState:
        if self._held is not None:
            return self._held[0]
        state = self._lead.state
        if state is FlowState.DRAINED and any(group.state not in _ENDS for group in self._groups):
            return FlowState.DRAINING
        return state


def _named(us: Callable[[], Node], instance: str) -> Node:
    """Return a node by its `group.instance.id` in a flow's group, too."""
    return attrs.evolve(us(), instance=instance)
