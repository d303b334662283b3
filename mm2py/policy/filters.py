"""Which topics a flow mirrors, which of their configurations, and which consumer groups it translates: by name, from
lists of regular expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from mm2py.model.patterns import NamePatterns


class TopicFilter(Protocol):
    """Decides by name whether a flow mirrors a topic."""

    def takes_topic(self, topic: str) -> bool:
        """Whether *topic* is selected."""
        ...


@attrs.frozen
class DefaultTopicFilter:
    """Selects what ``topics`` matches and ``topics.exclude`` does not: exclusion takes precedence."""

    included: NamePatterns
    excluded: NamePatterns

    @classmethod
    def of(cls, topics: Sequence[str], topics_exclude: Sequence[str] = ()) -> DefaultTopicFilter:
        """Compile both lists. Raise `mm2py.model.patterns.PatternError` for an invalid member."""
        return cls(NamePatterns.compile(topics), NamePatterns.compile(topics_exclude))

    def takes_topic(self, topic: str) -> bool:
        return self.included.matches(topic) and not self.excluded.matches(topic)


class GroupFilter(Protocol):
    """Decides by name whether a flow translates a group's offsets."""

    def takes_group(self, group: str) -> bool:
        """Whether *group* is selected."""
        ...


@attrs.frozen
class DefaultGroupFilter:
    """Selects what ``groups`` matches and ``groups.exclude`` does not: exclusion takes precedence."""

    included: NamePatterns
    excluded: NamePatterns

    @classmethod
    def of(cls, groups: Sequence[str], groups_exclude: Sequence[str] = ()) -> DefaultGroupFilter:
        """Compile both lists. Raise `mm2py.model.patterns.PatternError` for an invalid member."""
        return cls(NamePatterns.compile(groups), NamePatterns.compile(groups_exclude))

    def takes_group(self, group: str) -> bool:
        return self.included.matches(group) and not self.excluded.matches(group)


class ConfigPropertyFilter(Protocol):
    """Decides by name which configurations of a topic are copied to its remote topic."""

    def takes_config(self, key: str) -> bool:
        """Whether the configuration *key* is copied."""
        ...

    def takes_source_default(self, key: str) -> bool:
        """Whether the value of *key* is copied even if it is the source's default."""
        ...


#: The topic-level names of configs that Kafka's default exclusions list by the brokers' names.
_BROKER_NAMES = {
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
}


def is_ruled_out(chosen: ConfigPropertyFilter, key: str) -> bool:
    """Whether the operator excluded *key*, so that it is not set for another reason either. MirrorMaker's default
    list, which has the brokers' names, does not count; a list with the topic-level name does, and so does a custom
    filter.
    """
    if isinstance(chosen, DefaultConfigPropertyFilter):
        return chosen.excluded.matches(key)
    return not chosen.takes_config(key)


@attrs.frozen
class DefaultConfigPropertyFilter:
    """Selects all but what ``config.properties.exclude`` matches. MirrorMaker 2's default list is meant to exclude the
    timestamp limits, because a target with such limits rejects old records; but it has the brokers' names of two of
    them, so Java copies them. Here the brokers' name of a limit covers the topic's too.
    """

    excluded: NamePatterns
    use_defaults_from: str = "target"

    @classmethod
    def of(cls, config_properties_exclude: Sequence[str], use_defaults_from: str) -> DefaultConfigPropertyFilter:
        """Compile the list. Raise `mm2py.model.patterns.PatternError` for an invalid member."""
        return cls(NamePatterns.compile(config_properties_exclude), use_defaults_from)

    def takes_config(self, key: str) -> bool:
        return not self.excluded.matches(key) and not self.excluded.matches(_BROKER_NAMES.get(key, key))

    def takes_source_default(self, key: str) -> bool:  # noqa: ARG002 - a filter of one's own may ask
        return self.use_defaults_from == "source"
