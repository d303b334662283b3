"""Reverse translation: the origin of records that a source got from its target. The flow in the other direction has
it: in memory, or stored with its positions, on our source cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from mm2py.clock import Clock
from mm2py.config.source import MirrorSourceConfig
from mm2py.connectors.offsets.offset_sync_store import OffsetSyncStore
from mm2py.connectors.offsets.stored_translations import StoredRuns
from mm2py.connectors.offsets.translations import Translations
from mm2py.connectors.plugins import remote_names_of
from mm2py.model.connector_offset import SOURCE
from mm2py.model.flow import Flow
from mm2py.policy.plugins import PluginError
from mm2py.policy.replication import ReplicationPolicy
from mm2py.wire.cluster import Cluster


class ReverseFlow:
    """The flow in the other direction of *flow*, as far as this node knows it."""

    def __init__(self, flow: Flow, clock: Clock) -> None:
        #: Returns its translations in memory, None while they do not count, or if this node does not run it.
        self.live: Callable[[], Translations | None] = lambda: None
        #: Its config in this node's file; None if it is not there.
        self.config: MirrorSourceConfig | None = None
        self._flow = flow
        self._clock = clock

    def translations(self, source: Cluster, policy: ReplicationPolicy) -> OffsetSyncStore:
        """Return what is known of where records of our *source* came from."""
        return OffsetSyncStore(self._live_now, partial(self._stored, source, policy))

    def _live_now(self) -> Translations | None:
        return self.live()  # a reload replaces it

    def _stored(self, source: Cluster, policy: ReplicationPolicy) -> StoredRuns:
        other, config = Flow(self._flow.target, self._flow.source), self.config
        return StoredRuns(
            other,
            source,
            partial(self._names_at_source, policy),
            topic=f"mm2-offsets.{other.source}.internal" if config is None else config.offset_storage.topic,
            connector=SOURCE if config is None else config.name,
            clock=self._clock,
        )

    def _names_at_source(self, policy: ReplicationPolicy) -> Callable[[str], str]:
        """Return what names the topics that it brings to our source."""
        if self.config is not None:
            # Where classes of its own are at another node only, ours name its topics.
            with suppress(PluginError):
                return remote_names_of(self.config)
        return partial(policy.format_remote_topic, self._flow.target)
