"""An index of runs beside a naive model that knows every record."""

from __future__ import annotations

from bisect import bisect_left

import attrs
import hypothesis.strategies as st

from mm2py.core.offsets.translation import RunIndex
from mm2py.model.epoch import Runs


@attrs.define
class Truth:
    """Every record that was copied, as (upstream, downstream), and where copying stands."""

    begun_at: int
    position: int
    end: int
    records: list[tuple[int, int]] = attrs.field(factory=list)

    def downstream(self, upstream: int) -> int:
        """Return where the next record went that a group at *upstream* reads."""
        at = bisect_left(self.records, (upstream, -1))
        return self.records[at][1] if at < len(self.records) else self.end

    def upstream(self, downstream: int) -> int:
        at = bisect_left(self.records, downstream, key=lambda record: record[1])
        return self.records[at][0] if at < len(self.records) else self.position


@attrs.frozen
class Epoch:
    """What an epoch is to copy: (gap upstream, gap downstream, length) of each run, then a gap at its end."""

    runs: tuple[tuple[int, int, int], ...]
    passed: int
    is_known: bool = True


STEPS = st.tuples(st.integers(0, 3), st.sampled_from([0, 0, 0, 1]), st.integers(1, 5))
EPOCHS = st.lists(
    st.builds(
        Epoch,
        runs=st.lists(STEPS, max_size=8).map(tuple),
        passed=st.integers(0, 2),
        is_known=st.sampled_from([True, True, True, False]),
    ),
    max_size=8,
)


def copied(epochs: list[Epoch], *, bound: int | None = None) -> tuple[RunIndex, Truth]:
    """Copy *epochs*; what is not known of one is what a Java MirrorMaker copies."""
    truth = Truth(100, 100, 50)
    index = RunIndex(100, 50)
    for epoch in epochs:
        begun_at, runs = truth.position, Runs()
        for gap, foreign, length in epoch.runs:
            upstream, downstream = truth.position + gap, truth.end + foreign
            truth.records += [(upstream + n, downstream + n) for n in range(length)]
            truth.position, truth.end = upstream + length, downstream + length
            runs.add(upstream, downstream, length)
        truth.position += epoch.passed
        if epoch.is_known:
            index.take(begun_at, runs, truth.position, truth.end)
            while bound is not None and len(index) > bound:
                index.coarsen()
    return index, truth


def everywhere(truth: Truth) -> range:
    return range(90, truth.position + 5)


def check_invariants(index: RunIndex) -> None:
    ends = [a + b for a, b in zip(index.starts, index.spans, strict=True)]
    full = [a + b for a, b in zip(index.downs, index.counts, strict=True)]
    assert all(a <= b for a, b in zip(ends, [*index.starts[1:], index.covered_to], strict=False))
    assert all(a <= b for a, b in zip(full, [*index.downs[1:], index.end], strict=False))
    assert all(0 <= count <= span for count, span in zip(index.counts, index.spans, strict=True))
