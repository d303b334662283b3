"""
Raw fetches with incremental sessions (KIP-227) and leader epochs (KIP-320).

A `FetchSession` belongs to one connection. The broker remembers what the session fetches, so a request names only
the partitions whose position changed, and an answer only those that have news: thousands of idle partitions cost
nothing. The version spoken is Fetch v11 (brokers from 2.3 on); answers are taken apart by hand, because the record
sets in them must stay where they were received.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import attrs

from mm2py.wire.connection import BrokerConnection


API_KEY: Final = 1
API_VERSION: Final = 11

INVALID_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
_NO_SESSION_EPOCH: Final = -1
_LAST_EPOCH: Final = 0x7FFFFFFF

NONE: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
FETCH_SESSION_ID_NOT_FOUND: Final = 70
INVALID_FETCH_SESSION_EPOCH: Final = 71
FETCH_SESSION_TOPIC_ID_ERROR: Final = 106

#: replica id, max wait, min bytes, max bytes, isolation level, session id, session epoch
_REQUEST: Final = struct.Struct(">iiiibii")
#: partition, current leader epoch, fetch offset, log start offset, partition max bytes
_WANTED: Final = struct.Struct(">iiqqi")
#: partition, error, high watermark, last stable offset, log start offset, aborted transactions
_ANSWER: Final = struct.Struct(">ihqqqi")
_ABORTED: Final = struct.Struct(">qq")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
#: correlation id, throttle time, error, session id, number of topics
_ANSWER_HEAD: Final = struct.Struct(">iihii")
#: preferred read replica, size of the record set
_RECORD_SET: Final = struct.Struct(">ii")


@attrs.define(eq=False)
class FetchPosition:
    """What to fetch of one partition. *owner* is whoever wants the answer."""

    topic: bytes
    partition: int
    offset: int
    leader_epoch: int
    owner: Any
    #: The most that an answer may bring of it; None leaves that to `FetchSizes`.
    max_bytes: int | None = None

    @property
    def places(self) -> tuple[int, int, int | None]:
        """What the broker was told of it."""
        return self.offset, self.leader_epoch, self.max_bytes


@attrs.frozen(eq=False)
class PartitionAnswer:
    """A partition's part of an answer; `record_set` may end inside a batch."""

    position: FetchPosition
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    record_set: memoryview
    #: The replica to read from instead; -1 where it is the one that answered.
    preferred_replica: int = -1


@attrs.frozen(eq=False)
class FetchAnswer:
    """A whole answer. `error_code` concerns the session, never a partition."""

    error_code: int
    throttle_ms: int
    partitions: list[PartitionAnswer]


@attrs.frozen
class FetchSizes:
    """How much a fetch may bring and how long the broker may wait for it; *rack* is where the reader is (KIP-392)."""

    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    reads_committed: bool
    rack: str = ""


class FetchSession:
    """
    What is fetched over one connection.

    (a) One request is in flight at a time. (b) The broker's idea of the session equals ours after each answer
    without a session error; after an error the next request starts a new session with everything wanted.
    """

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection
        self._session_id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._wanted: dict[bytes, dict[int, FetchPosition]] = {}
        self._changed: dict[bytes, dict[int, FetchPosition]] = {}
        self._forgotten: dict[bytes, set[int]] = {}
        self._count = 0

    @property
    def is_empty(self) -> bool:
        return self._count == 0

    def want(self, position: FetchPosition) -> None:
        """Fetch from *position* from the next request on; call again whenever its fields change."""
        partitions = self._wanted.setdefault(position.topic, {})
        if position.partition not in partitions:
            self._count += 1
        partitions[position.partition] = position
        self._changed.setdefault(position.topic, {})[position.partition] = position
        if self._forgotten and position.topic in self._forgotten:
            self._forgotten[position.topic].discard(position.partition)

    def adopt(self, position: FetchPosition) -> None:
        """Fetch from *position*, which need not be told to the broker where the session stands there already."""
        partitions = self._wanted.get(position.topic, {})
        known = partitions.get(position.partition)
        is_told = position.partition not in self._changed.get(position.topic, {})
        if known is not None and is_told and known.places == position.places:
            partitions[position.partition] = position
        else:
            self.want(position)

    def drop(self, position: FetchPosition) -> None:
        """Stop fetching that partition."""
        partitions = self._wanted.get(position.topic)
        if partitions is None or partitions.pop(position.partition, None) is None:
            return
        self._count -= 1
        self._changed.get(position.topic, {}).pop(position.partition, None)
        self._forgotten.setdefault(position.topic, set()).add(position.partition)

    def keep_only(self, wanted: dict[bytes, set[int]]) -> None:
        """Drop everything that is not in *wanted*: what an earlier epoch left in the session."""
        for topic, partitions in list(self._wanted.items()):
            stays = wanted.get(topic, set())
            for position in [p for number, p in partitions.items() if number not in stays]:
                self.drop(position)

    async def fetch(self, sizes: FetchSizes, max_wait_ms: int) -> FetchAnswer:
        """Send one request and give its answer. Raises `BrokerConnectionError`."""
        request = self._request(sizes, max_wait_ms)
        frame = await self.connection.request_raw(API_KEY, API_VERSION, [request], extra_wait_s=max_wait_ms / 1000)
        return self._answer(frame)

    def _request(self, sizes: FetchSizes, max_wait_ms: int) -> bytes:
        starts_session = self._epoch == INITIAL_EPOCH
        named = self._wanted if starts_session else self._changed
        out = [
            _REQUEST.pack(
                -1, max_wait_ms, sizes.min_bytes, sizes.max_bytes, int(sizes.reads_committed),
                self._session_id, self._epoch,
            ),
            b"",
        ]  # fmt: skip
        topics = 0
        for topic, partitions in named.items():
            if not partitions:
                continue
            topics += 1
            out.append(_INT16.pack(len(topic)) + topic + _INT32.pack(len(partitions)))
            out += [
                _WANTED.pack(number, p.leader_epoch, p.offset, -1, p.max_bytes or sizes.partition_max_bytes)
                for number, p in partitions.items()
            ]
        out[1] = _INT32.pack(topics)
        forgotten = {} if starts_session else {t: numbers for t, numbers in self._forgotten.items() if numbers}
        out.append(_INT32.pack(len(forgotten)))
        for topic, numbers in forgotten.items():
            out.append(_INT16.pack(len(topic)) + topic + _INT32.pack(len(numbers)))
            out += [_INT32.pack(number) for number in numbers]
        rack = sizes.rack.encode()
        out.append(_INT16.pack(len(rack)) + rack)
        self._changed, self._forgotten = {}, {}
        return b"".join(out)

    def _answer(self, frame: memoryview) -> FetchAnswer:
        _, throttle_ms, error_code, session_id, topic_count = _ANSWER_HEAD.unpack_from(frame)
        if error_code != NONE:
            self._session_id, self._epoch = INVALID_SESSION_ID, INITIAL_EPOCH
            return FetchAnswer(error_code, throttle_ms, [])
        self._session_id = session_id
        # The broker answers with session id 0 when it has no room for one: every request is a full one then.
        self._epoch = INITIAL_EPOCH if session_id == INVALID_SESSION_ID else _next_epoch(self._epoch)
        partitions: list[PartitionAnswer] = []
        at = _ANSWER_HEAD.size
        for _ in range(topic_count):
            (size,) = _INT16.unpack_from(frame, at)
            at += 2
            wanted = self._wanted.get(bytes(frame[at : at + size]), {})
            at += size
            (count,) = _INT32.unpack_from(frame, at)
            at += 4
            for _ in range(count):
                at = self._partition_answer(frame, at, wanted, partitions)
        return FetchAnswer(NONE, throttle_ms, partitions)

    @staticmethod
    def _partition_answer(
        frame: memoryview, at: int, wanted: dict[int, FetchPosition], into: list[PartitionAnswer]
    ) -> int:
        number, error_code, high_watermark, last_stable, log_start, aborted_count = _ANSWER.unpack_from(frame, at)
        at += _ANSWER.size
        aborted: tuple[tuple[int, int], ...] = ()
        if aborted_count > 0:
            after = at + aborted_count * _ABORTED.size
            aborted = tuple(_ABORTED.iter_unpack(frame[at:after]))
            at = after
        preferred, size = _RECORD_SET.unpack_from(frame, at)
        at += _RECORD_SET.size
        record_set = frame[at : at + max(size, 0)]
        at += max(size, 0)
        position = wanted.get(number)
        # An answer for a partition that was dropped while the request was under way is nobody's.
        if position is not None:
            into.append(
                PartitionAnswer(
                    position, error_code, high_watermark, last_stable, log_start, aborted, record_set, preferred
                )
            )
        return at


async def fetch_once(
    connection: BrokerConnection, position: FetchPosition, sizes: FetchSizes, max_wait_ms: int
) -> PartitionAnswer:
    """Fetch one partition outside any session. Raises `BrokerConnectionError`."""
    session = FetchSession(connection)
    session.want(position)
    session._epoch = _NO_SESSION_EPOCH  # noqa: SLF001 - our own class
    session._changed = session._wanted  # noqa: SLF001
    answer = await session.fetch(sizes, max_wait_ms)
    if answer.partitions:
        return answer.partitions[0]
    return PartitionAnswer(position, answer.error_code, -1, -1, -1, (), memoryview(b""))


def _next_epoch(epoch: int) -> int:
    return 1 if epoch >= _LAST_EPOCH else epoch + 1
