"""An upgrade from the version that kept a worker's positions under the name of the connector's class."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulated.upgrade import MODES


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, object]]:
    """Return what this version makes of what an earlier one has left, in each mode."""
    command = [sys.executable, "-m", "tests.simulated.upgrade"]
    said = subprocess.run(command, cwd=Path(__file__).parents[2], check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(line) for line in said.splitlines())


@pytest.mark.parametrize("mode", MODES)
def test_an_upgrade_loses_and_repeats_nothing(found: dict[str, dict[str, object]], mode: str) -> None:
    """
    A node of the earlier version was killed with 200 records copied behind its last position, a topic paused, and a
    group at the source ahead of what was synchronised.

    This version goes on at the very record, keeps the pause until it is lifted, and moves the group.
    """
    assert found[mode] == {
        "was_copied": {"orders": 240, "events": 40},
        "is_level": True,
        "paused": 40,
        "group": 100,
        "same": [True, True],
        "counts": {"orders": 320, "events": 320},
        "state": "running",
        "issues": [],
    }
