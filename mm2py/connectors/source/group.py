"""
The source task group, from its first look at the clusters to its drain.

A life opens both clusters, reads positions, and then runs its loops side by side: copying, looking at topics, writing
positions, watching clusters that went away. These fall together and restart together. What the group does beside
copying (`BackgroundLoop`) is supervised one by one: nothing of it stops the copying.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

import attrs

from mm2py.config.connector import MirrorSourceConfig
from mm2py.connectors.context import BackgroundLoop, SourceContext
from mm2py.connectors.measures import FlowMeasures
from mm2py.connectors.offsets.translations import Translations
from mm2py.connectors.source.partitions import SourceTasks
from mm2py.connectors.source.position_writer import PositionWriter
from mm2py.connectors.source.positions import Positions
from mm2py.connectors.source.sharing import ShareKeeper, copied_here
from mm2py.connectors.source.transactions import end_open_transactions
from mm2py.connectors.supervise import cancel, supervise
from mm2py.connectors.task_group import FlowGroup
from mm2py.connectors.topics.ownership import SyncedMemory
from mm2py.connectors.topics.remote_topics import Topics
from mm2py.core.herder.sharing import flow_tasks
from mm2py.errors import Mm2Error
from mm2py.model.herder.overrides import NO_OVERRIDES, Overrides, Wanted
from mm2py.model.herder.share import NO_SHARE, whole_share
from mm2py.model.state import FlowState, FlowView
from mm2py.pipeline.epoch_jobs import EpochRunner
from mm2py.telemetry.events import (
    ConnectorRestarted,
    CopyTaskRestarted,
    Event,
    FlowDrained,
    FlowFailed,
    FlowStarted,
    FlowSummary,
)
from mm2py.wire.cluster import Cluster
from mm2py.wire.topics.admin import Admin


T = TypeVar("T")

#: States between two lives.
_DOWN = (FlowState.RESTARTING, FlowState.FAILED)
_SUMMARY_EVERY_S = 30.0
#: How often a cluster that is away is asked whether it is back.
_AWAY_TICK_S = 1.0
#: What a drain leaves, once its time is over, for writing positions, and then for what side loops have left.
_FINISH_S = 3.0


@attrs.frozen
class SourceLife:
    """What one life of the group works with."""

    source: Cluster
    target: Cluster
    positions: Positions
    topics: Topics
    tasks: SourceTasks
    writer: PositionWriter
    keeper: ShareKeeper


#: Creates a loop for a life, with what the connector is passed then: another life may have another config.
MakeLoop: TypeAlias = Callable[[SourceContext, SourceLife], BackgroundLoop]


class SourceGroup(FlowGroup[MirrorSourceConfig]):
    """Copies a flow's topics. It is what the whole flow is there for: where it fails, the flow has failed."""

    connector = "MirrorSourceConnector"
    name = "source"

    def __init__(
        self,
        context: SourceContext,
        epochs: EpochRunner,
        translations: Translations,
        sides: Sequence[MakeLoop] = (),
        measures: FlowMeasures | None = None,
        *,
        watches: Sequence[MakeLoop] = (),
        judged: Callable[[], FlowState] | None = None,
    ) -> None:
        """Create a group; *sides* create its background loops, again for each life and before its first epoch.
        *watches* do so too, but only read, and continue while the group is paused. *measures* counts copied records
        across lives. *judged* returns the flow's state as it is shown, if that is not the group's own.
        """
        super().__init__(context)
        self._epochs = epochs
        self._translations = translations
        self._sides = sides
        self._watches = watches
        self._measures = measures or FlowMeasures(context.clock)
        self._source_tasks: SourceTasks | None = None
        self._topics: Topics | None = None
        self._overrides = NO_OVERRIDES
        self._is_refreshing = False
        #: Whether the bootstrap servers were asked which clusters they are of.
        self._is_sure_of_clusters = False
        #: Whether an epoch was lost, or not back in time, when its last life ended.
        self.has_lost = False
        self._watchers: list[Callable[[SourceLife], None]] = []
        self._judged: Callable[[], FlowState] = judged or (lambda: self.state)
        #: The share that has been applied in full: nothing beyond it is held.
        self._applied = NO_SHARE
        #: Whether the translations are those of a former life: other nodes may have written since.
        self._is_outdated = False

    # What may be asked of it.

    def watch(self, watcher: Callable[[SourceLife], None]) -> None:
        """Have *watcher* called with each of its lives, before anything is copied."""
        self._watchers.append(watcher)

    @property
    def follows_all(self) -> bool:
        """Whether its translations include what each node copies, now or in a moment, once they are read."""
        share = self.requests.share
        if self.requests.wanted is Wanted.RUNNING and self.state not in _DOWN:
            return share.is_owner and not self._is_outdated
        # It does not follow other nodes; where there are none, what this life has read is up to date.
        return self._applied & share == whole_share(flow_tasks(self.config)[0])

    def apply_overrides(self, overrides: Overrides) -> None:
        """Apply *overrides* from now on."""
        self._overrides = overrides
        if self._source_tasks is not None:
            self._source_tasks.apply_overrides(overrides)

    def restart_alone(self, *, by: str = "") -> None:
        """Restart the background loops, and refresh the topics at once; copying continues."""
        if self.state is not FlowState.RUNNING:
            self.restart(by=by)
            return
        self._restarts += 1
        self._is_refreshing = True
        self._events.emit(ConnectorRestarted(self.flow, self.connector, is_alone=True, by=by))
        self.requests.wake()

    def refresh(self) -> None:
        """Refresh the topics at once."""
        if self._topics is not None:
            self._topics.want_refresh()

    def restart_task(self, task: int, *, by: str = "") -> bool:
        tasks = self._source_tasks
        if task not in (tasks.holders.running if tasks is not None else range(self.config.copying.tasks_max)):
            return False
        if tasks is None or self.state in {FlowState.FAILED, FlowState.RESTARTING}:
            self.restart(by=by)
        elif self.state is FlowState.RUNNING:
            tasks.restart(task)
            self._events.emit(CopyTaskRestarted(self.flow, task, by))
        return True

    def lost_tasks(self) -> tuple[int, ...]:
        tasks = self._source_tasks
        return tasks.ailing() if tasks is not None and self.state is FlowState.RUNNING else ()

    async def _settle(self) -> None:
        await self._epochs.settle(self.flow)

    async def _stand_still(self) -> None:
        # Operators alter the offsets of what has stopped, at any node: they tell where records go from then on.
        self._count_as_outdated()
        await super()._stand_still()

    def _count_as_outdated(self) -> None:
        """Let what is stored of translations count, until they are read again."""
        self._applied = NO_SHARE
        self._is_outdated = self._translations.is_ready

    def _enter(self, state: FlowState, error: str = "", hint: str = "", at: str = "") -> None:
        super()._enter(state, error, hint, at)
        if state is FlowState.STANDBY:
            self._source_tasks = None  # other nodes have its partitions from now on, and count them

    def _failure(self, error: Mm2Error) -> Event:
        return FlowFailed(self.flow, str(error), error.hint)

    # A life.

    async def _live(self) -> None:
        self._count_as_outdated()
        # Epochs of a life that failed may still be writing, and those that were lost.
        await self._epochs.settle(self.flow)
        await self._epochs.lost.until_quiet(self.flow)
        config = self.config
        async with self._connected(config.source, config.target) as (source, target):
            if not await self._goes_on():
                return
            if not self._is_sure_of_clusters:
                await source.refuse_mixed_servers()
                await target.refuse_mixed_servers()
                self._context.on_clusters(source.metadata.cluster_id, target.metadata.cluster_id)
                self._is_sure_of_clusters = True
            self._context.writers.tasks.restart()
            life = self._make_life(source, target)
            positions, tasks = life.positions, life.tasks
            await self._insist(
                "end open transactions",
                [self.flow.target],
                lambda: end_open_transactions(config, target, tasks.holders.share.tasks),
            )
            await self._insist("read positions", [self.flow.target], positions.read)
            self._translations.load(positions.runs)
            mirrored = await self._insist("refresh topics", self.flow.aliases, life.topics.refresh_once)
            adopted = await self._insist(
                "look where partitions begin", self.flow.aliases, lambda: life.keeper.adopt(mirrored)
            )
            self._is_outdated = False
            self._topics = life.topics
            for watcher in self._watchers:
                watcher(life)
            await life.writer.fence()
            self._started(tasks)
            await self._work(life, is_settled=adopted.is_settled)

    def _make_life(self, source: Cluster, target: Cluster) -> SourceLife:
        """Put together what a life works with, for this node's share of the flow."""
        context = self._context
        memory = SyncedMemory(context, target)
        tasks = SourceTasks(context, self._epochs, self._measures)
        tasks.holders.share = self.requests.share
        tasks.outcomes.listeners.append(self._translations.account)
        copied = copied_here(
            context,
            tasks,
            self._translations,
            mirrored=lambda: topics.latest.places,
            has_applied=lambda: self._applied == tasks.holders.share,
            requests=self.requests,
        )
        positions = Positions(context, source, target, copied)
        topics = Topics(context, Admin(source), Admin(target), memory, positions, on_missing=tasks.doubts.miss)
        topics.may_act = tasks.holders.share.is_owner
        logs = (positions.log, memory.log)
        writer = PositionWriter(
            context, tasks, positions, self._translations, logs=logs, commits=self._measures.commits
        )
        shared = ShareKeeper(
            context,
            target,
            topics=topics,
            positions=positions,
            tasks=tasks,
            writer=writer,
            translations=self._translations,
            measures=self._measures,
            is_over=self.requests.draining.is_set,
        )
        tasks.doubts.break_listeners.append(shared.begin_again)
        return SourceLife(source, target, positions, topics, tasks, writer, shared)

    def _started(self, tasks: SourceTasks) -> None:
        # It stays after the group's life, so that a drained flow shows how far it came.
        self._source_tasks = tasks
        tasks.apply_overrides(self._overrides)
        self._applied = tasks.holders.share
        self.requests.wake()  # see `until_released`
        self._came_up()
        self._events.emit(FlowStarted(self.flow, tasks.ledger.topics, len(tasks.ledger.states), tasks.copy_tasks))

    async def _work(self, life: SourceLife, *, is_settled: bool) -> None:
        """Copy, and rest while the group is paused, until its life is to end."""
        watches = [make(self._context, life) for make in self._watches]
        sides = [*(make(self._context, life) for make in self._sides), life.keeper, *watches]
        is_clean = True
        while is_clean and await self._rest(life, watches):
            is_clean = await self._copy(life, sides, is_settled=is_settled)
            is_settled = False

    async def _rest(self, life: SourceLife, watches: Sequence[BackgroundLoop]) -> bool:
        """Copy nothing while the group is paused, but write positions and keep watch; return `_goes_on`."""
        if not self.requests.is_quiet:
            return True
        async with asyncio.TaskGroup() as loops:
            others = [
                loops.create_task(life.writer.run(), name=f"{self.task}/positions"),
                *(loops.create_task(self._run_side(it), name=f"{self.task}/{it.name}") for it in watches),
            ]
            goes_on = await self._goes_on()
            for other in others:
                other.cancel()
        life.topics.want_refresh()  # who knows what changed at the source meanwhile
        return goes_on

    async def _copy(self, life: SourceLife, sides: Sequence[BackgroundLoop], *, is_settled: bool) -> bool:
        """
        Run the loops of the group until it is to stop, then write what is left.

        Return False if an epoch did not end in time: what it wrote, only the next life will know.
        """
        self._came_up()
        life.tasks.reopen()
        async with asyncio.TaskGroup() as loops:
            copying = loops.create_task(life.tasks.run(), name=self.task)
            writing = loops.create_task(life.writer.run(), name=f"{self.task}/positions")
            while True:
                others = self._beside(loops, life, sides, is_settled=is_settled)
                await self.requests.until(
                    lambda: self.requests.is_quiet or self._is_refreshing or self._has_new_share(life)
                )
                if self.requests.is_quiet:
                    break
                await cancel(others)
                if self._has_new_share(life):
                    if not self.requests.share.is_owner:
                        self._reach.forget_refusals()
                    await life.keeper.apply(self.requests.share)
                    self._applied = life.tasks.holders.share
                    self.requests.wake()
                self._is_refreshing = is_settled = False
                life.topics.want_refresh()
            self.state = FlowState.DRAINING
            begun = self._clock.monotonic()
            life.tasks.drain()
            _, late = await asyncio.wait({copying}, timeout=self.requests.drain_within_s)
            for loop in (copying, writing, *others):
                loop.cancel()
        is_written = await self._write_last(life, sides)
        states = life.tasks.ledger.states.values()
        self.has_lost = bool(late) or any(state.is_lost for state in states)
        is_written = is_written and not self.has_lost
        records = life.tasks.ledger.records
        self._events.emit(FlowDrained(self.flow, records, self._clock.monotonic() - begun, is_written))
        if not late:
            await self._epochs.settle(self.flow)  # nothing writes, but what is prepared still waits
        if self.requests.is_still:
            await self._until_nothing_writes()
        return not late

    async def _until_nothing_writes(self) -> None:
        """Wait until what a lost epoch has sent has arrived: operators may alter the offsets of what has stopped."""

        async def wait() -> None:
            await self._epochs.settle(self.flow)
            await self._epochs.lost.until_quiet(self.flow)

        async with asyncio.TaskGroup() as waits:
            quiet = waits.create_task(wait(), name=f"{self.task}/lost epochs")
            goes_on = self.requests.until(lambda: self.requests.is_leaving or not self.requests.is_still)
            others = waits.create_task(goes_on, name=f"{self.task}/requests")
            await asyncio.wait({quiet, others}, return_when=asyncio.FIRST_COMPLETED)
            await cancel([quiet, others])

    def _has_new_share(self, life: SourceLife) -> bool:
        return self.requests.share != life.tasks.holders.share

    async def until_released(self) -> None:
        await self.requests.until(lambda: not self._is_working or self._applied == self.requests.share)

    def suspend(self, why: str) -> None:
        tasks = self._source_tasks
        if tasks is not None and self._is_working and bool(why) != tasks.is_suspended:
            tasks.suspend(is_suspended=bool(why))
            self._last_error, self._error_at = why, self.flow.target

    async def _write_last(self, life: SourceLife, sides: Sequence[BackgroundLoop]) -> bool:
        """Write what is left; nothing where another node runs the flow: what that one wrote since is newer."""
        if self.requests.is_deposed:
            return False
        is_written = await self._finish("positions", life.writer.write(is_interval_over=True))
        async with asyncio.TaskGroup() as last:
            for side in self._ours(life, sides):
                last.create_task(self._finish(side.name, side.finish()), name=f"{self.task}/{side.name}/finish")
        return bool(is_written)

    def _beside(
        self, loops: asyncio.TaskGroup, life: SourceLife, sides: Sequence[BackgroundLoop], *, is_settled: bool
    ) -> list[asyncio.Task[None]]:
        """Start what runs beside copying and writing positions."""
        return [
            loops.create_task(body, name=f"{self.task}/{name}")
            for name, body in (
                ("topics", life.topics.refresh_forever(life.keeper.adopt, is_settled=is_settled)),
                ("clusters", self._watch_clusters_forever(life)),
                ("summary", self._summarise_forever(life)),
                *((side.name, self._run_side(side)) for side in self._ours(life, sides)),
            )
        ]

    def _ours(self, life: SourceLife, sides: Sequence[BackgroundLoop]) -> list[BackgroundLoop]:
        return [side for side in sides if life.tasks.holders.share.is_owner or not side.is_for_owner]

    async def _run_side(self, side: BackgroundLoop) -> None:
        await supervise(
            f"{self.task}/{side.name}",
            side.run,
            clock=self._clock,
            jitter=self._context.jitter,
            report=self._count_fall,
        )

    # Its loops.

    async def _finish(self, name: str, rest: Awaitable[T]) -> T | None:
        """Return *rest* its few seconds; None where they were not enough, or where it failed, which is noted."""
        try:
            async with asyncio.timeout(_FINISH_S):
                return await rest
        except TimeoutError:
            return None
        except Mm2Error as error:
            self._reach.failed(f"finish {name}", error)
            self._reach.answered((), f"finish {name}")  # the life ends: it is not tried again
            return None

    async def _watch_clusters_forever(self, life: SourceLife) -> None:
        """Find out, after a partition was interrupted, whether a cluster is away, and when it is back."""
        outcomes = life.tasks.outcomes
        while True:
            await outcomes.is_interrupted.wait()
            outcomes.is_interrupted.clear()
            refusals, outcomes.refusals = outcomes.refusals, {}
            for refusal in refusals.values():
                self._reach.refused(refusal)
            await self._ask(life.source, life.target)
            while not self._reach.is_complete:
                await self._clock.sleep(_AWAY_TICK_S)
                await self._ask(life.source, life.target)

    async def _ask(self, *clusters: Cluster) -> None:
        for cluster in clusters:
            await self._reach.done("look at the brokers", [cluster.alias], partial(cluster.refresh_metadata, ()))

    async def _summarise_forever(self, life: SourceLife) -> None:
        while True:
            await self._clock.sleep(_SUMMARY_EVERY_S)
            await self.prepare_views()
            state = self._judged()
            view = self.show(FlowView(self.flow, FlowState.RUNNING), has_partitions=False)
            ledger = life.tasks.ledger
            self._events.emit(
                FlowSummary(
                    flow=self.flow,
                    state=state.name.lower(),
                    topics=view.topics,
                    partitions=len(ledger.places.keys() & ledger.states.keys()),
                    stopped_partitions=life.tasks.stopped,
                    records=view.records,
                    records_per_s=view.records_per_s,
                    bytes_per_s=view.bytes_per_s,
                    lag=None if view.lag_is_least else view.lag,
                    latency_p50_ms=view.latency_p50_ms,
                    latency_p99_ms=view.latency_p99_ms,
                )
            )

    # Looking at it.

    def totals(self) -> tuple[float, int]:
        """Return the bytes per second that it copies, and the number of its copy tasks."""
        tasks = self._source_tasks.task_views() if self._source_tasks is not None else ()
        return sum(task.bytes_per_s for task in tasks), len(tasks)

    async def prepare_views(self) -> None:
        """Make what the next view with partitions needs of them, as far as it is kept."""
        if self._source_tasks is not None:
            await self._source_tasks.prepare_views()

    def show(self, view: FlowView, *, has_partitions: bool = True) -> FlowView:
        """Put into a flow's *view* what the group copies and how fast; without its partitions, only how far these are
        behind together is known of them.
        """
        tasks, topics = self._source_tasks, self._topics
        if tasks is None or topics is None:
            return self._measures.flow(view)
        partitions, copy_tasks = tasks.partition_views() if has_partitions else (), tasks.task_views()
        ledger, unbegun = tasks.ledger, tasks.ledger.unbegun
        if self._applied != tasks.holders.share:
            unbegun += len(tasks.ledger.gained(topics.latest))
        shown = self._measures.flow(
            attrs.evolve(
                view,
                topics=len(topics.latest.remote_of),
                partitions=partitions,
                unlisted=unbegun if has_partitions else unbegun + len(ledger.places) - ledger.unbegun,
                mirrored=len(topics.latest.places),
                tasks=copy_tasks,
                records_per_s=sum(task.records_per_s for task in copy_tasks),
                bytes_per_s=sum(task.bytes_per_s for task in copy_tasks),
            )
        )
        if has_partitions:
            return shown
        return attrs.evolve(shown, **attrs.asdict(self._measures.lag(ledger.places, ledger.states, unbegun)))
