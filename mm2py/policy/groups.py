"""Which consumer groups a flow translates: by name, from two lists, and by the kind of group."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

import attrs

from mm2py.model.group import GroupListing, GroupType
from mm2py.model.patterns import NamePatterns


#: Protocol types of consumer groups; a group that merely commits has none.
_CONSUMERS = ("", "consumer")


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
