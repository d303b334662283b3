"""Classes in a connector's config: its replication policy and filters; and its transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from mm2py.config.connector import ConnectorConfig, MirrorCheckpointConfig, MirrorSourceConfig
from mm2py.config.settings import FlowSettings
from mm2py.core.topics.topology import Selected, select
from mm2py.core.transform.matching import TopicTransforms
from mm2py.policy.filters import ConfigPropertyFilter, GroupFilter, TopicFilter
from mm2py.policy.plugins import (
    PluginError,
    load_config_property_filter,
    load_group_filter,
    load_policy,
    load_topic_filter,
)
from mm2py.policy.replication import ReplicationPolicy


def policy_of(config: ConnectorConfig) -> ReplicationPolicy:
    """Return the replication policy of a connector. Raise `PluginError` if its class cannot be used."""
    return load_policy(
        config.policy.class_name,
        source_alias=config.flow.source,
        separator=config.policy.separator,
        internal_separator_enabled=config.policy.internal_separator_enabled,
        prefix=config.policy.prefix,
        suffix=config.policy.suffix,
    )


def topic_filter_of(config: MirrorSourceConfig | MirrorCheckpointConfig) -> TopicFilter:
    """Return the topic filter of a connector. Raise `PluginError` if its class cannot be used."""
    return load_topic_filter(
        config.topics.filter_class, topics=config.topics.names, topics_exclude=config.topics.exclude
    )


def config_filter_of(config: MirrorSourceConfig) -> ConfigPropertyFilter:
    """Return the filter of topic configs of a connector. Raise `PluginError` if its class cannot be used."""
    sync = config.topic_sync
    return load_config_property_filter(
        sync.config_filter_class,
        config_properties_exclude=sync.configs_exclude,
        use_defaults_from=sync.use_defaults_from,
    )


def group_filter_of(config: MirrorCheckpointConfig) -> GroupFilter:
    """Return the group filter of a connector. Raise `PluginError` if its class cannot be used."""
    return load_group_filter(config.group_filter_class, groups=config.groups, groups_exclude=config.groups_exclude)


def unusable_classes(settings: FlowSettings) -> Iterator[PluginError]:
    """Return why classes of a flow cannot be used."""
    source, checkpoint = settings.source_connector, settings.checkpoint_connector
    loads: tuple[Callable[[], object], ...] = (
        partial(policy_of, source),
        partial(topic_filter_of, source),
        partial(group_filter_of, checkpoint),
        partial(config_filter_of, source),
    )
    for load in loads:
        try:
            load()
        except PluginError as error:
            yield error


def transforms_of(config: MirrorSourceConfig | MirrorCheckpointConfig) -> TopicTransforms:
    """Return the transforms of each topic; heartbeats are mirrored unchanged."""
    policy = policy_of(config)
    by_policy = partial(policy.format_remote_topic, config.flow.source)
    return TopicTransforms(config.transforms, by_policy, policy.is_heartbeats_topic)


def selected_topics(config: MirrorSourceConfig, source_topics: Mapping[str, int]) -> Selected:
    """Return what a flow mirrors of the topics that the source has, each with its number of partitions."""
    return select(
        source_topics,
        config.flow,
        policy_of(config),
        topic_filter_of(config),
        heartbeats_replication_enabled=config.topics.heartbeats_enabled,
        name_remote=remote_names_of(config),
    )


def remote_names_of(config: MirrorSourceConfig | MirrorCheckpointConfig) -> Callable[[str], str]:
    """Return the naming of remote topics: the flow's routers, after the policy."""
    return transforms_of(config).name_remote
