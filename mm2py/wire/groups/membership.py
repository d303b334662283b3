"""
One member of a group, by Kafka's classic group protocol: what a consumer or a Connect worker does to be in one.

The coordinator makes the first member the leader, and keeps it while it answers. Each member that comes or goes makes
all join again: a rebalance. The leader then says who gets what, in bytes that only members understand. A static member
(KIP-345), which has a name of its own, may go and come back within a session without a rebalance: it gets the bytes of
its former self.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
from aiokafka.protocol.group import LeaveGroupRequest, SyncGroupRequest

from mm2py.errors import BrokerAnsweredError
from mm2py.model.group import GroupMember, GroupMembers
from mm2py.wire.answers import by_asked
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.groups.coordinator import Coordinator
from mm2py.wire.groups.requests import GROUP_KEY, DescribeGroupsRequest, HeartbeatRequest, JoinGroupRequest
from mm2py.wire.patience import Patience


_PURPOSE: Final = "membership"
#: How long a moving or loading coordinator is awaited; callers retry soon.
_PATIENCE_S: Final = 15.0
#: Part of a session after which a heartbeat is not awaited any more: a frozen coordinator answers none, and another
#: broker may have its groups long before the request timeout is over.
_BEAT_SHARE: Final = 1 / 3
#: A round of joining may be overtaken by another; more often than this in a row is an error.
_ROUNDS: Final = 10
#: The coordinator does not know the member, or not in this generation.
_THROWN_OUT: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_AGAIN: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED, *_THROWN_OUT})
#: Another member has joined under our name. We do not join again, which would throw that one out in turn.
_FENCED: Final = ErrorCode.FENCED_INSTANCE_ID
#: The first version of DescribeGroups that names static members.
_DESCRIBES_INSTANCES: Final = 4


#: Called with a generation and what its members joined with; returns what each is sent.
Assign = Callable[[int, Mapping[str, bytes]], Awaitable[Mapping[str, bytes]]]


class Heartbeat(enum.Enum):
    """What a coordinator answers a heartbeat."""

    OK = enum.auto()
    #: The group rebalances: its members must join again, and work as before until then.
    REBALANCE = enum.auto()
    #: The coordinator does not know us any more.
    LOST = enum.auto()


@attrs.frozen
class MemberIdentity:
    """What a coordinator knows a member by."""

    group: str
    member_id: str
    generation: int
    instance: str | None = None


class Membership:
    """
    Our place in *group* at a cluster, or none. It opens nothing of its own, so there is nothing to close.

    A member must call `beat` several times in each session. One whose name another member has taken, an error
    FENCED_INSTANCE_ID, is out of the group.
    """

    def __init__(
        self, cluster: Cluster, group: str, protocol: tuple[str, str], session_ms: int, instance: str = ""
    ) -> None:
        """Make one that joins by *protocol*, its type and its name, as a static member if it has an *instance*."""
        self.group = group
        self._cluster = cluster
        self._protocol_type, self._protocol = protocol
        self._session_ms = session_ms
        self._instance = instance or None
        self._coordinator = Coordinator(cluster, group, GROUP_KEY, _PURPOSE)
        #: Brokers answer the requests of a connection one after the other, so a join holds the next ones back, too.
        self._beside = Coordinator(cluster, group, GROUP_KEY, f"{_PURPOSE} beside a join")
        self._member_id = ""
        self._generation = -1
        #: When it was asked what was answered last; answers may be late.
        self.asked_at = 0.0

    @property
    def is_in(self) -> bool:
        """Whether we are in the group, as far as we know."""
        return self._generation >= 0

    @property
    def member_id(self) -> str:
        """Return what the coordinator calls us; empty if it does not know us."""
        return self._member_id

    @property
    def place(self) -> MemberIdentity | None:
        """Return our place, so that another `Membership` may keep it; None where we have none."""
        return MemberIdentity(self.group, self._member_id, self._generation, self._instance) if self.is_in else None

    def keep(self, place: MemberIdentity) -> None:
        """Take over what another `Membership` had, as far as the coordinator knows it still: `beat` finds out."""
        if (place.group, place.instance) == (self.group, self._instance):
            self._member_id, self._generation = place.member_id, place.generation

    async def look(self) -> GroupMembers:
        """Describe the group."""
        response = await self._ask(DescribeGroupsRequest([self.group]), "DescribeGroups", lambda it: self._row(it)[0])
        if not isinstance(response, BrokerAnsweredError):
            _, _, state, protocol_type, protocol, members, *_ = self._row(response)
            has_instances = response.API_VERSION >= _DESCRIBES_INSTANCES
            found = tuple(_member(row if has_instances else (row[0], None, *row[1:])) for row in members)
            return GroupMembers(state, protocol_type, protocol, found)
        if response.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return GroupMembers()
        raise response

    def _row(self, described: Any) -> Sequence[Any]:
        silent = (ErrorCode.UNKNOWN_SERVER_ERROR,)
        rows: Iterator[tuple[str, Sequence[Any]]] = ((row[1], row) for row in described.groups)
        return by_asked([self.group], rows, silent)[self.group]

    async def join(self, metadata: bytes, assign: Assign) -> bytes | None:
        """
        Join with *metadata*, and return what the group's leader assigns to us; where that is us, *assign* is asked.

        None if the group was overtaken by one rebalance after another. That it cannot be stored, because
        __consumer_offsets has too few replicas, looks the same: the coordinator says so once, and has all join again.
        """
        answered: list[int] = []

        def note(synced: Any) -> int:
            answered.append(synced.error_code)
            return answered[-1]

        for _ in range(_ROUNDS):
            answer = await self._ask(self._join_request(metadata), "JoinGroup")
            if not isinstance(answer, BrokerAnsweredError):
                self._member_id, self._generation = answer.member_id, answer.generation_id
                shares: Mapping[str, bytes] = {}
                if answer.leader_id == answer.member_id:
                    joined = {row[0]: bytes(row[-1] or b"") for row in answer.members}
                    shares = await assign(answer.generation_id, joined)
                answer = await self._ask(self._sync_request(shares), "SyncGroup", note)
                if not isinstance(answer, BrokerAnsweredError):
                    return bytes(answer.member_assignment)
            if answer.code in _THROWN_OUT or answer.code == _FENCED:
                self._forget()
            if answer.code not in _AGAIN:
                raise answer
        if ErrorCode.COORDINATOR_NOT_AVAILABLE in answered:
            raise error_of(ErrorCode.COORDINATOR_NOT_AVAILABLE, self._cluster.alias, "SyncGroup", self.group)
        return None

    async def beat(self) -> Heartbeat:
        """Send a heartbeat."""
        answer = await self._ask(self._heartbeat(), "Heartbeat", within_s=self._session_ms / 1000 * _BEAT_SHARE)
        if not isinstance(answer, BrokerAnsweredError):
            return Heartbeat.OK
        if answer.code == ErrorCode.REBALANCE_IN_PROGRESS:
            return Heartbeat.REBALANCE
        if answer.code in _THROWN_OUT or answer.code == _FENCED:
            self._forget()
        if answer.code not in _THROWN_OUT:
            raise answer
        return Heartbeat.LOST

    async def is_known(self, *, has_joined: bool) -> bool:
        """Whether the coordinator knows us still as it did before, and will; asked once.

        In a rebalance it does if we have asked to `join`, which it holds back; else it is about to forget us.
        """

        def error(response: Any) -> BrokerAnsweredError | None:
            code = response.error_code
            return error_of(code, self._cluster.alias, "Heartbeat", self.group) if code else None

        answer = await self._beside.ask(self._heartbeat(), "Heartbeat", error)
        if not isinstance(answer, BrokerAnsweredError):
            return True
        return has_joined and answer.code == ErrorCode.REBALANCE_IN_PROGRESS

    async def leave(self) -> None:
        """Leave the group, whether the coordinator knows us or not."""
        member_id = self._member_id
        self._forget()
        if member_id:
            await self.remove(member_id)

    async def remove(self, member_id: str) -> None:
        """Have a member leave that cannot do so itself, because its process has ended."""
        answer = await self._ask(LeaveGroupRequest(self.group, member_id), "LeaveGroup")
        if isinstance(answer, BrokerAnsweredError) and answer.code != ErrorCode.UNKNOWN_MEMBER_ID:
            raise answer

    def _forget(self) -> None:
        self._member_id, self._generation = "", -1

    def _join_request(self, metadata: bytes) -> JoinGroupRequest:
        return JoinGroupRequest(
            self.group,
            self._session_ms,
            self._session_ms,  # so long others wait for us to join again
            self._member_id,
            self._instance,
            self._protocol_type,
            [(self._protocol, metadata)],
        )

    def _heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(self.group, self._generation, self._member_id, self._instance)

    def _sync_request(self, shares: Mapping[str, bytes]) -> SyncGroupRequest:
        return SyncGroupRequest(self.group, self._generation, self._member_id, self._instance, list(shares.items()))

    # Its coordinator.

    async def _ask(
        self,
        request: Any,
        name: str,
        judge: Callable[[Any], int] = lambda it: it.error_code,
        *,
        within_s: float | None = None,
    ) -> Any:
        """Ask the coordinator until it answers what it will answer; return that, or the error."""

        def error(response: Any) -> BrokerAnsweredError | None:
            code = judge(response)
            if code == ErrorCode.MEMBER_ID_REQUIRED and isinstance(request, JoinGroupRequest):
                self._member_id = response.member_id
            return error_of(code, self._cluster.alias, name, self.group) if code else None

        patience = Patience(self._cluster.clock, _PATIENCE_S)
        while True:
            asked_at = self._cluster.clock.monotonic()
            answer = await self._coordinator.ask(request, name, error, within_s=within_s)
            if not isinstance(answer, BrokerAnsweredError) or answer.code in _AGAIN:
                self.asked_at = asked_at
                return answer
            if patience.is_over_for(answer.code):
                return answer
            if within_s is not None:
                within_s *= 2  # a broker that is only slow to be connected to would never be reached
            await patience.pause()


def _member(row: Sequence[Any]) -> GroupMember:
    name, instance, _, host, metadata, *_ = row
    return GroupMember(name, host, metadata or b"", instance or "")
