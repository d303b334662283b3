"""Comparing one slice: both sides are read and walked in parallel. Batches whose records are byte for byte the same
are skipped unopened; all others are decoded and compared record by record. Plain asyncio that knows nothing of Spark;
what to make of differences is `mm2py.verify.compare`'s business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError
from mm2py.pipeline.copy.refusals import failure_of
from mm2py.verify.anchors import ANCHOR
from mm2py.verify.compare import Comparison
from mm2py.verify.side import PartitionReader, SliceLostError, are_same
from mm2py.verify.terms import SOURCE, TARGET, Content, Mark, Passed, Want
from mm2py.verify.values import Slice, SliceOutcome, VerifyPlan
from mm2py.wire.batches.batch import MalformedRecordSetError
from mm2py.wire.batches.payloads import split
from mm2py.wire.batches.rebuild import UnreadableBatchError
from mm2py.wire.cluster import Cluster
from mm2py.wire.fetch_forms import FetchSizes


#: How many of the records before it are searched for, when the next match of both sides is far away.
_SOUGHT: Final = 256
_KEPT_OUT = (BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError, SliceLostError)


class _StampedError(Exception):
    """The target stamps records itself, so that timestamps cannot be compared."""


async def compare_slice(plan: VerifyPlan, part: Slice, clusters: tuple[Cluster, Cluster]) -> SliceOutcome:
    """Compare a slice; a failure of the clusters is part of the outcome."""
    try:
        return await _Reading(plan, part, clusters).run()
    except _StampedError:
        return await _Reading(plan, part, clusters, ignore_timestamps=True).run()


class _Reading:
    """One way through a slice."""

    def __init__(
        self, plan: VerifyPlan, part: Slice, clusters: tuple[Cluster, Cluster], *, ignore_timestamps: bool = False
    ) -> None:
        self._plan = plan
        self._slice = part
        self._clusters = clusters
        self._ignore_timestamps = ignore_timestamps
        self._comparison = Comparison(part, mark_of, ignore_timestamps=ignore_timestamps)
        #: The two that are compared, and all that were read, by what they are of.
        self._sides: tuple[PartitionReader, PartitionReader]
        self._read: tuple[list[PartitionReader], list[PartitionReader]] = [], []
        self._unopened = self._opened = 0

    async def run(self) -> SliceOutcome:
        reason, hint = "", ""
        try:
            async with asyncio.TaskGroup() as tasks:
                try:
                    await self._compare(tasks)
                finally:
                    for side in (*self._read[SOURCE], *self._read[TARGET]):
                        side.close()
        except* _StampedError as group:
            raise _StampedError from group
        except* _KEPT_OUT as group:
            failure = failure_of(_first(group), (self._plan.source, self._plan.target))
            reason, hint = failure.message, failure.hint
        except* (MalformedRecordSetError, UnreadableBatchError) as group:
            reason = f"batches of {self._slice.source} or {self._slice.remote} make no sense: {_first(group)}"
        return self._outcome(reason, hint)

    def _outcome(self, reason: str, hint: str) -> SliceOutcome:
        ours, theirs = self._read
        return SliceOutcome(
            number=self._slice.number,
            counts=self._comparison.findings.counts(),
            differences=tuple(self._comparison.findings.differences),
            reason=reason,
            hint=hint,
            source_holes=sum(side.holes for side in ours),
            target_holes=sum(side.holes for side in theirs),
            foreign_to=self._comparison.findings.foreign_to,
            is_aligned=self._comparison.is_aligned,
            ignored_timestamps=self._ignore_timestamps,
            source_bytes=sum(side.bytes for side in ours),
            target_bytes=sum(side.bytes for side in theirs),
            batches_unopened=self._unopened,
            batches_opened=self._opened,
        )

    def _side(
        self, tasks: asyncio.TaskGroup, which: int, start: int, end: int, purpose: str = "verify"
    ) -> PartitionReader:
        """Begin to read one side; each reader of one time has a purpose, and so a connection, of its own."""
        plan, part = self._plan, self._slice
        # The target's aborted records are ignored.
        reads_committed = plan.reads_committed or which == TARGET
        sizes = FetchSizes(1, plan.fetch_bytes, plan.fetch_bytes, reads_committed)
        tp = part.remote if which == TARGET else part.source
        cluster, topic_id = self._clusters[which], part.topic_ids[which]
        side = PartitionReader(
            cluster, tp, f"{purpose} {which}", (start, end), sizes=sizes, tasks=tasks, topic_id=topic_id
        )
        self._read[which].append(side)
        return side

    async def _compare(self, tasks: asyncio.TaskGroup) -> None:
        part, comparison = self._slice, self._comparison
        downstream_from = part.downstream_from
        if downstream_from is None:
            downstream_from = await self._locate(tasks)
        self._sides = (
            self._side(tasks, SOURCE, part.upstream_from, part.upstream_to),
            self._side(tasks, TARGET, downstream_from, part.downstream_to),
        )
        while (want := comparison.advance()) is not Want.NOTHING:
            if want is Want.SEARCH:
                await self._search(tasks)
            else:
                await self._feed(want)
        if comparison.findings.has_extra:
            await self._recognise(tasks)

    async def _locate(self, tasks: asyncio.TaskGroup) -> int:
        """
        Find a place of the target at which the slice's first record lies, or before which it cannot lie.

        The mirror keeps timestamps, so no record of the least of the first ones' timestamps or a later one is before
        the first of its kind at the target.
        """
        part = self._slice
        side = self._side(tasks, SOURCE, part.upstream_from, part.upstream_to, "locate")
        _, contents, _ = await side.rows()
        side.close()
        if not contents:
            return part.downstream_to
        earliest = min(timestamp for timestamp, *_ in contents[:_SOUGHT])
        found = (await self._clusters[TARGET].list_offsets([part.remote], max(0, earliest)))[part.remote]
        if isinstance(found, BrokerAnsweredError):
            raise found
        return part.downstream_to if found < 0 else min(found, part.downstream_to)

    async def _feed(self, want: Want) -> None:
        """Feed the comparison; if both sides are level, first with unopened batches."""
        comparison = self._comparison
        if comparison.is_level:
            await self._pass_equal()
        if want is Want.SOURCE and self._has_all():
            return
        which = want.value
        side = self._sides[which]
        try:
            offsets, contents, batches = await side.rows()
        except UnreadableBatchError as error:
            comparison.findings.note_damaged(which, error.offset)
            return
        self._check_stamps()
        self._opened += batches
        if not batches:
            comparison.end(which)
        elif offsets:
            comparison.feed(which, offsets, contents)

    async def _pass_equal(self) -> None:
        source, target = self._sides
        while True:
            ours, theirs = await source.peek(), await target.peek()
            if theirs is None:
                self._comparison.end(TARGET)
            if ours is None or theirs is None:
                return
            self._check_stamps()
            if not (source.is_whole(ours) and target.is_whole(theirs)):
                return
            if not are_same(ours, theirs, ignore_timestamps=self._ignore_timestamps):
                return
            self._comparison.pass_equal(ours.record_count)
            self._unopened += 1
            source.drop()
            target.drop()

    def _has_all(self) -> bool:
        """Whether nothing but what is not mirrored yet is left of the source, which then need not be read."""
        source, proven = self._sides[SOURCE], self._slice.proven
        if not self._comparison.has_source_alone or (proven is not None and source.next_offset < proven):
            return False
        self._comparison.findings.add("pending", max(0, source.end - source.next_offset))
        source.close()
        self._comparison.end(SOURCE)
        return True

    def _check_stamps(self) -> None:
        if self._sides[TARGET].is_stamped and not self._ignore_timestamps:
            raise _StampedError

    # What is not as it should be.

    async def _recognise(self, tasks: asyncio.TaskGroup) -> None:
        """Look through the source for what the target holds too often."""
        recognise = self._comparison.findings.recogniser(mark_of)
        side = self._side(tasks, SOURCE, self._slice.floor, self._slice.upstream_to, "recognise")
        while True:
            try:
                _, contents, batches = await side.rows()
            except UnreadableBatchError:
                continue
            if not batches or not recognise(contents):
                side.close()
                return

    async def _search(self, tasks: asyncio.TaskGroup) -> None:
        """Search as far as necessary for the point where both sides are equal again, and continue there."""
        windows = self._comparison.window(SOURCE), self._comparison.window(TARGET)
        for side in self._sides:
            side.close()
        scouts = [
            self._side(tasks, which, windows[which][-1][0] + 1, self._sides[which].end, "search")
            for which in (SOURCE, TARGET)
        ]
        scouting = _Scouting(windows, self._slice.proven, ignore_timestamps=self._ignore_timestamps)
        while not scouting.is_over:
            for which in (SOURCE, TARGET):
                if scouting.is_over or scouting.has_ended[which]:
                    continue
                try:
                    offsets, contents, batches = await scouts[which].rows()
                except UnreadableBatchError:
                    continue
                if batches:
                    scouting.look(which, offsets, contents)
                else:
                    scouting.has_ended[which] = True
        for side in scouts:
            side.close()
        starts = scouting.meets_at or (self._sides[SOURCE].end, self._sides[TARGET].end)
        self._comparison.jump(scouting.passed(), starts[TARGET])
        self._sides = (
            self._side(tasks, SOURCE, starts[SOURCE], self._sides[SOURCE].end),
            self._side(tasks, TARGET, starts[TARGET], self._sides[TARGET].end),
        )


class _Scouting:
    """Looks on either side for the first records that wait on the other one."""

    def __init__(
        self,
        windows: tuple[list[tuple[int, Mark]], list[tuple[int, Mark]]],
        proven: int | None,
        *,
        ignore_timestamps: bool,
    ) -> None:
        self._windows = windows
        self._proven = proven
        self._ignore_timestamps = ignore_timestamps
        self._sought = tuple(
            {mark: at for at, (_, mark) in reversed(list(enumerate(window[:_SOUGHT])))} for window in windows
        )
        self._further = [0, 0]
        self._pending = 0
        self._found: tuple[int, int] | None = None
        self.has_ended = [False, False]
        #: Where both sides are the same again.
        self.meets_at: tuple[int, int] | None = None

    @property
    def is_over(self) -> bool:
        return self.meets_at is not None or all(self.has_ended)

    def look(self, which: int, offsets: Sequence[int], contents: Sequence[Content]) -> None:
        """Look at the next records of a side."""
        other = self._windows[1 - which]
        if self._ignore_timestamps:
            contents = [(-1, payload) for _, payload in contents]
        marks = list(map(mark_of, contents))
        for at, mark in enumerate(marks):
            place = self._sought[1 - which].get(mark)
            if place is None:
                continue
            follow = min(ANCHOR, len(marks) - at, len(other) - place)
            if marks[at : at + follow] == [it for _, it in other[place : place + follow]]:
                self._found = which, place
                self._count(which, offsets[:at])
                meets = offsets[at], other[place][0]
                self.meets_at = meets if which == SOURCE else (meets[1], meets[0])
                return
        self._count(which, offsets)

    def _count(self, which: int, offsets: Sequence[int]) -> None:
        self._further[which] += len(offsets)
        if which == SOURCE:
            self._pending += sum(self._proven is None or offset >= self._proven for offset in offsets)

    def passed(self) -> Passed:
        """Return what lies before that place."""
        if self._found is None:
            further = self._further[SOURCE] - self._pending, self._further[TARGET]
            return Passed(self._windows, further, self._pending, is_end=True)
        which, place = self._found
        ours, theirs = self._windows
        if which == SOURCE:
            return Passed((ours, theirs[:place]), (self._further[SOURCE], 0))
        return Passed((ours[:place], theirs), (0, self._further[TARGET]))


def mark_of(content: Content) -> Mark:
    """Return what is remembered of a record, of which a side gives timestamp and payload."""
    timestamp, payload = content
    try:
        key, value, headers = split(payload)
    except ValueError:
        # Its batch is sound and still this makes no sense: it is the same only as what is the same bytes.
        key, value, headers = None, payload, ()
    return timestamp, hash(key), hash(value), hash(headers)


def _first(group: BaseExceptionGroup[Any]) -> Any:
    """Return the first error of a group, which may hold groups."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
