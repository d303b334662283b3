"""A member of a group and its coordinator: what makes it join again, and what ends its place."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.group import LeaveGroupRequest, SyncGroupRequest

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.membership import Heartbeat, Membership
from mm2py.wire.groups.requests import HeartbeatRequest, JoinGroupRequest
from mm2py.wire.security.access import NotAuthorizedError
from tests.support.clocks import now
from tests.support.coordinators import Coordinators


LOST = BrokerConnectionError("B", "1", "gone")
OK = 0


@attrs.define
class GroupCoordinators(Coordinators):
    """Coordinators of a group, which is led by one of its two members."""

    leader: str = "us"
    shares: dict[str, bytes] = attrs.field(factory=dict)
    requests: list[Any] = attrs.field(factory=list)

    async def send_to(self, node: int, request: Any, _purpose: str) -> Any:
        self.asked.append((node, type(request).__name__.removesuffix("Request")))
        self.requests.append(request)
        code = self.answers.pop(0) if self.answers else OK
        if isinstance(code, Exception):
            raise code
        assert isinstance(request, JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest)
        if isinstance(request, JoinGroupRequest):
            members = [("us", None, b"our metadata"), ("them", None, b"")] if self.leader == "us" else []
            return SimpleNamespace(
                error_code=code, member_id="us", leader_id=self.leader, generation_id=1, members=members
            )
        if isinstance(request, SyncGroupRequest):
            self.shares = dict(request._group_assignment)
        return SimpleNamespace(error_code=code, member_assignment=b"our share")


async def _assign(generation: int, joined: Mapping[str, bytes]) -> Mapping[str, bytes]:
    return {member: b"%d: %s" % (generation, said) for member, said in joined.items()}


def _member(*answers: Any) -> tuple[Membership, GroupCoordinators]:
    coordinators = GroupCoordinators(list(answers))
    return Membership(cast("Cluster", coordinators), "A-mm2", ("connect", "mm2py-1"), 10_000), coordinators


async def _joined(*answers: Any) -> tuple[Membership, GroupCoordinators]:
    """Join, and have the coordinator say these things from then on."""
    member, coordinators = _member()
    assert await member.join(b"", _assign)
    coordinators.asked.clear()
    coordinators.answers = list(answers)
    return member, coordinators


async def test_a_member_gets_its_name_first_and_joins_by_it() -> None:
    """Since KIP-394 a coordinator wants a member to join by the id that it was given."""
    member, coordinators = _member(ErrorCode.MEMBER_ID_REQUIRED)

    assert await member.join(b"", _assign)
    assert member.is_in
    assert coordinators.names == ["JoinGroup", "JoinGroup", "SyncGroup"]


async def test_a_name_that_is_no_answer_to_the_question_is_an_error() -> None:
    """Only a JoinGroup may be answered with MEMBER_ID_REQUIRED: in answer to a heartbeat it is an error."""
    member, _ = await _joined(*[ErrorCode.MEMBER_ID_REQUIRED] * 100)

    with pytest.raises(BrokerAnsweredError, match="MEMBER_ID_REQUIRED"):
        await member.beat()


async def test_the_leader_says_who_gets_what() -> None:
    """It alone learns what the members joined with."""
    member, coordinators = _member()

    assert await member.join(b"our metadata", _assign) == b"our share"
    assert coordinators.shares == {"us": b"1: our metadata", "them": b"1: "}


async def test_who_is_not_the_leader_is_told_what_it_gets() -> None:
    member, coordinators = _member()
    coordinators.leader = "them"

    assert await member.join(b"", _assign) == b"our share"
    assert member.is_in
    assert coordinators.shares == {}


async def test_a_round_that_another_overtakes_is_gone_through_again() -> None:
    """Another member joined meanwhile, so all are asked to join again; the leader stays the leader."""
    member, coordinators = _member(OK, ErrorCode.REBALANCE_IN_PROGRESS)

    assert await member.join(b"", _assign)
    assert coordinators.names == ["JoinGroup", "SyncGroup"] * 2


async def test_a_group_that_cannot_be_stored_is_an_error() -> None:
    """
    __consumer_offsets has too few replicas: the coordinator says so to a SyncGroup, and has all join again.

    Else it would be joined for ever, as if other members came and went, and nothing would tell why the flow waits.
    """
    codes = [OK, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REBALANCE_IN_PROGRESS]
    member, coordinators = _member(*codes * 20)

    with pytest.raises(BrokerAnsweredError, match="SyncGroup with COORDINATOR_NOT_AVAILABLE"):
        await member.join(b"", _assign)
    coordinators.answers = codes
    assert await member.join(b"", _assign)


@pytest.mark.parametrize(
    ("answer", "is_known"),
    [
        (OK, True),
        (ErrorCode.REBALANCE_IN_PROGRESS, True),
        (ErrorCode.UNKNOWN_MEMBER_ID, False),
        (ErrorCode.ILLEGAL_GENERATION, False),
        (ErrorCode.NOT_COORDINATOR, False),
        (LOST, False),
    ],
)
async def test_a_member_asks_beside_a_join_whether_it_is_known(answer: Any, is_known: bool) -> None:
    """It asks once, and whatever is answered, its place is what the join makes of it."""
    member, coordinators = await _joined(answer)

    assert await member.is_known() == is_known
    assert member.is_in
    assert coordinators.names == ["Heartbeat"]


@pytest.mark.parametrize(
    ("answer", "found", "is_in", "asked"),
    [
        # The member decides itself when it joins again, and with what.
        (ErrorCode.REBALANCE_IN_PROGRESS, Heartbeat.REBALANCE, True, [1]),
        # A member that was away for a session looks first who is there now.
        (ErrorCode.UNKNOWN_MEMBER_ID, Heartbeat.LOST, False, [1]),
        (ErrorCode.ILLEGAL_GENERATION, Heartbeat.LOST, False, [1]),
        # The place moves with the group.
        *(
            (it, Heartbeat.OK, True, [1, 2])
            for it in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, LOST)
        ),
    ],
)
async def test_what_a_heartbeat_meets(answer: Any, found: Heartbeat, *, is_in: bool, asked: list[int]) -> None:
    """It says so, and neither joins again nor gives up the place unless that is lost."""
    member, coordinators = await _joined(answer)

    assert await member.beat() is found
    assert member.is_in is is_in
    assert coordinators.asked == [(node, "Heartbeat") for node in asked]


async def test_a_frozen_coordinator_is_looked_up_again_within_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a heartbeat and answers nothing; its groups are another broker's long before the request would fail."""
    member, coordinators = await _joined()
    send, frozen = GroupCoordinators.send_to, coordinators.lookups

    async def send_unless_frozen(its: GroupCoordinators, node: int, request: Any, purpose: str) -> Any:
        await asyncio.sleep(30 if node == frozen else 0)
        return await send(its, node, request, purpose)

    monkeypatch.setattr(GroupCoordinators, "send_to", send_unless_frozen)
    started = now()
    beat = await member.beat()

    assert beat is Heartbeat.OK
    assert now() - started < 10 * 2 / 3
    assert coordinators.doubted == [frozen]


async def test_a_coordinator_that_takes_long_to_reach_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is opened in several seconds where the first of two name servers is silent, each time."""
    member, coordinators = await _joined()
    send = GroupCoordinators.send_to

    async def send_slowly(its: GroupCoordinators, node: int, request: Any, purpose: str) -> Any:
        await asyncio.sleep(5)
        return await send(its, node, request, purpose)

    monkeypatch.setattr(GroupCoordinators, "send_to", send_slowly)
    assert await member.beat() is Heartbeat.OK
    assert coordinators.names == ["Heartbeat"]


async def test_a_refusal_names_what_lacks() -> None:
    """The right to the group is asked for in an operator's words."""
    member, _ = _member(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(NotAuthorizedError) as caught:
        await member.join(b"", _assign)

    assert caught.value.grant == "READ on group A-mm2"


async def test_what_a_member_that_is_gone_leaves_behind_may_be_gone_already() -> None:
    """Two nodes remove it at once; one of them comes second."""
    member, coordinators = _member(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    await member.remove("theirs")
    with pytest.raises(BrokerAnsweredError):
        await member.remove("theirs")

    assert coordinators.names == ["LeaveGroup"] * 2


async def test_a_member_whose_name_another_has_taken_does_not_take_it_back() -> None:
    """Neither after a heartbeat nor while it joins: the two would throw each other out without end."""
    code = ErrorCode.FENCED_INSTANCE_ID
    joined, coordinators = await _joined(code)
    joining, others = _member(OK, code)
    for attempt in (joined.beat, lambda: joining.join(b"", _assign)):
        with pytest.raises(BrokerAnsweredError, match="FENCED_INSTANCE_ID"):
            await attempt()

    assert (joined.place, joining.place) == (None, None)
    assert coordinators.names == ["Heartbeat"]
    assert others.names == ["JoinGroup", "SyncGroup"]


async def test_a_static_member_says_its_name_with_each_request() -> None:
    """An old broker, which knows no such members, refuses it: it must not be taken for one that leaves."""
    coordinators = GroupCoordinators()
    member = Membership(cast("Cluster", coordinators), "A-mm2", ("connect", "mm2py-1"), 10_000, "node-1")
    await member.join(b"", _assign)
    await member.beat()
    join, sync, beat = (request.prepare({11: (0, 9), 12: (0, 4), 14: (0, 5)}) for request in coordinators.requests)

    assert (join.API_VERSION, sync.API_VERSION, beat.API_VERSION) == (5, 3, 3)
    assert {it.group_instance_id for it in (join, sync, beat)} == {"node-1"}
    with pytest.raises(IncompatibleBrokerVersion, match=r"Kafka 2\.3"):
        coordinators.requests[0].prepare({11: (0, 4)})
