"""
One flow, from its first look at the clusters to its drain.

A flow's body opens both clusters, reads positions, and then runs its loops side by side: copying, looking at topics,
writing positions, watching clusters that went away. Inside a flow siblings fall together; the flow as a whole is run
again after a pause, and no flow ever stops another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.core.backoff import Backoff
from mm2py.errors import Mm2Error
from mm2py.flow.copy_task import Epochs
from mm2py.flow.positions import Positions
from mm2py.flow.reach import Reach
from mm2py.flow.source import SourceTasks
from mm2py.flow.supervise import supervise
from mm2py.flow.topics import Mirrored, Topics
from mm2py.model.flow import Flow
from mm2py.model.state import FlowState, FlowView
from mm2py.telemetry.events import (
    FlowDrained,
    FlowFailed,
    FlowStarted,
    FlowSummary,
    PositionsRead,
    PositionsWritten,
    TaskRestarted,
)
from mm2py.telemetry.journal import EventLog
from mm2py.wire.admin import Admin
from mm2py.wire.cluster import Cluster


_RESTART = Backoff(1.0, 60.0)
_SUMMARY_EVERY_S = 30.0
#: How often it is asked whether a position is due, and a cluster that is away whether it is back.
_TICK_S = 1.0
#: A look at the topics that left something undone is repeated after this, or the refresh interval if that is shorter.
_UNSETTLED_REFRESH_S = 10.0
#: What a drain leaves for writing positions once its time is over.
_LAST_WRITE_S = 3.0


class FlowRunner:
    """Runs one flow until it is drained, and gives a picture of it at any time."""

    def __init__(
        self, settings: FlowSettings, epochs: Epochs, *, clock: Clock, events: EventLog, luck: Callable[[], float]
    ) -> None:
        self.settings = settings
        self._epochs = epochs
        self._clock = clock
        self._events = events
        self._luck = luck
        self._reach = Reach(settings.flow, clock, events, luck)
        self._draining = asyncio.Event()
        self._drain_within_s = 0.0
        self._state = FlowState.STARTING
        self._last_error = ""
        self._hint = ""
        self._source_tasks: SourceTasks | None = None
        self._is_copying = False

    @property
    def flow(self) -> Flow:
        return self.settings.flow

    @property
    def has_failed(self) -> bool:
        return self._state is FlowState.FAILED

    def drain(self, *, within_s: float) -> None:
        """Ask the flow to end its epochs, write its positions and return from `run`."""
        self._drain_within_s = within_s
        self._draining.set()

    async def run(self) -> None:
        """Run the flow until it is drained or fails for good; either way this returns."""
        async with asyncio.TaskGroup() as tasks:
            life = tasks.create_task(self._supervised(), name=f"{self.flow}/life")
            end = tasks.create_task(self._draining.wait(), name=f"{self.flow}/drain")
            await asyncio.wait({life, end}, return_when=asyncio.FIRST_COMPLETED)
            end.cancel()
            if not self._is_copying:  # so there is nothing to drain
                life.cancel()
        if not self.has_failed:
            self._state = FlowState.DRAINED

    async def _supervised(self) -> None:
        try:
            await supervise(
                str(self.flow),
                self._live,
                clock=self._clock,
                backoff=_RESTART,
                luck=self._luck,
                report=self._restarting,
            )
        except Mm2Error as error:
            self._state, self._last_error, self._hint = FlowState.FAILED, str(error), error.hint
            self._events.emit(FlowFailed(self.flow, str(error), error.hint))

    def _restarting(self, event: TaskRestarted) -> None:
        self._state, self._last_error = FlowState.RESTARTING, "; ".join(event.causes)
        self._events.emit(event)

    # A life of the flow.

    async def _live(self) -> None:
        settings = self.settings
        # Epochs of a life that fell over may still be writing.
        await self._epochs.settle(self.flow)
        if self._draining.is_set():
            return
        async with AsyncExitStack() as open_clusters:
            source, target = Cluster(settings.source, self._clock), Cluster(settings.target, self._clock)
            for cluster in (source, target):
                open_clusters.push_async_callback(cluster.close)
            async with asyncio.TaskGroup() as connecting:
                for cluster in (source, target):
                    connecting.create_task(self._connect(cluster), name=f"{self.flow}/connect/{cluster.alias}")
            positions = Positions(settings, source, target)
            topics = Topics(
                settings, Admin(source), Admin(target), reach=self._reach, clock=self._clock, events=self._events
            )
            await self._reach.insist("read positions", [self.flow.target], positions.read)
            tasks = SourceTasks(settings, self._epochs, clock=self._clock, events=self._events, luck=self._luck)
            mirrored = await self._reach.insist("refresh topics", self._aliases, topics.refresh_once)
            adopted = await self._reach.insist(
                "begin positions", self._aliases, lambda: self._adopt(tasks, positions, mirrored)
            )
            self._started(tasks)
            try:
                await self._copy(tasks, positions, topics, [source, target], is_settled=adopted.is_settled)
            finally:
                self._is_copying = False

    @property
    def _aliases(self) -> tuple[str, str]:
        return self.flow.source, self.flow.target

    async def _connect(self, cluster: Cluster) -> None:
        async def attempt() -> bool:
            await cluster.connect()
            return True

        await self._reach.insist("connect", [cluster.alias], attempt)

    async def _adopt(self, tasks: SourceTasks, positions: Positions, mirrored: Mirrored) -> Mirrored:
        """Hand the mirrored partitions to the source tasks; say whether a start is known for each of them."""
        unknown = tasks.unknown(mirrored)
        fresh = await positions.begin(
            {partition: place for partition, place in unknown.items() if partition not in positions.known}
        )
        tasks.adopt(mirrored, positions.known)
        left = tasks.unknown(mirrored)
        if unknown:
            found = len(unknown) - len(fresh) - len(left)
            self._events.emit(PositionsRead(self.flow, found, len(fresh)))
        return Mirrored(mirrored.places, is_settled=mirrored.is_settled and not left)

    def _started(self, tasks: SourceTasks) -> None:
        # It stays after the flow's life, so that a drained flow shows how far it came.
        self._source_tasks, self._is_copying = tasks, True
        self._state, self._last_error = FlowState.RUNNING, ""
        self._events.emit(FlowStarted(self.flow, tasks.topics, len(tasks.states), tasks.copy_tasks))

    async def _copy(
        self, tasks: SourceTasks, positions: Positions, topics: Topics, clusters: list[Cluster], *, is_settled: bool
    ) -> None:
        """Run the loops of a flow until it is drained."""
        async with asyncio.TaskGroup() as loops:
            copying = loops.create_task(tasks.run(), name=f"{self.flow}/source")
            others = [
                loops.create_task(body, name=f"{self.flow}/{name}")
                for name, body in (
                    ("topics", self._refresh_forever(tasks, positions, topics, is_settled=is_settled)),
                    ("positions", self._write_forever(tasks, positions)),
                    ("clusters", self._watch_forever(tasks, clusters)),
                    ("summary", self._summarise_forever()),
                )
            ]
            await self._draining.wait()
            begun = self._clock.monotonic()
            self._state = FlowState.DRAINING
            tasks.drain()
            await asyncio.wait({copying}, timeout=self._drain_within_s)
            for loop in (copying, *others):
                loop.cancel()
        is_written = await self._write_last(tasks, positions)
        records = sum(state.records for state in tasks.states.values())
        self._events.emit(FlowDrained(self.flow, records, self._clock.monotonic() - begun, is_written))

    # Its loops.

    async def _refresh_forever(
        self, tasks: SourceTasks, positions: Positions, topics: Topics, *, is_settled: bool
    ) -> None:
        interval_s = self.settings.refresh_topics_interval_s
        while True:
            if is_settled and not self.settings.refresh_topics_enabled:
                return
            await self._clock.sleep(interval_s if is_settled else min(interval_s, _UNSETTLED_REFRESH_S))

            async def refresh() -> Mirrored:
                return await self._adopt(tasks, positions, await topics.refresh_once())

            mirrored = await self._reach.once("refresh topics", self._aliases, refresh)
            is_settled = mirrored is not None and mirrored.is_settled

    async def _write_forever(self, tasks: SourceTasks, positions: Positions) -> None:
        interval_s = self.settings.offset_flush_interval_ms / 1000
        written_at = self._clock.monotonic()
        while True:
            await self._clock.sleep(min(interval_s, _TICK_S))
            is_over = self._clock.monotonic() - written_at >= interval_s
            if await self._write_once(tasks, positions, is_interval_over=is_over) and is_over:
                written_at = self._clock.monotonic()

    async def _write_once(self, tasks: SourceTasks, positions: Positions, *, is_interval_over: bool) -> bool:
        """Write the positions that are due; say whether all of them are safe now."""
        due = tasks.due_positions(is_interval_over=is_interval_over)
        if not due:
            return True
        begun = self._clock.monotonic()

        async def write() -> bool:
            await positions.write(due)
            return True

        if not await self._reach.once("write positions", [self.flow.target], write):
            return False
        tasks.note_written(due)
        self._events.emit(PositionsWritten(self.flow, len(due), (self._clock.monotonic() - begun) * 1000))
        return True

    async def _write_last(self, tasks: SourceTasks, positions: Positions) -> bool:
        try:
            async with asyncio.timeout(_LAST_WRITE_S):
                return await self._write_once(tasks, positions, is_interval_over=True)
        except TimeoutError:
            return False

    async def _watch_forever(self, tasks: SourceTasks, clusters: list[Cluster]) -> None:
        """After a partition was interrupted, find out whether a cluster is away, and when it is back."""
        while True:
            await tasks.is_interrupted.wait()
            tasks.is_interrupted.clear()
            await self._ask(clusters)
            while not self._reach.is_complete:
                await self._clock.sleep(_TICK_S)
                await self._ask(clusters)

    async def _ask(self, clusters: list[Cluster]) -> None:
        for cluster in clusters:

            async def attempt(cluster: Cluster = cluster) -> bool:
                await cluster.refresh_metadata(())
                return True

            await self._reach.once("look at the brokers", [cluster.alias], attempt)

    async def _summarise_forever(self) -> None:
        while True:
            await self._clock.sleep(_SUMMARY_EVERY_S)
            view = self.view()
            self._events.emit(
                FlowSummary(
                    flow=self.flow,
                    topics=view.topics,
                    partitions=len(view.partitions),
                    stopped_partitions=view.stopped_partitions,
                    records=view.records,
                    records_per_s=view.records_per_s,
                    bytes_per_s=view.bytes_per_s,
                    lag=view.lag,
                    latency_p50_ms=view.latency_p50_ms,
                    latency_p99_ms=view.latency_p99_ms,
                )
            )

    # Looking at it.

    def view(self) -> FlowView:
        """Give a picture of the flow as it is now."""
        tasks = self._source_tasks
        if tasks is None:
            return FlowView(
                self.flow, self._state, clusters=self._reach.view(), last_error=self._last_error, hint=self._hint
            )
        partitions, copy_tasks = tasks.partition_views(), tasks.task_views()
        latency, age = tasks.measured()
        return FlowView(
            flow=self.flow,
            state=self._state,
            topics=tasks.topics,
            partitions=partitions,
            tasks=copy_tasks,
            clusters=self._reach.view(),
            records=sum(partition.records for partition in partitions),
            bytes=sum(partition.bytes for partition in partitions),
            records_per_s=sum(task.records_per_s for task in copy_tasks),
            bytes_per_s=sum(task.bytes_per_s for task in copy_tasks),
            lag=sum(partition.lag or 0 for partition in partitions),
            latency_p50_ms=latency.quantile_ms(0.5),
            latency_p99_ms=latency.quantile_ms(0.99),
            age_p50_ms=age.quantile_ms(0.5),
            last_error=self._last_error,
            hint=self._hint,
        )
