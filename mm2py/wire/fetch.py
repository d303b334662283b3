"""
Raw fetches with incremental sessions (KIP-227), leader epochs (KIP-320) and topic ids (KIP-516).

A `FetchSession` belongs to one connection. The broker remembers what the session fetches, so a request names only
the partitions whose position changed, and an answer only those that have news: thousands of idle partitions cost
nothing. Answers are taken apart by hand, because the record sets in them must stay where they were received.

A topic may be deleted and created again between two fetches, and its new log may reach past the position at once. So
topics are fetched by *id* if it is known and the broker supports ids: Fetch v13, brokers from 3.1 on. The new topic
then answers UNKNOWN_TOPIC_ID or INCONSISTENT_TOPIC_ID, never records. Older brokers are queried by name, in Fetch v11
(from 2.3 on). There the broker that sent the first records of a position says afterwards which topic has that name, and
again after each error and each gap between two fetches; records of another topic become INCONSISTENT_TOPIC_ID as well.
Brokers before 2.8 have no ids, so it cannot be detected.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import attrs

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, Mm2Error
from mm2py.model.flow import TopicPartition
from mm2py.wire.cluster import Cluster
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.fetch_forms import ById, ByName, ByNameOnly, FetchForm, FetchPosition, FetchSizes, PartitionAnswer
from mm2py.wire.metadata import TopicMetadata, view_of
from mm2py.wire.patience import Patience
from mm2py.wire.requests import MetadataRequest, id_bytes


API_KEY: Final = 1

INVALID_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
_NO_SESSION_EPOCH: Final = -1
_LAST_EPOCH: Final = 0x7FFFFFFF

NONE: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
FETCH_SESSION_ID_NOT_FOUND: Final = 70
INVALID_FETCH_SESSION_EPOCH: Final = 71
FETCH_SESSION_TOPIC_ID_ERROR: Final = 106

#: A topic can be deleted and created again unnoticed only while no fetch of it is open. After a gap this long, a
#: broker that is queried by name has to confirm the topic's id.
_UNWATCHED_S: Final = 0.02

#: How long a leader may wait for records in a fetch of a log reader, unless it says otherwise.
_WAIT_MS: Final = 500

#: replica id, max wait, min bytes, max bytes, isolation level, session id, session epoch
_REQUEST: Final = struct.Struct(">iiiibii")


@attrs.define(eq=False)
class OtherTopicError(Mm2Error):
    """The topic with this name is not the expected one."""

    cluster: str
    topic: str

    def __str__(self) -> str:
        return f"topic {self.topic} of cluster {self.cluster} was deleted and created again"


@attrs.frozen(eq=False)
class FetchAnswer:
    """A whole answer. `error_code` concerns the session, never a partition."""

    error_code: int
    throttle_ms: int
    partitions: list[PartitionAnswer]


def _form(connection: BrokerConnection, *, has_ids: bool) -> FetchForm:
    oldest, newest = connection.versions.get(API_KEY, (0, ByName.version))
    if has_ids and oldest <= ById.version <= newest:
        return ById()
    return ByName() if newest >= ByName.version else ByNameOnly()


class FetchSession:
    """
    What is fetched over one connection.

    (a) One request is in flight at a time. (b) The broker's idea of the session equals ours after each answer
    without a session error; after an error the next request starts a new session with everything wanted. (c) Either
    all positions in it have a topic id (*has_ids*) or none has: a broker does not let a session mix ids and names.
    """

    def __init__(self, connection: BrokerConnection, *, has_ids: bool = False) -> None:
        self.connection = connection
        self._form = _form(connection, has_ids=has_ids)
        self._must_prove = has_ids and self._form.version != ById.version
        self._session_id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._wanted: dict[bytes, dict[int, FetchPosition]] = {}
        self._changed: dict[bytes, dict[int, FetchPosition]] = {}
        self._forgotten: dict[bytes, set[int]] = {}
        #: What was entered last; None once something else was wanted or dropped.
        self._entered: frozenset[FetchPosition] | None = None
        self._answered_at = 0.0

    @property
    def is_empty(self) -> bool:
        return not self._wanted

    @property
    def is_by_id(self) -> bool:
        """Whether the broker is asked for topics by their ids."""
        return self._form.version == ById.version

    def want(self, position: FetchPosition) -> None:
        """Fetch from *position* from the next request on; call again whenever its fields change."""
        self._entered = None
        key = self._form.key(position)
        partitions = self._wanted.setdefault(key, {})
        if position.partition not in partitions:
            position.is_proven = False
        partitions[position.partition] = position
        self._changed.setdefault(key, {})[position.partition] = position
        if self._forgotten and key in self._forgotten:
            self._forgotten[key].discard(position.partition)

    def enter(self, positions: Collection[FetchPosition]) -> None:
        """Fetch from *positions* alone; the broker is told only of what an earlier epoch did not leave so."""
        entered = frozenset(positions)
        if entered == self._entered:
            return
        for position in positions:
            self._adopt(position)
        if sum(map(len, self._wanted.values())) != len(positions):
            stay = {(self._form.key(position), position.partition) for position in positions}
            for key, partitions in list(self._wanted.items()):
                for position in [p for number, p in partitions.items() if (key, number) not in stay]:
                    self.drop(position)
        self._entered = entered

    def _adopt(self, position: FetchPosition) -> None:
        key = self._form.key(position)
        partitions = self._wanted.get(key, {})
        known = partitions.get(position.partition)
        is_told = position.partition not in self._changed.get(key, {})
        if known is not None and is_told and known.places == position.places:
            partitions[position.partition] = position
        else:
            self.want(position)

    def drop(self, position: FetchPosition) -> None:
        """Stop fetching that partition."""
        self._entered = None
        key = self._form.key(position)
        partitions = self._wanted.get(key)
        if partitions is None or partitions.pop(position.partition, None) is None:
            return
        if not partitions:
            del self._wanted[key]  # topics come and go
        self._changed.get(key, {}).pop(position.partition, None)
        self._forgotten.setdefault(key, set()).add(position.partition)

    def begin_again(self) -> None:
        """Have the next answer tell of every partition, with news or not; the broker drops the session until now."""
        self._epoch = INITIAL_EPOCH

    async def fetch(self, sizes: FetchSizes, max_wait_ms: int) -> FetchAnswer:
        """Send one request and give its answer. Raises `BrokerConnectionError`."""
        if self._must_prove and asyncio.get_running_loop().time() > self._answered_at + _UNWATCHED_S:
            self._doubt(position for partitions in self._wanted.values() for position in partitions.values())
        request = self._request(sizes, max_wait_ms)
        frame = await self.connection.request_raw(
            API_KEY, self._form.version, [request], extra_wait_s=max_wait_ms / 1000
        )
        try:
            answer = self._answer(frame)
        except (struct.error, IndexError) as error:
            raise self.connection.give_up(f"its answer to a fetch cannot be read: {error}") from error
        if self._must_prove:
            answer = await self._proven(answer)
            self._answered_at = asyncio.get_running_loop().time()
        return answer

    def _request(self, sizes: FetchSizes, max_wait_ms: int) -> bytes:
        starts_session = self._epoch == INITIAL_EPOCH
        named = self._wanted if starts_session else self._changed
        head = _REQUEST.pack(
            -1, max_wait_ms, sizes.min_bytes, sizes.max_bytes, int(sizes.reads_committed),
            self._session_id, self._epoch,
        )  # fmt: skip
        request = self._form.request(
            head,
            {key: partitions for key, partitions in named.items() if partitions},
            {} if starts_session else {key: numbers for key, numbers in self._forgotten.items() if numbers},
            sizes,
        )
        self._changed, self._forgotten = {}, {}
        return request

    def _answer(self, frame: memoryview) -> FetchAnswer:
        throttle_ms, error_code, session_id, at = self._form.read_head(frame)
        if error_code != NONE:
            self._session_id, self._epoch = INVALID_SESSION_ID, INITIAL_EPOCH
            return FetchAnswer(error_code, throttle_ms, [])
        partitions: list[PartitionAnswer] = []
        if self._form.read(frame, at, self._wanted, partitions) > len(frame):
            raise struct.error("it is shorter than what it holds")
        self._session_id = session_id
        # The broker answers with session id 0 when it has no room for one: every request is a full one then.
        self._epoch = INITIAL_EPOCH if session_id == INVALID_SESSION_ID else _next_epoch(self._epoch)
        return FetchAnswer(NONE, throttle_ms, partitions)

    @staticmethod
    def _doubt(positions: Iterable[FetchPosition]) -> None:
        for position in positions:
            position.is_proven = False

    async def _proven(self, answer: FetchAnswer) -> FetchAnswer:
        """
        Let no records of another topic through that has the name now.

        The broker that sent them is asked, and only afterwards: ids do not come back, so if the name stands for the
        topic we want even then, the records are that topic's.
        """
        self._doubt(it.position for it in answer.partitions if it.error_code != NONE)
        unproven = [it for it in answer.partitions if it.record_set and not it.position.is_proven]
        if not unproven:
            return answer
        topics = view_of(
            await self.connection.send(MetadataRequest({it.position.topic.decode() for it in unproven}))
        ).topics
        return attrs.evolve(answer, partitions=[_proven(it, topics) for it in answer.partitions])


def _proven(answer: PartitionAnswer, topics: Mapping[str, TopicMetadata]) -> PartitionAnswer:
    position = answer.position
    if position.is_proven or not answer.record_set:
        return answer
    code = _name_stands_for(topics.get(position.topic.decode()), position)
    position.is_proven = code == NONE
    return answer if code == NONE else attrs.evolve(answer, error_code=code, record_set=memoryview(b""))


def _name_stands_for(topic: TopicMetadata | None, position: FetchPosition) -> int:
    """Return the error where a topic's name does not stand for the one that *position* belongs to."""
    if topic is None or topic.error_code != NONE:
        return ErrorCode.UNKNOWN_TOPIC_ID
    found = id_bytes(topic.topic_id)
    return NONE if found in (None, position.topic_id) else ErrorCode.INCONSISTENT_TOPIC_ID


async def fetch_once(
    connection: BrokerConnection, position: FetchPosition, sizes: FetchSizes, max_wait_ms: int
) -> PartitionAnswer:
    """Fetch one partition outside any session. Raises `BrokerConnectionError`."""
    session = FetchSession(connection, has_ids=position.topic_id is not None)
    session.want(position)
    session._epoch = _NO_SESSION_EPOCH  # noqa: SLF001 - our own class
    session._changed = session._wanted  # noqa: SLF001
    answer = await session.fetch(sizes, max_wait_ms)
    if answer.partitions:
        return answer.partitions[0]
    return PartitionAnswer(position, answer.error_code, -1, -1, -1, (), memoryview(b""))


async def fetch_from_leader(
    cluster: Cluster,
    position: FetchPosition,
    sizes: FetchSizes,
    purpose: str,
    *,
    wait_ms: int = _WAIT_MS,
    patience_s: float,
    is_final: Callable[[PartitionAnswer], object],
) -> PartitionAnswer:
    """
    Fetch one partition from its leader, outside any session, until an answer *is_final*.

    Until *patience_s* are over the leader is looked up again. Raise its error, or that of the connection, and
    `OtherTopicError` if the name now belongs to another topic.
    """
    tp = TopicPartition(position.topic.decode(), position.partition)
    patience = Patience(cluster.clock, patience_s)
    while True:
        error: BrokerAnsweredError | BrokerConnectionError
        await cluster.ensure_metadata([tp.topic])
        node, code = cluster.leader(tp), int(ErrorCode.LEADER_NOT_AVAILABLE)
        try:
            if node is not None:
                answer = await fetch_once(await cluster.connection(node, purpose), position, sizes, wait_ms)
                if is_final(answer):
                    return answer
                # What was visible may not be so for a moment after an election.
                code = answer.error_code or int(ErrorCode.OFFSET_NOT_AVAILABLE)
            error = error_of(code, cluster.alias, "Fetch", f"{tp} at offset {position.offset}")
        except BrokerConnectionError as failed:
            error, code = failed, int(ErrorCode.NETWORK_EXCEPTION)
        if patience.is_over_for(code):
            raise error
        await patience.pause()
        await cluster.refresh_metadata([tp.topic])
        known = id_bytes(cluster.topic_id(tp.topic))
        if known not in (None, position.topic_id) and position.topic_id is not None:
            raise OtherTopicError(cluster.alias, tp.topic)


def _next_epoch(epoch: int) -> int:
    return 1 if epoch >= _LAST_EPOCH else epoch + 1
