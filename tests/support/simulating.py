"""Runs of the simulation in a process of its own, as `scripts/simulate` starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


_ROOT = Path(__file__).parents[2]


def simulate(*arguments: str, hash_seed: int = 0, is_well: bool = True) -> str:
    """Run `scripts/simulate` with these arguments; return what it printed. Raises if it *is_well* and something was
    violated, or the other way round.
    """
    command = [sys.executable, "-m", "tests.simulated", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(
        command, cwd=_ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(done.stdout)  # noqa: T201 - where the seeds began is part of what is seen of the test
    assert done.returncode == (0 if is_well else 1), done.stdout
    return done.stdout
