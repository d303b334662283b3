"""The snapshot of a flow."""

from __future__ import annotations

import pytest

from mm2py.model.state import greatest_lag_s


@pytest.mark.parametrize(
    ("each", "greatest"),
    [
        pytest.param((), None, id="no partition"),
        pytest.param((0.0, 0.0), 0.0, id="nothing waits"),
        pytest.param((0.0, 3.0, None), 3.0, id="at least that"),
        pytest.param((0.0, None), 0.0, id="those that are known"),
        pytest.param((None,), None, id="none is known"),
    ],
)
def test_the_greatest_lag(each: tuple[float | None, ...], greatest: float | None) -> None:
    """What is known counts, whatever else is unknown; that is counted apart."""
    assert greatest_lag_s(each) == greatest
