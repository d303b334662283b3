"""
A cluster's metadata: brokers, controller, topics, leaders.

A view is immutable. `merged` says which of two views to believe, partition by partition: brokers learn of a new
leader at different moments, so a later answer may be the older truth, and the leader epoch tells (KIP-320).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


NO_LEADER = -1
UNKNOWN_EPOCH = -1


@attrs.frozen
class Broker:
    """Where a broker listens."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@attrs.frozen
class PartitionMetadata:
    """The leader of a partition. `leader` is -1 without one, `leader_epoch` -1 if the broker does not report it."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


@attrs.frozen
class TopicMetadata:
    """One topic. `error_code` is what the broker had to say about it; a missing topic has no partitions."""

    error_code: int
    topic_id: str | None
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]


@attrs.frozen
class ClusterMetadata:
    """A snapshot of a cluster's metadata, with the requested topics."""

    cluster_id: str | None = None
    controller_id: int | None = None
    brokers: Mapping[int, Broker] = attrs.field(factory=dict)
    topics: Mapping[str, TopicMetadata] = attrs.field(factory=dict)


def view_of(response: Any) -> ClusterMetadata:
    """Read a metadata *response* of any version."""
    answer = response.to_object()
    brokers = {
        row["node_id"]: Broker(row["node_id"], row["host"], row["port"], row["rack"]) for row in answer["brokers"]
    }
    controller_id = answer["controller_id"]
    return ClusterMetadata(
        cluster_id=answer.get("cluster_id"),
        controller_id=controller_id if controller_id in brokers else None,
        brokers=brokers,
        topics={
            row["topic"]: TopicMetadata(
                error_code=row["error_code"],
                topic_id=row.get("topic_id"),
                is_internal=row["is_internal"],
                partitions={partition["partition"]: _partition_of(partition) for partition in row["partitions"]},
            )
            for row in answer["topics"]
        },
    )


def _partition_of(row: Mapping[str, Any]) -> PartitionMetadata:
    return PartitionMetadata(
        leader=row["leader"],
        leader_epoch=row.get("leader_epoch", UNKNOWN_EPOCH),
        replicas=tuple(row["replicas"]),
        isr=tuple(row["isr"]),
    )


def merged(known: ClusterMetadata, fresh: ClusterMetadata, *, is_complete: bool) -> ClusterMetadata:
    """
    Return the view that follows from what was *known* and a *fresh* answer.

    *is_complete* says that the answer was about all topics, so that what it does not name is gone.
    """
    topics = {} if is_complete else dict(known.topics)
    for name, topic in fresh.topics.items():
        topics[name] = _merged_topic(known.topics.get(name), topic)
    return attrs.evolve(fresh, cluster_id=fresh.cluster_id or known.cluster_id, topics=topics)


def _merged_topic(known: TopicMetadata | None, fresh: TopicMetadata) -> TopicMetadata:
    if known is None or known.topic_id != fresh.topic_id:
        return fresh
    partitions = {
        number: known.partitions[number]
        if number in known.partitions and known.partitions[number].leader_epoch > partition.leader_epoch >= 0
        else partition
        for number, partition in fresh.partitions.items()
    }
    return attrs.evolve(fresh, partitions=partitions)
