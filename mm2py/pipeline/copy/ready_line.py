"""The partitions whose batches wait for the next request to one target broker, those that are far behind last."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from typing import Final

from mm2py.pipeline.copy.partition import PartitionCopy


#: Of so many requests, one begins with what is far behind: it must not wait for as long as others fill requests.
_BEHIND_FIRST_EVERY: Final = 4


class ReadyLine:
    """Partitions in the order in which their batches leave."""

    def __init__(self) -> None:
        self._live: collections.deque[PartitionCopy] = collections.deque()
        self._behind: collections.deque[PartitionCopy] = collections.deque()
        self._rounds = 0

    def __len__(self) -> int:
        return len(self._live) + len(self._behind)

    def add(self, copy: PartitionCopy) -> None:
        (self._behind if copy.fetching.is_behind else self._live).append(copy)

    def put_back(self, copy: PartitionCopy) -> None:
        """Return *copy* to the front, because the request has no more room."""
        (self._behind if copy.fetching.is_behind else self._live).appendleft(copy)

    def extend(self, copies: Iterable[PartitionCopy]) -> None:
        for copy in copies:
            self.add(copy)

    def take(self) -> Iterator[PartitionCopy]:
        """Take out one after the other, for one request. What is added meanwhile may come as well."""
        self._rounds += 1
        lines = [self._live, self._behind]
        if self._rounds % _BEHIND_FIRST_EVERY == 0:
            lines.reverse()
        for line in lines:
            while line:
                yield line.popleft()
