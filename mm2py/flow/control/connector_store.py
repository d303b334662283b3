"""
The connectors in a worker's config topic, followed and changed.

The topic has one partition, so all workers, Java's too, see its records in the same order. It is read to its end every
second. What is written counts once it has been read back from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from mm2py.clock import Clock
from mm2py.config.flow_settings import StorageSettings
from mm2py.errors import ConnectorsNotStoredError, Mm2Error
from mm2py.model.connector_configs import (
    ConnectorsTopic,
    KeyValue,
    RestartRequest,
    StoredConnector,
    config_record,
    state_record,
)
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.foreign import UnreadableRecord
from mm2py.model.topic import is_other_topic
from mm2py.telemetry.events import ConnectorRecordUnreadable, ConnectorsRead, ConnectorsRefilled
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import LogRecord, TopicLog


_POLL_S: Final = 1.0
#: Time limit for one write, read back.
_LIMIT_S: Final = 20.0
_SETTING: Final = "config.storage.replication.factor"


class ConnectorStore:
    """
    The connectors that the topic holds, as last read.

    *on_change* gets the names of connectors whose records came, and *on_restart* requests that came after the first
    reading.
    """

    def __init__(
        self,
        endpoint: ClusterEndpoint,
        storage: StorageSettings,
        *,
        clock: Clock,
        events: EventLog,
        on_change: Callable[[frozenset[str]], None],
        on_restart: Callable[[RestartRequest], None],
    ) -> None:
        self.connectors: Mapping[str, StoredConnector] = {}
        self.is_read = False
        self.cluster_id = ""
        self._endpoint = endpoint
        self._storage = storage
        self._clock = clock
        self._events = events
        self._on_change = on_change
        self._on_restart = on_restart
        self._topic = ConnectorsTopic()
        self._read_to = 0
        self._topic_id: str | None = None
        self._turn = asyncio.Lock()
        #: The topic, while its cluster is connected.
        self._log: TopicLog | None = None

    async def follow(self) -> None:
        """Follow the topic until an error, or until cancelled; create it if it is missing."""
        async with Cluster(self._endpoint, self._clock) as cluster:
            log = TopicLog(cluster, self._storage.topic)
            try:
                while True:
                    async with self._turn:
                        await self._catch_up(cluster, log)
                        self._log = log
                    await self._clock.sleep(_POLL_S)
            finally:
                self._log = None

    async def write(self, *records: KeyValue) -> None:
        """Write *records*, and read them back. Raise ConnectorsNotStoredError if that is uncertain."""
        try:
            async with asyncio.timeout(_LIMIT_S), self._turn:
                log = self._reading()
                await log.append([LogRecord(key, value, partition=0) for key, value in records])
                await self._catch_up(log.cluster, log)
        except TimeoutError as error:
            raise self._not_stored(f"no answer in {_LIMIT_S:g} s") from error
        except Mm2Error as error:
            raise self._not_stored(str(error)) from error

    async def refresh(self) -> None:
        """Read the topic to its present end. Raise ConnectorsNotStoredError if that fails."""
        await self.write()

    def _reading(self) -> TopicLog:
        if self._log is None or not self.is_read:
            raise self._not_stored("its topic has not been read yet")
        return self._log

    def _not_stored(self, cause: str) -> ConnectorsNotStoredError:
        return ConnectorsNotStoredError(self._endpoint.alias, self._storage.topic, cause)

    async def _catch_up(self, cluster: Cluster, log: TopicLog) -> None:
        await cluster.refresh_metadata({log.topic})
        was_made = False
        if not cluster.partitions_of(log.topic):
            was_made = await log.ensure(1, self._storage.replication_factor, setting=_SETTING)
        before, seen = self.connectors, cluster.topic_id(log.topic)
        is_other = is_other_topic(self._topic_id, seen) or (was_made and self.is_read)
        if is_other:
            self._topic, self._read_to = ConnectorsTopic(), 0
        names, restarts = await self._read_on(log)
        if is_other and before and not self._topic.connectors:
            # It was deleted, and nothing was written since.
            await log.append([LogRecord(key, value, partition=0) for key, value in _contents(before)])
            names |= (await self._read_on(log))[0]
            self._events.emit(ConnectorsRefilled(log.topic, cluster.alias, len(before)))
        self._topic_id = seen or self._topic_id
        self._settle(cluster, names | ({*before, *self._topic.connectors} if is_other else set()), restarts)

    async def _read_on(self, log: TopicLog) -> tuple[set[str], list[RestartRequest]]:
        names: set[str] = set()
        restarts: list[RestartRequest] = []
        async for records in log.read_from({0: self._read_to}):
            for record in records:
                self._read_to = (record.offset or 0) + 1
                found = self._topic.take(record.key, record.value)
                if isinstance(found, UnreadableRecord):
                    self._events.emit(ConnectorRecordUnreadable(log.topic, record.offset or 0, found.problem))
                elif isinstance(found, RestartRequest):
                    restarts.append(found)
                elif found is not None:
                    names.add(found)
        return names, restarts

    def _settle(self, cluster: Cluster, names: set[str], restarts: list[RestartRequest]) -> None:
        """Use what was read."""
        is_first, self.is_read = not self.is_read, True
        self.cluster_id = cluster.metadata.cluster_id or self.cluster_id
        if names or is_first:
            self.connectors = self._topic.connectors
        if is_first:
            self._events.emit(ConnectorsRead(self._storage.topic, cluster.alias, tuple(self.connectors)))
        if names or is_first:
            self._on_change(frozenset(names))
        for request in restarts if not is_first else ():
            self._on_restart(request)


def _contents(connectors: Mapping[str, StoredConnector]) -> list[KeyValue]:
    return [
        record
        for name, one in connectors.items()
        for record in (state_record(name, one.wanted), config_record(name, one.config))
    ]
