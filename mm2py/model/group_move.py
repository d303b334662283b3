"""What it would mean for a consumer group's readers to continue at the target now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from mm2py.model.state import GroupOffsetsView, GroupOffsetView, PartitionView


@attrs.frozen
class GroupMove:
    """
    What a group would read `again`, because it has read further than is copied, and what would be `missing` at first,
    because it is not copied yet; both in offsets of the source. `unknown` counts partitions of which that is unknown.
    """

    again: int = 0
    missing: int = 0
    unknown: int = 0

    @property
    def text(self) -> str:
        """What a move means, in words."""
        unknown = f"unknown for {self.unknown} partition{'' if self.unknown == 1 else 's'}" if self.unknown else ""
        words = (
            f"would read {self.again} again" if self.again else "",
            f"would miss {self.missing} until they are copied" if self.missing else "",
            unknown,
        )
        return ", ".join(filter(None, words)) or "ready"


def moves_of(
    groups: Iterable[GroupOffsetsView], partitions: Iterable[PartitionView]
) -> Iterator[tuple[GroupOffsetsView, GroupMove | None]]:
    """Return each group with what moving it now would mean; None if its offsets are not translated at all."""
    mirrored = {it.source: it for it in partitions}
    for group in groups:
        each = [_of_offset(offset, mirrored.get(offset.source)) for offset in group.offsets]
        whole = GroupMove(sum(it.again for it in each), sum(it.missing for it in each), sum(it.unknown for it in each))
        yield group, whole if each else None


def _of_offset(offset: GroupOffsetView, partition: PartitionView | None) -> GroupMove:
    if offset.downstream is None:
        return GroupMove(unknown=1)
    if partition is None:
        # Its topic came from the target, where all of its records are.
        return GroupMove()
    again = max(0, offset.upstream - partition.position)
    if partition.end_offset is None or not (offset.is_exact or again):
        return GroupMove(again, unknown=1)
    return GroupMove(again, max(0, partition.end_offset - max(partition.position, offset.upstream)))
