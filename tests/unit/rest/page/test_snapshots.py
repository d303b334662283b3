"""How old a node's view may be."""

from __future__ import annotations

import pytest

from mm2py.model.state import MirrorView
from mm2py.rest.page.snapshots import UNWATCHED_PART, Snapshots
from tests.support.clocks import ManualClock


@pytest.mark.parametrize(
    ("part", "took_s", "holds_s"),
    [
        (0.05, 0.001, 1.0),
        (0.05, 0.2, 4.0),
        (0.05, 3.0, 10.0),
        (UNWATCHED_PART, 0.001, 1.0),
        (UNWATCHED_PART, 0.03, 6.0),
    ],
)
def test_a_view_that_took_long_is_shown_for_longer(part: float, took_s: float, holds_s: float) -> None:
    """Views take a part of the time at most, and a viewer never waits for news for more than ten seconds."""
    clock = ManualClock(now_s=100.0)

    def take() -> MirrorView:
        clock.advance(took_s)
        return MirrorView(0, is_ready=True, flows=())

    snapshots = Snapshots(take, clock, part)
    assert snapshots.is_cold
    first = snapshots.own()
    clock.advance(holds_s - took_s - 0.001)
    again = snapshots.own()
    clock.advance(0.002)
    later = snapshots.own()

    assert again is first
    assert later is not first
    assert not snapshots.is_cold
    clock.advance(90.0)
    assert snapshots.is_cold
