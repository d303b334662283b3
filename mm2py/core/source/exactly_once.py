"""The position of a partition once its transactional producer was reopened. The positions topic is then authoritative:
uncommitted transactions are aborted. It may differ from this daemon's memory, because the answer to a commit may have
been lost, or another node may have continued meanwhile.
"""

from __future__ import annotations

import enum

from mm2py.model.positions import Position


class Standing(enum.Enum):
    """How a position in memory compares with the committed one."""

    AS_KNOWN = "both are the same, or nothing was ever written"
    AHEAD = "more was committed than was known"
    BEHIND = "the position was set back"


def judge(position: int, committed: Position | None) -> Standing:
    """Compare the known next upstream offset with the *committed* one."""
    if committed is None or committed.next_upstream == position:
        return Standing.AS_KNOWN
    return Standing.AHEAD if committed.next_upstream > position else Standing.BEHIND
