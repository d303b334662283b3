"""
How much a fetch may bring over lines on which a full answer takes longer than an epoch.

What has not arrived when the epoch ends is given up with its connection. The next epoch would ask for as much again,
and a partition that is behind would never get ahead. So it asks for less, until answers arrive in time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import attrs

from mm2py.wire.fetch_forms import FetchSizes, PartitionAnswer


#: A cluster's alias, and its broker.
Line = tuple[str, int | None]

#: A fetch that was under way for so much of an epoch, and is given up, brings too much.
_LONG: Final = 1 / 2
#: One that took less of it may bring more.
_SHORT: Final = 1 / 8
_LESS: Final = 4
_MORE: Final = 2
#: As many that filled their answers in time may bring more, too: it may be the broker that takes long, or the distance.
_MANY: Final = 32
#: A broker gives one whole batch in any case.
_LEAST_BYTES: Final = 64 * 1024


@attrs.define
class _Limit:
    """What a fetch may bring, and how many have brought about as much."""

    most_bytes: int
    filled: int = 0


class SlowLines:
    """What a fetch may bring from each broker, from epoch to epoch; nothing is known of lines that are fast enough."""

    def __init__(self) -> None:
        self._limits: dict[Line, _Limit] = {}

    def limited(self, line: Line, sizes: FetchSizes) -> FetchSizes:
        """Return how much the next fetch over *line* may bring of *sizes*."""
        limit = self._limits.get(line)
        if limit is None or limit.most_bytes >= sizes.max_bytes:
            return sizes
        return attrs.evolve(sizes, max_bytes=limit.most_bytes)

    def answered(self, line: Line, part: float, answers: Collection[PartitionAnswer], sizes: FetchSizes) -> None:
        """
        Note that a fetch of *sizes* took this *part* of an epoch; *sizes* are those that `limited` was given.

        One that brought little, as of partitions that are not behind, is quick over a slow line, too.
        """
        limit = self._limits.get(line)
        if limit is None or sum(len(answer.record_set) for answer in answers) * _MORE < limit.most_bytes:
            return
        limit.filled += 1
        if part >= _SHORT and limit.filled < _MANY:
            return
        if limit.most_bytes * _MORE < sizes.max_bytes:
            self._limits[line] = _Limit(limit.most_bytes * _MORE)
        else:
            del self._limits[line]

    def given_up(self, line: Line, part: float, sizes: FetchSizes) -> None:
        """Note that a fetch was given up after this *part* of an epoch, as above, with its answer under way."""
        if part >= _LONG:
            asked_bytes = self.limited(line, sizes).max_bytes
            self._limits[line] = _Limit(max(_LEAST_BYTES, asked_bytes // _LESS))
