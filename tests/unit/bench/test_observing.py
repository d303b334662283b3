"""What is made of the turns of a daemon that is watched and of one that is not."""

from __future__ import annotations

import pytest

from bench.observing import Order, Report, Seen, Turn, report


ORDER = Order(flows=2, partitions=10, scrape_every_s=5.0, pages=2, turn_s=8.0, turns=3, records_per_s=1)


def turns(alone: list[float], watched: list[float]) -> list[Turn]:
    found = []
    for without, with_watchers in zip(alone, watched, strict=True):
        found += [Turn(False, without, 1.0, 0.25), Turn(True, with_watchers, 1.0, 0.25)]
    return found


def test_the_cost_is_the_difference_of_the_medians() -> None:
    """One turn in a bad mood of the machine does not decide."""
    seen = Seen(scrapes_ms=[30.0, 10.0, 20.0], sent_bytes=5, page_bytes=600)
    found = report(ORDER, turns([0.1, 0.9, 0.1], [0.13, 0.13, 0.0]), seen)

    assert (found.alone_cores, found.watched_cores) == (0.1, 0.13)
    assert found.cost_cores == pytest.approx(0.03)
    assert (found.scrape_p50_ms, found.scrape_max_ms) == (20.0, 30.0)
    assert found.page_bytes_per_s == 600 / 30 / 2
    assert found.is_met


@pytest.mark.parametrize(("cost", "slowest_ms", "is_met"), [(0.04, 150, True), (0.06, 150, False), (0.04, 250, False)])
def test_both_goals_must_be_met(cost: float, slowest_ms: float, is_met: bool) -> None:
    """A cheap daemon that answers late misses the goal, and so does one that answers fast at a high price."""
    found = Report(
        alone_cores=0.1,
        watched_cores=0.1 + cost,
        cost_cores=cost,
        scrapes=1,
        scrape_p50_ms=1.0,
        scrape_p99_ms=slowest_ms,
        scrape_max_ms=slowest_ms,
        scrape_sent_bytes=1,
        scrapes_ms=(),
        page_bytes_per_s=1.0,
        strangers_cores=0.0,
    )

    assert found.is_met is is_met
