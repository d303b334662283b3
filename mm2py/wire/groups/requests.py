"""
Group requests that aiokafka does not have, or has wrong, in aiokafka's own style; see `mm2py.wire.requests`.

aiokafka answers a DescribeGroups v3 with the schema of v2, knows no request about more than one group at a time, and of
static members (KIP-345) only how they join.
"""

# aiokafka carries no types, so its base classes are Any to mypy.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol import group as protocol
from aiokafka.protocol.admin import (
    DescribeGroupsRequest_v2,
    DescribeGroupsRequest_v3,
    DescribeGroupsResponse_v3,
    ListGroupsRequest_v2,
)
from aiokafka.protocol.api import Request, RequestStruct
from aiokafka.protocol.commit import OffsetFetchRequest_v3
from aiokafka.protocol.coordination import FindCoordinatorRequest_v1
from aiokafka.protocol.types import Array, Boolean, Bytes, Int8, Int16, Int32, Int64, Schema, String

from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset
from mm2py.wire.requests import THROTTLE, Uuid, answer, by_topic, flexible, rows


#: What a coordinator is looked up for.
GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
#: An admin's commit comes from no generation and no member; a coordinator accepts it only while the group is empty.
NO_GENERATION: Final = -1
NO_MEMBER: Final = ""


_COORDINATORS = rows(
    "coordinators",
    ("key", String()),
    ("node_id", Int32),
    ("host", String()),
    ("port", Int32),
    ("error_code", Int16),
    ("error_message", String()),
)


class FindCoordinatorRequest_v4(RequestStruct):  # noqa: N801
    """Many keys at once (KIP-699)."""

    API_KEY = 10
    API_VERSION = 4
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = answer(10, 4, flexible(THROTTLE, _COORDINATORS))
    SCHEMA = flexible(("key_type", Int8), ("coordinator_keys", Array(String())))


class FindCoordinatorsRequest(Request[FindCoordinatorRequest_v1 | FindCoordinatorRequest_v4]):
    """The brokers that coordinate *keys*, which are groups; an old broker (before 3.0) takes one key only."""

    API_KEY = 10

    def __init__(self, keys: Sequence[str], key_type: int = GROUP_KEY) -> None:
        self._keys = keys
        self._key_type = key_type

    def build(self, request_struct_class: Any) -> Any:
        if request_struct_class.FLEXIBLE_VERSION:
            return request_struct_class(self._key_type, list(self._keys), {})
        (key,) = _only_one(self._keys, "FindCoordinator v4, which came with Kafka 3.0")
        return request_struct_class(key, self._key_type)


def _listed(*more: Any) -> Schema:
    return flexible(
        THROTTLE, ("error_code", Int16), rows("groups", ("group", String()), ("protocol_type", String()), *more)
    )


class ListGroupsRequest_v4(RequestStruct):  # noqa: N801
    """States in the answer (KIP-518)."""

    API_KEY = 16
    API_VERSION = 4
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = answer(16, 4, _listed(("state", String())))
    SCHEMA = flexible(("states", Array(String())))


class ListGroupsRequest_v5(RequestStruct):  # noqa: N801
    """Types in the answer (KIP-848)."""

    API_KEY = 16
    API_VERSION = 5
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = answer(16, 5, _listed(("state", String()), ("type", String())))
    SCHEMA = flexible(("states", Array(String())), ("types", Array(String())))


class ListGroupsRequest(Request[ListGroupsRequest_v2 | ListGroupsRequest_v4 | ListGroupsRequest_v5]):
    """All groups that one broker coordinates, of every state and type."""

    API_KEY = 16

    def build(self, request_struct_class: Any) -> Any:
        if not request_struct_class.FLEXIBLE_VERSION:
            return request_struct_class()
        if request_struct_class.API_VERSION < ListGroupsRequest_v5.API_VERSION:
            return request_struct_class([], {})
        return request_struct_class([], [], {})


class DescribeGroupsRequest_v3_fixed(RequestStruct):  # noqa: N801
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = DescribeGroupsResponse_v3
    SCHEMA = DescribeGroupsRequest_v3.SCHEMA


_DESCRIBED = rows(
    "groups",
    ("error_code", Int16),
    ("group", String()),
    ("state", String()),
    ("protocol_type", String()),
    ("protocol", String()),
    rows(
        "members",
        ("member_id", String()),
        ("instance_id", String()),
        ("client_id", String()),
        ("client_host", String()),
        ("metadata", Bytes),
        ("assignment", Bytes),
    ),
    ("authorized_operations", Int32),
)


class DescribeGroupsRequest_v4(RequestStruct):  # noqa: N801
    """Which members are static ones (KIP-345)."""

    API_KEY = 15
    API_VERSION = 4
    RESPONSE_TYPE = answer(15, 4, Schema(THROTTLE, _DESCRIBED))
    SCHEMA = DescribeGroupsRequest_v3.SCHEMA


class DescribeGroupsRequest(
    Request[DescribeGroupsRequest_v2 | DescribeGroupsRequest_v3_fixed | DescribeGroupsRequest_v4]
):
    """Classic groups. A group that is no classic one is described as ``Dead``, as one that does not exist."""

    API_KEY = 15

    def __init__(self, groups: Sequence[str], *, with_operations: bool = False) -> None:
        self._groups = groups
        self._with_operations = with_operations

    def build(self, request_struct_class: Any) -> Any:
        if request_struct_class.API_VERSION < DescribeGroupsRequest_v3_fixed.API_VERSION:
            return request_struct_class(list(self._groups))
        return request_struct_class(list(self._groups), self._with_operations)


class JoinGroupRequest(protocol.JoinGroupRequest):
    """A member that joins. Static ones (KIP-345) need brokers of Kafka 2.3 or newer."""

    @property
    def held_back_s(self) -> float:
        """How long the answer may wait for other members: a static one may be away for as long as its session."""
        return float(self._rebalance_timeout / 1000)

    def build(self, request_struct_class: Any) -> Any:
        if self._group_instance_id is not None and request_struct_class is not protocol.JoinGroupRequest_v5:
            msg = "group.instance.id needs JoinGroup v5, which came with Kafka 2.3"
            raise IncompatibleBrokerVersion(msg)
        return super().build(request_struct_class)


class HeartbeatRequest_v3(RequestStruct):  # noqa: N801
    """From a static member, which learns that another one has replaced it (KIP-345)."""

    API_KEY = 12
    API_VERSION = 3
    RESPONSE_TYPE = answer(12, 3, protocol.HeartbeatResponse_v1.SCHEMA)
    SCHEMA = Schema(
        ("group", String()), ("generation_id", Int32), ("member_id", String()), ("group_instance_id", String())
    )


class HeartbeatRequest(Request[protocol.HeartbeatRequest_v1 | HeartbeatRequest_v3]):
    """A sign of life of a member."""

    API_KEY = 12

    def __init__(self, group: str, generation: int, member_id: str, instance: str | None) -> None:
        self._member = group, generation, member_id
        self._instance = instance

    def build(self, request_struct_class: Any) -> Any:
        instance = [self._instance] if request_struct_class is HeartbeatRequest_v3 else []
        return request_struct_class(*self._member, *instance)


_ASSIGNMENT = Schema(rows("topic_partitions", ("topic_id", Uuid), ("topic", String()), ("partitions", Array(Int32))))
_MEMBERS = rows(
    "members",
    ("member_id", String()),
    ("instance_id", String()),
    ("rack_id", String()),
    ("member_epoch", Int32),
    ("client_id", String()),
    ("client_host", String()),
    ("subscribed_topic_names", Array(String())),
    ("subscribed_topic_regex", String()),
    ("assignment", _ASSIGNMENT),
    ("target_assignment", _ASSIGNMENT),
)
_CONSUMER_GROUPS = rows(
    "groups",
    ("error_code", Int16),
    ("error_message", String()),
    ("group", String()),
    ("state", String()),
    ("group_epoch", Int32),
    ("assignment_epoch", Int32),
    ("assignor_name", String()),
    _MEMBERS,
    ("authorized_operations", Int32),
)


class ConsumerGroupDescribeRequest_v0(RequestStruct):  # noqa: N801
    API_KEY = 69
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = answer(69, 0, flexible(THROTTLE, _CONSUMER_GROUPS))
    SCHEMA = flexible(("groups", Array(String())), ("include_authorized_operations", Boolean))


class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeRequest_v0]):
    """Groups of the consumer protocol (KIP-848). Any other is answered with GROUP_ID_NOT_FOUND."""

    API_KEY = 69

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = groups

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(list(self._groups), False, {})  # noqa: FBT003 - a field of the protocol


_COMMITTED = rows(
    "groups",
    ("group", String()),
    by_topic(
        ("partition", Int32),
        ("offset", Int64),
        ("leader_epoch", Int32),
        ("metadata", String()),
        ("error_code", Int16),
    ),
    ("error_code", Int16),
)


class OffsetFetchRequest_v8(RequestStruct):  # noqa: N801
    """Many groups at once (KIP-709)."""

    API_KEY = 9
    API_VERSION = 8
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = answer(9, 8, flexible(THROTTLE, _COMMITTED))
    SCHEMA = flexible(
        rows("groups", ("group", String()), rows("topics", ("topic", String()), ("partitions", Array(Int32)))),
        ("require_stable", Boolean),
    )


class OffsetFetchRequest(Request[OffsetFetchRequest_v3 | OffsetFetchRequest_v8]):
    """All committed offsets of *groups*; an old broker (before 3.0) takes one group only."""

    API_KEY = 9

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = groups

    def build(self, request_struct_class: Any) -> Any:
        if request_struct_class.FLEXIBLE_VERSION:
            groups: list[Any] = [(group, None, {}) for group in self._groups]
            return request_struct_class(groups, False, {})  # noqa: FBT003 - a field of the protocol
        (group,) = _only_one(self._groups, "OffsetFetch v8, which came with Kafka 3.0")
        return request_struct_class(group, None)


_NO_EPOCH: Final = -1


_BY_ID = ("topic_id", Uuid)
_DONE = rows("topics", _BY_ID, rows("partitions", ("partition", Int32), ("error_code", Int16)))
_COMMITS = rows(
    "topics",
    _BY_ID,
    rows("partitions", ("partition", Int32), ("offset", Int64), ("leader_epoch", Int32), ("metadata", String())),
)


class OffsetCommitRequest_v10(RequestStruct):  # noqa: N801
    """Topics by their ids (KIP-848): an offset of one that is gone is refused, whatever has its name by now."""

    API_KEY = 8
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = answer(8, 10, flexible(THROTTLE, _DONE))
    SCHEMA = flexible(
        ("group", String()),
        ("generation_id", Int32),
        ("member_id", String()),
        ("group_instance_id", String()),
        _COMMITS,
    )


class OffsetCommitByIdsRequest(Request[OffsetCommitRequest_v10]):
    """An admin's commit of *offsets*, each of which says of which topic it is; brokers from 4.1 on take it."""

    API_KEY = 8

    def __init__(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._group = group
        self._topics: dict[str | None, list[Any]] = {}
        for tp, it in offsets.items():
            row: Any = tp.partition, it.offset, _NO_EPOCH, it.metadata, {}
            self._topics.setdefault(it.topic_id, []).append(row)

    def build(self, request_struct_class: Any) -> Any:
        topics: list[Any] = [(topic_id, some, {}) for topic_id, some in self._topics.items()]
        return request_struct_class(self._group, NO_GENERATION, NO_MEMBER, None, topics, {})


def _only_one(groups: Sequence[str], needed: str) -> Sequence[str]:
    if len(groups) != 1:
        msg = f"asking about {len(groups)} groups at once needs {needed}"
        raise IncompatibleBrokerVersion(msg)
    return groups
