"""What it would mean for a consumer group's readers to continue at the target now."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import attrs

from mm2py.model.flow import TopicPartition
from mm2py.model.group import OffsetAtTarget
from mm2py.model.state import GroupOffsetsView, GroupOffsetView, PartitionView


@attrs.frozen
class PartitionMove:
    """
    What the readers of a group's partition would see at the target.

    They would read `again` what they have read beyond what is copied, or, at most, beyond a translation that is not
    exact, and what is not copied yet would be `missing` at first; both in offsets of the source. `uncommitted` counts
    partitions whose translated offset the group has not committed there: that is done at `due_ms`, in wall time, or
    not, for the reason `why`. In those that `moved` the group has read on at the target; there it is `in_use`.
    `unknown` counts partitions of which something is unknown.
    """

    again: int = 0
    missing: int = 0
    uncommitted: int = 0
    moved: int = 0
    in_use: int = 0
    unknown: int = 0
    due_ms: int | None = None
    why: str = ""
    is_again_at_most: bool = False

    @property
    def is_due(self) -> bool:
        """Whether its text ends with a time."""
        return bool(self.uncommitted) and self.due_ms is not None and not self.in_use

    @property
    def words(self) -> str:
        """What a move means, without the time of what `is_due`."""
        if self.in_use:
            return "in use at the target"
        parts = (
            f"would read {'at most ' if self.is_again_at_most else ''}{self.again} again" if self.again else "",
            f"would miss {self.missing} until they are copied" if self.missing else "",
            "moved" if self.moved else "",
            self._unknown_text() if self.unknown else "",
            f"not committed at the target: {self.why}" if self.uncommitted and not self.is_due else "",
        )
        return ", ".join(filter(None, parts)) or ("" if self.is_due else "ready")

    def _unknown_text(self) -> str:
        return "unknown"

    def text(self, wall_ms: int) -> str:
        """What a move means, in words, at *wall_ms*."""
        if not self.is_due or self.due_ms is None:
            return self.words
        left_s = max(1, math.ceil((self.due_ms - wall_ms) / 1000))
        return ", ".join(filter(None, (self.words, f"committed in at most {left_s} s")))


@attrs.frozen
class GroupMove(PartitionMove):
    """The sum of a group's partitions."""

    def _unknown_text(self) -> str:
        return f"unknown for {self.unknown} partition{'' if self.unknown == 1 else 's'}"


Partitions = Mapping[TopicPartition, PartitionView]


def by_source(partitions: Iterable[PartitionView]) -> Partitions:
    """Return *partitions* by their names at the source."""
    return {it.source: it for it in partitions}


def moves_of(
    groups: Iterable[GroupOffsetsView], partitions: Partitions
) -> Iterator[tuple[GroupOffsetsView, GroupMove | None, tuple[PartitionMove, ...]]]:
    """Return each group with what moving it now would mean, and what it would for each of its offsets; None if they
    are not translated at all.
    """
    for group in groups:
        each = tuple(_of_offset(offset, group, partitions.get(offset.source)) for offset in group.offsets)
        yield group, _together(group, each) if each else None, each


def _together(group: GroupOffsetsView, each: tuple[PartitionMove, ...]) -> GroupMove:
    return GroupMove(
        again=sum(it.again for it in each),
        missing=sum(it.missing for it in each),
        uncommitted=sum(it.uncommitted for it in each),
        moved=sum(it.moved for it in each),
        in_use=sum(it.in_use for it in each),
        unknown=sum(it.unknown for it in each),
        due_ms=group.sync_due_ms,
        why=group.unsynced_why,
        is_again_at_most=any(it.is_again_at_most for it in each),
    )


def _of_offset(offset: GroupOffsetView, group: GroupOffsetsView, partition: PartitionView | None) -> PartitionMove:
    at_target, due_ms, why = offset.at_target, group.sync_due_ms, group.unsynced_why
    if offset.downstream is None:
        return PartitionMove(unknown=1)
    match at_target:
        case OffsetAtTarget.IN_USE:
            return PartitionMove(in_use=1)
        case OffsetAtTarget.MOVED:
            return PartitionMove(moved=1)
        case OffsetAtTarget.UNKNOWN:
            return PartitionMove(unknown=1)
    uncommitted = int(at_target is OffsetAtTarget.UNCOMMITTED)
    again, missing, unknown = _of_copy(offset, partition)
    is_at_most = bool(offset.behind) and not offset.is_exact
    return PartitionMove(
        again, missing, uncommitted, unknown=unknown, due_ms=due_ms, why=why, is_again_at_most=is_at_most
    )


def _of_copy(offset: GroupOffsetView, partition: PartitionView | None) -> tuple[int, int, int]:
    """Return what would be read again and missing of what is copied, and whether that is unknown."""
    behind = 0 if offset.is_exact else offset.behind
    if partition is None:
        # All records of what came from the target are there. What another node copies is known to it alone.
        return behind or 0, 0, int(behind is None and not offset.is_back)
    again = max(behind or 0, offset.upstream - partition.position)
    if partition.end_offset is None or (behind is None and not again):
        return again, 0, 1
    return again, max(0, partition.end_offset - max(partition.position, offset.upstream)), 0
