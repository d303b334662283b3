"""How many processes share a run of tests."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


#: Each process has brokers and Spark of its own, some three gigabytes in all.
_MOST = 6
_UNIT = Path(__file__).parents[1] / "unit"


def processes(named: Iterable[str]) -> int:
    """
    Return how many processes are worth their start for the tests that were named; 0 is pytest's own alone.

    A file is never shared out. Unit tests wait for nothing, and are done soon. All others wait more than they compute:
    one process more than there are cores keeps those busy.
    """
    paths = {Path(name.partition("::")[0]).absolute() for name in named}
    waiting = [path for path in paths if path != _UNIT and _UNIT not in path.parents]
    if not waiting or (len(paths) == 1 and waiting[0].is_file()):
        return 0
    return min((os.cpu_count() or 1) + 1, _MOST)
