"""
Where the leaders' logs end, replicated or not.

An end offset as a consumer gets it is the high watermark: what a leader has appended but its followers have not yet
fetched is after it, and may still become visible. To be sure that nothing more is coming, the end of the leader's
current epoch is queried (KIP-320), which is the end of its log.
"""

# aiokafka carries no types, so its base classes are Any to mypy.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs
from aiokafka.protocol.api import Request, RequestStruct
from aiokafka.protocol.types import Int16, Int32, Int64, Schema

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError
from mm2py.model.flow import TopicPartition
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import error_of
from mm2py.wire.metadata import UNKNOWN_EPOCH
from mm2py.wire.requests import LATEST, THROTTLE, answer, by_topic


_NO_REPLICA = -1


class OffsetForLeaderEpochRequest_v3(RequestStruct):  # noqa: N801
    API_KEY = 23
    API_VERSION = 3
    RESPONSE_TYPE = answer(
        23,
        3,
        Schema(
            THROTTLE,
            by_topic(("error_code", Int16), ("partition", Int32), ("leader_epoch", Int32), ("end_offset", Int64)),
        ),
    )
    SCHEMA = Schema(
        ("replica_id", Int32),
        by_topic(("partition", Int32), ("current_leader_epoch", Int32), ("leader_epoch", Int32)),
    )


class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochRequest_v3]):
    """
    Where epochs end in the leaders' logs.

    *partitions* maps a topic to rows of partition, the leader's own epoch as we know it, and the epoch asked for.
    """

    API_KEY = 23

    def __init__(self, partitions: Mapping[str, Sequence[tuple[int, int, int]]]) -> None:
        self._partitions = partitions

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(_NO_REPLICA, [(topic, list(rows)) for topic, rows in self._partitions.items()])


@attrs.frozen
class EpochEnd:
    """
    Where an epoch ends in a leader's log.

    `epoch` is the one asked for, or the greatest before it of which the log holds anything; the log has no record of
    the epoch asked for from `end` on. Both are -1 where the log knows neither: it is another log.
    """

    epoch: int
    end: int


async def end_of(cluster: Cluster, partition: TopicPartition) -> int:
    """Return where a partition ends. It is 0 only of one that has held nothing, or has lost all that it held."""
    end = (await cluster.list_offsets([partition], LATEST))[partition]
    if isinstance(end, BrokerAnsweredError):
        raise end
    return end


async def log_ends(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """
    Return the end of the leader's log for each partition that has one which knows its epoch and answers.

    A partition is omitted if a leader moved or a broker is too old (before 2.4).
    """
    answers = await epoch_ends(cluster, {tp: cluster.leader_epoch(tp) for tp in partitions})
    return {tp: answer.end for tp, answer in answers.items() if isinstance(answer, EpochEnd) and answer.end >= 0}


async def whole_ends(
    cluster: Cluster, partitions: Collection[TopicPartition], *, patience_s: float | None = None
) -> dict[TopicPartition, int | BrokerAnsweredError]:
    """Return the end offset of each partition, what is not on all replicas yet included; see `Cluster.list_offsets`."""
    ends = await cluster.list_offsets(partitions, LATEST, patience_s=patience_s)
    for partition, log_end in (await log_ends(cluster, partitions)).items():
        end = ends[partition]
        if isinstance(end, int):
            ends[partition] = max(end, log_end)
    return ends


async def epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, EpochEnd | BrokerAnsweredError]:
    """
    Ask the leaders where each partition's epoch ends.

    A partition is omitted if it has no leader, its leader's own epoch is unknown, or the broker does not respond or
    is too old for the question (before 2.4).
    """
    by_leader: dict[int, dict[str, list[tuple[int, int, int]]]] = {}
    for tp, epoch in epochs.items():
        leader, own = cluster.leader(tp), cluster.leader_epoch(tp)
        if leader is not None and own != UNKNOWN_EPOCH:
            by_leader.setdefault(leader, {}).setdefault(tp.topic, []).append((tp.partition, own, epoch))
    found: dict[TopicPartition, EpochEnd | BrokerAnsweredError] = {}
    # Callers have sets of partitions: requests are the same in each run.
    for leader, topics in sorted(by_leader.items()):
        ordered = {topic: sorted(rows) for topic, rows in sorted(topics.items())}
        try:
            response = await cluster.send_to(leader, OffsetForLeaderEpochRequest(ordered))
        except (BrokerConnectionError, BrokerAnsweredError):
            continue
        for topic, answers in response.topics:
            for code, number, epoch, end in answers:
                tp = TopicPartition(topic, number)
                error = error_of(code, cluster.alias, "OffsetForLeaderEpoch", str(tp)) if code else None
                if tp in epochs:
                    found[tp] = error or EpochEnd(epoch, end)
    return found
