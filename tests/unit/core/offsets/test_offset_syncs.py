"""Which offset syncs are due: Java's own vectors, and the same for whole runs as for their records."""

from __future__ import annotations

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import given

from mm2py.core.offsets.offset_syncs import SyncProgress, advance
from mm2py.model.epoch import Run, Runs


def due(progress: SyncProgress, upstream: int, downstream: int, *, lag_max: int) -> SyncProgress:
    return advance(progress, [Run(upstream, downstream, 1)], lag_max=lag_max)


def taken(progress: SyncProgress) -> SyncProgress:
    return attrs.evolve(progress, is_due=False)


def test_offset_sync() -> None:
    """Java's vector for a lag of 50 (MirrorSourceTaskTest.testOffsetSync)."""
    progress = SyncProgress()
    vector = [
        ((0, 100), True), ((2, 102), True), ((3, 152), False), ((4, 153), True), ((5, 154), False),
        ((6, 203), False), ((7, 204), True), ((2, 206), True), ((3, 207), False), ((4, 3), True), ((5, 4), False),
    ]  # fmt: skip
    for (upstream, downstream), expected in vector:
        progress = due(progress, upstream, downstream, lag_max=50)

        assert progress.is_due is expected, (upstream, downstream)
        progress = taken(progress)
    for upstream, downstream in ((7, 6), (7, 6), (8, 7), (10, 57)):
        progress = due(progress, upstream, downstream, lag_max=50)

        assert progress.is_due
    assert not due(taken(progress), 11, 58, lag_max=50).is_due


def test_zero_offset_sync() -> None:
    """Without any lag each record is due (MirrorSourceTaskTest.testZeroOffsetSync)."""
    progress = SyncProgress()
    for upstream, downstream in (
        (0, 100),
        (2, 102),
        (3, 153),
        (4, 154),
        (5, 155),
        (6, 207),
        (2, 208),
        (4, 3),
        (11, 61),
    ):
        progress = due(taken(progress), upstream, downstream, lag_max=0)

        assert progress.is_due


@pytest.mark.parametrize("lag_max", [0, 1, 3, 100])
@given(steps=st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2), st.integers(1, 9)), min_size=1, max_size=12))
def test_runs_are_due_as_their_records_are(lag_max: int, steps: list[tuple[int, int, int]]) -> None:
    """Taking runs at once, in any portions, comes to what taking their records one by one comes to."""
    runs, upstream, downstream = Runs(), 100, 100
    for gap, gap_down, length in steps:
        upstream, downstream = max(0, upstream + gap), max(0, downstream + gap_down)
        runs.add(upstream, downstream, length)
        upstream, downstream = upstream + length, downstream + length
    one_by_one = SyncProgress()
    for run in runs:
        for n in range(run.length):
            one_by_one = due(one_by_one, run.upstream + n, run.downstream + n, lag_max=lag_max)
    half = len(runs) // 2
    in_two = advance(advance(SyncProgress(), runs[:half], lag_max=lag_max), runs[half:], lag_max=lag_max)

    assert advance(SyncProgress(), runs, lag_max=lag_max) == one_by_one
    assert in_two == one_by_one


def test_nothing_acknowledged_changes_nothing() -> None:
    """An epoch that brought nothing leaves everything as it was."""
    progress = SyncProgress(5, 7, 3)

    assert advance(progress, (), lag_max=1) == progress
