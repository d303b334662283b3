"""Groups: members by the classic protocol, what is told of groups of any protocol, and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.protocol.admin import DescribeGroupsRequest_v2, ListGroupsRequest_v2
from aiokafka.protocol.commit import OffsetCommitRequest_v2, OffsetCommitRequest_v3, OffsetFetchRequest_v3
from aiokafka.protocol.group import JoinGroupRequest_v5, LeaveGroupRequest_v1, SyncGroupRequest_v3

from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.requests import (
    ConsumerGroupDescribeRequest_v0,
    DescribeGroupsRequest_v3_fixed,
    DescribeGroupsRequest_v4,
    HeartbeatRequest_v3,
    ListGroupsRequest_v5,
    OffsetCommitRequest_v10,
    OffsetFetchRequest_v8,
)
from tests.simulated.coordination import ALONE, Caller, Group, GroupState, Joining
from tests.simulated.requests.kind import Kind


if TYPE_CHECKING:
    from tests.simulated.broker import Broker, Line


_UNKNOWN = -(2**31)
#: offset.metadata.max.bytes.
_LONGEST_TEXT = 4096
#: Since which versions a commit's answer says for how long its client is throttled, and topics have their ids there, a
#: description what the client may do and who is a static member, a list in which state a group is, and an answer has
#: the offsets of many groups.
_THROTTLED, _BY_IDS, _OPERATIONS, _INSTANCES, _STATES, _MANY = 3, 10, 3, 4, 4, 8
_CLASSIC, _CONSUMER = "classic", "consumer"


def _group(broker: Broker, name: str) -> tuple[int, Group]:
    cluster = broker.cluster
    return cluster.away(broker, name), cluster.coordinator.known(name)


def _joined(broker: Broker, line: Line, name: str) -> tuple[int, str, Group]:
    """Return the group of a member: while nodes are kept apart each is in one of its own."""
    cluster = broker.cluster
    known_as = f"{name}{ALONE}{line.client.machine}" if name in cluster.apart else name
    return cluster.away(broker, name), known_as, cluster.coordinator.known(known_as)


def _join(broker: Broker, line: Line, it: Any, reply: Any) -> None:
    def say(answer: Any) -> None:
        if isinstance(answer, dict):
            found = answer["generation"], answer["protocol"], answer["leader"], answer["member"], answer["members"]
            reply(it.RESPONSE_TYPE(0, 0, *found))
        else:
            code, member = answer if isinstance(answer, tuple) else (answer, it.member_id)
            reply(it.RESPONSE_TYPE(0, int(code), -1, "", "", member, []))

    code, name, found = _joined(broker, line, it.group)
    if code:
        say(code)
        return
    if not it.member_id:
        found = broker.cluster.coordinator.group(name)
    joining = Joining(
        it.member_id,
        it.group_instance_id,
        it.protocol_type,
        {name: bytes(metadata) for name, metadata in it.group_protocols},
        it.session_timeout / 1000,
        it.rebalance_timeout / 1000,
        line.client.machine,
        line.client_id,
    )
    broker.cluster.coordinator.join(found, joining, say)


def _sync(broker: Broker, line: Line, it: Any, reply: Any) -> None:
    def say(answer: Any) -> None:
        is_share = isinstance(answer, bytes)
        reply(it.RESPONSE_TYPE(0, 0 if is_share else int(answer), answer if is_share else b""))

    code, _, found = _joined(broker, line, it.group)
    if code:
        say(code)
        return
    shares = {member: bytes(share) for member, share in it.group_assignment}
    caller = Caller(it.generation_id, it.member_id, it.group_instance_id)
    broker.cluster.coordinator.sync(found, caller, shares, say)


def _heartbeat(broker: Broker, line: Line, it: Any, _reply: Any) -> Any:
    code, _, found = _joined(broker, line, it.group)
    caller = Caller(it.generation_id, it.member_id, it.group_instance_id)
    return it.RESPONSE_TYPE(0, int(code or broker.cluster.coordinator.heartbeat(found, caller)))


def _leave(broker: Broker, line: Line, it: Any, _reply: Any) -> Any:
    code, _, found = _joined(broker, line, it.group)
    return it.RESPONSE_TYPE(0, int(code or broker.cluster.coordinator.leave(found, it.member_id)))


def _describe_groups(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    operations = (_UNKNOWN,) if it.API_VERSION >= _OPERATIONS else ()
    rows: list[Any] = []
    for name in it.groups:
        code, found = cluster.away(broker, name), cluster.coordinator.groups.get(name)
        if found is None or code or found.kind != _CLASSIC:
            rows.append((code, name, "" if code else "Dead", "", "", [], *operations))
            continue
        is_stable = found.state is GroupState.STABLE
        members: list[Any] = []
        for m in found.members.values():
            instance = (m.instance,) if it.API_VERSION >= _INSTANCES else ()
            said = m.protocols[found.protocol] if is_stable else b""
            members.append((m.member_id, *instance, m.client_id, m.client, said, m.assignment))
        protocol = found.protocol if is_stable else ""
        rows.append((0, name, found.state.value, found.protocol_type, protocol, members, *operations))
    return it.RESPONSE_TYPE(0, rows)


def _describe_consumer_groups(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    nothing: Any = ([], {})
    rows: list[Any] = []
    for name in it.groups:
        code, found = cluster.away(broker, name), cluster.coordinator.groups.get(name)
        if found is None or code or found.kind != _CONSUMER:
            code = code or int(ErrorCode.GROUP_ID_NOT_FOUND)
            rows.append((code, f"Group {name} not found.", name, "", 0, 0, "", [], _UNKNOWN, {}))
            continue
        members: list[Any] = [(it, None, None, 1, "", "", [], None, nothing, nothing, {}) for it in found.members]
        rows.append((0, None, name, found.state.value, 1, 1, "uniform", members, _UNKNOWN, {}))
    return it.RESPONSE_TYPE(0, rows, {})


def _list_groups(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    own = [it for it in cluster.coordinator.groups.values() if cluster.slots[cluster.slot(it.name)] == broker.node]
    if it.API_VERSION < _STATES:
        return it.RESPONSE_TYPE(0, 0, [(found.name, found.protocol_type) for found in own])
    rows: list[Any] = [(found.name, found.protocol_type, found.state.value, found.kind, {}) for found in own]
    return it.RESPONSE_TYPE(0, 0, rows, {})


def _fetch_offsets(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    has_many = it.API_VERSION >= _MANY
    epoch: tuple[int, ...] = (-1,) if has_many else ()
    tags: tuple[Any, ...] = ({},) if has_many else ()
    rows: list[Any] = []
    for name, named, *_ in it.groups if has_many else [(it.consumer_group, it.topics)]:
        code, found = _group(broker, name)
        wanted = found.offsets if named is None else [(topic, it) for topic, of, *_ in named for it in of]
        by_topic: dict[str, list[Any]] = {}
        for topic, number in () if code else wanted:
            offset, text = found.offsets.get((topic, number), (-1, ""))
            by_topic.setdefault(topic, []).append((number, offset, *epoch, text, 0, *tags))
        rows.append((name, [(topic, of, *tags) for topic, of in by_topic.items()], code, *tags))
    return it.RESPONSE_TYPE(0, rows, {}) if has_many else it.RESPONSE_TYPE(0, *rows[0][1:])


def _commit(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    has_ids = it.API_VERSION >= _BY_IDS
    tags: tuple[Any, ...] = ({},) if has_ids else ()
    name, generation, member = (getattr(it, field) for field in it.SCHEMA.names[:3])
    code, found = _group(broker, name)
    code = int(code or cluster.coordinator.commit(found, Caller(generation, member, None)))
    if has_ids and code == ErrorCode.ILLEGAL_GENERATION and name not in cluster.coordinator.groups:
        code = int(ErrorCode.GROUP_ID_NOT_FOUND)
    unknown = int(ErrorCode.UNKNOWN_TOPIC_ID if has_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    topics = []
    for called, rows, *_ in it.topics:
        known = cluster.by_id.get(called) if has_ids else cluster.topics.get(called)
        codes = []
        for number, offset, *rest in rows:
            text = rest[1] if has_ids else rest[0]
            own = code
            if known is None or number >= len(known.partitions):
                own = unknown if known is None else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif not code and len(text or "") > _LONGEST_TEXT:
                own = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            elif not code:
                found = cluster.coordinator.group(found.name)
                found.offsets[known.name, number] = offset, text or ""
            codes.append((number, own, *tags))
        topics.append((called, codes, *tags))
    return it.RESPONSE_TYPE(0, topics, *tags) if it.API_VERSION >= _THROTTLED else it.RESPONSE_TYPE(topics)


KINDS = (
    Kind(_join, (JoinGroupRequest_v5,)),
    Kind(_sync, (SyncGroupRequest_v3,)),
    Kind(_heartbeat, (HeartbeatRequest_v3,)),
    Kind(_leave, (LeaveGroupRequest_v1,)),
    Kind(_describe_groups, (DescribeGroupsRequest_v2, DescribeGroupsRequest_v3_fixed, DescribeGroupsRequest_v4)),
    Kind(_describe_consumer_groups, (ConsumerGroupDescribeRequest_v0,)),
    Kind(_list_groups, (ListGroupsRequest_v2, ListGroupsRequest_v5)),
    Kind(_fetch_offsets, (OffsetFetchRequest_v3, OffsetFetchRequest_v8)),
    Kind(_commit, (OffsetCommitRequest_v2, OffsetCommitRequest_v3, OffsetCommitRequest_v10)),
)
