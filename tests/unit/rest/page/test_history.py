"""The last minutes' numbers."""

from __future__ import annotations

import math

from mm2py.model.flow import Flow
from mm2py.model.state import FlowState, FlowView, MirrorView
from mm2py.rest.page.history import History, rounded


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


def test_old_samples_go() -> None:
    """The ring has an end."""
    history = History(keep=3)
    for second in range(10):
        history.note(_view(second, A))

    assert history.of(A)["wall_ms"] == [7, 8, 9]


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
