"""
One cluster as this process sees it: its brokers, its leaders, and the open connections to them.

A `Cluster` outlives every broker. It refreshes metadata when a leader moved, opens connections on demand, and reopens
them, after a growing pause, when they fail. What to do about a request that failed is the caller's decision, except for
the questions asked here, which change nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, ClassVar, Self

import attrs
from aiokafka.errors import IncompatibleBrokerVersion

from mm2py.clock import Clock
from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError, Mm2Error, Verdict
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.wire.answers import by_asked
from mm2py.wire.connection import BrokerConnection, held_back_s
from mm2py.wire.connections import Connections
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.metadata import NO_LEADER, UNKNOWN_EPOCH, Broker, ClusterMetadata, MetadataUpkeep
from mm2py.wire.patience import Patience, may_last
from mm2py.wire.requests import LATEST, NO_OFFSET, ListOffsetsRequest, MetadataRequest
from mm2py.wire.security.access import BrokerAccessError, ClusterAccessError
from mm2py.wire.security.door import Opener


#: A broker that is given up after this long, while it is connected to or asked, is silent.
_SILENT_S = 1.0

#: An offset, or why there is none.
Offset = int | BrokerAnsweredError


#: How long bootstrap servers have to say which cluster they are of.
_TELL_S = 2.0


@attrs.define(eq=False)
class MixedClustersError(Mm2Error):
    """The bootstrap servers of an alias are brokers of different clusters."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW
    hint: ClassVar[str] = "name only servers of one cluster; give another cluster an alias of its own"

    alias: str
    servers: str

    def __str__(self) -> str:
        return f"bootstrap.servers of {self.alias} are of different clusters: {self.servers}"


class Cluster:
    """
    A cluster, entered with ``async with``; or with `connect` and `close` if it lives longer than one block.

    It owns the requests: one to one broker ends within the request timeout. `Connections` owns what they travel on,
    `MetadataUpkeep` what is known of leaders.
    """

    def __init__(self, endpoint: ClusterEndpoint, clock: Clock, *, opener: Opener = BrokerConnection.open) -> None:
        self.endpoint = endpoint
        self.clock = clock
        self._connections = Connections(endpoint, clock, opener)
        self._upkeep = MetadataUpkeep(endpoint, clock, self._ask_for_metadata)
        self._timeout_s = endpoint.request_timeout_ms / 1000
        #: Whose offsets were waited for in vain, and not answered since: all others would wait again and again.
        self._given_up: set[TopicPartition] = set()
        #: Whether a connection was given up while it was opened, and what is known of brokers is older than that. One
        #: may listen elsewhere by now, and its former address need not refuse anything.
        self.may_have_moved = False

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
        self.let_go()
        # Transports let go of their sockets one turn of the loop later.
        await self.clock.sleep(0)

    def let_go(self) -> None:
        """Close every connection, from where nothing can be awaited."""
        self._connections.close()

    # What is known.

    @property
    def alias(self) -> str:
        return self.endpoint.alias

    @property
    def metadata(self) -> ClusterMetadata:
        return self._upkeep.view

    @property
    def brokers(self) -> Mapping[int, Broker]:
        return self.metadata.brokers

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
        partition = self.metadata.partition(tp)
        return partition.leader if partition and partition.leader != NO_LEADER else None

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Return the leader's epoch, -1 while it is unknown."""
        partition = self.metadata.partition(tp)
        return partition.leader_epoch if partition else UNKNOWN_EPOCH

    def is_missing(self, tp: TopicPartition) -> bool:
        """Return whether brokers said that there is no *tp*; one of a topic that they do not describe may be there."""
        return tp.partition not in self.partitions_of(tp.topic) and self._refusal(tp.topic) is None

    def _refusal(self, topic: str) -> BrokerAnsweredError | None:
        """Return why brokers do not describe *topic*, None for one that they describe or do not have."""
        known = self.metadata.topics.get(topic)
        if known is None or known.partitions or known.is_missing or not known.error_code:
            return None
        return error_of(known.error_code, self.alias, "Metadata", topic)

    # Metadata.

    async def has_topic(self, topic: str) -> bool:
        """Return whether there is a *topic* now. Raise the brokers' answer where they do not describe it."""
        await self.refresh_metadata({topic})
        if (refusal := self._refusal(topic)) is not None:
            raise refusal
        return bool(self.partitions_of(topic))

    async def ensure_metadata(self, topics: Collection[str]) -> None:
        """Refresh what is unknown or older than `metadata_max_age_ms` among *topics*; mostly does nothing."""
        stale = self._upkeep.stale(topics)
        if stale:
            await self.refresh_metadata(stale)

    async def ensure_known(self, topics: Collection[str]) -> None:
        """Refresh what is unknown among *topics*, however old the rest is: see `aged`."""
        unknown = self._upkeep.unknown(topics)
        if unknown:
            await self.refresh_metadata(unknown)

    def aged(self, topics: Collection[str]) -> list[str]:
        """Return which of *topics* `ensure_metadata` would refresh."""
        return self._upkeep.stale(topics)

    async def refresh_metadata(self, topics: Collection[str] | None) -> None:
        """
        Ask for the brokers, the controller and *topics* (None: all) as they are now.

        The answer to a request that was sent after this call began is as good as one of its own, and so is its failure.
        """
        await self._upkeep.refresh(topics)
        self.may_have_moved = False
        self._connections.drop_moved(self.brokers)

    async def _ask_for_metadata(self, topics: Collection[str] | None) -> Any:
        request = MetadataRequest(topics)
        try:
            return await self.send_to_any(request)
        except ClusterUnreachableError:
            # Not one of the brokers we know is there: they may all have moved (KIP-899).
            return await self._ask_bootstrap_servers(request)

    async def _ask_bootstrap_servers(self, request: MetadataRequest) -> Any:
        servers = self.endpoint.bootstrap_servers
        cause: Mm2Error | None = None
        for server in random.sample(servers, len(servers)):
            try:
                response = await self.ask_server(server, request)
            except BrokerConnectionError as error:
                cause = error
                continue
            if response.brokers:
                return response
            cause = BrokerConnectionError(self.alias, server, "it knows of no brokers yet")
        raise _unreachable(self.alias, ",".join(servers), cause or "no bootstrap server is set")

    def servers(self) -> list[str]:
        """Return the addresses of the known brokers, in any order, and then the other bootstrap servers."""
        known, others = [*map(str, self.brokers.values())], self.endpoint.bootstrap_servers
        return [*dict.fromkeys([*random.sample(known, len(known)), *random.sample(others, len(others))])]

    async def ask_server(self, server: str, request: Any) -> Any:
        """Send *request* to one server on a connection of its own, and give its response."""
        connection = await self._connections.open_server(server)
        try:
            return await self._send(connection, request)
        finally:
            connection.close()

    async def refuse_mixed_servers(self) -> None:
        """Raise `MixedClustersError` if bootstrap servers are of different clusters: a connection would be made to one
        or the other by chance. Those that do not answer at once are left out.
        """
        servers, found = self.endpoint.bootstrap_servers, dict[str, str]()
        if len(servers) == 1:
            return

        async def ask(server: str) -> None:
            with suppress(BrokerConnectionError, BrokerAnsweredError):
                response = await self.ask_server(server, MetadataRequest(()))
                if response.cluster_id:
                    found[server] = response.cluster_id

        with suppress(TimeoutError):
            async with asyncio.timeout(_TELL_S), asyncio.TaskGroup() as tasks:
                for server in servers:
                    tasks.create_task(ask(server), name=f"{self.alias}/which-cluster/{server}")
        if len(set(found.values())) > 1:
            named = ", ".join(f"{server} is of {found[server]}" for server in servers if server in found)
            raise MixedClustersError(self.alias, named)

    # Requests.

    async def connection(self, node_id: int, purpose: str = "") -> BrokerConnection:
        """
        Return the open connection to *node_id* for *purpose*, opening it where need be.

        After a failure the next attempt waits; that wait, and the attempt, are part of this call.
        """
        broker = self.brokers.get(node_id)
        if broker is None:
            raise BrokerConnectionError(self.alias, str(node_id), "the cluster has no such broker now")
        asked_at = self.clock.monotonic()
        try:
            return await self._connections.get(broker, purpose)
        except asyncio.CancelledError:
            self.may_have_moved = True
            if self.clock.monotonic() - asked_at >= _SILENT_S:
                self.doubt(node_id)
            raise

    def doubt(self, node_id: int) -> None:
        """
        Note that *node_id* did not answer in time, as a frozen broker. Others are asked first, and soon, where it
        listens and who leads by now what it led: the request timeout may be longer than what waits for it.
        """
        self._connections.doubt(node_id)
        self._upkeep.doubt(node_id)

    async def send_to(self, node_id: int, request: Any, purpose: str = "") -> Any:
        """Send *request* to one broker and give its response."""
        connection = await self.connection(node_id, purpose)
        asked_at = self.clock.monotonic()
        try:
            response = await self._send(connection, request)
        except asyncio.CancelledError:
            # What it led is for those to doubt who know that it is silent: a group's coordinator holds answers back.
            if self.clock.monotonic() - asked_at >= _SILENT_S:
                self._connections.doubt(node_id)
            raise
        self._connections.trust(node_id)
        return response

    async def send_to_any(self, request: Any, purpose: str = "") -> Any:
        """
        Send *request*, which must be harmless to repeat, to one broker after the other until one answers.

        Raises `ClusterUnreachableError` when none of the known brokers did.
        """
        cause: Mm2Error | None = None
        for node_id in self._connections.by_promise(self.brokers, purpose):
            try:
                return await self.send_to(node_id, request, purpose)
            except BrokerConnectionError as error:
                cause = error
        if cause is None:
            # So a controller answers while all brokers are fenced: as they start, or wake after minutes.
            raise _unreachable(self.alias, ",".join(self.endpoint.bootstrap_servers), "it names no broker that is up")
        raise _unreachable(self.alias, ",".join(map(str, self.brokers.values())), cause)

    async def send_to_controller(self, request: Any) -> Any:
        """Send *request* to the broker that stands for the controller; answers may still say NOT_CONTROLLER."""
        if self.metadata.controller_id is None:
            await self.refresh_metadata(())
        controller_id = self.metadata.controller_id
        if controller_id is None:
            raise error_of(ErrorCode.NOT_CONTROLLER, self.alias, type(request).__name__, "no controller is known")
        return await self.send_to(controller_id, request)

    async def _send(self, connection: BrokerConnection, request: Any) -> Any:
        name = type(request).__name__
        within_s = self._timeout_s + held_back_s(request)
        try:
            async with asyncio.timeout(within_s):
                return await connection.send(request)
        except TimeoutError as error:
            raise connection.give_up(f"no answer to {name} within {within_s:g} s") from error
        except (IncompatibleBrokerVersion, NotImplementedError) as error:
            raise error_of(ErrorCode.UNSUPPORTED_VERSION, self.alias, name, str(error)) from error

    # Offsets.

    async def list_offsets(
        self,
        partitions: Collection[TopicPartition],
        when: int,
        *,
        reads_committed: bool = False,
        patience_s: float | None = None,
    ) -> dict[TopicPartition, Offset]:
        """
        Ask the leaders for an offset of each partition: see `ListOffsetsRequest` for *when*.

        With *reads_committed* the end of the log is the last stable offset. Leaders that moved are looked up and
        asked again until *patience_s* are over, or else the request timeout; what then still fails is in the answer as
        an error. The next time it is asked once, so that all others need not wait for it again.
        """
        known: dict[TopicPartition, Offset] = {}
        pending = set(partitions)
        patience = Patience(self.clock, self._timeout_s if patience_s is None else patience_s)
        await self.ensure_metadata({tp.topic for tp in pending})
        if given_up := pending & self._given_up:
            await self.refresh_metadata({tp.topic for tp in given_up})
        while pending:
            answers = await self._offsets_once(pending, when, reads_committed=reads_committed)
            known.update(answers)
            failed = {tp: answer for tp, answer in answers.items() if isinstance(answer, BrokerAnsweredError)}
            pending = {tp for tp, error in failed.items() if not patience.is_over_for(error.code)} - given_up
            self._given_up -= answers.keys()
            self._given_up |= {tp for tp, error in failed.items() if tp not in pending and may_last(error.code)}
            if pending:
                await patience.pause()
                await self.refresh_metadata({tp.topic for tp in pending})
        return known

    async def _offsets_once(
        self, partitions: Iterable[TopicPartition], when: int, *, reads_committed: bool
    ) -> dict[TopicPartition, Offset]:
        answers: dict[TopicPartition, Offset] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            leader = self.leader(tp)
            if leader is None:
                answers[tp] = self._no_leader_error(tp)
            else:
                by_leader.setdefault(leader, []).append(tp)

        async def ask(node_id: int, group: list[TopicPartition]) -> None:
            answers.update(await self._offsets_at(node_id, group, when, reads_committed=reads_committed))

        async with asyncio.TaskGroup() as tasks:
            for node_id, group in sorted(by_leader.items()):
                tasks.create_task(ask(node_id, group), name=f"{self.alias}/list-offsets/{node_id}")
        return answers

    def _no_leader_error(self, tp: TopicPartition) -> BrokerAnsweredError:
        if (refusal := self._refusal(tp.topic)) is not None:
            return refusal
        code: int = ErrorCode.LEADER_NOT_AVAILABLE
        if self.metadata.partition(tp) is None:
            topic = self.metadata.topics.get(tp.topic)
            code = (topic.error_code if topic else 0) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return error_of(code, self.alias, "Metadata", str(tp))

    async def _offsets_at(
        self, node_id: int, partitions: list[TopicPartition], when: int, *, reads_committed: bool
    ) -> dict[TopicPartition, Offset]:
        alias = self.alias
        by_topic: dict[str, list[tuple[int, int]]] = {}
        for tp in partitions:
            by_topic.setdefault(tp.topic, []).append((tp.partition, self.leader_epoch(tp)))
        # Callers have sets of partitions: requests are the same in each run.
        by_topic = {topic: sorted(numbers) for topic, numbers in sorted(by_topic.items())}
        # A partition missing in the broker's answer is treated as one it does not lead.
        silent = error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER, alias, "ListOffsets", "missing in the answer")
        try:
            response = await self.send_to(node_id, ListOffsetsRequest(by_topic, when, reads_committed=reads_committed))
        except BrokerAnsweredError as error:
            return dict.fromkeys(partitions, error)
        except BrokerConnectionError as error:
            lost = error_of(ErrorCode.NETWORK_EXCEPTION, alias, "ListOffsets", str(error))
            return dict.fromkeys(partitions, lost)
        rows = (
            (
                TopicPartition(topic, number),
                error_of(code, alias, "ListOffsets", f"{topic}-{number}") if code else offset,
            )
            for topic, answers, *_ in response.topics
            for number, code, _timestamp, offset, *_ in answers
        )
        return by_asked(partitions, rows, silent)

    async def offsets_since(
        self, partitions: Collection[TopicPartition], timestamp_ms: int, *, patience_s: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """Return the first offset of each partition with a timestamp of *timestamp_ms* or later; if there is none, the
        end. That is asked for first, or a record that arrives meanwhile would be before it. See `list_offsets`.
        """
        ends = await self.list_offsets(partitions, LATEST, patience_s=patience_s)
        found = await self.list_offsets(partitions, timestamp_ms, patience_s=patience_s)
        return {tp: ends[tp] if at == NO_OFFSET else at for tp, at in found.items()}


def _unreachable(alias: str, servers: str, cause: Mm2Error | str) -> ClusterUnreachableError:
    """Return the error that says why none of *servers* could be used."""
    error = ClusterUnreachableError(alias, servers, _shortly(cause, servers))
    if isinstance(cause, BrokerAccessError):
        error = ClusterAccessError(alias, servers, cause.cause, cause.principal, cause.hint)
    error.__cause__ = cause if isinstance(cause, Mm2Error) else None
    return error


def _shortly(cause: Mm2Error | str, servers: str) -> str:
    """Return the cause of a cluster's failure, without what the enclosing error already says."""
    if not isinstance(cause, BrokerConnectionError) or isinstance(cause, BrokerAccessError):
        return str(cause)
    return cause.cause if cause.broker == servers else f"{cause.broker}: {cause.cause}"
