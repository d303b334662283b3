"""
Where the records of one topic-partition went: offsets of the source to offsets of the target, and back.

Offsets are those that groups commit: of the next record to read. Acknowledged batches are kept as runs, so that an
offset inside a run is translated exactly. An offset between two runs, where the source holds nothing to copy
(transaction markers, compacted or aborted records), becomes that of the next record. An offset beyond the last copied
record becomes the end of the copied records. A translation is never ahead of the given offset: a group that continues
from it may read records twice, but misses none.

    upstream    100 ......... 139 | 140 markers | 141 ......... 160 |       position 165
    downstream   90 ......... 129 |             | 130 ......... 149 |            end 150

What is not known run by run is kept as a *range*: where it begins, how many upstream offsets it spans, and how many
records it holds at least. Two runs are merged into one range when memory runs short; what a Java MirrorMaker copied in
between is a range of which only the ends are known.
"""

from __future__ import annotations

import enum
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import add, attrgetter, le, sub

import attrs

from mm2py.model.epoch import Run, Runs
from mm2py.model.run_chunk import KeptChunk, RunChunk


#: How many runs are stored in one record at most.
CHUNK_RUNS = 4096


class Precision(enum.Enum):
    """The precision of a translation."""

    EXACT = "the next record is the same on both sides"
    END = "beyond the last copied record: the end of the copied records"
    COARSE = "an estimate, never ahead: runs were merged to bound memory"
    OFFSET_SYNCS = "an estimate, never ahead: MirrorMaker's rule on its offset syncs"


@attrs.frozen
class Translated:
    """The translated offset, which a group may commit on the other side."""

    offset: int
    precision: Precision = Precision.EXACT
    #: By how many offsets of the other side it is before the given one, at most; None if that is not known.
    behind: int | None = attrs.field(default=None, eq=False)

    @property
    def is_exact(self) -> bool:
        """Whether the answer is the same after a restart, as long as the group stays there."""
        return self.precision is Precision.EXACT


class Untranslated(enum.Enum):
    """Why there is no translation."""

    NOT_READY = "earlier translations are not read yet"
    NOT_MIRRORED = "the topic-partition is not mirrored, or none of its records is known yet"
    NO_SYNC = "its source connector, which runs elsewhere, has written no offset sync of the topic-partition yet"
    TOO_OLD = "the offset is before all known records"
    NOT_READ = "the group was put there as the log begins there, and has not read up to it"
    OTHER_TOPIC = "the topic was created again, at the source or at the target, and that is not copied yet"


Translation = Translated | Untranslated


class RunIndex:
    """
    The known ranges of one topic-partition, in order of offsets; bounded by `coarsen`.

    a. Range i begins with the record at `starts[i]`, which is at `downs[i]`, and spans `spans[i]` upstream offsets.
       They do not overlap: starts[i] + spans[i] <= starts[i+1], and downs[i] + counts[i] <= downs[i+1].
    b. It holds `counts[i]` records or more. It is a run, and exact, if that equals its span; of one with 0
       nothing is known, not even that there is a record at its start.
    c. From `covered_from` up to `covered_to`, offsets in no range hold no copied record.
    d. Records from `covered_from` on are at `end_from` or after it; those before `covered_to` are before `end`.
    e. If `is_origin`, nothing before `covered_from` is at the target.
    """

    __slots__ = (
        "counts",
        "covered_from",
        "covered_to",
        "downs",
        "end",
        "end_from",
        "first_changed",
        "is_origin",
        "spans",
        "starts",
    )

    def __init__(self, position: int, end: int, *, is_origin: bool = False) -> None:
        """Begin an index at *position*; the next record will be at *end* or after it."""
        self._begin(position, end, is_origin=is_origin)

    def _begin(self, position: int, end: int, *, is_origin: bool) -> None:
        self.starts, self.downs, self.spans, self.counts = array("q"), array("q"), array("q"), array("q")
        self.covered_from = self.covered_to = position
        self.end_from = self.end = end
        self.is_origin = is_origin
        #: The first range that changed since this was last set to None, by the code that stores the index.
        self.first_changed: int | None = 0

    def __len__(self) -> int:
        return len(self.starts)

    # Queries.

    def downstream(self, upstream: int) -> Translation:
        """Translate an offset of the source."""
        if upstream >= self.covered_to:
            behind = upstream - self.covered_to
            return Translated(self.end, Precision.END if behind else Precision.EXACT, behind)
        if upstream < self.covered_from:
            return Translated(self.end_from) if self.is_origin else Untranslated.TOO_OLD
        at = bisect_right(self.starts, upstream) - 1
        if at < 0 or upstream >= self.starts[at] + self.spans[at]:
            return self._start_of(at + 1, self.downs, self.end)
        start, down, span, count = self.starts[at], self.downs[at], self.spans[at], self.counts[at]
        before = upstream - start
        if span == count:
            return Translated(down + before)
        if before == 0:
            return Translated(down, Precision.EXACT if count else Precision.COARSE)
        return Translated(down + self._count_before(at, upstream), Precision.COARSE)

    def upstream(self, downstream: int) -> Translation:
        """Translate an offset of the target."""
        if downstream >= self.end:
            return Translated(self.covered_to, Precision.EXACT if downstream == self.end else Precision.END)
        if downstream < self.end_from:
            return Translated(self.covered_from) if self.is_origin else Untranslated.TOO_OLD
        at = bisect_right(self.downs, downstream) - 1
        if at < 0:
            return self._start_of(0, self.starts, self.covered_to)
        start, span, count = self.starts[at], self.spans[at], self.counts[at]
        before = downstream - self.downs[at]
        if span == count:
            return Translated(start + before) if before < span else self._start_of(at + 1, self.starts, self.covered_to)
        if before == 0:
            return Translated(start, Precision.EXACT if count else Precision.COARSE)
        behind = self.downs[at + 1] if at + 1 < len(self) else self.end
        return Translated(start + max(min(count, 1), count - (behind - downstream)), Precision.COARSE)

    def _start_of(self, at: int, offsets: Sequence[int], otherwise: int) -> Translated:
        if at >= len(self):
            return Translated(otherwise)
        return Translated(offsets[at], Precision.EXACT if self.counts[at] else Precision.COARSE)

    def end_before(self, upstream: int) -> int:
        """Return where the target ended, at least, when *upstream* was the next offset to be copied."""
        if upstream >= self.covered_to:
            return self.end
        at = bisect_left(self.starts, upstream) - 1
        return self.end_from if at < 0 else self.downs[at] + self._count_before(at, upstream)

    def _count_before(self, at: int, upstream: int) -> int:
        """Return how many records of range *at* are before *upstream*, which is after its start: so many or more."""
        # At most every offset from there to the range's end holds a record; all others are before it.
        after = max(0, self.starts[at] + self.spans[at] - upstream)
        return max(min(self.counts[at], 1), self.counts[at] - after)

    @property
    def is_complete(self) -> bool:
        """Whether all records copied so far are known."""
        return self.is_origin and 0 not in self.counts

    def is_unknown(self, upstream: int) -> bool:
        """Whether nothing is known of the records around *upstream*, so that offset syncs may be more precise."""
        if upstream < self.covered_from:
            return not self.is_origin
        at = bisect_right(self.starts, upstream) - 1
        return at >= 0 and self.counts[at] == 0 and upstream < self.starts[at] + self.spans[at]

    def is_unknown_at_target(self, downstream: int) -> bool:
        """The same for an offset of the target."""
        if downstream < self.end_from:
            return not self.is_origin
        at = bisect_right(self.downs, downstream) - 1
        return at >= 0 and self.counts[at] == 0 and downstream < self.end

    # Updates.

    def take(self, begun_at: int, runs: Iterable[Run], position: int, end: int | None) -> None:
        """Add what was copied from *begun_at* up to *position*; *end* is the next record's downstream offset, None if
        unknown. Known runs may be added again. If copying went back, the new copy applies from there on; if the target
        went back, everything known before is invalid. Where nothing was copied an *end* that is further on tells of
        records that are not known: they may be the source's next ones, copied and not heard of.
        """
        new = runs if isinstance(runs, Runs) else Runs(runs)
        has_moved = len(new) > 0 or position > self.covered_to
        if len(new) and not _is_ascending(new):
            self._take_one_by_one(begun_at, new)
        else:
            self._take_ascending(begun_at, new)
        if position > self.covered_to:
            if not len(new) and begun_at > self.covered_to:
                self._skip_to(begun_at)
            self._change(len(self) - 1)
            self.covered_to = position
        if has_moved and end is not None and self.covered_to == position:
            self._reach(end)

    def go_on(self, upstream: int, end: int) -> None:
        """Record that copying goes on at *upstream*, to *end* of the target or after it, and that what lies between the
        known records and *end* is of offsets before *upstream*: where it is there is not known.
        """
        if upstream > self.covered_to:
            self._skip_to(upstream)
        if self.covered_to == upstream:
            self._reach(end)

    def _reach(self, end: int) -> None:
        if end > self.end:
            self._change(len(self) - 1)
            self.end = end

    def go_back(self, upstream: int, end: int) -> None:
        """Record that copying goes on at *upstream*, to *end* of the target or after it: what is known before it stays,
        and what was copied from there on counts no more.
        """
        if upstream < self.covered_to:
            self._cut(upstream)
        self.go_on(upstream, end)

    def is_set_back(self, upstream: int, end: int) -> bool:
        """Whether records from *upstream* on are copied once more, to *end* of the target or after it: known ones went
        before that.
        """
        if upstream >= self.covered_to or end < self.end:
            return False
        last = next((at for at in reversed(range(len(self))) if self.spans[at] == self.counts[at]), None)
        return last is not None and self.starts[last] + self.spans[last] > upstream

    def _take_one_by_one(self, begun_at: int, runs: Runs) -> None:
        for run in runs:
            self._take_ascending(min(begun_at, run.upstream), Runs([run]))
            begun_at = run.upstream + run.length

    def _take_ascending(self, begun_at: int, runs: Runs) -> None:
        if not len(runs):
            return
        upstream, downstream = runs.upstreams[0], runs.downstreams[0]
        if upstream < self.covered_to:
            self._cut(upstream)
        if downstream < self.end:
            # The target lost records, or is another topic: earlier translations are invalid.
            self._begin(min(begun_at, upstream), downstream, is_origin=False)
        if begun_at > self.covered_to:
            self._skip_to(begun_at)
        self._change(len(self) - 1)
        self._join(runs)
        self.covered_to = self.starts[-1] + self.spans[-1]
        self.end = self.downs[-1] + self.counts[-1]

    def _join(self, runs: Runs) -> None:
        first = 0
        if len(self) and self.spans[-1] == self.counts[-1]:
            behind = self.starts[-1] + self.spans[-1], self.downs[-1] + self.spans[-1]
            if behind == (runs.upstreams[0], runs.downstreams[0]):
                self.spans[-1] += runs.lengths[0]
                self.counts[-1] += runs.lengths[0]
                first = 1
        self.starts.extend(runs.upstreams[first:])
        self.downs.extend(runs.downstreams[first:])
        self.spans.extend(runs.lengths[first:])
        self.counts.extend(runs.lengths[first:])

    def _skip_to(self, upstream: int) -> None:
        """Record that uncovered offsets before *upstream* are unknown."""
        self._change(len(self) - 1)
        if upstream > self.covered_to:
            self._append(self.covered_to, self.end, upstream - self.covered_to, 0)
        self.covered_to = upstream

    def _append(self, start: int, down: int, span: int, count: int) -> None:
        self.starts.append(start)
        self.downs.append(down)
        self.spans.append(span)
        self.counts.append(count)

    def _cut(self, upstream: int) -> None:
        """Drop everything from *upstream* on."""
        if upstream <= self.covered_from:
            self._begin(upstream, self.end_from, is_origin=self.is_origin)
            return
        at = bisect_left(self.starts, upstream)
        self._change(at - 1)
        if at < len(self):
            self.end = self.downs[at]
        self.covered_to = upstream
        for column in (self.starts, self.downs, self.spans, self.counts):
            del column[at:]
        if not at:
            return
        last = at - 1
        left = self._count_before(last, upstream)
        self.spans[last], self.counts[last] = min(self.spans[last], upstream - self.starts[last]), left
        self.end = self.downs[last] + left

    def _change(self, at: int) -> None:
        at = max(at, 0)
        self.first_changed = at if self.first_changed is None else min(at, self.first_changed)

    def append_chunk(self, chunk: RunChunk) -> None:
        """Add stored ranges, as far as they lie after what is known."""
        first = bisect_left(chunk.starts, self.covered_to)
        if first and chunk.starts[first - 1] + chunk.spans[first - 1] > self.covered_to:
            # An older range, half of which is known better: where the other half went is unknown.
            if first == len(chunk.starts):
                return
            known_from = chunk.starts[first]
        else:
            known_from = max(chunk.covered_from, self.covered_to)
        if chunk.covered_to < known_from or chunk.end < self.end:
            return
        if first < len(chunk.starts) and chunk.downs[first] < self.end:
            return
        self._skip_to(known_from)
        self.starts.extend(chunk.starts[first:])
        self.downs.extend(chunk.downs[first:])
        self.spans.extend(chunk.spans[first:])
        self.counts.extend(chunk.counts[first:])
        self.covered_to, self.end = chunk.covered_to, chunk.end

    # Bounding memory.

    def coarsen(self) -> None:
        """Merge the ranges of the older half in pairs. Older offsets are translated less precisely: by at most the
        gaps in their range, never ahead.
        """
        half = len(self) // 4 * 2
        if not half:
            return
        starts, counts = self.starts[:half], self.counts[:half]
        ends = map(add, starts[1::2], self.spans[1:half:2])
        spans = array("q", map(sub, ends, starts[0::2]))
        self.counts[:half] = array("q", map(_together, counts[0::2], counts[1::2], spans))
        self.spans[:half] = spans
        self.starts[:half] = starts[0::2]
        self.downs[:half] = self.downs[0:half:2]
        self.first_changed = 0


def _together(first: int, second: int, span: int) -> int:
    """Count the known records of two ranges; the result must not look like a run. Without a gap between them at the
    source there is one at the target. If nothing is known of one, there may be no record at its start; so nothing is
    known of both.
    """
    return min(first + second, span - 1) if first and second else 0


def _is_ascending(runs: Runs) -> bool:
    """Whether both sides only advance, as they do unless one loses records."""
    behind_upstream = map(add, runs.upstreams, runs.lengths)
    behind_downstream = map(add, runs.downstreams, runs.lengths)
    following_upstream, following_downstream = iter(runs.upstreams), iter(runs.downstreams)
    next(following_upstream), next(following_downstream)
    return all(map(le, behind_upstream, following_upstream)) and all(map(le, behind_downstream, following_downstream))


# Stored chunks. Each is valid for its topic; but a crash may have left older chunks beside newer ones. So gaps between
# two chunks are unknown, and overlaps count once.


def chunk_count(index: RunIndex) -> int:
    """Return the number of chunks of *index*; an empty one, which still records what it covers, has one."""
    return max(1, -(-len(index) // CHUNK_RUNS))


def changed_chunks(index: RunIndex) -> range:
    """Return the numbers of the chunks that have changed since `index.first_changed` was last None."""
    if index.first_changed is None:
        return range(0)
    return range(min(index.first_changed // CHUNK_RUNS, chunk_count(index) - 1), chunk_count(index))


def cut_chunk(index: RunIndex, number: int) -> RunChunk:
    """Return one chunk of *index*."""
    first, behind = number * CHUNK_RUNS, (number + 1) * CHUNK_RUNS
    is_last = behind >= len(index)
    return RunChunk(
        covered_from=index.starts[first] if number else index.covered_from,
        covered_to=index.covered_to if is_last else index.starts[behind],
        end_from=index.downs[first] if number else index.end_from,
        end=index.end if is_last else index.downs[behind],
        is_origin=index.is_origin and not number,
        starts=index.starts[first:behind],
        downs=index.downs[first:behind],
        spans=index.spans[first:behind],
        counts=index.counts[first:behind],
    )


def put_together(kept: Iterable[KeptChunk]) -> RunIndex | None:
    """Return the index from the *kept* chunks of one topic-partition; None if there are none."""
    index: RunIndex | None = None
    for one in sorted(kept, key=attrgetter("number")):
        chunk = one.chunk
        if chunk is None:
            continue
        if index is None:
            index = RunIndex(chunk.covered_from, chunk.end_from, is_origin=chunk.is_origin)
        index.append_chunk(chunk)
    return index
