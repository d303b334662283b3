"""
Which offset syncs are due, by the rules of MirrorMaker's OffsetSyncWriter, applied to runs instead of single records.

A sync is due for the first record after a start, when the source has a gap or went back, when the target went back, and
every ``offset.lag.max`` records. The newest of the records acknowledged together is written, not the one that made it
due: it is more useful, and MirrorMaker, too, writes only the newest pending one.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from mm2py.model.epoch import Run


@attrs.frozen
class SyncProgress:
    """The last acknowledged record of a topic-partition, and the last due downstream offset; -1 for none yet."""

    upstream: int = -1
    downstream: int = -1
    last_due: int = -1
    #: Stays set until the sync is taken.
    is_due: bool = False


def advance(progress: SyncProgress, runs: Sequence[Run], *, lag_max: int) -> SyncProgress:
    """Add acknowledged *runs*, which follow those acknowledged before."""
    # Only runs after the last gap at the source decide which offset was last due.
    first = len(runs)
    while first > 0:
        first -= 1
        if first and runs[first].upstream != runs[first - 1].upstream + runs[first - 1].length:
            progress = attrs.evolve(_passed(progress, runs[first - 1]), is_due=True)
            break
    for run in runs[first:]:
        progress = _acknowledged(progress, run, lag_max)
    return progress


def _passed(progress: SyncProgress, run: Run) -> SyncProgress:
    return attrs.evolve(progress, upstream=run.upstream + run.length - 1, downstream=run.downstream + run.length - 1)


def _acknowledged(progress: SyncProgress, run: Run, lag_max: int) -> SyncProgress:
    last_due, is_due = progress.last_due, progress.is_due
    if (
        last_due == -1
        or run.downstream - (last_due + 1) >= lag_max
        or run.upstream - progress.upstream != 1
        or run.downstream < progress.downstream
    ):
        last_due, is_due = run.downstream, True
    end = run.downstream + run.length - 1
    behind = end - last_due
    if behind > lag_max:
        last_due, is_due = last_due + behind // (lag_max + 1) * (lag_max + 1), True
    return attrs.evolve(_passed(progress, run), last_due=last_due, is_due=is_due)
