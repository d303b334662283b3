"""
What a flow remembers of the configs and access control entries that it put on the target.

It is kept in a compacted topic on the target cluster (see `mm2py.model.synced`) and read once. What is about to be
sent is written down before it is sent: of what a crash leaves behind, everything is known as the mirror's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from mm2py.config.settings import FlowSettings
from mm2py.model.acl import TopicAcl
from mm2py.model.synced import (
    ForgottenAcl,
    ForgottenConfig,
    Synced,
    SyncedAcl,
    SyncedConfig,
    decode_synced,
    encode_synced,
    synced_topic,
)
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import LogRecord, TopicLog


class SyncedMemory:
    """
    The memory of one flow. Until `load` has succeeded it must not be asked.

    Each entry has one writer: who creates topics and who keeps their configs take turns, ACLs are another's.
    """

    def __init__(self, settings: FlowSettings, target: Cluster) -> None:
        self._replication_factor = settings.offset_storage_replication_factor
        self._log = TopicLog(target, synced_topic(settings.flow.source))
        self._loading = asyncio.Lock()
        self._is_loaded = False
        self._configs: dict[str, dict[str, tuple[str, ...]]] = {}
        self._acls: set[TopicAcl] = set()

    async def load(self) -> None:
        """Read the topic, once; create it where there is none."""
        async with self._loading:
            if self._is_loaded:
                return
            await self._log.ensure(1, self._replication_factor, setting="offset.storage.replication.factor")
            for record in await self._log.read_all():
                entry = decode_synced(record.key, record.value)
                if entry is not None:
                    self._take(entry)
            self._is_loaded = True

    def configs_of(self, remote_topic: str) -> Mapping[str, tuple[str, ...]]:
        """Give the values by key that the mirror put on a remote topic."""
        return self._configs.get(remote_topic, {})

    @property
    def acls(self) -> frozenset[TopicAcl]:
        """The entries that the mirror created."""
        return frozenset(self._acls)

    async def write(self, entries: Sequence[Synced]) -> None:
        """Remember *entries* and wait until they are safe."""
        await self._log.append([LogRecord(*encode_synced(entry)) for entry in entries])
        for entry in entries:
            self._take(entry)

    def _take(self, entry: Synced) -> None:
        match entry:
            case SyncedConfig(topic, key, values):
                self._configs.setdefault(topic, {})[key] = values
            case ForgottenConfig(topic, key):
                self._configs.get(topic, {}).pop(key, None)
            case SyncedAcl(acl):
                self._acls.add(acl)
            case ForgottenAcl(acl):
                self._acls.discard(acl)
