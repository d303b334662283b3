"""Reverse translation: the origin of records that a source got from its target. The flow in the other direction has
it. If this node runs that flow, its translations in memory are used; if another node does, the translations that it
stores with its positions, on our source cluster, are read before each round that needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing, suppress
from functools import partial

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.core.offsets.translation import Translation, Untranslated
from mm2py.errors import BrokerAnsweredError
from mm2py.flow.offsets.translations import Translations
from mm2py.flow.plugins import remote_names_of
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.foreign import UnreadableRecord
from mm2py.model.positions_topic import PositionsTopic
from mm2py.model.topic import is_other_topic
from mm2py.policy.plugins import PluginError
from mm2py.policy.replication import ReplicationPolicy
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import LogRecord, TopicLog


#: Retry interval for a topic that is missing, or may not be read.
_REFUSED_S = 60.0


class ReverseTranslation:
    """Translates offsets of records that came from the target, by the translations *lent* of a flow that this node
    runs: always up to date. A reload may replace them.
    """

    def __init__(self, lent: Callable[[], Translations | None]) -> None:
        self._lent = lent

    async def refresh(self) -> None:
        """Refresh it before a round; raises the cluster's error."""

    def source_of(self, remote: TopicPartition) -> TopicPartition | None:
        """
        Return the origin of the *remote* partition; None if nothing is known yet.

        A router of that flow may have renamed the topic, so that the remote one's name does not tell.
        """
        lent = self._lent()
        return None if lent is None else lent.source_of(remote)

    def __call__(self, remote: TopicPartition, offset: int) -> Translation:
        """Translate an offset of the *remote* partition, or return why not."""
        lent = self._lent()
        return Untranslated.NOT_MIRRORED if lent is None else lent.upstream(remote, offset)


class StoredTranslations(ReverseTranslation):
    """The translations that another node stores for *flow* on *cluster*, which is that flow's target. They are as old
    as its last flush of positions; records copied since count as not copied yet. *names* returns the naming of that
    flow's remote topics, and is called again for new records, because settings may be reloaded.
    """

    def __init__(
        self,
        flow: Flow,
        cluster: Cluster,
        names: Callable[[], Callable[[str], str]],
        *,
        flow_runs: int,
        partition_runs: int,
        clock: Clock,
    ) -> None:
        super().__init__(lambda: self._translations)
        self._flow = flow
        self._names = names
        self._sizes = (flow_runs, partition_runs)
        self._clock = clock
        self._cluster = cluster
        self._log = TopicLog(cluster, f"mm2-offsets.{flow.source}.internal")
        self._topic_id: str | None = None
        self._read_to: dict[int, int] = {}
        self._stored = PositionsTopic(flow.source)
        self._translations: Translations | None = None
        self._not_before = 0.0

    async def refresh(self) -> None:
        if self._clock.monotonic() < self._not_before:
            return
        has_news = False
        try:
            await self._cluster.refresh_metadata({self._log.topic})
            topic_id = self._cluster.topic_id(self._log.topic)
            if is_other_topic(self._topic_id, topic_id):
                self._read_to, self._stored = {}, PositionsTopic(self._flow.source)
            self._topic_id = topic_id or self._topic_id
            async with aclosing(self._log.read_from(self._read_to)) as chunks:
                async for records in chunks:
                    for record in records:
                        has_news |= self._take(record)
        except BrokerAnsweredError:
            self._not_before = self._clock.monotonic() + _REFUSED_S
            raise
        if has_news:
            self._translations = self._made()

    def _take(self, record: LogRecord) -> bool:
        """Add one record of the positions topic; return whether it has news."""
        if record.partition is not None and record.offset is not None:
            self._read_to[record.partition] = record.offset + 1
        found = self._stored.take(record)
        return found is not None and not isinstance(found, UnreadableRecord)

    def _made(self) -> Translations:
        flow_runs, partition_runs = self._sizes
        translations = Translations(flow_runs=flow_runs, partition_runs=partition_runs)
        translations.load(self._stored.chunks.values())
        name_remote = self._names()
        remote_of = {source: name_remote(source.topic) for source in self._stored.positions}
        translations.adopt(self._stored.positions, remote_of)
        return translations


class ReverseFlow:
    """The flow in the other direction of the one with *settings*, as far as this node knows it."""

    def __init__(self, settings: FlowSettings, clock: Clock) -> None:
        #: What it knows, where this node runs it.
        self.translations: Translations | None = None
        #: Its settings in this node's file; None if it is not there.
        self.settings: FlowSettings | None = None
        self._flow = settings.flow
        self._sizes = settings.offset_syncs
        self._clock = clock

    def translation(self, source: Cluster, policy: ReplicationPolicy) -> ReverseTranslation:
        """Return what it knows of where records came from: lent in this node, or as another node keeps it."""
        if self.translations is not None:
            return ReverseTranslation(lambda: self.translations)
        return StoredTranslations(
            Flow(self._flow.target, self._flow.source),
            source,
            partial(self._names_at_source, policy),
            flow_runs=self._sizes.flow_runs_max,
            partition_runs=self._sizes.partition_runs_max,
            clock=self._clock,
        )

    def _names_at_source(self, policy: ReplicationPolicy) -> Callable[[str], str]:
        """Return what names the topics that it brings to our source."""
        if self.settings is not None:
            # Where classes of its own are at another node only, ours name its topics.
            with suppress(PluginError):
                return remote_names_of(self.settings)
        return partial(policy.format_remote_topic, self._flow.target)
