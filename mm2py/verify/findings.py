"""What a comparison has found: numbers of all that is different, and the first differences one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from mm2py.verify.terms import PARTS, SOURCE, TARGET, Content, Mark
from mm2py.verify.values import Counts, Difference, DifferenceKind, Slice


#: How many differences are described; all are counted.
DESCRIBED = 100
_NO_KEY = hash(None)
#: How many records that are on one side only are remembered, to find those that have only moved.
_REMEMBERED = 100_000


class Findings:
    """The findings of one slice. `Comparison` determines which records are where; here they are classified.
    `unlisted_extra` counts extra records of the target that were not stored.
    """

    def __init__(self, part: Slice, *, ignore_timestamps: bool) -> None:
        self.differences: list[Difference] = []
        self.unlisted_extra = 0
        #: After the last record that was foreign when it was found.
        self.foreign_to = 0
        #: Has any record been the same on both sides? Before that the slice explains what is on one side only.
        self.has_matched = False
        self._slice = part
        self._ignore_timestamps = ignore_timestamps
        self._numbers = dict.fromkeys((field.name for field in attrs.fields(Counts)), 0)
        self._lone: list[dict[Mark, list[int]]] = [{}, {}]
        self._remembered = 0
        self._versions: dict[tuple[Mark, Mark], Difference] = {}

    def add(self, name: str, count: int = 1) -> None:
        """Count records, by the name that they have in `Counts`."""
        self._numbers[name] += count

    def equal(self, count: int) -> None:
        """Count records that are the same on both sides."""
        self._numbers["equal"] += count
        self.has_matched = self.has_matched or count > 0

    def note_damaged(self, side: int, offset: int) -> None:
        """Count a batch that cannot be read, by its first offset."""
        self.add("damaged")
        self._describe(Difference(DifferenceKind.DAMAGED, None if side else offset, offset if side else None))

    def is_version(self, mark: Mark, other: Mark) -> bool:
        """
        Whether two records are likely the same one, of which something was changed.

        Of timestamp, key and value two must be the same: where compaction left other records of a key on either side,
        these are no versions of each other.
        """
        timestamp, key, value = (a == b for a, b in zip(mark[:3], other[:3], strict=True))
        if self._ignore_timestamps:
            return value or (key and mark[1] != _NO_KEY)
        return timestamp + key + value >= 2  # noqa: PLR2004 - two of three

    def changed(self, upstream: int, mark: Mark, downstream: int, other: Mark) -> None:
        parts = tuple(name for name, a, b in zip(PARTS, mark, other, strict=True) if a != b)
        self.has_matched = True
        swapped = self._versions.pop((other, mark), None)
        if swapped is not None:
            # Each of two records stands where the other one was: nothing was changed.
            self._count_changed(parts, -1)
            self.differences = [
                attrs.evolve(it, kind=DifferenceKind.OUT_OF_ORDER, parts=()) if it == swapped else it
                for it in self.differences
            ]
            self.add("out_of_order")
            self.moved(upstream, downstream)
            return
        self._count_changed(parts, 1)
        difference = Difference(DifferenceKind.CHANGED, upstream, downstream, parts)
        self._describe(difference)
        if len(self._versions) < _REMEMBERED:
            self._versions[mark, other] = difference

    def _count_changed(self, parts: Iterable[str], count: int) -> None:
        self.add("changed", count)
        for part in parts:
            self.add("changed_headers" if part == "headers" else f"changed_{part}s", count)

    def only_at_source(self, upstream: int, mark: Mark, downstream: int | None, *, at_end: bool = False) -> None:
        proven = self._slice.proven
        if at_end and (proven is None or upstream >= proven):
            self.add("pending")
            self.add("source", -1)
        elif not self.has_matched and self._slice.target_has_expired:
            self.add("only_source")
        elif self._is_elsewhere(TARGET, mark, SOURCE, upstream):
            self.add("foreign", -1)
            self.moved(upstream, downstream)
        else:
            self.add("missing")
            self._describe(Difference(DifferenceKind.MISSING, upstream, downstream))

    def only_at_target(self, downstream: int, mark: Mark, upstream: int | None) -> None:
        if not self.has_matched and self._slice.finds_start:
            self.add("target", -1)
        elif not self.has_matched and self._slice.source_has_expired:
            self.add("only_target")
        elif self._is_elsewhere(SOURCE, mark, TARGET, downstream):
            self.add("missing", -1)
            self.moved(upstream, downstream)
        else:
            self.add("foreign")
            self.foreign_to = max(self.foreign_to, downstream + 1)
            self._describe(Difference(DifferenceKind.FOREIGN, upstream, downstream))

    def _is_elsewhere(self, other: int, mark: Mark, side: int, offset: int) -> bool:
        """Whether the *other* side has that record at another place; remember it where it has not."""
        lone = self._lone[other].get(mark)
        if lone:
            at = lone.pop(0)
            if not lone:
                del self._lone[other][mark]
            self._remembered -= 1
            kind = DifferenceKind.FOREIGN if other == TARGET else DifferenceKind.MISSING
            self._forget(kind, at)
            return True
        if self._remembered < _REMEMBERED:
            self._lone[side].setdefault(mark, []).append(offset)
            self._remembered += 1
        elif side == TARGET:
            self.unlisted_extra += 1
        return False

    def moved(self, upstream: int | None, downstream: int | None) -> None:
        self.add("out_of_order")
        self._describe(Difference(DifferenceKind.OUT_OF_ORDER, upstream, downstream))

    def _forget(self, kind: DifferenceKind, offset: int) -> None:
        """Do not call a record missing or foreign any more that was found at another place."""

        def place(it: Difference) -> int | None:
            return it.downstream if kind is DifferenceKind.FOREIGN else it.upstream

        self.differences = [it for it in self.differences if not (it.kind is kind and place(it) == offset)]

    def _describe(self, difference: Difference) -> None:
        if len(self.differences) < DESCRIBED:
            self.differences.append(difference)

    # What the target holds too often.

    @property
    def has_extra(self) -> bool:
        """Whether the target holds records that may be repeated ones of the source."""
        return bool(self._lone[TARGET])

    def recogniser(self, mark_of: Callable[[Content], Mark]) -> Callable[[Iterable[Content]], bool]:
        """
        Return what is to be shown the whole source: it finds out which records of the target are repeated ones.

        It says whether there are any left to be found. Until then they count as foreign.
        """
        left = set(self._lone[TARGET])

        def recognise(contents: Iterable[Content]) -> bool:
            for timestamp, *rest in contents:
                mark = mark_of((-1 if self._ignore_timestamps else timestamp, *rest))
                if mark in left:
                    left.discard(mark)
                    self._recognise(mark)
            return bool(left)

        return recognise

    def _recognise(self, mark: Mark) -> None:
        offsets = set(self._lone[TARGET][mark])
        self.add("foreign", -len(offsets))
        self.add("repeated", len(offsets))
        self.differences = [
            attrs.evolve(it, kind=DifferenceKind.REPEATED)
            if it.kind is DifferenceKind.FOREIGN and it.downstream in offsets
            else it
            for it in self.differences
        ]

    def counts(self) -> Counts:
        """
        Return the numbers.

        Extra records that were too many to be remembered count as what most of the remembered ones are.
        """
        numbers = dict(self._numbers)
        listed = numbers["foreign"] - self.unlisted_extra
        if self.unlisted_extra and numbers["repeated"] > listed:
            numbers["repeated"] += self.unlisted_extra
            numbers["foreign"] = listed
        return Counts(**numbers)
