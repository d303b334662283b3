"""
Requests that aiokafka does not have, or not in the version we need, in aiokafka's own style.

A request class is a builder: its connection picks the newest version that both sides know, and `build` fills that
version's struct. The oldest brokers served are those of Kafka 2.1, as with Kafka 4's own clients.

Fields are listed once, as versions before KIP-482 write them; `flexible` makes the compact form of them.
"""

# aiokafka carries no types, so its base classes are Any to mypy.
# mypy: disable-error-code="misc"

from __future__ import annotations

import base64
import struct
from collections.abc import Collection, Mapping, Sequence
from io import BytesIO
from typing import Any, Final

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.admin import CreateTopicsRequest_v3, CreateTopicsResponse_v3
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.types import (
    Array,
    Boolean,
    Bytes,
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
    UnsignedVarInt32,
)


#: As `when` in a list-offsets request: the end of the log, its start, and the start of what its leader has on disk.
LATEST = -1
EARLIEST = -2
EARLIEST_LOCAL = -4
#: The answer for a timestamp that is later than those of all records.
NO_OFFSET = -1

THROTTLE: Final = ("throttle_time_ms", Int32)

#: Of one partition: what the first byte of a compact array can say.
_MOST_NODES = 126
_NO_REPLICA = -1
_NULL_UUID = bytes(16)


class Uuid(AbstractType):
    """A UUID as Kafka prints it: URL-safe base64 without padding; None for the null UUID."""

    @classmethod
    def encode(cls, value: str | None) -> bytes:
        return _NULL_UUID if value is None else base64.urlsafe_b64decode(value + "==")

    @classmethod
    def decode(cls, data: BytesIO) -> str | None:
        raw = data.read(16)
        if len(raw) != len(_NULL_UUID):
            msg = "buffer underrun decoding a UUID"
            raise ValueError(msg)
        return None if raw == _NULL_UUID else base64.urlsafe_b64encode(raw).decode().rstrip("=")


def rows(name: str, *fields: Any) -> Any:
    """Return the field *name*: rows of *fields*, however few."""
    return name, Array(Schema(*fields))


def by_topic(*fields: Any) -> Any:
    """Return the field ``topics``: for each topic rows of *fields*, one for a partition."""
    return rows("topics", ("topic", String()), rows("partitions", *fields))


def flexible(*fields: Any) -> Schema:
    """Return *fields* in the compact form (KIP-482), each row with its tagged fields."""
    return Schema(*((name, _compact(kind)) for name, kind in fields), ("tags", TaggedFields))


def _compact(kind: Any) -> Any:
    if isinstance(kind, Schema):
        return flexible(*zip(kind.names, kind.fields, strict=True))
    if isinstance(kind, CompactArray):
        return kind
    if isinstance(kind, Array):
        return CompactArray(_compact(kind.array_of))
    return CompactString() if isinstance(kind, String) else CompactBytes if kind is Bytes else kind


def answer(api_key: int, version: int, schema: Schema) -> type[Response]:
    """Make the class of the responses to a request's *version*."""
    return type(
        f"Response_{api_key}_v{version}", (Response,), {"API_KEY": api_key, "API_VERSION": version, "SCHEMA": schema}
    )


def id_bytes(topic_id: str | None) -> bytes | None:
    """Return a topic id as requests carry it; None where it is unknown, or no id at all."""
    try:
        raw = base64.urlsafe_b64decode(topic_id + "==") if topic_id else b""
    except ValueError:
        return None
    return raw if len(raw) == len(_NULL_UUID) else None


_BROKERS = rows("brokers", ("node_id", Int32), ("host", String()), ("port", Int32), ("rack", String()))
_PARTITIONS = rows(
    "partitions",
    ("error_code", Int16),
    ("partition", Int32),
    ("leader", Int32),
    ("leader_epoch", Int32),
    ("replicas", Array(Int32)),
    ("isr", Array(Int32)),
    ("offline_replicas", Array(Int32)),
)


class _CompactPartitions(CompactArray):
    """
    The compact form of `_PARTITIONS`, decoded by hand.

    An answer about a whole cluster may have tens of thousands of them; field by field they take four times as long.
    """

    _ROW: Final = struct.Struct(">hiii")

    def __init__(self) -> None:
        super().__init__(_compact(_PARTITIONS[1].array_of))

    def decode(self, data: BytesIO) -> list[Any] | None:
        count = UnsignedVarInt32.decode(data) - 1
        if count < 0:
            return None
        row, size, nodes, tags = self._ROW, self._ROW.size, _nodes, TaggedFields.decode
        with data.getbuffer() as raw:
            at, found = data.tell(), []
            for _ in range(count):
                head = row.unpack_from(raw, at)
                replicas, at = nodes(raw, at + size)
                isr, at = nodes(raw, at)
                offline, at = nodes(raw, at)
                if raw[at]:
                    data.seek(at)
                    found.append((*head, replicas, isr, offline, tags(data)))
                    at = data.tell()
                else:
                    found.append((*head, replicas, isr, offline, {}))
                    at += 1
        data.seek(at)
        return found


def _nodes(raw: memoryview, at: int) -> tuple[list[int] | None, int]:
    """Read a compact array of node ids; return it and where it ends."""
    count = raw[at] - 1
    if count > _MOST_NODES:
        msg = "a partition has more replicas than any cluster gives it"
        raise ValueError(msg)
    after = at + 1 + 4 * max(count, 0)
    return (None if count < 0 else list(struct.unpack_from(f">{count}i", raw, at + 1))), after


def _metadata(topics: Any) -> list[Any]:
    return [THROTTLE, _BROKERS, ("cluster_id", String()), ("controller_id", Int32), topics]


class MetadataRequest_v7(RequestStruct):  # noqa: N801
    """What all brokers know. Its leader epochs are of no use: see `metadata.view_of`."""

    API_KEY = 3
    API_VERSION = 7
    RESPONSE_TYPE = answer(
        3,
        7,
        Schema(
            *_metadata(
                rows("topics", ("error_code", Int16), ("topic", String()), ("is_internal", Boolean), _PARTITIONS)
            )
        ),
    )
    SCHEMA = MetadataRequest_v5.SCHEMA


class MetadataRequest_v9(RequestStruct):  # noqa: N801
    """Leader epochs that can be relied on (KAFKA-9212), from Kafka 2.4 on."""

    API_KEY = 3
    API_VERSION = 9
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = answer(
        3,
        9,
        flexible(
            *_metadata(
                rows(
                    "topics",
                    ("error_code", Int16),
                    ("topic", String()),
                    ("is_internal", Boolean),
                    ("partitions", _CompactPartitions()),
                    ("authorized_operations", Int32),
                )
            ),
            ("authorized_operations", Int32),
        ),
    )
    SCHEMA = flexible(
        rows("topics", ("topic", String())),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
    )


class MetadataRequest_v11(RequestStruct):  # noqa: N801
    """Topic ids in the answer (KIP-516), from Kafka 2.8 on; later versions are for asking by id."""

    API_KEY = 3
    API_VERSION = 11
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = answer(
        3,
        11,
        flexible(
            *_metadata(
                rows(
                    "topics",
                    ("error_code", Int16),
                    ("topic", String()),
                    ("topic_id", Uuid),
                    ("is_internal", Boolean),
                    ("partitions", _CompactPartitions()),
                    ("authorized_operations", Int32),
                )
            )
        ),
    )
    SCHEMA = flexible(
        rows("topics", ("topic_id", Uuid), ("topic", String())),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
    )


class MetadataRequest(Request[MetadataRequest_v7 | MetadataRequest_v9 | MetadataRequest_v11]):
    """Brokers, controller, and the named topics, in their order; all topics with None. Never creates a topic."""

    API_KEY = 3

    def __init__(self, topics: Collection[str] | None) -> None:
        self._topics = None if topics is None else sorted(topics)

    def build(self, request_struct_class: Any) -> Any:
        topics: list[Any] | None = self._topics
        if not request_struct_class.FLEXIBLE_VERSION:
            return request_struct_class(topics=topics, allow_auto_topic_creation=False)
        if request_struct_class is MetadataRequest_v9:
            return request_struct_class(
                topics=None if topics is None else [(topic, {}) for topic in topics],
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
                tags={},
            )
        return request_struct_class(
            topics=None if topics is None else [(None, topic, {}) for topic in topics],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
            tags={},
        )


class OperationsRequest(Request[MetadataRequest_v9]):
    """What we may do (KIP-430) with the cluster and *topics*. Later versions of Metadata leave the cluster's out."""

    API_KEY = 3

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = list(topics)

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(
            topics=[(topic, {}) for topic in self._topics],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
            tags={},
        )


_TIMES = (
    ("replica_id", Int32),
    ("isolation_level", Int8),
    by_topic(("partition", Int32), ("current_leader_epoch", Int32), ("timestamp", Int64)),
)
_OFFSETS = (
    THROTTLE,
    by_topic(
        ("partition", Int32),
        ("error_code", Int16),
        ("timestamp", Int64),
        ("offset", Int64),
        ("leader_epoch", Int32),
    ),
)


class ListOffsetsRequest_v4(RequestStruct):  # noqa: N801
    """The leader epoch that the asker knows (KIP-320). aiokafka's own struct gives that field the wrong width."""

    API_KEY = 2
    API_VERSION = 4
    RESPONSE_TYPE = answer(2, 4, Schema(*_OFFSETS))
    SCHEMA = Schema(*_TIMES)


class ListOffsetsRequest_v8(RequestStruct):  # noqa: N801
    """What a leader has on its own disk, where the rest is in remote storage (KIP-405)."""

    API_KEY = 2
    API_VERSION = 8
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = answer(2, 8, flexible(*_OFFSETS))
    SCHEMA = flexible(*_TIMES)


class ListOffsetsRequest(Request[ListOffsetsRequest_v4 | ListOffsetsRequest_v8]):
    """
    One offset per partition: `LATEST`, `EARLIEST`, `EARLIEST_LOCAL`, or the first at or after a timestamp.

    *partitions* maps a topic to pairs of partition and known leader epoch, -1 where it is unknown.
    """

    API_KEY = 2

    def __init__(
        self, partitions: Mapping[str, Sequence[tuple[int, int]]], when: int, *, reads_committed: bool = False
    ) -> None:
        self._partitions = partitions
        self._when = when
        self._isolation_level = int(reads_committed)

    def build(self, request_struct_class: Any) -> Any:
        topics: list[Any] = []
        if request_struct_class.FLEXIBLE_VERSION:
            for topic, partitions in self._partitions.items():
                topics.append((topic, [(number, epoch, self._when, {}) for number, epoch in partitions], {}))
            return request_struct_class(_NO_REPLICA, self._isolation_level, topics, {})
        if self._when == EARLIEST_LOCAL:
            msg = "asking what leaders have on disk needs ListOffsets v8, which came with Kafka 3.5"
            raise IncompatibleBrokerVersion(msg)
        for topic, partitions in self._partitions.items():
            topics.append((topic, [(number, epoch, self._when) for number, epoch in partitions]))
        return request_struct_class(_NO_REPLICA, self._isolation_level, topics)


class CreateTopicsRequest_v4(RequestStruct):  # noqa: N801
    """A replication factor or partition count of -1 means the broker's default (KIP-464)."""

    API_KEY = 19
    API_VERSION = 4
    RESPONSE_TYPE = answer(19, 4, CreateTopicsResponse_v3.SCHEMA)
    SCHEMA = CreateTopicsRequest_v3.SCHEMA


class CreateTopicsRequest(Request[CreateTopicsRequest_v3 | CreateTopicsRequest_v4]):
    """Create topics: *topics* are tuples of name, partition count, replication factor and configs."""

    API_KEY = 19

    def __init__(
        self, topics: Sequence[tuple[str, int, int, Mapping[str, str]]], timeout_ms: int, *, is_trial: bool = False
    ) -> None:
        """Ask for the topics, or only, if it *is_trial*, whether they could be created."""
        self._topics = topics
        self._timeout_ms = timeout_ms
        self._is_trial = is_trial

    def build(self, request_struct_class: Any) -> Any:
        knows_defaults = request_struct_class.API_VERSION >= CreateTopicsRequest_v4.API_VERSION
        topics: list[Any] = []
        for name, partitions, replication_factor, configs in self._topics:
            if min(partitions, replication_factor) < 0 and not knows_defaults:
                msg = "the broker's default of partitions or replicas needs CreateTopics v4, which came with Kafka 2.4"
                raise IncompatibleBrokerVersion(msg)
            topics.append((name, partitions, replication_factor, [], list(configs.items())))
        return request_struct_class(
            create_topic_requests=topics, timeout=self._timeout_ms, validate_only=self._is_trial
        )
