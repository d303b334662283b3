"""One flow: its task groups run in parallel, each with its own life. No group stops another. A drain ends the source
group first, because checkpoints depend on what it copied last; the checkpoint group follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.connectors.checkpoint.group import CheckpointGroup
from mm2py.connectors.context import CheckpointContext, HerderContext, SourceContext, flow_context
from mm2py.connectors.heartbeat import HeartbeatGroup
from mm2py.connectors.measures import FlowMeasures
from mm2py.connectors.offsets.offset_sync_store import OfConnector, OffsetSyncStore
from mm2py.connectors.offsets.offset_syncs import OffsetSyncs
from mm2py.connectors.offsets.reverse import ReversePair
from mm2py.connectors.offsets.stored_translations import StoredRuns, StoredSyncs
from mm2py.connectors.offsets.translations import Translations
from mm2py.connectors.pair import PairedSource
from mm2py.connectors.plugins import remote_names_of
from mm2py.connectors.reach import Reach
from mm2py.connectors.source.broken_history import BrokenHistory
from mm2py.connectors.source.group import MakeLoop, SourceGroup
from mm2py.connectors.source.idle_source import IdleSourceWatch
from mm2py.connectors.source.stall_watch import StallWatch
from mm2py.connectors.task_group import AnyGroup
from mm2py.connectors.topics.acls import AclSync
from mm2py.connectors.topics.configs import ConfigSync
from mm2py.core.herder.reload import restarting_alone
from mm2py.core.source.stalls import Stall
from mm2py.errors import Mm2Error, Verdict
from mm2py.herder.node_context import NodeContext
from mm2py.herder.requests import FlowRequests
from mm2py.herder.sharing import FlowSharing
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.health import shown_state
from mm2py.model.herder.overrides import Wanted
from mm2py.model.state import FlowState, FlowView, GroupView, NodeView
from mm2py.pipeline.epoch_jobs import EpochRunner
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.security.contexts import principal_of


#: Time limit for ending groups without epochs.
_QUICK_DRAIN_S = 3.0
_ENDS = (FlowState.DRAINED, FlowState.FAILED)
#: Verdicts of errors that are retried before a flow starts.
_PASSING = (Verdict.RETRY, Verdict.REFRESH_METADATA)


class FlowRunner:
    """Runs the groups of one flow until they are drained, and returns a view of it at any time. The *lead* is the main
    group of the flow: the source group; without one the checkpoint group, or else the heartbeat group. The flow's state
    is the lead's.
    """

    def __init__(
        self,
        settings: FlowSettings,
        epochs: EpochRunner,
        *,
        clock: Clock,
        events: EventLog,
        jitter: Callable[[], float],
        measures: FlowMeasures | None = None,
        node: NodeContext | None = None,
    ) -> None:
        """Create a runner on a *node*."""
        node = node or NodeContext()
        self.settings = settings
        self._has_ended = False
        ends = {end.alias: end for end in (settings.source, settings.target)}
        #: Which of its clusters answers.
        shared = node.known.known_to(ends.values())
        self.reach = Reach(settings.flow, clock, events, jitter, lambda alias: principal_of(ends[alias]), known=shared)
        #: Set once the flow is asked to end.
        self.draining = asyncio.Event()
        self._drain_within_s = 0.0
        #: What prevents the flow from starting: state, error and hint.
        self._held: tuple[FlowState, str, str] | None = None
        config = settings.source_connector
        #: What its connectors know of those of its pair, and of the pair in the other direction.
        self.pairs = node.pairs
        context = flow_context(
            settings,
            self.reach,
            clock=clock,
            events=events,
            jitter=jitter,
            on_clusters=node.on_clusters,
            pairs=self.pairs,
        )
        #: The source group fills them, the checkpoint group reads them.
        self._translations = Translations()
        #: They outlive this runner, if the daemon keeps them.
        self._measures = measures or FlowMeasures(clock)
        self._measures.is_source_away = lambda: self.reach.is_away(settings.flow.source)
        self._source = self._make_source(context.of(config), epochs) if settings.is_enabled else None
        self._checkpoints = self._make_checkpoints(context) if settings.checkpoint_connector.is_run else None
        beats = settings.heartbeat_connector
        self._heartbeats = HeartbeatGroup(context.of(beats)) if beats.is_emitted else None
        #: How the nodes that run the flow share it; None if it only emits heartbeats.
        self.sharing = (
            FlowSharing(
                context, self._source, epochs, node, self._own_view, on_rebalanced=self._measures.rebalances.done
            )
            if settings.reads_source
            else None
        )
        nodes = self.sharing.nodes if self.sharing is not None else None
        #: What operators ask of it.
        self.requests = FlowRequests(context, self._source, self._groups, nodes)

    def _make_source(self, context: SourceContext, epochs: EpochRunner) -> SourceGroup:
        stalls: dict[TopicPartition, Stall] = {}
        sides: tuple[MakeLoop, ...] = (
            lambda of, life: OffsetSyncs(of, self._translations, life),
            lambda of, life: ConfigSync(of, life.source, life.target, life.topics, on_limits=life.keeper.go_on),
            lambda of, life: AclSync(of, life.source, life.target, life.topics.memory),
            partial(BrokenHistory, undone={}),
            lambda of, life: StallWatch(of, stalls, life),
        )
        watches = (lambda of, life: IdleSourceWatch(of, self._measures, life),)
        return SourceGroup(
            context,
            epochs,
            self._translations,
            sides,
            self._measures,
            watches=watches,
            judged=lambda: shown_state(self._own_view()),
        )

    def _make_checkpoints(self, context: HerderContext) -> CheckpointGroup:
        return CheckpointGroup(
            context.of(self.settings.checkpoint_connector),
            forward=self._offset_syncs,
            way_back=ReversePair(self.flow, self.pairs, context.clock).translations,
            latencies=self._measures.checkpoints,
        )

    def _offset_syncs(self, context: CheckpointContext, source: Cluster, target: Cluster) -> OffsetSyncStore:
        """Return what is known of where the pair's records went."""
        own, clock = self.settings.source_connector, context.clock
        syncs = partial(StoredSyncs, context.config, source, target, passed_over=context.passed_over, clock=clock)

        def runs(one: PairedSource) -> StoredRuns:
            config = one.config
            names, topic = partial(remote_names_of, config), config.offset_storage.topic
            return StoredRuns(config.flow, target, names, topic=topic, connector=config.name, clock=clock)

        def connectors() -> dict[Hashable, OfConnector]:
            beside = self.pairs.beside(self.flow)
            sources = [PairedSource(own, self.live_translations), *beside] if own.is_enabled else beside
            found: dict[Hashable, OfConnector] = {
                (one.flow, one.config.name): OfConnector(one.live, partial(runs, one)) for one in sources
            }
            return found or {None: OfConnector(self.live_translations, syncs)}

        return OffsetSyncStore(connectors)

    def look_for_topics(self) -> None:
        """Look for topics at once: another source connector of the pair may have left some, or want them."""
        if self._source is not None:
            self._source.refresh()

    def live_translations(self) -> Translations | None:
        """Return the translations in memory; None while they do not count, because this node does not follow all that
        is copied.
        """
        return self._translations if self._source is not None and self._source.follows_all else None

    @property
    def flow(self) -> Flow:
        return self.settings.flow

    @property
    def has_failed(self) -> bool:
        """Whether a group failed permanently."""
        is_held = self._held is not None and self._held[0] is FlowState.FAILED
        return is_held or any(group.has_failed for group in self._groups)

    @property
    def has_lost(self) -> bool:
        """Whether an epoch was lost, or not back in time, when the flow was drained."""
        return self._source is not None and self._source.has_lost

    @property
    def _groups(self) -> tuple[AnyGroup, ...]:
        return tuple(group for group in (self._source, self._checkpoints, self._heartbeats) if group is not None)

    @property
    def _lead(self) -> AnyGroup:
        return self._groups[0]

    def drain(self, *, within_s: float) -> None:
        """Ask the flow to end its epochs, write its positions and return from `run`."""
        self._drain_within_s = within_s
        self.draining.set()

    def adopt(self, settings: FlowSettings) -> bool:
        """Restart only the connectors for which *settings* differ; return whether that is possible. If not, the whole
        flow must restart.
        """
        connectors = restarting_alone(self.settings, settings)
        if connectors is None:
            return False
        self.settings = settings
        for group in self._groups:
            if group.connector in connectors:
                group.adopt(settings.config_of(group.connector))
        return True

    def hold(self, error: Mm2Error | None, state: FlowState | None = None) -> None:
        """Show what prevents the flow from starting, which needs attention unless it is retried; None: nothing."""
        self._held = None
        if error is not None:
            state = state or (FlowState.STARTING if error.verdict in _PASSING else FlowState.FAILED)
            self._held = (state, str(error), error.hint)

    @property
    def is_over(self) -> bool:
        """Whether the lead was drained, or failed permanently; not if operators stopped it."""
        return self._has_ended or self._lead.has_failed

    @property
    def is_at_rest(self) -> bool:
        """Whether there is nothing to drain: every group has ended, or failed permanently."""
        return self._has_ended or all(group.has_failed for group in self._groups)

    async def run(self, on_end: Callable[[], None] = lambda: None) -> None:
        """Run the flow until each of its groups is drained. *on_end* is called when it is over: see `is_over`."""
        async with asyncio.TaskGroup() as tasks:
            groups = [group for group in self._groups if group is not self._heartbeats]
            place = self.sharing.begin(groups, self._heartbeats, tasks) if self.sharing is not None else []
            running = {
                group: tasks.create_task(self._run_group(group, on_end), name=f"{self.flow}/{group.name}/group")
                for group in self._groups
            }
            drain = tasks.create_task(self._drain_in_order(running), name=f"{self.flow}/drain")
            await asyncio.wait(running.values())
            for task in (drain, *place):
                task.cancel()
        self.reach.close()

    async def _run_group(self, group: AnyGroup, on_end: Callable[[], None]) -> None:
        if group is not self._lead:
            await group.run()
            return
        await group.run(on_end)
        self._has_ended = True
        on_end()

    async def _drain_in_order(self, running: dict[AnyGroup, asyncio.Task[None]]) -> None:
        await self.draining.wait()
        for group in running:
            if group is not self._checkpoints:
                group.requests.drain(within_s=self._drain_within_s if group is self._source else _QUICK_DRAIN_S)
        if self._source is not None and self._checkpoints is not None:
            await asyncio.wait({running[self._source]})
        if self._checkpoints is not None:
            self._checkpoints.requests.drain(within_s=_QUICK_DRAIN_S)

    # Views.

    @property
    def load(self) -> tuple[float, int]:
        """The bytes per second that this node copies, and the number of its copy tasks."""
        return self._source.totals() if self._source is not None else (0.0, 0)

    def view(self, *, has_partitions: bool = True) -> FlowView:
        """Return a view of what this node runs of the flow, with the nodes that run it: see `SourceGroup.show`."""
        view = self._own_view(has_partitions=has_partitions)
        return view if self.sharing is None else attrs.evolve(view, nodes=self.sharing.nodes.views(view))

    async def prepare_views(self) -> None:
        """Have the next view take less time at once: see `SourceGroup.prepare_views`."""
        if self._source is not None:
            await self._source.prepare_views()

    def node_views(self) -> tuple[NodeView, ...]:
        """Return the nodes that run the flow, even if this is the only one."""
        return () if self.sharing is None else self.sharing.nodes.all_views(self._own_view())

    def _own_view(self, *, has_partitions: bool = True) -> FlowView:
        """Return a view of what this node runs of the flow."""
        groups = tuple(self._view_of(group) for group in self._groups if group.requests.wanted is not Wanted.DELETED)
        lead = self._view_of(self._lead)
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
            rebalances=self._measures.rebalances.view(
                is_under_way=self.sharing is not None and self.sharing.membership.is_rebalancing
            ),
        )
        view = self.requests.shown(view)
        return view if self._source is None else self._source.show(view, has_partitions=has_partitions)

    def _view_of(self, group: AnyGroup) -> GroupView:
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
