"""
Which records of the source are already at the target, if their number does not tell.

Compaction and retention remove records on either side after they were copied. Still, after an accounted offset, each of
the target's offsets was given to one of the source's records, in order. So between two records that exist on both sides
the target has no more offsets than the source, and a record that only the source has got an offset whose record the
target no longer has. Foreign records do not fit this pattern.
"""

from __future__ import annotations

import bisect
from array import array

import attrs

from mm2py.model.epoch import Runs


def _numbers() -> array[int]:
    return array("q")


@attrs.define
class Alignment:
    """Aligns the source's records from *position* on with the target's after *downstream*. First all of the target's
    are added, then the source's are matched, both in order. A record is identified by a digest of its content.
    """

    position: int
    downstream: int
    #: The offset that the target's next record will get.
    target_end: int
    #: The offsets of records that exist on both sides.
    runs: Runs = attrs.field(factory=Runs)
    _digests: array[int] = attrs.field(factory=_numbers, init=False)
    _offsets: array[int] = attrs.field(factory=_numbers, init=False)
    #: The next of the target's records that may match.
    _at: int = attrs.field(default=0, init=False)
    #: Both sides are accounted for up to here.
    _upstream: int = attrs.field(init=False)
    _reached: int = attrs.field(init=False)
    #: The source's records since then that the target does not have, and the offset of the first one.
    _alone: int = attrs.field(default=0, init=False)
    _alone_from: int | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._upstream, self._reached = self.position - 1, self.downstream

    def hold(self, offset: int, digest: int) -> None:
        """Add the next of the target's records."""
        self._digests.append(digest)
        self._offsets.append(offset)

    def meet(self, offset: int, *digests: int) -> bool:
        """Match the next of the source's records, which may have any of *digests*. False once no further one can be at
        the target.
        """
        # Compaction at the source leaves fewer records for as many offsets, never more.
        until = bisect.bisect_right(self._offsets, self._reached + offset - self._upstream, self._at)
        at = self._at
        while (at := self._first(digests, at, until)) < until:
            if self._alone <= self._removed(at, self._offsets[at]):
                self._pair(offset, at)
                return self._reached < self.target_end - 1
            at += 1
        self._alone += 1
        if self._alone_from is None:
            self._alone_from = offset
        return self._alone <= self._removed(len(self._offsets), self.target_end)

    def concluded(self, source_end: int) -> int | None:
        """Return the position from which on nothing is at the target, None if that is not proven. *source_end* is the
        end of the source records that could match. Target records after the last pair must have been copied from
        records that the source no longer has.
        """
        behind = source_end if self._alone_from is None else self._alone_from
        unmet = self.target_end - 1 - self._reached
        return self._upstream + 1 if unmet < behind - self._upstream else None

    def _first(self, digests: tuple[int, ...], at: int, until: int) -> int:
        """Return the index of the first added record with one of *digests*; *until* if there is none."""
        for digest in digests:
            try:
                until = self._digests.index(digest, at, until)
            except ValueError:
                continue
        return until

    def _removed(self, at: int, offset: int) -> int:
        """Return how many of the target's offsets before *offset* no longer have a record, *at* being the next added
        one.
        """
        return offset - self._reached - 1 - (at - self._at)

    def _pair(self, upstream: int, at: int) -> None:
        self._upstream, self._reached, self._at = upstream, self._offsets[at], at + 1
        self._alone, self._alone_from = 0, None
        self.runs.add(upstream, self._reached, 1)
