"""The reachability of a flow's two clusters. A cluster that becomes unreachable is reported once, and once when it is
back; in between the flow keeps trying. A refused login is reported once for each reason. A cluster that responds, but
refuses a step, is reported once for each refusal. What is shown is what any flow of the node has learnt last.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeVar

import attrs

from mm2py.clock import Clock
from mm2py.connectors.known_clusters import ClustersOfFlow, KnownClusters, Pulse
from mm2py.core.backoff import Backoff
from mm2py.errors import (
    AdminTimeoutError,
    BrokerConnectionError,
    ClusterUnreachableError,
    Mm2Error,
    Verdict,
    cluster_of,
)
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import Flow
from mm2py.model.state import ClusterView, StepView
from mm2py.telemetry.events import AuthenticationFailed, ClusterRecovered, ClusterUnreachable, StepFailed
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.security.access import BrokerAccessError, ClusterAccessError, NotAuthorizedError


T = TypeVar("T")

_PAUSES = Backoff(0.5, 15.0)
#: Repeat interval of refused logins, even if the cluster responded meanwhile.
_SILENCE_S = 60.0
#: After an absence as short as this, the next ones are reported if they last longer.
_BRIEF_S = 1.0
#: What was silent for seconds is back once it answers as fast as this: one that is merely slow would come and go.
PROMPT_S = 2.5
#: Repeat interval of warnings about refusals to copy tasks.
_REMINDER_S = 600.0


@attrs.define
class _Absence:
    """Since when a cluster has not responded to the flow, and the number of attempts."""

    since: float
    attempts: int = 0
    error: str = ""
    hint: str = ""
    #: Whether another flow of the node gets answers all the while.
    is_alone: bool = False
    is_told: bool = False
    #: Whether it is not reported unless it lasts.
    is_withheld: bool = False
    #: The reported reason of a refused login, if the cluster is reachable.
    kept_out_by: str = ""


@attrs.define
class _Step:
    """How often a step failed, and when it last succeeded."""

    succeeded_ms: int | None = None
    failures: int = 0


class Reach:
    """What a flow knows about the reachability of its clusters, and about its steps there."""

    def __init__(
        self,
        flow: Flow,
        clock: Clock,
        events: EventLog,
        jitter: Callable[[], float],
        principal_at: Callable[[str], str] = lambda _alias: "the mirror's principal",
        *,
        known: ClustersOfFlow | None = None,
    ) -> None:
        """Create it; *known* is what the node's flows share, without which the flow is alone."""
        self._flow = flow
        self._clock = clock
        self._events = events
        self._jitter = jitter
        self._principal_at = principal_at
        #: Those that the flow has noticed itself, and reports.
        self._absences: dict[str, _Absence] = {}
        #: When a step had waited in vain for a cluster that was back by then, and nothing has succeeded there since.
        self._in_vain: dict[str, float] = {}
        ends = (ClusterEndpoint(alias, ()) for alias in (flow.source, flow.target))
        self._known = known or KnownClusters().known_to(ends)
        #: Clusters that the flow needs.
        self._asked: set[str] = set()
        self._told_at: dict[tuple[str, str], float] = {}
        self._brief_at: dict[str, float] = {}
        #: Why clusters refuse steps now, with a hint, and which it may be.
        self._refusals: dict[str, tuple[str, str, tuple[str, ...]]] = {}
        self._steps: dict[str, _Step] = {}

    @property
    def is_complete(self) -> bool:
        """Whether both clusters responded last time."""
        return not self._absences and not any(map(self.is_away, self._asked))

    def is_away(self, alias: str) -> bool:
        """Whether a cluster did not respond last time."""
        is_alone = (absence := self._absences.get(alias)) is not None and absence.is_alone
        return is_alone or (alias in self._asked and self._known.is_away(alias))

    def heard_at(self, alias: str) -> float:
        """Return when a cluster last answered any flow of the node."""
        return self._known.heard_at(alias)

    def pulse(self, alias: str, every_s: float) -> AbstractContextManager[Pulse | None]:
        """Return a cluster's pulse if this flow is to ask for it now, of all flows of the node."""
        return self._known.pulse(alias, self._clock, every_s)

    def view(self) -> tuple[ClusterView, ...]:
        """Return the known state of both clusters."""
        return self._view_of(self._flow.source), self._view_of(self._flow.target)

    def _view_of(self, alias: str) -> ClusterView:
        if (absence := self._absences.get(alias)) is not None and absence.is_alone:
            return ClusterView(alias, is_reachable=False, error=absence.error, hint=absence.hint)
        learnt = self._known.look(alias) if alias in self._asked else None
        if learnt is None:
            return ClusterView(alias, is_reachable=True, is_asked=False)
        return ClusterView(alias, is_reachable=not learnt.is_away, error=learnt.error, hint=learnt.hint)

    def close(self) -> None:
        """Have the other flows find out for themselves what this one, which asks no more, has learnt last."""
        self._known.forget()

    def steps(self) -> tuple[StepView, ...]:
        """Return the steps tried so far, by name."""
        return tuple(
            StepView(name, step.succeeded_ms, step.failures, *self._refusals.get(name, ()))
            for name, step in sorted(self._steps.items())
        )

    def succeeded(self, step: str) -> None:
        """Record that *step* is done for now, or that there was nothing to do."""
        self._refusals.pop(step, None)
        self._steps.setdefault(step, _Step()).succeeded_ms = self._clock.wall_ms()

    def answered(self, clusters: Iterable[str], step: str = "", *, begun: float = math.inf) -> None:
        """Record that *clusters* responded, and that *step* is no longer refused. What a step got that was *begun*
        before its cluster went away a moment ago may have been on its way then, and is no sign that it is back; nor is
        what took seconds of one that was silent. A step that asks several says nothing of one of which something is
        known: it may have waited long for another one, or have had nothing to ask.
        """
        self._refusals.pop(step, None)
        now, answering = self._clock.monotonic(), tuple(clusters)
        for alias in answering:
            self._asked.add(alias)
            away_since = self._known.away_since(alias)
            if begun < away_since > now - _BRIEF_S or (self._known.is_silent(alias) and now - begun > PROMPT_S):
                continue
            if len(answering) > 1 and self._known.look(alias) is not None:
                continue
            self._known.answered(alias, now)
            self._in_vain.pop(alias, None)
            if (absence := self._absences.pop(alias, None)) is not None and absence.is_told:
                away_s = now - absence.since
                if away_s < _BRIEF_S:
                    self._brief_at[alias] = now
                self._events.emit(ClusterRecovered(self._flow, alias, away_s, absence.attempts))

    def failed(
        self,
        step: str,
        error: Mm2Error,
        *,
        counted_as: str = "",
        begun: float = math.inf,
        clusters: Iterable[str] = (),
    ) -> None:
        """Record that *step* failed: its cluster is unreachable, or refuses it. A takeover is reported elsewhere. A
        step that is about one group of many is *counted_as* what it is for all of them. One that was *begun* before its
        cluster came back waited in vain for what was away then, but one that was begun after that failed by itself.
        *clusters* are those that it asked, if the error names none.
        """
        self.count(counted_as or step)
        if error.verdict is Verdict.STAND_BY:
            return
        if isinstance(error, ClusterUnreachableError | BrokerConnectionError):
            is_news = self._known.back_at(error) <= begun
            if is_news or self._in_vain.setdefault(error.cluster, self._clock.monotonic()) <= begun:
                self._away(error, is_alone=not is_news)
            return
        before, hint, one = self._refusals.get(step), self.hint_for(error), cluster_of(error)
        self._refusals[step] = str(error), hint, (one,) if one else tuple(clusters)
        if before is None or before[0] != str(error):
            self._events.emit(StepFailed(self._flow, step, str(error), hint))

    def forget_refusals(self) -> None:
        """Show no refusals of steps that another node does from now on, or none; others of them are noticed again."""
        self._refusals.clear()

    def count(self, step: str) -> None:
        """Count a failure of *step*; `failed` reports it as well."""
        self._steps.setdefault(step, _Step()).failures += 1

    def hint_for(self, error: Mm2Error) -> str:
        """Return the hint, with the flow's principal at that cluster."""
        if isinstance(error, NotAuthorizedError):
            return error.hint_for(self._principal_at(error.cluster))
        return error.hint

    def refused(self, failure: PartitionFailure) -> None:
        """Record that a cluster refused a copy task's login or an operation."""
        principal = self._principal_at(failure.cluster)
        self._tell_kept_out(failure.cluster, principal, failure.message, failure.hint, _REMINDER_S)

    def _away(self, error: ClusterUnreachableError | BrokerConnectionError, *, is_alone: bool) -> None:
        absence = self._absences.get(error.cluster)
        self._asked.add(error.cluster)
        if absence is None:
            absence = self._absences[error.cluster] = _Absence(self._clock.monotonic(), is_alone=is_alone)
        elif not self._known.is_away(error.cluster):
            absence.is_alone = True  # another flow was answered between our two attempts
        absence.attempts += 1
        absence.error, absence.hint = str(error), error.hint or ClusterUnreachableError.hint
        if not absence.is_alone:
            self._known.failed(error, absence.hint, self._clock.monotonic())
        if isinstance(error, BrokerAccessError | ClusterAccessError):
            if absence.kept_out_by != error.cause:
                is_told = self._tell_kept_out(error.cluster, error.principal, error.cause, error.hint, _SILENCE_S)
                absence.kept_out_by = error.cause if is_told else ""
                absence.is_told = absence.is_told or is_told
        elif absence.attempts == 1 or absence.is_withheld:
            absence.is_withheld = self._is_flickering(error.cluster, absence)
            if not absence.is_withheld:
                absence.is_told = True
                self._events.emit(ClusterUnreachable(self._flow, error.cluster, str(error), absence.hint))

    def _is_flickering(self, cluster: str, absence: _Absence) -> bool:
        """Whether this may be another brief absence: if brokers take no more connections, the open ones still work, so
        that steps fail and succeed by turns.
        """
        now = self._clock.monotonic()
        is_recent = now - self._brief_at.get(cluster, -math.inf) < _SILENCE_S
        return is_recent and now - absence.since < _BRIEF_S

    def _tell_kept_out(self, cluster: str, principal: str, error: str, hint: str, silence_s: float) -> bool:
        """Report a refused login, unless it was reported within *silence_s*; return whether it was. Existing
        connections still work, so logins may seem to succeed and fail alternately.
        """
        now = self._clock.monotonic()
        told_at = self._told_at.get((cluster, hint))
        if told_at is not None and now - told_at < silence_s:
            return False
        self._told_at[cluster, hint] = now
        self._events.emit(AuthenticationFailed(self._flow, cluster, principal, error, hint))
        return True

    async def once(
        self, step: str, clusters: Iterable[str], attempt: Callable[[], Awaitable[T]], *, within_ms: int | None = None
    ) -> T | None:
        """Try a step of the control plane; None if it failed, or took longer than *within_ms*, which is recorded.
        Fatal errors are raised.
        """
        found = await self._tried(step, clusters, attempt, within_ms)
        return found[0] if found else None

    async def done(
        self,
        step: str,
        clusters: Iterable[str],
        attempt: Callable[[], Awaitable[object]],
        *,
        within_ms: int | None = None,
    ) -> bool:
        """Try a step as `once` does; return whether it succeeded."""
        return bool(await self._tried(step, clusters, attempt, within_ms))

    async def insist(
        self,
        step: str,
        clusters: Iterable[str],
        attempt: Callable[[], Awaitable[T]],
        *,
        told: Callable[[Mm2Error], None] = lambda _error: None,
    ) -> T:
        """Try a step until it succeeds, with growing pauses; *told* gets what each attempt fails with."""
        asked = tuple(clusters)
        pauses = _PAUSES.pauses(self._jitter)

        async def telling() -> T:
            try:
                return await attempt()
            except Mm2Error as error:
                told(error)
                raise

        while not (found := await self._tried(step, asked, telling)):
            await self._clock.sleep(next(pauses))
        return found[0]

    async def _tried(
        self, step: str, clusters: Iterable[str], attempt: Callable[[], Awaitable[T]], within_ms: int | None = None
    ) -> tuple[T, ...]:
        """Return what an attempt returned, nothing if it failed."""
        asked = tuple(clusters)
        self._asked.update(asked)
        begun = self._clock.monotonic()
        try:
            result = await (attempt() if within_ms is None else _in_time(attempt, within_ms))
        except Mm2Error as error:
            if error.verdict is Verdict.STOP_FLOW:
                raise
            self.failed(step, error, begun=begun, clusters=asked)
            return ()
        self.answered(asked, step, begun=begun)
        self.succeeded(step)
        return (result,)

    @asynccontextmanager
    async def connected(
        self, task: str, *endpoints: ClusterEndpoint, told: Callable[[Mm2Error], None] = lambda _error: None
    ) -> AsyncIterator[list[Cluster]]:
        """Connect *task* to its clusters, however long it takes, and close them at the end; *told* as in `insist`."""
        clusters = [Cluster(endpoint, self._clock) for endpoint in endpoints]
        async with AsyncExitStack() as open_clusters:
            for cluster in clusters:
                open_clusters.push_async_callback(cluster.close)
            async with asyncio.TaskGroup() as connecting:
                for cluster in clusters:
                    connected = self.insist("connect", [cluster.alias], cluster.connect, told=told)
                    connecting.create_task(connected, name=f"{task}/connect/{cluster.alias}")
            yield clusters


async def _in_time(attempt: Callable[[], Awaitable[T]], within_ms: int) -> T:
    try:
        async with asyncio.timeout(within_ms / 1000) as limit:
            return await attempt()
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise AdminTimeoutError(within_ms) from error
