"""The changes at the target so that every mirrored topic-partition has a remote one. Remote topics are created with
their source's partition count, and grown when the source grows. A topic deleted at the source needs no action: its
remote topic stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, Self

import attrs

from mm2py.errors import Mm2Error, Verdict
from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.positions import Position
from mm2py.model.topic import MissingTopic, TopicDescription
from mm2py.policy.filters import TopicFilter
from mm2py.policy.replication import ReplicationPolicy
from mm2py.policy.selection import Selection, has_own_alias, judge_topic


#: How many of the topics that meet in one remote topic are named.
_NAMED = 3


@attrs.define(eq=False)
class NoRemoteNameError(Mm2Error):
    """The replication policy, or a router after it, leaves a topic without a name."""

    hint: ClassVar[str] = "correct its replication policy or RegexRouter, or exclude it with topics.exclude"

    topic: str

    def __str__(self) -> str:
        return f"topic {self.topic} has got no remote name"


@attrs.define(eq=False)
class CopyIntoItselfError(Mm2Error):
    """Both aliases of a flow name one cluster, and a topic would keep its name."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW
    hint: ClassVar[str] = (
        "give each cluster its own brokers, or copies names of their own: remote.topic.suffix = .mirror"
    )

    source: str
    target: str
    cluster_id: str
    topic: str

    def __str__(self) -> str:
        one = f"{self.source} and {self.target} are one cluster ({self.cluster_id})"
        return f"{one}: each record of topic {self.topic} would be copied into that topic again, without end"


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
class Copied:
    """What positions say of a flow's topics: which have one, and the remote topics that hold records of each."""

    topics: frozenset[str] = frozenset()
    homes: Mapping[str, frozenset[str]] = attrs.field(factory=dict)
    #: Those that we copied to a remote topic of which no position has the id or the name.
    unplaced: frozenset[str] = frozenset()
    target: frozenset[str] = frozenset()

    @classmethod
    def of(cls, positions: Iterable[Position], target: Mapping[str, TopicDescription]) -> Self:
        """Find the remote topics by id, or else by name: a topic that is not at the target any more holds nothing."""
        name_of: dict[str | None, str] = {it.topic_id: name for name, it in target.items() if it.topic_id is not None}
        topics, unplaced, homes = set[str](), set[str](), dict[str, set[str]]()
        for position in positions:
            topics.add(position.source.topic)
            home = position.remote_topic or name_of.get(position.remote_topic_id)
            if home is not None and home in target and position.downstream != -1:
                homes.setdefault(position.source.topic, set()).add(home)
            # Java, which keeps no downstream offset, names remote topics as it did before.
            is_named = position.remote_topic is not None or position.remote_topic_id is not None
            if not is_named and position.downstream not in (None, -1):
                unplaced.add(position.source.topic)
        found = {topic: frozenset(names) for topic, names in homes.items()}
        return cls(frozenset(topics), found, frozenset(unplaced - found.keys()), frozenset(target))


#: Of a flow that has copied nothing, or of which that is unknown.
NOTHING_COPIED = Copied()


@attrs.frozen
class Beside:
    """Another source connector of the pair: the remote topic of each topic that it selects, and of which topics it has
    positions.
    """

    connector: str
    #: Whether it comes before ours.
    is_first: bool
    remote_of: Mapping[str, str]
    holds: frozenset[str] = frozenset()


@attrs.frozen
class Selected:
    """What a flow mirrors: remote topic by topic; `refused` are topics whose records would get into a wrong place,
    `named_like_copies` those that the filter selects, but whose names have the source's own alias.
    """

    remote_of: Mapping[str, str]
    refused: Mapping[str, MissingTopic]
    named_like_copies: frozenset[str] = frozenset()


def select(
    source_topics: Mapping[str, int],
    flow: Flow,
    policy: ReplicationPolicy,
    topic_filter: TopicFilter,
    *,
    heartbeats_replication_enabled: bool,
    name_remote: Callable[[str], str] | None = None,
    name_before: Callable[[str], str] | None = None,
    copied: Copied = NOTHING_COPIED,
    beside: Sequence[Beside] = (),
) -> Selected:
    """Select the topics that *flow* mirrors and name their remote topics by *name_remote*, or else by the policy alone.
    *name_before* is how earlier versions named them. See `_judge_names`, and `_judge_beside`.
    """
    by_policy = partial(policy.format_remote_topic, flow.source)
    name_remote = name_remote or by_policy
    named: dict[str, str] = {}
    named_like_copies: set[str] = set()
    for topic in sorted(source_topics):
        selection = judge_topic(
            topic, flow, policy, topic_filter, heartbeats_replication_enabled=heartbeats_replication_enabled
        )
        if not selection.is_replicated:
            if selection is Selection.CYCLE and has_own_alias(topic, flow, policy) and topic_filter.takes_topic(topic):
                named_like_copies.add(topic)
            continue
        named[topic] = name_remote(topic)
        if not named[topic]:
            raise NoRemoteNameError(topic)
    former = {topic: ((name_before or by_policy)(topic), by_policy(topic)) for topic in copied.unplaced & named.keys()}
    failures = _judge_names(flow, named, copied, former)
    for topic, failure in _judge_beside({it: to for it, to in named.items() if it not in failures}, copied, beside):
        if policy.is_heartbeats_topic(topic):
            del named[topic]  # any source connector copies it, unless it is told not to: one of them is enough
        else:
            failures[topic] = failure
    refused = {
        topic: MissingTopic(topic, named[topic], 0, source_topics[topic], failure, is_refused=True)
        for topic, failure in failures.items()
    }
    remote_of = {topic: remote for topic, remote in named.items() if topic not in refused}
    return Selected(remote_of, refused, frozenset(named_like_copies))


def _judge_names(
    flow: Flow, named: Mapping[str, str], copied: Copied, former: Mapping[str, Sequence[str]]
) -> dict[str, PartitionFailure]:
    """Refuse topics that were copied to another remote topic, and those that would share one: their records would be
    mixed, and the copy could not be resumed. Of these one that is copied already goes on.
    """
    refused: dict[str, PartitionFailure] = {}
    claims: dict[str, list[str]] = {}
    for topic, remote in named.items():
        for home, message in _elsewhere(topic, remote, copied, former.get(topic, ())):
            refused.setdefault(topic, _moved(flow, topic, home, remote, message))
            claims.setdefault(home, []).append(topic)
        if topic not in refused:
            claims.setdefault(remote, []).append(topic)
    for remote, topics in claims.items():
        first = [topic for topic in topics if topic in copied.topics]
        keeper = first[0] if len(first) == 1 else None
        for topic in topics if len(topics) > 1 else ():
            if topic not in refused and topic != keeper:
                others = [other for other in topics if other != topic]
                refused[topic] = _shared(topic, others, remote, keeper)
    return refused


def _judge_beside(
    named: Mapping[str, str], copied: Copied, beside: Iterable[Beside]
) -> Iterator[tuple[str, PartitionFailure]]:
    """Refuse topics whose remote one another source connector of the pair writes: the one that copied such a topic
    until now goes on, or else the first one.
    """
    for other in beside:
        topic_of = {remote: topic for topic, remote in other.remote_of.items()}
        for topic, remote in named.items():
            theirs = topic_of.get(remote)
            if theirs is None:
                continue
            holds, is_held = topic in copied.topics, theirs in other.holds
            if is_held if holds != is_held else other.is_first:
                yield topic, _written_by(topic, remote, other.connector)


def _written_by(topic: str, remote: str, connector: str) -> PartitionFailure:
    message = f"topic {topic} would go to {remote}, which connector {connector} of the same clusters writes"
    hint = "exclude it from one of both with topics.exclude, or give them remote topics with other names"
    return PartitionFailure(message, hint, "ConnectorsMeet")


def _elsewhere(topic: str, remote: str, copied: Copied, former: Sequence[str]) -> Iterator[tuple[str, str]]:
    """
    Return the other remote topics that a topic was copied to, each with what is known of that.

    Brokers from before 2.8 give topics no ids, and earlier versions stored no names instead: then a topic was copied
    elsewhere if the target lacks the remote topic of now, and has one of the *former* names.
    """
    for home in sorted(copied.homes.get(topic, frozenset()) - {remote}):
        yield home, f"topic {topic} was copied to {home}, and would go to {remote} now"
    for home in dict.fromkeys(former if remote not in copied.target else ()):
        if home in copied.target:
            known = f"topic {topic} was copied, but its positions do not say where to"
            yield home, f"{known}; the target has {home}, and not {remote}, where it would go now"


def _moved(flow: Flow, topic: str, home: str, remote: str, message: str) -> PartitionFailure:
    regex = remote.replace(".", "[.]")
    hint = (
        f"to go on in {home}, end the flow's transforms with a RegexRouter from {regex} to {home}; to copy all of it "
        f"to {remote}, stop the flow and remove its positions: mm2py offsets reset mm2.properties '{flow}' "
        f"--topics {topic} --remove"
    )
    return PartitionFailure(message, hint, "TopicMoved")


def _shared(topic: str, others: Sequence[str], remote: str, keeper: str | None) -> PartitionFailure:
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    message = f"topics {topic} and {', '.join(others[:_NAMED])}{more} would all go to {remote}"
    if keeper is not None:
        message += f", to which {keeper} is copied already"
    hint = "give them names of their own, or exclude all but one with topics.exclude"
    return PartitionFailure(message, hint, "TopicsMeet")


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
