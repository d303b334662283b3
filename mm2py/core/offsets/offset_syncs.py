"""
Which offset syncs are due, by the rules of MirrorMaker's OffsetSyncWriter, applied to runs instead of single records.

A sync is due for the first record of a life, where the source has a gap or went back, where the target went back, and
every ``offset.lag.max`` records. What is written is the newest record of those that were acknowledged together, not the
one that made it due: it tells more, and MirrorMaker, too, writes only the newest that waits.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from mm2py.model.epoch import Run


@attrs.frozen
class SyncProgress:
    """What was acknowledged last of a topic-partition, and which downstream offset was due last; -1 for nothing yet."""

    upstream: int = -1
    downstream: int = -1
    last_due: int = -1
    #: Stays until the sync is taken.
    is_due: bool = False

    @property
    def is_begun(self) -> bool:
        """Whether anything was acknowledged."""
        return self.upstream >= 0


def advance(progress: SyncProgress, runs: Sequence[Run], *, lag_max: int) -> SyncProgress:
    """Take the acknowledgement of *runs*, which follow what was acknowledged before."""
    # Only what lies behind the last gap at the source decides which offset was due last.
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
