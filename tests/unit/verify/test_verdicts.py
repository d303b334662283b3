"""Slices cover what was asked for, once, and each verdict has its reason."""

from __future__ import annotations

import itertools

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.core.offsets.translation import RunIndex, Translated, Translation
from mm2py.model.epoch import Run
from mm2py.model.flow import TopicPartition
from mm2py.verify.values import (
    Counts,
    Difference,
    DifferenceKind,
    Equality,
    PartitionReport,
    SliceOutcome,
    VerifyReport,
)
from mm2py.verify.verdicts import PartitionBounds, Whole, cut, judge, needs_one_piece, sampled, span_for, whole_of


TP = TopicPartition("orders", 3)
LOOK = PartitionBounds(TP, "A.orders", source_start=0, source_end=1_000, target_start=0, target_end=900, proven=900)


def _exact(translation: Translation) -> int | None:
    return translation.offset if isinstance(translation, Translated) and translation.is_exact else None


def _index(*runs: tuple[int, int, int]) -> RunIndex:
    index = RunIndex(0, 0, is_origin=True)
    end = runs[-1][0] + runs[-1][2]
    index.take(0, [Run(*run) for run in runs], end, runs[-1][1] + runs[-1][2])
    return index


def _whole(look: PartitionBounds, index: RunIndex | None) -> Whole:
    if index is None:
        return whole_of(look, lambda _: None, lambda _: None)
    return whole_of(look, lambda at: _exact(index.downstream(at)), lambda at: _exact(index.upstream(at)))


def _outcome(**counts: int) -> SliceOutcome:
    return SliceOutcome(0, Counts(**counts))


def test_without_an_index_a_partition_is_compared_from_the_starts_of_both_logs() -> None:
    """What retention removed on either side is then found out by the comparison itself."""
    part = _whole(attrs.evolve(LOOK, source_start=100, target_start=40), None).slice

    assert (part.upstream_from, part.downstream_from) == (100, 40)
    assert (part.upstream_to, part.downstream_to) == (1_000, 900)
    assert part.source_has_expired
    assert part.target_has_expired


def test_with_an_index_both_begin_at_the_same_record() -> None:
    """Where one log begins later than the other, it is known how much cannot be compared."""
    index = _index((0, 0, 500), (510, 500, 400))
    source_expired = _whole(attrs.evolve(LOOK, source_start=300, target_start=100), index)
    target_expired = _whole(attrs.evolve(LOOK, source_start=100, target_start=600), index)

    assert (source_expired.slice.upstream_from, source_expired.slice.downstream_from) == (300, 300)
    assert source_expired.counts == Counts(only_target=200)
    assert (target_expired.slice.upstream_from, target_expired.slice.downstream_from) == (610, 600)
    assert target_expired.counts == Counts(only_source=510)


def test_what_the_target_holds_before_the_first_record_is_compared() -> None:
    """If the source has lost nothing, it is foreign, or there twice; unless another mirror has written it."""
    shifted = _whole(LOOK, _index((0, 100, 800)))
    later = _whole(LOOK, _index((200, 100, 700)))

    assert (shifted.slice.upstream_from, shifted.slice.downstream_from, shifted.counts) == (0, 0, Counts())
    assert not shifted.slice.target_has_expired
    assert (later.slice.upstream_from, later.slice.downstream_from) == (200, 100)


def test_a_range_that_was_asked_for_is_not_what_expired() -> None:
    """If a user asks for a range of offsets, what lies before it is not reported."""
    index = _index((0, 0, 900))
    whole = _whole(attrs.evolve(LOOK, asked_from=200, asked_to=700), index)
    unknown = _whole(attrs.evolve(LOOK, asked_from=200, asked_to=700), None)

    assert whole.counts == Counts()
    part = whole.slice
    assert (part.upstream_from, part.upstream_to, part.downstream_from, part.downstream_to) == (200, 700, 200, 700)
    assert not part.ends_with_source
    assert (unknown.slice.downstream_from, unknown.slice.downstream_to) == (None, 900)
    assert unknown.slice.ends_with_source


@given(st.integers(1, 400), st.lists(st.tuples(st.integers(1, 90), st.integers(0, 5)), min_size=1, max_size=10))
def test_slices_cover_everything_once_and_meet_each_other(span: int, shape: list[tuple[int, int]]) -> None:
    """Each upstream and each downstream offset is in one slice, and each slice begins where the one before ends."""
    runs, upstream, downstream = [], 0, 0
    for length, gap in shape:
        runs.append((upstream, downstream, length))
        upstream, downstream = upstream + length + gap, downstream + length
    index = _index(*runs)
    whole = _whole(attrs.evolve(LOOK, source_end=upstream + 50, target_end=downstream), index)
    slices = list(cut(whole, lambda at: _exact(index.downstream(at)), span))

    assert slices[0].upstream_from == whole.slice.upstream_from
    assert (slices[-1].upstream_to, slices[-1].downstream_to) == (upstream + 50, downstream)
    for one, other in itertools.pairwise(slices):
        assert one.upstream_to == other.upstream_from
        assert one.downstream_to == other.downstream_from
        assert one.proven == one.upstream_to
    assert slices[-1].proven == 900


def test_without_an_index_a_partition_is_one_slice_unless_a_sample_is_taken() -> None:
    """A piece in the middle finds its beginning by itself, and leaves what follows it to others."""
    whole = _whole(LOOK, None)

    assert list(cut(whole, lambda _: None, 100)) == [whole.slice]
    pieces = list(cut(whole, lambda _: None, 400, anywhere=True))
    assert [(it.upstream_from, it.upstream_to, it.downstream_from) for it in pieces] == [
        (0, 400, 0),
        (400, 800, None),
        (800, 1_000, None),
    ]
    assert [it.ends_with_source for it in pieces] == [True, True, False]


def test_the_same_seed_takes_the_same_sample() -> None:
    """A sample holds about the share that was asked for, and never nothing."""
    whole = _whole(attrs.evolve(LOOK, source_end=10_000), None)
    slices = [attrs.evolve(it, number=n) for n, it in enumerate(cut(whole, lambda _: None, 100, anywhere=True))]
    some = sampled(slices, 0.2, seed=4)

    assert some == sampled(slices, 0.2, seed=4)
    assert some != sampled(slices, 0.2, seed=5)
    assert sum(it.offsets for it in some) == 2_000
    assert len(sampled(slices, 0.000_1, seed=1)) == 1
    assert span_for(10_000, 4) < span_for(100_000_000, 4)


@pytest.mark.parametrize(
    ("outcome", "verdict", "said"),
    [
        (_outcome(equal=5), Equality.EQUAL, ""),
        (_outcome(equal=5, missing=1), Equality.DIFFERENT, ""),
        (_outcome(equal=5, changed=1, changed_values=1), Equality.DIFFERENT, ""),
        (_outcome(equal=5, pending=3), Equality.EQUAL, "3 offsets of the source are not mirrored yet"),
        (_outcome(equal=5, only_source=3), Equality.CANNOT_TELL, "retention has removed more on one side"),
        (
            _outcome(equal=5, only_target=3, missing=1),
            Equality.DIFFERENT,
            "retention has removed more on one side",
        ),
        (attrs.evolve(_outcome(missing=4), target_holes=9), Equality.CANNOT_TELL, "compacted at the target"),
        (attrs.evolve(_outcome(foreign=4), source_holes=9), Equality.CANNOT_TELL, "compacted at the source"),
        (attrs.evolve(_outcome(missing=4), target_holes=3), Equality.DIFFERENT, ""),
        (attrs.evolve(_outcome(missing=4), source_holes=9), Equality.DIFFERENT, ""),
        (
            attrs.evolve(_outcome(missing=4, changed=1, changed_values=1), target_holes=9, source_holes=9),
            Equality.DIFFERENT,
            "",
        ),
        (
            SliceOutcome(0, reason="no rights", hint="grant READ"),
            Equality.CANNOT_TELL,
            "no rights; grant READ",
        ),
        (SliceOutcome(0, ignored_timestamps=True), Equality.EQUAL, "timestamps were not compared"),
    ],
)
def test_each_verdict_and_its_reason(outcome: SliceOutcome, verdict: Equality, said: str) -> None:
    """What differs for sure makes different; what may have another cause could not be told."""
    report = judge(_whole(LOOK, None), [outcome])

    assert report.verdict is verdict
    assert said in "; ".join((*report.reasons, *report.notes))
    assert bool(report.reasons) or verdict is not Equality.CANNOT_TELL


def test_without_a_position_what_is_missing_at_the_end_is_unknown() -> None:
    """Records missing there may have been copied and lost, or not be copied yet."""
    report = judge(_whole(attrs.evolve(LOOK, proven=None), None), [_outcome(equal=5, pending=2)])

    assert report.verdict is Equality.CANNOT_TELL
    assert "no position says" in report.reasons[0]


def test_what_expired_may_be_ignored() -> None:
    """Then it is told, and does not count."""
    report = judge(_whole(LOOK, None), [_outcome(equal=5, only_source=3)], ignore_expired=True)

    assert report.verdict is Equality.EQUAL
    assert report.notes


_OLD = [Difference(DifferenceKind.FOREIGN, 0, at) for at in range(20)]


@pytest.mark.parametrize(
    ("is_appended", "counts", "foreign_to", "verdict"),
    [
        pytest.param(True, {"foreign": 90}, 100, Equality.CANNOT_TELL, id="both lives of a topic"),
        pytest.param(False, {"foreign": 90}, 100, Equality.DIFFERENT, id="they are never in one remote topic"),
        # A transaction's marker takes an offset, so there are fewer of the old ones than offsets.
        pytest.param(True, {"foreign": 91}, 301, Equality.DIFFERENT, id="and one among the new ones"),
        pytest.param(True, {"foreign": 1}, 101, Equality.DIFFERENT, id="only one among the new ones"),
        pytest.param(True, {"foreign": 89, "repeated": 1}, 100, Equality.DIFFERENT, id="one of them is there twice"),
        pytest.param(True, {"foreign": 90, "missing": 1}, 100, Equality.DIFFERENT, id="a new one is missing"),
    ],
)
def test_what_a_former_topic_of_the_name_left_is_set_apart(
    is_appended: bool, counts: dict[str, int], foreign_to: int, verdict: Equality
) -> None:
    """A source topic was created again, and is copied after what the target has of the former one: the rest counts."""
    index = _index((0, 100, 800))
    whole = whole_of(
        LOOK, lambda at: _exact(index.downstream(at)), lambda at: _exact(index.upstream(at)), is_appended=is_appended
    )
    outcome = SliceOutcome(0, Counts(equal=800, **counts), tuple(_OLD), foreign_to=foreign_to)
    report, lenient = judge(whole, [outcome]), judge(whole, [outcome], ignore_expired=True)

    assert report.verdict is verdict
    assert lenient.verdict is (Equality.EQUAL if verdict is Equality.CANNOT_TELL else verdict)
    if verdict is Equality.CANNOT_TELL:
        assert "90 records at the beginning are at the target only" in report.reasons[0]
        assert (report.counts.foreign, report.differences) == (0, ())


def test_a_topic_that_was_created_again_and_is_empty_has_only_a_former_one_s_records() -> None:
    """Its position says that nothing of it was copied, so what the target holds is of the former topic."""
    look = attrs.evolve(LOOK, source_end=0, proven=0)
    whole = whole_of(look, lambda _: None, lambda _: None, is_appended=True)
    report = judge(whole, [SliceOutcome(0, Counts(foreign=900), tuple(_OLD), foreign_to=900)])

    assert report.verdict is Equality.CANNOT_TELL
    assert "900 records at the beginning are at the target only" in report.reasons[0]


def test_what_retention_removed_at_the_target_is_of_no_former_topic() -> None:
    """A position was set back to 0, and the target no longer holds what was copied first."""
    index = _index((0, 0, 900))
    look = attrs.evolve(LOOK, target_start=10, proven=0)
    whole = whole_of(
        look, lambda at: _exact(index.downstream(at)), lambda at: _exact(index.upstream(at)), is_appended=True
    )

    assert "10 offsets at the beginning are at the source only" in judge(whole, [_outcome(equal=890)]).reasons[0]


def test_when_slices_tell_too_little() -> None:
    """A record that is missing in one may be in another; what was changed is not elsewhere."""
    fine, lacking = _outcome(equal=5), _outcome(missing=1)

    assert needs_one_piece([fine, lacking])
    assert needs_one_piece([fine, attrs.evolve(fine, is_aligned=False)])
    assert not needs_one_piece([lacking])
    assert not needs_one_piece([fine, _outcome(changed=1)])
    assert not needs_one_piece([lacking, SliceOutcome(1, reason="away")])


def test_a_flow_is_as_good_as_its_worst_partition() -> None:
    """Different comes before could not tell, and nothing compared is nothing known."""

    def flow(*verdicts: Equality) -> Equality:
        return VerifyReport("A->B", tuple(PartitionReport(TP, TP, verdict) for verdict in verdicts)).verdict

    assert flow(Equality.EQUAL, Equality.EQUAL) is Equality.EQUAL
    assert flow(Equality.CANNOT_TELL, Equality.DIFFERENT) is Equality.DIFFERENT
    assert flow(Equality.CANNOT_TELL, Equality.EQUAL) is Equality.CANNOT_TELL
    assert flow() is Equality.CANNOT_TELL
