"""How many processes share a run of tests."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import psutil


_MOST = 6
#: Each process has brokers and Spark of its own.
_NEEDS_BYTES = 3 * 10**9
_UNIT = Path(__file__).parents[1] / "unit"


def processes(named: Iterable[str]) -> int:
    """
    Return how many processes are worth their start for the tests that were named; 0 is pytest's own alone.

    A file is never shared out. Unit tests wait for nothing, and are done soon. All others compute for a third of their
    time and wait for the rest: two processes for each core and one more keep those busy, as far as memory goes.
    """
    paths = {Path(name.partition("::")[0]).absolute() for name in named}
    waiting = [path for path in paths if path != _UNIT and _UNIT not in path.parents]
    if not waiting or (len(paths) == 1 and waiting[0].is_file()):
        return 0
    fitting = int(psutil.virtual_memory().total // _NEEDS_BYTES)
    return max(1, min(2 * (os.cpu_count() or 1) + 1, _MOST, fitting))
