"""How fast a backlog is copied, against brokers that get slower the more they have to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mm2py.core.pace import LEAST_BYTES_PER_S, Pace


MIB = 1024 * 1024
INTERVAL_S = 0.25
MORE_MS = 10.0


def paced(took: Callable[[float], list[float]], *, seconds: float, pace: Pace | None = None, at: float = 0.0) -> Pace:
    """Copy a backlog that never ends for so long; *took* says how long the answers take at a rate."""
    pace = pace or Pace()
    for number in range(int(seconds / INTERVAL_S)):
        pace = pace.after(
            took(pace.bytes_per_s),
            used_bytes_per_s=pace.bytes_per_s,
            was_held=True,
            more_ms=MORE_MS,
            now=at + number * INTERVAL_S,
        )
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
    pace = Pace()
    for number in range(100):
        pace = pace.after([2.0], used_bytes_per_s=10.0, was_held=False, more_ms=MORE_MS, now=number * INTERVAL_S)

    assert pace.bytes_per_s == Pace().bytes_per_s
    assert pace.after([], used_bytes_per_s=0.0, was_held=True, more_ms=MORE_MS, now=30.0) is pace


def test_late_answers_while_nothing_is_behind_do_not_slow_the_next_backlog() -> None:
    """It is copied as fast as the last one, and soon as fast as it may be."""
    pace = paced(queueing(8 * MIB), seconds=30)
    for number in range(100):
        at = 30 + number * INTERVAL_S
        idle = pace = pace.after([2.0, *[50.0] * 9], used_bytes_per_s=100.0, was_held=False, more_ms=MORE_MS, now=at)
    soon = paced(queueing(800 * MIB), seconds=3, pace=idle, at=55)

    assert idle.bytes_per_s > 4 * MIB
    assert soon.bytes_per_s > 400 * MIB


def test_an_interval_in_which_a_large_batch_is_paid_off_is_no_measure_of_what_is_used() -> None:
    late = Pace().after([2.0, *[50.0] * 9], used_bytes_per_s=0.0, was_held=True, more_ms=MORE_MS, now=0.0)

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
