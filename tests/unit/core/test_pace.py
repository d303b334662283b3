"""How fast a backlog is copied, against brokers that get slower the more they have to do."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest

from mm2py.core.pace import LEAST_BYTES_PER_S, Answer, Interval, Pace


MIB = 1024 * 1024
INTERVAL_S = 0.25
MORE_MS = 10.0


def one_by_one(took_ms: list[float]) -> list[Answer]:
    """Make answers to requests that did not wait for others."""
    return [Answer(ms, ms) for ms in took_ms]


def paced(took: Callable[[float], list[float]], *, seconds: float, pace: Pace | None = None, at: float = 0.0) -> Pace:
    """Copy a backlog that never ends for so long; *took* says how long the answers take at a rate."""
    pace = pace or Pace()
    for number in range(int(seconds / INTERVAL_S)):
        seen = Interval(one_by_one(took(pace.bytes_per_s)), pace.bytes_per_s)
        pace = pace.after(seen, more_ms=MORE_MS, now=at + number * INTERVAL_S)
    return pace


def queueing(capacity: float) -> Callable[[float], list[float]]:
    """Make a broker that answers in 2 ms with nothing to do, and ever later towards its *capacity*."""

    def took(rate: float) -> list[float]:
        load = min(rate / capacity, 0.999)
        return [2.0, *[2.0 / (1 - load)] * 9]

    return took


@pytest.mark.parametrize("capacity", [8 * MIB, 80 * MIB, 800 * MIB])
def test_the_backlog_gets_what_the_broker_has_left(capacity: float) -> None:
    """The rate ends where answers take as much longer as is allowed, whatever the broker can do."""
    broker = queueing(capacity)
    pace = paced(broker, seconds=30)
    rates = []
    for number in range(40):
        pace = paced(broker, seconds=INTERVAL_S, pace=pace, at=30 + number * INTERVAL_S)
        rates.append(pace.bytes_per_s)

    allowed = capacity * MORE_MS / (MORE_MS + 2)
    assert allowed * 0.65 < sum(rates) / len(rates) < allowed
    assert max(rates) < allowed * 1.2


def test_it_makes_way_for_others() -> None:
    """When other producers take most of the broker, the rate falls within a second or two, and comes back later."""
    alone = paced(queueing(100 * MIB), seconds=20)
    beside = paced(queueing(5 * MIB), seconds=3, pace=alone, at=20)
    again = paced(queueing(100 * MIB), seconds=20, pace=beside, at=23)

    assert beside.bytes_per_s < 5 * MIB
    assert again.bytes_per_s > 50 * MIB


def test_it_never_stops() -> None:
    """A broker that is slow whatever we do gets a little all the same."""
    pace = paced(lambda _rate: [2.0, *[500.0] * 9], seconds=30)

    assert pace.bytes_per_s == LEAST_BYTES_PER_S


def test_a_broker_that_is_slower_than_it_was_becomes_the_measure() -> None:
    """After a minute the shortest time of now counts: a larger cluster, other replicas, a longer way."""
    fast = paced(lambda _rate: [1.0] * 10, seconds=10)
    slow = paced(lambda _rate: [50.0] * 10, seconds=90, pace=fast, at=10)

    assert fast.base_ms == 1.0
    assert slow.base_ms == 50.0
    assert slow.bytes_per_s > 4 * MIB


def test_a_rate_that_limits_nothing_does_not_grow() -> None:
    """What is copied more slowly for other reasons must not let the rate grow without end."""
    pace, seen = Pace(), Interval(one_by_one([2.0]), 10.0, was_held=False)
    for number in range(100):
        pace = pace.after(seen, more_ms=MORE_MS, now=number * INTERVAL_S)

    assert pace.bytes_per_s == Pace().bytes_per_s
    assert pace.after(Interval([], 0.0), more_ms=MORE_MS, now=30.0) is pace


def test_late_answers_while_nothing_is_behind_do_not_slow_the_next_backlog() -> None:
    """It is copied as fast as the last one, and soon as fast as it may be."""
    pace, late = paced(queueing(8 * MIB), seconds=30), Interval(one_by_one([2.0, *[50.0] * 9]), 100.0, was_held=False)
    for number in range(100):
        at = 30 + number * INTERVAL_S
        idle = pace = pace.after(late, more_ms=MORE_MS, now=at)
    soon = paced(queueing(800 * MIB), seconds=3, pace=idle, at=55)

    assert idle.bytes_per_s > 4 * MIB
    assert soon.bytes_per_s > 400 * MIB


def test_an_interval_in_which_a_large_batch_is_paid_off_is_no_measure_of_what_is_used() -> None:
    late = Pace().after(Interval(one_by_one([2.0, *[50.0] * 9]), 0.0), more_ms=MORE_MS, now=0.0)

    assert late.bytes_per_s == pytest.approx(Pace().bytes_per_s * 0.7)


def test_after_answers_that_were_late_for_another_reason_it_seeks_again() -> None:
    """A pause of a broker, every two seconds, does not keep the rate from what the broker has left for long."""
    pace, broker = Pace(), queueing(800 * MIB)
    for number in range(80):
        took = (lambda _rate: [2.0, *[50.0] * 9]) if number % 8 == 0 else broker
        pace = paced(took, seconds=INTERVAL_S, pace=pace, at=number * INTERVAL_S)
        if pace.bytes_per_s > 400 * MIB:
            break

    assert number * INTERVAL_S < 10


def test_requests_that_wait_for_our_own_ones_do_not_slow_it() -> None:
    """A broker takes the requests of a connection one after the other, which others do not feel."""
    pace = Pace()
    for number in range(20):
        seen = Interval([Answer(2.0, 2.0), *[Answer(30.0, 4.0)] * 9], pace.bytes_per_s)
        pace = pace.after(seen, more_ms=MORE_MS, now=number * INTERVAL_S)

    assert pace.base_ms == 2.0
    assert pace.bytes_per_s > 400 * MIB


def test_tasks_that_share_a_target_come_to_equal_rates() -> None:
    """One that began earlier, or had a lucky time, makes room for the other."""
    broker, one, other = queueing(200 * MIB), Pace(100 * MIB, is_seeking=False), Pace(10 * MIB, is_seeking=False)
    for number in range(240):
        answers = one_by_one(broker(one.bytes_per_s + other.bytes_per_s))
        one, other = (
            pace.after(Interval(answers, pace.bytes_per_s), more_ms=MORE_MS, now=number * INTERVAL_S)
            for pace in (one, other)
        )

    assert one.bytes_per_s < other.bytes_per_s * 1.5
    assert one.bytes_per_s + other.bytes_per_s > 120 * MIB


def test_no_more_is_fetched_than_leaves() -> None:
    """What piles up in the task leaves it within two seconds; then as much is fetched as leaves, give or take."""
    broker_bytes_per_s, queued, after_2_s = 50.0 * MIB, 40.0 * MIB, [0.0]
    pace = Pace(100 * MIB, is_seeking=False)
    for number in range(80):
        seen = Interval([Answer(30.0, 4.0)] * 10, pace.bytes_per_s, broker_bytes_per_s, queued)
        pace = pace.after(seen, more_ms=MORE_MS, now=number * INTERVAL_S)
        queued = max(0.0, queued + (pace.bytes_per_s - broker_bytes_per_s) * INTERVAL_S)
        if number * INTERVAL_S >= 2:
            after_2_s.append(queued)

    assert max(after_2_s) < 12 * MIB
    assert statistics.mean(after_2_s) < 4 * MIB
    assert 25 * MIB < pace.bytes_per_s < 75 * MIB
