"""
MirrorMaker: which flows this node runs; start, reload, drain, stop.

Spark starts while the flows look at their clusters. Each flow runs under its own supervision, so that none stops
another; the node stops when it is told to, or when no flow is left. A reload touches the flows whose settings changed.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import attrs

import mm2py
from mm2py.clock import Clock
from mm2py.config.settings import ConfigError, FlowSettings, MirrorSettings
from mm2py.core.connector_offsets import read_offsets
from mm2py.core.live_config import (
    LiveSetting,
    connector_config,
    live_settings,
    patch_config,
    put_config,
    revert_config,
)
from mm2py.core.reload import compare_flows, needing_restart
from mm2py.core.transforms import record_slots
from mm2py.errors import (
    Mm2Error,
    OrderConflictError,
    OrderRefusedError,
    OrdersNotKeptError,
    UnknownConnectorError,
    UnknownFlowError,
)
from mm2py.flow.connector_offsets import ConnectorOffsets
from mm2py.flow.fleet import Fleet
from mm2py.flow.group import RESTART_PAUSES
from mm2py.flow.measures import FlowMeasures
from mm2py.flow.order_desk import OrderDesk
from mm2py.flow.pulse import watch_pulse
from mm2py.flow.runner import FlowRunner
from mm2py.flow.supervise import supervise
from mm2py.flow.this_node import this_node
from mm2py.model.connector_offset import ConnectorOffset
from mm2py.model.epoch import SETTLING_MS
from mm2py.model.flow import Flow
from mm2py.model.orders import Orders, Wanted
from mm2py.model.state import FlowState, MirrorView
from mm2py.pipeline.epoch import EpochRunner
from mm2py.pipeline.session import SparkHost
from mm2py.telemetry.events import (
    DaemonDraining,
    DaemonStarted,
    DaemonStopped,
    RestartNeeded,
    SettingNoted,
    SettingsRefused,
    SettingsReloaded,
)
from mm2py.telemetry.journal import EventLog


#: What a drain may take beyond the time that its epochs have: positions, syncs and checkpoints are written then.
_DRAIN_SLACK_S = 10.0
_SPARK_STOP_S = 5.0
#: How often it is looked whether the topics are there that keep orders.
_LOOK_AT_ORDERS_S = 30.0
#: So many new objects, and passes of the younger ones, until Python looks for garbage again; its own are 700, 10, 10.
_GARBAGE_THRESHOLDS = (20_000, 20, 50)


class MirrorMaker:
    """One node: all flows of a properties file that end at its target clusters."""

    def __init__(
        self,
        settings: MirrorSettings,
        *,
        clock: Clock,
        events: EventLog,
        luck: Callable[[], float] = random.random,
        read_again: Callable[[], MirrorSettings] | None = None,
    ) -> None:
        """Make a node; *read_again* reads its settings anew, and raises ConfigError where they cannot be used."""
        self.settings = settings
        self.events = events
        self._clock = clock
        self._read_again = read_again
        self._luck = luck
        copy_tasks = _copy_tasks(settings.flows)
        self._spark = SparkHost(
            settings.spark,
            copy_tasks=copy_tasks,
            clock=clock,
            events=events,
            secrets_key_file=settings.secrets_key_file,
        )
        self._epochs = EpochRunner(self._spark, clock, events)
        #: What is counted goes on over a flow's reload.
        self._measures: dict[Flow, FlowMeasures] = {}
        self._started_ms = clock.wall_ms()
        self._desk = OrderDesk(settings, self._act, clock=clock, events=events)
        self._fleet = Fleet(self._make_runner, self._drain_s, slack_s=_DRAIN_SLACK_S, prepare=self._prepare)
        self._fleet.add(settings.flows)
        self._fleet.know(settings.elsewhere)
        #: Flows whose settings operators changed, to be started anew with them.
        self._changed: set[Flow] = set()
        self._has_changed = asyncio.Event()
        self._changing = asyncio.Lock()
        self._asked_to_stop = asyncio.Event()
        self._asked_to_reload = asyncio.Event()
        self._has_spark = False
        self._is_ready = False
        self._reason = ""
        #: Gives the address of this node's REST interface, for other nodes' words; empty where it has none.
        self.rest_address: Callable[[], str] = lambda: ""
        self._us = this_node(started_ms=self._started_ms)

    def _make_runner(self, settings: FlowSettings) -> FlowRunner:
        measures = self._measures.setdefault(settings.flow, FlowMeasures(self._clock))
        runner = FlowRunner(
            settings,
            self._epochs,
            clock=self._clock,
            events=self.events,
            luck=self._luck,
            measures=measures,
            us=lambda: attrs.evolve(self._us, rest=self.rest_address()),
        )
        runner.before_takeover(partial(self._desk.catch_up, settings.flow))
        kept = self._desk.kept(settings.flow)
        runner.obey(kept.orders, by=kept.by)
        return runner

    @property
    def has_failed(self) -> bool:
        """Say whether a flow is down for good."""
        return any(flow.has_failed for flow in self._fleet.runners)

    def request_stop(self, reason: str) -> None:
        """Ask the node to drain its flows and to stop."""
        self._reason = self._reason or reason
        self._asked_to_stop.set()

    def request_reload(self) -> None:
        """Ask the node to read its settings again and to apply what changed."""
        self._asked_to_reload.set()

    def view(self) -> MirrorView:
        """Give a picture of all flows as they are now."""
        return MirrorView(
            self._clock.wall_ms(),
            self._is_ready,
            tuple(flow.view() for flow in self._fleet.runners),
            spark=self._epochs.view() if self._has_spark else None,
            started_ms=self._started_ms,
        )

    async def run(self) -> None:
        """Run until asked to stop, or until no flow is left. An error means that Spark could not be started."""
        _spare_what_stays()
        settings = self.settings
        flows = tuple(str(flow.flow) for flow in settings.flows if flow.is_enabled)
        heartbeats_only = tuple(str(flow.flow) for flow in settings.flows if not flow.is_enabled)
        self.events.emit(DaemonStarted(mm2py.__version__, os.getpid(), flows, heartbeats_only))
        self._tell_notes(settings)
        begun, is_drained = self._clock.monotonic(), False
        try:
            async with asyncio.TaskGroup() as tasks:
                self._start_spark(settings, tasks)
                self._fleet.start(tasks)
                watches = [
                    tasks.create_task(watch_pulse(self._clock, self.events), name="pulse"),
                    tasks.create_task(self._spark.watch(), name="spark watch"),
                ]
                changing = [
                    tasks.create_task(self._reload_forever(tasks), name="reload"),
                    tasks.create_task(self._change_forever(tasks), name="live settings"),
                    tasks.create_task(self._look_at_orders_forever(), name="orders"),
                ]
                await self._until_stop()
                for loop in changing:
                    loop.cancel()
                begun = self._clock.monotonic()
                is_drained = await self._drain()
                for loop in watches:
                    loop.cancel()
        finally:
            drain_s = self._clock.monotonic() - begun
            self._epochs.close()
            await self._epochs.records.close()
            await self._spark.stop(within_s=_SPARK_STOP_S)
            self.events.emit(DaemonStopped(drain_s, is_drained))

    def _start_spark(self, settings: MirrorSettings, tasks: asyncio.TaskGroup) -> None:
        """Start Spark, once there is something to copy: flows that only emit heartbeats need none."""
        if _copy_tasks(settings.flows) and not self._has_spark:
            self._has_spark = True
            tasks.create_task(self._await_spark(), name="spark")
        elif not self._has_spark:
            self._become_ready()

    async def _await_spark(self) -> None:
        await self._spark.session()
        self._become_ready()

    def _become_ready(self) -> None:
        self._is_ready = True
        _spare_what_stays()

    async def _until_stop(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            ends = [
                tasks.create_task(self._asked_to_stop.wait(), name="stop"),
                tasks.create_task(self._fleet.until_over(), name="over"),
            ]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()

    async def _drain(self) -> bool:
        """End all flows in good order; say whether they did in time."""
        if self._fleet.is_running:
            within_s = max((self._drain_s(runner.settings) for runner in self._fleet.runners), default=0.0)
            self.events.emit(DaemonDraining(self._reason, within_s))
        return await self._fleet.drain()

    # Orders: what operators ask of flows while they run. They are kept on the target cluster.

    def orders(self, flow: Flow) -> Orders:
        """Give what is ordered of *flow*. Raise UnknownFlowError where this node does not run it."""
        self._desk.settings_of(flow)
        return self._desk.kept(flow).orders

    async def order(self, flow: Flow, change: Callable[[Orders], Orders], *, by: str = "") -> Orders:
        """
        Change what is ordered of *flow*: keep it on the target cluster, then have it obeyed, within seconds.

        *by* is who orders it. Raise UnknownFlowError, OrderRefusedError with all problems, OrderConflictError where the
        orders were changed elsewhere, and OrdersNotKeptError where the target does not take them.
        """
        return await self._desk.order(flow, change, by=by or _whoever())

    async def restart(
        self, flow: Flow, connector: str, *, include_tasks: bool = False, only_failed: bool = False, by: str = ""
    ) -> None:
        """Restart a connector (KIP-745). Raise UnknownFlowError or UnknownConnectorError; see `FlowRunner.restart`."""
        runner = self._runner(flow)
        runner.restart(connector, include_tasks=include_tasks, only_failed=only_failed, by=by or _whoever())

    async def restart_task(self, flow: Flow, connector: str, task: int, *, by: str = "") -> None:
        """Restart one task of a connector. Raise UnknownTaskError where it has no such task."""
        self._runner(flow).restart_task(connector, task, by=by or _whoever())

    def _runner(self, flow: Flow) -> FlowRunner:
        runner = self._fleet.runner(flow)
        if runner is None:
            raise UnknownFlowError(str(flow))
        return runner

    def connector_config(self, flow: Flow, connector: str) -> dict[str, str]:
        """Give a connector's config in Connect's shape, what operators changed included; secrets are masked."""
        self._desk.settings_of(flow)
        return connector_config(self._desk.live, flow, connector)

    def live_settings(self, flow: Flow, connector: str) -> tuple[LiveSetting, ...]:
        """List the settings of a connector that count instead of the file's, with the file's values."""
        return live_settings(self.orders(flow), self._desk.file, flow, connector)

    async def put_config(self, flow: Flow, connector: str, body: Mapping[str, object], *, by: str = "") -> Orders:
        """Have a connector run with *body*; see `mm2py.core.live_config.put_config` and `order`."""
        return await self.order(flow, self._desk.changing_settings(flow, connector, body, put_config), by=by)

    async def patch_config(self, flow: Flow, connector: str, body: Mapping[str, object], *, by: str = "") -> Orders:
        """Change what *body* names of a connector's config; None goes back to the file's value."""
        return await self.order(flow, self._desk.changing_settings(flow, connector, body, patch_config), by=by)

    async def revert_config(
        self, flow: Flow, connector: str, keys: Collection[str] | None = None, *, by: str = ""
    ) -> Orders:
        """Go back to the file's values, for some *keys* of a connector or for all."""
        return await self.order(flow, lambda orders: revert_config(orders, flow, connector, keys), by=by)

    # Offsets (KIP-875).

    async def offsets(self, flow: Flow, connector: str) -> tuple[ConnectorOffset, ...]:
        """Give a connector's offsets as the target keeps them. Raise OrdersNotKeptError where it does not answer."""
        of = self._offsets_of(flow, connector)
        with self._explained(flow):
            return await of.read(connector)

    async def alter_offsets(self, flow: Flow, connector: str, offsets: object, *, by: str = "") -> None:
        """
        Alter offsets of a stopped connector; *offsets* are those of a body, see `core.connector_offsets.read_offsets`.

        Raise OrderRefusedError with all problems, OrderConflictError where it is not stopped, and OrdersNotKeptError
        where a cluster does not answer.
        """
        of = self._offsets_of(flow, connector)
        asked = read_offsets(flow, connector, offsets)
        async with self._standing_still(flow, connector):
            await of.alter(connector, asked, by=by or _whoever())

    async def reset_offsets(self, flow: Flow, connector: str, *, by: str = "") -> None:
        """Remove all offsets of a stopped connector, so that it begins where its settings say."""
        of = self._offsets_of(flow, connector)
        async with self._standing_still(flow, connector):
            await of.reset(connector, by=by or _whoever())

    def _offsets_of(self, flow: Flow, connector: str) -> ConnectorOffsets:
        groups = {group.connector: group for group in self._runner(flow).view().groups}
        if connector not in groups or self.orders(flow).wanted(connector) is Wanted.DELETED:
            raise UnknownConnectorError(str(flow), connector)
        return ConnectorOffsets(self._desk.settings_of(flow), clock=self._clock, events=self.events)

    @asynccontextmanager
    async def _standing_still(self, flow: Flow, connector: str) -> AsyncIterator[None]:
        """Make sure that a connector is stopped, and stays so meanwhile."""
        async with self._desk.lock(flow):
            kept = await self._desk.current(flow)
            if kept.orders.wanted(connector) is not Wanted.STOPPED:
                raise OrderConflictError("a connector must be stopped before its offsets are altered", "stop it first")
            states = {group.connector: group.state for group in self._runner(flow).view().groups}
            if states.get(connector) is not FlowState.STOPPED:
                raise OrderConflictError(f"{connector} of flow {flow} has not stopped yet", "try again in some seconds")
            with self._explained(flow):
                yield

    @contextmanager
    def _explained(self, flow: Flow) -> Iterator[None]:
        """Say that a cluster that is away, or refuses, is why an order cannot be kept."""
        try:
            yield
        except (OrderRefusedError, OrderConflictError):
            raise
        except Mm2Error as error:
            raise OrdersNotKeptError(str(flow), flow.target, str(error)) from error

    async def _prepare(self, runner: FlowRunner) -> FlowSettings:
        """Find out what was ordered of a flow before it starts, however long that takes."""
        found: list[FlowSettings] = []

        async def prepare() -> None:
            found.append(await self._desk.prepare(runner))

        await supervise(
            f"{runner.flow}/orders",
            prepare,
            clock=self._clock,
            backoff=RESTART_PAUSES,
            luck=self._luck,
            report=self.events.emit,
        )
        return found[-1]

    def _act(self, flow: Flow) -> None:
        """Have *flow* do what is ordered of it now."""
        runner = self._fleet.runner(flow)
        if runner is None:
            return
        kept = self._desk.kept(flow)
        runner.obey(kept.orders, by=kept.by)
        if runner.settings != self._desk.settings_of(flow):
            self._changed.add(flow)
            self._has_changed.set()

    async def _look_at_orders_forever(self) -> None:
        """Have orders written once more whose topic vanished: the next daemon must find them."""
        while True:
            await self._clock.sleep(_LOOK_AT_ORDERS_S)
            for runner in self._fleet.runners:
                flow = runner.flow
                if self._desk.kept(flow).revision and runner.reach.is_complete:
                    await runner.reach.once("look at orders", [flow.target], partial(self._desk.look, flow))

    async def _change_forever(self, tasks: asyncio.TaskGroup) -> None:
        """Start flows anew whose settings operators changed."""
        while True:
            await self._has_changed.wait()
            async with self._changing:
                self._has_changed.clear()
                flows, self._changed = self._changed, set()
                runners = [runner for flow in flows if (runner := self._fleet.runner(flow)) is not None]
                wanted = [self._desk.settings_of(runner.flow) for runner in runners]
                changes = compare_flows([runner.settings for runner in runners], wanted)
                if changes.changed:
                    self._tell_restart_needed(())
                    await self._fleet.change(changes, tasks)

    # Reloading.

    async def _reload_forever(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._asked_to_reload.wait()
            self._asked_to_reload.clear()
            if self._read_again is None:
                continue
            try:
                settings = await asyncio.to_thread(self._read_again)
            except ConfigError as error:
                problems = tuple(str(problem) for problem in error.problems)
                self.events.emit(SettingsRefused(str(self.settings.path), problems))
                continue
            except (Mm2Error, OSError, ValueError) as error:  # a file that cannot be read ends nothing that runs
                self.events.emit(SettingsRefused(str(self.settings.path), (f"{type(error).__name__}: {error}",)))
                continue
            async with self._changing:
                await self._apply(settings, tasks)

    async def _apply(self, settings: MirrorSettings, tasks: asyncio.TaskGroup) -> None:
        """Bring the flows from the settings they have to *settings*."""
        left, before = list(needing_restart(self.settings, settings)), self._desk.flows
        await self._desk.rebase(settings)
        changes = compare_flows(before, self._desk.flows)
        self._tell_restart_needed(left)
        begun, known = self._clock.monotonic(), {str(note) for note in self.settings.notes}
        self.settings = settings
        self._fleet.know(settings.elsewhere)
        self._tell_notes(settings, known)
        self._start_spark(settings, tasks)
        is_drained = await self._fleet.change(changes, tasks)
        self.events.emit(
            SettingsReloaded(
                path=str(settings.path),
                added=tuple(str(flow.flow) for flow in changes.added),
                changed=tuple(str(flow.flow) for flow in changes.changed),
                removed=tuple(str(flow) for flow in changes.removed),
                unchanged=tuple(str(flow) for flow in changes.unchanged),
                took_s=self._clock.monotonic() - begun,
                is_drained=is_drained,
            )
        )

    def _tell_restart_needed(self, keys: Sequence[str]) -> None:
        slots, copy_tasks = self._spark.copy_tasks, _copy_tasks(self._desk.flows)
        left = list(keys)
        if self._has_spark and copy_tasks > slots:
            left.append(f"tasks.max ({copy_tasks} copy tasks share {slots} Spark slots until then)")
        if left:
            self.events.emit(RestartNeeded(tuple(left)))

    def _tell_notes(self, settings: MirrorSettings, known: Collection[str] = ()) -> None:
        for note in settings.notes:
            if str(note) not in known:
                self.events.emit(SettingNoted(str(note)))

    def _drain_s(self, settings: FlowSettings) -> float:
        """Say how long a flow's epochs may take to end; on a cluster they may not see that they should."""
        epoch_ms = 0 if self._spark.settings.is_embedded else max(settings.epoch_ms, SETTLING_MS)
        return (epoch_ms + max(settings.shutdown_ms, settings.drain_ms)) / 1000


def _copy_tasks(flows: Iterable[FlowSettings]) -> int:
    return sum(flow.tasks_max + record_slots(flow.transforms) for flow in flows if flow.is_enabled)


def _spare_what_stays() -> None:
    """
    Have the garbage collector leave alone what there is by now, and look at the rest more seldom.

    What comes and goes here has no cycles, or few, and what is known of thousands of partitions stays. To look through
    it held up the event loop for 60 to 200 ms, and every few pictures of the flows made that happen.
    """
    gc.freeze()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)


def _whoever() -> str:
    """Say where an order came in of which nobody said who gives it."""
    return f"mm2py on {socket.gethostname()}, process {os.getpid()}"
