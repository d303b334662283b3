"""
Offsets of a source cluster to those of its mirror, and back, from what the mirror keeps on the clusters.

A snapshot of the moment when it was read. mm2py's flows leave positions, with the offset at the
target; Java MirrorMaker 2 and mm2py leave offset syncs. They are asked as the flow itself asks what it knows
(`KnownOffsets`). Nothing beyond the present end of the remote partition is given (MirrorMaker gives such offsets, and
groups then have negative lag).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import attrs

from mm2py.core.herder.left_positions import LeftPositions, newest
from mm2py.core.offsets.known_offsets import KnownOffsets, is_void, stored_index
from mm2py.core.offsets.translation import Precision, Translated, Translation, Untranslated
from mm2py.model.flow import TopicPartition
from mm2py.model.offset_sync import MalformedOffsetSyncError, decode_offset_sync
from mm2py.model.positions_topic import PositionsTopic, owner_of
from mm2py.model.topic import is_other_topic
from mm2py.wire.topic_log import LogRecord


@attrs.define(eq=False)
class _Known(KnownOffsets):
    """What is known of one source partition. `synced_ms` is when its newest offset sync was written."""

    synced_ms: int = -1


class KnownPartitions:
    """Collects records of topics, until an `OffsetTranslation` is created from them."""

    def __init__(self, source_alias: str) -> None:
        self.source_alias = source_alias
        self._syncs: list[dict[TopicPartition, _Known]] = []
        #: What each source connector of that cluster has stored, by its name.
        self._stored: dict[str, LeftPositions] = {}

    def begin_syncs(self) -> None:
        """Report that a topic of offset syncs begins; one that moved to the other cluster has two."""
        self._syncs.append({})

    def take_sync(self, record: LogRecord) -> None:
        """Learn an offset sync, in the order of the log."""
        try:
            sync = decode_offset_sync(record.key, record.value, record.headers)
        except MalformedOffsetSyncError:
            return
        known = self._syncs[-1].setdefault(sync.source, _Known())
        known.learn(sync)
        known.synced_ms = record.timestamp_ms or 0

    def take_position(self, record: LogRecord) -> None:
        """Learn a position, or a part of the index that lies beside it; what was removed is forgotten."""
        name, cluster = owner_of(record.key) or ("", "")
        if name and cluster == self.source_alias:
            left = self._stored.setdefault(name, LeftPositions(PositionsTopic(cluster, name)))
            left.take(record, record.timestamp_ms)

    def forget_other_topics(self, ids: Mapping[str, str | None]) -> None:
        """Forget what was kept of topics that have been deleted and created again; *ids* are the present ones."""
        for stored in (left.stored for left in self._stored.values()):
            for source, position in list(stored.positions.items()):
                if is_other_topic(position.topic_id, ids.get(source.topic)):
                    del stored.positions[source]
            for key, kept in list(stored.chunks.items()):
                if is_other_topic(kept.topic_id, ids.get(kept.source.topic)):
                    del stored.chunks[key]

    def forget_other_remotes(self, name_remote: Callable[[str], str], ids: Mapping[str, str | None]) -> None:
        """Forget where records went if the remote topic has been created again since; *ids* are the present ones."""
        for source, newest_of in self._newest().items():
            position = newest_of.stored.positions[source]
            if not is_other_topic(position.remote_topic_id, ids.get(name_remote(source.topic))):
                continue
            for left in self._stored.values():
                left.stored.positions.pop(source, None)
            for topic in self._syncs:
                topic.pop(source, None)
        for topic in self._syncs:
            for source, known in list(topic.items()):
                if is_other_topic(known.synced_topic_id, ids.get(name_remote(source.topic))):
                    del topic[source]

    @property
    def stored(self) -> Collection[TopicPartition]:
        """The source partitions that flows have left anything of."""
        return self._newest().keys() | {source for topic in self._syncs for source in topic}

    def _newest(self) -> dict[TopicPartition, LeftPositions]:
        """Return which connector has the position that counts of each partition; none if that was removed since."""
        found = newest(self._stored.values())
        return {source: left for source, left in found.items() if source in left.stored.positions}

    def known(self) -> dict[TopicPartition, _Known]:
        """Put together what is known of each source partition. An index is of no use without a position."""
        found: dict[TopicPartition, _Known] = {}
        for topic in self._syncs:
            for source, known in topic.items():
                if source not in found or found[source].synced_ms < known.synced_ms:
                    found[source] = known
        for source, left in self._newest().items():
            position = left.stored.positions[source]
            index = stored_index(tuple(left.chunks_of(source)), position)
            if index is not None:
                known = found.setdefault(source, _Known())
                known.index = index
                if known.syncs is not None and is_void(known.syncs, position):
                    known.syncs = None
        return found


class OffsetTranslation:
    """
    Translates offsets as groups commit them: of the next record to read. It makes no more requests.

    A translation is `Translated`, an offset and how precise it is, or `Untranslated`, the reason why there is none. It
    is never ahead: a group that continues there may read records again, but skips none.
    """

    def __init__(
        self, gathered: KnownPartitions, name_remote: Callable[[str], str], remote_ends: Mapping[TopicPartition, int]
    ) -> None:
        self.source_alias = gathered.source_alias
        self._known = gathered.known()
        self._remote_ends = dict(remote_ends)
        self._remote_of = remote_partitions(self._known, name_remote)
        self._source_of = {remote: source for source, remote in self._remote_of.items()}

    @property
    def partitions(self) -> Mapping[TopicPartition, TopicPartition]:
        """The source partitions that something is known of, with the remote ones."""
        return dict(self._remote_of)

    def remote_of(self, source: TopicPartition) -> TopicPartition | None:
        """Return the remote partition of a *source* partition, None where nothing is known of it."""
        return self._remote_of.get(source)

    def source_of(self, remote: TopicPartition) -> TopicPartition | None:
        """Return the source partition of a *remote* one, None where nothing is known of it."""
        return self._source_of.get(remote)

    def downstream(self, source: TopicPartition, offset: int) -> Translation:
        """Translate an *offset* of a *source* partition to the remote one."""
        _check(offset)
        known = self._known.get(source)
        if known is None:
            return Untranslated.NOT_MIRRORED
        return _limited(known.downstream(offset), self._remote_ends.get(self._remote_of[source]))

    def upstream(self, remote: TopicPartition, offset: int) -> Translation:
        """Translate an *offset* of a *remote* partition back to the source's, for the way back after a failover."""
        _check(offset)
        source = self._source_of.get(remote)
        if source is None:
            return Untranslated.NOT_MIRRORED
        return self._known[source].upstream(offset)


def remote_partitions(
    sources: Collection[TopicPartition], name_remote: Callable[[str], str]
) -> dict[TopicPartition, TopicPartition]:
    """Name the remote partition of each of *sources*."""
    return {tp: TopicPartition(name_remote(tp.topic), tp.partition) for tp in sources}


def _limited(answer: Translation, end: int | None) -> Translation:
    if end is not None and isinstance(answer, Translated) and answer.offset > end:
        return Translated(end, Precision.END)
    return answer


def _check(offset: int) -> None:
    if offset < 0:
        raise ValueError(f"offset must not be negative, as {offset} is")
