"""Where a flow's records went, as its source group has stored it, for a node that does not follow what is copied."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

from mm2py.clock import Clock
from mm2py.connectors.offsets.translations import Translations
from mm2py.errors import BrokerAnsweredError
from mm2py.model.flow import Flow
from mm2py.model.foreign import UnreadableRecord
from mm2py.model.positions_topic import PositionsTopic
from mm2py.model.topic import is_other_topic
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import LogRecord, TopicLog


#: Retry interval for a topic that is missing, or may not be read.
_REFUSED_S = 60.0
#: After so many partitions others have a turn of the event loop.
_PARTITIONS_A_TURN = 500


class StoredTranslations:
    """The translations of *flow* that are stored on *cluster*, which is its target, in the *topic* of its positions.
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
        clock: Clock,
    ) -> None:
        #: What is known of them; None before something was read.
        self.translations: Translations | None = None
        self._flow = flow
        self._names = names
        self._clock = clock
        self._cluster = cluster
        self._log = TopicLog(cluster, topic)
        self._topic_id: str | None = None
        self._read_to: dict[int, int] = {}
        self._stored = PositionsTopic(flow.source)
        #: Whether more is stored than `translations` have, also after a read that failed or was cancelled.
        self._has_news = False
        self._not_before = 0.0

    async def refresh(self) -> None:
        """Read what was stored since the last time; raises the cluster's error."""
        if self._clock.monotonic() < self._not_before:
            return
        try:
            await self._cluster.refresh_metadata({self._log.topic})
            topic_id = self._cluster.topic_id(self._log.topic)
            if is_other_topic(self._topic_id, topic_id):
                self._read_to, self._stored = {}, PositionsTopic(self._flow.source)
            self._topic_id = topic_id or self._topic_id
            async with aclosing(self._log.read_from(self._read_to)) as chunks:
                async for records in chunks:
                    for record in records:
                        self._take(record)
        except BrokerAnsweredError:
            self._not_before = self._clock.monotonic() + _REFUSED_S
            raise
        if self._has_news:
            self.translations = await self._made()
            self._has_news = False

    def _take(self, record: LogRecord) -> None:
        """Add one record of the positions topic."""
        if record.partition is not None and record.offset is not None:
            self._read_to[record.partition] = record.offset + 1
        found = self._stored.take(record)
        self._has_news |= found is not None and not isinstance(found, UnreadableRecord)

    async def _made(self) -> Translations:
        translations = Translations()
        translations.load(self._stored.chunks.values())
        name_remote = self._names()
        sources = list(self._stored.positions)
        for at in range(0, len(sources) or 1, _PARTITIONS_A_TURN):
            remote_of = {it: name_remote(it.topic) for it in sources[at : at + _PARTITIONS_A_TURN]}
            translations.adopt(self._stored.positions, remote_of)
            await self._clock.sleep(0)
        return translations
