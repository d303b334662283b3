"""Where to continue when it is unknown what has arrived. Only the mirror writes to a remote topic, and copying is
deterministic: the target's records beyond the last accounted one are the next data records of the source, in order. So
their number tells how far the copy got, and comparing one record verifies it.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Exact:
    """The target has nothing beyond the position."""

    downstream: int


@attrs.frozen
class Skip:
    """The next *records* data records of the source are already at the target, the last one at *downstream*."""

    records: int
    downstream: int


@attrs.frozen
class Match:
    """The position's downstream offset is unknown: find the target's last record, at *downstream*, in the source."""

    downstream: int


@attrs.frozen
class Blank:
    """The position's downstream offset is unknown, and the target has never held a record."""


@attrs.frozen
class Rewound:
    """The target ends at *end*, before the position's downstream offset."""

    end: int


Resume = Exact | Skip | Match | Blank | Rewound


def judge(*, downstream: int | None, target_end: int) -> Resume:
    """
    Return how to resume from a position whose last record went to *downstream*, with the target ending at *target_end*.

    *downstream* is -1 where nothing had been copied when the target was still empty, and None if Java MM2 wrote the
    position, which keeps upstream offsets only. *target_end* is the offset that the next record will get.
    """
    if downstream is None:
        return Blank() if target_end == 0 else Match(target_end - 1)
    if target_end <= downstream:
        return Rewound(target_end)
    if target_end == downstream + 1:
        return Exact(downstream)
    return Skip(target_end - downstream - 1, target_end - 1)
