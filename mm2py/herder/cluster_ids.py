"""
Which clusters are meant, by the ids that their brokers give: addresses that differ may be of one cluster, and those of
one host of several.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import ClassVar, Final

import attrs

from mm2py.clock import Clock
from mm2py.config.resolve import NamedAgain
from mm2py.config.settings import ConfigError, FlowSettings, MirrorSettings
from mm2py.connectors.reach import Reach
from mm2py.errors import Mm2Error, Verdict
from mm2py.herder.replication_loops import judged
from mm2py.herder.runner import FlowRunner
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import Flow
from mm2py.telemetry.events import ClustersAreOne, FlowFailed
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster


#: How often a flow that names two clusters as one looks whether they still are two.
_LOOK_EVERY_S: Final = 30.0


@attrs.define(eq=False)
class OtherClusterError(Mm2Error):
    """A connector names another cluster than the one that its flow uses."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW
    hint: ClassVar[str] = (
        "name one cluster in both. A worker's records go to its own cluster: to write to another one, run the "
        "connector in a worker of that cluster; another source needs a source.cluster.alias of its own"
    )

    connector: str
    key: str
    servers: str
    cluster_id: str
    used: str
    used_id: str

    def __str__(self) -> str:
        named = f"{self.connector}: {self.key} = {self.servers} is cluster {self.cluster_id}"
        return f"{named}, another one than that at {self.used}, which is used ({self.used_id})"


@attrs.define(eq=False)
class FlowsFeedEachOtherError(Mm2Error):
    """Aliases turned out to name one cluster, and so flows would form a replication loop."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW

    problem: str

    def __str__(self) -> str:
        return self.problem


class ClusterIds:
    """The ids of the clusters that this node's flows have reached, by alias."""

    def __init__(self, settings: Callable[[], MirrorSettings], *, clock: Clock, events: EventLog) -> None:
        """Create it; *settings* returns those in use."""
        self._settings = settings
        self._clock, self._events = clock, events
        self._ids: dict[str, str] = {}
        self._told: set[frozenset[str]] = set()

    async def confirm(self, runner: FlowRunner, settings: FlowSettings) -> None:
        """Wait until each cluster that connectors name in another way is the one that the flow uses. *runner* shows why
        it waits: such a cluster does not answer, or is another one.
        """
        told = ""
        for named in settings.named_again:
            while (error := await self._compared(runner, settings, named)) is not None:
                runner.hold(error)
                if str(error) != told:
                    told = str(error)
                    self._events.emit(FlowFailed(settings.flow, told, error.hint))
                await self._clock.sleep(_LOOK_EVERY_S)
            runner.hold(None)

    async def _compared(
        self, runner: FlowRunner, settings: FlowSettings, named: NamedAgain
    ) -> OtherClusterError | None:
        used = settings.source if named.endpoint.alias == settings.flow.source else settings.target
        # Whether another address answers says nothing of the flow's own cluster.
        beside = Reach(settings.flow, self._clock, self._events, random.random)
        asked = ((beside, named.endpoint), (runner.reach, used))
        found = [await self._asked(reach, endpoint, runner) for reach, endpoint in asked]
        if found[0] == found[1]:
            return None
        shown = [",".join(endpoint.bootstrap_servers) for endpoint in (named.endpoint, used)]
        return OtherClusterError(named.where, named.key, shown[0], found[0], shown[1], found[1])

    async def _asked(self, reach: Reach, endpoint: ClusterEndpoint, runner: FlowRunner) -> str:
        async def ask() -> str:
            async with Cluster(endpoint, self._clock) as cluster:
                return cluster.metadata.cluster_id or ""

        return await reach.insist("ask which cluster it is", [endpoint.alias], ask, told=runner.hold)

    def learn(self, flow: Flow, source: str | None, target: str | None) -> None:
        """Note which clusters *flow* has reached, and report aliases of one cluster. Raise FlowsFeedEachOtherError if
        it is part of a replication loop, now that they are known.
        """
        self._ids |= {alias: found for alias, found in ((flow.source, source), (flow.target, target)) if found}
        shared = [others for alias in flow.aliases if len(others := self._of_one_cluster(alias)) > 1]
        for others in shared:
            if others not in self._told:
                self._told.add(others)
                self._events.emit(ClustersAreOne(tuple(sorted(others)), self._ids[min(others)]))
        if not shared:
            return  # what addresses tell has been judged
        try:
            judged(self._settings(), self._ids)
        except ConfigError as error:
            problem = error.problems[0]
            raise FlowsFeedEachOtherError(f"{problem.message} ({problem.hint})") from error

    def _of_one_cluster(self, alias: str) -> frozenset[str]:
        used = {it for settings in self._settings().flows for it in settings.flow.aliases}
        return frozenset(it for it in used if it in self._ids and self._ids[it] == self._ids.get(alias))
