"""What is shown of a lag that is not known, or only in part."""

from __future__ import annotations

import pytest

from mm2py.model.behind import Behind


_LEVEL, _UNKNOWN, _FIVE = Behind(0, 0.0), Behind(), Behind(5, 2.0)


@pytest.mark.parametrize(
    ("each", "together"),
    [
        pytest.param([], Behind(), id="nothing is copied"),
        pytest.param([_LEVEL, _LEVEL], Behind(0, 0.0), id="nothing is left"),
        pytest.param([_LEVEL, _FIVE, Behind(7, 1.0)], Behind(12, 2.0), id="all are known"),
        pytest.param([_LEVEL, _UNKNOWN], Behind(), id="nothing known is left, something may be"),
        pytest.param([_FIVE, _UNKNOWN], Behind(5, 2.0, True, True), id="more may be left"),
        pytest.param([_LEVEL, Behind.at_least(5, 2.0)], Behind(5, 2.0, True, True), id="at least that"),
        pytest.param([_LEVEL, Behind(5)], Behind(5, None), id="it is unknown how long it has waited"),
    ],
)
def test_several_together(each: list[Behind], together: Behind) -> None:
    """What is unknown of one is unknown of all: never 0, and marked where it is the least that it can be."""
    assert Behind.together(each) == together


@pytest.mark.parametrize(
    ("lag", "least"),
    [(0, Behind()), (None, Behind()), (5, Behind(5, 9.0, lag_is_least=True, lag_s_is_least=True))],
)
def test_what_was_known_some_time_ago(lag: int | None, least: Behind) -> None:
    """That nothing was left then says nothing; what was left is left."""
    assert Behind.at_least(lag, 9.0) == least
