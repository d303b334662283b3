"""
Where a flow's records went, as rounds of checkpoints know it, those of the flow itself and of the other direction.

What the flow's source group on this node has in memory is up to date, if it follows what every node copies. It does not
while other nodes run the flow, nor where it was paused or stopped from the start: then what is stored counts. Without a
source group that is offset syncs alone, by which a store of that name translates in Java.
"""

from __future__ import annotations

from collections.abc import Callable

from mm2py.connectors.offsets.stored_translations import StoredTranslations
from mm2py.connectors.offsets.translations import CopiedTopics, Translations
from mm2py.core.offsets.translation import Translation, Untranslated
from mm2py.model.flow import TopicPartition


class OffsetSyncStore:
    """Translates offsets by what is known of a flow, as of the last `refresh`."""

    def __init__(self, live: Callable[[], Translations | None], read: Callable[[], StoredTranslations]) -> None:
        """Create them. *live* returns the ones in memory, None while they do not count; *read* begins to read what is
        stored.
        """
        self._live = live
        self._read = read
        self._lent: Translations | None = None
        self._stored: StoredTranslations | None = None

    async def refresh(self) -> None:
        """Refresh them before a round: a flow's nodes share it in another way from time to time."""
        self._lent = self._live()
        if self._lent is not None:
            self._stored = None
            return
        if self._stored is None:
            self._stored = self._read()
        await self._stored.refresh()

    @property
    def _known(self) -> Translations | None:
        return self._lent if self._stored is None else self._stored.translations

    def source_of(self, remote: TopicPartition) -> TopicPartition | None:
        """
        Return the origin of the *remote* partition; None if nothing is known yet.

        A router of the flow may have renamed the topic, so that the remote one's name does not tell.
        """
        known = self._known
        return None if known is None else known.source_of(remote)

    def upstream(self, remote: TopicPartition, offset: int) -> Translation:
        """Translate an offset of the *remote* partition, or return why not."""
        known = self._known
        return Untranslated.NOT_MIRRORED if known is None else known.upstream(remote, offset)

    def downstream(self, source: TopicPartition, offset: int) -> Translation:
        """Translate an offset of the *source* partition, or return why not."""
        known = self._known
        return Untranslated.NOT_MIRRORED if known is None else known.downstream(source, offset)

    def topics_of(self, source: TopicPartition) -> CopiedTopics:
        """Return of which topics the translations of a *source* partition are."""
        known = self._known
        return CopiedTopics() if known is None else known.topics_of(source)
