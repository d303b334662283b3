"""A flow without Spark and without a daemon: its epochs run in this process, everything else is the product's own."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar
from unittest import mock

import attrs

from mm2py.clock import SystemClock
from mm2py.config.settings import FlowSettings, load_settings
from mm2py.connectors.pair import PairedSource
from mm2py.herder.node_context import NodeContext
from mm2py.herder.runner import FlowRunner
from mm2py.model.epoch import EpochOutcome, EpochPlan
from mm2py.model.flow import Flow
from mm2py.model.herder.node import Node
from mm2py.model.herder.overrides import NO_OVERRIDES, Overrides
from mm2py.model.state import FlowState
from mm2py.pipeline.copy.epoch import copy_epoch
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.pipeline.epoch_jobs import LostEpochs
from mm2py.telemetry.journal import EventLog
from mm2py.wire.groups.membership import Membership
from tests.support.epochs import Spark
from tests.support.eventually import eventually, long_enough
from tests.support.mm2_file import mm2_properties


T = TypeVar("T")
_DRAIN_S = 5.0


class InProcessEpochs:
    """Runs epochs as asyncio tasks, each copy task with a worker's state of its own, once it *is_started*, if given."""

    def __init__(self, work_dir: Path, is_started: asyncio.Event | None = None) -> None:
        self.lost = LostEpochs(SystemClock())
        self._work_dir = work_dir
        self._is_started = is_started
        self._workers: dict[tuple[Flow, int], WorkerState] = {}
        self._stop_files: dict[tuple[Flow, int], Path] = {}

    async def ready(self) -> None:
        if self._is_started is not None:
            await self._is_started.wait()

    async def run(self, plan: EpochPlan) -> EpochOutcome:
        key = (plan.flow, plan.task)
        stop_file = self._stop_files[key] = self._work_dir / f"{plan.flow.target}-{plan.task}-{plan.epoch}.stop"
        worker = self._workers.setdefault(key, WorkerState())
        try:
            return await copy_epoch(attrs.evolve(plan, stop_file=str(stop_file)), SystemClock(), worker)
        finally:
            del self._stop_files[key]

    def nudge(self, flow: Flow, task: int) -> bool:
        stop_file = self._stop_files.get((flow, task))
        if stop_file is not None:
            stop_file.touch()
        return stop_file is not None

    def is_waiting(self, _flow: Flow, _task: int) -> bool:
        return False

    def is_late(self, _flow: Flow, _task: int) -> bool:
        return False

    async def settle(self, _flow: Flow) -> None:
        return

    async def close(self) -> None:
        for worker in self._workers.values():
            await worker.close()


@attrs.define
class RunningFlow:
    """A flow that runs, and what it said."""

    runner: FlowRunner
    events: EventLog
    task: asyncio.Task[None]

    async def copied(self, records: int) -> None:
        """Wait until it has copied so many records."""
        await eventually(lambda: self.runner.view().records >= records, within_s=30, what=f"{records} are copied")

    async def told(self, kind: type[T], count: int = 1) -> Sequence[T]:
        """Wait until it has reported so many events of a kind; return them."""
        await eventually(lambda: len(self.events.of(kind)) >= count, within_s=60, what=f"{count} {kind.__name__}")
        return self.events.of(kind)

    async def drain(self) -> None:
        """Drain it and wait for its end."""
        self.runner.drain(within_s=long_enough(_DRAIN_S))
        await self.task

    async def crash(self) -> None:
        """End it on the spot; nothing is written any more."""
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


def flow_settings(source: str, target: str, *, alias: str = "A", to_alias: str = "B", **keys: object) -> FlowSettings:
    """
    Read the settings of A->B between two clusters as the product reads them: epochs of one second, no heartbeats.

    An *alias* of its own for the source gives a test its own internal topics.
    """
    ours = {"copy.epoch.ms": "1000", "copy.drain.ms": "2000"}
    text = mm2_properties(source, target, aliases=(alias, to_alias), **{**ours, **keys})
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.write(text)
        file.flush()
        settings = load_settings(file.name)
    return next(flow for flow in settings.flows if flow.flow == Flow(alias, to_alias))


@asynccontextmanager
async def running_flow(
    settings: FlowSettings,
    work_dir: Path,
    *,
    overrides: Overrides = NO_OVERRIDES,
    other_way: FlowSettings | None = None,
    spark: Spark | None = None,
    us: Node | None = None,
    is_started: asyncio.Event | None = None,
) -> AsyncIterator[RunningFlow]:
    """
    Run a flow, under *orders*, until the end of the block; it is cancelled then unless it was drained before.

    Another node runs the flow of *other_way*, in the other direction. Epochs run on *spark* where it is given. This
    process is the node, or *us*. Nothing is copied before *is_started* is set, if it is given, as while Spark starts.
    """
    clock, epochs = SystemClock(), InProcessEpochs(work_dir, is_started)
    events = spark.events if spark is not None else EventLog(clock)
    copying = spark.runner if spark is not None else epochs
    node = NodeContext() if us is None else NodeContext(lambda: us)
    runner = FlowRunner(settings, copying, clock=clock, events=events, jitter=lambda: 0.5, node=node)
    runner.requests.apply(overrides)
    runner.pairs.know([PairedSource(other.source_connector) for other in (other_way,) if other is not None])
    try:
        async with asyncio.TaskGroup() as group:
            running = RunningFlow(runner, events, group.create_task(runner.run(), name=str(settings.flow)))
            yield running
            running.task.cancel()
    finally:
        await epochs.close()


async def sharing(*flows: RunningFlow, tasks: int) -> None:
    """Wait until so many copy tasks are spread over the flows of all nodes, each has some, and each runs."""

    def is_so() -> bool:
        views = [flow.runner.view() for flow in flows]
        found = [[task.task for task in view.tasks] for view in views]
        assert all(found), [(view.state, view.last_error, ran) for view, ran in zip(views, found, strict=True)]
        assert sorted(itertools.chain(*found)) == list(range(tasks)), found
        assert {view.state for view in views} == {FlowState.RUNNING}
        return True

    await eventually(is_so, within_s=30, what=f"{len(flows)} nodes share the tasks")


@asynccontextmanager
async def asking_nothing(flow: RunningFlow) -> AsyncIterator[None]:
    """Hold back what a flow asks its group, such as to be let in again, until the end of the block."""
    assert flow.runner.sharing is not None
    membership = flow.runner.sharing.membership
    decide, is_held, thawed = membership._decide, asyncio.Event(), asyncio.Event()

    async def decide_late(place: Membership) -> None:
        is_held.set()
        await thawed.wait()
        await decide(place)

    with mock.patch.object(membership, "_decide", decide_late):
        await is_held.wait()
        try:
            yield
        finally:
            thawed.set()
