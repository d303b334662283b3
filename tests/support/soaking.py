"""How often tests repeat what chance decides: a few times for every run, many times for ``scripts/soak``."""

from __future__ import annotations

import os


IS_SOAK = bool(os.environ.get("MM2PY_TEST_SOAK"))


def rounds(few: int, *, soak: int) -> int:
    """Return how often to repeat; the test has the mark `soak`."""
    return soak if IS_SOAK else few
