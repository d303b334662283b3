"""How a limit is shared among copy tasks, and what one may take after an epoch."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.core.rates import BURST_S, metered, refilled, share_now, shares, wanted
from mm2py.model.herder.overrides import NO_LIMIT, RateLimit
from mm2py.model.rates import Metered, RateUse, Unit


_BYTES = Metered("", Unit.BYTES)


def test_a_limit_is_metered_by_unit() -> None:
    """Only what is limited counts."""
    assert metered(NO_LIMIT) == {}
    assert metered(RateLimit(5.0), "orders") == {Metered("orders", Unit.BYTES): 5.0}
    assert metered(RateLimit(5.0, 7.0)) == {_BYTES: 5.0, Metered("", Unit.RECORDS): 7.0}


@pytest.mark.parametrize(
    ("wants", "expected"),
    [
        ({0: math.inf}, {0: 100.0}),
        ({0: math.inf, 1: math.inf}, {0: 50.0, 1: 50.0}),
        ({0: math.inf, 1: 20.0}, {0: 80.0, 1: 20.0}),
        ({0: 10.0, 1: 20.0}, {0: 45.0, 1: 55.0}),
        ({0: math.inf, 1: 0.0}, {0: 97.5, 1: 2.5}),
        ({0: 30.0, 1: math.inf, 2: math.inf}, {0: 30.0, 1: 35.0, 2: 35.0}),
        ({}, {}),
    ],
    ids=["alone", "both want all", "one wants little", "room is left", "one is idle", "two share the rest", "none"],
)
def test_shares(wants: dict[int, float], expected: dict[int, float]) -> None:
    """Shares are even, up to what each task wants; what is left goes to all, and none gets nothing."""
    assert shares(100.0, wants) == pytest.approx(expected)


@given(
    st.floats(0.01, 1e12),
    st.dictionaries(st.integers(0, 20), st.one_of(st.just(math.inf), st.floats(0, 1e12)), min_size=1),
)
def test_all_of_a_limit_is_given_out_and_never_more(per_s: float, wants: dict[int, float]) -> None:
    """Whatever copy tasks want, their shares add up to the limit."""
    given_out = shares(per_s, wants)

    assert sum(given_out.values()) == pytest.approx(per_s)
    assert all(share > 0 for share in given_out.values())


def test_a_share_waits_for_others_to_shrink() -> None:
    """While another epoch still runs with nearly all of the limit, the rest is what there is, but never nothing."""
    both_want_all = {0: math.inf, 1: math.inf}

    assert share_now(100.0, both_want_all, 1, {0: 80.0}) == pytest.approx(20.0)
    assert share_now(100.0, both_want_all, 1, {0: 100.0}) == pytest.approx(2.5)
    assert share_now(100.0, both_want_all, 0, {1: 20.0}) == pytest.approx(50.0)


def test_what_a_copy_task_wants() -> None:
    """Held up, it may want anything; else a little more than it took."""
    assert wanted(RateUse(_BYTES, used=100.0, level=0.0, waited_s=0.0), 10.0) == pytest.approx(12.5)
    assert wanted(RateUse(_BYTES, used=100.0, level=-5.0, waited_s=2.0), 10.0) == math.inf
    assert wanted(RateUse(_BYTES, used=0.0, level=0.0, waited_s=0.0), 0.0) == math.inf


def test_a_bucket_fills_up_to_a_burst() -> None:
    """Debts are paid in full, a lull is not saved up for ever."""
    assert refilled(-500.0, 100.0, 2.0) == -300.0
    assert refilled(0.0, 100.0, 3600.0) == 100.0 * BURST_S
