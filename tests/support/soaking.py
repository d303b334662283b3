"""How often tests repeat what chance decides: a few times for every run, many times for ``scripts/soak``."""

from __future__ import annotations

import os


IS_SOAK = bool(os.environ.get("MM2PY_TEST_SOAK"))
#: Which part of a soak is done: less than 1 only to see whether it runs.
PART = float(os.environ.get("MM2PY_SOAK_PART") or 1)


def rounds(few: int, *, soak: int) -> int:
    """Return how often to repeat; the test has the mark `soak`."""
    return max(1, round(soak * PART)) if IS_SOAK else few
