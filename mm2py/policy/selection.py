"""Whether a flow mirrors a topic, or translates a consumer group, and why not."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Collection, Iterable, Iterator, Sequence

from mm2py.model.flow import Flow
from mm2py.model.group import GroupListing, GroupType
from mm2py.model.patterns import compile_java
from mm2py.model.topic import Unmatched, is_topic_name
from mm2py.policy.filters import DefaultTopicFilter, GroupFilter, TopicFilter
from mm2py.policy.replication import ReplicationPolicy, keeps_names, names_source


_NAMED = 5
#: The most pairs of a member and a name to compare, which takes some 0.1 s.
_MOST_COMPARED = 10_000
#: Protocol types of consumer groups; a group that merely commits has none.
_CONSUMERS = ("", "consumer")


class Selection(enum.Enum):
    """Why a topic is mirrored, or not."""

    REPLICATED = "the topic filter selects it"
    HEARTBEATS = "heartbeats are mirrored regardless of the topic filter"
    INTERNAL = "it is internal to Kafka or to a mirror"
    CYCLE = "it has been at one of the two clusters before"
    NOT_INCLUDED = "the topic filter does not select it"
    EXCLUDED = "topics.exclude matches it"

    @property
    def is_replicated(self) -> bool:
        """Whether the flow mirrors the topic."""
        return self in {Selection.REPLICATED, Selection.HEARTBEATS}


def judge_topic(
    topic: str,
    flow: Flow,
    policy: ReplicationPolicy,
    topic_filter: TopicFilter,
    *,
    heartbeats_replication_enabled: bool = True,
) -> Selection:
    """Decide whether *flow* mirrors *topic* of its source cluster. Reasons that no setting can change come first."""
    if policy.is_internal_topic(topic):
        return Selection.INTERNAL
    if is_cycle(topic, flow, policy):
        return Selection.CYCLE
    selection = _judge_by_filter(topic, topic_filter)
    if not selection.is_replicated and heartbeats_replication_enabled and policy.is_heartbeats_topic(topic):
        return Selection.HEARTBEATS
    return selection


def is_cycle(topic: str, flow: Flow, policy: ReplicationPolicy) -> bool:
    """Return whether mirroring *topic* on *flow* would create a cycle, from its hops. A name with the target came from
    there. One with the source, on the source itself, went round a ring or belongs to another cluster with that alias
    (Kafka 4.4's wider rule, KAFKA-9914): without it, two processes that have the same aliases for opposite clusters
    mirror each other's copies under ever longer names. Under a policy that keeps names every topic appears to come from
    the source, so that proves nothing.
    """
    seen = {flow.target} if keeps_names(policy, flow.source) else {flow.source, flow.target}
    return not seen.isdisjoint(_hops(topic, policy))


def has_own_alias(topic: str, flow: Flow, policy: ReplicationPolicy) -> bool:
    """Return whether nothing but the source's own alias makes *topic* a cycle: it may have got that name at the source.
    Java MirrorMaker before Kafka 4.4 mirrors it.
    """
    hops = set(_hops(topic, policy))
    return flow.source in hops and flow.target not in hops and names_source(policy, flow.aliases)


def _hops(topic: str, policy: ReplicationPolicy) -> Iterator[str]:
    """Return the clusters that *topic* came through, the last one first."""
    hop: str | None = topic
    while hop is not None and (source := policy.topic_source(hop)) is not None:
        yield source
        upstream = policy.upstream_topic(hop)
        hop = None if upstream == hop else upstream


def near_misses(wanted: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that members of a list, names or regular expressions, were most likely meant to match. Only the
    first ones are compared if there are very many.
    """
    topics = sorted(names)[:_MOST_COMPARED]
    members = list(wanted)[: max(1, _MOST_COMPARED // max(1, len(topics)))]
    found = (near for member in members for near in difflib.get_close_matches(member, topics, n=2, cutoff=0.75))
    # "orders" for orders-2024 and orders-2025 overlooks that a member must match the whole name.
    beginning = (topic for member in members for topic in topics if len(member) > 1 and topic.startswith(member))
    return tuple(dict.fromkeys((*found, *beginning)))[:_NAMED]


def unmatched(
    wanted: Sequence[str], topic_filter: TopicFilter, names: Collection[str], *, is_idle: bool
) -> Unmatched | None:
    """Return what of *wanted*, the list of topics, finds nothing among *names*; of expressions only whether all do."""
    is_default = isinstance(topic_filter, DefaultTopicFilter)
    absent = [it for it in wanted if is_topic_name(it) and it not in names] if is_default else []
    # A dot is any character: it may be meant so.
    absent = [it for it in absent if "." not in it or not any(map(compile_java(it).fullmatch, names))]
    if not absent and not is_idle:
        return None
    return Unmatched(len(names), tuple(absent), near_misses(wanted if is_idle else absent, names), is_idle)


def _judge_by_filter(topic: str, topic_filter: TopicFilter) -> Selection:
    if topic_filter.takes_topic(topic):
        return Selection.REPLICATED
    is_excluded = isinstance(topic_filter, DefaultTopicFilter) and topic_filter.excluded.matches(topic)
    return Selection.EXCLUDED if is_excluded else Selection.NOT_INCLUDED


class GroupSelection(enum.Enum):
    """Why a group's offsets are translated, or not."""

    TRANSLATED = "the group filter selects it"
    FILTERED = "the group filter does not select it"
    SHARE = "a share group: it has no offset per partition that could be translated"
    STREAMS = "a group of the streams protocol: its state and topology would have to move along"
    OTHER_PROTOCOL = "not a consumer group: it has another protocol type, such as Connect's"
    UNKNOWN_TYPE = "a type of group that this version does not know"

    @property
    def is_worth_telling(self) -> bool:
        """Whether an operator who set the filter would be surprised."""
        return self not in {GroupSelection.TRANSLATED, GroupSelection.FILTERED}


def judge_group(listing: GroupListing, group_filter: GroupFilter) -> GroupSelection:
    """Decide whether a group is translated: MirrorMaker's rule, with the reason if it is not."""
    if not group_filter.takes_group(listing.group):
        return GroupSelection.FILTERED
    match listing.type:
        case GroupType.SHARE:
            return GroupSelection.SHARE
        case GroupType.STREAMS:
            return GroupSelection.STREAMS
        case GroupType.UNKNOWN:
            return GroupSelection.UNKNOWN_TYPE
        case GroupType.CLASSIC | GroupType.CONSUMER:
            is_of_consumers = listing.protocol_type in _CONSUMERS
            return GroupSelection.TRANSLATED if is_of_consumers else GroupSelection.OTHER_PROTOCOL
