"""The partitions whose batches wait for the next request to one target broker, those that are far behind last."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Iterator
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

    def take(self, again: Collection[PartitionCopy] = ()) -> Iterator[PartitionCopy]:
        """
        Take out one after the other, for one request.

        A request has one batch of each. If some that are not far behind have more, which the caller has put into
        *again*, the request is to be a small one: they would wait for all that follows in it.
        """
        self._rounds += 1
        is_for_behind = self._rounds % _BEHIND_FIRST_EVERY == 0
        if is_for_behind:
            yield from _emptied(self._behind)
        yield from _emptied(self._live)
        if not is_for_behind and not again:
            yield from _emptied(self._behind)


def _emptied(line: collections.deque[PartitionCopy]) -> Iterator[PartitionCopy]:
    while line:
        yield line.popleft()
