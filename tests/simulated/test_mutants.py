"""The simulation notices a product that is broken on purpose: else its silence would mean nothing."""

from __future__ import annotations

import pytest

from tests.simulated.mutants import MUTANTS
from tests.support.simulating import simulate
from tests.support.soaking import rounds


_KILLS = '{"seed": 3, "minutes": 1, "partitions": 1, "faults": ["kill"], "fault_every_s": 5}'
#: The source is out of reach of the only node, soon and for long.
_AWAY = '{"seed": 1, "minutes": 1.5, "partitions": 1, "rate": 0.5, "faults": ["away"], "fault_every_s": 8}'
_LOST = '{"seed": 1, "minutes": 2, "partitions": 1, "rate": 0.5, "faults": ["executor"], "fault_every_s": 10}'
#: Each of two nodes copies all.
_APART = (
    '{"seed": 4, "nodes": 2, "minutes": 2, "partitions": 2, "rate": 0.5, "faults": ["apart"], "fault_every_s": 5, '
    '"latency_s": 0.02, "epoch_ms": 1000}'
)
_TWICE = '{"seed": 1, "minutes": 1, "rounds": 2, "partitions": 1, "rate": 0.5, "epoch_ms": 1000}'


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mutant", "options"),
    [
        *((it, _KILLS) for it in ("short", "fresh", "ahead")),
        *((it, _AWAY) for it in ("level", "deaf", "healthy", "old-lag")),
        ("impatient", _LOST),
        ("uncompared", _APART),
        ("hoarded", _TWICE),
    ],
)
def test_a_broken_rule_is_noticed(mutant: str, options: str) -> None:
    """A few that cost a second each; `scripts/simulate --mutants` has them all."""
    said = simulate("--mutant", mutant, "--options", options, is_well=False)

    assert "VIOLATION" in said


@pytest.mark.soak(only="each takes up to 200 runs")
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_broken_rule_is_noticed_by_seeds_that_no_one_has_chosen(mutant: str) -> None:
    """An invariant that no seed puts to the test, or a fault that no seed draws, is none."""
    said = simulate("--mutant", mutant, "--seeds", str(rounds(200, soak=200)))

    assert f"| {mutant} |" in said
