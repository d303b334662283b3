"""What brokers answer about groups and their offsets, asked of a real one and of the simulated one."""

from __future__ import annotations

from typing import Any

from aiokafka.protocol.admin import DeleteTopicsRequest_v1, DescribeGroupsRequest_v2, ListGroupsRequest_v2
from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.commit import OffsetCommitRequest_v2, OffsetCommitRequest_v3, OffsetFetchRequest_v3
from aiokafka.protocol.coordination import FindCoordinatorRequest_v1
from aiokafka.protocol.group import JoinGroupRequest_v5, LeaveGroupRequest_v1, SyncGroupRequest_v3
from aiokafka.protocol.types import Array, Int32, String

from mm2py.wire.groups.requests import (
    ConsumerGroupDescribeRequest_v0,
    DescribeGroupsRequest_v3_fixed,
    DescribeGroupsRequest_v4,
    FindCoordinatorRequest_v4,
    HeartbeatRequest_v3,
    ListGroupsRequest_v5,
    OffsetCommitRequest_v10,
    OffsetFetchRequest_v8,
)
from mm2py.wire.requests import MetadataRequest_v11, answer, flexible
from tests.support.contracts import Side, contract
from tests.support.eventually import eventually


def join(
    it: Side, member: str = "", *, instance: str | None = None, kind: str = "consumer", metadata: bytes = b"m",
    session_ms: int = 10_000, protocols: tuple[str, ...] = ("range",),
) -> JoinGroupRequest_v5:  # fmt: skip
    named = [(name, metadata) for name in protocols]
    return JoinGroupRequest_v5(it.prefix, session_ms, 10_000, member, instance, kind, named)


def sync(
    it: Side, generation: int, member: str, shares: dict[str, bytes] | None = None, *, instance: str | None = None
) -> SyncGroupRequest_v3:
    return SyncGroupRequest_v3(it.prefix, generation, member, instance, list((shares or {}).items()))


def beat(it: Side, generation: int, member: str, instance: str | None = None) -> HeartbeatRequest_v3:
    return HeartbeatRequest_v3(it.prefix, generation, member, instance)


def commit(it: Side, *rows: tuple[str, int, int], generation: int = -1, member: str = "") -> OffsetCommitRequest_v3:
    topics = [(topic, [(number, offset, "text")]) for topic, number, offset in rows]
    return OffsetCommitRequest_v3(it.prefix, generation, member, -1, topics)


async def found(it: Side) -> None:
    """Wait until the broker coordinates the group."""
    await it.settled(lambda: FindCoordinatorRequest_v4(0, [it.prefix], {}))
    await it.settled(lambda: DescribeGroupsRequest_v4([it.prefix], False))


def _own(it: Side) -> Any:
    return lambda answer: [row[1:4] for row in answer.groups if row[0] == it.prefix]


async def shown(it: Side) -> None:
    """Note what is told of the group."""
    await it.ask(DescribeGroupsRequest_v4([it.prefix], False))
    await it.ask(ListGroupsRequest_v5([], [], {}), notes=_own(it))
    await it.ask(ConsumerGroupDescribeRequest_v0([it.prefix], False, {}))
    await it.ask(OffsetFetchRequest_v8([(it.prefix, None, {})], False, {}))


async def member(it: Side, by: int = 0, **more: Any) -> tuple[int, str]:
    """Have a client join a group that is empty; return generation and member id."""
    asked = await it.ask(join(it, **more), by=by)
    answer = await it.ask(join(it, asked.member_id, **more), by=by)
    await it.ask(sync(it, answer.generation_id, answer.member_id, {answer.member_id: b"share"}), by=by)
    return answer.generation_id, answer.member_id


def commit_by_ids(
    it: Side, *rows: tuple[str, int, int], generation: int = -1, member: str = "", text: str = "text"
) -> OffsetCommitRequest_v10:
    topics = [(topic_id, [(number, offset, -1, text, {})], {}) for topic_id, number, offset in rows]
    return OffsetCommitRequest_v10(it.prefix, generation, member, None, topics, {})


@contract
async def test_offsets_by_topic_ids(it: Side) -> None:
    """An offset for a topic that was deleted is refused, though another one has its name by now."""
    name = it.prefix
    former = await it.known(name, 2)
    await found(it)
    await it.ask(commit_by_ids(it, (former, 0, 5), generation=3, member="m"))
    await it.ask(commit_by_ids(it, (former, 0, 5)))
    await it.ask(commit_by_ids(it, (former, 9, 5)))
    await it.ask(commit_by_ids(it, (former, 1, 5), text="x" * 5_000))
    await it.ask(commit_by_ids(it, (former, 1, 5), generation=3, member="m"))
    await shown(it)
    await it.ask(DeleteTopicsRequest_v1([name], 30_000))
    gone = MetadataRequest_v11([(None, name, {})], False, False, {})
    await it.read(gone, notes=lambda answer: answer.topics[0][0])
    present = await it.known(name, 2)
    await it.ask(commit_by_ids(it, (former, 0, 7)))
    await it.ask(commit_by_ids(it, (present, 1, 3)))
    await shown(it)


@contract
async def test_offsets_of_a_group_without_members(it: Side) -> None:
    """The first commit makes it; each partition is for itself."""
    name = it.prefix
    await it.known(name, 2)
    await found(it)
    await shown(it)
    await it.ask(OffsetFetchRequest_v8([(name, [(name, [0, 1], {}), (f"{name}-gone", [0], {})], {})], False, {}))
    await it.ask(commit(it, (name, 0, 5)))
    await shown(it)
    await it.ask(commit(it, (name, 0, 3), (f"{name}-gone", 0, 7)))
    await it.ask(commit(it, (name, 9, 3)))
    await it.ask(commit(it, (name, 1, -5)))
    await it.ask(commit(it, (name, 0, 6), generation=3))
    await it.ask(commit(it, (name, 0, 6), generation=3, member="m"))
    await it.ask(commit(it, (name, 0, 6), member="m"))
    await it.ask(OffsetCommitRequest_v3(name, -1, "", -1, [(name, [(1, 5, "x" * 5_000), (0, 8, None)])]))
    await it.ask(OffsetCommitRequest_v2(name, -1, "", -1, [(name, [(1, 5, "")])]))
    await it.ask(OffsetCommitRequest_v3(name, -1, "", -1, []))
    await it.ask(OffsetCommitRequest_v3("", -1, "", -1, [(name, [(1, 5, "")])]))
    await shown(it)
    await it.ask(OffsetFetchRequest_v8([(name, [(name, [0, 1], {}), (f"{name}-gone", [0], {})], {})], False, {}))


@contract
async def test_what_a_group_has_committed_goes_with_its_topic(it: Side) -> None:
    """A topic of the same name that is created later is another one."""
    await it.known(it.prefix)
    await found(it)
    await it.ask(commit(it, (it.prefix, 0, 5)))
    await it.ask(DeleteTopicsRequest_v1([it.prefix], 30_000))
    await it.read(OffsetFetchRequest_v8([(it.prefix, None, {})], False, {}))
    await it.known(it.prefix)
    await it.ask(OffsetFetchRequest_v8([(it.prefix, None, {})], False, {}))


@contract
async def test_a_member_of_a_group(it: Side) -> None:
    """It is given an id first; whoever is not a member of the generation is told so."""
    name = it.prefix
    await it.known(name, 2)
    await found(it)
    await it.ask(join(it, "stranger"))
    await it.ask(join(it, session_ms=1))
    await it.ask(join(it, session_ms=10_000_000))
    await it.ask(join(it, protocols=()))
    await it.ask(join(it, kind=""))
    first = await it.ask(join(it, protocols=("range", "other")))
    await shown(it)
    joined = await it.ask(join(it, first.member_id, protocols=("range", "other")))
    generation, me = joined.generation_id, joined.member_id
    await shown(it)
    await it.ask(beat(it, generation, me))
    await it.ask(commit(it, (name, 0, 4), generation=generation, member=me))
    await it.ask(sync(it, generation + 1, me, {me: b"share"}))
    await it.ask(sync(it, generation, "stranger", {me: b"share"}))
    await it.ask(sync(it, generation, me, {me: b"share"}))
    await it.ask(sync(it, generation, me))
    await shown(it)
    await it.ask(beat(it, generation, me))
    await it.ask(beat(it, generation + 1, me))
    await it.ask(beat(it, generation, "stranger"))
    await it.ask(commit(it, (name, 0, 5), (name, 1, 6), generation=generation, member=me))
    await it.ask(commit(it, (name, 0, 7), generation=generation + 1, member=me))
    await it.ask(commit(it, (name, 0, 7), generation=generation, member="stranger"))
    await it.ask(commit(it, (name, 0, 7)))
    await it.ask(join(it, me, kind="connect"))
    await it.ask(join(it, kind="consumer", protocols=("unheard",)))
    await it.ask(LeaveGroupRequest_v1(name, "stranger"))
    await it.ask(LeaveGroupRequest_v1(name, me))
    await shown(it)
    await it.ask(beat(it, generation, me))
    await it.ask(commit(it, (name, 0, 8), generation=generation, member=me))
    await it.ask(commit(it, (name, 0, 9)))
    await it.ask(join(it, me))
    await shown(it)


@contract
async def test_two_members_of_a_group(it: Side) -> None:
    """The second has all join again; the leader is told of all, and the others wait for its assignment."""
    await found(it)
    generation, one = await member(it)
    asked = await it.ask(join(it), by=1)
    _, again = await it.together((1, join(it, asked.member_id)), (0, join(it, one)))
    two, generation = asked.member_id, again.generation_id
    await it.together((1, sync(it, generation, two)), (0, sync(it, generation, one, {one: b"1", two: b"2"})))
    await shown(it)
    await it.ask(join(it, two), by=1)
    await it.ask(beat(it, generation, two), by=1)
    await it.together((1, join(it, two, metadata=b"other")), (2, beat(it, generation, one)), (0, join(it, one)))
    await it.ask(join(it, one))
    await it.ask(join(it, two, metadata=b"other"), by=1)
    await it.ask(beat(it, generation + 1, one))
    await it.together((1, sync(it, generation + 1, two)), (0, sync(it, generation + 1, one, {one: b"1", two: b"2"})))
    await it.ask(LeaveGroupRequest_v1(it.prefix, one))
    await it.ask(beat(it, generation + 1, two), by=1)
    await shown(it)
    last = await it.ask(join(it, two, metadata=b"other"), by=1)
    await it.ask(sync(it, last.generation_id, two, {two: b"all"}), by=1)
    await shown(it)


@contract
async def test_a_static_member(it: Side) -> None:
    """It comes back as the same instance with another id, without a rebalance; its former self is fenced."""
    await found(it)
    first = await it.ask(join(it, instance="i"))
    generation, me = first.generation_id, first.member_id
    await it.ask(sync(it, generation, me, {me: b"share"}, instance="i"))
    await shown(it)
    second = await it.ask(join(it, instance="i"))
    await shown(it)
    await it.ask(beat(it, generation, me, "i"))
    await it.ask(beat(it, generation, me))
    await it.ask(sync(it, generation, me, instance="i"))
    await it.ask(join(it, me, instance="i"))
    await it.ask(join(it, "stranger", instance="other"))
    await it.ask(beat(it, second.generation_id, second.member_id, "i"))
    await it.ask(beat(it, second.generation_id, second.member_id, "other"))
    await it.ask(sync(it, second.generation_id, second.member_id, instance="i"))
    await it.ask(LeaveGroupRequest_v1(it.prefix, second.member_id))
    await shown(it)


@contract
async def test_a_member_that_falls_silent(it: Side) -> None:
    """Its session is over, and the group is empty; what was its is not committed any more."""
    name = it.prefix
    await it.known(name)
    await found(it)
    generation, me = await member(it, session_ms=6_000)
    await it.ask(commit(it, (name, 0, 1), generation=generation, member=me))
    await it.read(DescribeGroupsRequest_v4([name], False))
    await _until_empty(it)
    await shown(it)
    await it.ask(beat(it, generation, me))
    await it.ask(commit(it, (name, 0, 2), generation=generation, member=me))


async def _until_empty(it: Side) -> None:
    async def is_empty() -> bool:
        answer = await it.ask(DescribeGroupsRequest_v4([it.prefix], False), notes=False)
        return bool(answer.groups[0][2] == "Empty")

    await eventually(is_empty, within_s=60, what="the member is gone")


class ConsumerGroupHeartbeatRequest_v1(RequestStruct):  # type: ignore[misc]  # noqa: N801
    """How a member of the consumer protocol joins and leaves (KIP-848). Of the answer only the beginning is read."""

    API_KEY = 68
    API_VERSION = 1
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = answer(68, 1, flexible(("throttle_time_ms", Int32)))
    SCHEMA = flexible(
        ("group", String()),
        ("member_id", String()),
        ("member_epoch", Int32),
        ("instance_id", String()),
        ("rack_id", String()),
        ("rebalance_timeout_ms", Int32),
        ("subscribed_topic_names", Array(String())),
        ("subscribed_topic_regex", String()),
        ("server_assignor", String()),
        ("topic_partitions", Array(String())),
    )


async def consume(it: Side, *, epoch: int) -> None:
    """Have a member of the consumer protocol join, or with epoch -1 leave: the model is told, as it speaks none."""
    if it.model is not None:
        it.model.coordinator.use(it.prefix, members=int(epoch == 0), kind="consumer")
        return
    said = (it.prefix, "SGVyZSBJIGFtIG5vdCE", epoch, None, None, 10_000, [it.prefix], None, None, [], {})
    await it.ask(ConsumerGroupHeartbeatRequest_v1(*said), notes=False)


def _seen(answer: Any) -> Any:
    return [(code, group, state, len(members)) for code, _, group, state, _, _, _, members, *_ in answer.groups]


async def described(it: Side) -> None:
    """Note what is told of a group of the consumer protocol."""
    await it.read(ConsumerGroupDescribeRequest_v0([it.prefix], False, {}), notes=_seen)
    await it.ask(DescribeGroupsRequest_v4([it.prefix], False))
    await it.ask(ListGroupsRequest_v5([], [], {}), notes=_own(it))
    await it.ask(OffsetFetchRequest_v8([(it.prefix, None, {})], False, {}))


@contract
async def test_a_group_of_the_consumer_protocol(it: Side) -> None:
    """In the classic way it is described as dead; who is not its member commits only once it has no members."""
    await it.known(it.prefix)
    await found(it)
    await consume(it, epoch=0)
    await described(it)
    await it.ask(commit(it, (it.prefix, 0, 5)))
    await described(it)
    await consume(it, epoch=-1)
    await described(it)
    await it.ask(commit(it, (it.prefix, 0, 6)))
    await described(it)


@contract
async def test_what_clients_from_before_kafka_3_0_ask_about_a_group(it: Side) -> None:
    """They ask about one group at a time, and learn less."""
    name = it.prefix
    await it.known(name)
    await found(it)
    await it.ask(FindCoordinatorRequest_v1(name, 0))
    await it.ask(OffsetFetchRequest_v3(name, None))
    await it.ask(commit(it, (name, 0, 5)))
    for ask in (DescribeGroupsRequest_v2([name]), DescribeGroupsRequest_v3_fixed([name], False)):
        await it.ask(ask)
    await member(it)
    for ask in (DescribeGroupsRequest_v2([name, f"{name}-gone"]), DescribeGroupsRequest_v3_fixed([name], False)):
        await it.ask(ask)
    await it.ask(ListGroupsRequest_v2(), notes=lambda answer: [row for row in answer.groups if row[0] == name])
    await it.ask(OffsetFetchRequest_v3(name, None))
    await it.ask(OffsetFetchRequest_v3(name, [(name, [0, 7])]))
