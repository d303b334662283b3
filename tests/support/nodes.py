"""A whole node without Spark: its epochs run in this process, everything else is the daemon's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

from mm2py.clock import SystemClock
from mm2py.config.settings import FlowSettings, MirrorSettings, load_settings
from mm2py.daemon import MirrorMaker
from mm2py.herder.connect_worker import ConnectWorker
from mm2py.herder.replication_loops import judged
from mm2py.herder.runner import FlowRunner
from mm2py.model.flow import Flow
from mm2py.model.state import FlowState, FlowView
from mm2py.rest.server import RestServer
from mm2py.telemetry.events import RestListening
from mm2py.telemetry.journal import EventLog
from tests.support.eventually import eventually
from tests.support.flow_rest import FlowRest
from tests.support.flows import InProcessEpochs
from tests.support.rest_asking import PlainMetrics


class SparklessMirrorMaker(MirrorMaker):
    """A node that needs no Spark."""

    def __init__(self, settings: MirrorSettings, epochs: InProcessEpochs, **others: Any) -> None:
        self._in_process = epochs
        super().__init__(settings, **others)

    def _make_runner(self, settings: FlowSettings) -> FlowRunner:
        on_spark = self._epochs
        self._epochs = self._in_process  # type: ignore[assignment]
        try:
            return super()._make_runner(settings)
        finally:
            self._epochs = on_spark

    def _start_spark(self, _settings: MirrorSettings, _tasks: asyncio.TaskGroup) -> None:
        self._is_ready = True


@attrs.define
class RunningNode:
    """A node that runs, and what it said."""

    node: SparklessMirrorMaker
    events: EventLog
    task: asyncio.Task[None]
    file: Path

    def view(self, flow: Flow) -> FlowView:
        """Return the picture of a flow."""
        return next(view for view in self.node.view().flows if view.flow == flow)

    async def until(self, flow: Flow, connector: str, state: FlowState, *, within_s: float = 30.0) -> None:
        """Wait until a connector is in a state."""

        def there() -> bool:
            found = {group.connector: group.state for group in self.view(flow).groups}
            assert found.get(connector) is state, found
            return True

        await eventually(there, within_s=within_s, what=f"{connector} of {flow} is {state.name}")

    async def running(self, flow: Flow) -> None:
        """Wait until the source connector runs."""
        await self.until(flow, "MirrorSourceConnector", FlowState.RUNNING)

    async def stop(self) -> None:
        """Drain it and wait for its end."""
        self.node.request_stop("the test")
        await self.task

    async def crash(self) -> None:
        """End it on the spot; nothing is written any more."""
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


@asynccontextmanager
async def served(running: RunningNode, flow: Flow) -> AsyncIterator[FlowRest]:
    """Serve REST of a node for the block, at a port of its own; it is asked about *flow*."""
    server = RestServer(running.node, clock=SystemClock(), events=running.events, metrics=PlainMetrics())
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.run(), name="rest")
        listening = await eventually(
            lambda: running.events.of(RestListening), within_s=10, what="the node's REST listens"
        )
        try:
            yield FlowRest(listening[-1].url.rstrip("/") + flow.url_path())
        finally:
            serving.cancel()


@asynccontextmanager
async def running_node(properties: str, work_dir: Path, name: str = "mm2") -> AsyncIterator[RunningNode]:
    """Run a node until the end of the block, where it is cancelled unless it has ended before."""
    file = work_dir / f"{name}.properties"
    file.write_text(properties)

    def read() -> MirrorSettings:
        return judged(load_settings(file))

    async with _running(read(), file, read_again=read) as running:
        yield running


@asynccontextmanager
async def running_worker(properties: str, work_dir: Path, name: str = "worker") -> AsyncIterator[RunningNode]:
    """Run a node of a Connect worker until the end of the block."""
    file = work_dir / f"{name}.properties"
    file.write_text(properties)
    clock = SystemClock()
    events = EventLog(clock)
    worker = ConnectWorker(file, {}, clock=clock, events=events)
    settings, others = worker.composition.settings, {"events": events, "worker": worker}
    async with _running(settings, file, read_again=lambda: judged(worker.read()), **others) as running:
        yield running


@asynccontextmanager
async def _running(settings: MirrorSettings, file: Path, **others: Any) -> AsyncIterator[RunningNode]:
    clock, epochs, name = SystemClock(), InProcessEpochs(file.parent), file.stem
    events = others.pop("events", None) or EventLog(clock)
    node = SparklessMirrorMaker(settings, epochs, clock=clock, events=events, jitter=lambda: 0.5, **others)
    try:
        async with asyncio.TaskGroup() as tasks:
            running = RunningNode(node, events, tasks.create_task(node.run(), name=name), file)
            yield running
            running.task.cancel()
    finally:
        await epochs.close()
