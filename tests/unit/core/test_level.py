"""When a mirror will have caught up."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mm2py.core.level import Descent, seconds_until_level


def _looked(left: Callable[[float], float], times: list[float], copied_per_s: float = 0.0) -> Descent:
    """Look at a partition of which so much is *left* at these *times*."""
    descent = Descent()
    for at in times:
        descent = descent.after(max(0, round(left(at))), copied_per_s=copied_per_s, at=at)
    return descent


def _every(step_s: float, until_s: float) -> list[float]:
    return [step_s * number for number in range(int(until_s / step_s) + 1)]


@given(
    lag=st.integers(10_000, 10**9),
    produced_per_s=st.floats(0, 10_000),
    share_left=st.floats(0.05, 0.95),
    catch_up_s=st.floats(100, 100_000),
    step_s=st.sampled_from([0.05, 1.0, 10.0, 45.0]),
)
def test_it_is_right_while_rates_are_steady(
    lag: int, produced_per_s: float, share_left: float, catch_up_s: float, step_s: float
) -> None:
    """Within a fifth, wherever on the way down: what is left by what is copied more than is produced."""
    net_per_s = lag / catch_up_s
    now = catch_up_s * (1 - share_left)
    times = _every(step_s, min(now, 400 * step_s))
    shift = max(0.0, now - times[-1])
    times = [at + shift for at in times]
    left = lag - net_per_s * times[-1]
    assume(len(times) > 1 and left > net_per_s + produced_per_s and left > 1_000 and net_per_s * step_s > 20)
    descent = _looked(lambda at: lag - net_per_s * at, times, copied_per_s=net_per_s + produced_per_s)

    assert seconds_until_level([(descent, 1.0)], now) == pytest.approx(catch_up_s - now, rel=0.2)


@given(
    descents=st.lists(st.lists(st.integers(0, 10**12), min_size=1, max_size=6), max_size=5),
    rate=st.floats(0, 10**6),
    weight=st.floats(1, 10**6),
    age_s=st.floats(0, 1_000),
)
def test_it_is_never_negative_and_0_if_nothing_is_left(
    descents: list[list[int]], rate: float, weight: float, age_s: float
) -> None:
    found = []
    for lags in descents:
        descent = Descent()
        for number, lag in enumerate(lags):
            descent = descent.after(lag, copied_per_s=rate, at=10.0 * number)
        found.append((descent, weight))
    level_s = seconds_until_level(found, 60.0 + age_s)

    assert level_s is None or 0 <= level_s <= 30 * 86_400
    assert any(descent.left for descent, _ in found) or level_s == 0


def test_it_is_unknown_while_what_is_left_does_not_shrink() -> None:
    """One look tells nothing, a lag that stays or grows has no end, nor has one that shrinks by chance."""
    once, stays, grows = Descent().after(5_000, copied_per_s=0, at=0), Descent(), Descent()
    for at in _every(10, 60):
        stays = stays.after(5_000, copied_per_s=300, at=at)
        grows = grows.after(5_000 + int(at), copied_per_s=300, at=at)
    by_chance = _looked(lambda at: 10**9 - at / 10, _every(10, 60))

    assert [seconds_until_level([(it, 1.0)], 60) for it in (once, stays, grows, by_chance)] == [None] * 4


def test_a_live_partition_is_level() -> None:
    """What is copied within a second is no backlog, nor are a few records that have just come."""
    busy = Descent()
    for at, lag in enumerate((900, 0, 1_000, 400)):
        busy = busy.after(lag, copied_per_s=1_000, at=10.0 * at)
    rare = Descent().after(0, copied_per_s=0, at=0).after(3, copied_per_s=0, at=10)

    assert (busy.left, rare.left) == (0, 0)
    assert rare.after(50, copied_per_s=0, at=20).left == 50
    assert Descent().after(3, copied_per_s=0, at=0).left == 3  # it was not seen level


def test_after_a_standstill_the_way_down_counts() -> None:
    """A partition that was level for hours falls behind at once: how fast it did does not matter."""
    descent = Descent().after(0, copied_per_s=10, at=0)
    for at in (3_600.0, 3_610.0, 3_620.0):
        descent = descent.after(round(10_000 - 100 * (at - 3_600)), copied_per_s=110, at=at)

    assert seconds_until_level([(descent, 1.0)], 3_620) == pytest.approx(80, rel=0.01)


def test_a_new_rate_counts_within_a_minute() -> None:
    def left(at: float) -> float:
        return 100_000 - 100 * at if at < 300 else 70_000 - 500 * (at - 300)

    descent = _looked(left, _every(10, 370), copied_per_s=500)

    assert seconds_until_level([(descent, 1.0)], 370) == pytest.approx(70, rel=0.01)


def test_partitions_take_turns() -> None:
    """Of ten, one at a time is copied, a second each: none shrinks steadily, and all together do."""
    each = [Descent()] * 10
    for at in _every(7, 70):
        for number, descent in enumerate(each):
            turns = max(0, int(at - number) // 10 + (at > number))
            each[number] = descent.after(20_000 - 1_000 * turns, copied_per_s=100, at=at)

    assert seconds_until_level([(it, 1.0) for it in each], 70) == pytest.approx(130, rel=0.2)


def test_records_weigh() -> None:
    """Two partitions share what copies them; the one with few large records has as much left as the other."""
    small, large = (_looked(lambda at, of=of: of * (1_000 - at), _every(10, 100)) for of in (1_000, 1))

    assert seconds_until_level([(small, 10.0), (large, 10_000.0)], 100) == pytest.approx(900)
    stuck = _looked(lambda _: 1_000, _every(10, 100))
    assert seconds_until_level([(small, 10.0), (stuck, 10_000.0)], 100) == pytest.approx(1_900)


def test_time_passes_between_two_looks() -> None:
    descent = _looked(lambda at: 100 * (300 - at), _every(60, 120))

    assert seconds_until_level([(descent, 1.0)], 150) == pytest.approx(150)
    assert seconds_until_level([(descent, 1.0)], 320) == 0


@pytest.mark.parametrize("was_level", [True, False])
def test_while_a_partition_is_not_copied_it_only_grows(*, was_level: bool) -> None:
    """A pause and the first epoch after it are no part of the way down: it goes on as fast as before, if it was."""
    descent = _looked(lambda at: 0 if was_level else 100 * (300 - at), [0, 10, 20], copied_per_s=100)
    for at, lag in ((25, 30_000), (60, 50_000), (90, 60_000)):
        descent = descent.at_rest(lag, at=at)
    found = [seconds_until_level([(descent, 1.0)], 90)]
    for at, lag in ((110, 59_900), (120, 58_900), (130, 57_900)):
        descent = descent.after(lag, copied_per_s=100, at=at)
        found.append(seconds_until_level([(descent, 1.0)], at))

    assert found == ([None, None, 589, 579] if was_level else [600, 599, 589, 579])
    assert Descent().at_rest(0, at=0).at_rest(3, at=10).left == 0


def test_it_is_unknown_until_it_is_known_of_nearly_all() -> None:
    """A copy task whose epochs end later than those of others may have most of what is left."""
    known, once = (_looked(lambda at: 100 * (300 - at), times) for times in ([0, 10], [10]))

    assert seconds_until_level([(known, 1.0), (once, 1.0)], 10) is None
    assert seconds_until_level([(known, 1.0), (once, 0.05)], 10) == pytest.approx(304.5)


def test_a_rate_that_grows_is_followed_soon() -> None:
    """A backlog finds its pace in the course of a minute: a fifth is not too much from then on, nor soon a tenth."""
    per_s = [20, 40, 80, 100, *[110] * 10]
    lags = [100_000 - 10 * sum(per_s[:epochs]) for epochs in range(len(per_s) + 1)]
    descent, ratios = Descent(), list[float]()
    for epochs, lag in enumerate(lags):
        descent = descent.after(lag, copied_per_s=0, at=10.0 * epochs)
        ratios.append((seconds_until_level([(descent, 1.0)], 10.0 * epochs) or math.inf) * 110 / lag)

    assert [ratio < 1.2 for ratio in ratios[6:]] == [True] * 9
    assert ratios[8] < 1.1


def test_what_varies_averages_out() -> None:
    """A pace that was measured, epoch by epoch in records/ms, over and over for an hour."""
    per_s = itertools.cycle((182, 526, 65, 866, 472, 1352, 165, 176, 0, 335, 536, 666, 296))
    copied = [10 * next(per_s) for _ in range(360)]
    descent, is_right = Descent(), list[bool]()
    for epochs in range(324):  # in the last tenth of the time the last epochs decide
        now = 10.0 * epochs
        descent = descent.after(sum(copied[epochs:]), copied_per_s=0, at=now)
        found = seconds_until_level([(descent, 1.0)], now)
        is_right.append(found is not None and 0.8 <= found / (3_600 - now) <= 1.25)

    assert sum(is_right) > 0.9 * len(is_right)


def test_few_looks_are_kept() -> None:
    """So many as rates of the last minutes need, however many there were."""
    for step_s in (0.05, 1.0, 7.0, 10.0, 45.0):
        descent = _looked(lambda at: 1_000_000 - at, _every(step_s, 1_000))
        last = descent.looks[-1].at

        assert len(descent.looks) <= 13, step_s
        assert 200 <= last - descent.looks[0].at < 300
        assert descent.per_s(180) == descent.per_s(20) == pytest.approx(1)
