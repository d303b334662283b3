"""Reverse translation: the origin of records that a source got from its target. The pair in the other direction has
it: in memory, or stored with its positions, on our source cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import partial

from mm2py.clock import Clock
from mm2py.connectors.offsets.offset_sync_store import OfConnector, OffsetSyncStore
from mm2py.connectors.offsets.stored_translations import StoredRuns
from mm2py.connectors.pair import Pairs
from mm2py.connectors.plugins import remote_names_of
from mm2py.model.connector_offset import SOURCE
from mm2py.model.flow import Flow
from mm2py.policy.plugins import PluginError
from mm2py.policy.replication import ReplicationPolicy
from mm2py.wire.cluster import Cluster


class ReversePair:
    """The pair in the other direction of *flow*, as far as this node knows it."""

    def __init__(self, flow: Flow, pairs: Pairs, clock: Clock) -> None:
        self._pair = flow.pair.reverse
        self._pairs = pairs
        self._clock = clock

    def translations(self, source: Cluster, policy: ReplicationPolicy) -> OffsetSyncStore:
        """Return what is known of where records of our *source* came from."""
        return OffsetSyncStore(partial(self._connectors, source, policy))

    def _connectors(self, source: Cluster, policy: ReplicationPolicy) -> Mapping[Hashable, OfConnector]:
        known = self._pairs.sources_of(self._pair)
        if not known:
            topic = f"mm2-offsets.{self._pair.source}.internal"
            read = partial(self._read, source, policy, self._pair, topic, SOURCE)
            return {(topic, SOURCE): OfConnector(lambda: None, read)}
        return {
            (one.flow, topic := one.config.offset_storage.topic, name := one.config.name): OfConnector(
                one.live, partial(self._read, source, policy, one.flow, topic, name)
            )
            for one in known
        }

    def _read(self, source: Cluster, policy: ReplicationPolicy, flow: Flow, topic: str, connector: str) -> StoredRuns:
        names = partial(self._names_at_source, policy, flow)
        return StoredRuns(self._pair, source, names, topic=topic, connector=connector, clock=self._clock)

    def _names_at_source(self, policy: ReplicationPolicy, flow: Flow) -> Callable[[str], str]:
        """Return what names the topics that *flow* brings to our source, by its config of now."""
        for one in self._pairs.sources_of(flow):
            if one.flow == flow:
                # Where classes of its own are at another node only, ours name its topics.
                with suppress(PluginError):
                    return remote_names_of(one.config)
        return partial(policy.format_remote_topic, self._pair.source)
