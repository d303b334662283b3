"""A member of a group and its coordinator: what makes it join again, and what ends its place."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import attrs
import pytest

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.membership import Heartbeat, Membership
from mm2py.wire.security.access import NotAuthorizedError
from tests.support.clocks import now
from tests.support.fake_brokers import FIND_COORDINATOR, HEARTBEAT, JOIN, SYNC, FakeBrokers


GROUP = "A-mm2"
LOST = BrokerConnectionError("B", "1", "gone")
OK = 0


async def _assign(generation: int, joined: Mapping[str, bytes]) -> Mapping[str, bytes]:
    return {member: b"%d: %s" % (generation, said) for member, said in joined.items()}


@attrs.define
class Rig:
    """Members of a group, and its coordinator."""

    brokers: FakeBrokers
    cluster: Cluster

    def member(self, instance: str = "") -> Membership:
        return Membership(self.cluster, GROUP, ("connect", "mm2py-1"), 10_000, instance)

    async def joined(self, *answers: int | Exception) -> Membership:
        """Have a member join, and the coordinator say these things from then on."""
        member = self.member()
        assert await member.join(b"", _assign)
        self.answer(*answers)
        return member

    def answer(self, *answers: int | Exception) -> None:
        """Have the coordinator say these things, and forget what it was asked."""
        self.brokers.requests.clear()
        self.brokers.answers = list(answers)


@pytest.fixture
def rig(brokers: FakeBrokers, cluster: Cluster) -> Rig:
    return Rig(brokers, cluster)


async def test_a_member_gets_its_name_first_and_joins_by_it(rig: Rig) -> None:
    """Since KIP-394 a coordinator wants a member to join by the id that it was given."""
    member = rig.member()
    await member.join(b"", _assign)

    assert member.is_in
    assert rig.brokers.asked == ["JoinGroup", "JoinGroup", "SyncGroup"]


async def test_a_name_that_is_no_answer_to_the_question_is_an_error(rig: Rig) -> None:
    """Only a JoinGroup may be answered with MEMBER_ID_REQUIRED: in answer to a heartbeat it is an error."""
    member = await rig.joined(*[ErrorCode.MEMBER_ID_REQUIRED] * 100)

    with pytest.raises(BrokerAnsweredError, match="MEMBER_ID_REQUIRED"):
        await member.beat()


async def test_the_leader_says_who_gets_what(rig: Rig) -> None:
    """It alone learns what the members joined with; the others are told what they get."""
    leader, other = await rig.joined(), rig.member()
    asked = list[int]()

    async def assign(generation: int, joined: Mapping[str, bytes]) -> Mapping[str, bytes]:
        asked.append(len(joined))
        return await _assign(generation, joined)

    joining = asyncio.create_task(other.join(b"theirs", assign))
    await asyncio.sleep(1)
    met = await leader.beat()
    shares = [await leader.join(b"ours", assign), await joining]

    assert met is Heartbeat.REBALANCE
    assert (shares, asked) == ([b"2: ours", b"2: theirs"], [2])
    assert leader.is_in
    assert other.is_in


async def test_a_round_that_another_overtakes_is_gone_through_again(rig: Rig) -> None:
    """Another member joined meanwhile, so all are asked to join again; the leader stays the leader."""
    member = await rig.joined(OK, ErrorCode.REBALANCE_IN_PROGRESS)

    assert await member.join(b"", _assign)
    assert rig.brokers.asked == ["JoinGroup", "SyncGroup"] * 2


async def test_a_group_that_cannot_be_stored_is_an_error(rig: Rig) -> None:
    """
    __consumer_offsets has too few replicas: the coordinator says so to a SyncGroup, and has all join again.

    Else it would be joined for ever, as if other members came and went, and nothing would tell why the flow waits.
    """
    codes = [OK, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REBALANCE_IN_PROGRESS]
    member = await rig.joined(*codes * 20)

    with pytest.raises(BrokerAnsweredError, match="SyncGroup with COORDINATOR_NOT_AVAILABLE"):
        await member.join(b"", _assign)
    rig.answer(*codes)
    assert await member.join(b"", _assign)


@pytest.mark.parametrize(
    ("answer", "has_joined", "is_known"),
    [
        (OK, True, True),
        (OK, False, True),
        (ErrorCode.REBALANCE_IN_PROGRESS, True, True),
        (ErrorCode.REBALANCE_IN_PROGRESS, False, False),
        (ErrorCode.UNKNOWN_MEMBER_ID, True, False),
        (ErrorCode.ILLEGAL_GENERATION, True, False),
        (ErrorCode.NOT_COORDINATOR, True, False),
        (LOST, True, False),
    ],
)
async def test_a_member_asks_beside_a_join_whether_it_is_known(
    rig: Rig, answer: int | Exception, has_joined: bool, is_known: bool
) -> None:
    """It asks once, and whatever is answered, its place is what the join makes of it."""
    member = await rig.joined(answer)

    assert await member.is_known(has_joined=has_joined) == is_known
    assert member.is_in
    assert rig.brokers.asked == ["Heartbeat"]


@pytest.mark.parametrize(
    ("answer", "found", "is_in", "lookups"),
    [
        # The member decides itself when it joins again, and with what.
        (ErrorCode.REBALANCE_IN_PROGRESS, Heartbeat.REBALANCE, True, 0),
        # A member that was away for a session looks first who is there now.
        (ErrorCode.UNKNOWN_MEMBER_ID, Heartbeat.LOST, False, 0),
        (ErrorCode.ILLEGAL_GENERATION, Heartbeat.LOST, False, 0),
        # The place moves with the group.
        *((it, Heartbeat.OK, True, 1) for it in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, LOST)),
    ],
)
async def test_what_a_heartbeat_meets(
    rig: Rig, answer: int | Exception, found: Heartbeat, *, is_in: bool, lookups: int
) -> None:
    """It says so, and neither joins again nor gives up the place unless that is lost."""
    member = await rig.joined(answer)

    assert await member.beat() is found
    assert member.is_in is is_in
    assert rig.brokers.asked == ["Heartbeat"] * (1 + lookups)
    assert len(rig.brokers.requests_of(FIND_COORDINATOR)) == lookups


async def test_a_frozen_coordinator_is_looked_up_again_within_the_session(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a heartbeat and answers nothing; its groups are another broker's long before the request would fail."""
    doubted = list[int]()
    monkeypatch.setattr(Cluster, "doubt", lambda _, node: doubted.append(node))
    rig.brokers.move(GROUP, 1)
    member = await rig.joined()
    rig.brokers.latency_of[1] = 30.0
    rig.brokers.move(GROUP, 2)
    started = now()
    beat = await member.beat()

    assert beat is Heartbeat.OK
    assert now() - started < 10 * 2 / 3
    assert doubted == [1]


async def test_a_coordinator_that_takes_long_to_reach_is_reached(rig: Rig) -> None:
    """A connection is opened in several seconds where the first of two name servers is silent, each time."""
    rig.brokers.move(GROUP, 1)
    member = await rig.joined()
    rig.brokers.latency_of[1] = 5.0

    assert await member.beat() is Heartbeat.OK


async def test_a_refusal_names_what_lacks(rig: Rig) -> None:
    """The right to the group is asked for in an operator's words."""
    rig.answer(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(NotAuthorizedError) as caught:
        await rig.member().join(b"", _assign)

    assert caught.value.grant == "READ on group A-mm2"


async def test_what_a_member_that_is_gone_leaves_behind_may_be_gone_already(rig: Rig) -> None:
    """Two nodes remove it at once; one of them comes second."""
    member = await rig.joined(OK, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    await member.remove("theirs")
    with pytest.raises(BrokerAnsweredError):
        await member.remove("theirs")

    assert rig.brokers.asked == ["LeaveGroup"] * 2


async def test_a_member_whose_name_another_has_taken_does_not_take_it_back(rig: Rig) -> None:
    """Neither after a heartbeat nor while it joins: the two would throw each other out without end."""
    for step in ("it works", "it joins"):
        first, second = rig.member("node-1"), rig.member("node-1")
        await first.join(b"", _assign)
        if step == "it works":
            await second.join(b"", _assign)
        rig.answer(*([OK, ErrorCode.FENCED_INSTANCE_ID] if step == "it joins" else []))
        with pytest.raises(BrokerAnsweredError, match="FENCED_INSTANCE_ID"):
            await (first.beat() if step == "it works" else first.join(b"", _assign))

        assert first.place is None
        assert rig.brokers.asked == (["Heartbeat"] if step == "it works" else ["JoinGroup", "SyncGroup"])


async def test_a_static_member_says_its_name_with_each_request(rig: Rig) -> None:
    """An old broker, which knows no such members, refuses it: it must not be taken for one that leaves."""
    member = rig.member("node-1")
    await member.join(b"", _assign)
    await member.beat()
    ((_, join),), ((_, sync),), ((_, beat),) = (rig.brokers.requests_of(key) for key in (JOIN, SYNC, HEARTBEAT))
    rig.brokers.versions = rig.brokers.versions | {JOIN: (0, 4)}
    rig.brokers.break_connections()

    assert (join.API_VERSION, sync.API_VERSION, beat.API_VERSION) == (5, 3, 3)
    assert {it.group_instance_id for it in (join, sync, beat)} == {"node-1"}
    with pytest.raises(BrokerAnsweredError, match=r"Kafka 2\.3"):
        await rig.member("node-2").join(b"", _assign)
