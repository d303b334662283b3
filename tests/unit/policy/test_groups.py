"""Which consumer groups are translated."""

from __future__ import annotations

import pytest

from mm2py.model.group import GroupListing, GroupType
from mm2py.model.patterns import PatternError
from mm2py.policy.filters import DefaultGroupFilter
from mm2py.policy.selection import GroupSelection, judge_group


ALL = DefaultGroupFilter.of([".*"])


@pytest.mark.parametrize(
    ("groups", "exclude", "group", "expected"),
    [
        ([".*"], [], "anything", True),
        ([], [], "anything", False),
        (["a", "b-.*"], [], "b-1", True),
        (["a", "b-.*"], [], "ab-1", False),
        ([".*"], ["console-consumer-.*", "connect-.*", "__.*"], "console-consumer-7", False),
        ([".*"], ["a"], "ab", True),
        (["a"], ["a"], "a", False),
    ],
)
def test_group_matching(groups: list[str], exclude: list[str], group: str, *, expected: bool) -> None:
    """The whole name must match, and exclusion beats inclusion (MirrorCheckpointConfigTest.testGroupMatching)."""
    assert DefaultGroupFilter.of(groups, exclude).takes_group(group) is expected


@pytest.mark.parametrize(
    ("kind", "protocol", "expected"),
    [
        (GroupType.CLASSIC, "consumer", GroupSelection.TRANSLATED),
        (GroupType.CLASSIC, "", GroupSelection.TRANSLATED),
        (GroupType.CONSUMER, "consumer", GroupSelection.TRANSLATED),
        (GroupType.CLASSIC, "connect", GroupSelection.OTHER_PROTOCOL),
        (GroupType.SHARE, "share", GroupSelection.SHARE),
        (GroupType.STREAMS, "streams", GroupSelection.STREAMS),
        (GroupType.of("something new"), "", GroupSelection.UNKNOWN_TYPE),
    ],
)
def test_only_groups_of_consumers_count(kind: GroupType, protocol: str, expected: GroupSelection) -> None:
    """MirrorMaker's rule, with a reason for each kind that is left out (testFindConsumerGroups)."""
    selection = judge_group(GroupListing("g", kind, protocol), ALL)

    assert selection is expected
    assert selection.is_worth_telling is (expected is not GroupSelection.TRANSLATED)


def test_what_the_filter_leaves_out_is_not_worth_a_word() -> None:
    """The operator who set the filter knows which groups it leaves out."""
    selection = judge_group(GroupListing("g", GroupType.SHARE, "share"), DefaultGroupFilter.of(["other"]))

    assert selection is GroupSelection.FILTERED
    assert not selection.is_worth_telling


def test_a_broken_pattern_is_refused() -> None:
    """As in the topic filter."""
    with pytest.raises(PatternError):
        DefaultGroupFilter.of(["("])
