"""The index of runs against a naive model that knows every record."""

from __future__ import annotations

import pickle

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from mm2py.core.offsets.translation import Precision, RunIndex, Translated, Untranslated
from mm2py.model.epoch import Run, Runs
from tests.support.run_indexes import EPOCHS, STEPS, Epoch, check_invariants, copied, everywhere


@given(st.lists(STEPS, max_size=12), st.integers(0, 2))
def test_what_is_known_run_by_run_is_exact(runs: list[tuple[int, int, int]], passed: int) -> None:
    """In one epoch after the other, each offset becomes that of the next record, both ways."""
    epochs = [Epoch((run,), passed) for run in runs]
    index, truth = copied(epochs)

    for upstream in range(truth.begun_at, truth.position + 1):
        assert index.downstream(upstream) == Translated(truth.downstream(upstream))
    for downstream in range(50, truth.end + 1):
        assert index.upstream(downstream) == Translated(truth.upstream(downstream))


@given(EPOCHS, st.sampled_from([None, 4, 7]))
def test_no_answer_is_ahead(epochs: list[Epoch], bound: int | None) -> None:
    """With what a Java MirrorMaker copied in between, and with runs put together, answers only fall behind."""
    index, truth = copied(epochs, bound=bound)

    check_invariants(index)
    for upstream in everywhere(truth):
        match index.downstream(upstream):
            case Translated(offset, precision):
                assert offset <= truth.downstream(upstream)
                # At the end it is where the next record goes, unless another producer writes one before.
                is_sure = precision is Precision.EXACT and offset != index.end
                assert not is_sure or offset == truth.downstream(upstream)
                assert 50 <= offset <= truth.end
            case Untranslated() as why:
                assert (why, upstream < truth.begun_at) == (Untranslated.TOO_OLD, True)
    for downstream in range(45, truth.end + 5):
        match index.upstream(downstream):
            case Translated(offset, precision):
                assert offset <= truth.upstream(downstream)
                is_sure = precision is Precision.EXACT and offset != index.covered_to
                assert not is_sure or offset == truth.upstream(downstream)
            case Untranslated() as why:
                assert (why, downstream < 50) == (Untranslated.TOO_OLD, True)


@given(EPOCHS, st.sampled_from([4, 7, 16]))
def test_the_bound_holds(epochs: list[Epoch], bound: int) -> None:
    """However many runs come, no more than the bound are kept, and what is newest stays exact."""
    index, truth = copied(epochs, bound=bound)

    assert len(index) <= bound
    if epochs and epochs[-1].is_known and epochs[-1].runs:
        assert index.downstream(truth.records[-1][0]) == Translated(truth.records[-1][1])


@given(EPOCHS, st.sampled_from([None, 5]))
def test_translations_never_go_back(epochs: list[Epoch], bound: int | None) -> None:
    """A group that is further on is never sent further back."""
    index, truth = copied(epochs, bound=bound)
    answers = [index.downstream(upstream) for upstream in range(truth.begun_at, truth.position + 3)]
    offsets = [answer.offset for answer in answers if isinstance(answer, Translated)]

    assert offsets == sorted(offsets)


@given(EPOCHS, st.integers(0, 40), st.sampled_from([None, 5]))
@example([Epoch(((0, 0, 1),) * 5 + ((0, 1, 1), (1, 0, 1)), 0), Epoch(((1, 0, 1),) * 3, 0)], 13, 5)
def test_what_is_learnt_twice_changes_nothing(epochs: list[Epoch], back: int, bound: int | None) -> None:
    """A resume finds records that were known: it copies nothing again, and answers stay as good or get better."""
    known = [attrs.evolve(epoch, is_known=True) for epoch in epochs]
    index, truth = copied(known, bound=bound)
    begun_at = max(truth.begun_at, truth.position - back)
    again = Runs(Run(upstream, downstream, 1) for upstream, downstream in truth.records if upstream >= begun_at)
    before = {upstream: index.downstream(upstream) for upstream in everywhere(truth)}
    index.take(begun_at, again, truth.position, truth.end)

    check_invariants(index)
    for upstream, answer in before.items():
        now = index.downstream(upstream)
        assert isinstance(now, Translated) == isinstance(answer, Translated)
        if isinstance(now, Translated) and upstream >= truth.begun_at:
            assert now.offset <= truth.downstream(upstream) or upstream > truth.position
            if isinstance(answer, Translated) and answer.is_exact:
                assert now == answer


def test_markers_of_transactions_are_stepped_over() -> None:
    """The offset of a marker becomes that of the record behind it; the last one's becomes the end."""
    index = RunIndex(0, 0)
    index.take(0, [Run(0, 0, 10), Run(11, 10, 10)], 22, 20)

    assert [index.downstream(at) for at in (9, 10, 11, 21, 22)] == [
        Translated(9),
        Translated(10),
        Translated(10),
        Translated(20),
        Translated(20),
    ]
    assert [index.upstream(at) for at in (9, 10, 19, 20)] == [
        Translated(9),
        Translated(11),
        Translated(20),
        Translated(22),
    ]


def test_past_what_is_copied_is_the_end_of_it() -> None:
    """A group that is ahead of the copying is sent to where the next record will go."""
    index = RunIndex(0, 0)
    index.take(0, [Run(0, 0, 10)], 10, 10)

    assert index.downstream(50) == Translated(10, Precision.END)
    assert index.upstream(50) == Translated(10, Precision.END)


def test_a_group_at_the_start_of_an_empty_topic() -> None:
    """Before anything is copied, the start is known, and nothing before it where the target was empty."""
    index = RunIndex(700, 0, is_origin=True)

    assert index.downstream(700) == Translated(0)
    assert index.downstream(3) == Translated(0)
    assert RunIndex(700, 30).downstream(699) is Untranslated.TOO_OLD


def test_what_is_copied_again_counts_from_there() -> None:
    """An operator sent the copying back: the second copy is the one that groups are sent to."""
    index = RunIndex(0, 0)
    index.take(0, [Run(0, 0, 100)], 100, 100)
    index.take(50, [Run(50, 100, 20)], 70, 120)

    assert [index.downstream(at) for at in (49, 50, 69)] == [Translated(49), Translated(100), Translated(119)]
    assert index.downstream(90) == Translated(120, Precision.END)
    assert index.upstream(80) == Translated(50)


def test_before_what_the_source_lost_all_is_as_it_was() -> None:
    """Records of an unclean election's loser were copied; others follow them at the target, and at the source."""
    index = RunIndex(0, 0, is_origin=True)
    index.take(0, [Run(0, 0, 100)], 100, 100)
    index.go_back(60, 100)
    cut = [index.downstream(at) for at in (0, 59, 60, 80)], [index.upstream(at) for at in (59, 80, 100)]
    index.take(60, [Run(60, 100, 10)], 70, 110)

    assert cut[0] == [Translated(0), Translated(59), Translated(100), Translated(100, Precision.END)]
    assert cut[1] == [Translated(59), Translated(60), Translated(60)]
    assert [index.downstream(at) for at in (59, 60, 69)] == [Translated(59), Translated(100), Translated(109)]
    assert [index.upstream(at) for at in (59, 80, 109)] == [Translated(59), Translated(60), Translated(69)]


def test_a_target_that_went_back_makes_all_void() -> None:
    """A remote topic that was created again holds nothing of what was known."""
    index = RunIndex(0, 0)
    index.take(0, [Run(0, 0, 100)], 100, 100)
    index.take(100, [Run(100, 0, 10)], 110, 10)

    assert index.downstream(105) == Translated(5)
    assert index.downstream(50) is Untranslated.TOO_OLD


def test_what_java_copied_in_between_is_not_guessed() -> None:
    """Old runs stay exact, new ones are; in between the answer is the end of the old ones."""
    index = RunIndex(0, 0)
    index.take(0, [Run(0, 0, 100)], 100, 100)
    index.take(500, [Run(500, 480, 10)], 510, 490)

    assert index.downstream(99) == Translated(99)
    assert index.downstream(300) == Translated(100, Precision.COARSE)
    assert index.downstream(500) == Translated(480)
    assert index.upstream(300) == Translated(100, Precision.COARSE)
    assert [index.is_unknown(at) for at in (99, 100, 499, 500)] == [False, True, True, False]


def test_a_million_runs_cost_little() -> None:
    """Runs travel and are kept as arrays: some thirty bytes for each."""
    runs = Runs()
    for number in range(100_000):
        runs.add(number * 2, number, 1)
    index = RunIndex(0, 0)
    index.take(0, runs, 200_000, 100_000)

    assert len(pickle.dumps(runs)) < 2_500_000
    assert sum(column.itemsize * len(column) for column in (index.starts, index.downs, index.spans, index.counts)) == (
        3_200_000
    )


@pytest.mark.parametrize("other", [(Run(0, 0, 2), Run(3, 2, 1)), [Run(0, 0, 2), Run(3, 2, 1)]])
def test_runs_are_a_sequence(other: object) -> None:
    """Runs compare, index and iterate as any sequence does, and one that continues another is one with it."""
    runs = Runs([Run(0, 0, 1), Run(1, 1, 1), Run(3, 2, 1)])

    assert runs == other
    assert (runs[1], runs[-1], runs[:1], len(runs)) == (Run(3, 2, 1), Run(3, 2, 1), (Run(0, 0, 2),), 2)
    assert pickle.loads(pickle.dumps(runs)) == runs
