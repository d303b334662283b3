"""The picture of a flow."""

from __future__ import annotations

import pytest

from mm2py.model.state import greatest_lag_s


@pytest.mark.parametrize(
    ("each", "greatest"),
    [
        pytest.param((), None, id="no partition"),
        pytest.param((0.0, 0.0), 0.0, id="nothing waits"),
        pytest.param((0.0, 3.0, None), 3.0, id="at least that"),
        pytest.param((0.0, None), None, id="something waits, nobody knows for how long"),
    ],
)
def test_the_greatest_lag(each: tuple[float | None, ...], greatest: float | None) -> None:
    """A flow whose partitions are at the end but for one of which nothing is known is not said to be at the end."""
    assert greatest_lag_s(each) == greatest
