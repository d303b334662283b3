"""How a cluster of the file is reached: its brokers, its id, and what a listing shows. Nothing is changed there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import attrs

from mm2py.clock import Clock
from mm2py.core.findings import CheckedCluster, Finding, Level
from mm2py.errors import ClusterUnreachableError, Mm2Error
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.topic import TopicsView
from mm2py.wire.cluster import Cluster
from mm2py.wire.security.access import BrokerAccessError, ClusterAccessError, hint_at
from mm2py.wire.security.contexts import principal_of
from mm2py.wire.topics.admin import Admin


#: Time limit of all that is asked of a cluster at one go, and of one broker's answer.
WITHIN_S: Final = 15.0
_ANSWER_MS: Final = 5_000


@attrs.frozen
class Reached:
    """A cluster that was asked; `cluster` is None if it does not answer."""

    checked: CheckedCluster
    cluster: Cluster | None = None
    topics: TopicsView = attrs.field(factory=lambda: TopicsView({}))
    #: How many brokers it has, with those that are down.
    brokers: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def partitions(self) -> Mapping[str, int]:
        """The number of partitions by topic."""
        return {name: len(topic.partitions) for name, topic in self.topics.topics.items()}


def hurried_cluster(endpoint: ClusterEndpoint, clock: Clock) -> Cluster:
    """Return the cluster with shorter time limits than those of a mirror, which has time."""
    hurried = attrs.evolve(
        endpoint,
        request_timeout_ms=min(_ANSWER_MS, endpoint.request_timeout_ms),
        connection_setup_ms=min(_ANSWER_MS, endpoint.connection_setup_ms),
    )
    return Cluster(hurried, clock)


async def reach(cluster: Cluster, endpoint: ClusterEndpoint) -> Reached:
    """Connect to the cluster, and to each of its brokers; what fails is a finding. It ends within `WITHIN_S`."""
    security = endpoint.security
    checked = CheckedCluster(endpoint.alias, endpoint.bootstrap_servers, security.protocol, principal_of(endpoint))
    try:
        async with limited(endpoint):
            await cluster.connect()
            await cluster.refuse_mixed_servers()
            findings = tuple(await _unreachable_brokers(cluster))
            admin = Admin(cluster)
            topics = await admin.list_topics()
    except Mm2Error as error:
        return Reached(checked, findings=(finding_of(error, endpoint),))
    checked = attrs.evolve(
        checked,
        cluster_id=cluster.metadata.cluster_id,
        brokers=tuple(str(broker) for _, broker in sorted(cluster.brokers.items())),
        is_reachable=True,
    )
    return Reached(checked, cluster, topics, admin.all_brokers, findings)


async def _unreachable_brokers(cluster: Cluster) -> Iterator[Finding]:
    """Connect to each broker: the mirror needs all of them, at the addresses that they advertise."""
    failed: dict[str, Mm2Error] = {}

    async def connect(node_id: int) -> None:
        try:
            await cluster.connection(node_id)
        except Mm2Error as error:
            failed[str(cluster.brokers[node_id])] = error

    async with asyncio.TaskGroup() as tasks:
        for node_id in cluster.brokers:
            tasks.create_task(connect(node_id), name=f"{cluster.alias}/check/{node_id}")
    hint = "the brokers' advertised listeners must be reachable from here, and from Spark's workers"
    return (
        Finding(Level.ERROR, cluster.alias, str(error), getattr(error, "hint", "") or hint)
        for _, error in sorted(failed.items())
    )


@asynccontextmanager
async def limited(endpoint: ClusterEndpoint) -> AsyncIterator[None]:
    """Raise `ClusterUnreachableError` if the block takes longer than `WITHIN_S`."""
    try:
        async with asyncio.timeout(WITHIN_S) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        servers = ",".join(endpoint.bootstrap_servers)
        raise ClusterUnreachableError(endpoint.alias, servers, f"no answer within {WITHIN_S:g} s") from None


def finding_of(error: Mm2Error, endpoint: ClusterEndpoint) -> Finding:
    """Return an *error* at a cluster as a finding. A refused login is no silence: there is something to correct."""
    is_away = isinstance(error, ClusterUnreachableError) and not isinstance(error, ClusterAccessError)
    if isinstance(error.__cause__, BrokerAccessError):
        is_away = False
    level = Level.UNREACHABLE if is_away else Level.ERROR
    return Finding(level, endpoint.alias, str(error), hint_at(error, endpoint))
