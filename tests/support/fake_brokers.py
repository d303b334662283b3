"""
Brokers of the simulated cluster that are asked without a network, for unit tests of what sits on a `BrokerConnection`.

Requests and responses go through their real encodings, so that a wrong schema fails here. A test changes what the
brokers say by changing the cluster's topics and groups, or by queueing answers with `script`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import attrs

from mm2py.clock import Clock
from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.wire import cluster as wire
from tests.simulated.broker import Broker
from tests.simulated.cluster import SLOTS, Cluster, Topic
from tests.simulated.coordination import Group
from tests.simulated.log import Batch, Partition
from tests.simulated.loop import SimLoop
from tests.simulated.network import Network
from tests.simulated.requests import HANDLERS


METADATA, PRODUCE, FETCH, LIST_OFFSETS, CREATE_TOPICS, DESCRIBE_CONFIGS, CREATE_PARTITIONS = 3, 0, 1, 2, 19, 32, 37
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, ALTER_CONFIGS = 29, 30, 31, 44
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE, LIST, CONSUMER_DESCRIBE = 8, 9, 10, 15, 16, 69
JOIN, HEARTBEAT, LEAVE, SYNC, INIT, ADD_PARTITIONS, END = 11, 12, 13, 14, 22, 24, 26
#: What members of a group and transactional producers ask of their coordinators, by their names.
COORDINATED = {
    JOIN: "JoinGroup", HEARTBEAT: "Heartbeat", LEAVE: "LeaveGroup", SYNC: "SyncGroup",
    INIT: "InitTransactions", ADD_PARTITIONS: "AddPartitionsToTxn", END: "EndTxn",
}  # fmt: skip

#: What brokers of Kafka 4.3 and of Kafka 2.1 speak.
NEW_VERSIONS = {
    PRODUCE: (0, 13), FETCH: (4, 18), LIST_OFFSETS: (1, 11), METADATA: (0, 13),
    CREATE_TOPICS: (2, 7), DESCRIBE_CONFIGS: (1, 4), CREATE_PARTITIONS: (0, 3),
    DESCRIBE_ACLS: (1, 3), CREATE_ACLS: (1, 3), DELETE_ACLS: (1, 3), ALTER_CONFIGS: (0, 1),
    OFFSET_COMMIT: (2, 10), OFFSET_FETCH: (1, 10), FIND_COORDINATOR: (0, 6), DESCRIBE: (0, 6), LIST: (0, 5),
    CONSUMER_DESCRIBE: (0, 1),
    JOIN: (0, 9), HEARTBEAT: (0, 4), LEAVE: (0, 5), SYNC: (0, 5),
    INIT: (0, 5), ADD_PARTITIONS: (0, 3), END: (0, 3),
}  # fmt: skip
OLD_VERSIONS = {
    PRODUCE: (0, 7), FETCH: (0, 10), LIST_OFFSETS: (0, 4), METADATA: (0, 7),
    CREATE_TOPICS: (0, 3), DESCRIBE_CONFIGS: (0, 2), CREATE_PARTITIONS: (0, 1),
    DESCRIBE_ACLS: (0, 1), CREATE_ACLS: (0, 1), DELETE_ACLS: (0, 1),
    OFFSET_COMMIT: (0, 6), OFFSET_FETCH: (0, 5), FIND_COORDINATOR: (0, 2), DESCRIBE: (0, 2), LIST: (0, 2),
}  # fmt: skip

#: The partitions of the topic in `brokers_of_foo`.
FOO = [TopicPartition("foo", number) for number in range(3)]

Answer = Callable[[int, Any], Any]


def FakePartition(leader: int = 0, leader_epoch: int = 5, end: int = 0) -> Partition:  # noqa: N802
    """Return a partition of one in-sync replica; up to *end* there is nothing to be read."""
    replicas = {"replicas": [0, 1], "isr": [0], "leader": leader, "leader_epoch": leader_epoch}
    return Partition("", 0, epochs=[(leader_epoch, 0)], end=end, high_watermark=end, **replicas)


def FakeTopic(  # noqa: N802
    partitions: list[Partition], topic_id: str = "AAAAAAAAAAAAAAAAAAAAAQ", configs: dict[str, str] | None = None
) -> Topic:
    """Return a topic and its partitions."""
    return Topic("", topic_id, partitions, dict(configs or {}))


def advance(partition: Partition, end: int) -> None:
    """Have a partition end elsewhere, with nothing in between."""
    partition.end = partition.high_watermark = end


def empty(partition: Partition, at: int = 0) -> None:
    """Have nothing in a partition, which begins and ends at an offset."""
    partition.truncate(0)
    partition.start = at
    advance(partition, at)


#: The network that is not there, and who asks.
_NOWHERE = cast("Network", SimpleNamespace(listen=lambda *_: None))
_CLIENT = SimpleNamespace(client=SimpleNamespace(machine="client"), client_id="client")


class _Loop:
    """The loop of the test that runs: clusters are made before there is one, and none of them does anything itself."""

    def time(self) -> float:
        return asyncio.get_running_loop().time()

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any, context: Any) -> Any:
        return asyncio.get_running_loop().call_later(seconds, call, *args, context=context)


class InstantCluster(Cluster):
    """A simulated cluster whose replicas follow at once, and whose topics tests put there."""

    def __init__(self, brokers: int, name: str = "B") -> None:
        super().__init__(name, cast("SimLoop", _Loop()), _NOWHERE, 0, brokers=brokers, forgets=False)
        #: What coordinators answer about a group or a transactional id, whatever they know of it.
        self.errors: dict[str, int] = {}
        #: What the coordinator answers that is asked now, whatever it is about.
        self.error = 0
        self.coordinator.first_delay_s = 0.0
        self._placed: dict[str, int] = {}

    def place(self, name: str, node: int) -> None:
        """Have a broker coordinate a group or a transactional id, and no other one move with it."""
        self.slots[self._placed.setdefault(name, SLOTS + len(self._placed))] = node

    def slot(self, name: str) -> int:
        return self._placed[name] if name in self._placed else super().slot(name)

    def away(self, broker: Broker, name: str) -> int:
        error, self.error = self.error, 0
        return error or self.errors.get(name) or super().away(broker, name)

    def appended(self, _broker: Broker, partition: Partition, batch: Batch) -> None:
        partition.raise_watermark(batch.last + 1)

    def adopt(self) -> None:
        """Have topics that a test has put there know who they are."""
        self.by_id = {topic.topic_id: topic for topic in self.topics.values()}
        for name, topic in self.topics.items():
            topic.name = name
            for number, partition in enumerate(topic.partitions):
                partition.topic, partition.number = name, number


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
        await asyncio.sleep(self._brokers.latency_of.get(self.node_id, self._brokers.latency_s))
        if self.node_id in self._brokers.down:
            self.close()
            raise BrokerConnectionError("A", str(self.node_id), "the broker closed the connection")
        answer = self._brokers.answer(self.node_id, prepared)
        if isinstance(answer, asyncio.Future):
            answer = await answer
        return type(answer).decode(answer.encode())

    def close(self, cause: str = "") -> None:  # noqa: ARG002
        self.is_closed = True

    def give_up(self, cause: str) -> BrokerConnectionError:
        self.close()
        return BrokerConnectionError("A", f"b{self.node_id}:9092", cause)


class FakeBrokers:
    """A cluster of brokers 0, 1, ... at ``b0:9092``, ``b1:9092``, ..."""

    def __init__(self, count: int = 3) -> None:
        self.hosts = {node_id: f"b{node_id}" for node_id in range(count)}
        self._cluster = InstantCluster(count)
        self.controller = 0
        self.down: set[int] = set()
        self.versions = NEW_VERSIONS
        #: Those of brokers that differ from the others, by node.
        self.versions_of: dict[int, dict[int, tuple[int, int]]] = {}
        #: The cluster of those that are of another one, by node.
        self.cluster_of: dict[int, str] = {}
        self.latency_s = 0.01
        #: That of brokers that differ from the others, by node.
        self.latency_of: dict[int, float] = {}
        #: What coordinators answer to the next requests of COORDINATED, whatever they know: an error code, or how a
        #: connection breaks; 0 is what they would answer anyway.
        self.answers: list[int | Exception] = []
        self.requests: list[tuple[int, Any]] = []
        self.attempts: list[str] = []
        self.connections: list[FakeConnection] = []
        self._scripts: dict[int, deque[Answer]] = defaultdict(deque)

    @property
    def denied_until(self) -> dict[str, float]:
        """Until when nothing may be known of a topic."""
        return self._cluster.denied_until

    @property
    def topics(self) -> dict[str, Topic]:
        """The topics of the simulated cluster."""
        return self._cluster.topics

    @topics.setter
    def topics(self, topics: dict[str, Topic]) -> None:
        self._cluster.topics = topics

    @property
    def errors(self) -> dict[str, int]:
        """What coordinators answer about a group, whatever they know of it."""
        return self._cluster.errors

    @errors.setter
    def errors(self, errors: dict[str, int]) -> None:
        self._cluster.errors = errors

    def group(
        self, name: str, offsets: Mapping[TopicPartition, int] | None = None, *, at: int | None = None,
        members: int = 0, kind: str = "classic", protocol: str = "consumer",
    ) -> Group:  # fmt: skip
        """Have something else use a group, with so many members, and *offsets* over those that it has; `commit`ted."""
        if at is not None:
            self._cluster.place(name, at)
        group = self._cluster.coordinator.use(name, members=members, kind=kind, protocol=protocol)
        self.commit(name, offsets or {})
        return group

    def move(self, name: str, node: int) -> None:
        """Have another broker coordinate a group or a transactional id."""
        self._cluster.place(name, node)

    def commit(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets, as the members of a group do."""
        stored = self._cluster.coordinator.group(name).offsets
        stored |= {(tp.topic, tp.partition): (offset, "m") for tp, offset in offsets.items()}

    def committed(self, name: str) -> dict[TopicPartition, int]:
        """Return a group's offsets."""
        stored = self._cluster.coordinator.known(name).offsets
        return {TopicPartition(*place): offset for place, (offset, _) in stored.items()}

    @property
    def endpoint(self) -> ClusterEndpoint:
        return ClusterEndpoint("A", tuple(f"{host}:9092" for host in self.hosts.values()))

    @property
    def open_connections(self) -> list[FakeConnection]:
        return [connection for connection in self.connections if not connection.is_closed]

    def requests_of(self, api_key: int) -> list[tuple[int, Any]]:
        """Return node and request for every request of one kind so far."""
        return [(node_id, request) for node_id, request in self.requests if api_key == request.API_KEY]

    @property
    def asked(self) -> list[str]:
        """What coordinators were asked so far, of COORDINATED."""
        return [COORDINATED[it.API_KEY] for _, it in self.requests if it.API_KEY in COORDINATED]

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

    def cluster(self, endpoint: ClusterEndpoint, clock: Clock) -> wire.Cluster:
        """Return what stands for `mm2py.wire.cluster.Cluster`: these brokers, wherever *endpoint* says they are."""
        there = attrs.evolve(endpoint, bootstrap_servers=self.endpoint.bootstrap_servers)
        return wire.Cluster(there, clock, opener=cast("Any", self.open))

    def break_connections(self) -> None:
        for connection in self.connections:
            connection.close()

    def answer(self, node_id: int, request: Any) -> Any:
        """Answer as a test has it, or as the simulated brokers do."""
        if request.API_KEY in COORDINATED and self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            self._cluster.error = answer
        script = self._scripts[request.API_KEY]
        return script.popleft()(node_id, request) if script else self.plainly(node_id, request)

    def plainly(self, node_id: int, request: Any) -> Any:
        """Answer as the simulated brokers do: of what waits for other members, return a future."""
        self._cluster.adopt()
        self._cluster.fenced = dict.fromkeys(self.down)
        known = self._cluster.brokers
        self._cluster.brokers = {node: known.get(node) or Broker(self._cluster, node) for node in self.hosts}
        for node, host in self.hosts.items():
            self._cluster.brokers[node].advertised = (host, 9092)
        if request.API_KEY == FETCH:
            request.max_wait_time = request.min_bytes = 0
        said: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        broker = self._cluster.brokers.get(node_id) or known[node_id]
        answer = HANDLERS[request.API_KEY](broker, _CLIENT, request, lambda it: said.done() or said.set_result(it))
        answer = answer or (said.result() if said.done() else said)
        if request.API_KEY == METADATA:
            answer.cluster_id, answer.controller_id = self.cluster_of.get(node_id, "the-cluster"), self.controller
        return answer


def says(*fields: Any) -> Answer:
    """Return an answer of these fields, to whatever request."""
    return lambda _, request: request.RESPONSE_TYPE(*fields)


def topics_with(name: str, leaders: Iterable[int]) -> dict[str, Topic]:
    """Return one topic whose partitions are led by *leaders*."""
    return {name: FakeTopic([FakePartition(leader) for leader in leaders])}


def brokers_of_foo() -> FakeBrokers:
    """Return three brokers, each of which leads a partition of topic foo."""
    fake = FakeBrokers()
    fake.topics = topics_with("foo", [0, 1, 2])
    return fake
