"""Admin verbs: results per topic, the controller followed, lost answers made good."""

from __future__ import annotations

from typing import Any

import pytest

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError
from mm2py.model.topic import ConfigEntry, ConfigSource, NewTopic, TopicDescription
from mm2py.wire.cluster import Cluster
from mm2py.wire.topics.admin import Admin
from tests.support.fake_brokers import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    METADATA,
    OLD_VERSIONS,
    FakeBrokers,
    says,
    topics_with,
)


@pytest.fixture
async def admin(cluster: Cluster) -> Admin:
    return Admin(cluster)


def codes(results: dict[str, Any]) -> dict[str, str | None]:
    return {topic: result and result.name for topic, result in results.items()}


async def test_list_topics(brokers: FakeBrokers, admin: Admin) -> None:
    """All topics are listed by name, each with its id and the leader of every partition."""
    brokers.topics = topics_with("foo", [0, -1, 2]) | topics_with("bar", [1])
    view = await admin.list_topics()
    topic_id = "AAAAAAAAAAAAAAAAAAAAAQ"

    assert view.topics == {
        "bar": TopicDescription(topic_id, {0: 1}, replication_factor=2),
        "foo": TopicDescription(topic_id, {0: 0, 1: None, 2: 2}, replication_factor=2),
    }


async def test_what_is_missing_is_told_from_what_may_not_be_seen(brokers: FakeBrokers, admin: Admin) -> None:
    """A listing leaves out both; asked for by name, brokers say which is which."""
    brokers.topics = topics_with("there", [0])

    def answered(node: int, request: Any) -> Any:
        answer = brokers.plainly(node, request)
        answer.topics = [(29, *row[1:]) if row[1] == "hidden" else row for row in answer.topics]
        return answer

    brokers.script(METADATA, brokers.plainly, answered)
    await admin.list_topics()

    assert await admin.missing(["there", "hidden", "gone"]) == {"gone"}


async def test_a_broker_that_restarts_is_one_of_the_cluster_s(brokers: FakeBrokers, admin: Admin) -> None:
    """What is created meanwhile is to get as many replicas as at any other time."""
    brokers.topics = topics_with("foo", [0])
    brokers.down = {1}
    await admin.list_topics()

    assert (admin.brokers, admin.all_brokers) == (2, 3)


async def test_create_topics_reports_per_topic(brokers: FakeBrokers, admin: Admin) -> None:
    """All that was asked for reaches the controller, and one topic that exists does not keep others from being made."""
    brokers.topics = topics_with("old", [0])
    brokers.controller = 2
    await admin._cluster.refresh_metadata(())
    results = await admin.create_topics([NewTopic("old", 1, 1), NewTopic("new", 3, -1, {"retention.ms": "-1"})])
    [(node_id, request)] = brokers.requests_of(CREATE_TOPICS)

    assert codes(results) == {"old": "TOPIC_ALREADY_EXISTS", "new": None}
    assert node_id == 2
    assert request.create_topic_requests == [("old", 1, 1, [], []), ("new", 3, -1, [], [("retention.ms", "-1")])]


async def test_another_controller(brokers: FakeBrokers, admin: Admin) -> None:
    """A broker that is no controller any more is left for the one that is."""

    def moved(_node_id: int, request: Any) -> Any:
        brokers.controller = 1
        return request.RESPONSE_TYPE(0, [("new", 41, None)])

    brokers.script(CREATE_TOPICS, moved)
    results = await admin.create_topics([NewTopic("new", 1, 1)])
    asked = [node_id for node_id, _ in brokers.requests_of(CREATE_TOPICS)]

    assert (codes(results), asked) == ({"new": None}, [0, 1])


async def test_a_lost_answer_is_made_good(brokers: FakeBrokers, admin: Admin) -> None:
    """When the connection breaks after the topic was created, finding it there means that it was created."""

    def lost(node_id: int, request: Any) -> Any:
        brokers.plainly(node_id, request)
        raise BrokerConnectionError("A", "b0:9092", "reset by peer")

    brokers.script(CREATE_TOPICS, lost)
    results = await admin.create_topics([NewTopic("new", 1, 1)])

    assert codes(results) == {"new": None}


async def test_a_final_error_is_not_repeated(brokers: FakeBrokers, admin: Admin) -> None:
    """What will not get better by repeating is the result at once, in the broker's words."""
    brokers.script(CREATE_TOPICS, says(0, [("new", 40, "Unknown config nope")]))
    results = await admin.create_topics([NewTopic("new", 1, 1, {"nope": "1"})])

    assert str(results["new"]) == "cluster A answered CreateTopics with INVALID_CONFIG [40] (new: Unknown config nope)"
    assert len(brokers.requests_of(CREATE_TOPICS)) == 1


async def test_a_controller_that_stays_away(brokers: FakeBrokers, admin: Admin) -> None:
    """What no controller took within the request timeout is an error per topic."""
    brokers.down = {0}
    results = await admin.create_topics([NewTopic("new", 1, 1)])

    assert codes(results) == {"new": "NOT_CONTROLLER"}


async def test_large_commands_are_cut(brokers: FakeBrokers, admin: Admin) -> None:
    """No request holds more metadata records than a controller takes, and nothing is lost between them."""
    wanted = [NewTopic(f"t{number}", 2_000, 1) for number in range(7)]
    results = await admin.create_topics(wanted)
    sizes = [len(request.create_topic_requests) for _, request in brokers.requests_of(CREATE_TOPICS)]

    assert (codes(results), sizes) == ({topic.name: None for topic in wanted}, [2, 2, 2, 1])


@pytest.mark.parametrize(("partitions", "replication_factor"), [(1, -1), (-1, 1)])
async def test_defaults_need_newer_brokers(
    brokers: FakeBrokers, admin: Admin, partitions: int, replication_factor: int
) -> None:
    """Brokers before Kafka 2.4 have no default to leave partitions or replicas to."""
    brokers.versions = OLD_VERSIONS
    brokers.break_connections()
    results = await admin.create_topics([NewTopic("new", partitions, replication_factor)])

    assert codes(results) == {"new": "UNSUPPORTED_VERSION"}


async def test_grow_partitions(brokers: FakeBrokers, admin: Admin) -> None:
    """Totals reach the controller, results come per topic."""
    brokers.script(
        CREATE_PARTITIONS,
        says(0, [("foo", 0, None), ("bar", 37, "Topic already has 5 partitions.")]),
    )
    results = await admin.grow_partitions({"foo": 4, "bar": 5})
    [(_, request)] = brokers.requests_of(CREATE_PARTITIONS)

    assert codes(results) == {"foo": None, "bar": "INVALID_PARTITIONS"}
    assert request.topic_partitions == [("foo", (4, None)), ("bar", (5, None))]


async def test_growing_a_topic_that_is_gone(brokers: FakeBrokers, admin: Admin) -> None:
    """An unknown topic is retried for a short time, then reported."""
    brokers.script(CREATE_PARTITIONS, *[says(0, [("foo", 3, None)])] * 50)
    results = await admin.grow_partitions({"foo": 4})

    assert codes(results) == {"foo": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert len(brokers.requests_of(CREATE_PARTITIONS)) < 10


async def test_topic_configs(brokers: FakeBrokers, admin: Admin) -> None:
    """Configs come with their source; a topic that may not be read is an error of its own."""
    rows = [("retention.ms", "-1", False, 1, False, []), ("new.thing", None, True, 99, True, [])]
    brokers.script(DESCRIBE_CONFIGS, says(0, [(0, None, 2, "foo", rows), (29, "no", 2, "bar", [])]))
    results = await admin.topic_configs(["foo", "bar"])

    assert results["bar"].name == "TOPIC_AUTHORIZATION_FAILED"
    assert results["foo"] == {
        "retention.ms": ConfigEntry("-1", ConfigSource.TOPIC),
        "new.thing": ConfigEntry(None, ConfigSource.UNKNOWN, is_read_only=True, is_sensitive=True),
    }


async def test_configs_by_key(brokers: FakeBrokers, admin: Admin) -> None:
    """Only the wanted keys are asked for, of topics in handy numbers."""
    brokers.script(
        DESCRIBE_CONFIGS,
        *[lambda _, request: request.RESPONSE_TYPE(0, [(0, None, 2, row[1], []) for row in request.resources])] * 3,
    )
    results = await admin.topic_configs([f"t{number}" for number in range(600)], ["max.message.bytes"])
    asked = [(len(request.resources), request.resources[0][2]) for _, request in brokers.requests_of(DESCRIBE_CONFIGS)]

    assert len(results) == 600
    assert asked == [(size, ["max.message.bytes"]) for size in (250, 250, 100)]


async def test_broker_configs(brokers: FakeBrokers, admin: Admin) -> None:
    """A broker is asked about itself; one that is down is passed over."""
    brokers.down = {0}
    row = ("message.max.bytes", "1048588", False, 5, False, [])
    brokers.script(
        DESCRIBE_CONFIGS,
        lambda node_id, request: request.RESPONSE_TYPE(0, [(0, None, 4, str(node_id), [row])]),
    )
    configs = await admin.broker_configs(["message.max.bytes"])

    assert (configs["message.max.bytes"].value, configs["message.max.bytes"].is_default) == ("1048588", True)


async def test_broker_configs_that_may_not_be_read(brokers: FakeBrokers, admin: Admin) -> None:
    """A refused request and an unreachable cluster are different errors."""
    brokers.script(DESCRIBE_CONFIGS, says(0, [(31, "no", 4, "0", [])]))
    with pytest.raises(BrokerAnsweredError, match="CLUSTER_AUTHORIZATION_FAILED"):
        await admin.broker_configs()
    brokers.down = {0, 1, 2}
    with pytest.raises(ClusterUnreachableError):
        await admin.broker_configs()
