"""A task group of a flow: the common part of the source, the checkpoint and the heartbeat group. Each group has its
own life. It has its own supervision, its own view, and its own connections; so a group that fails, or cannot do its
work, does not affect the others. Java MirrorMaker has a connector for each of them, and operators control each of them
like a connector.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from mm2py.config.connector import ConnectorConfig
from mm2py.connectors.cluster_pulse import ClusterPulse
from mm2py.connectors.context import FlowContext
from mm2py.connectors.supervise import supervise
from mm2py.errors import Mm2Error, cluster_of
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import Flow
from mm2py.model.herder.overrides import Wanted
from mm2py.model.herder.share import Share, whole_share
from mm2py.model.state import FlowState, GroupView
from mm2py.telemetry.events import (
    ConnectorPaused,
    ConnectorRestarted,
    ConnectorResumed,
    ConnectorStarted,
    ConnectorStopped,
    Event,
    GroupFailed,
    TaskRestarted,
)
from mm2py.wire.cluster import Cluster


T = TypeVar("T")
C = TypeVar("C", bound=ConnectorConfig)

_STILL = (Wanted.STOPPED, Wanted.DELETED)


class GroupRequests:
    """
    What is asked of a task group: by operators, by the flow's membership, and by the end of the flow.

    It owns whether the current life must end, and wakes whatever waits for a request.
    """

    def __init__(self, patience_s: float, share: Share, *, is_for_owner: bool) -> None:
        """Create them for a group that drains within *patience_s*, if a request does not say otherwise. It has *share*
        of its flow, and works only on the flow's owner if it *is_for_owner*.
        """
        self._patience_s = patience_s
        self._is_for_owner = is_for_owner
        self._news = asyncio.Event()
        #: The current life must drain.
        self.draining = asyncio.Event()
        self.drain_within_s = 0.0
        self.is_leaving = False
        #: What this node runs of the flow.
        self.share = share
        #: Another node may have had the share meanwhile: the current life must write nothing more.
        self.is_deposed = False
        #: Why the group is not admitted, if known, with a hint.
        self.kept_out_by = ("", "")
        #: The operators' target state.
        self.wanted = Wanted.RUNNING
        self.wanted_by = ""

    @property
    def is_admitted(self) -> bool:
        """Whether the group has anything to do on this node."""
        return self.share.is_owner if self._is_for_owner else not self.share.is_empty

    @property
    def is_still(self) -> bool:
        """Whether the group must have no life at all."""
        return self.wanted in _STILL

    @property
    def is_paused(self) -> bool:
        return self.wanted is Wanted.PAUSED

    @property
    def is_quiet(self) -> bool:
        """Whether the group must stop working, for a pause or because its life ends."""
        return self.draining.is_set() or self.is_paused

    def drain(self, *, within_s: float) -> None:
        """Ask the group to complete its work and to return from `run`."""
        self.is_leaving = True
        self.end_life(within_s)

    def want(self, wanted: Wanted, *, by: str = "") -> None:
        """Set the target state, from now on or from the group's start on; *by* is the operator."""
        if wanted is self.wanted:
            return
        self.wanted, self.wanted_by = wanted, by
        if self.is_still:
            self.end_life()
        elif not self.draining.is_set():
            self.drain_within_s = self._patience_s
        self.wake()

    def give(self, share: Share, why: str = "", hint: str = "") -> None:
        """Let the group work on *share* from now on; if that is nothing, it ends its life and stands by: *why*."""
        was_admitted, lost, self.share = self.is_admitted, self.share - share, share
        self.kept_out_by = ("", "") if self.is_admitted else (why, hint)
        if was_admitted and (not self.is_admitted or (self.is_paused and not lost.is_empty)):
            self.end_life()
        self.wake()

    def depose(self) -> None:
        """End the group's life, which must write nothing more: another node may have had its share meanwhile."""
        self.is_deposed = True
        self.end_life()

    def end_life(self, within_s: float | None = None) -> None:
        """Have the current life drain; the group's next one follows if nothing speaks against it."""
        self.drain_within_s = self._patience_s if within_s is None else within_s
        self.draining.set()
        self.wake()

    def wake(self) -> None:
        """Have conditions of `until` checked again."""
        self._news.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until a request makes *is_so* true."""
        while not is_so():
            self._news.clear()
            await self._news.wait()

    async def run_until_quiet(self, task: str, loops: Iterable[tuple[str, Coroutine[Any, Any, None]]]) -> None:
        """Run named *loops* of *task* in parallel until the group must stop working; then they are cancelled."""
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(loop, name=f"{task}/{name}") for name, loop in loops]
            await self.until(lambda: self.is_quiet)
            for loop in running:
                loop.cancel()


class FlowGroup(ABC, Generic[C]):
    """
    One task group: life after life, from its start to its drain.

    A subclass implements `_live`, one life of the group. Its contract: it calls `_came_up` once it can drain; from then
    on it observes `requests.draining`, and returns within `requests.drain_within_s` plus a few seconds. Before that a
    drain just cancels it. Its errors are reported, and it is called again after a pause; an error with
    `Verdict.STOP_FLOW` leaves the group failed until it is restarted.

    A life ends for a drain, a restart or a stop. It asks `_goes_on` before it does its work, which rests while the
    group is paused or kept out, and asks again whenever `requests.is_quiet`.
    """

    #: Java's name for it, without the package.
    connector: ClassVar[str]
    #: Whether it works on one node of the flow only.
    is_for_owner: ClassVar[bool] = False
    #: Ours, in the names of asyncio tasks and in the log.
    name: ClassVar[str]
    #: Whether it looks for new topics or consumer groups at the source.
    follows_source: ClassVar[bool] = True

    def __init__(self, context: FlowContext[C]) -> None:
        self._context = context
        self._reach = context.reach
        self._clock = context.clock
        self._events = context.events
        self._passed_over = context.passed_over
        self.requests = GroupRequests(context.drain_s, whole_share(context.tasks), is_for_owner=self.is_for_owner)
        self.state = FlowState.STARTING
        self._is_up = False
        #: It may hold something of its share: see `until_released`.
        self._is_working = False
        self._life: asyncio.Task[None] | None = None
        #: The next life has another config: it may not try what was refused to the former ones.
        self._is_changed = False
        #: What its lives start that is no part of them.
        self._tasks: asyncio.TaskGroup
        self._restarts = 0
        self._falls = 0
        self._last_error = ""
        self._hint = ""
        #: The cluster that the last error is about.
        self._error_at = ""
        self._on_failure: Callable[[], None] = lambda: None

    @property
    def flow(self) -> Flow:
        return self._context.flow

    @property
    def config(self) -> C:
        """What it is configured with."""
        return self._context.config

    @property
    def task(self) -> str:
        """Its name in the log, ``A->B/source``."""
        return f"{self.flow}/{self.name}"

    @property
    def has_failed(self) -> bool:
        """Whether it failed permanently."""
        return self.state is FlowState.FAILED

    def view(self) -> GroupView:
        """Return a view of the group."""
        return GroupView(
            self.connector,
            self.state,
            self._last_error,
            self._hint,
            self._restarts,
            self.requests.wanted,
            self._falls,
            cluster=self._error_at,
        )

    # Restarts.

    def restart(self, *, by: str = "") -> None:
        """Restart the group's life, also after a failure; a stopped group has none."""
        if self.requests.is_still or self.requests.is_leaving:
            return
        self._restarts += 1
        if self.has_failed:
            self.state = FlowState.STARTING
        self._events.emit(ConnectorRestarted(self.flow, self.connector, is_alone=False, by=by))
        self.requests.end_life()

    def adopt(self, config: C) -> None:
        """Restart with another *config*."""
        self._context, self._is_changed = self._context.of(config), True
        self.restart()

    def restart_alone(self, *, by: str = "") -> None:
        """Restart everything except tasks; a group without copy tasks has no such part."""
        self.restart(by=by)

    def refresh(self) -> None:
        """Look at once for new topics or groups at the source."""

    def restart_task(self, task: int, *, by: str = "") -> bool:
        """Restart a task of the group; False if there is none with that number."""
        if task == 0:
            self.restart(by=by)
        return task == 0

    def lost_tasks(self) -> tuple[int, ...]:
        """Return the failed tasks while the group itself is running."""
        return ()

    # Lives.

    async def run(self, on_failure: Callable[[], None] = lambda: None) -> None:
        """Live until drained; a stopped or failed group waits for an operator. *on_failure* is called each time that it
        fails permanently.
        """
        self._on_failure = on_failure
        requests = self.requests
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            while not requests.is_leaving:
                if requests.is_still:
                    await self._stand_still()
                elif self.has_failed:
                    await requests.until(lambda: requests.is_leaving or requests.is_still or not self.has_failed)
                else:
                    await self._live_on(tasks)
        if not self.has_failed:
            self.state = FlowState.DRAINED

    async def _live_on(self, tasks: asyncio.TaskGroup) -> None:
        """Live, and restart after each failure, until the group must end its life or fails permanently."""
        # Asked of a former life, or while there was none: the one that begins reads what another node has written.
        self.requests.draining.clear()
        self.requests.is_deposed = False
        if self._is_changed:
            self._is_changed = False
            self._reach.forget_refusals()
        life = self._life = tasks.create_task(self._supervised(), name=f"{self.task}/life")
        end = tasks.create_task(self.requests.draining.wait(), name=f"{self.task}/drain")
        await asyncio.wait({life, end}, return_when=asyncio.FIRST_COMPLETED)
        end.cancel()
        if not life.done():
            if self._is_up:
                self.state = FlowState.DRAINING
            else:  # so there is nothing to drain
                life.cancel()
            await asyncio.wait({life})
        if not self.has_failed:
            self.state = FlowState.STARTING

    async def _stand_still(self) -> None:
        """Stay stopped until the group must run again, or end."""
        if self.state is not FlowState.STARTING:
            self.state = FlowState.DRAINING
        with suppress(Mm2Error):  # without Spark there are no epochs to wait for
            await self._settle()
        self._enter(FlowState.STOPPED)
        requests = self.requests
        while requests.is_still and not requests.is_leaving:
            wanted = requests.wanted
            is_deleted = wanted is Wanted.DELETED
            self._events.emit(ConnectorStopped(self.flow, self.connector, is_deleted, requests.wanted_by))
            await requests.until(lambda wanted=wanted: requests.wanted is not wanted or requests.is_leaving)  # type: ignore[misc]
        if not requests.is_leaving:
            self.state = FlowState.STARTING
            self._events.emit(ConnectorStarted(self.flow, self.connector, requests.wanted_by))

    async def _supervised(self) -> None:
        try:
            await supervise(
                self.task,
                self._live_once,
                clock=self._clock,
                jitter=self._context.jitter,
                report=self._restarting,
            )
        except Mm2Error as error:
            self._enter(FlowState.FAILED, str(error), error.hint, cluster_of(error))
            self._events.emit(self._failure(error))
            self._on_failure()

    async def _live_once(self) -> None:
        try:
            await self._live()
        finally:
            self._is_up = self._is_working = False
            if not self.requests.is_admitted:
                self._reach.forget_refusals()
            self.requests.wake()

    def _restarting(self, event: TaskRestarted) -> None:
        self._enter(FlowState.RESTARTING, "; ".join(event.causes), at=event.cluster)
        self._restarts += 1
        self._count_fall(event)
        if self.requests.draining.is_set() and self._life is not None:
            self._life.cancel()  # a group that failed in its drain is not restarted

    def _count_fall(self, event: TaskRestarted) -> None:
        """Count and report that the group, or a loop beside it, failed and is restarted."""
        self._falls += 1
        self._events.emit(event)

    # Shared flows.

    async def until_released(self) -> None:
        """Wait until the group holds nothing beyond its share."""
        await self.requests.until(lambda: self.requests.is_admitted or not self._is_working)

    def suspend(self, why: str) -> None:
        """Begin nothing new while it is uncertain whether this node keeps its share: *why*; empty: it is certain."""

    # For subclasses.

    @abstractmethod
    async def _live(self) -> None:
        """Live once."""

    async def _settle(self) -> None:
        """Wait until nothing that the group has begun can write any more."""

    def _failure(self, error: Mm2Error) -> Event:
        """Report that the group failed permanently."""
        return GroupFailed(self.flow, self.connector, str(error), error.hint)

    def _came_up(self) -> None:
        """Record that the group is working from now on, and observes a drain."""
        self._is_up = True
        self._enter(FlowState.RUNNING)

    def _waits_for(self, error: Mm2Error) -> None:
        """Show why the group has not come up. The other groups may reach the same cluster all the while."""
        self._last_error, self._hint, self._error_at = str(error), self._reach.hint_for(error), cluster_of(error)

    async def _insist(self, step: str, clusters: Iterable[str], attempt: Callable[[], Awaitable[T]]) -> T:
        """Try a step on the way up until it succeeds."""
        return await self._reach.insist(step, clusters, attempt, told=self._waits_for)

    @asynccontextmanager
    async def _connected(self, *endpoints: ClusterEndpoint) -> AsyncIterator[list[Cluster]]:
        """Connect to clusters, however long it takes, and watch whether they answer, until the end of the block."""
        async with self._reach.connected(self.task, *endpoints, told=self._waits_for) as clusters:
            pulse = ClusterPulse(self._reach, self._clock, clusters)
            watch = self._tasks.create_task(self._context.supervise(f"{self.task}/pulse", pulse.run))
            try:
                yield clusters
            finally:
                watch.cancel()
                await asyncio.wait({watch})

    def _enter(self, state: FlowState, error: str = "", hint: str = "", at: str = "") -> None:
        self.state, self._last_error, self._hint, self._error_at = state, error, hint, at

    async def _goes_on(self) -> bool:
        """Wait while the group is held back or paused; return whether to work then, False if its life ends."""
        requests = self.requests
        self._is_working = False
        requests.wake()
        await self._stand_by()
        self._is_working = requests.is_admitted
        if requests.is_paused and not requests.draining.is_set():
            self._is_up = True
            self._enter(FlowState.PAUSED)
            self._events.emit(ConnectorPaused(self.flow, self.connector, requests.wanted_by))
            await requests.until(lambda: not requests.is_paused or requests.draining.is_set())
            if not requests.draining.is_set():
                self._is_up, self.state = False, FlowState.STARTING
                self._events.emit(ConnectorResumed(self.flow, self.connector, requests.wanted_by))
        return not requests.draining.is_set()

    async def _stand_by(self) -> None:
        """Wait until the group is admitted, or its life ends; show why, which may change meanwhile."""

        def is_over() -> bool:
            if self.requests.is_admitted or self.requests.draining.is_set():
                return True
            if any(self.requests.kept_out_by):
                self._enter(FlowState.STANDBY, *self.requests.kept_out_by)
            return False

        await self.requests.until(is_over)
        if self.state is FlowState.STANDBY:
            self._enter(FlowState.STARTING)


AnyGroup: TypeAlias = FlowGroup[Any]
