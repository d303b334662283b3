"""The changes at the target so that every mirrored topic-partition has a remote one. Remote topics are created with
their source's partition count, and grown when the source grows. A topic deleted at the source needs no action: its
remote topic stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar

import attrs

from mm2py.errors import Mm2Error
from mm2py.model.flow import Flow, TopicPartition
from mm2py.policy.filters import TopicFilter
from mm2py.policy.replication import ReplicationPolicy
from mm2py.policy.selection import Selection, has_own_alias, judge_topic


@attrs.define(eq=False)
class NoRemoteNameError(Mm2Error):
    """The replication policy, or a router after it, leaves a topic without a name."""

    hint: ClassVar[str] = "correct its replication policy or RegexRouter, or exclude it with topics.exclude"

    topic: str

    def __str__(self) -> str:
        return f"topic {self.topic} has got no remote name"


@attrs.frozen
class CreateTopic:
    """Create the remote topic of *topic*."""

    topic: str
    remote_topic: str
    partitions: int
    #: What it is a part of, and why it is due, in the words of the log.
    step: ClassVar[str] = "create remote topics"
    reason: ClassVar[str] = "the source has the topic, the target has no remote topic of it"


@attrs.frozen
class GrowPartitions:
    """Add the missing partitions of its source to a remote topic."""

    remote_topic: str
    before: int
    after: int
    step: ClassVar[str] = "grow remote topics"
    reason: ClassVar[str] = "the source has more partitions than the remote topic"


Action = CreateTopic | GrowPartitions


@attrs.frozen
class Selected:
    """What a flow mirrors: remote topic by topic; `clashes` are topics excluded because another has the same remote
    name, `named_like_copies` those that the filter selects, but whose names have the source's own alias.
    """

    remote_of: Mapping[str, str]
    clashes: Mapping[str, str]
    named_like_copies: frozenset[str] = frozenset()


def select(
    source_topics: Mapping[str, int],
    flow: Flow,
    policy: ReplicationPolicy,
    topic_filter: TopicFilter,
    *,
    heartbeats_replication_enabled: bool,
    name_remote: Callable[[str], str] | None = None,
) -> Selected:
    """Select the topics that *flow* mirrors and name their remote topics by *name_remote*, or else by the policy alone.
    Two topics with one remote name would be mixed: the first in order keeps it.
    """
    name_remote = name_remote or partial(policy.format_remote_topic, flow.source)
    remote_of: dict[str, str] = {}
    clashes: dict[str, str] = {}
    named_like_copies: set[str] = set()
    taken: dict[str, str] = {}
    for topic in sorted(source_topics):
        selection = judge_topic(
            topic, flow, policy, topic_filter, heartbeats_replication_enabled=heartbeats_replication_enabled
        )
        if not selection.is_replicated:
            if selection is Selection.CYCLE and has_own_alias(topic, flow, policy) and topic_filter.takes_topic(topic):
                named_like_copies.add(topic)
            continue
        remote_topic = name_remote(topic)
        if not remote_topic:
            raise NoRemoteNameError(topic)
        if remote_topic in taken:
            clashes[topic] = taken[remote_topic]
            continue
        taken[remote_topic] = topic
        remote_of[topic] = remote_topic
    return Selected(remote_of, clashes, frozenset(named_like_copies))


def missing(
    remote_of: Mapping[str, str], source_topics: Mapping[str, int], target_topics: Mapping[str, int]
) -> tuple[Action, ...]:
    """Return what the target lacks; both views give the number of partitions by topic."""
    actions: list[Action] = []
    for topic, remote_topic in sorted(remote_of.items()):
        wanted, found = source_topics.get(topic, 0), target_topics.get(remote_topic)
        if found is None and wanted:
            actions.append(CreateTopic(topic, remote_topic, wanted))
        elif found is not None and found < wanted:
            actions.append(GrowPartitions(remote_topic, found, wanted))
    return tuple(actions)


def copyable(
    remote_of: Mapping[str, str], source_topics: Mapping[str, int], target_topics: Mapping[str, int]
) -> dict[TopicPartition, str]:
    """Return the remote topic of each topic-partition that exists on both sides."""
    return {
        TopicPartition(topic, partition): remote_topic
        for topic, remote_topic in sorted(remote_of.items())
        for partition in range(min(source_topics.get(topic, 0), target_topics.get(remote_topic, 0)))
    }
