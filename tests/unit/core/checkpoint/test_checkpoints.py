"""Which checkpoints are due and which group offsets are written; Java's test of the same behaviour is in brackets."""

from __future__ import annotations

import attrs
import pytest

from mm2py.core.checkpoint.checkpoints import (
    AtTarget,
    Emission,
    LogRange,
    due_offsets,
    is_offset_due,
    is_own_move,
    judge_checkpoint,
    judge_committed,
    judge_group_at_target,
)
from mm2py.model.checkpoint import Checkpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset, GroupDescription, GroupType, OffsetAtTarget


REMOTE = TopicPartition("A.foo", 0)
OTHER = TopicPartition("A.foo", 1)


def checkpoint(upstream: int, downstream: int) -> Checkpoint:
    return Checkpoint("g", REMOTE, upstream, downstream)


@pytest.mark.parametrize(
    ("last", "new", "expected"),
    [
        (None, (0, 0), Emission.FIRST),
        (None, (7, 7), Emission.FIRST),
        ((10, 10), (11, 11), Emission.ADVANCED),
        ((10, 10), (11, 10), Emission.UNCHANGED),
        ((10, 10), (10, 10), Emission.UNCHANGED),
        ((10, 10), (9, 9), Emission.REWOUND),
        ((10, 10), (9, 12), Emission.REWOUND),
        ((10, 10), (10, 9), Emission.CORRECTED),
        ((10, 10), (12, 9), Emission.CORRECTED),
        ((10, 101), (12, 9), Emission.TARGET_SHORTER),
        ((10, 100), (12, 9), Emission.CORRECTED),
    ],
)
def test_what_makes_a_checkpoint_due(last: tuple[int, int] | None, new: tuple[int, int], expected: Emission) -> None:
    """
    First, back at the source, on at the target: due. Worse at the target: only if it is exact, or the target is shorter
    (testCheckpoint). An estimate that is worse is no news.
    """
    before = checkpoint(*last) if last else None
    of_estimate = Emission.HELD_BACK if expected is Emission.CORRECTED else expected

    assert judge_checkpoint(before, checkpoint(*new), end=100) is expected
    assert judge_checkpoint(before, checkpoint(*new), end=100, is_exact=False) is of_estimate


@pytest.mark.parametrize("new", [(9, 9), (10, 10), (12, 9), (12, 12), (0, 0)])
def test_the_first_of_another_topic_is_due_whatever_was_before(new: tuple[int, int]) -> None:
    """The remote topic was created again: what was written is of the former one, which may have been longer."""
    last = attrs.evolve(checkpoint(10, 10), topic_id="one")
    of_same, of_other = (attrs.evolve(checkpoint(*new), topic_id=topic_id) for topic_id in ("one", "two"))

    for is_exact in (True, False):
        assert judge_checkpoint(last, of_other, end=100, is_exact=is_exact) is Emission.OTHER_TOPIC
        assert judge_checkpoint(last, of_same, end=100, is_exact=is_exact) is not Emission.OTHER_TOPIC


def test_what_was_never_mirrored_has_no_checkpoint() -> None:
    """
    A group at 0 of a partition whose copy is empty: Java has no checkpoint of it either, and its own translation test
    takes the first one for the answer. With the first record it is due.
    """
    assert judge_checkpoint(None, checkpoint(0, 0), end=0) is Emission.EMPTY
    assert judge_checkpoint(None, checkpoint(0, 0), end=1) is Emission.FIRST
    assert judge_checkpoint(None, checkpoint(7, 0), end=0) is Emission.FIRST


def test_checkpoints_stay_monotonic_if_the_translation_rewinds() -> None:
    """A group that goes on is never sent back by worse translations (testCheckpointRecordsMonotonicIfStoreRewinds)."""
    translations = [(10, 10), (20, 20), (30, 5), (40, 19), (50, 20), (60, 21), (70, 0), (80, 80)]
    written: list[Checkpoint] = []
    for upstream, downstream in translations:
        new = checkpoint(upstream, downstream)
        if judge_checkpoint(written[-1] if written else None, new, end=100, is_exact=False).is_due:
            written.append(new)

    assert [it.downstream for it in written] == [10, 20, 21, 80]


def test_a_restart_continues_the_checkpoints_that_are_there() -> None:
    """What was written in an earlier life counts (testCheckpointsTaskRestartUsesExistingCheckpoints)."""
    from_topic = checkpoint(200, 180)

    assert judge_checkpoint(from_topic, checkpoint(210, 90), end=1000, is_exact=False) is Emission.HELD_BACK
    assert judge_checkpoint(from_topic, checkpoint(210, 190), end=1000) is Emission.ADVANCED


def test_without_the_history_only_exact_translations_are_written() -> None:
    """An estimate might fall behind what an earlier life wrote; an exact translation cannot."""
    new = checkpoint(10, 5)

    assert judge_checkpoint(None, new, end=9, is_exact=False, knows_history=False) is Emission.UNCERTAIN
    assert judge_checkpoint(None, new, end=9, is_exact=True, knows_history=False) is Emission.FIRST
    assert judge_checkpoint(None, new, end=9, is_exact=False, knows_history=True) is Emission.FIRST


@pytest.mark.parametrize(("offset", "expected"), [(0, 5), (5, 5), (7, 7), (9, 9), (12, 9)])
def test_offsets_are_cut_to_what_the_log_holds(offset: int, expected: int) -> None:
    """No group is sent before the log's start, or behind its end: there a consumer would be reset to anywhere."""
    assert LogRange(5, 9).clamp(offset) == expected


def described(
    state: str = "Empty", *, members: int = 0, protocol: str = "consumer", kind: GroupType = GroupType.CLASSIC
) -> GroupDescription:
    return GroupDescription("g", kind, protocol, state, members, exists=state != "Dead")


NOTHING: dict[TopicPartition, CommittedOffset] = {}
HELD = {REMOTE: CommittedOffset(7)}


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        (described(), AtTarget.IDLE),
        (described("Dead", protocol=""), AtTarget.IDLE),
        (described(kind=GroupType.CONSUMER), AtTarget.IDLE),
        (described("Stable", members=1), AtTarget.ACTIVE),
        (described("PreparingRebalance"), AtTarget.ACTIVE),
        (described("CompletingRebalance", members=2), AtTarget.ACTIVE),
        (described("Assigning", members=1, kind=GroupType.CONSUMER), AtTarget.ACTIVE),
        (described("Reconciling", members=1, kind=GroupType.CONSUMER), AtTarget.ACTIVE),
        (described("Unknown"), AtTarget.ACTIVE),
        (described("Empty", members=1), AtTarget.ACTIVE),
        (described(protocol="connect"), AtTarget.OTHER_PROTOCOL),
        (described(kind=GroupType.SHARE), AtTarget.OTHER_PROTOCOL),
        (None, AtTarget.UNKNOWN),
    ],
)
def test_only_a_group_that_is_shown_to_be_idle_is_written(
    description: GroupDescription | None, expected: AtTarget
) -> None:
    """KAFKA-19794: a failed description, or any state but empty and dead, means: hands off."""
    assert judge_group_at_target(description, NOTHING, ours={}, seen=None) is expected


def test_a_group_whose_offsets_cannot_be_read_is_left_alone() -> None:
    """Who does not know what is there cannot know that it goes forward."""
    assert judge_group_at_target(described(), None, ours={}, seen=None) is AtTarget.UNKNOWN


@pytest.mark.parametrize(
    ("ours", "seen", "expected"),
    [
        ({}, None, AtTarget.WATCHED),
        ({REMOTE: 7}, None, AtTarget.IDLE),
        ({REMOTE: 6}, None, AtTarget.WATCHED),
        ({REMOTE: 7}, {REMOTE: 6}, AtTarget.IN_USE),
        ({REMOTE: 6}, {REMOTE: 7}, AtTarget.IDLE),
        ({}, {}, AtTarget.IN_USE),
    ],
)
def test_a_group_without_members_is_watched(
    ours: dict[TopicPartition, int], seen: dict[TopicPartition, int] | None, expected: AtTarget
) -> None:
    """Consumers that assign partitions to themselves never show as members, only in offsets that move."""
    plain = described(protocol="")

    assert judge_group_at_target(plain, HELD, ours=ours, seen=seen) is expected


@pytest.mark.parametrize(
    ("wanted", "current", "may_rewind", "expected"),
    [
        (5, None, False, True),
        (0, None, False, True),
        (5, 4, False, True),
        (5, 5, False, False),
        (5, 6, False, False),
        (5, 6, True, True),
        (5, 4, True, True),
    ],
)
def test_offsets_only_go_forward(wanted: int, current: int | None, *, may_rewind: bool, expected: bool) -> None:
    """New and further on are written, the same and what is ahead stay (testSyncOffset)."""
    assert is_offset_due(wanted, current, may_rewind=may_rewind) is expected


def test_an_offset_behind_the_end_of_the_target_s_log_is_corrected() -> None:
    """The remote topic was created again: a consumer at the old offset would be reset to anywhere."""
    assert is_offset_due(5, 900, may_rewind=False, end=10)
    assert not is_offset_due(5, 10, may_rewind=False, end=10)


def test_partitions_without_an_offset_at_the_target_are_written() -> None:
    """A null offset at the target is none (testSyncOffsetForTargetGroupWithNullOffsetAndMetadata)."""
    wanted = {REMOTE: CommittedOffset(5, "m"), OTHER: CommittedOffset(8)}

    assert due_offsets(wanted, {REMOTE: CommittedOffset(9)}, may_rewind=False) == {OTHER: CommittedOffset(8)}
    assert due_offsets(wanted, {}, may_rewind=False) == wanted


@pytest.mark.parametrize(
    ("offset", "before", "is_active", "was_active", "expected"),
    [
        (5, None, True, False, True),
        (5, None, False, False, False),
        (5, 5, True, True, False),
        (6, 5, True, True, True),
        (6, 5, False, True, True),
        (6, 5, False, False, False),
    ],
)
def test_only_what_a_group_read_itself_is_carried_back(
    offset: int, before: int | None, *, is_active: bool, was_active: bool, expected: bool
) -> None:
    """
    What the other direction's sync wrote is not the group's own.

    A->B syncs 100 to B; an operator resets the group to 50 on A; B->A must not bring the 100 back.
    """
    assert is_own_move(offset, before, is_active=is_active, was_active=was_active) is expected


@pytest.mark.parametrize(
    ("current", "state", "facts", "expected"),
    [
        pytest.param(50, AtTarget.IDLE, {}, OffsetAtTarget.COMMITTED, id="the translated offset"),
        pytest.param(None, AtTarget.IDLE, {}, OffsetAtTarget.UNCOMMITTED, id="nothing"),
        pytest.param(49, AtTarget.WATCHED, {}, OffsetAtTarget.UNCOMMITTED, id="an earlier one"),
        pytest.param(51, AtTarget.IDLE, {}, OffsetAtTarget.MOVED, id="a later one"),
        pytest.param(51, AtTarget.IDLE, {"may_rewind": True}, OffsetAtTarget.UNCOMMITTED, id="it is set back"),
        pytest.param(101, AtTarget.IDLE, {}, OffsetAtTarget.UNCOMMITTED, id="beyond the log's end"),
        pytest.param(49, AtTarget.IDLE, {"is_carried": False}, OffsetAtTarget.MOVED, id="its own at the target"),
        pytest.param(50, AtTarget.ACTIVE, {}, OffsetAtTarget.IN_USE, id="it has members"),
        pytest.param(49, AtTarget.IN_USE, {}, OffsetAtTarget.IN_USE, id="it moves without members"),
        pytest.param(50, AtTarget.UNKNOWN, {}, OffsetAtTarget.UNKNOWN, id="it could not be described"),
    ],
)
def test_what_is_committed_at_the_target(
    current: int | None, state: AtTarget, facts: dict[str, bool], expected: OffsetAtTarget
) -> None:
    """Beside an offset that is translated to 50, in a log that ends at 100."""
    flags = {"is_carried": True, "may_rewind": False, **facts}

    assert judge_committed(50, current, state=state, end=100, **flags) is expected
