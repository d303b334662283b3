"""Topics: created, grown, deleted, as ReplicationControlManager does it."""

from __future__ import annotations

import collections
import re
from typing import TYPE_CHECKING, Any

from aiokafka.protocol.admin import CreatePartitionsRequest_v1, DeleteTopicsRequest_v1

from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.requests import CreateTopicsRequest_v4
from tests.simulated.requests.configs import refusal
from tests.simulated.requests.kind import Kind


if TYPE_CHECKING:
    from tests.simulated.broker import Broker, Line
    from tests.simulated.cluster import Cluster


_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_DEFAULT = -1


def is_name(name: str) -> bool:
    """Whether a topic may have that name."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


def _create_topics(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    counts = collections.Counter(name for name, *_ in it.create_topic_requests)
    rows: list[tuple[str, int, str | None]] = [
        (name, int(ErrorCode.INVALID_REQUEST), "Duplicate topic name.") for name, count in counts.items() if count > 1
    ]
    for name, count, factor, _assignment, settings in it.create_topic_requests:
        if counts[name] > 1:
            continue
        code, text = _refused(cluster, name, count, factor, dict(settings))
        rows.append((name, int(code), text))
        if not code and not it.validate_only:
            cluster.create(name, max(1, count), dict(settings))
            cluster.tell(cluster.name, "created", name, count)
    return it.RESPONSE_TYPE(0, rows)


def _refused(
    cluster: Cluster, name: str, count: int, factor: int, configs: dict[str, str | None]
) -> tuple[int, str | None]:
    code, text = 0, refusal(configs)
    alike = name.replace(".", "_")
    if cluster.denies(name):
        code, text = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."
    elif not is_name(name):
        code, text = ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid"
    elif text is not None:
        code = ErrorCode.INVALID_CONFIG
    elif name in cluster.topics:
        code, text = ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists."
    elif any(it.replace(".", "_") == alike for it in cluster.topics):
        code, text = ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic"
    elif factor == 0 or factor < _DEFAULT or factor > len(cluster.brokers):
        code, text = ErrorCode.INVALID_REPLICATION_FACTOR, "Unable to replicate the partition"
    elif count == 0 or count < _DEFAULT:
        code, text = ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
    return code, text


def _delete_topics(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    rows = []
    for name in it.topics:
        rows.append((name, 0 if name in cluster.topics else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        if name in cluster.topics:
            cluster.delete(name)
    return it.RESPONSE_TYPE(0, rows)


def _create_partitions(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    rows = []
    for name, (count, _) in it.topic_partitions:
        topic = cluster.topics.get(name)
        code, text = 0, None
        if topic is None:
            code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif count <= len(topic.partitions):
            code, text = int(ErrorCode.INVALID_PARTITIONS), f"The topic currently has {len(topic.partitions)}."
        elif not it.validate_only:
            cluster.grow(topic, count)
        rows.append((name, code, text))
    return it.RESPONSE_TYPE(0, rows)


KINDS = (
    Kind(_create_topics, (CreateTopicsRequest_v4,)),
    Kind(_delete_topics, (DeleteTopicsRequest_v1,)),
    Kind(_create_partitions, (CreatePartitionsRequest_v1,)),
)
