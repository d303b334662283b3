"""
One member of a group, by Kafka's classic group protocol: what a consumer or a Connect worker does to be in one.

The group determines who is first. The coordinator makes the first member the leader, and keeps it while it answers: a
second one that joins makes all join again, and the leader that does stays the leader. So a member that is not the
leader leaves at once, and the leader only notices one more rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import attrs
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

from mm2py.errors import BrokerAnsweredError
from mm2py.model.group import GroupMember, GroupMembers
from mm2py.wire.answers import by_asked
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.groups.coordinator import Coordinator
from mm2py.wire.groups.requests import GROUP_KEY, DescribeGroupsRequest
from mm2py.wire.patience import Patience


_PURPOSE: Final = "membership"
#: How long a moving or loading coordinator is awaited; callers retry soon.
_PATIENCE_S: Final = 15.0
#: A round of joining may be overtaken by another; more often than this in a row is an error.
_ROUNDS: Final = 10
#: The coordinator does not know the member, or not in this generation.
_THROWN_OUT: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}
)
_AGAIN: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED, *_THROWN_OUT})


@attrs.frozen
class MemberIdentity:
    """What a coordinator knows a member by."""

    group: str
    member_id: str
    generation: int


class Membership:
    """
    Our place in *group* at a cluster, or none. It opens nothing of its own, so there is nothing to close.

    A member must call `beat` several times in each session.
    """

    def __init__(self, cluster: Cluster, group: str, protocol: tuple[str, str], session_ms: int) -> None:
        """Make one that joins by *protocol*, its type and its name."""
        self.group = group
        self._cluster = cluster
        self._protocol_type, self._protocol = protocol
        self._session_ms = session_ms
        self._coordinator = Coordinator(cluster, group, GROUP_KEY, _PURPOSE)
        self._member_id = ""
        self._generation = -1

    @property
    def is_in(self) -> bool:
        """Whether we are in the group, as far as we know."""
        return self._generation >= 0

    @property
    def place(self) -> MemberIdentity | None:
        """Return our place, so that another `Membership` may keep it; None where we have none."""
        return MemberIdentity(self.group, self._member_id, self._generation) if self.is_in else None

    def keep(self, place: MemberIdentity) -> None:
        """Take over what another `Membership` had, as far as the coordinator knows it still: `beat` finds out."""
        if place.group == self.group:
            self._member_id, self._generation = place.member_id, place.generation

    async def look(self) -> GroupMembers:
        """Describe the group."""
        response = await self._ask(DescribeGroupsRequest([self.group]), "DescribeGroups", lambda it: self._row(it)[0])
        if not isinstance(response, BrokerAnsweredError):
            _, _, state, protocol_type, protocol, members, *_ = self._row(response)
            found = tuple(GroupMember(name, host, metadata or b"") for name, _, host, metadata, *_ in members)
            return GroupMembers(state, protocol_type, protocol, found)
        if response.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return GroupMembers()
        raise response

    def _row(self, described: Any) -> Sequence[Any]:
        silent = (ErrorCode.UNKNOWN_SERVER_ERROR,)
        rows: Iterator[tuple[str, Sequence[Any]]] = ((row[1], row) for row in described.groups)
        return by_asked([self.group], rows, silent)[self.group]

    async def join(self, metadata: bytes) -> bool:
        """Join with *metadata*; False if another member came first, which is not disturbed."""
        for _ in range(_ROUNDS):
            answer = await self._ask(self._join_request(metadata), "JoinGroup")
            if not isinstance(answer, BrokerAnsweredError):
                self._member_id = answer.member_id
                if answer.leader_id != answer.member_id:
                    await self.leave()
                    return False
                answer = await self._ask(self._sync_request(answer.generation_id), "SyncGroup")
                if not isinstance(answer, BrokerAnsweredError):
                    return True
            self._generation = -1
            if answer.code in _THROWN_OUT:
                self._member_id = ""
            if answer.code not in _AGAIN:
                raise answer
        return False

    async def beat(self, metadata: bytes) -> bool:
        """Send a heartbeat; False if the membership is lost. Rejoins with *metadata* when others come."""
        request = HeartbeatRequest(self.group, self._generation, self._member_id)
        answer = await self._ask(request, "Heartbeat")
        if not isinstance(answer, BrokerAnsweredError):
            return True
        if answer.code == ErrorCode.REBALANCE_IN_PROGRESS:
            return await self.join(metadata)
        if answer.code not in _THROWN_OUT:
            raise answer
        self._generation, self._member_id = -1, ""
        return False

    async def leave(self) -> None:
        """Leave the group, whether the coordinator knows us or not."""
        member_id, self._member_id, self._generation = self._member_id, "", -1
        if member_id:
            await self.remove(member_id)

    async def remove(self, member_id: str) -> None:
        """Have a member leave that cannot do so itself, because its process has ended."""
        answer = await self._ask(LeaveGroupRequest(self.group, member_id), "LeaveGroup")
        if isinstance(answer, BrokerAnsweredError) and answer.code != ErrorCode.UNKNOWN_MEMBER_ID:
            raise answer

    def _join_request(self, metadata: bytes) -> JoinGroupRequest:
        return JoinGroupRequest(
            self.group,
            self._session_ms,
            self._session_ms,  # so long others wait for us to join again
            self._member_id,
            None,
            self._protocol_type,
            [(self._protocol, metadata)],
        )

    def _sync_request(self, generation: int) -> SyncGroupRequest:
        self._generation = generation
        # It is not used, but a coordinator warns of an empty one.
        assignment = [(self._member_id, self._protocol.encode())]
        return SyncGroupRequest(self.group, generation, self._member_id, None, assignment)

    # Its coordinator.

    async def _ask(self, request: Any, name: str, judge: Callable[[Any], int] = lambda it: it.error_code) -> Any:
        """Ask the coordinator until it answers what it will answer; return that, or the error."""

        def error(response: Any) -> BrokerAnsweredError | None:
            code = judge(response)
            if code == ErrorCode.MEMBER_ID_REQUIRED and isinstance(request, JoinGroupRequest):
                self._member_id = response.member_id
            return error_of(code, self._cluster.alias, name, self.group) if code else None

        patience = Patience(self._cluster.clock, _PATIENCE_S)
        while True:
            answer = await self._coordinator.ask(request, name, error)
            if not isinstance(answer, BrokerAnsweredError) or answer.code in _AGAIN:
                return answer
            if patience.is_over_for(answer.code):
                return answer
            await patience.pause()
