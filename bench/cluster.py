"""
What the benchmark asks of a cluster of several brokers: one `Broker` for each, requests go to the partitions' leaders.

Leaders may move and brokers may die at any time; whatever is sent here is sent again until it is done or its time is
over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import CreateTopicsRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest

from bench.batches import ProducerId
from bench.broker import REQUEST_TIMEOUT_MS, BenchBrokerError, Broker, connect


#: A topic's name and a partition's number.
Place: TypeAlias = tuple[str, int]

RETRY_S = 0.1
GIVE_UP_S = 120.0
#: The controller takes no more than some thousands of its records at once.
PARTITIONS_A_REQUEST = 500

#: What a broker says that is gone, or was never told that it leads.
UNREACHABLE = (KafkaError, OSError, TimeoutError, EOFError)
DUPLICATE_SEQUENCE_NUMBER = 46
#: Unknown topic, no leader, not the leader, timed out, disconnected, too few replicas, storage, an epoch of leaders.
PASSING = frozenset({3, 5, 6, 7, 13, 19, 20, 56, 74, 75})


class Cluster:
    """The brokers of one cluster, connected when they are needed."""

    def __init__(self, bootstrap: str) -> None:
        servers = [server.rpartition(":") for server in bootstrap.split(",")]
        self._bootstrap = [(host, int(port)) for host, _, port in servers]
        self._addresses: dict[int, tuple[str, int]] = {}
        self._brokers: dict[tuple[str, int], Broker] = {}
        self._locks: defaultdict[tuple[str, int], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._leaders: dict[Place, int] = {}

    def close(self) -> None:
        """Close every connection."""
        for broker in self._brokers.values():
            broker.close()

    async def ask_any(self, request: Any) -> Any:
        """Send *request* to the first broker that answers; it passes on what is the controller's."""
        async with asyncio.timeout(GIVE_UP_S):
            while True:
                for address in [*self._addresses.values(), *self._bootstrap]:
                    with contextlib.suppress(*UNREACHABLE):
                        return await (await self._at(address)).send(request)
                await asyncio.sleep(RETRY_S)

    async def refresh(self, topics: Iterable[str]) -> None:
        """Learn where the brokers are and who leads the partitions of *topics*."""
        answer = await self.ask_any(MetadataRequest(list(topics), allow_auto_topic_creation=False))
        living = {node: (host, port) for node, host, port, *_ in answer.brokers}
        self._addresses |= living
        for _, topic, _, partitions in answer.topics:
            for _, number, leader, *_ in partitions:
                self._leaders[topic, number] = leader if leader in living else -1

    def leader(self, place: Place) -> int:
        """Return who leads *place* as far as is known, or -1."""
        return self._leaders.get(place, -1)

    def forget_leader(self, place: Place) -> None:
        """Note that *place* is no longer led by who was thought to."""
        self._leaders[place] = -1

    def nodes(self) -> list[int]:
        """Return the ids of all brokers seen so far."""
        return sorted(self._addresses)

    async def connect_to(self, node: int) -> Broker:
        """Open a further connection to a broker; one of `UNREACHABLE` when it cannot be reached."""
        return await connect(*self._addresses[node])

    async def create_topics(
        self, topics: Mapping[str, int], *, replicas: int = 1, assigned_to: Sequence[int] = ()
    ) -> None:
        """Create *topics* of so many partitions, each on the brokers *assigned_to* it, if any, the leader first."""
        entries = []
        for topic, partitions in topics.items():
            if assigned_to:
                assignment = [(number, list(assigned_to)) for number in range(partitions)]
                entries.append((topic, -1, -1, assignment, [("retention.ms", "-1")]))
            else:
                entries.append((topic, partitions, replicas, [], [("retention.ms", "-1")]))
        each = max(1, PARTITIONS_A_REQUEST // max(topics.values()))
        for at in range(0, len(entries), each):
            request = CreateTopicsRequest(entries[at : at + each], REQUEST_TIMEOUT_MS, validate_only=False)
            for name, code, *_ in (await self.ask_any(request)).topic_errors:
                if code:
                    raise BenchBrokerError("create topics", f"{name} got error {code}")
        await self.await_topics(topics)

    async def await_topics(self, topics: Mapping[str, int]) -> None:
        """Wait until all partitions of *topics* have leaders that answer."""
        left = {(topic, number) for topic, partitions in topics.items() for number in range(partitions)}
        async with asyncio.timeout(GIVE_UP_S):
            while left:
                left -= (await self.ends(left)).keys()
                await asyncio.sleep(RETRY_S if left else 0)

    async def end_offsets(self, topic: str, partitions: int) -> list[int] | None:
        """The next offset of every partition, or None while one of them has no leader."""
        found = await self.ends([(topic, number) for number in range(partitions)])
        return [found[topic, number] for number in range(partitions)] if len(found) == partitions else None

    async def ends(self, places: Collection[Place]) -> dict[Place, int]:
        """The next offsets of those of *places* that have a leader; every broker is asked, and answers for its own."""
        if not self._addresses:
            await self.refresh(())
        wanted = _by_topic(places)
        found: dict[Place, int] = {}
        for address in list(self._addresses.values()):
            with contextlib.suppress(*UNREACHABLE):
                found |= await (await self._at(address)).ends(wanted)
        return found

    async def init_producer_id(self) -> ProducerId:
        """A producer id for an idempotent producer."""
        async with asyncio.timeout(GIVE_UP_S):
            while True:
                for address in self._bootstrap:
                    with contextlib.suppress(*UNREACHABLE):
                        return await (await self._at(address)).init_producer_id()
                await asyncio.sleep(RETRY_S)

    async def produce(self, batches: Mapping[Place, bytes]) -> None:
        """Write one batch to each place, and those that were not acknowledged again, until all are."""
        left = dict(batches)
        async with asyncio.timeout(GIVE_UP_S):
            while left:
                by_leader: defaultdict[int, dict[Place, bytes]] = defaultdict(dict)
                for place, batch in left.items():
                    by_leader[self.leader(place)][place] = batch
                for leader, those in by_leader.items():
                    for place in await self.write(leader, those):
                        del left[place]
                if left:
                    await asyncio.sleep(RETRY_S)
                    await self.refresh({topic for topic, _ in left})

    async def write(self, leader: int, batches: Mapping[Place, bytes]) -> list[Place]:
        """Send one request to one broker; return what it acknowledged, and forget the leaders of the rest."""
        done = await self._written(leader, batches)
        for place in batches.keys() - set(done):
            self.forget_leader(place)
        return done

    async def _written(self, leader: int, batches: Mapping[Place, bytes]) -> list[Place]:
        if leader not in self._addresses:
            return []
        topics: defaultdict[str, list[tuple[int, bytes]]] = defaultdict(list)
        for (topic, number), batch in batches.items():
            topics[topic].append((number, batch))
        request = ProduceRequest(None, -1, REQUEST_TIMEOUT_MS, list(topics.items()))
        try:
            answer = await (await self._at(self._addresses[leader])).send(request)
        except UNREACHABLE:
            return []
        done = []
        for topic, entries in answer.topics:
            for number, code, *_ in entries:
                if code in {0, DUPLICATE_SEQUENCE_NUMBER}:
                    done.append((topic, number))
                elif code not in PASSING:
                    raise BenchBrokerError("produce", f"{topic}-{number} got error {code}")
        return done

    async def _at(self, address: tuple[str, int]) -> Broker:
        async with self._locks[address]:
            broker = self._brokers.get(address)
            if broker is None or not broker.is_connected:
                broker = self._brokers[address] = await connect(*address)
            return broker


def _by_topic(places: Collection[Place]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number in places:
        found[topic].append(number)
    return found


@contextlib.asynccontextmanager
async def connected_to(bootstrap: str) -> AsyncIterator[Cluster]:
    """A `Cluster` at ``host:port,host:port``."""
    cluster = Cluster(bootstrap)
    try:
        yield cluster
    finally:
        cluster.close()
