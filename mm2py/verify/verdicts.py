"""
The slices of a partition, and the verdict on it.

A pair of offsets is fixed before anything is compared, in this order: the flow's position, the target's end, the
source's end. So every record that the target holds then is one that the source held before its own end, however long
the mirror goes on writing; and every record before the position was at the target before its end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import reduce

import attrs

from mm2py.model.flow import TopicPartition
from mm2py.verify.values import Counts, DifferenceKind, Equality, PartitionReport, Slice, SliceOutcome


#: How many differences of a partition are described.
_DESCRIBED = 20
#: Least offsets of a slice, so that starting one does not cost more than comparing it.
LEAST_SPAN, GREATEST_SPAN = 20_000, 2_000_000
#: A sample is taken of smaller ones.
SAMPLE_SPAN = 5_000

#: An offset as the other side has it, None where that is not exactly known.
Translate = Callable[[int], int | None]


@attrs.frozen
class PartitionBounds:
    """A partition before its comparison; ends are after the last record. `proven` is the flow's position, None if
    there is none. `asked_from` and `asked_to` are the requested range, in upstream offsets.
    """

    source: TopicPartition
    remote_topic: str
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    proven: int | None = None
    asked_from: int | None = None
    asked_to: int | None = None
    topic_ids: tuple[str | None, str | None] = (None, None)


@attrs.frozen
class Whole:
    """A partition's comparison in one piece, with notes known beforehand. What the target holds before `copied_from`
    may be of a topic that had the source topic's name before; None if not.
    """

    slice: Slice
    is_exact: bool
    counts: Counts = attrs.field(factory=Counts)
    notes: tuple[str, ...] = ()
    copied_from: int | None = None


def requested(look: PartitionBounds) -> tuple[int, int]:
    """Return the upstream offsets of a partition that are to be compared."""
    begin = max(look.source_start, look.asked_from or 0)
    return begin, max(begin, look.source_end if look.asked_to is None else min(look.asked_to, look.source_end))


def whole_of(look: PartitionBounds, downstream: Translate, upstream: Translate, *, is_appended: bool = False) -> Whole:
    """Return what of a partition is to be compared with what; *is_appended* says that a topic that is created again is
    copied after what was copied of the former one.
    """
    begin, end = requested(look)
    begins_with_log = begin == look.source_start
    notes: list[str] = []
    counts = Counts()
    first = downstream(begin)
    is_exact = first is not None
    copied_from = None
    if first is None:
        first = look.target_start if begins_with_log else None
        # Of a topic of which nothing is known to be copied the target has nothing yet.
        copied_from = look.target_end if is_appended and look.proven == begin == 0 else None
    else:
        mirrored_from = upstream(first)
        if mirrored_from is not None and begin < mirrored_from <= end:
            if begins_with_log:
                notes.append(f"mirrored from upstream offset {mirrored_from} on")
            begin = mirrored_from
        if first < look.target_start:
            held_from = upstream(look.target_start)
            is_exact = held_from is not None
            if held_from is not None:
                held_from = min(held_from, end)
                counts = Counts(only_source=held_from - begin)
                begin = held_from
            first = look.target_start
        elif begins_with_log and look.source_start > 0 and first > look.target_start:
            counts = Counts(only_target=first - look.target_start)
        elif begin == 0 and first > look.target_start:
            # Nothing has expired at the source, so what comes first at the target is foreign or repeated.
            copied_from = first if is_appended else None
            first = look.target_start
    last = None if look.asked_to is None or end == look.source_end else downstream(end)
    part = Slice(
        number=0,
        source=look.source,
        remote_topic=look.remote_topic,
        upstream_from=begin,
        upstream_to=end,
        downstream_from=first,
        downstream_to=look.target_end if last is None else max(first or 0, min(last, look.target_end)),
        ends_with_source=end < look.source_end and last is None,
        proven=look.proven if last is None else end,
        floor=look.source_start,
        source_has_expired=not is_exact and look.source_start > 0,
        target_has_expired=not is_exact and look.target_start > 0,
        topic_ids=look.topic_ids,
    )
    return Whole(part, is_exact, counts, tuple(notes), copied_from)


def cut(whole: Whole, downstream: Translate, span: int, *, anywhere: bool = False) -> Iterator[Slice]:
    """
    Cut a partition into slices of about *span* offsets, where it is exactly known what meets what.

    With *anywhere* also where that is not known: such slices find their beginning by themselves, and what the target
    holds between two of them belongs to neither.
    """
    part = whole.slice
    left = part
    for upstream in range(part.upstream_from + span, part.upstream_to, span):
        if upstream <= left.upstream_from:
            continue
        meets = downstream(upstream) if whole.is_exact else None
        if meets is not None and (left.downstream_from or 0) <= meets <= part.downstream_to:
            yield attrs.evolve(left, upstream_to=upstream, downstream_to=meets, proven=upstream, ends_with_source=False)
            left = attrs.evolve(
                part,
                upstream_from=upstream,
                downstream_from=meets,
                source_has_expired=False,
                target_has_expired=False,
            )
        elif anywhere and not whole.is_exact:
            yield attrs.evolve(left, upstream_to=upstream, ends_with_source=True)
            left = attrs.evolve(
                part,
                upstream_from=upstream,
                downstream_from=None,
                source_has_expired=False,
                target_has_expired=False,
            )
    yield left


def span_for(offsets: int, slots: int) -> int:
    """Return how many offsets a slice spans so that *slots* are busy to the end, four slices for each."""
    return max(LEAST_SPAN, min(GREATEST_SPAN, offsets // max(1, slots * 4)))


def sampled(slices: Sequence[Slice], share: float, seed: int) -> list[Slice]:
    """Choose slices at random, at least one, that hold about that *share* of all offsets."""
    order = list(slices)
    random.Random(seed).shuffle(order)  # noqa: S311 - it need not be hard to guess
    wanted = share * sum(part.offsets for part in order)
    chosen: list[Slice] = []
    taken = 0
    for part in order:
        if taken >= wanted and chosen:
            break
        chosen.append(part)
        taken += part.offsets
    return sorted(chosen, key=lambda part: part.number)


def needs_one_piece(outcomes: Sequence[SliceOutcome]) -> bool:
    """
    Whether a partition must be compared again in one piece.

    What is missing in one slice may be in another, and where an index of runs is wrong slices do not meet.
    """
    if len(outcomes) < 2 or any(outcome.reason for outcome in outcomes):  # noqa: PLR2004
        return False
    lone = sum(o.counts.missing + o.counts.repeated + o.counts.foreign + o.counts.out_of_order for o in outcomes)
    return lone > 0 or not all(outcome.is_aligned for outcome in outcomes)


def judge(
    whole: Whole, outcomes: Sequence[SliceOutcome], *, share: float = 1.0, ignore_expired: bool = False
) -> PartitionReport:
    """Return the verdict on a partition."""
    counts = _set_apart(whole, reduce(Counts.plus, (outcome.counts for outcome in outcomes), whole.counts), outcomes)
    reasons = list(dict.fromkeys(_reasons(outcomes)))
    notes = list(whole.notes)
    excused = _excused(counts, outcomes)
    if excused:
        reasons.append(excused)
    if counts.only_source + counts.only_target:
        (notes if ignore_expired else reasons).append(
            _expired(counts) if whole.copied_from is None else _former(counts)
        )
    if counts.pending:
        if whole.slice.proven is None:
            reasons.append(
                f"no position says whether the last {counts.pending:,} offsets of the source were copied; "
                "they are not at the target"
            )
        else:
            notes.append(f"{counts.pending:,} offsets of the source are not mirrored yet")
    if any(outcome.ignored_timestamps for outcome in outcomes):
        notes.append("the target stamps records itself: timestamps were not compared")
    verdict = Equality.CANNOT_TELL if reasons else Equality.EQUAL
    if counts.differing and not excused:
        verdict = Equality.DIFFERENT
    differences = [
        difference
        for outcome in outcomes
        for difference in outcome.differences
        if counts.foreign or difference.kind is not DifferenceKind.FOREIGN
    ]
    part = whole.slice
    return PartitionReport(
        source=part.source,
        remote=part.remote,
        verdict=verdict,
        upstream=(part.upstream_from, part.upstream_to),
        downstream=(part.downstream_from or 0, part.downstream_to),
        counts=counts,
        differences=tuple(differences[:_DESCRIBED]),
        reasons=tuple(reasons),
        notes=tuple(notes),
        share=share,
    )


def _set_apart(whole: Whole, counts: Counts, outcomes: Sequence[SliceOutcome]) -> Counts:
    """Count foreign records as the target's alone if all of them are before what was copied of the present topic."""
    if whole.copied_from is None or any(outcome.foreign_to > whole.copied_from for outcome in outcomes):
        return counts
    return attrs.evolve(counts, foreign=0, only_target=counts.only_target + counts.foreign)


def _former(counts: Counts) -> str:
    return (
        f"{counts.only_target:,} records at the beginning are at the target only: of the topic that had this name "
        "before it was created again (copy.on.source.recreated), or of another writer"
    )


def _reasons(outcomes: Sequence[SliceOutcome]) -> Iterator[str]:
    for outcome in outcomes:
        if outcome.reason:
            yield outcome.reason + (f"; {outcome.hint}" if outcome.hint else "")


def _excused(counts: Counts, outcomes: Sequence[SliceOutcome]) -> str:
    """Return a reason if compaction may explain all differences; empty otherwise. A compacted log has gaps, and only
    such a log may lack records.
    """
    source_holes = sum(outcome.source_holes for outcome in outcomes)
    target_holes = sum(outcome.target_holes for outcome in outcomes)
    extra = counts.repeated + counts.foreign
    only_stamps = counts.changed if source_holes and counts.changed == counts.changed_timestamps else 0
    if counts.changed_keys + counts.changed_values + counts.changed_headers:
        only_stamps = 0
    unexplained = counts.differing - only_stamps
    if counts.missing <= target_holes:
        unexplained -= counts.missing
    if extra <= source_holes:
        unexplained -= extra
    if unexplained or not counts.differing:
        return ""
    sides = " and ".join(name for name, holes in (("source", source_holes), ("target", target_holes)) if holes)
    return (
        f"compacted at the {sides}: {counts.missing:,} records are only at the source and {extra:,} only at the "
        "target, which compaction may have removed on the other side"
    )


def _expired(counts: Counts) -> str:
    said = []
    if counts.only_source:
        said.append(f"{counts.only_source:,} offsets at the beginning are at the source only")
    if counts.only_target:
        said.append(f"{counts.only_target:,} offsets at the beginning are at the target only")
    return f"retention has removed more on one side: {' and '.join(said)}"
