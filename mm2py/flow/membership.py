"""One node at a time runs a flow: the member of the flow's group at the target cluster. A flow's task groups do
nothing at either cluster before this node is the member. While another node is, they stand by: the group is described
every few seconds, without joining, so that the running node is not disturbed; once the group is empty, this node takes
over. A node that finds itself replaced, after a freeze or a long outage of the target, ends its work and stands by too.
Correctness does not depend on time but on sequences and transactions: two nodes that both run the flow, for a session
at most, only waste work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import ClassVar

import attrs

from mm2py.core.membership import PROTOCOL, PROTOCOL_TYPE, Occupied, judge_members
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.flow.supervise import supervise
from mm2py.flow.task_group import RESTART_PAUSES, FlowContext, FlowGroup
from mm2py.flow.this_node import is_alive
from mm2py.model.node import Node, encode_node
from mm2py.telemetry.events import FlowRunsElsewhere, FlowTakenOver, FlowUnguarded
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.membership import MemberIdentity, Membership
from mm2py.wire.security.access import NotAuthorizedError


_STEP = "find out who runs the flow"
#: Time limit for leaving the group at the end of a flow.
_LEAVE_S = 2.0
#: Least number of heartbeats in a session, regardless of the settings.
_BEATS = 3
#: Errors that a retry does not fix: the flow continues without membership.
_HOPELESS = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_SESSION_TIMEOUT)
_HINTS: dict[int, str] = {
    ErrorCode.INVALID_SESSION_TIMEOUT: "set session.timeout.ms to what the brokers allow (group.*.timeout.ms)"
}
_HINT = "stop one of the two; once it has ended, the other continues by itself"


@attrs.define(eq=False)
class NoCoordinatorError(Mm2Error):
    """No broker coordinates a flow's group, so it is unknown who runs the flow."""

    hint: ClassVar[str] = (
        "check that __consumer_offsets of that cluster has its partitions online; it cannot be created with fewer "
        "brokers than offsets.topic.replication.factor"
    )

    cluster: str
    group: str

    def __str__(self) -> str:
        return f"no broker of cluster {self.cluster} coordinates group {self.group}"


class FlowMembership:
    """Keeps a flow's membership, or waits for it, and informs the flow's groups."""

    def __init__(
        self, around: FlowContext, us: Callable[[], Node], before_takeover: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """
        Create one for a flow; *us* returns this node as others see it.

        *before_takeover* runs before this node continues a flow that another node ran until now.
        """
        self._around = around
        self._us = us
        self._settings = around.settings.membership
        self._group = around.settings.group_id
        self._clock = around.clock
        self._interval_s = min(self._settings.heartbeat_ms, self._settings.session_ms / _BEATS) / 1000
        self._groups: Sequence[FlowGroup] = ()
        self._kept: MemberIdentity | None = None
        self._hands_over = False
        self._is_ours = False
        #: Whether another node replaced us, which was not reported yet.
        self._was_ours = False
        self._taken_at: float | None = None
        self._told: Occupied | None = None
        self._unguarded_by = ""
        self._before_takeover = before_takeover or _nothing

    def hand_over(self) -> None:
        """Do not leave the group at the end: the flow continues on this node, with a successor that does `keep` it."""
        self._hands_over = True

    @property
    def place(self) -> MemberIdentity | None:
        """Return the membership that was handed over."""
        return self._kept

    def keep(self, place: MemberIdentity | None) -> None:
        """Continue with a membership that this node has."""
        self._kept = place

    def begin(self, groups: Sequence[FlowGroup]) -> None:
        """Hold *groups* back until `run` has determined who runs the flow."""
        self._groups = groups
        if self._settings.refuses:
            self._keep_out()

    async def run(self) -> None:
        """Decide, until cancelled, whether the flow's groups may work; leave the group at the end."""
        task = f"{self._around.flow}/membership"
        await supervise(
            task,
            self._live,
            clock=self._clock,
            backoff=RESTART_PAUSES,
            jitter=self._around.jitter,
            report=self._around.events.emit,
        )

    async def _live(self) -> None:
        cluster = Cluster(self._around.settings.target, self._clock)
        protocol = PROTOCOL_TYPE, PROTOCOL
        place = Membership(cluster, self._group, protocol, self._settings.session_ms)
        if self._kept is not None:
            place.keep(self._kept)
        reach, aliases = self._around.reach, [self._around.flow.target]

        async def connect() -> bool:
            await cluster.connect()
            return True

        try:
            await reach.insist(_STEP, aliases, connect)
            while True:
                await reach.once(_STEP, aliases, lambda: self._tend(place))
                await self._clock.sleep(self._interval_s)
        finally:
            # The flow ends, or is being cancelled: other nodes must not have to wait for the session to expire.
            self._is_ours, self._kept = False, place.place
            if not self._hands_over:
                with suppress(Mm2Error, TimeoutError):
                    async with asyncio.timeout(_LEAVE_S):
                        await place.leave()
            await cluster.close()

    async def _tend(self, place: Membership) -> bool:
        """Keep the membership or join, if possible, and inform the groups."""
        if all(group.has_failed for group in self._groups):
            await self._rest(place)
            return True
        try:
            await self._decide(place)
        except BrokerAnsweredError as error:
            if error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                raise NoCoordinatorError(error.cluster, self._group) from error
            if not isinstance(error, NotAuthorizedError) and error.code not in _HOPELESS:
                raise
            self._go_unguarded(error)
        return True

    async def _decide(self, place: Membership) -> None:
        us = self._us()
        metadata = encode_node(us)
        if place.is_in and await place.beat(metadata):
            await self._own()
            return
        while True:
            found = judge_members(await place.look(), us, is_alive)
            for member_id in found.dead:
                await place.remove(member_id)
            if isinstance(found, Occupied):
                self._found(found)
                return
            try:
                if await place.join(metadata):
                    await self._own()
                    return
            except BrokerAnsweredError as error:
                if error.code != ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                    raise
            # Another node came first; the group shows which once it has rebalanced.
            await self._clock.sleep(min(1.0, self._interval_s))

    async def _rest(self, place: Membership) -> None:
        """Leave the group after the flow failed permanently here: it may work elsewhere."""
        if place.is_in:
            await place.leave()
        self._is_ours, self._taken_at = False, None
        if self._settings.refuses:
            self._keep_out()

    async def _own(self) -> None:
        if self._taken_at is not None:
            await self._before_takeover()
            waited_s = self._clock.monotonic() - self._taken_at
            if self._told is not None:
                self._around.events.emit(FlowTakenOver(self._around.flow, self._told.by, waited_s))
        self._is_ours, self._was_ours, self._taken_at, self._told, self._unguarded_by = True, False, None, None, ""
        self._admit()

    def _found(self, taken: Occupied) -> None:
        """Stand by for the current member, and report it once it is certain not to be left over from a crash."""
        now = self._clock.monotonic()
        self._was_ours |= self._is_ours
        self._is_ours = False
        self._taken_at = now if self._taken_at is None else self._taken_at
        self._unguarded_by = ""
        if self._settings.refuses:
            self._keep_out(f"{taken.by} runs {self._around.flow}")
        is_sure = self._was_ours or taken.is_certain or now - self._taken_at >= self._settings.session_ms / 1000
        is_told = self._told is not None and (taken.node is None or self._told.by == taken.by)
        if is_sure and not is_told and not taken.is_settling:
            self._told = taken
            self._tell(taken, was_ours=self._was_ours)
            self._was_ours = False

    def _tell(self, taken: Occupied, *, was_ours: bool) -> None:
        node = taken.node
        self._around.events.emit(
            FlowRunsElsewhere(
                self._around.flow,
                self._group,
                taken.by,
                _since(node),
                node.rest if node is not None else "",
                self._then(was_ours=was_ours),
                _HINT,
            )
        )

    def _then(self, *, was_ours: bool) -> str:
        if not self._settings.refuses:
            return "copies nevertheless: copy.on.second.node is warn"
        return "steps back and stands by" if was_ours else "stands by and copies nothing"

    def _go_unguarded(self, error: BrokerAnsweredError) -> None:
        """Work without membership, as no other member is known: report what is missing, and retry."""
        if isinstance(error, NotAuthorizedError):
            error = attrs.evolve(error, grant=f"READ on group {self._group}")  # which implies all others
        hint = self._around.reach.hint_for(error) or _HINTS.get(error.code, "")
        if self._unguarded_by != str(error):
            self._unguarded_by = str(error)
            self._around.events.emit(FlowUnguarded(self._around.flow, self._group, str(error), hint))
        if self._taken_at is None:
            self._admit()

    def _admit(self) -> None:
        for group in self._groups:
            group.requests.admit()

    def _keep_out(self, why: str = "") -> None:
        for group in self._groups:
            group.requests.keep_out(why, _HINT if why else "")


async def _nothing() -> None:
    return


def _since(node: Node | None) -> str:
    """Return when *node* started, by the clock of its own machine."""
    if node is None or not node.started_ms:
        return ""
    return datetime.fromtimestamp(node.started_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
