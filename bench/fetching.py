"""
Fetches as consumers make them: in a session with one broker, which is told of changed positions only (KIP-227).

With all partitions in each request, a receiver of hundreds of them would be slower than what it measures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from aiokafka.protocol.api import Request
from aiokafka.protocol.fetch import FetchRequest_v11

from bench.broker import FETCH_MAX_BYTES
from bench.cluster import Place


class FetchSession:
    """What one broker knows of one receiver's positions."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._known: dict[Place, int] = {}

    def request(self, positions: Mapping[Place, int], max_wait_ms: int) -> Request[FetchRequest_v11]:
        """Make the request that brings what the broker knows up to *positions*."""
        changed = {place: at for place, at in positions.items() if self._known.get(place) != at}
        forgotten = self._known.keys() - positions.keys()
        self._known = dict(positions)
        return _Fetch(self._id, self._epoch, changed, sorted(forgotten), max_wait_ms)

    def took(self, answer: Any) -> bool:
        """Note what the broker says of the session; if False, the answer is of no use and the session begins again."""
        if answer.error_code:
            self.restart()
            return False
        self._id = answer.session_id
        # Without a session, because the broker has too many, each request is a first one.
        self._epoch = self._epoch + 1 if self._id else 0
        if not self._id:
            self._known = {}
        return True

    def restart(self) -> None:
        """Begin a new session with the next request."""
        self._id = self._epoch = 0
        self._known = {}


class _Fetch(Request[FetchRequest_v11]):
    API_KEY = 1

    def __init__(
        self, session: int, epoch: int, changed: Mapping[Place, int], forgotten: list[Place], max_wait_ms: int
    ) -> None:
        self.session = session
        self.epoch = epoch
        self.changed = changed
        self.forgotten = forgotten
        self.max_wait_ms = max_wait_ms

    def build(self, request_struct_class: type[FetchRequest_v11]) -> FetchRequest_v11:
        topics: defaultdict[str, list[tuple[int, int, int, int, int]]] = defaultdict(list)
        for (topic, number), at in self.changed.items():
            topics[topic].append((number, -1, at, -1, FETCH_MAX_BYTES))
        forgotten: defaultdict[str, list[int]] = defaultdict(list)
        for topic, number in self.forgotten:
            forgotten[topic].append(number)
        return request_struct_class(
            *(-1, self.max_wait_ms, 1, FETCH_MAX_BYTES, 0, self.session, self.epoch),
            *(list(topics.items()), list(forgotten.items()), ""),
        )
