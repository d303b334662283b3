"""An index that is cut into chunks and put together again, also from what a crash left."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import given

from mm2py.core.offsets import translation as kept_runs
from mm2py.core.offsets.translation import (
    Precision,
    RunIndex,
    Translated,
    changed_chunks,
    chunk_count,
    cut_chunk,
    put_together,
)
from mm2py.model.epoch import Run
from mm2py.model.flow import TopicPartition
from mm2py.model.run_chunk import KeptChunk, decode_chunk
from mm2py.model.run_chunk import chunk_key as key_of
from mm2py.model.run_chunk import encode_chunk as value_of
from tests.support.run_indexes import EPOCHS, Epoch, check_invariants, copied, everywhere


SOURCE = TopicPartition("orders", 3)


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    """Cut after three runs, so that a few runs are many chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_runs, "CHUNK_RUNS", 3)
        yield


def kept(index: RunIndex, number: int) -> KeptChunk:
    """Return a chunk of *index* after its way through bytes."""
    read = decode_chunk(key_of("A", SOURCE, number), value_of(cut_chunk(index, number), "id"))
    assert read is not None
    assert read[0] == "A"
    return read[1]


def all_of(index: RunIndex) -> list[KeptChunk]:
    return [kept(index, number) for number in range(chunk_count(index))]


def columns(index: RunIndex) -> tuple[object, ...]:
    return (
        index.starts, index.downs, index.spans, index.counts,
        index.covered_from, index.covered_to, index.end_from, index.end, index.is_origin,
    )  # fmt: skip


@given(EPOCHS, st.sampled_from([None, 5]))
def test_everything_comes_back(epochs: list[Epoch], bound: int | None) -> None:
    """An index is the same after it was kept, whatever it holds."""
    index, _ = copied(epochs, bound=bound)
    again = put_together(reversed(all_of(index)))

    assert again is not None
    assert columns(again) == columns(index)


@given(EPOCHS, st.integers(0, 8))
def test_only_what_changed_is_written(epochs: list[Epoch], at: int) -> None:
    """Writing the changed chunks over the older ones is as good as writing all of them."""
    before, _ = copied(epochs[:at], bound=9)
    log = {one.number: one for one in all_of(before)}
    index, _ = copied(epochs[:at], bound=9)
    index.first_changed = None
    truth_of_all, _ = copied(epochs, bound=9)
    continued, _ = copied(epochs[:at], bound=9)
    continued.first_changed = None
    _continue(continued, epochs, at)
    for number in changed_chunks(continued):
        log[number] = kept(continued, number)
    again = put_together(one for one in log.values() if one.number < chunk_count(continued))

    assert columns(continued) == columns(truth_of_all)
    assert again is not None
    assert columns(again) == columns(continued)


def _continue(index: RunIndex, epochs: list[Epoch], at: int) -> None:
    """Copy on with the epochs from *at* on, where the first ones were copied into *index*."""
    _, whole = copied(epochs)
    _, done = copied(epochs[:at])
    records = iter(whole.records[len(done.records) :])
    position, end = done.position, done.end
    for epoch in epochs[at:]:
        begun_at, runs = position, []
        for _, _, length in epoch.runs:
            own = [next(records) for _ in range(length)]
            runs.append(Run(*own[0], length))
            position, end = own[-1][0] + 1, own[-1][1] + 1
        position += epoch.passed
        if epoch.is_known:
            index.take(begun_at, runs, position, end)
            while len(index) > 9:
                index.coarsen()


@given(EPOCHS, st.integers(0, 8), st.data())
def test_any_mix_of_older_and_newer_chunks_is_never_ahead(epochs: list[Epoch], at: int, data: st.DataObject) -> None:
    """A crash in the middle of writing leaves chunks of two ages: what they say together is true."""
    older, _ = copied(epochs[:at], bound=data.draw(st.sampled_from([None, 4])))
    newer, truth = copied(epochs, bound=data.draw(st.sampled_from([None, 4, 8])))
    log = {one.number: one for one in all_of(older)}
    log |= {one.number: one for one in all_of(newer) if data.draw(st.booleans())}
    index = put_together(log.values())

    assert index is not None
    check_invariants(index)
    for upstream in everywhere(truth):
        match index.downstream(upstream):
            case Translated(offset, precision):
                assert offset <= truth.downstream(upstream)
                assert precision is not Precision.EXACT or offset in {truth.downstream(upstream), index.end}
    for downstream in range(45, truth.end + 2):
        match index.upstream(downstream):
            case Translated(offset):
                assert offset <= truth.upstream(downstream)


def test_nothing_kept_is_nothing_known() -> None:
    """Without chunks, or with removed ones only, there is no index."""
    assert put_together([]) is None
    assert put_together([KeptChunk(SOURCE, 0)]) is None


def test_unchanged_is_not_written() -> None:
    """An index that learnt nothing has no changed chunk; one that merely moved on has its last."""
    index = RunIndex(0, 0)
    index.take(0, [Run(n * 2, n, 1) for n in range(7)], 14, 7)
    index.first_changed = None
    index.take(14, [], 14, 7)
    unchanged = list(changed_chunks(index))
    index.take(14, [], 20, 7)

    assert (unchanged, list(changed_chunks(index)), chunk_count(index)) == ([], [2], 3)


def test_half_of_a_run_is_not_taken_for_a_gap() -> None:
    """A run that reaches into what is known better is left out, and what it reached over counts as unknown."""
    index = RunIndex(0, 0)
    index.take(0, [Run(0, 0, 15)], 15, 15)
    older = RunIndex(0, 0)
    older.take(0, [Run(10, 10, 10), Run(40, 30, 5)], 45, 35)
    index.append_chunk(cut_chunk(older, 0))

    assert index.downstream(17) == Translated(15, Precision.COARSE)
    assert [index.downstream(at) for at in (14, 40, 44)] == [Translated(14), Translated(30), Translated(34)]
    assert index.is_unknown(17)
