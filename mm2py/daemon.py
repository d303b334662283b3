"""
MirrorMaker: which flows this node runs; start, reload, drain, stop.

Spark starts while the flows connect to their clusters. Each flow runs under its own supervision, so that none stops
another; the node stops on request, or when no flow is left. A reload restarts only the flows whose settings changed.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import random
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType

import attrs

import mm2py
from mm2py.clock import Clock
from mm2py.config.providers import Stamps
from mm2py.config.settings import FlowSettings, MirrorSettings
from mm2py.connectors.known_clusters import KnownClusters
from mm2py.connectors.measures import FlowMeasures
from mm2py.connectors.pair import Pairs
from mm2py.connectors.supervise import supervise
from mm2py.herder.cluster_ids import ClusterIds
from mm2py.herder.connect_worker import ConnectWorker, Hooks
from mm2py.herder.control import Control
from mm2py.herder.desired_connectors import DesiredConnectors
from mm2py.herder.fleet import Fleet
from mm2py.herder.node_context import NodeContext
from mm2py.herder.overrides import OverrideControl
from mm2py.herder.pulse import report_shortages, watch_pulse
from mm2py.herder.runner import FlowRunner
from mm2py.herder.settings_changes import SettingsChanges, copy_tasks_of
from mm2py.herder.this_node import this_node
from mm2py.herder.worker_membership import WorkerMembership
from mm2py.model.flow import Flow
from mm2py.model.herder.node import Node
from mm2py.model.state import MirrorView
from mm2py.pipeline.epoch_jobs import EpochRunner
from mm2py.pipeline.spark.session import SparkHost
from mm2py.telemetry.events import (
    DaemonDraining,
    DaemonStarted,
    DaemonStopped,
)
from mm2py.telemetry.journal import EventLog
from mm2py.wire.connections import allow_for_lookups


#: What a drain may take beyond the time for its epochs: positions, syncs and checkpoints are written then.
_DRAIN_SLACK_S = 10.0
_SPARK_STOP_S = 5.0
#: Interval of checks that the topics with overrides still exist.
_CHECK_OVERRIDES_S = 30.0
#: How long the loads of flows are valid, so that each of many flows need not ask all others.
_LOADS_HOLD_S = 2.0
#: Spark slots of a worker, whose later connectors are not known when Spark starts. An idle one costs nothing.
_WORKER_SLOTS = 64
#: Arguments of gc.set_threshold (default 700, 10, 10).
_GC_THRESHOLDS = (50_000, 20, 50)
_OLDEST, _LONG_S = 2, 0.05
#: When what is excluded from collections is so many times what was left by one that excluded nothing.
_THAWED_AT = 2
_COLLECT_EVERY_S = 3600.0


class MirrorMaker:
    """One node: all flows of a properties file that end at its target clusters."""

    def __init__(
        self,
        settings: MirrorSettings,
        *,
        clock: Clock,
        events: EventLog,
        jitter: Callable[[], float] = random.random,
        read_again: Callable[[], MirrorSettings] | None = None,
        worker: ConnectWorker | None = None,
    ) -> None:
        """Make a node; *read_again* reads its settings again, and raises ConfigError where they cannot be used. With a
        *worker* flows come and go with its connectors, and the node runs without any too.
        """
        self.worker = worker
        self.events = events
        self._clock = clock
        self._jitter = jitter
        self._spark = SparkHost(
            settings.spark,
            copy_tasks=copy_tasks_of(settings.flows),
            clock=clock,
            events=events,
            secrets_key_file=settings.secrets_key_file,
            uses_sql=any(flow.is_enabled and flow.source_connector.transforms.use_spark for flow in settings.flows),
        )
        self._epochs = EpochRunner(self._spark, clock, events, plans_port=settings.plans_port)
        #: Counters continue across a reload of their flow.
        self._measures: dict[Flow, FlowMeasures] = {}
        self._known_clusters = KnownClusters()
        #: What its connectors are to run with.
        self._desired = desired = DesiredConnectors(settings, events=events)
        self._overrides = OverrideControl(desired, self._apply_overrides, clock=clock, events=events, states=worker)
        self._pairs = pairs = Pairs()
        make, drain_s, prepare, its = self._make_runner, self._drain_s, self._prepare, desired.settings_of
        self._fleet = Fleet(make, drain_s, slack_s=_DRAIN_SLACK_S, prepare=prepare, desired=its, pairs=pairs)
        self._changes = SettingsChanges(
            desired,
            self._fleet,
            read_again=read_again,
            on_reload=self._change,
            spark_slots=lambda: self._spark.copy_tasks if self._has_spark else None,
            clock=clock,
            events=events,
        )
        self._cluster_ids = ClusterIds(lambda: desired.agreed, clock=clock, events=events)
        self._fleet.add(settings.flows)
        self._fleet.know(settings.elsewhere)
        #: What REST may ask of the flows.
        self.control = Control(desired, self._overrides, self._fleet, clock=clock, events=events)
        self._asked_to_stop = asyncio.Event()
        self._has_spark = False
        #: Starts Spark with the daemon; None if no flow needs it.
        self._spark_start: asyncio.Task[None] | None = None
        self._is_ready = False
        self._reason = ""
        #: Returns the address of this node's REST interface, shown by other nodes; empty where it has none.
        self.rest_address: Callable[[], str] = lambda: ""
        #: What each flow copies here, and when that was read.
        self._loads: dict[Flow, tuple[float, int]] = {}
        self._loads_at = -math.inf
        self._us = this_node(started_ms=clock.wall_ms())

    def _make_runner(self, settings: FlowSettings) -> FlowRunner:
        flow, stored = settings.flow, self._overrides.stored(settings.flow)
        node = NodeContext(
            self._this_node,
            is_for_one_node=not self._spark.settings.is_on_this_machine,
            before_takeover=partial(self._before_takeover, settings),
            on_clusters=partial(self._cluster_ids.learn, flow),
            elsewhere=partial(self._load_elsewhere, flow),
            overrides_revision=lambda: self._overrides.stored(flow).revision,
            read_overrides=partial(self._overrides.catch_up, flow),
            known=self._known_clusters,
            pairs=self._pairs,
        )
        if self.worker is None:  # the nodes of a worker have one config for all
            follow = partial(self._changes.follow_owner, flow)
            node = attrs.evolve(node, settings=partial(self._changes.own, flow), follow_owner=follow)
        runner = FlowRunner(
            settings,
            self._epochs,
            clock=self._clock,
            events=self.events,
            jitter=self._jitter,
            measures=self._measures.setdefault(flow, FlowMeasures(self._clock)),
            node=node,
        )
        # What is known already, a former runner of the flow has reported.
        runner.requests.apply(stored.overrides, by=stored.by, at_ms=stored.at_ms, is_news=False)
        return runner

    def _this_node(self) -> Node:
        return attrs.evolve(self._us, rest=self.rest_address())

    def _load_elsewhere(self, flow: Flow) -> tuple[float, int]:
        """Return the bytes per second and the copy tasks of all flows but *flow*, as they were within seconds."""
        now = self._clock.monotonic()
        if now - self._loads_at >= _LOADS_HOLD_S:
            self._loads_at, self._loads = now, {runner.flow: runner.load for runner in self._fleet.runners}
        others = [load for other, load in self._loads.items() if other != flow]
        return sum(rate for rate, _ in others), sum(tasks for _, tasks in others)

    @property
    def settings(self) -> MirrorSettings:
        """The settings in use, but for live ones."""
        return self._desired.agreed

    @property
    def provided(self) -> Stamps:
        """The files that the settings refer to, in use or as they were read last."""
        return self._changes.provided

    @property
    def has_failed(self) -> bool:
        """Whether a flow has failed and will not be restarted."""
        return any(flow.has_failed for flow in self._fleet.runners)

    def request_stop(self, reason: str) -> None:
        """Ask the node to drain its flows and to stop."""
        self._reason = self._reason or reason
        self._asked_to_stop.set()

    def request_reload(self) -> None:
        """Ask the node to read its settings again and to apply what changed."""
        self._changes.request_reload()

    def view(self, *, has_partitions: bool = True) -> MirrorView:
        """Return a view of all flows as they are now; without their partitions it takes no time to speak of."""
        views = (flow.view(has_partitions=has_partitions) for flow in self._fleet.runners)
        return MirrorView(
            self._clock.wall_ms(),
            self._is_ready,
            tuple(views if self.worker is None else map(self.worker.named, views)),
            spark=self._epochs.view() if self._has_spark else None,
            started_ms=self._us.started_ms,
            refused_settings=self._changes.refused,
            noted_settings=self._changes.noted,
            needs_flow=self.worker is None or not self.worker.store.is_read,
            host=self._us.host,
            node_id=self._us.id,
        )

    async def prepare_views(self) -> None:
        """Have the next view take less time at once. With tens of thousands of partitions the first takes a second."""
        for flow in self._fleet.runners:
            await flow.prepare_views()

    async def run(self) -> None:
        """Run until asked to stop, or until no flow is left. An error means that Spark could not be started."""
        _tune_garbage_collector()
        loop = asyncio.get_running_loop()
        allow_for_lookups(loop)
        loop.set_exception_handler(report_shortages(self._clock, self.events))
        keeper = FreezesWhatStays(self._clock)
        gc.callbacks.append(keeper)
        try:
            await self._run()
        finally:
            gc.callbacks.remove(keeper)

    async def _run(self) -> None:
        settings = self.settings
        flows = tuple(str(flow.flow) for flow in settings.flows if flow.reads_source)
        heartbeats_only = tuple(str(flow.flow) for flow in settings.flows if not flow.reads_source)
        self.events.emit(DaemonStarted(mm2py.__version__, os.getpid(), flows, heartbeats_only))
        self._changes.report_notes()
        begun, is_drained = self._clock.monotonic(), False
        try:
            async with asyncio.TaskGroup() as tasks:
                self._start_spark(settings, tasks)
                self._fleet.start(tasks)
                watches = [
                    tasks.create_task(watch_pulse(self._clock, self.events), name="pulse"),
                    tasks.create_task(self._spark.watch(), name="spark watch"),
                    tasks.create_task(collect_forever(self._clock), name="old garbage"),
                    *self._keep_place(tasks),
                ]
                changing = [
                    tasks.create_task(self._changes.run(tasks), name="settings"),
                    tasks.create_task(self._watch_overrides_forever(), name="overrides"),
                    *self._follow_connectors(tasks),
                ]
                await self._until_stop()
                for loop in changing:
                    loop.cancel()
                begun = self._clock.monotonic()
                is_drained = await self._drain()
                if self._spark_start is not None:
                    self._spark_start.cancel()  # what is drained needs it no more
                for loop in watches:
                    loop.cancel()
        finally:
            drain_s = self._clock.monotonic() - begun
            self._epochs.close()
            await self._epochs.records.close()
            await self._spark.stop(within_s=_SPARK_STOP_S)
            self.events.emit(DaemonStopped(drain_s, is_drained))

    def _change(self, settings: MirrorSettings, tasks: asyncio.TaskGroup) -> None:
        """Prepare for the flows of *settings*; forget others, which come and go with connectors."""
        flows = {it.flow for it in settings.flows}
        self._measures = {flow: measures for flow, measures in self._measures.items() if flow in flows}
        self._start_spark(settings, tasks)

    def _start_spark(self, settings: MirrorSettings, tasks: asyncio.TaskGroup) -> None:
        """Start Spark, unless all flows only emit heartbeats."""
        copy_tasks = copy_tasks_of(settings.flows)
        if copy_tasks and not self._has_spark:
            self._has_spark, self._is_ready = True, False
            if self.worker is not None:
                self._spark.expect(max(copy_tasks, _WORKER_SLOTS if self._spark.settings.is_embedded else 0))
            self._spark_start = tasks.create_task(self._await_spark(), name="spark")
        elif not self._has_spark:
            self._become_ready()

    async def _await_spark(self) -> None:
        await self._spark.session()
        self._become_ready()

    def _become_ready(self) -> None:
        self._is_ready = True
        _tune_garbage_collector()

    async def _until_stop(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            ends: list[asyncio.Task[object]] = [tasks.create_task(self._asked_to_stop.wait(), name="stop")]
            if self.worker is None:
                ends.append(tasks.create_task(self._fleet.until_over(), name="over"))
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()

    async def _drain(self) -> bool:
        """Drain all flows; return whether they, and all their epochs, ended in time."""
        if self._fleet.is_running:
            within_s = max((self._drain_s(runner.settings) for runner in self._fleet.runners), default=0.0)
            self.events.emit(DaemonDraining(self._reason, within_s))
        return await self._fleet.drain()

    # Overrides by operators, see `Control`.

    async def _prepare(self, runner: FlowRunner) -> None:
        """Read the overrides of a flow before it starts, however long that takes."""

        async def prepare() -> None:
            if self.worker is not None:
                await self.worker.membership.admit(runner)
            found = await self._overrides.prepare(runner)
            await self._cluster_ids.confirm(runner, found)
            if self.worker is not None:
                await self.worker.take_over(found)

        task, report = f"{runner.flow}/overrides", self.events.emit
        await supervise(task, prepare, clock=self._clock, jitter=self._jitter, report=report)

    async def _before_takeover(self, settings: FlowSettings) -> None:
        """Learn what other nodes have left of a flow that they ran until now."""
        await self._overrides.catch_up(settings.flow)
        if self.worker is not None:
            await self.worker.take_over(settings, from_nodes=True)

    def _apply_overrides(self, flow: Flow) -> None:
        """Apply the overrides of *flow* as they are now, and restart what of it has other settings with them."""
        runner = self._fleet.runner(flow)
        if runner is None:
            return
        stored = self._overrides.stored(flow)
        runner.requests.apply(stored.overrides, by=stored.by, at_ms=stored.at_ms)
        self._changes.changed(flow)

    def _follow_connectors(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        if self.worker is None:
            return []
        hooks = Hooks(self.request_reload, self._apply_overrides)
        return [
            tasks.create_task(self.worker.run(hooks), name="connectors"),
            tasks.create_task(self._give_way_forever(self.worker.membership), name="give way"),
        ]

    def _keep_place(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Be in the worker's group until all flows are drained: until then Java's workers must not start."""
        if self.worker is None:
            return []
        run, report = partial(self.worker.membership.run, self._this_node), self.events.emit
        place = supervise("worker/membership", run, clock=self._clock, jitter=self._jitter, report=report)
        return [tasks.create_task(place, name="worker/membership")]

    async def _give_way_forever(self, membership: WorkerMembership) -> None:
        """Drain all flows when Java's workers have taken the group; as they start again, they wait."""
        while True:
            await membership.until_closed()
            self._changes.restart_all()

    async def _watch_overrides_forever(self) -> None:
        """Write overrides again whose topic was deleted: the next daemon must find them."""
        while True:
            await self._clock.sleep(_CHECK_OVERRIDES_S)
            for runner in self._fleet.runners:
                flow = runner.flow
                if self._overrides.stored(flow).revision and runner.reach.is_complete:
                    check = partial(self._overrides.refill, flow)
                    await runner.reach.done("check overrides", [flow.target], check)

    def _drain_s(self, settings: FlowSettings) -> float:
        """Return how long a flow's epochs may take to end; on a Spark cluster they do not see stop files."""
        copying = settings.source_connector.copying
        return copying.last_s if self._spark.settings.is_embedded else copying.settling_s


class FreezesWhatStays:
    """
    Excludes what a full collection has left if that took long: with tens of thousands of partitions, a fifth of a
    second in which nothing else happens. That is nearly all state, which stays. Once twice as much is excluded, some of
    it has not stayed: the next collection excludes nothing. A callback of `gc`.
    """

    def __init__(self, clock: Clock, collector: ModuleType = gc) -> None:
        self._clock = clock
        self._collector = collector
        self._begun_at = 0.0
        #: How much was frozen after a collection that excluded nothing, or the first; None before it.
        self._kept: int | None = None

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] < _OLDEST:
            return
        now = self._clock.monotonic()
        if phase == "start":
            self._begun_at = now
        elif now - self._begun_at >= _LONG_S:
            self._collector.freeze()
            frozen = self._collector.get_freeze_count()
            if self._kept is None:
                self._kept = frozen
            elif frozen >= _THAWED_AT * self._kept:
                # A flow that has restarted leaves a life with all of its partitions, which only a collection frees.
                self._collector.unfreeze()
                self._kept = None


async def collect_forever(clock: Clock, collect: Callable[[], object] = gc.collect) -> None:
    """Collect old garbage now and then: by those thresholds it hardly ever is, and connections in it keep buffers."""
    while True:
        await clock.sleep(_COLLECT_EVERY_S)
        collect()


def _tune_garbage_collector() -> None:
    """
    Exclude all present objects from garbage collection, and collect the others less often.

    Short-lived objects here have few cycles or none, and the state of thousands of partitions stays. A full collection
    stopped the event loop for 60 to 200 ms, once every few views of the flows.
    """
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
