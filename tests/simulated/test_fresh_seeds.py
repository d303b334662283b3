"""Whole mirrors in virtual time under faults that no one has chosen: other ones each day."""

from __future__ import annotations

import os

import pytest

from tests.support.simulating import simulate
from tests.support.soaking import IS_SOAK, rounds


@pytest.mark.soak
@pytest.mark.timeout(40_000 if IS_SOAK else 1_800)
def test_a_mirror_survives_whatever_the_day_s_seeds_draw() -> None:
    """Nothing is missing, twice or out of order at any time, and all is well again within ten minutes of peace."""
    seeds, jobs = rounds(60, soak=2_500), os.cpu_count() or 1

    said = simulate("--seeds", str(seeds), "--tries", "15", "--jobs", str(jobs))

    assert f"{seeds} seeds in " in said
