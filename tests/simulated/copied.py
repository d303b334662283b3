"""How far a remote partition of a simulated world is as its source."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Callable
from typing import Any

import attrs

from tests.simulated.log import Partition


#: Timestamp, key, value and headers of a record.
Content = tuple[Any, ...]


@attrs.define(eq=False)
class Copied:
    """How far a remote partition is as its source: for each of its batches, the count of source records up to it."""

    source: Partition
    remote: Partition
    #: Data records of the source, as far as they were read: offset and content.
    known: list[tuple[int, Content]] = attrs.field(factory=list)
    read_to: int = 0
    #: Last downstream offset, count of source records, and first downstream offset, batch by batch.
    marks: list[tuple[int, int, int]] = attrs.field(factory=list)
    #: Which record comes next, if an operator has altered that.
    next_at: int | None = None
    #: Where the first batch of that is at the target, and which record was next then: it may be lost, and come again.
    begun: tuple[int, int] | None = None
    #: How many source records were deleted at the source, copied or not, how many of them before the first position was
    #: written, and how many the target will never have.
    deleted: int = 0
    deleted_first: int = 0
    missing: int = 0
    #: How many came again.
    repeated: int = 0
    #: How far the remote partition was as the source's that had its name before: of that it may lack the rest.
    former: Copied | None = None
    #: Whether source or remote topic was created again: what is known of the topics before may be acted upon still.
    is_young: bool = False
    #: What becomes of a record's content on its way, if it is not copied as it is; None if the record is left out.
    made: Callable[[Content], Content | None] = lambda it: it
    #: Whether records may come again after the ones that followed them, and how far the furthest ones are.
    may_repeat: bool = False
    furthest: int = 0

    @property
    def count(self) -> int:
        """How many source records lie before the next one."""
        if self.next_at is not None:
            return self.next_at
        return self.marks[-1][1] if self.marks else 0

    def take(self, base: int, last: int, count: int) -> None:
        """Note a batch at the target, and how many source records there are up to its end."""
        if self.next_at is not None:
            self.begun, self.next_at = (base, self.next_at), None
        self.marks.append((last, count, base))
        self.furthest = max(self.furthest, count)

    def lose(self, first: int) -> None:
        """Note that the target has lost its batches from *first* on; what an operator has altered stands."""
        self.marks = [mark for mark in self.marks if mark[0] < first]
        if self.next_at is None and self.begun is not None and self.begun[0] >= first:
            self.next_at = self.begun[1]

    def has(self, content: Content) -> bool:
        """Whether the source has such a record."""
        return any(known == content for _, known in self.known)

    def proven(self, downstream_end: int) -> int:
        """Return how many source records need not be copied any more."""
        upto = self.read_by(downstream_end) if self.may_repeat else self.upto(downstream_end)
        return max(self.deleted, upto if self.next_at is None else self.next_at)

    def upto(self, downstream_end: int) -> int:
        """Return how many source records lie before a downstream offset, and are not to be copied again after it."""
        at = bisect.bisect_left(self.marks, (downstream_end,))
        if at == len(self.marks):
            return min(self.count, self.marks[-1][1]) if self.marks else 0
        last, count, first = self.marks[at]
        # Records of a batch are consecutive. Before it some may be missing, or copying has gone back.
        within = count - (last + 1 - max(first, downstream_end))
        return within if first < downstream_end else min(within, self.marks[at - 1][1] if at else 0)

    def read_by(self, downstream: int) -> int:
        """Return how many source records who has read on to *downstream* has read, if some of them come once more."""
        at = bisect.bisect_left(self.marks, (downstream,))
        within = self.upto(downstream) if at < len(self.marks) and self.marks[at][2] < downstream else 0
        return max((within, *(count for _, count, _ in self.marks[:at])))

    def next_from(self, downstream: int) -> int:
        """Return the number of the source record that who reads on at *downstream* gets, the end's if none is left."""
        at = bisect.bisect_left(self.marks, (downstream,))
        if at == len(self.marks):
            return len(self.known)  # what is deleted and not copied is nothing to read
        last, count, first = self.marks[at]
        return count - (last + 1 - max(first, downstream))

    def before(self, upstream: int) -> int:
        """Return how many source records lie before an upstream offset."""
        return bisect.bisect_left(self.known, upstream, key=operator.itemgetter(0))
