"""
Where the leaders' logs end, replicated or not.

An end offset as a consumer gets it is the high watermark: what a leader has appended but its followers have not yet
fetched lies behind it, and may still become visible. Whoever must know that nothing more is coming asks for the end
of the leader's current epoch (KIP-320), which is the end of its log.
"""

# aiokafka carries no types, so its base classes are Any to mypy.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Int64, Schema, String

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError
from mm2py.model.flow import TopicPartition
from mm2py.wire.cluster import Cluster
from mm2py.wire.metadata import UNKNOWN_EPOCH


_NO_REPLICA = -1


class OffsetForLeaderEpochResponse_v3(Response):  # noqa: N801
    API_KEY = 23
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(
                ("topic", String()),
                (
                    "partitions",
                    Array(("error_code", Int16), ("partition", Int32), ("leader_epoch", Int32), ("end_offset", Int64)),
                ),
            ),
        ),
    )


class OffsetForLeaderEpochRequest_v3(RequestStruct):  # noqa: N801
    API_KEY = 23
    API_VERSION = 3
    RESPONSE_TYPE = OffsetForLeaderEpochResponse_v3
    SCHEMA = Schema(
        ("replica_id", Int32),
        (
            "topics",
            Array(
                ("topic", String()),
                (
                    "partitions",
                    Array(("partition", Int32), ("current_leader_epoch", Int32), ("leader_epoch", Int32)),
                ),
            ),
        ),
    )


class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochRequest_v3]):
    """The end offset of an epoch; *partitions* maps a topic to pairs of partition and leader epoch."""

    API_KEY = 23

    def __init__(self, partitions: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        self._partitions = partitions

    def build(self, request_struct_class: Any) -> Any:
        topics = [
            (topic, [(number, epoch, epoch) for number, epoch in pairs]) for topic, pairs in self._partitions.items()
        ]
        return request_struct_class(_NO_REPLICA, topics)


async def log_ends(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """
    Give the end of the leader's log for each partition that has one which knows its epoch and answers.

    A partition is left out where a leader moved or a broker is too old (before 2.3).
    """
    by_leader: dict[int, dict[str, list[tuple[int, int]]]] = {}
    for tp in partitions:
        leader, epoch = cluster.leader(tp), cluster.leader_epoch(tp)
        if leader is not None and epoch != UNKNOWN_EPOCH:
            by_leader.setdefault(leader, {}).setdefault(tp.topic, []).append((tp.partition, epoch))
    found: dict[TopicPartition, int] = {}
    for leader, topics in by_leader.items():
        try:
            response = await cluster.send_to(leader, OffsetForLeaderEpochRequest(topics))
        except (BrokerConnectionError, BrokerAnsweredError):
            continue
        for topic, answers in response.topics:
            for code, number, _epoch, end in answers:
                if code == 0 and end >= 0:
                    found[TopicPartition(topic, number)] = end
    return found
