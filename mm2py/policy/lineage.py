"""
The mirrors into a cluster, derived from its topic names: Java's MirrorClient without the network.

Heartbeats are mirrored like any topic, so the names of heartbeats topics, ``B.A.heartbeats``, show every path by which
records arrive, as long as the flows use one replication policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mm2py.policy.replication import ReplicationPolicy


#: As a number of hops: there is no path from that cluster.
NO_WAY = -1


def sources_of(policy: ReplicationPolicy, topic: str) -> Iterator[str]:
    """Return the clusters that *topic* came through, the nearest first. It ends where a name has a cycle."""
    seen: set[str] = set()
    hop: str | None = topic
    while hop is not None and (source := policy.topic_source(hop)) is not None and source not in seen:
        seen.add(source)
        yield source
        hop = policy.upstream_topic(hop)


def count_hops(policy: ReplicationPolicy, topic: str, cluster: str) -> int:
    """Return how many hops *topic* is away from *cluster*, `NO_WAY` if it did not come from there."""
    for hops, source in enumerate(sources_of(policy, topic), start=1):
        if source == cluster:
            return hops
    return NO_WAY


def heartbeats_topics(policy: ReplicationPolicy, topics: Iterable[str]) -> frozenset[str]:
    """Return the heartbeats topics, local and mirrored ones."""
    return frozenset(topic for topic in topics if policy.is_heartbeats_topic(topic))


def checkpoints_topics(policy: ReplicationPolicy, topics: Iterable[str]) -> frozenset[str]:
    """Return the checkpoints topics."""
    return frozenset(topic for topic in topics if policy.is_checkpoints_topic(topic))


def upstream_clusters(policy: ReplicationPolicy, topics: Iterable[str]) -> frozenset[str]:
    """Return every cluster whose heartbeats arrive here, at any number of hops."""
    return frozenset(source for topic in heartbeats_topics(policy, topics) for source in sources_of(policy, topic))


def replication_hops(policy: ReplicationPolicy, topics: Iterable[str], cluster: str) -> int:
    """Return the number of hops of the shortest path from *cluster*, `NO_WAY` if its heartbeats do not arrive here."""
    ways = (count_hops(policy, topic, cluster) for topic in heartbeats_topics(policy, topics))
    return min((hops for hops in ways if hops != NO_WAY), default=NO_WAY)


def remote_topics(policy: ReplicationPolicy, topics: Iterable[str], source: str | None = None) -> frozenset[str]:
    """Return the remote topics, with *source* only those mirrored directly from that cluster."""
    return frozenset(
        topic
        for topic in topics
        if not policy.is_internal_topic(topic)
        and (nearest := policy.topic_source(topic)) is not None
        and source in (None, nearest)
    )
