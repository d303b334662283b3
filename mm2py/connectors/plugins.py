"""Classes in a flow's settings: its replication policy and topic filter; and its transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from mm2py.config.settings import FlowSettings
from mm2py.core.topics.topology import Selected, select
from mm2py.core.transform.matching import TopicTransforms
from mm2py.policy.filters import ConfigPropertyFilter, TopicFilter
from mm2py.policy.groups import GroupFilter
from mm2py.policy.plugins import (
    PluginError,
    load_config_property_filter,
    load_group_filter,
    load_policy,
    load_topic_filter,
)
from mm2py.policy.replication import ReplicationPolicy


def policy_of(settings: FlowSettings) -> ReplicationPolicy:
    """Return the replication policy of a flow. Raise `PluginError` if its class cannot be used."""
    return load_policy(
        settings.policy.class_name,
        source_alias=settings.flow.source,
        separator=settings.policy.separator,
        internal_separator_enabled=settings.policy.internal_separator_enabled,
        prefix=settings.policy.prefix,
        suffix=settings.policy.suffix,
    )


def topic_filter_of(settings: FlowSettings) -> TopicFilter:
    """Return the topic filter of a flow. Raise `PluginError` if its class cannot be used."""
    return load_topic_filter(
        settings.topics.filter_class, topics=settings.topics.names, topics_exclude=settings.topics.exclude
    )


def config_filter_of(settings: FlowSettings) -> ConfigPropertyFilter:
    """Return the filter of topic configs of a flow. Raise `PluginError` if its class cannot be used."""
    sync = settings.topic_sync
    return load_config_property_filter(
        sync.config_filter_class,
        config_properties_exclude=sync.configs_exclude,
        use_defaults_from=sync.use_defaults_from,
    )


def group_filter_of(settings: FlowSettings) -> GroupFilter:
    """Return the group filter of a flow. Raise `PluginError` if its class cannot be used."""
    chosen = settings.checkpoints
    return load_group_filter(chosen.group_filter_class, groups=chosen.groups, groups_exclude=chosen.groups_exclude)


def unusable_classes(settings: FlowSettings) -> Iterator[PluginError]:
    """Return why classes of a flow cannot be used."""
    for load in (policy_of, topic_filter_of, config_filter_of, group_filter_of):
        try:
            load(settings)
        except PluginError as error:
            yield error


def transforms_of(settings: FlowSettings) -> TopicTransforms:
    """Return the transforms of each topic; heartbeats are mirrored unchanged."""
    policy = policy_of(settings)
    by_policy = partial(policy.format_remote_topic, settings.flow.source)
    return TopicTransforms(settings.transforms, by_policy, policy.is_heartbeats_topic)


def selected_topics(settings: FlowSettings, source_topics: Mapping[str, int]) -> Selected:
    """Return what a flow mirrors of the topics that the source has, each with its number of partitions."""
    return select(
        source_topics,
        settings.flow,
        policy_of(settings),
        topic_filter_of(settings),
        heartbeats_replication_enabled=settings.topics.heartbeats_enabled,
        name_remote=remote_names_of(settings),
    )


def remote_names_of(settings: FlowSettings) -> Callable[[str], str]:
    """Return the naming of remote topics: the flow's routers, after the policy."""
    return transforms_of(settings).name_remote
