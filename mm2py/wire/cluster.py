"""
One cluster as this process sees it: its brokers, its leaders, and the open connections to them.

A `Cluster` outlives every broker. It refreshes metadata when a leader moved, opens connections on demand, and reopens
them, after a growing pause, when they fail. Connections are kept apart by broker and *purpose*, so that a fetch that
the broker holds back does not stand in front of a produce. What to do about a request that failed is the caller's
decision, except for the questions asked here, which change nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import attrs
from aiokafka.errors import IncompatibleBrokerVersion

from mm2py.clock import Clock
from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError, Mm2Error
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.wire.answers import told_of
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.metadata import NO_LEADER, UNKNOWN_EPOCH, Broker, ClusterMetadata, merged, view_of
from mm2py.wire.patience import Patience
from mm2py.wire.requests import ListOffsetsRequest, MetadataRequest
from mm2py.wire.security.access import BrokerAccessError, ClusterAccessError
from mm2py.wire.security.door import Door, Opener


_REFRESH_GAP_S = 0.1
_DEFAULT_PORT = 9092


class WireHooks(Protocol):
    """Who wants to know what happens on the wire; nothing is awaited, and nothing may be raised."""

    def broker_connected(self, cluster: str, broker: str, purpose: str) -> None: ...

    def broker_disconnected(self, cluster: str, broker: str, purpose: str) -> None: ...

    def broker_unreachable(self, cluster: str, broker: str, cause: str) -> None: ...

    def metadata_refreshed(self, cluster: str, brokers: int, topics: int, elapsed_s: float) -> None: ...


class _NoHooks:
    def broker_connected(self, cluster: str, broker: str, purpose: str) -> None: ...

    def broker_disconnected(self, cluster: str, broker: str, purpose: str) -> None: ...

    def broker_unreachable(self, cluster: str, broker: str, cause: str) -> None: ...

    def metadata_refreshed(self, cluster: str, brokers: int, topics: int, elapsed_s: float) -> None: ...


@attrs.define(eq=False)
class _Backoff:
    """When a broker that refused may be tried again."""

    failures: int = 0
    not_before: float = 0.0


@attrs.define(eq=False)
class _Line:
    """The one connection to a broker for one purpose; the lock lets one caller open it while the others wait."""

    broker: Broker
    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    connection: BrokerConnection | None = None


class Cluster:
    """
    A cluster, entered with ``async with``; or with `connect` and `close` if it lives longer than one block.

    a. At most one metadata request is in flight; callers that ask meanwhile share the next one.
    b. There is at most one open connection per broker and purpose.
    c. One question to one broker ends within the request timeout, one set-up of a connection within its own.
    """

    def __init__(
        self,
        endpoint: ClusterEndpoint,
        clock: Clock,
        hooks: WireHooks | None = None,
        *,
        opener: Opener = BrokerConnection.open,
    ) -> None:
        self.endpoint = endpoint
        self.metadata = ClusterMetadata()
        self.clock = clock
        self._hooks: WireHooks = hooks or _NoHooks()
        self._door = Door(endpoint, clock, opener)
        self._timeout_s = endpoint.request_timeout_ms / 1000
        self._lines: dict[tuple[int, str], _Line] = {}
        self._backoffs: dict[int, _Backoff] = {}
        self._is_closed = False
        self._refreshing = asyncio.Lock()
        self._refreshed_at: float | None = None
        self._learnt_at: dict[str, float] = {}
        self._tickets_issued = 0
        self._tickets_served = 0
        self._refresh_failure: ClusterUnreachableError | None = None
        self._wanted_topics: set[str] = set()
        self._wants_all_topics = False
        # It spreads load and guards nothing.
        self._random = random.Random()  # noqa: S311

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Find the brokers; raise `ClusterUnreachableError` after one round of all bootstrap servers."""
        if not self.metadata.brokers:
            await self.refresh_metadata(())

    async def close(self) -> None:
        """Close every connection. The cluster cannot be used again."""
        self._is_closed = True
        for line in self._lines.values():
            if line.connection is not None:
                line.connection.close()
        self._lines.clear()
        # Transports let go of their sockets one turn of the loop later.
        await self.clock.sleep(0)

    # What is known.

    @property
    def alias(self) -> str:
        return self.endpoint.alias

    @property
    def brokers(self) -> Mapping[int, Broker]:
        return self.metadata.brokers

    @property
    def controller_id(self) -> int | None:
        return self.metadata.controller_id

    @property
    def cluster_id(self) -> str | None:
        return self.metadata.cluster_id

    def topic_id(self, topic: str) -> str | None:
        """Return the topic's id as Kafka prints it, None while it is unknown or the brokers have none."""
        known = self.metadata.topics.get(topic)
        return known.topic_id if known else None

    def partitions_of(self, topic: str) -> tuple[int, ...]:
        """Return the topic's partitions in order; none while the topic is unknown."""
        known = self.metadata.topics.get(topic)
        return tuple(sorted(known.partitions)) if known else ()

    def leader(self, tp: TopicPartition) -> int | None:
        """Return the leader of *tp*, None while unknown."""
        known = self.metadata.topics.get(tp.topic)
        partition = known.partitions.get(tp.partition) if known else None
        return partition.leader if partition and partition.leader != NO_LEADER else None

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Return the leader's epoch, -1 while it is unknown."""
        known = self.metadata.topics.get(tp.topic)
        partition = known.partitions.get(tp.partition) if known else None
        return partition.leader_epoch if partition else UNKNOWN_EPOCH

    # Metadata.

    async def ensure_metadata(self, topics: Collection[str]) -> None:
        """Refresh what is unknown or older than `metadata_max_age_ms` among *topics*; mostly does nothing."""
        oldest = self.clock.monotonic() - self.endpoint.metadata_max_age_ms / 1000
        stale = [topic for topic in topics if self._learnt_at.get(topic, oldest) <= oldest]
        if stale:
            await self.refresh_metadata(stale)

    async def refresh_metadata(self, topics: Collection[str] | None) -> None:
        """
        Ask for the brokers, the controller and *topics* (None: all) as they are now.

        The answer to a request that was sent after this call began is as good as one of its own, and so is its failure.
        """
        self._tickets_issued += 1
        ticket = self._tickets_issued
        self._want(topics)
        async with self._refreshing:
            if self._tickets_served >= ticket:
                if self._refresh_failure is not None:
                    raise attrs.evolve(self._refresh_failure) from self._refresh_failure
                return
            self._want(topics)
            if self._refreshed_at is not None:
                await self.clock.sleep(max(0.0, self._refreshed_at + _REFRESH_GAP_S - self.clock.monotonic()))
            serves = self._tickets_issued
            wanted = None if self._wants_all_topics else frozenset(self._wanted_topics)
            self._wants_all_topics = False
            self._wanted_topics.clear()
            try:
                await self._refresh(wanted)
            except ClusterUnreachableError as error:
                self._tickets_served, self._refresh_failure = serves, error
                raise
            self._tickets_served, self._refresh_failure = serves, None

    def _want(self, topics: Collection[str] | None) -> None:
        if topics is None:
            self._wants_all_topics = True
        else:
            self._wanted_topics.update(topics)

    async def _refresh(self, topics: Collection[str] | None) -> None:
        started = self.clock.monotonic()
        self._refreshed_at = started
        request = MetadataRequest(topics)
        try:
            response = await self.send_to_any(request)
        except ClusterUnreachableError:
            # Not one of the brokers we know is there: they may all have moved (KIP-899).
            response = await self._ask_bootstrap_servers(request)
        self.metadata = merged(self.metadata, view_of(response), is_complete=topics is None)
        now = self._refreshed_at = self.clock.monotonic()
        if topics is None:
            self._learnt_at.clear()
        for topic in self.metadata.topics if topics is None else topics:
            self._learnt_at[topic] = now
        self._drop_moved_brokers()
        self._hooks.metadata_refreshed(self.alias, len(self.brokers), len(response.topics), now - started)

    async def _ask_bootstrap_servers(self, request: Any) -> Any:
        servers = list(self.endpoint.bootstrap_servers)
        self._random.shuffle(servers)
        cause: Mm2Error | None = None
        for server in servers:
            try:
                host, port = address_of(server)
                connection = await self._door.open(host, port)
            except BrokerConnectionError as error:
                self._hooks.broker_unreachable(self.alias, server, error.cause)
                cause = error
                continue
            try:
                response = await self._send(connection, request)
            except BrokerConnectionError as error:
                cause = error
                continue
            finally:
                connection.close()
            if response.brokers:
                return response
            cause = BrokerConnectionError(self.alias, server, "it knows of no brokers yet")
        raise self._unreachable(",".join(self.endpoint.bootstrap_servers), cause or "no bootstrap server is set")

    def _drop_moved_brokers(self) -> None:
        # A broker that is merely missing may be fenced for a moment while its connections still work.
        for (node_id, purpose), line in list(self._lines.items()):
            if self.brokers.get(node_id, line.broker) != line.broker and not line.lock.locked():
                if line.connection is not None:
                    line.connection.close()
                del self._lines[node_id, purpose]

    # Connections.

    async def connection(self, node_id: int, purpose: str = "") -> BrokerConnection:
        """
        Return the open connection to *node_id* for *purpose*, opening it where need be.

        After a failure the next attempt waits; that wait, and the attempt, are part of this call.
        """
        line = self._line(node_id, purpose)
        if line.connection is not None and not line.connection.is_closed:
            return line.connection
        async with line.lock:
            if line.connection is not None and not line.connection.is_closed:
                return line.connection
            if line.connection is not None:
                line.connection = None
                self._hooks.broker_disconnected(self.alias, str(line.broker), purpose)
            backoff = self._backoffs.setdefault(node_id, _Backoff())
            await self.clock.sleep(max(0.0, backoff.not_before - self.clock.monotonic()))
            try:
                connection = await self._door.open(line.broker.host, line.broker.port)
            except BrokerConnectionError as error:
                self._failed(backoff)
                self._hooks.broker_unreachable(self.alias, str(line.broker), error.cause)
                raise
            if self._is_closed:
                connection.close()
                raise BrokerConnectionError(self.alias, str(line.broker), "the cluster was closed meanwhile")
            if self._lines.get((node_id, purpose)) is not line:
                connection.close()
                raise BrokerConnectionError(self.alias, str(line.broker), "the broker moved meanwhile")
            backoff.failures, backoff.not_before = 0, 0.0
            line.connection = connection
            self._hooks.broker_connected(self.alias, str(line.broker), purpose)
            return connection

    def _line(self, node_id: int, purpose: str) -> _Line:
        if self._is_closed:
            raise BrokerConnectionError(self.alias, str(node_id), "the cluster is closed")
        broker = self.brokers.get(node_id)
        if broker is None:
            raise BrokerConnectionError(self.alias, str(node_id), "the cluster has no such broker now")
        line = self._lines.get((node_id, purpose))
        if line is None or line.broker != broker:
            if line is not None and line.connection is not None:
                line.connection.close()
            line = self._lines[node_id, purpose] = _Line(broker)
        return line

    def _failed(self, backoff: _Backoff) -> None:
        backoff.failures += 1
        longest_ms = self.endpoint.reconnect_backoff_max_ms
        pause_ms = min(longest_ms, self.endpoint.reconnect_backoff_ms * 2 ** min(backoff.failures - 1, 16))
        # Spread by a fifth, as Kafka's clients do, so that not all of them reconnect at once.
        backoff.not_before = self.clock.monotonic() + pause_ms / 1000 * self._random.uniform(0.8, 1.2)

    # Requests.

    async def send_to(self, node_id: int, request: Any, purpose: str = "") -> Any:
        """Send *request* to one broker and give its response."""
        return await self._send(await self.connection(node_id, purpose), request)

    async def send_to_any(self, request: Any, purpose: str = "") -> Any:
        """
        Send *request*, which must be harmless to repeat, to one broker after the other until one answers.

        Raises `ClusterUnreachableError` when none of the known brokers did.
        """
        cause: Mm2Error | None = None
        for node_id in self._by_promise(purpose):
            try:
                return await self.send_to(node_id, request, purpose)
            except BrokerConnectionError as error:
                cause = error
        if cause is None:
            # So a controller answers while all brokers are fenced: as they start, or wake after minutes.
            raise self._unreachable(",".join(self.endpoint.bootstrap_servers), "it names no broker that is up")
        raise self._unreachable(",".join(map(str, self.brokers.values())), cause)

    def _unreachable(self, servers: str, cause: Mm2Error | str) -> ClusterUnreachableError:
        """Return the error that says why none of *servers* could be used."""
        error = ClusterUnreachableError(self.alias, servers, _shortly(cause, servers))
        if isinstance(cause, BrokerAccessError):
            error = ClusterAccessError(self.alias, servers, cause.cause, cause.principal, cause.hint)
        error.__cause__ = cause if isinstance(cause, Mm2Error) else None
        return error

    async def send_to_controller(self, request: Any) -> Any:
        """Send *request* to the broker that stands for the controller; answers may still say NOT_CONTROLLER."""
        if self.controller_id is None:
            await self.refresh_metadata(())
        if self.controller_id is None:
            raise error_of(ErrorCode.NOT_CONTROLLER, self.alias, type(request).__name__, "no controller is known")
        return await self.send_to(self.controller_id, request)

    async def _send(self, connection: BrokerConnection, request: Any) -> Any:
        name = type(request).__name__
        try:
            async with asyncio.timeout(self._timeout_s):
                return await connection.send(request)
        except TimeoutError as error:
            connection.close()
            raise BrokerConnectionError(self.alias, name, f"no answer within {self._timeout_s:g} s") from error
        except (IncompatibleBrokerVersion, NotImplementedError) as error:
            raise error_of(ErrorCode.UNSUPPORTED_VERSION, self.alias, name, str(error)) from error

    def _by_promise(self, purpose: str) -> list[int]:
        """Order the brokers: connected ones, then those that may be tried at once, then those in back-off."""
        now = self.clock.monotonic()

        def promise(node_id: int) -> int:
            line = self._lines.get((node_id, purpose))
            if line is not None and line.connection is not None and not line.connection.is_closed:
                return 0
            return 1 if self._backoffs.get(node_id, _Backoff()).not_before <= now else 2

        nodes = list(self.brokers)
        self._random.shuffle(nodes)
        return sorted(nodes, key=promise)

    # Offsets.

    async def list_offsets(
        self, partitions: Collection[TopicPartition], when: int, *, reads_committed: bool = False
    ) -> dict[TopicPartition, int | BrokerAnsweredError]:
        """
        Ask the leaders for an offset of each partition: see `ListOffsetsRequest` for *when*.

        With *reads_committed* the end of the log is the last stable offset. Leaders that moved are looked up and
        asked again until the request timeout is over; what then still fails is in the answer as an error.
        """
        known: dict[TopicPartition, int | BrokerAnsweredError] = {}
        pending = set(partitions)
        patience = Patience(self.clock, self._timeout_s)
        await self.ensure_metadata({tp.topic for tp in pending})
        while pending:
            answers = await self._list_offsets_once(pending, when, reads_committed=reads_committed)
            known.update(answers)
            pending = {
                tp
                for tp, answer in answers.items()
                if isinstance(answer, BrokerAnsweredError) and not patience.is_over_for(answer.code)
            }
            if pending:
                await patience.pause()
                await self.refresh_metadata({tp.topic for tp in pending})
        return known

    async def _list_offsets_once(
        self, partitions: Iterable[TopicPartition], when: int, *, reads_committed: bool
    ) -> dict[TopicPartition, int | BrokerAnsweredError]:
        answers: dict[TopicPartition, int | BrokerAnsweredError] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            leader = self.leader(tp)
            if leader is None:
                answers[tp] = self._no_leader_error(tp)
            else:
                by_leader.setdefault(leader, []).append(tp)

        async def ask(node_id: int, group: list[TopicPartition]) -> None:
            answers.update(await self._list_offsets_of_leader(node_id, group, when, reads_committed=reads_committed))

        async with asyncio.TaskGroup() as tasks:
            for node_id, group in by_leader.items():
                tasks.create_task(ask(node_id, group), name=f"{self.alias}/list-offsets/{node_id}")
        return answers

    def _no_leader_error(self, tp: TopicPartition) -> BrokerAnsweredError:
        topic = self.metadata.topics.get(tp.topic)
        code: int = ErrorCode.LEADER_NOT_AVAILABLE
        if topic is None or tp.partition not in topic.partitions:
            code = (topic.error_code if topic else 0) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return error_of(code, self.alias, "Metadata", str(tp))

    async def _list_offsets_of_leader(
        self, node_id: int, partitions: list[TopicPartition], when: int, *, reads_committed: bool
    ) -> dict[TopicPartition, int | BrokerAnsweredError]:
        by_topic: dict[str, list[tuple[int, int]]] = {}
        for tp in partitions:
            by_topic.setdefault(tp.topic, []).append((tp.partition, self.leader_epoch(tp)))
        # A partition missing in the broker's answer is treated as one it does not lead.
        silent = error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.alias, "ListOffsets", "missing in the answer")
        try:
            response = await self.send_to(node_id, ListOffsetsRequest(by_topic, when, reads_committed=reads_committed))
        except BrokerAnsweredError as error:
            return dict.fromkeys(partitions, error)
        except BrokerConnectionError as error:
            lost = error_of(ErrorCode.NETWORK_EXCEPTION, self.alias, "ListOffsets", str(error))
            return dict.fromkeys(partitions, lost)
        rows = (
            (
                TopicPartition(topic, number),
                error_of(code, self.alias, "ListOffsets", f"{topic}-{number}") if code else offset,
            )
            for topic, answers, *_ in response.topics
            for number, code, _timestamp, offset, *_ in answers
        )
        return told_of(partitions, rows, silent)


def _shortly(cause: Mm2Error | str, servers: str) -> str:
    """Return the cause of a cluster's failure, without what the enclosing error already says."""
    if not isinstance(cause, BrokerConnectionError) or isinstance(cause, BrokerAccessError):
        return str(cause)
    return cause.cause if cause.broker == servers else f"{cause.broker}: {cause.cause}"


def address_of(server: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[v6]:port``; the port is Kafka's own where none is given."""
    bare = server.strip().rsplit("://", 1)[-1]
    if bare.startswith("["):
        host, _, rest = bare[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = bare.rpartition(":") if bare.count(":") == 1 else (bare, "", "")
    return host, int(port) if port else _DEFAULT_PORT
