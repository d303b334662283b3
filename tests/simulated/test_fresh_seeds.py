"""Whole mirrors in virtual time under faults that no one has chosen: other ones each day."""

from __future__ import annotations

import pytest

from tests.support.simulating import simulate


_SEEDS = 16


@pytest.mark.timeout(1_800)
def test_a_mirror_survives_whatever_the_day_s_seeds_draw() -> None:
    """Nothing is missing, twice or out of order at any time, and all is well again within ten minutes of peace."""
    said = simulate("--seeds", str(_SEEDS), "--tries", "15")

    assert f"{_SEEDS} seeds in " in said
