"""What has to change at the target."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest

from mm2py.core.topics.topology import Action, CreateTopic, GrowPartitions, copyable, missing, select
from mm2py.model.flow import Flow, TopicPartition
from mm2py.policy.filters import DefaultTopicFilter
from mm2py.policy.replication import DefaultReplicationPolicy


FLOW = Flow("A", "B")


@pytest.mark.parametrize(
    ("source", "target", "actions"),
    [
        pytest.param({"t": 3}, {}, [CreateTopic("t", "A.t", 3)], id="no remote topic"),
        pytest.param({"t": 3}, {"A.t": 2}, [GrowPartitions("A.t", 2, 3)], id="the source grew"),
        pytest.param({"t": 3}, {"A.t": 3}, [], id="nothing to do"),
        pytest.param({"t": 3}, {"A.t": 5}, [], id="more partitions at the target"),
        pytest.param({}, {"A.t": 3}, [], id="gone at the source"),
    ],
)
def test_missing(source: Mapping[str, int], target: Mapping[str, int], actions: list[Action]) -> None:
    """Remote topics are created and grown, and never shrunk or deleted."""
    assert tuple(actions) == missing(dict.fromkeys(source, "A.t"), source, target)


def applied(action: Action, target: Mapping[str, int]) -> Mapping[str, int]:
    match action:
        case CreateTopic(_, remote_topic, partitions):
            return {**target, remote_topic: partitions}
        case GrowPartitions(remote_topic, _, after):
            return {**target, remote_topic: after}


def test_an_interrupted_plan_is_taken_up_again() -> None:
    """After any part of a plan was carried out, the plan from the new view leads to the same end."""
    source = {"a": 2, "b": 3, "c": 4}
    remote_of = {topic: f"A.{topic}" for topic in source}
    start = {"A.b": 1}
    actions = missing(remote_of, source, start)
    for done in range(len(actions) + 1):
        target: Mapping[str, int] = start
        for action in actions[:done]:
            target = applied(action, target)
        rest = missing(remote_of, source, target)

        assert actions[done:] == rest
        for action in rest:
            target = applied(action, target)
        assert missing(remote_of, source, target) == ()


def test_copyable_is_what_both_sides_have() -> None:
    """Only partitions that exist on both sides can be copied."""
    places = copyable({"t": "A.t", "u": "A.u"}, {"t": 3, "u": 1}, {"A.t": 2})

    assert {TopicPartition("t", 0): "A.t", TopicPartition("t", 1): "A.t"} == places


def test_select_names_what_the_flow_mirrors() -> None:
    """Topics that the filter takes get remote names; internal ones and cycles are left out."""
    topics = {"orders": 1, "B.orders": 1, "__consumer_offsets": 50, "skipped": 1, "heartbeats": 1}
    topic_filter = DefaultTopicFilter.of([".*"], ["skipped"])

    selected = select(topics, FLOW, DefaultReplicationPolicy(), topic_filter, heartbeats_replication_enabled=True)

    assert selected.remote_of == {"orders": "A.orders", "heartbeats": "A.heartbeats"}
    assert selected.clashes == {}


def test_topics_that_are_named_like_copies_are_known() -> None:
    """Those that the filter selects, and of which only the source's own alias makes copies."""
    topics = {"A.orders": 1, "C.A.orders": 1, "A.skipped": 1, "A.B.orders": 1, "orders": 1}
    topic_filter = DefaultTopicFilter.of([".*"], [".*skipped"])

    selected = select(topics, FLOW, DefaultReplicationPolicy(), topic_filter, heartbeats_replication_enabled=True)

    assert selected.named_like_copies == {"A.orders", "C.A.orders"}
    assert selected.remote_of == {"orders": "A.orders"}


@attrs.frozen
class _ShoutingPolicy(DefaultReplicationPolicy):
    """A policy that gives two topics one name."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}.{topic.upper()}"


def test_two_topics_never_share_a_remote_topic() -> None:
    """Of two topics with one remote name only the first is mirrored, and the other is named."""
    selected = select(
        {"Orders": 1, "orders": 1}, FLOW, _ShoutingPolicy(), DefaultTopicFilter.of([".*"]),
        heartbeats_replication_enabled=True,
    )  # fmt: skip

    assert selected.remote_of == {"Orders": "A.ORDERS"}
    assert selected.clashes == {"orders": "Orders"}
