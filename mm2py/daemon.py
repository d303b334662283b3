"""
MirrorMaker: which flows this node runs; start, reload, drain, stop.

Spark starts while the flows look at their clusters. Each flow runs under its own supervision, so that none stops
another; the node stops when it is told to, or when no flow is left. A reload touches the flows whose settings changed.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Collection

import mm2py
from mm2py.clock import Clock
from mm2py.config.settings import ConfigError, FlowSettings, MirrorSettings
from mm2py.core.reload import compare_flows, needing_restart
from mm2py.flow.fleet import Fleet
from mm2py.flow.measures import FlowMeasures
from mm2py.flow.runner import FlowRunner
from mm2py.model.flow import Flow
from mm2py.model.state import MirrorView
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
        copy_tasks = _copy_tasks(settings)
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
        self._fleet = Fleet(self._make_runner, self._drain_s, slack_s=_DRAIN_SLACK_S)
        self._fleet.add(settings.flows)
        self._asked_to_stop = asyncio.Event()
        self._asked_to_reload = asyncio.Event()
        self._has_spark = False
        self._is_ready = False
        self._reason = ""

    def _make_runner(self, settings: FlowSettings) -> FlowRunner:
        measures = self._measures.setdefault(settings.flow, FlowMeasures(self._clock))
        return FlowRunner(
            settings, self._epochs, clock=self._clock, events=self.events, luck=self._luck, measures=measures
        )

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
                reload = tasks.create_task(self._reload_forever(tasks), name="reload")
                await self._until_stop()
                reload.cancel()
                begun = self._clock.monotonic()
                is_drained = await self._drain()
        finally:
            drain_s = self._clock.monotonic() - begun
            self._epochs.close()
            await self._spark.stop(within_s=_SPARK_STOP_S)
            self.events.emit(DaemonStopped(drain_s, is_drained))

    def _start_spark(self, settings: MirrorSettings, tasks: asyncio.TaskGroup) -> None:
        """Start Spark, once there is something to copy: flows that only emit heartbeats need none."""
        if _copy_tasks(settings) and not self._has_spark:
            self._has_spark = True
            tasks.create_task(self._await_spark(), name="spark")
        elif not self._has_spark:
            self._is_ready = True

    async def _await_spark(self) -> None:
        await self._spark.session()
        self._is_ready = True

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
            await self._apply(settings, tasks)

    async def _apply(self, settings: MirrorSettings, tasks: asyncio.TaskGroup) -> None:
        """Bring the flows from the settings they have to *settings*."""
        changes = compare_flows(self.settings.flows, settings.flows)
        left = list(needing_restart(self.settings, settings))
        slots, copy_tasks = self._spark.copy_tasks, _copy_tasks(settings)
        if self._has_spark and copy_tasks > slots:
            left.append(f"tasks.max ({copy_tasks} copy tasks share {slots} Spark slots until then)")
        if left:
            self.events.emit(RestartNeeded(tuple(left)))
        begun, known = self._clock.monotonic(), {str(note) for note in self.settings.notes}
        self.settings = settings
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

    def _tell_notes(self, settings: MirrorSettings, known: Collection[str] = ()) -> None:
        for note in settings.notes:
            if str(note) not in known:
                self.events.emit(SettingNoted(str(note)))

    def _drain_s(self, settings: FlowSettings) -> float:
        """Say how long a flow's epochs may take to end; on a cluster they may not see that they should."""
        epoch_ms = 0 if self._spark.settings.is_embedded else settings.epoch_ms
        return (epoch_ms + max(settings.shutdown_ms, settings.drain_ms)) / 1000


def _copy_tasks(settings: MirrorSettings) -> int:
    return sum(flow.tasks_max for flow in settings.flows if flow.is_enabled)
