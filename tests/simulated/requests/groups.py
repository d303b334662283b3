"""Groups: members by the classic protocol, what is told of them, and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.protocol.commit import OffsetCommitRequest_v3
from aiokafka.protocol.group import JoinGroupRequest_v5, LeaveGroupRequest_v1, SyncGroupRequest_v3

from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.requests import (
    ConsumerGroupDescribeRequest_v0,
    DescribeGroupsRequest_v4,
    HeartbeatRequest_v3,
    ListGroupsRequest_v5,
    OffsetFetchRequest_v8,
)
from tests.simulated.coordination import Caller, Group, GroupState, Joining
from tests.simulated.requests.kind import Kind


if TYPE_CHECKING:
    from tests.simulated.broker import Broker, Line


_UNKNOWN = -(2**31)


def _group(broker: Broker, name: str) -> tuple[int, Group]:
    cluster = broker.cluster
    return cluster.away(broker, name), cluster.coordinator.group(name)


def _join(broker: Broker, line: Line, it: Any, reply: Any) -> None:
    name, metadata = it.group_protocols[0]

    def say(answer: Any) -> None:
        if isinstance(answer, dict):
            found = answer["generation"], name, answer["leader"], answer["member"], answer["members"]
            reply(it.RESPONSE_TYPE(0, 0, *found))
        else:
            code, member = answer if isinstance(answer, tuple) else (answer, it.member_id)
            reply(it.RESPONSE_TYPE(0, int(code), -1, "", "", member, []))

    code, found = _group(broker, it.group)
    if code:
        say(code)
        return
    joining = Joining(
        it.member_id,
        it.group_instance_id,
        it.protocol_type,
        name,
        bytes(metadata),
        it.session_timeout / 1000,
        it.rebalance_timeout / 1000,
        line.client.machine,
    )
    broker.cluster.coordinator.join(found, joining, say)


def _sync(broker: Broker, _line: Line, it: Any, reply: Any) -> None:
    def say(answer: Any) -> None:
        is_share = isinstance(answer, bytes)
        reply(it.RESPONSE_TYPE(0, 0 if is_share else int(answer), answer if is_share else b""))

    code, found = _group(broker, it.group)
    if code:
        say(code)
        return
    shares = {member: bytes(share) for member, share in it.group_assignment}
    caller = Caller(it.generation_id, it.member_id, it.group_instance_id)
    broker.cluster.coordinator.sync(found, caller, shares, say)


def _heartbeat(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    code, found = _group(broker, it.group)
    caller = Caller(it.generation_id, it.member_id, it.group_instance_id)
    return it.RESPONSE_TYPE(0, int(code or broker.cluster.coordinator.heartbeat(found, caller)))


def _leave(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    code, found = _group(broker, it.group)
    return it.RESPONSE_TYPE(0, int(code or broker.cluster.coordinator.leave(found, it.member_id)))


def _describe_groups(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    rows = []
    for name in it.groups:
        code, found = cluster.away(broker, name), cluster.coordinator.groups.get(name)
        if found is None or code:
            rows.append((code, name, "" if code else "Dead", "", "", [], _UNKNOWN))
            continue
        members = [
            (m.member_id, m.instance, m.client, m.client, m.metadata, m.assignment) for m in found.members.values()
        ]
        is_stable = found.state is GroupState.STABLE
        protocol = found.protocol if is_stable else ""
        rows.append((0, name, found.state.value, found.protocol_type, protocol, members, _UNKNOWN))
    return it.RESPONSE_TYPE(0, rows)


def _describe_consumer_groups(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    code = int(ErrorCode.GROUP_ID_NOT_FOUND)
    return it.RESPONSE_TYPE(0, [(code, None, name, "Dead", 0, 0, "", [], _UNKNOWN, {}) for name in it.groups], {})


def _list_groups(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    rows = [
        (name, found.protocol_type, found.state.value, "classic", {})
        for name, found in cluster.coordinator.groups.items()
        if cluster.slots[cluster.slot(name)] == broker.node
    ]
    return it.RESPONSE_TYPE(0, 0, rows, {})


def _fetch_offsets(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    rows = []
    for name, *_ in it.groups:
        code, found = _group(broker, name)
        by_topic: dict[str, list[Any]] = {}
        for (topic, number), (offset, text) in () if code else found.offsets.items():
            by_topic.setdefault(topic, []).append((number, offset, -1, text, 0, {}))
        rows.append((name, [(topic, of, {}) for topic, of in by_topic.items()], code, {}))
    return it.RESPONSE_TYPE(0, rows, {})


def _commit(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    code, found = _group(broker, it.consumer_group)
    if not code and found.members and it.consumer_group_generation_id < 0:
        code = int(ErrorCode.UNKNOWN_MEMBER_ID)
    topics = []
    for topic, rows in it.topics:
        topics.append((topic, [(number, code) for number, *_ in rows]))
        if not code:
            found.offsets |= {(topic, number): (offset, text or "") for number, offset, text in rows}
    return it.RESPONSE_TYPE(0, topics)


KINDS = (
    Kind(_join, (JoinGroupRequest_v5,)),
    Kind(_sync, (SyncGroupRequest_v3,)),
    Kind(_heartbeat, (HeartbeatRequest_v3,)),
    Kind(_leave, (LeaveGroupRequest_v1,)),
    Kind(_describe_groups, (DescribeGroupsRequest_v4,)),
    Kind(_describe_consumer_groups, (ConsumerGroupDescribeRequest_v0,)),
    Kind(_list_groups, (ListGroupsRequest_v5,)),
    Kind(_fetch_offsets, (OffsetFetchRequest_v8,)),
    Kind(_commit, (OffsetCommitRequest_v3,)),
)
