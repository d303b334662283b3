"""
A distributed worker's place in its group at the target, `group.id`, which Java's workers of that name share.

Kafka admits either Java's workers or nodes of mm2py. While it is Java's, every flow of the worker stands by. A node
that lost its place, because it was frozen or cut off, finds that out with its next heartbeat: if Java's workers came
meanwhile, its flows end, and stand by. There is nothing to share here: each flow's nodes have a group of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import ClassVar

import attrs

from mm2py.clock import Clock
from mm2py.config.worker import WorkerConfig
from mm2py.connectors.supervise import in_passing
from mm2py.core.herder.membership import PROTOCOL, PROTOCOL_TYPE, NoCoordinatorError, Occupied
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.herder.group_members import STOP_ONE, beat_interval_s, is_hopeless, who_else, with_grant
from mm2py.herder.runner import FlowRunner
from mm2py.herder.this_node import this_node
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.herder.node import Node
from mm2py.model.herder.share import Candidate, encode_candidate
from mm2py.model.state import FlowState
from mm2py.telemetry.events import WorkerRunsElsewhere, WorkerTakenOver, WorkerUnguarded
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.membership import Heartbeat, MemberIdentity, Membership
from mm2py.wire.security.access import hint_at


@attrs.define(eq=False)
class WorkerRunsElsewhereError(Mm2Error):
    """Other workers have the group of this one, so they run its connectors."""

    hint: ClassVar[str] = STOP_ONE

    by: str
    flow: str
    group: str

    def __str__(self) -> str:
        return f"{self.by} runs {self.flow}, as a worker of group {self.group}"


class WorkerMembership:
    """Keeps a worker's place in its group, or waits for it, and lets its flows run meanwhile."""

    def __init__(self, endpoint: ClusterEndpoint, settings: WorkerConfig, *, clock: Clock, events: EventLog) -> None:
        """Create one at the worker's cluster. Without `settings.refuses` its flows never wait."""
        #: How its cluster is reached: the place is kept there as soon as this changes.
        self.endpoint = endpoint
        self._settings = settings
        self._clock, self._events = clock, events
        self._us: Callable[[], Node] = this_node
        self._is_open = not settings.refuses
        #: Whose the group is instead, since when, and what keeps us from finding that out.
        self._taken: Occupied | None = None
        self._taken_at = 0.0
        self._error: Mm2Error | None = None
        #: What was reported of that.
        self._told: set[str] = set()
        self._news, self._closed = asyncio.Event(), asyncio.Event()

    async def admit(self, runner: FlowRunner) -> None:
        """Wait until the worker's flows may run, and have *runner* show why it waits."""
        while not self._is_open:
            if self._taken is not None:
                error = WorkerRunsElsewhereError(self._taken.by, str(runner.flow), self._settings.group_id)
                runner.hold(error, FlowState.STANDBY)
            else:
                runner.hold(self._error, FlowState.STARTING)
            self._news.clear()
            await self._news.wait()
        runner.hold(None)

    async def until_closed(self) -> None:
        """Wait until flows that were admitted must end: Java's workers have taken the group."""
        await self._closed.wait()
        self._closed.clear()

    async def run(self, us: Callable[[], Node] = this_node) -> None:
        """Keep the place until cancelled; then leave the group. *us* returns this node as others see it."""
        self._us = us
        if not self._settings.refuses:
            return
        cluster, place = self._opened()
        interval_s = beat_interval_s(self._settings.session_ms, self._settings.heartbeat_ms)
        try:
            while True:
                if cluster.endpoint != self.endpoint:
                    before = cluster
                    cluster, place = self._opened(place.place)
                    await before.close()
                try:
                    await cluster.connect()
                    await self._tend(place)
                except Mm2Error as error:
                    self._failed(error)
                await self._clock.sleep(interval_s)
        finally:
            await in_passing(place.leave())
            await cluster.close()

    def _opened(self, known: MemberIdentity | None = None) -> tuple[Cluster, Membership]:
        """Return the cluster, to be connected, and our place in the group there, as it is *known* so far."""
        cluster, protocol = Cluster(self.endpoint, self._clock), (PROTOCOL_TYPE, PROTOCOL)
        place = Membership(cluster, self._settings.group_id, protocol, self._settings.session_ms)
        if known is not None:
            place.keep(known)
        return cluster, place

    async def _tend(self, place: Membership) -> None:
        """Keep the place, or take it unless it is Java's."""
        beat = await place.beat() if place.is_in else Heartbeat.LOST
        if beat is Heartbeat.LOST and (taken := await who_else(place, self._us(), shares=True)) is not None:
            self._close(taken)
        elif beat is Heartbeat.OK or await self._join(place):
            self._open()

    async def _join(self, place: Membership) -> bool:
        """Join; False if that did not come to an end, or Java's workers came first."""
        try:
            return await place.join(encode_candidate(Candidate(self._us())), _assign_nothing) is not None
        except BrokerAnsweredError as error:
            if error.code != ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                raise
            return False  # the group shows its members once it has rebalanced

    def _open(self) -> None:
        if self._taken is not None:
            waited_s = self._clock.monotonic() - self._taken_at
            self._events.emit(WorkerTakenOver(self._settings.group_id, self._taken.by, waited_s))
        self._is_open, self._taken, self._error = True, None, None
        self._told.clear()
        self._closed.clear()
        self._news.set()

    def _close(self, taken: Occupied) -> None:
        """Have the flows stand by, and report once for whom."""
        if self._taken is None:
            self._taken_at = self._clock.monotonic()
            then = "steps back and stands by" if self._is_open else "stands by and runs no connector"
            self._events.emit(WorkerRunsElsewhere(self._settings.group_id, taken.by, then, STOP_ONE))
        if self._is_open:
            self._closed.set()
        self._is_open, self._taken, self._error = False, taken, None
        self._news.set()

    def _failed(self, error: Mm2Error) -> None:
        """Report that the group cannot be asked or joined. What runs continues: Java's workers must ask it too."""
        is_lasting, is_silent = False, not isinstance(error, BrokerAnsweredError)
        if isinstance(error, BrokerAnsweredError):
            error, is_lasting = with_grant(error, self._settings.group_id), is_hopeless(error)
            if error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                error = NoCoordinatorError(error.cluster, self._settings.group_id)
        hint = hint_at(error, self.endpoint)
        self._error = error
        if is_lasting and self._taken is None:
            self._is_open = True
        self._news.set()
        reason = "no answer" if is_silent else str(error)
        if reason not in self._told:
            self._told.add(reason)
            then = "its flows run nevertheless" if self._is_open else "its flows wait"
            self._events.emit(WorkerUnguarded(self._settings.group_id, str(error), then, hint))


async def _assign_nothing(_generation: int, joined: Mapping[str, bytes]) -> Mapping[str, bytes]:
    return dict.fromkeys(joined, b"")
