"""What nodes say of a flow is right while its partitions move from one to another."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_a_lag_of_which_a_part_is_on_its_way_is_not_exact() -> None:
    """
    A partition that a node has released, and the next one has not begun, is counted by neither: the flow's lag was
    shown without it as exact. Once all have begun and reported, the lag is known again.
    """
    command = [sys.executable, "-m", "tests.simulated.moves"]
    told = subprocess.run(command, cwd=Path(__file__).parents[2], check=True, stdout=subprocess.PIPE, text=True).stdout

    assert json.loads(told) == ["partitions_that_move", {"lies": [], "is known again": [True, True, True]}]
