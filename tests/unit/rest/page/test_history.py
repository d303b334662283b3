"""The last minutes' numbers."""

from __future__ import annotations

import gc
import math
import tracemalloc

from mm2py.model.flow import Flow
from mm2py.model.state import FlowState, FlowView, MirrorView
from mm2py.rest.page import history as module
from mm2py.rest.page.history import KEPT_POINTS, RANGES, History, rounded


A, B = Flow("A", "B"), Flow("B", "A")


def _view(wall_ms: int, *flows: Flow, rate: float = 1.0) -> MirrorView:
    return MirrorView(
        wall_ms, is_ready=True, flows=tuple(FlowView(it, FlowState.RUNNING, records_per_s=rate) for it in flows)
    )


def test_samples_come_column_by_column() -> None:
    """Plots take a list of times and a list of values; what is not known yet is a gap."""
    history = History()
    history.note(_view(1000, A, rate=10.0))
    history.note(_view(4000, A, rate=20.5))

    columns = history.of(A)
    assert columns["wall_ms"] == [1000, 4000]
    assert columns["records"] == [10.0, 20.5]
    assert columns["latency_p50_ms"] == [None, None]
    assert history.rates(A, 1) == [20.5]


def test_what_is_to_become_a_point_has_a_length_of_its_own() -> None:
    """A simulated run takes a collection without one for a leak: after hours a day's point waits for 95 samples."""
    history = History()
    for second in range(200):
        history.note(_view(second, A))

    waiting = {name: ring._pending for name, ring in history._rings[A].items()}
    assert {name: it.maxlen for name, it in waiting.items()} == dict(RANGES)
    assert len(waiting["1d"]) == 200 % RANGES["1d"]


def test_old_samples_go() -> None:
    """The ring has an end."""
    history = History(keep=3)
    for second in range(10):
        history.note(_view(second, A))

    assert history.of(A)["wall_ms"] == [7, 8, 9]


def test_longer_ranges_have_fewer_points() -> None:
    """A point of 3 hours is the mean of twelve samples' rates and the maximum of all else; a day's is of 96."""
    history = History()
    for number in range(1, 97):
        flow = FlowView(A, FlowState.RUNNING, records_per_s=float(number), lag_s=float(number) if number % 12 else None)
        history.note(MirrorView(number * 3_000, is_ready=True, flows=(flow,)))

    hours, day = history.of(A, "3h"), history.of(A, "1d")
    assert hours["wall_ms"] == [36_000 * number for number in range(1, 9)]
    assert hours["records"][:2] == [6.5, 18.5]
    assert hours["lag_s"][:2] == [11, 23]
    assert hours["latency_p99_ms"] == [None] * 8
    assert (day["wall_ms"], day["records"], day["lag_s"]) == ([288_000], [48.5], [95])


def test_a_point_takes_a_tenth_of_a_kilobyte() -> None:
    """So 900 of them, all that is kept of a flow, take 100 kB."""
    history = History(keep=40)
    history.note(_view(0, A))
    tracemalloc.start()
    try:
        for number in range(40 * 96):
            history.note(_view(number, A))
        gc.collect()
        snapshot = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(inclusive=True, filename_pattern=module.__file__)]
        )
    finally:
        tracemalloc.stop()
    size = sum(trace.size for trace in snapshot.traces)

    assert [len(history.of(A, covered)["wall_ms"]) for covered in RANGES] == [40] * 3
    assert size / 120 < 130
    assert KEPT_POINTS * len(RANGES) == 900


def test_flows_come_and_go() -> None:
    """A flow that was removed has empty columns; one that stays keeps its own."""
    history = History()
    history.note(_view(1, A, B))
    history.note(_view(2, B))

    assert history.of(A)["records"] == []
    assert history.of(B)["wall_ms"] == [1, 2]


def test_numbers_are_what_json_carries() -> None:
    """JSON has no infinity; a plot shows no thousandth of a million."""
    assert [rounded(it) for it in (None, math.inf, math.nan, 0.12345, 1234.5)] == [None, None, None, 0.123, 1234]
