"""
Fetch: sessions, long polls, and the rows that a session has not been told yet.

After FetchSession, FetchManager and DelayedFetch; KIP-74 for the first batch, KIP-320 for leader epochs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
from aiokafka.protocol.fetch import FetchRequest_v11

from mm2py.wire.error_codes import ErrorCode
from tests.simulated.log import Partition
from tests.simulated.requests.kind import Kind
from tests.support.fetch_v13 import FetchRequest_v13, tagged


if TYPE_CHECKING:
    from tests.simulated.broker import Broker, Line


_BY_ID = 13
_NEW, _NONE = 0, -1
_LAST_EPOCH = 2**31 - 1


@attrs.define(eq=False)
class FetchSession:
    """What a client asks for again and again, and what it was told last."""

    number: int
    by_id: bool
    epoch: int = 0
    #: Offset, leader epoch, and most bytes.
    wanted: dict[tuple[str, int], tuple[int, int, int]] = attrs.field(factory=dict)
    #: High watermark, last stable offset and log start.
    told: dict[tuple[str, int], tuple[int, int, int]] = attrs.field(factory=dict)


def fetch(broker: Broker, _line: Line, request: Any, reply: Callable[[Any], None]) -> None:
    """Answer once there is something to say, or the client's time is over."""
    session = _session(broker, request)
    if isinstance(session, FetchSession):
        DelayedFetch(broker, session, request, reply).begin()
        return
    broker.cluster.codes[session] += 1
    if request.API_VERSION >= _BY_ID:
        reply(request.RESPONSE_TYPE({}, 0, session, 0, [], {}))
    else:
        reply(request.RESPONSE_TYPE(0, session, 0, []))


def _session(broker: Broker, request: Any) -> FetchSession | int:
    """Return the session of a request, or an error code."""
    wanted = {
        (topic, row[0]): (row[2], row[1], row[4] if request.API_VERSION < _BY_ID else row[5])
        for topic, rows, *_ in request.topics
        for row in rows
    }
    by_id = request.API_VERSION >= _BY_ID
    if request.session_epoch in (_NEW, _NONE):
        broker.sessions.pop(request.session_id, None)
        if request.session_epoch == _NONE:
            return FetchSession(0, by_id, wanted=wanted)
        broker.session_numbers += 1
        session = broker.sessions[broker.session_numbers] = FetchSession(broker.session_numbers, by_id, 1, wanted)
        return session
    found: FetchSession | None = broker.sessions.get(request.session_id)
    if found is None:
        return int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if found.epoch != request.session_epoch:
        return int(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    if found.by_id != by_id:
        return int(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    found.epoch = 1 if found.epoch >= _LAST_EPOCH else found.epoch + 1
    for topic, numbers, *_ in request.forgotten_topics_data:
        for number in numbers:
            found.wanted.pop((topic, number), None)
            found.told.pop((topic, number), None)
    found.wanted.update(wanted)
    return found


class DelayedFetch:
    """A poll that is held back until there is something to say."""

    def __init__(self, broker: Broker, session: FetchSession, request: Any, reply: Callable[[Any], None]) -> None:
        self._broker = broker
        self._session = session
        self._request = request
        self._reply = reply
        self._by_id = request.API_VERSION >= _BY_ID
        self._is_committed = request.isolation_level == 1
        self._is_over = False
        self._watched: list[Partition] = []
        self._timer: Any = None

    def begin(self) -> None:
        """Wait as long as the client allows."""
        self._watched = self._partitions()
        for partition in self._watched:
            partition.waiters[self.check] = None
        self._timer = self._broker.host.call_later(max(0, self._request.max_wait_time) / 1000, self._expire)
        self.check()

    def _find(self, topic: str, number: int) -> Partition | None:
        cluster = self._broker.cluster
        found = cluster.by_id.get(topic) if self._by_id else cluster.topics.get(topic)
        return found.partitions[number] if found is not None and number < len(found.partitions) else None

    def _partitions(self) -> list[Partition]:
        found = [self._find(*key) for key in self._session.wanted]
        return [partition for partition in found if partition is not None]

    def check(self) -> None:
        """Answer if there are records enough, or an error."""
        self._look(is_late=False)

    def _expire(self) -> None:
        self._look(is_late=True)

    def _look(self, *, is_late: bool) -> None:
        if self._is_over:
            return
        rows, size = self._rows()
        is_late = is_late or self._request.max_wait_time <= 0
        if is_late or size >= self._request.min_bytes or any(row[1] for row in rows.values()):
            self._is_over = True
            self._timer.cancel()
            for partition in self._watched:
                partition.waiters.pop(self.check, None)
            self._answer(rows)

    def _rows(self) -> tuple[dict[tuple[str, int], Any], int]:
        rows: dict[tuple[str, int], Any] = {}
        size = 0
        for key, (offset, epoch, most) in self._session.wanted.items():
            partition = self._find(*key)
            code = self._code(key[0], partition, epoch, offset)
            if partition is None or code:
                rows[key] = (key[1], code, -1, -1, -1, [] if partition is None else None, -1, b"")
                continue
            room = min(self._request.max_bytes - size, most)
            data = partition.read(offset, room, committed=self._is_committed, is_first=not size)
            state = (partition.high_watermark, partition.stable, partition.start)
            if data or self._session.told.get(key) != state:
                aborted = partition.aborted_in(offset, partition.high_watermark) if self._is_committed else None
                rows[key] = (key[1], 0, *state, aborted, -1, data)
            size += len(data)
        return rows, size

    def _code(self, topic: str, partition: Partition | None, epoch: int, offset: int) -> int:
        if partition is None:
            is_unknown = self._by_id and topic not in self._broker.cluster.by_id
            return int(ErrorCode.UNKNOWN_TOPIC_ID if is_unknown else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        is_within = partition.start <= offset <= partition.end
        return self._broker.fetch_code(partition, epoch) or (0 if is_within else int(ErrorCode.OFFSET_OUT_OF_RANGE))

    def _answer(self, rows: dict[tuple[str, int], Any]) -> None:
        session, answer = self._session, self._request.RESPONSE_TYPE
        by_topic: dict[str, list[Any]] = {}
        for key, row in rows.items():
            by_topic.setdefault(key[0], []).append(tagged(row) if self._by_id else row)
            self._broker.cluster.codes[row[1]] += 1
            if row[1]:
                session.told.pop(key, None)
            else:
                session.told[key] = (row[2], row[3], row[4])
            if row[7] and session.number:  # others come first next time
                session.wanted[key] = session.wanted.pop(key)
        wait_ms = self._broker.cluster.throttle_ms
        if self._by_id:
            named: list[Any] = [(topic, it, {}) for topic, it in by_topic.items()]
            self._reply(answer({}, wait_ms, 0, session.number, named, {}))
        else:
            self._reply(answer(wait_ms, 0, session.number, list(by_topic.items())))


KINDS = (Kind(fetch, (FetchRequest_v11, FetchRequest_v13), with_header=(FetchRequest_v13,)),)
