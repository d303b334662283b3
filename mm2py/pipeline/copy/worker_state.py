"""What a Python worker of Spark keeps between its tasks."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Collection, Iterable, Sequence
from types import TracebackType
from typing import Final, Self

import attrs

from mm2py.clock import Clock
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import EpochPlan, PartitionPlan
from mm2py.model.flow import Flow, TopicPartition
from mm2py.pipeline.copy.catch_up import CatchUp
from mm2py.pipeline.copy.far_behind import FarBehind
from mm2py.pipeline.copy.leader_epochs import Checked
from mm2py.pipeline.copy.partition import ByFetcher, PartitionCopy
from mm2py.pipeline.copy.resume import Walks
from mm2py.pipeline.copy.sent_plan import MANY, KeptPlans, keep_few
from mm2py.pipeline.copy.slow_lines import SlowLines
from mm2py.wire.cluster import Cluster
from mm2py.wire.fetch import FetchSession
from mm2py.wire.metadata import ClusterMetadata


#: So long brokers keep connections on which nothing comes (connections.max.idle.ms).
_UNUSED_S: Final = 600.0
#: How long a replica is read without asking the leader again, as Java's consumer does by its default settings.
_LEASE_S: Final = 300.0
#: Beyond so many, those whose time is over are forgotten: topics come and go under ever new names.
_REMEMBERED: Final = 1_000


class ReadReplicas:
    """
    Which replicas source partitions are read from (KIP-392), for all source clusters of a worker.

    The leader names one in the reader's rack; from then on that is used, until it fails or some minutes have passed,
    and then the leader again.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, TopicPartition], tuple[int, float]] = {}
        self._most = _REMEMBERED

    def note(self, cluster: str, partition: TopicPartition, node: int, now: float) -> None:
        """Read *partition* from the broker *node* from now on."""
        self._known[cluster, partition] = (node, now + _LEASE_S)
        if len(self._known) > self._most:
            self._known = {key: (node, until) for key, (node, until) in self._known.items() if now < until}
            self._most = max(_REMEMBERED, 2 * len(self._known))

    def of(self, cluster: str, partition: TopicPartition, now: float) -> int | None:
        """Return the broker to read *partition* from; None for its leader."""
        node, until = self._known.get((cluster, partition), (None, 0.0))
        return node if now < until else None

    def forget(self, cluster: str, partition: TopicPartition) -> bool:
        """Read *partition* from its leader again; False if it already is."""
        return self._known.pop((cluster, partition), None) is not None


@attrs.frozen(eq=False)
class Views:
    """What is known of both clusters."""

    source: ClusterMetadata
    target: ClusterMetadata

    def are(self, other: Views) -> bool:
        """Whether *other* is no newer: metadata is another object once anything in it is new."""
        return self.source is other.source and self.target is other.target


@attrs.frozen(eq=False)
class Untouched:
    """
    Those of the *planned* partitions to which nothing has happened in an epoch, and the *views* that they were compared
    with. Of those *as_before* that is known without a look at each.
    """

    planned: tuple[PartitionPlan, ...]
    views: Views
    others: Sequence[PartitionCopy]
    as_before: ByFetcher

    @property
    def copies(self) -> list[PartitionCopy]:
        return [*self.others, *itertools.chain.from_iterable(it.values() for it in self.as_before.values())]

    def are_all(self, plan: EpochPlan) -> bool:
        """Whether they are what *plan* has, all of it, as it was planned then."""
        count = len(self.others) + sum(map(len, self.as_before.values()))
        return self.planned is plan.partitions and len(plan.partitions) == count


@attrs.frozen(eq=False)
class Copies:
    """
    The partitions of an epoch: *new* ones have to be compared with what is known of the clusters now.

    To the others nothing has happened in the last epoch, nor have the clusters changed since. Those *as_before* can go
    to their fetchers without a look at each.
    """

    all: list[PartitionCopy]
    new: Sequence[PartitionCopy]
    others: Sequence[PartitionCopy] = ()
    as_before: ByFetcher = attrs.field(factory=dict)


@attrs.define(eq=False)
class WorkerState:
    """
    What lives in a Python worker between epochs: connections, fetch sessions, walks, plans.

    Nothing depends on it being there; it only saves time. It belongs to one event loop.
    """

    clusters: dict[ClusterEndpoint, Cluster] = attrs.field(factory=dict)
    #: When each was last used. One whose password is another one now, or whose flow is gone, is not used again.
    used_at: dict[ClusterEndpoint, float] = attrs.field(factory=dict)
    sessions: dict[tuple[str, int, int], FetchSession] = attrs.field(factory=dict)
    walks: Walks = attrs.field(factory=dict)
    checked: Checked = attrs.field(factory=dict)
    replicas: ReadReplicas = attrs.field(factory=ReadReplicas)
    cut: dict[TopicPartition, int] = attrs.field(factory=dict)
    #: When partitions of a source, by its alias, last had records.
    heard_at: dict[tuple[str, TopicPartition], float] = attrs.field(factory=dict)
    slow_lines: SlowLines = attrs.field(factory=SlowLines)
    #: The pace of copy tasks whose flows bound it.
    catch_ups: dict[tuple[Flow, int], CatchUp] = attrs.field(factory=dict)
    #: Of each copy task, which partitions are far behind.
    far_behind: dict[tuple[Flow, int], FarBehind] = attrs.field(factory=dict)
    plans: KeptPlans = attrs.field(factory=KeptPlans)
    #: Of each copy task, partitions to which nothing has happened in its last epoch.
    untouched: dict[tuple[Flow, int], Untouched] = attrs.field(factory=dict)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        for cluster in self.clusters.values():
            await cluster.close()
        self.clusters.clear()
        self.used_at.clear()
        self.sessions.clear()

    def begin_sessions_again(self, alias: str) -> None:
        """
        Have the next epoch learn of every partition of that source that it can be fetched.

        An epoch that could not begin has interrupted them all. Answers would leave out those without news.
        """
        for (source, *_), session in self.sessions.items():
            if source == alias:
                session.begin_again()

    def catch_up(self, plan: EpochPlan, copies: Collection[PartitionCopy]) -> CatchUp | None:
        """Return the pace of what is behind of *copies*, those of *plan*; None if it is not bounded."""
        key, more_ms = (plan.flow, plan.task), plan.limits.catch_up_latency_ms
        found = self.catch_ups.pop(key, None)
        if more_ms < 0:
            return None
        if found is None or found.more_ms != more_ms:
            found = CatchUp(more_ms)
        self.catch_ups[key] = found
        keep_few(self.catch_ups)
        found.begin(copies)
        return found

    def far_behind_of(self, plan: EpochPlan, copies: Collection[PartitionCopy]) -> FarBehind:
        """Return what is known of *copies*, those of *plan*, that are far behind."""
        found = self.far_behind.pop((plan.flow, plan.task), None) or FarBehind()
        self.far_behind[plan.flow, plan.task] = found
        keep_few(self.far_behind)
        found.begin(copies, plan.limits.fetch_partition_max_bytes)
        return found

    def copies_of(self, plan: EpochPlan, views: Views) -> Copies:
        """Return what is to be copied, while *views* are what is known of the clusters."""
        last = self.untouched.pop((plan.flow, plan.task), None)
        is_same = last is not None and last.views.are(views)
        if last is not None and is_same and last.are_all(plan):
            return Copies(last.copies, (), last.others, last.as_before)
        known = {} if last is None else {copy.plan.source: copy for copy in last.copies}
        new: list[PartitionCopy] = []
        others: list[PartitionCopy] = []
        compared = others if is_same else new
        for partition in plan.partitions:
            copy = known.get(partition.source)
            if copy is not None and copy.plan is partition:
                compared.append(copy)
            else:
                new.append(PartitionCopy.of(partition))
                if copy is not None:
                    copy.let_go()
        return Copies([*new, *others], new, others)

    def keep(
        self,
        plan: EpochPlan,
        views: Views,
        told: Iterable[PartitionCopy],
        others: Iterable[PartitionCopy],
        as_before: ByFetcher,
    ) -> None:
        """Keep the partitions of *plan* for the next epoch to which nothing has happened in this one: those *as_before*
        and, of the *others*, which had no news to be *told*, those that are as they were planned.
        """
        has_many = len(plan.partitions) > MANY
        kept: list[PartitionCopy] = []
        for copy in told:
            copy.let_go()
        for copy in others:
            if has_many and copy.is_as_planned:
                kept.append(copy)
            else:
                copy.let_go()
        if has_many:
            self.untouched[plan.flow, plan.task] = Untouched(plan.partitions, views, kept, as_before)
            keep_few(self.untouched)

    def cluster(self, endpoint: ClusterEndpoint, clock: Clock) -> Cluster:
        """Return a cluster for an epoch; let go of those that were not used for long."""
        now = self.used_at[endpoint] = clock.monotonic()
        for other in [it for it, used_at in self.used_at.items() if now - used_at >= _UNUSED_S]:
            del self.used_at[other]
            self.clusters.pop(other).let_go()
            for key in [key for key, session in self.sessions.items() if session.connection.is_closed]:
                del self.sessions[key]
        found = self.clusters.get(endpoint)
        if found is None:
            found = self.clusters[endpoint] = Cluster(endpoint, clock)
        return found


def worker_name() -> str:
    """Name this process as ``host:pid``."""
    return f"{socket.gethostname()}:{os.getpid()}"
