"""Which topics a flow takes: by name, from two lists of names and regular expressions."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

import attrs

from mm2py.model.patterns import NamePatterns


class TopicFilter(Protocol):
    """Decides by name whether a flow shall mirror a topic."""

    def takes_topic(self, topic: str) -> bool:
        """Say whether *topic* is wanted."""
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
        """Say what the lists make of *topic*."""
        if self.excluded.matches(topic):
            return Taken.EXCLUDED
        return Taken.INCLUDED if self.included.matches(topic) else Taken.NOT_INCLUDED

    def takes_topic(self, topic: str) -> bool:
        return self.judge(topic) is Taken.INCLUDED
