"""
Where a flow's records went, for a node that does not follow what is copied: by what is stored of it.

The source group of a flow stores its runs beside its positions. Offset syncs are what any source connector of the pair
leaves, one of Java's too; a checkpoint connector without a source connector beside it has nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing

from mm2py.clock import Clock
from mm2py.config.connector import MirrorCheckpointConfig
from mm2py.connectors.offsets.translations import Translations
from mm2py.connectors.plugins import policy_of, remote_names_of
from mm2py.core.offsets.translation import Untranslated
from mm2py.errors import BrokerAnsweredError
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.foreign import UnreadableRecord
from mm2py.model.offset_sync import MalformedOffsetSyncError, OffsetSync, decode_offset_sync
from mm2py.model.positions_topic import PositionsTopic
from mm2py.model.topic import is_other_topic
from mm2py.storage.unreadable_records import PassedOver
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import LogRecord, TopicLog


#: Where offset syncs are, as in Java, regardless of the topic's number of partitions.
SYNCS_PARTITION = 0
#: Retry interval for a topic that is missing, or may not be read.
_REFUSED_S = 60.0
#: After so many partitions others have a turn of the event loop.
_PARTITIONS_A_TURN = 500


class StoredTranslations(ABC):
    """Translations that are read from a topic, each time what was added."""

    def __init__(self, cluster: Cluster, topic: str, clock: Clock) -> None:
        """Create them for a *topic* of an open *cluster*."""
        #: What is known of them; None before something was read.
        self.translations: Translations | None = None
        self._clock = clock
        self._cluster = cluster
        self._log = TopicLog(cluster, topic)
        self._topic_id: str | None = None
        self._read_to: dict[int, int] = {}
        self._not_before = 0.0

    async def refresh(self) -> None:
        """Read what was stored since the last time; raises the cluster's error."""
        if self._clock.monotonic() < self._not_before:
            return
        try:
            await self._cluster.refresh_metadata({self._log.topic})
            topic_id = self._cluster.topic_id(self._log.topic)
            if is_other_topic(self._topic_id, topic_id):
                self._read_to = {}
                self._begin_again()
            self._topic_id = topic_id or self._topic_id
            await self._read()
        except BrokerAnsweredError:
            self._not_before = self._clock.monotonic() + _REFUSED_S
            raise
        self.translations = await self._made()

    async def _read(self) -> None:
        async with aclosing(self._log.read_from(self._read_to)) as chunks:
            async for records in chunks:
                self._take(records)
                for record in records:
                    if record.partition is not None and record.offset is not None:
                        self._read_to[record.partition] = record.offset + 1
                await self._clock.sleep(0)  # there may be millions

    @abstractmethod
    def _begin_again(self) -> None:
        """Forget what was read: it is of a topic that is gone."""

    @abstractmethod
    def _take(self, records: Sequence[LogRecord]) -> None:
        """Add *records* of the topic, in order."""

    @abstractmethod
    async def _made(self) -> Translations:
        """Return the translations by all that was read."""


class StoredRuns(StoredTranslations):
    """The translations of *flow* that its source *connector* stores on *cluster*, its target, in the positions *topic*.
    They are as old as the last flush of positions; records copied since count as not copied yet. *names* returns the
    naming of the flow's remote topics, and is called again for new records, because settings may be reloaded.
    """

    def __init__(
        self,
        flow: Flow,
        cluster: Cluster,
        names: Callable[[], Callable[[str], str]],
        *,
        topic: str,
        connector: str,
        clock: Clock,
    ) -> None:
        super().__init__(cluster, topic, clock)
        self._flow, self._connector = flow, connector
        self._names = names
        #: Whether more is stored than `translations` have, also after a read that failed or was cancelled.
        self._has_news = False
        self._begin_again()

    def _begin_again(self) -> None:
        self._stored = PositionsTopic(self._flow.source, self._connector)

    def _take(self, records: Sequence[LogRecord]) -> None:
        found = [self._stored.take(record) for record in records]
        self._has_news |= any(one is not None and not isinstance(one, UnreadableRecord) for one in found)

    async def _made(self) -> Translations:
        if self.translations is not None and not self._has_news:
            return self.translations
        translations = Translations()
        translations.load(self._stored.chunks.values())
        name_remote = self._names()
        sources = list(self._stored.positions)
        for at in range(0, len(sources) or 1, _PARTITIONS_A_TURN):
            remote_of = {it: name_remote(it.topic) for it in sources[at : at + _PARTITIONS_A_TURN]}
            translations.adopt(self._stored.positions, remote_of)
            await self._clock.sleep(0)
        self._has_news = False
        return translations


class StoredSyncs(StoredTranslations):
    """
    The offset syncs of a pair, where the checkpoint connector's own config says that they are.

    A topic that does not exist yet has none: its source connector may not have started. As in Java, only a sync at or
    below an offset counts, and past it no more than the next record. Syncs of ours say of which remote topic they are.
    Others are of the one that there is when a partition's first one is read: of one that is created again they tell
    nothing, until one comes that begins again.
    """

    def __init__(
        self, config: MirrorCheckpointConfig, source: Cluster, target: Cluster, *, passed_over: PassedOver, clock: Clock
    ) -> None:
        side, other = config.syncs_at
        topic = policy_of(config).offset_syncs_topic(other)
        super().__init__(source if side == "source" else target, topic, clock)
        self._target = target
        self._name_remote = remote_names_of(config)
        self._passed_over = passed_over
        self._begin_again()
        self.translations = self._known

    def _begin_again(self) -> None:
        self._known = Translations(unknown=Untranslated.NO_SYNC)
        self._newest: dict[TopicPartition, OffsetSync] = {}
        #: Those with a first sync, or one that went back, whose remote topic is not known yet.
        self._begun: set[TopicPartition] = set()

    async def _read(self) -> None:
        described = self._cluster.metadata.topics.get(self._log.topic)
        if described is None or described.is_missing:
            return
        await super()._read()

    def _take(self, records: Sequence[LogRecord]) -> None:
        strange: list[tuple[LogRecord, str]] = []
        for sync in syncs_in(records, strange):
            before = self._newest.get(sync.source)
            if before is None or sync.upstream < before.upstream or sync.downstream < before.downstream:
                self._begun.add(sync.source)
            self._newest[sync.source] = sync
            self._known.learn(sync)
            if sync.remote_topic_id is not None:
                self._known.note_remote(sync.source, sync.remote_topic_id)
        self._passed_over.note(self._log.topic, strange)

    async def _made(self) -> Translations:
        remote_of = {source: self._name_remote(source.topic) for source in self._begun}
        self._known.adopt({}, remote_of)
        untold = {it: remote for it, remote in remote_of.items() if self._newest[it].remote_topic_id is None}
        self._begun.intersection_update(untold)
        if untold:
            await self._target.refresh_metadata(set(untold.values()))
        for source, remote in untold.items():
            remote_topic_id = self._target.topic_id(remote)
            self._known.note_remote(source, remote_topic_id)
            if remote_topic_id is not None:
                self._begun.discard(source)
        return self._known


def syncs_in(records: Iterable[LogRecord], strange: list[tuple[LogRecord, str]]) -> Iterator[OffsetSync]:
    """Return the offset syncs among *records*; invalid ones go to *strange*, without their content."""
    for record in records:
        if record.partition == SYNCS_PARTITION:
            try:
                sync = decode_offset_sync(record.key, record.value, record.headers)
            except MalformedOffsetSyncError as error:
                strange.append((LogRecord(None, None, (), record.partition, record.offset), error.reason))
                continue
            yield sync
