"""Topics: created, grown, deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.protocol.admin import CreatePartitionsRequest_v1, DeleteTopicsRequest_v1

from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.requests import CreateTopicsRequest_v4
from tests.simulated.requests.kind import Kind


if TYPE_CHECKING:
    from tests.simulated.broker import Broker, Line


def _create_topics(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    rows = []
    for name, count, _factor, _assignment, settings in it.create_topic_requests:
        exists = name in cluster.topics
        rows.append((name, int(ErrorCode.TOPIC_ALREADY_EXISTS) if exists else 0, None))
        if not exists:
            cluster.create(name, max(1, count), dict(settings))
            cluster.tell(cluster.name, "created", name, count)
    return it.RESPONSE_TYPE(0, rows)


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
        code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if topic is None else 0
        if topic is not None and count <= len(topic.partitions):
            code = int(ErrorCode.INVALID_PARTITIONS)
        if topic is not None and not code:
            cluster.grow(topic, count)
        rows.append((name, code, None))
    return it.RESPONSE_TYPE(0, rows)


KINDS = (
    Kind(_create_topics, (CreateTopicsRequest_v4,)),
    Kind(_delete_topics, (DeleteTopicsRequest_v1,)),
    Kind(_create_partitions, (CreatePartitionsRequest_v1,)),
)
