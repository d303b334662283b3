"""
A cluster's metadata: brokers, controller, topics, leaders.

A view is immutable; `MetadataUpkeep` holds the latest one. `merged` says which of two views to believe, partition by
partition: brokers learn of a new leader at different moments, so a later answer may be the older truth, and the leader
epoch tells (KIP-320).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import attrs

from mm2py.clock import Clock
from mm2py.errors import ClusterUnreachableError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.wire.addresses import host_and_port
from mm2py.wire.error_codes import ErrorCode


NO_LEADER = -1
UNKNOWN_EPOCH = -1
#: What is in use is asked for again once it is too old, when an epoch begins. What is so many times as old, and as old
#: as this, is not.
_FORGOTTEN_AFTER = 12
_FORGOTTEN_AFTER_S = 3_600.0
#: Least distance between two requests.
_REFRESH_GAP_S = 0.1
#: Answers about more topics are read in a thread, so that nothing else waits for it.
_MOST_READ_HERE = 50
#: The version of Metadata from which on topics have ids, and that from which on leader epochs can be relied on: before
#: Kafka 2.4 a broker may name an epoch of before a reassignment, and leaders refuse who asks under it (KAFKA-9212).
_HAS_IDS = 10
_HAS_RELIABLE_EPOCHS = 9
_MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})
#: Of how many partitions that differ the metadata is remembered, to be shared with later ones.
_MOST_SHARED = 10_000


@attrs.frozen
class Broker:
    """Where a broker listens."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return host_and_port(self.host, self.port)


@attrs.frozen
class PartitionMetadata:
    """The leader of a partition. `leader` is -1 without one, `leader_epoch` -1 if the broker does not report it."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()


@attrs.frozen
class TopicMetadata:
    """One topic. `error_code` is what the broker had to say about it; a missing topic has no partitions."""

    error_code: int
    topic_id: str | None
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]

    @property
    def is_missing(self) -> bool:
        """Whether the brokers said that there is no such topic, or that none can have this name."""
        return self.error_code in _MISSING


@attrs.frozen
class ClusterMetadata:
    """A snapshot of a cluster's metadata, with the requested topics."""

    cluster_id: str | None = None
    controller_id: int | None = None
    brokers: Mapping[int, Broker] = attrs.field(factory=dict)
    topics: Mapping[str, TopicMetadata] = attrs.field(factory=dict)

    def partition(self, tp: TopicPartition) -> PartitionMetadata | None:
        """Return what is known of *tp*."""
        known = self.topics.get(tp.topic)
        return known.partitions.get(tp.partition) if known else None


class MetadataUpkeep:
    """
    Holds a cluster's latest metadata, and owns when brokers are asked for more.

    At most one request is in flight; callers that ask meanwhile share the next one.
    """

    def __init__(
        self, endpoint: ClusterEndpoint, clock: Clock, ask: Callable[[Collection[str] | None], Awaitable[Any]]
    ) -> None:
        """Create it without any metadata; *ask* requests that of some topics, or all with None."""
        self.view = ClusterMetadata()
        self._clock = clock
        self._ask = ask
        self._max_age_s = endpoint.metadata_max_age_ms / 1000
        self._lock = asyncio.Lock()
        self._refreshed_at: float | None = None
        self._learnt_at: dict[str, float] = {}
        self._doubted: set[str] = set()
        self._tickets_issued = 0
        self._tickets_served = 0
        self._failure: ClusterUnreachableError | None = None
        self._wanted_topics: set[str] = set()
        self._wants_all_topics = False

    def unknown(self, topics: Collection[str]) -> list[str]:
        """Return which of *topics* were never asked for, or are doubted."""
        return [topic for topic in topics if topic not in self._learnt_at or topic in self._doubted]

    def stale(self, topics: Collection[str]) -> list[str]:
        """Return which of *topics* are unknown or too old."""
        oldest = self._clock.monotonic() - self._max_age_s
        return [it for it in topics if it in self._doubted or self._learnt_at.get(it, oldest) <= oldest]

    def doubt(self, node_id: int) -> None:
        """Count as unknown all topics of which *node_id* leads a partition: another broker may by now."""
        for name, topic in self.view.topics.items():
            if any(partition.leader == node_id for partition in topic.partitions.values()):
                self._doubted.add(name)

    async def refresh(self, topics: Collection[str] | None) -> None:
        """Ask for *topics*, or take part in the answer, or the failure, of a request sent after this call began."""
        self._tickets_issued += 1
        ticket = self._tickets_issued
        self._want(topics)
        async with self._lock:
            if self._tickets_served >= ticket:
                if self._failure is not None:
                    raise attrs.evolve(self._failure) from self._failure
                return
            self._want(topics)
            if self._refreshed_at is not None:
                await self._clock.sleep(max(0.0, self._refreshed_at + _REFRESH_GAP_S - self._clock.monotonic()))
            serves = self._tickets_issued
            named = sorted(self._wanted_topics)
            wanted = None if self._wants_all_topics else named
            self._wants_all_topics = False
            self._wanted_topics.clear()
            try:
                await self._refresh(wanted)
                # A list of all topics leaves out those that we may not see, as if they were not there.
                if wanted is None and (unlisted := [it for it in named if it not in self.view.topics]):
                    await self._refresh(unlisted)
            except ClusterUnreachableError as error:
                self._tickets_served, self._failure = serves, error
                raise
            self._tickets_served, self._failure = serves, None

    def _want(self, topics: Collection[str] | None) -> None:
        if topics is None:
            self._wants_all_topics = True
        else:
            self._wanted_topics.update(topics)

    async def _refresh(self, topics: Collection[str] | None) -> None:
        self._refreshed_at = self._clock.monotonic()
        response = await self._ask(topics)
        in_thread = len(response.topics) > _MOST_READ_HERE
        fresh = await asyncio.to_thread(view_of, response) if in_thread else view_of(response)
        self.view = merged(self.view, fresh, is_complete=topics is None)
        now = self._refreshed_at = self._clock.monotonic()
        self._doubted = set() if topics is None else self._doubted.difference(topics)
        if topics is None:
            self._learnt_at.clear()
        for topic in self.view.topics if topics is None else topics:
            self._learnt_at[topic] = now
        self._forget_old(now)

    def _forget_old(self, now: float) -> None:
        """Forget topics that were not asked for long, or were missing some time ago: ever new ones come and go."""
        topics, oldest = self.view.topics, now - max(_FORGOTTEN_AFTER * self._max_age_s, _FORGOTTEN_AFTER_S)
        old = [it for it, learnt_at in self._learnt_at.items() if learnt_at < now - self._max_age_s]
        gone = {it for it in old if self._learnt_at[it] < oldest or it not in topics or topics[it].is_missing}
        if gone:
            self._learnt_at = {it: learnt_at for it, learnt_at in self._learnt_at.items() if it not in gone}
            self.view = attrs.evolve(self.view, topics={it: topic for it, topic in topics.items() if it not in gone})


@functools.lru_cache(maxsize=_MOST_SHARED)
def _shared(leader: int, leader_epoch: int, replicas: tuple[int, ...]) -> PartitionMetadata:
    """Return the same object for all partitions of which the same is known: of thousands, most are alike."""
    return PartitionMetadata(leader, leader_epoch, replicas)


def view_of(response: Any) -> ClusterMetadata:
    """Read a metadata *response* of any version."""
    brokers = {node_id: Broker(node_id, host, port, rack) for node_id, host, port, rack, *_ in response.brokers}
    controller_id = response.controller_id
    has_ids = response.API_VERSION >= _HAS_IDS
    has_epochs = response.API_VERSION >= _HAS_RELIABLE_EPOCHS
    topics = {}
    for error_code, topic, *rest in response.topics:
        topic_id, is_internal, partitions = rest[:3] if has_ids else (None, *rest[:2])
        topics[topic] = TopicMetadata(
            error_code,
            topic_id,
            is_internal,
            {
                number: _shared(leader, leader_epoch if has_epochs else UNKNOWN_EPOCH, tuple(replicas))
                for _, number, leader, leader_epoch, replicas, *_ in partitions
            },
        )
    return ClusterMetadata(
        cluster_id=response.cluster_id,
        controller_id=controller_id if controller_id in brokers else None,
        brokers=brokers,
        topics=topics,
    )


def merged(known: ClusterMetadata, fresh: ClusterMetadata, *, is_complete: bool) -> ClusterMetadata:
    """
    Return the view that follows from what was *known* and a *fresh* answer: *known* itself if nothing is new.

    *is_complete* says that the answer was about all topics, so that what it does not name is gone.
    """
    topics = {} if is_complete else dict(known.topics)
    for name, topic in fresh.topics.items():
        topics[name] = _merged_topic(known.topics.get(name), topic)
    view = attrs.evolve(fresh, cluster_id=fresh.cluster_id or known.cluster_id, topics=topics)
    # What was compared with it, thousands of partitions, need not be compared again.
    return known if view == known else view


def _merged_topic(known: TopicMetadata | None, fresh: TopicMetadata) -> TopicMetadata:
    if known is None or known.topic_id != fresh.topic_id:
        return fresh
    if known == fresh:
        return known  # rather than thousands of new objects each time
    partitions = {
        number: known.partitions[number]
        if number in known.partitions and known.partitions[number].leader_epoch > partition.leader_epoch >= 0
        else partition
        for number, partition in fresh.partitions.items()
    }
    return attrs.evolve(fresh, partitions=partitions)
