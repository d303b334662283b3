"""
MirrorMaker's rule for translating by offset syncs, as in its OffsetSyncStore.

It is the fallback for records that a Java MirrorMaker copied, of which only its offset syncs are known. For each
topic-partition 64 of them are kept, the newest in slot 0, older ones further apart (KAFKA-12468). Beyond a sync only
its own record is known to have been copied; so any offset past it becomes the sync's plus one.
"""

from __future__ import annotations

from mm2py.core.offsets.translation import Precision, Translated, Translation, Untranslated
from mm2py.model.offset_sync import OffsetSync


SLOTS = 64
_LARGEST = 2**63 - 1


class SyncSlots:
    """
    The syncs of one topic-partition. For i < j, where the two differ:

    B. upstream[i] <= upstream[j] + 2^j - 2^i: slot j is not too old.
    C. upstream[i] >= upstream[j] + 2^max(i - 2, 0): the two are far enough apart.
    """

    __slots__ = ("_slots",)

    def __init__(self, first: OffsetSync) -> None:
        self._slots = [first] * SLOTS

    def add(self, new: OffsetSync) -> None:
        """
        Add a sync. A rewind, of the source or of the target, makes it the only known one.

        MirrorMaker looks at the source alone, and goes on translating to offsets of a remote topic that is gone.
        """
        last = self._slots[0]
        if new.upstream < last.upstream or new.downstream < last.downstream:
            self._slots = [new] * SLOTS
        else:
            self._insert(new)

    def _insert(self, new: OffsetSync) -> None:
        slots, old = self._slots, list(self._slots)
        slots[0] = carry = new
        reading = 0
        for current in range(1, SLOTS):
            previous = current - 1
            while True:
                candidate = old[reading]
                is_apart = _is_apart(slots[previous], candidate, previous)
                has_room = current == SLOTS - 1 or _is_apart(candidate, slots[current + 1], current)
                is_twice = reading + 1 < SLOTS and old[reading] is old[reading + 1]
                is_recent = _is_recent(slots[previous], candidate, previous, current)
                takes = is_recent and is_apart and has_room
                skips = is_twice or not is_apart
                if takes:
                    carry = candidate
                if takes or skips:
                    reading += 1
                if not (reading < current and skips):
                    break
            if _is_recent(slots[previous], slots[current], previous, current):
                break
            slots[current] = carry

    def downstream(self, upstream: int) -> Translation:
        """Translate an offset of the source; never ahead of it, and rarely exact."""
        found = next((sync for sync in self._slots if sync.upstream <= upstream), None)
        if found is None:
            return Untranslated.TOO_OLD
        step = 0 if found.upstream == upstream else 1
        return Translated(found.downstream + step, Precision.OFFSET_SYNCS, upstream - found.upstream - step)

    def upstream(self, downstream: int) -> Translation:
        """Translate an offset of the target; never ahead of it. Not in MirrorMaker."""
        found = next((sync for sync in self._slots if sync.downstream <= downstream), None)
        if found is None:
            return Untranslated.TOO_OLD
        step = 0 if found.downstream == downstream else 1
        return Translated(found.upstream + step, Precision.OFFSET_SYNCS)

    def end_before(self, upstream: int) -> int:
        """Return where the target ended, at least, when *upstream* was the next offset to be copied."""
        return next((sync.downstream + 1 for sync in self._slots if sync.upstream < upstream), 0)


def _is_recent(newer: OffsetSync, older: OffsetSync, i: int, j: int) -> bool:
    """Whether invariant B holds; past what Java's 64 bits hold it does."""
    limit = older.upstream + (1 << j) - (1 << i)
    return newer is older or limit > _LARGEST or newer.upstream <= limit


def _is_apart(newer: OffsetSync, older: OffsetSync, i: int) -> bool:
    """Whether invariant C holds; past what Java's 64 bits hold it does not."""
    limit = older.upstream + (1 << max(i - 2, 0))
    return newer is older or (limit <= _LARGEST and newer.upstream >= limit)
