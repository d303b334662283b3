"""The simulation notices a product that is broken on purpose: else its silence would mean nothing."""

from __future__ import annotations

import pytest

from tests.support.simulating import simulate


_KILLS = '{"seed": 3, "minutes": 1, "partitions": 1, "faults": ["kill"], "fault_every_s": 5}'


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", ["short", "fresh", "ahead"])
def test_a_broken_rule_is_noticed(mutant: str) -> None:
    """A few that cost a second each; `scripts/simulate --mutants` has them all."""
    said = simulate("--mutant", mutant, "--options", _KILLS, is_well=False)

    assert "VIOLATION" in said
