"""
Where a pair's records went, as rounds of checkpoints know it, those of the pair itself and of the other direction.

What a source connector on this node has in memory is up to date, if it follows what every node copies. It does not
while other nodes run the flow, while it is stopped, where it was paused from the start, nor while a later life of it
has not read yet: then what is stored counts. Without a source connector that is offset syncs alone, by which a store of
that name translates in Java.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import attrs

from mm2py.connectors.offsets.stored_translations import StoredTranslations
from mm2py.connectors.offsets.translations import CopiedTopics, Translations
from mm2py.core.offsets.translation import Translation, Untranslated
from mm2py.model.flow import TopicPartition


@attrs.frozen
class OfConnector:
    """
    Where what is known of one source connector comes from.

    *live* returns its translations in memory, None while they do not count; *read* begins to read what is stored.
    """

    live: Callable[[], Translations | None]
    read: Callable[[], StoredTranslations]


class OffsetSyncStore:
    """Translates offsets by what is known of a pair's source connectors, as of the last `refresh`."""

    def __init__(self, connectors: Callable[[], Mapping[Hashable, OfConnector]]) -> None:
        """Create them. *connectors* returns the pair's source connectors, which come and go, each by what is read of
        it.
        """
        self._connectors = connectors
        self._lent: dict[Hashable, Translations] = {}
        self._stored: dict[Hashable, StoredTranslations] = {}

    async def refresh(self) -> None:
        """Refresh them before a round: a flow's nodes share it in another way from time to time."""
        connectors = self._connectors()
        lent = {key: live for key, one in connectors.items() if (live := one.live()) is not None}
        stored = {key: one for key, one in connectors.items() if key not in lent}
        self._lent = lent
        self._stored = {key: self._stored.get(key) or one.read() for key, one in stored.items()}
        for one in self._stored.values():
            await one.refresh()

    @property
    def _known(self) -> list[Translations]:
        """What is known of each, what could be read before a failure too."""
        read = (stored.translations for stored in self._stored.values())
        return [*self._lent.values(), *(known for known in read if known is not None)]

    def source_of(self, remote: TopicPartition) -> TopicPartition | None:
        """
        Return the origin of the *remote* partition; None if nothing is known yet.

        A router of the flow may have renamed the topic, so that the remote one's name does not tell.
        """
        return next(filter(None, (known.source_of(remote) for known in self._known)), None)

    def upstream(self, remote: TopicPartition, offset: int) -> Translation:
        """Translate an offset of the *remote* partition, or return why not."""
        source = self.source_of(remote)
        known = None if source is None else self._copier_of(source)
        if known is None:
            return self._unknown(lambda one: one.upstream(remote, offset))
        return known.upstream(remote, offset)

    def downstream(self, source: TopicPartition, offset: int) -> Translation:
        """Translate an offset of the *source* partition, or return why not."""
        known = self._copier_of(source)
        if known is None:
            return self._unknown(lambda one: one.downstream(source, offset))
        return known.downstream(source, offset)

    def topics_of(self, source: TopicPartition) -> CopiedTopics:
        """Return of which topics the translations of a *source* partition are."""
        known = self._copier_of(source)
        return CopiedTopics() if known is None else known.topics_of(source)

    def _copier_of(self, source: TopicPartition) -> Translations | None:
        """Return what is known by the connector that copied a partition last: one may have left it to another."""
        knowing = [known for known in self._known if known.knows(source)]
        return max(knowing, key=lambda known: known.covered_to(source), default=None)

    def _unknown(self, translate: Callable[[Translations], Translation]) -> Translation:
        """Return why nothing is known of a partition: some of it may be read yet."""
        found = [translate(known) for known in self._known] or [Untranslated.NOT_MIRRORED]
        return Untranslated.NOT_READY if Untranslated.NOT_READY in found else found[0]
