"""
Group requests that aiokafka does not have, or has wrong, in aiokafka's own style; see `mm2py.wire.requests`.

aiokafka answers a DescribeGroups v3 with the schema of v2, and knows no request about more than one group at a time.
"""

# aiokafka carries no types, so its base classes are Any to mypy.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.admin import (
    DescribeGroupsRequest_v2,
    DescribeGroupsRequest_v3,
    DescribeGroupsResponse_v3,
    ListGroupsRequest_v2,
)
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetFetchRequest_v3
from aiokafka.protocol.coordination import FindCoordinatorRequest_v1
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

from mm2py.wire.requests import Uuid


#: What a coordinator is looked up for.
GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1


class FindCoordinatorResponse_v4(Response):  # noqa: N801
    API_KEY = 10
    API_VERSION = 4
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "coordinators",
            CompactArray(
                ("key", CompactString()),
                ("node_id", Int32),
                ("host", CompactString()),
                ("port", Int32),
                ("error_code", Int16),
                ("error_message", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class FindCoordinatorRequest_v4(RequestStruct):  # noqa: N801
    """Many keys at once (KIP-699)."""

    API_KEY = 10
    API_VERSION = 4
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = FindCoordinatorResponse_v4
    SCHEMA = Schema(("key_type", Int8), ("coordinator_keys", CompactArray(CompactString())), ("tags", TaggedFields))


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


class ListGroupsResponse_v4(Response):  # noqa: N801
    API_KEY = 16
    API_VERSION = 4
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "groups",
            CompactArray(
                ("group", CompactString()),
                ("protocol_type", CompactString()),
                ("state", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class ListGroupsRequest_v4(RequestStruct):  # noqa: N801
    """States in the answer (KIP-518)."""

    API_KEY = 16
    API_VERSION = 4
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ListGroupsResponse_v4
    SCHEMA = Schema(("states", CompactArray(CompactString())), ("tags", TaggedFields))


class ListGroupsResponse_v5(Response):  # noqa: N801
    API_KEY = 16
    API_VERSION = 5
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "groups",
            CompactArray(
                ("group", CompactString()),
                ("protocol_type", CompactString()),
                ("state", CompactString()),
                ("type", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class ListGroupsRequest_v5(RequestStruct):  # noqa: N801
    """Types in the answer (KIP-848)."""

    API_KEY = 16
    API_VERSION = 5
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ListGroupsResponse_v5
    SCHEMA = Schema(
        ("states", CompactArray(CompactString())), ("types", CompactArray(CompactString())), ("tags", TaggedFields)
    )


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


class DescribeGroupsRequest(Request[DescribeGroupsRequest_v2 | DescribeGroupsRequest_v3_fixed]):
    """Classic groups. A group that is no classic one is described as ``Dead``, as one that does not exist."""

    API_KEY = 15

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = groups

    def build(self, request_struct_class: Any) -> Any:
        if request_struct_class.API_VERSION < DescribeGroupsRequest_v3_fixed.API_VERSION:
            return request_struct_class(list(self._groups))
        return request_struct_class(list(self._groups), False)  # noqa: FBT003 - a field of the protocol


_ASSIGNMENT = Schema(
    (
        "topic_partitions",
        CompactArray(
            ("topic_id", Uuid), ("topic", CompactString()), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)
        ),
    ),
    ("tags", TaggedFields),
)


class ConsumerGroupDescribeResponse_v0(Response):  # noqa: N801
    API_KEY = 69
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(
                ("error_code", Int16),
                ("error_message", CompactString()),
                ("group", CompactString()),
                ("state", CompactString()),
                ("group_epoch", Int32),
                ("assignment_epoch", Int32),
                ("assignor_name", CompactString()),
                (
                    "members",
                    CompactArray(
                        ("member_id", CompactString()),
                        ("instance_id", CompactString()),
                        ("rack_id", CompactString()),
                        ("member_epoch", Int32),
                        ("client_id", CompactString()),
                        ("client_host", CompactString()),
                        ("subscribed_topic_names", CompactArray(CompactString())),
                        ("subscribed_topic_regex", CompactString()),
                        ("assignment", _ASSIGNMENT),
                        ("target_assignment", _ASSIGNMENT),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class ConsumerGroupDescribeRequest_v0(RequestStruct):  # noqa: N801
    API_KEY = 69
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ConsumerGroupDescribeResponse_v0
    SCHEMA = Schema(
        ("groups", CompactArray(CompactString())), ("include_authorized_operations", Boolean), ("tags", TaggedFields)
    )


class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeRequest_v0]):
    """Groups of the consumer protocol (KIP-848). Any other is answered with GROUP_ID_NOT_FOUND."""

    API_KEY = 69

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = groups

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(list(self._groups), False, {})  # noqa: FBT003 - a field of the protocol


class OffsetFetchResponse_v8(Response):  # noqa: N801
    API_KEY = 9
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(
                ("group", CompactString()),
                (
                    "topics",
                    CompactArray(
                        ("topic", CompactString()),
                        (
                            "partitions",
                            CompactArray(
                                ("partition", Int32),
                                ("offset", Int64),
                                ("leader_epoch", Int32),
                                ("metadata", CompactString()),
                                ("error_code", Int16),
                                ("tags", TaggedFields),
                            ),
                        ),
                        ("tags", TaggedFields),
                    ),
                ),
                ("error_code", Int16),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class OffsetFetchRequest_v8(RequestStruct):  # noqa: N801
    """Many groups at once (KIP-709)."""

    API_KEY = 9
    API_VERSION = 8
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = OffsetFetchResponse_v8
    SCHEMA = Schema(
        (
            "groups",
            CompactArray(
                ("group", CompactString()),
                (
                    "topics",
                    CompactArray(
                        ("topic", CompactString()), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("require_stable", Boolean),
        ("tags", TaggedFields),
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


class OffsetDeleteResponse_v0(Response):  # noqa: N801
    API_KEY = 47
    API_VERSION = 0
    SCHEMA = Schema(
        ("error_code", Int16),
        ("throttle_time_ms", Int32),
        ("topics", Array(("topic", String()), ("partitions", Array(("partition", Int32), ("error_code", Int16))))),
    )


class OffsetDeleteRequest_v0(RequestStruct):  # noqa: N801
    API_KEY = 47
    API_VERSION = 0
    RESPONSE_TYPE = OffsetDeleteResponse_v0
    SCHEMA = Schema(("group", String()), ("topics", Array(("topic", String()), ("partitions", Array(Int32)))))


class OffsetDeleteRequest(Request[OffsetDeleteRequest_v0]):
    """Forget a group's offsets of *partitions*, per topic (KIP-496)."""

    API_KEY = 47

    def __init__(self, group: str, partitions: Mapping[str, Sequence[int]]) -> None:
        self._group = group
        self._partitions = partitions

    def build(self, request_struct_class: Any) -> Any:
        topics = [(topic, list(numbers)) for topic, numbers in self._partitions.items()]
        return request_struct_class(self._group, topics)


def _only_one(groups: Sequence[str], needed: str) -> Sequence[str]:
    if len(groups) != 1:
        msg = f"asking about {len(groups)} groups at once needs {needed}"
        raise IncompatibleBrokerVersion(msg)
    return groups
