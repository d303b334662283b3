"""
A Kafka cluster as a model: what brokers keep and answer on the copy path, in this process and in virtual time.

It stands for a `mm2py.wire.cluster.Cluster` and its connections. Requests come as the bytes that a broker would get,
answers leave as the bytes that it would send. A model partition keeps its log, and of each producer the last five
batches with their sequences, by which it tells a repeated batch from a new one (KIP-98), and takes any sequence from
a producer that it does not know (KIP-360). Tests do damage through its fields.
"""

# The model takes what a cluster takes, needed or not.
# ruff: noqa: ARG002

from __future__ import annotations

import asyncio
import collections
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import attrs
from aiokafka.protocol.fetch import FetchRequest_v11, FetchResponse_v11
from aiokafka.protocol.produce import ProduceRequest_v8, ProduceResponse_v8

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.wire.answers import MalformedAnswerError
from mm2py.wire.connection import Buffer, FrameHandler
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.log_end import OffsetForLeaderEpochRequest_v3
from mm2py.wire.requests import MetadataRequest_v11
from tests.support.clocks import LoopClock
from tests.support.fetch_v13 import FetchRequest_v13, FetchResponse_v13, tagged
from tests.support.model_partition import ModelPartition
from tests.support.produce_v13 import ProduceRequest_v13, told_by_id


PRODUCE, FETCH = 0, 1
#: The version of Produce and of Fetch from which on topics have ids instead of names.
BY_ID = 13

_LATENCY_S = 0.001


@attrs.define(eq=False)
class _Request:
    api_key: int
    api_version: int
    body: bytes
    handler: FrameHandler
    answer: bytes | None = None
    #: Whether its answer is under way.
    is_taken: bool = False
    #: What a fetch's session wants, and what of it the client has not heard of; looked up once.
    wanted: tuple[dict[tuple[str, int], tuple[int, int]], set[tuple[str, int]]] | None = None


class ModelConnection:
    """
    A connection to one model broker.

    By itself it answers each request after a moment. With `is_manual` the test says when the broker takes the oldest
    request (`process`) and when its answer arrives (`deliver`).
    """

    def __init__(self, cluster: ModelCluster, node: int, purpose: str) -> None:
        self.node = node
        self.purpose = purpose
        self.is_closed = False
        self.muted_until = -math.inf
        self.round_trip_s = cluster.far_s
        self.held_bytes = 0
        self.busy_until = 0.0
        self.requests: collections.deque[_Request] = collections.deque()
        self._cluster = cluster
        self._sessions: dict[int, dict[tuple[str, int], tuple[int, int, int]]] = {}

    async def request_raw(
        self, api_key: int, api_version: int, pieces: Sequence[Buffer], *, extra_wait_s: float = 0.0
    ) -> memoryview:
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self.send_raw(api_key, api_version, pieces, _Waiter(future), extra_wait_s=extra_wait_s)
        return await future

    def send_raw(
        self,
        api_key: int,
        api_version: int,
        pieces: Sequence[Buffer],
        handler: FrameHandler,
        *,
        extra_wait_s: float = 0.0,
    ) -> None:
        if self.is_closed:
            raise BrokerConnectionError(self._cluster.alias, str(self.node), "connection is closed")
        request = _Request(api_key, api_version, b"".join(pieces), handler)
        self.requests.append(request)
        self._cluster.sent.append((self.node, api_key))
        if not (self._cluster.is_manual or self._cluster.is_frozen):
            took_s = _LATENCY_S + self._cluster.far_s + self._cluster.work_s(self, request)
            asyncio.get_running_loop().call_later(took_s, self._answer_by_itself, extra_wait_s)

    def _answer_by_itself(self, left_s: float) -> None:
        if self.is_closed or self._cluster.is_frozen:
            return
        # Timers of the same moment run in any order, a broker takes requests in theirs.
        request = next(waiting for waiting in self.requests if waiting.answer is None and not waiting.is_taken)
        body = self._cluster.take(self, request)
        if body is None:
            self.close("the broker closed the connection")
        elif request.api_key == FETCH and left_s > 0 and not _has_news(body, request.api_version):
            # A long poll: look again until there is something or its time is over.
            pause_s = min(left_s, 0.005)
            asyncio.get_running_loop().call_later(pause_s, self._answer_by_itself, left_s - pause_s)
        elif (arrives_s := len(body) / self._cluster.answers_bytes_per_s) > 0:
            request.is_taken = True
            asyncio.get_running_loop().call_later(arrives_s, self._arrive, request, body)
        else:
            self._arrive(request, body)

    def _arrive(self, request: _Request, body: bytes) -> None:
        request.answer = body
        while self.requests and self.requests[0].answer is not None:
            self.deliver()

    def process(self) -> None:
        """Let the broker take the oldest request that it has not taken."""
        for request in self.requests:
            if request.answer is None:
                request.answer = self._cluster.take(self, request)
                return

    def deliver(self) -> None:
        """Let the oldest request's answer arrive, if the broker has taken it."""
        if self.requests and self.requests[0].answer is not None:
            request = self.requests.popleft()
            assert request.answer is not None
            try:
                request.handler.frame_received(memoryview(bytearray(b"\x00\x00\x00\x01" + request.answer)))
            except MalformedAnswerError as error:
                self.close(str(error))
                request.handler.frame_lost(BrokerConnectionError(self._cluster.alias, str(self.node), str(error)))

    def close(self, cause: str = "closed by us") -> None:
        if self.is_closed:
            return
        self.is_closed = True
        unanswered, self.requests = self.requests, collections.deque()
        for request in unanswered:
            request.handler.frame_lost(BrokerConnectionError(self._cluster.alias, str(self.node), cause))

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        return {PRODUCE: self._cluster.produce_versions, FETCH: self._cluster.fetch_versions}

    @property
    def is_receiving(self) -> bool:
        return any(request.is_taken and request.answer is None for request in self.requests)

    async def send(self, request: Any) -> Any:
        """Answer which topics there are, with their ids, as one that is asked for metadata."""
        await asyncio.sleep(_LATENCY_S)
        rows = [
            (0, topic, self._cluster.topic_ids.get(topic), False, [], 0, {})
            if any(tp.topic == topic for tp in self._cluster.partitions)
            else (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic, None, False, [], 0, {})
            for topic in request._topics
        ]
        return MetadataRequest_v11.RESPONSE_TYPE(0, [], None, -1, rows, {})

    def wanted(self, request: Any) -> tuple[dict[tuple[str, int], tuple[int, int, int]], set[tuple[str, int]]]:
        """Keep the session's idea of what is fetched; return it, and what the client has not heard of in it."""
        named = {
            (topic, number): (offset, epoch, max_bytes)
            for topic, partitions, *_ in request.topics
            for number, epoch, offset, *_, max_bytes in map(_untagged, partitions)
        }
        if request.session_epoch < 0:
            return named, set(named)
        known = self._sessions.setdefault(1, {})
        if request.session_epoch == 0:
            known.clear()
        for topic, numbers, *_ in request.forgotten_topics_data:
            for number in numbers:
                known.pop((topic, number), None)
        new = named.keys() - known.keys()
        known.update(named)
        return known, new


@attrs.define
class _Waiter:
    future: asyncio.Future[memoryview]

    def frame_received(self, frame: memoryview) -> None:
        if not self.future.done():
            self.future.set_result(frame)

    def frame_lost(self, error: BrokerConnectionError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def _untagged(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[:-1] if isinstance(row[-1], dict) else row


def _has_news(body: bytes, version: int) -> bool:
    answer = (FetchResponse_v11 if version < BY_ID else FetchResponse_v13).decode(body)
    return any(row[1] or row[7] for _, rows, *_ in answer.topics for row in rows)


#: What a broker does with one partition's batch instead of appending it: an error code, and whether it appends first.
ProduceFault = tuple[int, bool]


@attrs.define(eq=False)
class ModelCluster:
    """
    Brokers, partitions, and what is wrong with them.

    `produce_fault` is asked for each batch, `fetch_fault` for each partition of a fetch. A broker in `down` refuses
    connections, one in `unlisted` is in no metadata; `is_frozen` brokers take everything and answer nothing.
    """

    endpoint: ClusterEndpoint
    partitions: dict[TopicPartition, ModelPartition] = attrs.field(factory=dict)
    produce_fault: Callable[[TopicPartition, bytes], ProduceFault | None] = lambda _tp, _raw: None
    fetch_fault: Callable[[TopicPartition], int] = lambda _tp: 0
    down: set[int] = attrs.field(factory=set)
    unlisted: set[int] = attrs.field(factory=set)
    hanging: set[int] = attrs.field(factory=set)
    is_manual: bool = False
    is_frozen: bool = False
    is_unreachable: bool = False
    may_have_moved: bool = False
    throttle_ms: int = 0
    #: How long what is fetched and produced takes there and back.
    far_s: float = 0.0
    #: What its brokers write in a second, for all connections together; produce requests wait for those before them of
    #: their connection.
    bytes_per_s: float = math.inf
    #: What arrives here of their answers in a second, over each connection.
    answers_bytes_per_s: float = math.inf
    connections: list[ModelConnection] = attrs.field(factory=list)
    sent: list[tuple[int, int]] = attrs.field(factory=list)
    refreshes: int = 0
    doubted: list[int] = attrs.field(factory=list)
    producer_ids: int = 1000
    clock: LoopClock = attrs.field(factory=LoopClock)
    known_leaders: dict[TopicPartition, int | None] | None = None
    topic_ids: dict[str, str] = attrs.field(factory=dict)
    #: What clients know of them; None if they know them all.
    known_topic_ids: dict[str, str] | None = None
    produce_versions: tuple[int, int] = (0, 13)
    fetch_versions: tuple[int, int] = (4, 18)
    #: How often it was asked where epochs end.
    epochs_asked: int = 0
    _view: dict[str, str] = attrs.field(factory=dict)

    @classmethod
    def of(cls, alias: str, topic: str, partitions: int = 1, *, brokers: int = 1) -> ModelCluster:
        """Make a cluster with one topic, its partitions led by the brokers in turn."""
        endpoint = ClusterEndpoint(alias, (f"{alias.lower()}:9092",))
        return cls(
            endpoint,
            {TopicPartition(topic, number): ModelPartition(number % brokers) for number in range(partitions)},
        )

    def work_s(self, connection: ModelConnection, request: _Request) -> float:
        """Return how long a request takes that has just arrived."""
        if request.api_key != PRODUCE:
            return 0.0
        now = asyncio.get_running_loop().time()
        busy = sum(it is not connection and it.busy_until > now for it in self.connections)
        took_s = len(request.body) * (1 + busy) / self.bytes_per_s
        connection.busy_until = max(connection.busy_until, now) + took_s
        return connection.busy_until - now

    # What `Cluster` offers.

    @property
    def alias(self) -> str:
        return self.endpoint.alias

    @property
    def metadata(self) -> dict[str, str]:
        """What is known of topics: the same object for as long as that is the same."""
        known = self.topic_ids if self.known_topic_ids is None else self.known_topic_ids
        if self._view != known:
            self._view = dict(known)
        return self._view

    def leader(self, tp: TopicPartition) -> int | None:
        if self.known_leaders is not None:
            return self.known_leaders.get(tp)
        partition = self.partitions.get(tp)
        return partition.leader if partition else None

    def leader_epoch(self, tp: TopicPartition) -> int:
        return self.partitions[tp].leader_epoch

    def topic_id(self, topic: str) -> str | None:
        return self.metadata.get(topic)

    async def ensure_metadata(self, topics: Collection[str]) -> None:
        await self._reach()

    async def ensure_known(self, topics: Collection[str]) -> None:
        await self._reach()

    def partitions_of(self, topic: str) -> tuple[int, ...]:
        return tuple(tp.partition for tp in self.partitions if tp.topic == topic)

    def aged(self, topics: Collection[str]) -> list[str]:
        return []

    async def refresh_metadata(self, topics: Collection[str] | None) -> None:
        await self._reach()
        self.refreshes += 1
        if self.known_leaders is not None:
            self.known_leaders = {tp: partition.leader for tp, partition in self.partitions.items()}
        if self.known_topic_ids is not None:
            self.known_topic_ids = dict(self.topic_ids)

    def doubt(self, node: int) -> None:
        self.doubted.append(node)

    async def connection(self, node: int, purpose: str = "") -> ModelConnection:
        if node in self.unlisted:
            raise BrokerConnectionError(self.alias, str(node), "the cluster has no such broker now")
        for connection in self.connections:
            if (connection.node, connection.purpose) == (node, purpose) and not connection.is_closed:
                return connection
        await asyncio.sleep(_LATENCY_S)
        if node in self.hanging:
            await asyncio.sleep(10)
            raise BrokerConnectionError(self.alias, str(node), "not connected within 10 s")
        if node in self.down:
            raise BrokerConnectionError(self.alias, str(node), "connection refused")
        connection = ModelConnection(self, node, purpose)
        self.connections.append(connection)
        return connection

    async def send_to_any(self, request: Any) -> Any:
        await self._reach()
        self.producer_ids += 1
        return attrs.make_class("Answer", ["error_code", "producer_id", "producer_epoch"])(0, self.producer_ids, 0)

    async def send_to(self, node: int, request: Any, purpose: str = "") -> Any:
        """Answer where epochs end in the leaders' logs."""
        await self.connection(node, purpose)
        self.epochs_asked += 1
        rows = [
            (topic, [self._epoch_end(TopicPartition(topic, number), epoch) for number, _, epoch in asked])
            for topic, asked in request._partitions.items()
        ]
        return OffsetForLeaderEpochRequest_v3.RESPONSE_TYPE(0, rows)

    def _epoch_end(self, tp: TopicPartition, epoch: int) -> tuple[int, int, int, int]:
        partition = self.partitions[tp]
        return 0, tp.partition, epoch, partition.epoch_ends.get(epoch, partition.end)

    async def list_offsets(
        self,
        partitions: Collection[TopicPartition],
        when: int,
        *,
        reads_committed: bool = False,
        patience_s: float | None = None,
    ) -> dict[TopicPartition, int | BrokerAnsweredError]:
        await self._reach()
        found: dict[TopicPartition, int | BrokerAnsweredError] = {}
        for tp in partitions:
            partition = self.partitions.get(tp)
            if partition is None or partition.leader is None or partition.is_end_unknown:
                # A cluster asks again for as long as the request timeout is, or its caller's patience.
                await asyncio.sleep(self.endpoint.request_timeout_ms / 1000 if patience_s is None else patience_s)
                is_led = partition is not None and partition.leader is not None
                code = ErrorCode.OFFSET_NOT_AVAILABLE if is_led else ErrorCode.LEADER_NOT_AVAILABLE
                found[tp] = error_of(code, self.alias, "ListOffsets" if is_led else "Metadata", str(tp))
            elif when == -1 and reads_committed and partition.stable_end is not None:
                found[tp] = partition.stable_end
            else:
                local = max(partition.start, partition.remote_end)
                found[tp] = partition.high_watermark if when == -1 else local if when == -4 else partition.start
        return found

    async def close(self) -> None:
        for connection in self.connections:
            connection.close()
        await asyncio.sleep(0)

    async def _reach(self) -> None:
        await asyncio.sleep(_LATENCY_S)
        if self.is_unreachable:
            raise ClusterUnreachableError(self.alias, ",".join(self.endpoint.bootstrap_servers), "connection refused")

    # What brokers do.

    def take(self, connection: ModelConnection, request: _Request) -> bytes | None:
        """Do what *request* asks for and return the answer's body."""
        if connection.node in self.down:
            return None
        return self._produce(connection, request) if request.api_key == PRODUCE else self._fetch(connection, request)

    def _produce(self, connection: ModelConnection, request: _Request) -> bytes:
        is_by_id = request.api_version >= BY_ID
        topics = []
        for told, wanted, *_ in (ProduceRequest_v13 if is_by_id else ProduceRequest_v8).decode(request.body).topics:
            topic = self._named(told) if is_by_id else told
            rows = [
                (number, *self._append(connection.node, topic and TopicPartition(topic, number), raw), 0, [], None)
                for number, raw, *_ in wanted
            ]
            topics.append((told, rows))
        if is_by_id:
            return told_by_id(topics, self.throttle_ms)
        body: bytes = ProduceResponse_v8(topics, self.throttle_ms).encode()
        return body

    def _named(self, topic_id: str) -> str | None:
        return next((topic for topic, known in self.topic_ids.items() if known == topic_id), None)

    def _append(self, node: int, tp: TopicPartition | None, raw: bytes) -> tuple[int, int, int]:
        if tp is None:
            return ErrorCode.UNKNOWN_TOPIC_ID, -1, -1
        partition = self.partitions.get(tp)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1
        if partition.leader != node:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1
        fault = self.produce_fault(tp, raw)
        if fault is None:
            return partition.append(raw)
        code, appends = fault
        if appends:
            partition.append(raw)
        return code, -1, -1

    def _fetch(self, connection: ModelConnection, request: _Request) -> bytes:
        is_by_id = request.api_version >= BY_ID
        asked = (FetchRequest_v13 if is_by_id else FetchRequest_v11).decode(request.body)
        by_topic: dict[str, list[tuple[Any, ...]]] = {}
        room = asked.max_bytes
        request.wanted = request.wanted or connection.wanted(asked)
        wanted, new = request.wanted
        is_first, served = True, list[tuple[str, int]]()
        for (topic, number), (offset, _epoch, most) in wanted.items():
            name = next((it for it, known in self.topic_ids.items() if known == topic), None) if is_by_id else topic
            if name is None:
                row: tuple[Any, ...] = (number, int(ErrorCode.UNKNOWN_TOPIC_ID), -1, -1, -1, [], -1, b"")
            else:
                tp = TopicPartition(name, number)
                row = self._read(connection.node, tp, offset, min(room, most), is_first=is_first)
            room -= len(row[7])
            is_first = is_first and not row[7]
            if row[1] or row[7] or (topic, number) in new:
                by_topic.setdefault(topic, []).append(row)
            if row[7]:
                served.append((topic, number))
        for place in served:  # a session serves those first that got nothing lately (KIP-227)
            wanted[place] = wanted.pop(place)
        session = 0 if asked.session_epoch < 0 else 1
        body: bytes
        if is_by_id:
            topics = [(it, [tagged(row) for row in rows], {}) for it, rows in by_topic.items()]
            body = FetchResponse_v13({}, self.throttle_ms, 0, session, topics, {}).encode()
        else:
            body = FetchResponse_v11(self.throttle_ms, 0, session, list(by_topic.items())).encode()
        return body

    def _read(self, node: int, tp: TopicPartition, offset: int, max_bytes: int, *, is_first: bool) -> tuple[Any, ...]:
        partition = self.partitions.get(tp)
        code = 0
        if partition is None:
            code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif partition.leader != node:
            code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif not partition.start <= offset <= partition.end:
            code = int(ErrorCode.OFFSET_OUT_OF_RANGE)
        else:
            code = self.fetch_fault(tp)
        if partition is None or code:
            return (tp.partition, code, -1, -1, -1, [], -1, b"")
        stable = partition.high_watermark if partition.stable_end is None else partition.stable_end
        data = partition.read(offset, max_bytes, is_first=is_first)
        return (tp.partition, 0, partition.high_watermark, stable, partition.start, partition.aborted, -1, data)
