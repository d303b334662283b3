"""A task group of a flow: the common part of the source, the checkpoint and the heartbeat group. Each group has its
own life. It has its own supervision, its own view, and its own connections; so a group that fails, or cannot do its
work, does not affect the others. Java MirrorMaker has a connector for each of them, and operators control each of them
like a connector.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, ClassVar

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.core.backoff import Backoff
from mm2py.errors import Mm2Error
from mm2py.flow.reach import Reach
from mm2py.flow.supervise import supervise
from mm2py.flow.unreadable_records import PassedOver
from mm2py.model.epoch import SETTLING_MS
from mm2py.model.flow import Flow
from mm2py.model.overrides import Wanted
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
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster


RESTART_PAUSES = Backoff(1.0, 60.0)
_STILL = (Wanted.STOPPED, Wanted.DELETED)


@attrs.frozen
class FlowContext:
    """What a flow passes to each of its groups."""

    settings: FlowSettings
    #: One for all groups of the flow, so that an unreachable cluster is reported once.
    reach: Reach
    clock: Clock
    events: EventLog
    jitter: Callable[[], float]
    #: One for all lives of its groups, so that an invalid record is reported once.
    passed_over: PassedOver = attrs.field(
        default=attrs.Factory(lambda self: PassedOver(self.settings.flow, self.events), takes_self=True)
    )

    @property
    def flow(self) -> Flow:
        return self.settings.flow


class FlowGroup(ABC):
    """
    One task group: life after life, from its start to its drain.

    A subclass implements `_live`, one life of the group. Its contract: it calls `_came_up` once it can drain; from then
    on it observes `_draining`, and returns within `_drain_within_s` plus a few seconds. Before that a drain just
    cancels it. Its errors are reported, and it is called again after a pause; an error with `Verdict.STOP_FLOW` leaves
    the group failed until it is restarted.

    A life ends for a drain, a restart or a stop. It asks `_goes_on` before it does its work, which rests while the
    group is paused or kept out, and asks again whenever `_is_quiet`.
    """

    #: Java's name for it, without the package.
    connector: ClassVar[str]
    #: Ours, in the names of asyncio tasks and in the log.
    name: ClassVar[str]

    def __init__(self, around: FlowContext) -> None:
        self._around = around
        self._settings = around.settings
        self._reach = around.reach
        self._clock = around.clock
        self._events = around.events
        self._passed_over = around.passed_over
        #: The current life must drain.
        self._draining = asyncio.Event()
        self._drain_within_s = 0.0
        #: Default time limit of a drain, for epochs and a slow cluster.
        epoch_ms = max(self._settings.copying.epoch_ms, SETTLING_MS)
        self._patience_s = (epoch_ms + max(self._settings.copying.shutdown_ms, self._settings.copying.drain_ms)) / 1000
        self._is_leaving = False
        self._is_admitted = True
        #: Why it is not, if known, with a hint.
        self._kept_out_by = ("", "")
        self._wanted = Wanted.RUNNING
        self._wanted_by = ""
        self._news = asyncio.Event()
        self._state = FlowState.STARTING
        self._is_up = False
        self._life: asyncio.Task[None] | None = None
        self._restarts = 0
        self._falls = 0
        self._last_error = ""
        self._hint = ""
        #: Called when the group fails permanently.
        self.on_failure: Callable[[], None] = lambda: None

    @property
    def flow(self) -> Flow:
        return self._settings.flow

    @property
    def task(self) -> str:
        """Its name in the log, ``A->B/source``."""
        return f"{self.flow}/{self.name}"

    @property
    def state(self) -> FlowState:
        return self._state

    @property
    def has_failed(self) -> bool:
        """Whether it failed permanently."""
        return self._state is FlowState.FAILED

    @property
    def wanted(self) -> Wanted:
        """Return the operators' target state."""
        return self._wanted

    def view(self) -> GroupView:
        """Return a view of the group."""
        return GroupView(
            self.connector, self._state, self._last_error, self._hint, self._restarts, self._wanted, self._falls
        )

    # Requests.

    def drain(self, *, within_s: float) -> None:
        """Ask the group to complete its work and to return from `run`."""
        self._is_leaving = True
        self._end_life(within_s)

    def want(self, wanted: Wanted, *, by: str = "") -> None:
        """Set the target state, from now on or from its start on; *by* is the operator."""
        if wanted is self._wanted:
            return
        self._wanted, self._wanted_by = wanted, by
        if wanted in _STILL:
            self._end_life(self._patience_s)
        elif not self._draining.is_set():
            self._drain_within_s = self._patience_s
        self._tell_news()

    def admit(self) -> None:
        """Let the group work: this node runs its flow."""
        if not self._is_admitted:
            self._is_admitted, self._kept_out_by = True, ("", "")
            self._tell_news()

    def keep_out(self, why: str = "", hint: str = "") -> None:
        """End the group's life and stand by: another node runs its flow, as *why* says, or it is unknown yet."""
        was_admitted, self._is_admitted = self._is_admitted, False
        self._kept_out_by = (why, hint)
        if was_admitted and self._life is not None:
            self._end_life(self._patience_s)
        self._tell_news()

    def restart(self, *, by: str = "") -> None:
        """Restart the group's life, also after a failure; a stopped group has none."""
        if self._wanted in _STILL or self._is_leaving:
            return
        self._restarts += 1
        if self.has_failed:
            self._state = FlowState.STARTING
        self._events.emit(ConnectorRestarted(self.flow, self.connector, is_alone=False, by=by))
        self._end_life(self._patience_s)

    def restart_alone(self, *, by: str = "") -> None:
        """Restart everything except tasks; a group without copy tasks has no such part."""
        self.restart(by=by)

    def restart_task(self, task: int, *, by: str = "") -> bool:
        """Restart a task of the group; False if there is none with that number."""
        if task == 0:
            self.restart(by=by)
        return task == 0

    def lost_tasks(self) -> tuple[int, ...]:
        """Return the failed tasks while the group itself is running."""
        return ()

    def _end_life(self, within_s: float) -> None:
        self._drain_within_s = within_s
        self._draining.set()
        self._tell_news()

    def _tell_news(self) -> None:
        self._news.set()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Wait until a request to the group makes *is_so* true."""
        while not is_so():
            self._news.clear()
            await self._news.wait()

    async def run(self) -> None:
        """Live until drained; a stopped or failed group waits for an operator."""
        async with asyncio.TaskGroup() as tasks:
            while not self._is_leaving:
                if self._wanted in _STILL:
                    await self._stand_still()
                elif self.has_failed:
                    await self._until(lambda: self._is_leaving or self._wanted in _STILL or not self.has_failed)
                else:
                    await self._live_on(tasks)
        if not self.has_failed:
            self._state = FlowState.DRAINED

    async def _live_on(self, tasks: asyncio.TaskGroup) -> None:
        """Live, and restart after each failure, until the group must end its life or fails permanently."""
        self._draining.clear()
        life = self._life = tasks.create_task(self._supervised(), name=f"{self.task}/life")
        end = tasks.create_task(self._draining.wait(), name=f"{self.task}/drain")
        await asyncio.wait({life, end}, return_when=asyncio.FIRST_COMPLETED)
        end.cancel()
        if not life.done():
            if self._is_up:
                self._state = FlowState.DRAINING
            else:  # so there is nothing to drain
                life.cancel()
            await asyncio.wait({life})
        if not self.has_failed:
            self._state = FlowState.STARTING

    async def _stand_still(self) -> None:
        """Stay stopped until the group must run again, or end."""
        if self._state is not FlowState.STARTING:
            self._state = FlowState.DRAINING
        with suppress(Mm2Error):  # without Spark there are no epochs to wait for
            await self._settle()
        self._state, self._last_error, self._hint = FlowState.STOPPED, "", ""
        while self._wanted in _STILL and not self._is_leaving:
            told = self._wanted
            is_deleted = told is Wanted.DELETED
            self._events.emit(ConnectorStopped(self.flow, self.connector, is_deleted, self._wanted_by))
            await self._until(lambda told=told: self._wanted is not told or self._is_leaving)  # type: ignore[misc]
        if not self._is_leaving:
            self._state = FlowState.STARTING
            self._events.emit(ConnectorStarted(self.flow, self.connector, self._wanted_by))

    async def _supervised(self) -> None:
        try:
            await supervise(
                self.task,
                self._live_once,
                clock=self._clock,
                backoff=RESTART_PAUSES,
                jitter=self._around.jitter,
                report=self._restarting,
            )
        except Mm2Error as error:
            self._state, self._last_error, self._hint = FlowState.FAILED, str(error), error.hint
            self._events.emit(self._failure(error))
            self.on_failure()

    async def _live_once(self) -> None:
        try:
            await self._live()
        finally:
            self._is_up = False

    def _restarting(self, event: TaskRestarted) -> None:
        self._state, self._last_error, self._hint = FlowState.RESTARTING, "; ".join(event.causes), ""
        self._restarts += 1
        self._falls += 1
        self._events.emit(event)
        if self._draining.is_set() and self._life is not None:
            self._life.cancel()  # a group that failed in its drain is not restarted

    # For subclasses.

    @abstractmethod
    async def _live(self) -> None:
        """Live once."""

    async def _settle(self) -> None:  # noqa: B027 - most groups have nothing to wait for
        """Wait until nothing that the group has begun can write any more."""

    def _failure(self, error: Mm2Error) -> Event:
        """Report that the group failed permanently."""
        return GroupFailed(self.flow, self.connector, str(error), error.hint)

    def _came_up(self) -> None:
        """Record that the group is working from now on, and observes a drain."""
        self._is_up = True
        self._state, self._last_error, self._hint = FlowState.RUNNING, "", ""

    @property
    def _is_paused(self) -> bool:
        return self._wanted is Wanted.PAUSED

    @property
    def _is_quiet(self) -> bool:
        """Whether the group must stop working, for a pause or because its life ends."""
        return self._draining.is_set() or self._is_paused

    async def _goes_on(self) -> bool:
        """Wait while the group is held back or paused; return whether to work then, False if its life ends."""
        await self._stand_by()
        if self._is_paused and not self._draining.is_set():
            self._is_up = True
            self._state, self._last_error, self._hint = FlowState.PAUSED, "", ""
            self._events.emit(ConnectorPaused(self.flow, self.connector, self._wanted_by))
            await self._until(lambda: not self._is_paused or self._draining.is_set())
            if not self._draining.is_set():
                self._is_up, self._state = False, FlowState.STARTING
                self._events.emit(ConnectorResumed(self.flow, self.connector, self._wanted_by))
        return not self._draining.is_set()

    async def _stand_by(self) -> None:
        """Wait until the group is admitted, or its life ends."""
        while not (self._is_admitted or self._draining.is_set()):
            told = self._kept_out_by
            if any(told):
                self._state, (self._last_error, self._hint) = FlowState.STANDBY, told
            self._news.clear()
            await self._news.wait()
        if self._state is FlowState.STANDBY:
            self._state, self._last_error, self._hint = FlowState.STARTING, "", ""

    async def _connect(self, clusters: Iterable[Cluster]) -> None:
        """Connect to all *clusters*, however long it takes."""
        async with asyncio.TaskGroup() as connecting:
            for cluster in clusters:
                connecting.create_task(self._connect_one(cluster), name=f"{self.task}/connect/{cluster.alias}")

    async def _connect_one(self, cluster: Cluster) -> None:
        async def attempt() -> bool:
            await cluster.connect()
            return True

        await self._reach.insist("connect", [cluster.alias], attempt)

    async def _run_until_quiet(self, loops: Iterable[tuple[str, Coroutine[Any, Any, None]]]) -> None:
        """Run named *loops* in parallel until the group must stop working; then they are cancelled."""
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(loop, name=f"{self.task}/{name}") for name, loop in loops]
            await self._until(lambda: self._is_quiet)
            for loop in running:
                loop.cancel()
