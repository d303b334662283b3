"""
A task group of a flow: what the source, the checkpoint and the heartbeat group share.

Each group has a life of its own. It runs under its own supervision, says in its own view how it fares, and opens the
clusters it needs for itself; so a group that falls over, or that cannot do its work, leaves the others alone. Java
MirrorMaker has a connector for each of them.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, ClassVar

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.core.backoff import Backoff
from mm2py.errors import Mm2Error
from mm2py.flow.reach import Reach
from mm2py.flow.supervise import supervise
from mm2py.model.flow import Flow
from mm2py.model.state import FlowState, GroupView
from mm2py.telemetry.events import Event, GroupFailed, TaskRestarted
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster


RESTART_PAUSES = Backoff(1.0, 60.0)


@attrs.frozen
class Surroundings:
    """What a flow hands to each of its groups."""

    settings: FlowSettings
    #: One for all groups of the flow, so that a cluster's absence is said once.
    reach: Reach
    clock: Clock
    events: EventLog
    luck: Callable[[], float]

    @property
    def flow(self) -> Flow:
        return self.settings.flow


class FlowGroup(ABC):
    """
    One task group, from its start to its drain.

    A subclass gives `_live`, one life of the group. Its contract: it calls `_came_up` once it can end in good order;
    from then on it heeds `_draining`, and returns within `_drain_within_s` and a few seconds of its own. Before that
    a drain just cancels it. What it raises is told, and it is called again after a pause; an error that says
    `Verdict.STOP_FLOW` is the end of the group.
    """

    #: Java's name for it, without the package.
    connector: ClassVar[str]
    #: Ours, in the names of asyncio tasks and in the log.
    name: ClassVar[str]

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._settings = around.settings
        self._reach = around.reach
        self._clock = around.clock
        self._events = around.events
        self._draining = asyncio.Event()
        self._drain_within_s = 0.0
        self._state = FlowState.STARTING
        self._is_up = False
        self._life: asyncio.Task[None] | None = None
        self._restarts = 0
        self._last_error = ""
        self._hint = ""

    @property
    def flow(self) -> Flow:
        return self._settings.flow

    @property
    def task(self) -> str:
        """Name it as the log does, ``A->B/source``."""
        return f"{self.flow}/{self.name}"

    @property
    def state(self) -> FlowState:
        return self._state

    @property
    def has_failed(self) -> bool:
        """Say whether it is down for good."""
        return self._state is FlowState.FAILED

    def view(self) -> GroupView:
        """Give a picture of the group as it is now."""
        return GroupView(self.connector, self._state, self._last_error, self._hint, self._restarts)

    def drain(self, *, within_s: float) -> None:
        """Ask the group to end what it has begun and to return from `run`."""
        self._drain_within_s = within_s
        self._draining.set()

    async def run(self) -> None:
        """Live until drained or failed for good; either way this returns."""
        async with asyncio.TaskGroup() as tasks:
            self._life = tasks.create_task(self._supervised(), name=f"{self.task}/life")
            end = tasks.create_task(self._draining.wait(), name=f"{self.task}/drain")
            await asyncio.wait({self._life, end}, return_when=asyncio.FIRST_COMPLETED)
            end.cancel()
            if self._is_up:
                self._state = FlowState.DRAINING
            else:  # so there is nothing to drain
                self._life.cancel()
        if not self.has_failed:
            self._state = FlowState.DRAINED

    async def _supervised(self) -> None:
        try:
            await supervise(
                self.task,
                self._live_once,
                clock=self._clock,
                backoff=RESTART_PAUSES,
                luck=self._around.luck,
                report=self._restarting,
            )
        except Mm2Error as error:
            self._state, self._last_error, self._hint = FlowState.FAILED, str(error), error.hint
            self._events.emit(self._failure(error))

    async def _live_once(self) -> None:
        try:
            await self._live()
        finally:
            self._is_up = False

    def _restarting(self, event: TaskRestarted) -> None:
        self._state, self._last_error, self._hint = FlowState.RESTARTING, "; ".join(event.causes), ""
        self._restarts += 1
        self._events.emit(event)
        if self._draining.is_set() and self._life is not None:
            self._life.cancel()  # a group that fell over in its drain has no further life

    # What a subclass does, and what helps it.

    @abstractmethod
    async def _live(self) -> None:
        """Live once."""

    def _failure(self, error: Mm2Error) -> Event:
        """Tell that the group is down for good."""
        return GroupFailed(self.flow, self.connector, str(error), error.hint)

    def _came_up(self) -> None:
        """Note that the group does its work from now on, and that a drain will be heeded."""
        self._is_up = True
        self._state, self._last_error, self._hint = FlowState.RUNNING, "", ""

    async def _connect(self, clusters: Iterable[Cluster]) -> None:
        """Reach all *clusters*, however long it takes."""
        async with asyncio.TaskGroup() as connecting:
            for cluster in clusters:
                connecting.create_task(self._connect_one(cluster), name=f"{self.task}/connect/{cluster.alias}")

    async def _connect_one(self, cluster: Cluster) -> None:
        async def attempt() -> bool:
            await cluster.connect()
            return True

        await self._reach.insist("connect", [cluster.alias], attempt)

    async def _run_until_drained(self, loops: Iterable[tuple[str, Coroutine[Any, Any, None]]]) -> None:
        """Run named *loops* side by side until the group is drained; they are cancelled then."""
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(loop, name=f"{self.task}/{name}") for name, loop in loops]
            await self._draining.wait()
            for loop in running:
                loop.cancel()
