"""Which topics a flow takes, and which of their configurations: by name, from lists of regular expressions."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

import attrs

from mm2py.model.patterns import NamePatterns


class TopicFilter(Protocol):
    """Decides by name whether a flow shall mirror a topic."""

    def takes_topic(self, topic: str) -> bool:
        """Whether *topic* is wanted."""
        ...


class Taken(enum.Enum):
    """What the two lists say about a name."""

    INCLUDED = "included"
    NOT_INCLUDED = "not included"
    EXCLUDED = "excluded"


@attrs.frozen
class DefaultTopicFilter:
    """Takes what ``topics`` matches and ``topics.exclude`` does not: exclusion beats inclusion."""

    included: NamePatterns
    excluded: NamePatterns

    @classmethod
    def of(cls, topics: Sequence[str], topics_exclude: Sequence[str] = ()) -> DefaultTopicFilter:
        """Compile both lists. Raise `mm2py.model.patterns.PatternError` for a broken member."""
        return cls(NamePatterns.compile(topics), NamePatterns.compile(topics_exclude))

    def judge(self, topic: str) -> Taken:
        """Return what the lists make of *topic*."""
        if self.excluded.matches(topic):
            return Taken.EXCLUDED
        return Taken.INCLUDED if self.included.matches(topic) else Taken.NOT_INCLUDED

    def takes_topic(self, topic: str) -> bool:
        return self.judge(topic) is Taken.INCLUDED


class ConfigPropertyFilter(Protocol):
    """Decides by name which configurations of a topic its remote topic shall have."""

    def takes_config(self, key: str) -> bool:
        """Whether the configuration *key* is copied."""
        ...

    def takes_source_default(self, key: str) -> bool:
        """Whether the value of *key* is copied even where it is the source's default."""
        ...


#: The topic's names of what Kafka's own list of exclusions calls by the brokers' names.
_BROKER_NAMES = {
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
}


def is_ruled_out(chosen: ConfigPropertyFilter, key: str) -> bool:
    """
    Whether somebody decided against copying *key*, so that it is not set for another reason either.

    MirrorMaker's own list, which names brokers' configurations, is no such decision; one that names the topic's is, and
    so is a filter of one's own.
    """
    if isinstance(chosen, DefaultConfigPropertyFilter):
        return chosen.excluded.matches(key)
    return not chosen.takes_config(key)


@attrs.frozen
class DefaultConfigPropertyFilter:
    """
    Takes all but what ``config.properties.exclude`` matches.

    MirrorMaker 2's default list means to leave out the limits on timestamps, because a target with such limits refuses
    old records; but it names two of them as brokers do, so that Java copies them. Here the brokers' name of a limit
    stands for the topic's too.
    """

    excluded: NamePatterns
    use_defaults_from: str = "target"

    @classmethod
    def of(cls, config_properties_exclude: Sequence[str], use_defaults_from: str) -> DefaultConfigPropertyFilter:
        """Compile the list. Raise `mm2py.model.patterns.PatternError` for a broken member."""
        return cls(NamePatterns.compile(config_properties_exclude), use_defaults_from)

    def takes_config(self, key: str) -> bool:
        return not self.excluded.matches(key) and not self.excluded.matches(_BROKER_NAMES.get(key, key))

    def takes_source_default(self, key: str) -> bool:  # noqa: ARG002 - a filter of one's own may ask
        return self.use_defaults_from == "source"
