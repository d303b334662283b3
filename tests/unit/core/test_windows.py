"""Rates and times of the last two samples, as Kafka's metrics keep them."""

from __future__ import annotations

import pytest

from mm2py.core.windows import Window
from mm2py.model.epoch import MeasuredTime
from mm2py.model.state import TimesView


def window_of(*notes: tuple[float, int]) -> Window:
    """Make a window in which so many records, of 10 bytes each, were noted at these times."""
    window = Window()
    for at, records in notes:
        window.note(at, records, records * 10, age=None, latency=None)
    return window


def measured(*values_ms: int) -> MeasuredTime:
    return MeasuredTime(len(values_ms), sum(values_ms), min(values_ms), max(values_ms), values_ms[-1])


@pytest.mark.parametrize(
    ("notes", "now", "rate"),
    [
        pytest.param((), 5.0, 0.0, id="nothing"),
        pytest.param(((0.0, 300),), 0.0, 10.0, id="a window that has just begun counts as half a minute"),
        pytest.param(((0.0, 300),), 10.0, 7.5, id="and as ten seconds more after ten seconds"),
        pytest.param(((0.0, 300),), 30.0, 10.0, id="a whole sample"),
        pytest.param(((0.0, 300), (30.0, 300)), 45.0, 600 / 45, id="two samples"),
        pytest.param(((0.0, 300), (30.0, 300)), 60.0, 10.0, id="the first one is forgotten after a minute"),
        pytest.param(
            ((0.0, 300), (30.0, 300), (60.0, 90)), 65.0, 390 / 35, id="a third one takes the first one's place"
        ),
        pytest.param(((0.0, 300),), 60.0, 0.0, id="idle for a minute"),
        pytest.param(((0.0, 300), (100.0, 300)), 100.0, 10.0, id="after a break it starts again"),
    ],
)
def test_rates(notes: tuple[tuple[float, int], ...], now: float, rate: float) -> None:
    """A rate is what two samples of half a minute hold, over the time since the first of them began."""
    reading = window_of(*notes).read(now)

    assert reading.record_rate == pytest.approx(rate)
    assert reading.byte_rate == pytest.approx(rate * 10)


def test_a_steady_stream_is_seen_as_it_is() -> None:
    """Whenever it is read, a stream of 20 records a second shows 20 records a second, give or take an epoch."""
    window, seen = Window(), []
    for epoch in range(100):
        window.note(epoch * 5.0, 100, 0, age=None, latency=None)
        seen.append(window.read(epoch * 5.0 + 4.9).record_rate)

    assert all(18 < rate < 24 for rate in seen[12:])


def test_times_of_two_samples() -> None:
    """Least, greatest and mean are of both samples, the mean by records; the last one is the last."""
    window = Window()
    window.note(0.0, 3, 0, age=measured(5, 10, 15), latency=measured(20, 40, 60))
    window.note(30.0, 1, 0, age=measured(2), latency=measured(100))
    reading = window.read(31.0)

    assert reading.age == TimesView(2, 2, 15, 8.0)
    assert reading.latency == TimesView(100, 20, 100, 55.0)


def test_times_of_nothing_are_unknown() -> None:
    """Before the first record there are no times; after a minute without one only the last is left."""
    window = Window()
    before = window.read(0.0)
    window.note(0.0, 1, 0, age=measured(7), latency=measured(9))
    idle = window.read(60.0)

    assert (before.age, before.latency) == (None, None)
    assert (idle.age, idle.latency) == (TimesView(7), TimesView(9))


def test_what_is_read_and_not_acknowledged_has_an_age_alone() -> None:
    """An epoch that read records and could not write them tells of their age."""
    window = Window()
    window.note(0.0, 0, 0, age=measured(7), latency=None)

    assert window.read(1.0).age == TimesView(7, 7, 7, 7.0)
    assert window.read(1.0).latency is None


def test_single_times() -> None:
    """What is measured one by one, a checkpoint's latency, is kept in the same way."""
    window = Window()
    nothing = window.read(0.0).latency
    window.note(0.0, 1, 0, age=None, latency=measured(30))
    window.note(1.0, 1, 0, age=None, latency=measured(10))

    assert nothing is None
    assert window.read(2.0).latency == TimesView(10, 10, 30, 20.0)
