"""
Which checkpoints are due, and which group offsets are written at the target.

Emission follows MirrorMaker 2: the first checkpoint of a group and partition, one when the group went back at the
source, one when its downstream offset advanced. A translation that merely got worse is never emitted. Where MirrorMaker
would point beyond the end of the target's log, the checkpoint is corrected instead.

Offsets are written at the target for groups that a successful description shows to be empty there, or that do not
exist, and only forward. (MirrorMaker 2 treats a group whose description failed as a new one: KAFKA-19794.)
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from mm2py.model.checkpoint import Checkpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset, GroupDescription, GroupType, OffsetAtTarget
from mm2py.model.topic import is_other_topic


@attrs.frozen
class LogRange:
    """The offsets in a log: from `start` up to but not including `end`."""

    start: int
    end: int

    def clamp(self, offset: int) -> int:
        """Return the valid offset for a consumer closest to *offset*, including the end."""
        return max(self.start, min(self.end, offset))


class Emission(enum.Enum):
    """Why a checkpoint is due, or not."""

    FIRST = "the first of this group and partition"
    REWOUND = "the group went back at the source"
    ADVANCED = "its downstream offset advanced"
    TARGET_SHORTER = "the target's log ends before the last one"
    OTHER_TOPIC = "the last one is of another topic of that name: the remote topic was created again"
    CORRECTED = "the record is known to lie before the last one: the remote topic was created again"
    EMPTY = "nothing of this partition is mirrored yet, so that Java has no checkpoint of it"
    UNCHANGED = "its downstream offset is unchanged"
    HELD_BACK = "the translation got worse, but the group did not go back"
    UNCERTAIN = "it is an estimate, and what was written before may not be read"

    @property
    def is_due(self) -> bool:
        """Whether the checkpoint is written."""
        return self in _DUE


_DUE = frozenset({
    Emission.FIRST, Emission.OTHER_TOPIC, Emission.REWOUND, Emission.ADVANCED, Emission.TARGET_SHORTER,
    Emission.CORRECTED,
})  # fmt: skip


def judge_checkpoint(
    last: Checkpoint | None, new: Checkpoint, *, end: int, is_exact: bool = True, knows_history: bool = True
) -> Emission:
    """
    Decide whether *new* is due after *last*; *end* is where the target's log ends.

    An exact translation is the same after a restart. An estimate is not: without knowledge of the history it might be
    lower than what was written before. So only of an exact one a lower offset says that what was written is wrong.
    """
    if last is None:
        is_empty = new.upstream == new.downstream == end == 0
        is_certain = is_exact or knows_history
        return Emission.EMPTY if is_empty else Emission.FIRST if is_certain else Emission.UNCERTAIN
    if is_other_topic(last.topic_id, new.topic_id):
        return Emission.OTHER_TOPIC
    if new.upstream < last.upstream:
        return Emission.REWOUND
    if new.downstream >= last.downstream:
        return Emission.ADVANCED if new.downstream > last.downstream else Emission.UNCHANGED
    if last.downstream > end:
        return Emission.TARGET_SHORTER
    return Emission.CORRECTED if is_exact else Emission.HELD_BACK


class AtTarget(enum.Enum):
    """The state of a group at the target, which decides whether its offsets may be written there."""

    IDLE = "it has no members"
    ACTIVE = "it has members at the target"
    IN_USE = "its offsets at the target move although it has no members: a consumer assigns partitions to itself"
    WATCHED = "it has offsets at the target that are not ours: watched for one round"
    OTHER_PROTOCOL = "the target has a group of that name that is not one of consumers"
    UNKNOWN = "the target could not say whether it has members"
    REFUSED = "the target refused to write its offsets"

    @property
    def is_writable(self) -> bool:
        """Whether offsets may be written."""
        return self is AtTarget.IDLE


_CONSUMERS = ("", "consumer")

Offsets = Mapping[TopicPartition, CommittedOffset]


def judge_group_at_target(
    description: GroupDescription | None,
    current: Offsets | None,
    *,
    ours: Mapping[TopicPartition, int],
    seen: Mapping[TopicPartition, int] | None,
) -> AtTarget:
    """Decide whether a group's offsets may be written at the target. *description* and *current* are the target's
    description of the group and its offsets, None if unavailable. Consumers that assign partitions to themselves never
    appear in a description, only by changing offsets: *seen* are those of the last round, including what we wrote, and
    *ours* those of the last checkpoints, for the first round.
    """
    if description is None or current is None:
        return AtTarget.UNKNOWN
    if description.type not in (GroupType.CLASSIC, GroupType.CONSUMER) or description.protocol_type not in _CONSUMERS:
        return AtTarget.OTHER_PROTOCOL
    if not description.is_idle:
        return AtTarget.ACTIVE
    if description.protocol_type:
        return AtTarget.IDLE  # its consumers join, so they would be members
    if seen is None:
        is_foreign = any(current[tp].offset != ours.get(tp) for tp in current)
        return AtTarget.WATCHED if is_foreign else AtTarget.IDLE
    has_moved = any(current[tp].offset != seen.get(tp) for tp in current)
    return AtTarget.IN_USE if has_moved else AtTarget.IDLE


def is_own_move(offset: int, before: int | None, *, is_active: bool, was_active: bool) -> bool:
    """Whether a group itself moved to *offset* at the source, so that it may be translated back in a failback. Offsets
    in topics that came from the other cluster are often not the group's own: the flow in the other direction syncs
    them. Carrying those back would undo an operator's reset there. So the group must have been active when its offset
    changed; *before* is the last known offset, None in the first round.
    """
    if before is None:
        return is_active
    return offset != before and (is_active or was_active)


def is_offset_due(wanted: int, current: int | None, *, may_rewind: bool, end: int | None = None) -> bool:
    """Whether *wanted* replaces *current*, None if the target has no offset: if the group is further on at the source,
    or further back and it *may_rewind*. *end* is the target's end offset, read after *current*, None if it was not
    read: a consumer at an offset beyond it would be reset, and might skip all that comes.
    """
    if current is None or wanted >= current:
        return wanted != current
    return may_rewind or (end is not None and current > end)


def judge_committed(
    wanted: int, current: int | None, *, state: AtTarget, is_carried: bool, may_rewind: bool, end: int | None
) -> OffsetAtTarget:
    """Compare what a group in *state* has committed at the target with its translated offset. What is not carried
    there stays as it is: an offset that the flow in the other direction wrote at the source; see `is_own_move`.
    """
    if state is AtTarget.UNKNOWN:
        return OffsetAtTarget.UNKNOWN
    if state in (AtTarget.ACTIVE, AtTarget.IN_USE):
        return OffsetAtTarget.IN_USE
    if wanted == current:
        return OffsetAtTarget.COMMITTED
    is_due = is_carried and is_offset_due(wanted, current, may_rewind=may_rewind, end=end)
    return OffsetAtTarget.UNCOMMITTED if is_due else OffsetAtTarget.MOVED


def due_offsets(
    wanted: Offsets, current: Offsets, *, may_rewind: bool, ends: Mapping[TopicPartition, int] | None = None
) -> dict[TopicPartition, CommittedOffset]:
    """Return those of the *wanted* offsets that are to be written over the *current* ones."""
    known_ends = ends or {}
    due = {}
    for tp, offset in wanted.items():
        held = current.get(tp)
        at = held.offset if held else None
        if is_offset_due(offset.offset, at, may_rewind=may_rewind, end=known_ends.get(tp)):
            due[tp] = offset
    return due
