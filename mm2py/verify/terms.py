"""The words of a comparison: records as they are remembered, and what is needed next."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import attrs


#: A record: its timestamp, and everything else that distinguishes it from others.
Content = tuple[Any, ...]
#: Timestamp, and the hashes of key, value and headers; meant for one process.
Mark = tuple[int, int, int, int]

PARTS = ("timestamp", "key", "value", "headers")
SOURCE, TARGET = 0, 1


class Want(enum.Enum):
    """What a comparison needs next."""

    SOURCE = 0
    TARGET = 1
    #: Records further away than it can remember: see `Comparison.jump`.
    SEARCH = 2
    #: It is over.
    NOTHING = 3


@attrs.frozen
class Passed:
    """
    Records that are on one side only, up to where both are the same again, or to the end of both.

    `near` are the first ones of either side, `further` counts those that follow them. `pending` ones of the source are
    after the proven position.
    """

    near: tuple[Sequence[tuple[int, Mark]], Sequence[tuple[int, Mark]]]
    further: tuple[int, int] = (0, 0)
    pending: int = 0
    is_end: bool = False


@attrs.define
class WaitingRecords:
    """Records of one side that wait to be compared, from index `at` on."""

    offsets: Sequence[int] = ()
    contents: Sequence[Content] = ()
    at: int = 0

    @property
    def left(self) -> int:
        return len(self.offsets) - self.at
