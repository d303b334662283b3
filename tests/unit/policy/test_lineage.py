"""What topics' names tell about mirrors: every case of Kafka's own MirrorClientTest that needs no cluster."""

from __future__ import annotations

import pytest

from mm2py.policy.lineage import (
    NO_WAY,
    checkpoints_topics,
    count_hops,
    heartbeats_topics,
    remote_topics,
    replication_hops,
    sources_of,
    upstream_clusters,
)
from mm2py.policy.replication import DefaultReplicationPolicy, IdentityReplicationPolicy, PlainReplicationPolicy


DEFAULT = DefaultReplicationPolicy()
IDENTITY = IdentityReplicationPolicy("primary")
_WAYS = ("source1.heartbeats", "source1.source2.heartbeats", "source3.source4.source5.heartbeats")


@pytest.mark.parametrize(
    ("topic", "is_one"),
    [
        ("heartbeats", True),
        ("source1.heartbeats", True),
        ("source2.source1.heartbeats", True),
        ("heartbeats!", False),
        ("!heartbeats", False),
        ("source1heartbeats", False),
        ("source1-heartbeats", False),
        ("source1.x", False),
    ],
)
@pytest.mark.parametrize("policy", [DEFAULT, IDENTITY], ids=["default", "identity"])
def test_is_heartbeat_topic(
    policy: DefaultReplicationPolicy | IdentityReplicationPolicy, topic: str, is_one: bool
) -> None:
    """Heartbeats are known by their original name, at any number of hops (testIsHeartbeatTopic)."""
    assert heartbeats_topics(policy, [topic]) == ({topic} if is_one else set())


@pytest.mark.parametrize(
    ("topic", "is_one"),
    [
        ("source1.checkpoints.internal", True),
        ("checkpoints.internal", False),
        ("checkpoints-internal", False),
        ("checkpoints.internal!", False),
        ("!checkpoints.internal", False),
        ("source1checkpointsinternal", False),
    ],
)
def test_is_checkpoint_topic(topic: str, is_one: bool) -> None:
    """Checkpoints are known by the end of the name, with an alias in front (testIsCheckpointTopic)."""
    assert checkpoints_topics(DEFAULT, [topic]) == ({topic} if is_one else set())


@pytest.mark.parametrize(
    ("topic", "cluster", "hops"),
    [
        ("topic", "source", NO_WAY),
        ("source", "source", NO_WAY),
        ("sourcetopic", "source", NO_WAY),
        ("source1.topic", "source2", NO_WAY),
        ("source1.topic", "source1", 1),
        ("source2.source1.topic", "source2", 1),
        ("source2.source1.topic", "source1", 2),
        ("source3.source2.source1.topic", "source4", NO_WAY),
        ("source3.source2.source1.topic", "source3", 1),
        ("source3.source2.source1.topic", "source2", 2),
        ("source3.source2.source1.topic", "source1", 3),
    ],
)
def test_count_hops_for_topic(topic: str, cluster: str, hops: int) -> None:
    """Each alias in front of the name is one hop (countHopsForTopicTest)."""
    assert count_hops(DEFAULT, topic, cluster) == hops


@pytest.mark.parametrize("policy", [DEFAULT, IDENTITY], ids=["default", "identity"])
def test_a_circle_is_cut(policy: DefaultReplicationPolicy | IdentityReplicationPolicy) -> None:
    """A name that leads back to a cluster it has been at, as every name does that stays the same, ends there."""
    assert list(sources_of(DEFAULT, "A.B.A.B.topic")) == ["A", "B"]
    assert list(sources_of(IDENTITY, "topic")) == ["primary"]
    assert count_hops(policy, "A.B.A.topic", "C") == NO_WAY


def test_heartbeat_topics() -> None:
    """The heartbeats born here count as well as mirrored ones (heartbeatTopicsTest)."""
    beats = {"heartbeats", "source1.heartbeats", "source2.source1.heartbeats", "source3.heartbeats"}

    assert heartbeats_topics(DEFAULT, {"topic1", "topic2", *beats}) == beats


def test_checkpoints_topics() -> None:
    """Only names with an alias hold checkpoints (checkpointsTopicsTest)."""
    found = {"source1.checkpoints.internal", "source2.source1.checkpoints.internal", "source3.checkpoints.internal"}

    assert checkpoints_topics(DEFAULT, {"topic1", "checkpoints.internal", *found}) == found


def test_replication_hops() -> None:
    """The shortest way counts, and a cluster whose heartbeats do not come has none (replicationHopsTest)."""
    topics = ["topic1", "heartbeats", "source1.heartbeats", "source1.source2.heartbeats", "source3.heartbeats"]
    topics += ["source1.source2.source3.heartbeats", "source4.topic"]

    hops = {cluster: replication_hops(DEFAULT, topics, cluster) for cluster in ("source1", "source2", "source3")}

    assert hops == {"source1": 1, "source2": 2, "source3": 1}
    assert replication_hops(DEFAULT, topics, "source4") == NO_WAY


@pytest.mark.parametrize("policy", [DEFAULT, IDENTITY], ids=["default", "identity"])
def test_upstream_clusters(policy: DefaultReplicationPolicy | IdentityReplicationPolicy) -> None:
    """
    Every cluster on the way of some heartbeats is upstream, whatever other topics are called.

    (upstreamClustersTest, testIdentityReplicationUpstreamClusters)
    """
    topics = ["topic1", "heartbeats", "source6.topic2", *_WAYS]

    assert upstream_clusters(policy, topics) == {"source1", "source2", "source3", "source4", "source5"}
    assert upstream_clusters(policy, ["heartbeats"]) == set()


def test_heartbeats_are_known_where_only_they_get_an_alias() -> None:
    """Of a flow that keeps each name but theirs, whatever else ends in heartbeats."""
    topics = ["heartbeats", "primary.heartbeats", "device-heartbeats", "backup.heartbeats"]
    policy = PlainReplicationPolicy("primary")

    assert policy.format_remote_topic("primary", "heartbeats") == "primary.heartbeats"
    assert heartbeats_topics(policy, topics) == {"heartbeats", "primary.heartbeats"}
    assert upstream_clusters(policy, topics) == {"primary"}
    assert replication_hops(policy, topics, "primary") == 1


def test_remote_topics() -> None:
    """Names with an alias are remote, internal ones never; the source is the nearest cluster (remoteTopicsTest)."""
    remote = {"source1.topic4", "source1.source2.topic5", "source3.source4.source5.topic6"}
    topics = {"topic1", "topic2", "topic3", "source1.checkpoints.internal", "mm2-offsets.source1.internal", *remote}

    assert remote_topics(DEFAULT, topics) == remote
    assert remote_topics(DEFAULT, topics, "source1") == {"source1.topic4", "source1.source2.topic5"}
    assert remote_topics(DEFAULT, topics, "source2") == set()


def test_identity_replication_remote_topics() -> None:
    """Under names that stay, every topic is the source's but the heartbeats (testIdentityReplicationRemoteTopics)."""
    topics = {"topic1", "source1.topic4", "heartbeats", "backup.heartbeats", "primary.checkpoints.internal"}

    assert remote_topics(IDENTITY, topics) == {"topic1", "source1.topic4", "backup.heartbeats"}
    assert remote_topics(IDENTITY, topics, "primary") == {"topic1", "source1.topic4"}
    assert remote_topics(IdentityReplicationPolicy(), topics) == {"backup.heartbeats"}


def test_remote_topics_separator() -> None:
    """With another separator the dot is a character like any other (remoteTopicsSeparatorTest)."""
    remote = {"source1__topic4", "source1__source2__topic5", "source3__source4__source5__topic6"}
    policy = DefaultReplicationPolicy("__")

    assert remote_topics(policy, {"topic1", "source1.topic2", *remote}) == remote


def test_identity_replication_topic_source() -> None:
    """The source is the configured one, for heartbeats the one in the name (testIdentityReplicationTopicSource)."""
    assert count_hops(IDENTITY, "topic1", "primary") == 1
    assert count_hops(IDENTITY, "backup.heartbeats", "backup") == 1
    assert count_hops(IDENTITY, "backup.heartbeats", "primary") == NO_WAY
