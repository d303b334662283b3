"""
What the names of a cluster's topics tell about the mirrors that feed it: Java's MirrorClient without the network.

Heartbeats are mirrored like any topic, so the names of heartbeats topics, ``B.A.heartbeats``, show every way on which
records come here, as long as the flows keep to one replication policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mm2py.policy.replication import ReplicationPolicy


#: As a number of hops: there is no way from that cluster.
NO_WAY = -1


def sources_of(policy: ReplicationPolicy, topic: str) -> Iterator[str]:
    """Return the clusters that *topic* came through, the nearest first. It ends where a name goes round in a circle."""
    seen: set[str] = set()
    hop: str | None = topic
    while hop is not None and (source := policy.topic_source(hop)) is not None and source not in seen:
        seen.add(source)
        yield source
        hop = policy.upstream_topic(hop)


def count_hops(policy: ReplicationPolicy, topic: str, cluster: str) -> int:
    """Return how many hops *topic* is away from *cluster*, `NO_WAY` where it did not come from there."""
    for hops, source in enumerate(sources_of(policy, topic), start=1):
        if source == cluster:
            return hops
    return NO_WAY


def heartbeats_topics(policy: ReplicationPolicy, topics: Iterable[str]) -> frozenset[str]:
    """Pick the heartbeats topics, those born here and those mirrored."""
    return frozenset(topic for topic in topics if policy.is_heartbeats_topic(topic))


def checkpoints_topics(policy: ReplicationPolicy, topics: Iterable[str]) -> frozenset[str]:
    """Pick the topics that hold checkpoints."""
    return frozenset(topic for topic in topics if policy.is_checkpoints_topic(topic))


def upstream_clusters(policy: ReplicationPolicy, topics: Iterable[str]) -> frozenset[str]:
    """Name every cluster whose heartbeats come here, at any number of hops."""
    return frozenset(source for topic in heartbeats_topics(policy, topics) for source in sources_of(policy, topic))


def replication_hops(policy: ReplicationPolicy, topics: Iterable[str], cluster: str) -> int:
    """Return how many hops the shortest way from *cluster* has, `NO_WAY` where its heartbeats do not come here."""
    ways = (count_hops(policy, topic, cluster) for topic in heartbeats_topics(policy, topics))
    return min((hops for hops in ways if hops != NO_WAY), default=NO_WAY)


def remote_topics(policy: ReplicationPolicy, topics: Iterable[str], source: str | None = None) -> frozenset[str]:
    """Pick the topics that were mirrored here, with *source* only those that came straight from that cluster."""
    return frozenset(
        topic
        for topic in topics
        if not policy.is_internal_topic(topic)
        and (nearest := policy.topic_source(topic)) is not None
        and source in (None, nearest)
    )
