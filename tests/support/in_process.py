"""
A simulated cluster in this process and in virtual time, as the copier knows it: a `Cluster` of the product's whose
connections lead to simulated brokers, without a network.

Requests and answers are Kafka's bytes. Tests do damage through the partitions, the brokers and the way to them; what
no simulated broker says by itself comes from `produce_fault` and `fetch_fault`.
"""

from __future__ import annotations

import asyncio
import collections
import math
import struct
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import attrs

from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.wire.batches.batch import MAGIC_V2, batches
from mm2py.wire.cluster import Cluster
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.error_codes import ErrorCode
from tests.simulated.broker import Broker, Line
from tests.simulated.cluster import Topic
from tests.simulated.log import NOBODY, Batch, Partition, batch_of
from tests.simulated.requests.sessions import spoken
from tests.support.clocks import LoopClock
from tests.support.contents import RecordContent, decode
from tests.support.fake_brokers import FETCH, PRODUCE, InstantCluster


#: What a request takes there and back, and what it takes to connect.
LATENCY_S = 0.001
_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_SIZE, _KEY = struct.Struct(">i"), struct.Struct(">h")
#: How much of a long answer arrives at once.
_HEAD_BYTES = 8
_CLIENT = SimpleNamespace(name="client", machine="client")

#: What a broker does with one partition's batch instead of appending it: an error code, and whether it appends first.
ProduceFault = tuple[int, bool]


@attrs.define(eq=False)
class InProcessPartition(Partition):
    """A partition that tests write to, and that refuses what its cluster says."""

    cluster: Any = None
    #: Whether a new leader leads it that cannot tell its end, with too few replicas (KIP-207).
    is_end_unknown: bool = False

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.number)

    def load(self, *parts: bytes) -> None:
        """Put batches into the log as they are, wherever their base offsets say."""
        for raw in parts:
            (view,) = batches(memoryview(raw))
            if view.magic >= MAGIC_V2:
                batch = batch_of(raw, "")
            else:
                ends = view.base_offset, decode(raw)[-1].offset
                batch = Batch(*ends, raw, -1, -1, -1, -1, -1, False, False, "", self.leader_epoch)
            self.take(batch)
        self.raise_watermark(self.end)

    def damage(self, at: int, raw: bytes) -> None:
        """Have other bytes in place of the batch that is the *at*-th."""
        self.batches[at] = attrs.evolve(self.batches[at], raw=raw)

    def keep(self, kept: Sequence[Batch]) -> None:
        """Have only these batches in the log, as if the others had been deleted or compacted; it ends where it did."""
        end, kept = self.end, list(kept)
        self.truncate(0)
        for batch in kept:
            self.take(batch)
        self.end = self.high_watermark = end

    def lead(self, node: int | None) -> None:
        """Have another broker lead it, or none."""
        self.leader = NOBODY if node is None else node
        self.leader_epoch += 1
        self.wake()

    def judge(self, raw: bytes) -> tuple[int, Batch | None]:
        fault = self.cluster.produce_fault(self.tp, raw)
        if fault is None:
            return super().judge(raw)
        code, appends = fault
        if appends and super().judge(raw) == (0, None):
            self.append(raw, "")
            self.raise_watermark(self.end)
        return code, None

    def records(self) -> list[RecordContent]:
        """Return everything in the log, decoded."""
        return [record for batch in self.batches for record in decode(batch.raw)]


class _Broker(Broker):
    """A broker that refuses fetches, or tells no ends, as a test has it."""

    def code(self, partition: Partition, epoch: int) -> int:
        is_unknown = isinstance(partition, InProcessPartition) and partition.is_end_unknown
        return super().code(partition, epoch) or (int(ErrorCode.OFFSET_NOT_AVAILABLE) if is_unknown else 0)

    def fetch_code(self, partition: Partition, epoch: int) -> int:
        assert isinstance(partition, InProcessPartition)
        return super().code(partition, epoch) or partition.cluster.fetch_fault(partition.tp)


@attrs.define(eq=False)
class _Request:
    message: bytes
    #: Whether the broker has it.
    is_taken: bool = False
    answer: bytes | None = None


class _Transport(asyncio.Transport):
    """The client's end of the way to a broker."""

    def __init__(self, connection: InProcessConnection) -> None:
        super().__init__()
        self._connection = connection

    def is_closing(self) -> bool:
        return self._connection.is_closed

    def writelines(self, list_of_data: Any) -> None:
        self._connection.written(b"".join(list_of_data))

    def abort(self) -> None:
        self._connection.left()


class InProcessConnection(BrokerConnection):
    """
    A connection to a simulated broker.

    By itself the broker takes each request after a moment, one after the other. If its cluster `is_manual` the test
    says when it takes the oldest request (`process`) and when the answer arrives (`deliver`), of those that records
    travel on.
    """

    def __init__(self, cluster: InProcessCluster, node: int) -> None:
        host, port = cluster.simulated.brokers[node].advertised
        super().__init__(cluster.endpoint, f"{host}:{port}", cluster.versions, host=host)
        self.node = node
        #: What the copier uses it for.
        self.purpose = ""
        self.round_trip_s = cluster.far_s
        #: Until when the broker writes what it has been sent, and the answers before are arriving.
        self.busy_until = self.arriving_until = 0.0
        self.requests: collections.deque[_Request] = collections.deque()
        self._cluster = cluster
        self._end: Any = SimpleNamespace(client=_CLIENT, to_client=SimpleNamespace(send=self._answered))
        self._line = Line(cluster.simulated.brokers[node], self._end)
        self._transport = _Transport(self)

    @property
    def _is_manual(self) -> bool:
        return bool(self.purpose) and self._cluster.is_manual

    def written(self, message: bytes) -> None:
        """Take a request on its way."""
        (key,) = _KEY.unpack_from(message, _SIZE.size)
        self.requests.append(_Request(message))
        if self.purpose:
            self._cluster.sent.append((self.node, key))
        if not (self._is_manual or self._cluster.is_frozen):
            took_s = LATENCY_S + self._cluster.far_s + self._cluster.work_s(self, key, len(message))
            self._loop.call_later(took_s, self._arrives)

    def left(self) -> None:
        """Forget what is under way: this end has closed the connection."""
        self._line.lost()
        self.requests.clear()

    def _arrives(self) -> None:
        if self.is_closed or self._cluster.is_frozen:
            return
        if self.node in self._cluster.down:
            self.hang_up()
            return
        # Timers of the same moment run in any order, a broker takes requests in theirs.
        request = next((it for it in self.requests if not it.is_taken), None)
        if request is not None:
            request.is_taken = True
            self._line.received(request.message)

    def _answered(self, data: bytes) -> None:
        next(it for it in self.requests if it.is_taken and it.answer is None).answer = data
        if self._is_manual or self._cluster.is_frozen:
            return
        took_s = len(data) / self._cluster.answers_bytes_per_s
        if took_s <= 0:
            self._deliver_all()
            return
        begins = max(self._loop.time(), self.arriving_until)
        self.arriving_until = begins + took_s
        self._loop.call_at(begins, self._feed, data[:_HEAD_BYTES])
        self._loop.call_at(self.arriving_until, self._arrived, data[_HEAD_BYTES:])

    def _deliver_all(self) -> None:
        while self.requests and self.requests[0].answer is not None:
            self.deliver()

    def _arrived(self, rest: bytes) -> None:
        if not self.is_closed:
            self.requests.popleft()
            self._feed(rest)

    def process(self) -> None:
        """Let the broker take the oldest request that it has not taken."""
        request = next((it for it in self.requests if not it.is_taken), None)
        if request is not None and self.node in self._cluster.down:
            self.hang_up()
        elif request is not None:
            request.is_taken = True
            self._line.execute(request.message[_SIZE.size :])

    def answer_with(self, body: bytes) -> None:
        """Have the oldest request be answered with other bytes."""
        correlation_id = self.requests[0].message[8:12]
        self.requests[0].answer = _SIZE.pack(len(body) + 4) + correlation_id + body

    def deliver(self) -> None:
        """Let the oldest request's answer arrive, if the broker has taken it."""
        if self.requests and (answer := self.requests[0].answer) is not None:
            self.requests.popleft()
            self._feed(answer)

    def _feed(self, data: bytes) -> None:
        while data and not self.is_closed:
            buffer = self.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            self.buffer_updated(size)

    def hang_up(self, cause: str = "reset by peer") -> None:
        """Have the broker, or what lies in between, end the connection."""
        self.connection_lost(ConnectionResetError(cause))


class InProcessCluster(Cluster):
    """
    A cluster in this process, and what is wrong with it.

    `produce_fault` is asked for each batch, `fetch_fault` for each partition of a fetch. A broker in `down` refuses
    connections, one that is `hanging` opens none; `is_frozen` brokers take everything and answer nothing.
    """

    def __init__(self, alias: str, topics: dict[str, int], *, brokers: int = 1) -> None:
        servers = tuple(f"{alias.lower()}{node}:9092" for node in range(brokers))
        super().__init__(ClusterEndpoint(alias, servers), LoopClock(), opener=self._open)
        self.simulated = InstantCluster(brokers, alias)
        self.simulated.brokers = {node: _Broker(self.simulated, node) for node in range(brokers)}
        self.simulated.producer_ids = 1000
        self.simulated.times.work_s = 0.0
        self.simulated.ambush = self._before
        self.produce_fault: Callable[[TopicPartition, bytes], ProduceFault | None] = lambda _tp, _raw: None
        self.fetch_fault: Callable[[TopicPartition], int] = lambda _tp: 0
        self.down: set[int] = set()
        self.hanging: set[int] = set()
        self.is_manual = self.is_frozen = False
        #: How long what is asked takes there and back.
        self.far_s = 0.0
        #: What its brokers write in a second, for all connections together; produce requests wait for those before
        #: them of their connection.
        self.bytes_per_s = math.inf
        #: What arrives here of their answers in a second, over each connection.
        self.answers_bytes_per_s = math.inf
        self.versions = dict(spoken)
        #: Those that records travel on, and all.
        self.connections: list[InProcessConnection] = []
        self.opened: list[InProcessConnection] = []
        #: Node and kind of each request on these.
        self.sent: list[tuple[int, int]] = []
        self.doubted: list[int] = []
        for topic, partitions in topics.items():
            self.create(topic, partitions)

    @classmethod
    def of(cls, alias: str, topic: str, partitions: int = 1, *, brokers: int = 1) -> InProcessCluster:
        """Make a cluster with one topic, its partitions led by the brokers in turn."""
        return cls(alias, {topic: partitions}, brokers=brokers)

    def create(self, name: str, partitions: int, topic_id: str = _TOPIC_ID) -> None:
        """Create a topic, in place of one that has its name."""
        if name in self.simulated.topics:
            self.simulated.delete(name)
        nodes = list(self.simulated.brokers)
        made = [
            InProcessPartition(name, number, nodes, list(nodes), leader=number % len(nodes), cluster=self)
            for number in range(partitions)
        ]
        self.simulated.topics[name] = self.simulated.by_id[topic_id] = Topic(name, topic_id, cast("Any", made))

    @property
    def partitions(self) -> dict[TopicPartition, InProcessPartition]:
        """All partitions there are now."""
        return {it.tp: it for it in cast("list[InProcessPartition]", self.simulated.all_partitions())}

    def partition(self, topic: str, number: int = 0) -> InProcessPartition:
        """Return a partition as it is now."""
        return cast("InProcessPartition", self.simulated.topics[topic].partitions[number])

    @property
    def is_unreachable(self) -> bool:
        """Whether no broker is there."""
        return self.down == self.simulated.brokers.keys()

    @is_unreachable.setter
    def is_unreachable(self, is_so: bool) -> None:
        self.down = set(self.simulated.brokers) if is_so else set()
        if is_so:
            self.drop()

    def drop(self) -> None:
        """Have all connections end."""
        for connection in self.opened:
            connection.hang_up()

    def asked(self, kind: str) -> int:
        """Return how many requests of a kind the brokers have taken."""
        return self.simulated.counts[kind]

    def work_s(self, connection: InProcessConnection, key: int, size: int) -> float:
        """Return how long a request takes that has just arrived."""
        if key != PRODUCE:
            return 0.0
        now = asyncio.get_running_loop().time()
        busy = sum(it is not connection and it.busy_until > now for it in self.connections)
        connection.busy_until = max(connection.busy_until, now) + size * (1 + busy) / self.bytes_per_s
        return connection.busy_until - now

    async def connection(self, node_id: int, purpose: str = "") -> InProcessConnection:
        found = cast("InProcessConnection", await super().connection(node_id, purpose))
        if purpose and not found.purpose:
            found.purpose = purpose
            self.connections.append(found)
        return found

    def doubt(self, node_id: int) -> None:
        self.doubted.append(node_id)
        super().doubt(node_id)

    async def _open(self, endpoint: ClusterEndpoint, host: str, port: int) -> InProcessConnection:
        broker = f"{host}:{port}"
        (node,) = (node for node, it in self.simulated.brokers.items() if it.advertised == (host, port))
        await asyncio.sleep(LATENCY_S)
        if node in self.hanging:
            await asyncio.sleep(10)
            raise BrokerConnectionError(endpoint.alias, broker, "not connected within 10 s")
        if node in self.down:
            raise BrokerConnectionError(endpoint.alias, broker, "connection refused")
        self.opened.append(InProcessConnection(self, node))
        return self.opened[-1]

    def _before(self, _line: Line, request: Any, *, is_before: bool) -> bool:
        """Have no fetch wait whose answer the test says when it comes."""
        if is_before and self.is_manual and request.API_KEY == FETCH:
            request.max_wait_time = 0
        return False
