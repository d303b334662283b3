"""
MirrorMaker: which flows this node runs; start, drain, stop.

Spark starts while the flows look at their clusters. Each flow runs under its own supervision, so that none stops
another; the node stops when it is told to, or when no flow is left.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable

import mm2py
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings, MirrorSettings
from mm2py.flow.runner import FlowRunner
from mm2py.model.flow import Flow
from mm2py.model.state import MirrorView
from mm2py.pipeline.epoch import EpochRunner
from mm2py.pipeline.session import SparkHost
from mm2py.telemetry.events import DaemonDraining, DaemonStarted, DaemonStopped, SettingNoted
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
    ) -> None:
        self.settings = settings
        self.events = events
        self._clock = clock
        # Flows that only emit heartbeats copy nothing, and need no Spark.
        self._enabled = [flow for flow in settings.flows if flow.is_enabled]
        copy_tasks = sum(flow.tasks_max for flow in self._enabled)
        self._spark = SparkHost(
            settings.spark,
            copy_tasks=copy_tasks,
            clock=clock,
            events=events,
            secrets_key_file=settings.secrets_key_file,
        )
        self._epochs = EpochRunner(self._spark, clock, events)
        self._flows = [
            FlowRunner(flow, self._epochs, clock=clock, events=events, luck=luck) for flow in settings.flows
        ]
        by_flow = {runner.flow: runner for runner in self._flows if runner.settings.is_enabled}
        for runner in self._flows:
            back = by_flow.get(Flow(runner.flow.target, runner.flow.source))
            runner.reverse = back.translations if back is not None else None
        self._asked_to_stop = asyncio.Event()
        self._is_ready = False
        self._reason = ""

    @property
    def has_failed(self) -> bool:
        """Say whether a flow is down for good."""
        return any(flow.has_failed for flow in self._flows)

    def request_stop(self, reason: str) -> None:
        """Ask the node to drain its flows and to stop."""
        self._reason = self._reason or reason
        self._asked_to_stop.set()

    def view(self) -> MirrorView:
        """Give a picture of all flows as they are now."""
        return MirrorView(self._clock.wall_ms(), self._is_ready, tuple(flow.view() for flow in self._flows))

    async def run(self) -> None:
        """Run until asked to stop, or until no flow is left. An error means that Spark could not be started."""
        settings = self.settings
        flows = tuple(str(flow.flow) for flow in self._enabled)
        heartbeats_only = tuple(str(flow.flow) for flow in settings.flows if not flow.is_enabled)
        self.events.emit(DaemonStarted(mm2py.__version__, os.getpid(), flows, heartbeats_only))
        for note in settings.notes:
            self.events.emit(SettingNoted(str(note)))
        begun, is_drained = self._clock.monotonic(), False
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._start_spark(), name="spark")
                running = {tasks.create_task(flow.run(), name=str(flow.flow)) for flow in self._flows}
                stop = tasks.create_task(self._asked_to_stop.wait(), name="stop")
                await self._until_stop(stop)
                stop.cancel()
                begun = self._clock.monotonic()
                is_drained = await self._drain(running)
                for task in running:
                    task.cancel()
        finally:
            drain_s = self._clock.monotonic() - begun
            self._epochs.close()
            await self._spark.stop(within_s=_SPARK_STOP_S)
            self.events.emit(DaemonStopped(drain_s, is_drained))

    async def _start_spark(self) -> None:
        if self._enabled:
            await self._spark.session()
        self._is_ready = True

    async def _until_stop(self, stop: asyncio.Task[bool]) -> None:
        """Wait until asked to stop, or until nothing is left of what this node is there for."""
        purpose = [flow for flow in self._flows if flow.settings.is_enabled or not self._enabled]
        async with asyncio.TaskGroup() as tasks:
            left = {tasks.create_task(flow.is_over.wait(), name=f"{flow.flow}/over") for flow in purpose}
            while left and not stop.done():
                done, _ = await asyncio.wait({*left, stop}, return_when=asyncio.FIRST_COMPLETED)
                left -= done
            for over in left:
                over.cancel()

    async def _drain(self, running: set[asyncio.Task[None]]) -> bool:
        """End all flows in good order; say whether they did in time."""
        within_s = max(map(self._drain_s, self._enabled), default=0.0)
        if any(not task.done() for task in running):
            self.events.emit(DaemonDraining(self._reason, within_s))
        for flow in self._flows:
            flow.drain(within_s=self._drain_s(flow.settings))
        _, late = await asyncio.wait(running, timeout=within_s + _DRAIN_SLACK_S)
        return not late

    def _drain_s(self, settings: FlowSettings) -> float:
        """Say how long a flow's epochs may take to end; on a cluster they may not see that they should."""
        epoch_ms = 0 if self._spark.settings.is_embedded else settings.epoch_ms
        return (epoch_ms + max(settings.shutdown_ms, settings.drain_ms)) / 1000
