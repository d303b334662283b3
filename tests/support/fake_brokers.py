"""
Brokers that exist only as answers, for unit tests of what sits on a `BrokerConnection`.

Requests and responses go through their real encodings, so that a wrong schema fails here. A test changes what the
brokers say by changing the fields, or by queueing answers with `script`.
"""

# Every answer takes the same arguments, needed or not.
# ruff: noqa: ARG002

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition


METADATA, PRODUCE, FETCH, LIST_OFFSETS, CREATE_TOPICS, DESCRIBE_CONFIGS, CREATE_PARTITIONS = 3, 0, 1, 2, 19, 32, 37
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, ALTER_CONFIGS = 29, 30, 31, 44

#: What brokers of Kafka 4.3 and of Kafka 2.1 speak.
NEW_VERSIONS = {
    PRODUCE: (0, 13), FETCH: (4, 18), LIST_OFFSETS: (1, 11), METADATA: (0, 13),
    CREATE_TOPICS: (2, 7), DESCRIBE_CONFIGS: (1, 4), CREATE_PARTITIONS: (0, 3),
    DESCRIBE_ACLS: (1, 3), CREATE_ACLS: (1, 3), DELETE_ACLS: (1, 3), ALTER_CONFIGS: (0, 1),
}  # fmt: skip
OLD_VERSIONS = {
    PRODUCE: (0, 7), FETCH: (0, 10), LIST_OFFSETS: (0, 4), METADATA: (0, 7),
    CREATE_TOPICS: (0, 3), DESCRIBE_CONFIGS: (0, 2), CREATE_PARTITIONS: (0, 1),
    DESCRIBE_ACLS: (0, 1), CREATE_ACLS: (0, 1), DELETE_ACLS: (0, 1),
}  # fmt: skip

#: The partitions of the topic in `brokers_of_foo`.
FOO = [TopicPartition("foo", number) for number in range(3)]

_BASE_OFFSET = struct.Struct(">q")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23

Answer = Callable[[int, Any], Any]


@attrs.define
class FakePartition:
    """A partition: who leads it, and its record batches."""

    leader: int = 0
    leader_epoch: int = 5
    start: int = 0
    end: int = 0
    batches: list[bytes] = attrs.field(factory=list)

    def append(self, batch: bytes) -> int:
        """Write a batch as a broker does, and return its base offset."""
        base = self.end
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(batch, _LAST_OFFSET_DELTA_AT)
        self.batches.append(_BASE_OFFSET.pack(base) + batch[_BASE_OFFSET.size :])
        self.end = base + delta + 1
        return base


@attrs.define
class FakeTopic:
    """A topic and its partitions."""

    partitions: list[FakePartition]
    topic_id: str = "AAAAAAAAAAAAAAAAAAAAAQ"
    configs: dict[str, str] = attrs.field(factory=dict)


class FakeConnection:
    """Stands for a `BrokerConnection`."""

    def __init__(self, brokers: FakeBrokers, node_id: int) -> None:
        self.node_id = node_id
        self.versions = brokers.versions_of.get(node_id, brokers.versions)
        self.is_closed = False
        self._brokers = brokers

    async def send(self, request: Any) -> Any:
        prepared = request.prepare(self.versions)
        prepared = type(prepared).decode(prepared.encode())
        if self.is_closed:
            raise BrokerConnectionError("A", str(self.node_id), "connection is closed")
        self._brokers.requests.append((self.node_id, prepared))
        await asyncio.sleep(self._brokers.latency_s)
        if self.node_id in self._brokers.down:
            self.close()
            raise BrokerConnectionError("A", str(self.node_id), "the broker closed the connection")
        answer = self._brokers.answer(self.node_id, prepared)
        return type(answer).decode(answer.encode())

    def close(self, cause: str = "") -> None:
        self.is_closed = True

    def give_up(self, cause: str) -> BrokerConnectionError:
        self.close()
        return BrokerConnectionError("A", f"b{self.node_id}:9092", cause)


class FakeBrokers:
    """A cluster of brokers 0, 1, ... at ``b0:9092``, ``b1:9092``, ..."""

    def __init__(self, count: int = 3) -> None:
        self.hosts = {node_id: f"b{node_id}" for node_id in range(count)}
        self.topics: dict[str, FakeTopic] = {}
        self.controller = 0
        self.down: set[int] = set()
        self.versions = NEW_VERSIONS
        #: Those of brokers that differ from the others, by node.
        self.versions_of: dict[int, dict[int, tuple[int, int]]] = {}
        #: The cluster of those that are of another one, by node.
        self.cluster_of: dict[int, str] = {}
        self.latency_s = 0.01
        self.requests: list[tuple[int, Any]] = []
        self.attempts: list[str] = []
        self.connections: list[FakeConnection] = []
        self._scripts: dict[int, deque[Answer]] = defaultdict(deque)

    @property
    def endpoint(self) -> ClusterEndpoint:
        return ClusterEndpoint("A", tuple(f"{host}:9092" for host in self.hosts.values()))

    @property
    def open_connections(self) -> list[FakeConnection]:
        return [connection for connection in self.connections if not connection.is_closed]

    def requests_of(self, api_key: int) -> list[tuple[int, Any]]:
        """Return node and request for every request of one kind so far."""
        return [(node_id, request) for node_id, request in self.requests if api_key == request.API_KEY]

    def script(self, api_key: int, *answers: Answer) -> None:
        """Answer the next requests of one kind with *answers*, functions of node and request."""
        self._scripts[api_key].extend(answers)

    async def open(self, endpoint: ClusterEndpoint, host: str, port: int) -> FakeConnection:
        self.attempts.append(host)
        await asyncio.sleep(self.latency_s)
        node_id = next((node for node, known in self.hosts.items() if known == host), None)
        if node_id is None or node_id in self.down:
            raise BrokerConnectionError(endpoint.alias, f"{host}:{port}", "connection refused")
        connection = FakeConnection(self, node_id)
        self.connections.append(connection)
        return connection

    def break_connections(self) -> None:
        for connection in self.connections:
            connection.close()

    def answer(self, node_id: int, request: Any) -> Any:
        script = self._scripts[request.API_KEY]
        if script:
            return script.popleft()(node_id, request)
        plain = {
            METADATA: self.metadata,
            LIST_OFFSETS: self.list_offsets,
            CREATE_TOPICS: self.create_topics,
            PRODUCE: self.produce,
            FETCH: self.fetch,
            DESCRIBE_CONFIGS: self.describe_configs,
        }
        return plain[request.API_KEY](node_id, request)

    def metadata(self, node_id: int, request: Any) -> Any:
        is_flexible = request.FLEXIBLE_VERSION
        tags = ({},) if is_flexible else ()
        wanted = request.topics
        if wanted is not None:
            wanted = [row[-2] for row in wanted] if is_flexible else wanted
        has_ids = request.API_VERSION >= 10
        rows = [self._topic_row(name, tags, has_ids=has_ids) for name in (self.topics if wanted is None else wanted)]
        alive = [(node, host, 9092, None, *tags) for node, host in self.hosts.items() if node not in self.down]
        operations = (0,) if is_flexible and not has_ids else ()
        cluster = self.cluster_of.get(node_id, "the-cluster")
        return request.RESPONSE_TYPE(0, alive, cluster, self.controller, rows, *operations, *tags)

    def _topic_row(self, name: str, tags: tuple[Any, ...], *, has_ids: bool) -> tuple[Any, ...]:
        topic = self.topics.get(name)
        ids = (topic.topic_id if topic else None,) if has_ids else ()
        partitions = [
            (0, number, partition.leader, partition.leader_epoch, [0, 1], [0], [], *tags)
            for number, partition in enumerate(topic.partitions if topic else ())
        ]
        operations = (0,) if tags else ()
        return (0 if topic else 3, name, *ids, False, partitions, *operations, *tags)

    def list_offsets(self, node_id: int, request: Any) -> Any:
        tags = ({},) if request.FLEXIBLE_VERSION else ()
        topics = []
        for name, wanted, *_ in request.topics:
            rows = []
            for number, _epoch, when, *__ in wanted:
                found = dict(enumerate(self.topics[name].partitions)).get(number)
                code = 3 if found is None else 0 if found.leader == node_id else 6
                offset = -1 if code or found is None else found.end if when == -1 else found.start
                rows.append((number, code, -1, offset, 7, *tags))
            topics.append((name, rows, *tags))
        return request.RESPONSE_TYPE(0, topics, *tags)

    def create_topics(self, node_id: int, request: Any) -> Any:
        rows = []
        for name, count, _factor, _assignment, _configs in request.create_topic_requests:
            rows.append((name, 36 if name in self.topics else 0, None))
            self.topics.setdefault(name, FakeTopic([FakePartition() for _ in range(count)]))
        return request.RESPONSE_TYPE(0, rows)

    def describe_configs(self, node_id: int, request: Any) -> Any:
        rows = []
        for kind, name, _ in request.resources:
            configs = [(key, value, False, 1, False, []) for key, value in self.topics[name].configs.items()]
            rows.append((0, None, kind, name, configs))
        return request.RESPONSE_TYPE(0, rows)

    def produce(self, node_id: int, request: Any) -> Any:
        topics = []
        for name, batches in request.topics:
            rows = []
            for number, batch in batches:
                if name not in self.topics:
                    rows.append((number, 3, -1, -1, 0))
                    continue
                partition = self.topics[name].partitions[number]
                is_leader = partition.leader == node_id
                base = partition.append(batch) if is_leader else -1
                rows.append((number, 0 if is_leader else 6, base, -1, 0))
            topics.append((name, rows))
        return request.RESPONSE_TYPE(topics, 0)

    def fetch(self, node_id: int, request: Any) -> Any:
        topics = []
        for name, wanted in request.topics:
            rows = []
            for number, *_epoch, offset, _log_start, _max_bytes in wanted:
                partition = self.topics[name].partitions[number]
                code = 0 if partition.leader == node_id else 6
                after = [batch for batch in partition.batches if _last_offset(batch) >= offset]
                end = partition.end
                rows.append((number, code, end, end, partition.start, [], -1, b"" if code else b"".join(after)))
            topics.append((name, rows))
        return request.RESPONSE_TYPE(0, 0, 0, topics)


def says(*fields: Any) -> Answer:
    """Return an answer of these fields, to whatever request."""
    return lambda _, request: request.RESPONSE_TYPE(*fields)


def topics_with(name: str, leaders: Iterable[int]) -> dict[str, FakeTopic]:
    """Return one topic whose partitions are led by *leaders*."""
    return {name: FakeTopic([FakePartition(leader) for leader in leaders])}


def brokers_of_foo() -> FakeBrokers:
    """Return three brokers, each of which leads a partition of topic foo."""
    fake = FakeBrokers()
    fake.topics = topics_with("foo", [0, 1, 2])
    return fake


def _last_offset(batch: bytes) -> int:
    (base,) = _BASE_OFFSET.unpack_from(batch)
    (delta,) = _LAST_OFFSET_DELTA.unpack_from(batch, _LAST_OFFSET_DELTA_AT)
    return base + delta
