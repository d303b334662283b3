"""What is known of things that a flow does again and again."""

from __future__ import annotations

from mm2py.connectors.rounds import Rounds
from mm2py.model.rounds import RoundsView
from tests.support.clocks import ManualClock


def test_times_and_failures_are_those_of_the_last_minute() -> None:
    """Before the first one nothing is known; when the last minute had none, the last one is what is known."""
    clock = ManualClock()
    rounds = Rounds(clock)
    before = rounds.view()
    rounds.done(0.010)
    rounds.done(0.030)
    rounds.failed()
    rounds.failed()
    busy, ended_ms = rounds.view(), clock.wall_ms()
    clock.now_s += 300
    later = rounds.view(is_under_way=True)
    rounds.done(0.0)
    nothing_to_do = rounds.view()

    assert before == RoundsView()
    assert busy == RoundsView(2, False, ended_ms, avg_ms=20, max_ms=30, failed=0.5)
    assert later == RoundsView(2, True, ended_ms, avg_ms=30, max_ms=30, failed=1.0)
    assert (nothing_to_do.count, nothing_to_do.avg_ms, nothing_to_do.failed) == (3, 0, 0)
