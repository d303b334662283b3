"""
Comparing the records of a remote partition with those of its source.

Copying is deterministic: the data records of the source, in order, are the target's. So both sides are walked in
parallel, and as long as they agree nothing is stored. If they differ, the next records of both are searched for a
common sequence (an *anchor*); the records before it on either side show what happened:

    source   … 7  8  9 10 11 …      source   … 7  8  9 10 …      source   … 7  8  9 10 …
    target   … 7  8 10 11 …         target   … 7  9  8 10 …      target   … 7  8' 9 10 …
             9 is missing                    one is out of order          8 was changed

From then on records are marks, a timestamp and three hashes, so that memory is bounded whatever their size. Where no
anchor is within reach, a reader with random access must search further (`Want.SEARCH`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from mm2py.verify.anchors import find_anchor, paired
from mm2py.verify.findings import Findings
from mm2py.verify.terms import SOURCE, TARGET, Content, Mark, Passed, WaitingRecords, Want
from mm2py.verify.values import Slice


#: Search window for an anchor: initial and maximum, on either side.
FIRST_REACH, REACH = 64, 32_768


class Comparison:
    """Walks both sides of one slice. The reader feeds it records as `advance` requests them, until that returns
    `Want.NOTHING`. a. A side gets its records in the order of their offsets. b. While `is_level`, equal batches may be
    skipped with `pass_equal`.

    Records that are equal need no marks; *mark_of* gives those of the others.
    """

    def __init__(self, part: Slice, mark_of: Callable[[Content], Mark], *, ignore_timestamps: bool = False) -> None:
        self._slice = part
        self._mark_of = mark_of
        self._ignore_timestamps = ignore_timestamps
        self._rows = [WaitingRecords(), WaitingRecords()]
        self._windows: list[deque[tuple[int, Mark]]] = [deque(), deque()]
        self._has_ended = [False, False]
        self._has_diverged = False
        self._reach = FIRST_REACH
        self.is_aligned = True
        self.findings = Findings(part, ignore_timestamps=ignore_timestamps)

    # Feeding.

    @property
    def is_level(self) -> bool:
        """Whether both sides have come equally far, with nothing left over."""
        return not self._has_diverged and not self._rows[SOURCE].left and not self._rows[TARGET].left

    @property
    def has_source_alone(self) -> bool:
        """Whether the target is over, so that whatever else the source has is not there."""
        return self._has_ended[TARGET] and not self._windows[TARGET] and not self._rows[TARGET].left

    def pass_equal(self, count: int) -> None:
        """Count equal records in unopened batches."""
        self.findings.equal(count)
        for name in ("source", "target"):
            self.findings.add(name, count)

    def feed(self, side: int, offsets: Sequence[int], contents: Sequence[Content]) -> None:
        """Take the next records of a side, of which nothing was left over."""
        if self._ignore_timestamps:
            contents = [(-1, *rest) for _, *rest in contents]
        self._rows[side] = WaitingRecords(offsets, contents)
        self.findings.add("target" if side else "source", len(offsets))

    def end(self, side: int) -> None:
        """Report that a side has no more records."""
        self._has_ended[side] = True

    # Walking.

    def advance(self) -> Want:
        """Compare what there is; say what is needed next."""
        while True:
            want = self._settle() if self._has_diverged else self._walk()
            if want is not None:
                return want

    def _walk(self) -> Want | None:
        """Go on while both sides agree."""
        source, target = self._rows
        count = min(source.left, target.left)
        if count:
            ours = source.contents[source.at : source.at + count]
            theirs = target.contents[target.at : target.at + count]
            if ours != theirs:
                same = next(at for at in range(count) if ours[at] != theirs[at])
                self._has_diverged, self._reach = True, FIRST_REACH
                if not (self.findings.has_matched or same):
                    self.is_aligned = False
                count = same
            source.at += count
            target.at += count
            self.findings.equal(count)
            return None
        for side, rows in enumerate(self._rows):
            if not rows.left and not self._has_ended[side]:
                return Want(side)
        if source.left or target.left:
            self._has_diverged = True
            return None
        return Want.NOTHING

    def _settle(self) -> Want | None:
        """Find out what happened where both sides differ, and get back to where they agree."""
        source, target = self._windows
        while all([self._pull(SOURCE, 1), self._pull(TARGET, 1)]) and source[0][1] == target[0][1]:
            source.popleft()
            target.popleft()
            self.findings.equal(1)
        for side, window in enumerate(self._windows):
            if not window and not self._has_ended[side]:
                other = self._windows[1 - side]
                if not other and not self._rows[1 - side].left:
                    self._has_diverged = False
                    return None
                return Want(side)
        if not source or not target:
            return self._finish()
        for side in (SOURCE, TARGET):
            if not self._pull(side, self._reach) and not self._has_ended[side]:
                return Want(side)
        return self._find_anchor()

    def _finish(self) -> Want | None:
        """Take what is left of one side once the other is over."""
        side = SOURCE if self._windows[SOURCE] else TARGET
        window = self._windows[side]
        while self._pull(side, 1):
            offset, mark = window.popleft()
            if side == SOURCE:
                self.findings.only_at_source(offset, mark, None, at_end=True)
            elif self._slice.ends_with_source:
                self.findings.add("target", -1)
            else:
                self.findings.only_at_target(offset, mark, None)
        if not self._has_ended[side]:
            return Want(side)
        self._has_diverged = False
        return None

    def _pull(self, side: int, wanted: int) -> bool:
        """Mark records until *wanted* are in a side's window; False where it has fewer."""
        window, rows = self._windows[side], self._rows[side]
        count = min(wanted - len(window), rows.left)
        if count > 0:
            until = rows.at + count
            marks = map(self._mark_of, rows.contents[rows.at : until])
            window.extend(zip(rows.offsets[rows.at : until], marks, strict=True))
            rows.at = until
        return len(window) >= wanted

    def _find_anchor(self) -> Want | None:
        source, target = ([mark for _, mark in window] for window in self._windows)
        are_over = tuple(self._has_ended[side] and not self._rows[side].left for side in (SOURCE, TARGET))
        # Once both are over, all that is left can be paired: a short match at the end may be of a record that moved.
        anchor = find_anchor(source, target, (False, False) if all(are_over) else are_over)
        is_end = False
        if anchor is None and all(are_over):
            anchor, is_end = (len(source), len(target)), True
        elif anchor is None and are_over[SOURCE] and self._slice.ends_with_source and self._reach > FIRST_REACH:
            # What follows at the target belongs to the next slice: in this one the sides would not match again.
            anchor = len(source), min(len(source), len(target))
        if anchor is not None:
            self._judge(*anchor, is_end=is_end)
            self._reach = FIRST_REACH
            return None
        if self._reach < REACH:
            self._reach *= 4
            return None
        return Want.SEARCH

    # Far away.

    def window(self, side: int) -> list[tuple[int, Mark]]:
        """Add the next records of a side, with their offsets, after `Want.SEARCH`."""
        return list(self._windows[side])

    def jump(self, passed: Passed, downstream: int) -> None:
        """Continue after records that are on one side only, at the target with *downstream*. The windows are discarded:
        the reader restarts after the skipped records.
        """
        for side, name in enumerate(("source", "target")):
            waiting = len(self._windows[side]) + self._rows[side].left
            self.findings.add(name, len(passed.near[side]) + passed.further[side] - waiting)
            self._windows[side].clear()
            self._rows[side] = WaitingRecords()
        is_head = not self.findings.has_matched
        for offset, mark in passed.near[SOURCE]:
            self.findings.only_at_source(offset, mark, None, at_end=passed.is_end)
        for offset, mark in passed.near[TARGET]:
            self.findings.only_at_target(offset, mark, None)
        self.findings.add("pending", passed.pending)
        more_ours, more_theirs = passed.further
        self.findings.add("only_source" if is_head and self._slice.target_has_expired else "missing", more_ours)
        if is_head and self._slice.finds_start:
            self.findings.add("target", -more_theirs)
        elif is_head and self._slice.source_has_expired:
            self.findings.add("only_target", more_theirs)
        else:
            self.findings.add("foreign", more_theirs)
            self.findings.unlisted_extra += more_theirs
            if more_theirs:
                self.findings.foreign_to = max(self.findings.foreign_to, downstream)
        self._reach = FIRST_REACH
        self._has_ended = [passed.is_end, passed.is_end]

    # Judging.

    def _judge(self, ours: int, theirs: int, *, is_end: bool) -> None:
        """Report what became of the next records of both sides, before an anchor or their end."""
        source = [self._windows[SOURCE].popleft() for _ in range(ours)]
        target = [self._windows[TARGET].popleft() for _ in range(theirs)]
        pairs, moved = paired([mark for _, mark in source], [mark for _, mark in target])
        taken = ({i for i, _ in (*pairs, *moved)}, {j for _, j in (*pairs, *moved)})
        for i, j in moved:
            self.findings.moved(source[i][0], target[j][0])
        before = (0, 0)
        for place in (*pairs, (ours, theirs)):
            lone_ours = [source[i] for i in range(before[0], place[0]) if i not in taken[0]]
            lone_theirs = [target[j] for j in range(before[1], place[1]) if j not in taken[1]]
            is_last = place == (ours, theirs)
            downstream = self._next(TARGET) if is_last else target[place[1]][0]
            self._judge_gap(lone_ours, lone_theirs, downstream, at_end=is_end and is_last)
            if not is_last:
                self.findings.equal(1)
            before = (place[0] + 1, place[1] + 1)

    def _judge_gap(
        self,
        ours: list[tuple[int, Mark]],
        theirs: list[tuple[int, Mark]],
        downstream: int | None,
        *,
        at_end: bool,
    ) -> None:
        """Judge records that are on one side only, at one place: an old and a new version of the same may be there."""
        if not self.findings.has_matched and self._slice.finds_start and len(theirs) > len(ours):
            spare = len(theirs) - len(ours)
            self.findings.add("target", -spare)
            theirs = theirs[spare:]
        left = deque(theirs)
        for offset, mark in ours:
            found = next((at for at, (_, other) in enumerate(left) if self.findings.is_version(mark, other)), None)
            if found is None:
                self.findings.only_at_source(offset, mark, left[0][0] if left else downstream, at_end=at_end)
                continue
            for _ in range(found):
                self.findings.only_at_target(*left.popleft(), offset)
            self.findings.changed(offset, mark, *left.popleft())
        for offset, mark in left:
            self.findings.only_at_target(offset, mark, self._next(SOURCE))

    def _next(self, side: int) -> int | None:
        if self._windows[side]:
            return self._windows[side][0][0]
        rows = self._rows[side]
        return rows.offsets[rows.at] if rows.left else None
