"""
Where a partition stands once its transactional producer was opened again.

What the positions topic says then is the truth: transactions that nobody committed are undone. It need not be what this
daemon had in mind, because the answer to a commit may have been lost, or somebody else may have gone on meanwhile.
"""

from __future__ import annotations

import enum

from mm2py.model.positions import Position


class Standing(enum.Enum):
    """How a position in memory compares with the committed one."""

    AS_KNOWN = "both are the same, or nothing was ever written down"
    AHEAD = "more was committed than was known"
    BEHIND = "somebody has set the position back"


def judge(position: int, committed: Position | None) -> Standing:
    """Compare the next upstream offset that is known with the *committed* one."""
    if committed is None or committed.next_upstream == position:
        return Standing.AS_KNOWN
    return Standing.AHEAD if committed.next_upstream > position else Standing.BEHIND
