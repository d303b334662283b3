"""
The connectors in a worker's config topic, followed and changed.

The topic has one partition, so all workers, Java's too, see its records in the same order. It is read to its end every
second. What is written counts once it has been read back from there. Workers change it one at a time, under the
transactional id of Java's leader: a. A worker decides what to write. b. It opens the id, so that brokers refuse what
others were about to write. c. If the topic still holds what it decided on, it writes. d. Otherwise, or if another one
has opened the id since, it decides again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from mm2py.clock import Clock
from mm2py.config.worker import StorageSettings
from mm2py.core import internal_topics
from mm2py.core.backoff import Backoff
from mm2py.errors import ConnectorsNotStoredError, Mm2Error
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.foreign import UnreadableRecord
from mm2py.model.herder.connector_configs import (
    ConnectorsTopic,
    KeyValue,
    LoggerRequest,
    StoredConnector,
    config_record,
    state_record,
)
from mm2py.model.topic import is_other_topic
from mm2py.storage.compacted_topic import create, report_expiry
from mm2py.telemetry.events import (
    ConnectorRecordUnreadable,
    ConnectorsFollowed,
    ConnectorsNotFollowed,
    ConnectorsRead,
    ConnectorsRefilled,
    ConnectorWritesUnguarded,
)
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.fenced_writer import FencedWriter, TakenOverError, hint_of
from mm2py.wire.log_end import end_of
from mm2py.wire.security.access import hint_at
from mm2py.wire.topic_log import LogRecord, TopicLog


_POLL_S: Final = 1.0
_PAUSES: Final = Backoff(1.0, 15.0)
#: Time limit for one write, read back.
_LIMIT_S: Final = 20.0
#: How often a change is tried that others come before, and the longest pause after the first time.
_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.1

Decide = Callable[[], Awaitable[Sequence[KeyValue]]]


class ConnectorStore:
    """
    The connectors that the topic holds, as last read.

    *on_change* gets the names of connectors whose records came, and *on_request* requests that came after the first
    reading.
    """

    def __init__(
        self,
        endpoint: ClusterEndpoint,
        storage: StorageSettings,
        transactional_id: str,
        *,
        clock: Clock,
        events: EventLog,
        jitter: Callable[[], float],
        on_change: Callable[[frozenset[str]], None],
        on_request: Callable[[LoggerRequest], None],
    ) -> None:
        self.connectors: Mapping[str, StoredConnector] = {}
        self.is_read = False
        self.cluster_id = ""
        #: How its cluster is reached; the topic is followed there as soon as this changes.
        self.endpoint = endpoint
        self._storage = storage
        self._clock = clock
        self._events = events
        self._transactional_id = transactional_id
        self._unguarded_by = 0
        self._jitter = jitter
        self._on_change = on_change
        self._on_request = on_request
        self._topic = ConnectorsTopic()
        self._read_to = 0
        #: Whether the topic lost its end, and has not been filled again since.
        self._is_cut = False
        #: What was read and not used yet.
        self._names: set[str] = set()
        self._requests: list[LoggerRequest] = []
        self._topic_id: str | None = None
        self._turn = asyncio.Lock()
        #: How often the topic could not be read in a row, since when, why, and what was reported of that.
        self._misses, self._missed_at, self._missed_for = 0, 0.0, ""
        self._told: set[type[Mm2Error]] = set()
        #: The topic, while its cluster is connected.
        self._log: TopicLog | None = None

    async def follow(self) -> None:
        """Follow the topic until cancelled; create it if it is missing."""
        while True:
            try:
                async with Cluster(self.endpoint, self._clock) as cluster:
                    await self._follow(TopicLog(cluster, self._storage.topic))
            except Mm2Error as error:
                self._miss(error)
                await self._clock.sleep(_PAUSES.pause_s(self._misses, self._jitter()))

    async def _follow(self, log: TopicLog) -> None:
        try:
            while log.cluster.endpoint == self.endpoint:
                async with self._turn:
                    with suppress(TakenOverError):  # another worker fills a deleted topic again
                        await self._catch_up(log)
                    self._log = log
                self._found(log.cluster)
                await self._clock.sleep(_POLL_S)
        finally:
            self._log = None

    def _miss(self, error: Mm2Error) -> None:
        """Note that the topic cannot be read; report that once for each kind of error."""
        if not self._misses:
            self._missed_at = self._clock.monotonic()
        self._misses, self._missed_for = self._misses + 1, str(error)
        if type(error) not in self._told:
            self._told.add(type(error))
            hint = hint_at(error, self.endpoint)
            self._events.emit(ConnectorsNotFollowed(self._storage.topic, self.endpoint.alias, str(error), hint))

    def _found(self, cluster: Cluster) -> None:
        if self._misses:
            away_s = self._clock.monotonic() - self._missed_at
            self._events.emit(ConnectorsFollowed(self._storage.topic, cluster.alias, away_s))
            self._misses, self._missed_for = 0, ""
            self._told.clear()

    async def change(self, decide: Decide) -> None:
        """
        Write what *decide* makes of the present connectors, and read it back. No other worker's change comes between.

        Raise its errors, and ConnectorsNotStoredError if the outcome is uncertain.
        """
        for attempt in range(_ATTEMPTS):
            await self._clock.sleep(self._jitter() * _PAUSE_S * attempt)
            with suppress(TakenOverError):
                async with self._reading() as log:
                    await self._catch_up(log)
                before = self.connectors
                records = await decide()
                async with self._reading() as log:
                    writer = await self._opened(log)
                    await self._catch_up(log)
                    if self.connectors is before:
                        await self._append(writer, log, records)
                        await self._take_new(log)
                        self._settle(log.cluster)
                        return
        raise self._not_stored("other workers change connectors at the same time")

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[TopicLog]:
        """Use the topic for a while. Raise ConnectorsNotStoredError for its cluster's errors."""
        try:
            async with asyncio.timeout(_LIMIT_S), self._turn:
                if self._log is None:
                    raise self._not_stored(self._missed_for or "its topic has not been read yet")
                yield self._log
        except TimeoutError as error:
            raise self._not_stored(f"no answer in {_LIMIT_S:g} s") from error
        except (ConnectorsNotStoredError, TakenOverError):
            raise
        except Mm2Error as error:
            raise self._not_stored(str(error)) from error

    async def _opened(self, log: TopicLog) -> FencedWriter:
        """Return a writer that keeps other workers from writing; if the cluster does not allow that, any writer."""
        writer = FencedWriter(self._transactional_id)
        error = await writer.try_open(log.cluster)
        if error is not None and error.code != self._unguarded_by:
            hint = hint_of(error) or hint_at(error, self.endpoint)
            self._events.emit(ConnectorWritesUnguarded(self._storage.topic, self._transactional_id, str(error), hint))
        self._unguarded_by = 0 if error is None else error.code
        return writer

    async def _append(self, writer: FencedWriter, log: TopicLog, contents: Sequence[KeyValue]) -> None:
        await writer.append(log, [LogRecord(key, value, partition=0) for key, value in contents])

    def _not_stored(self, cause: str) -> ConnectorsNotStoredError:
        return ConnectorsNotStoredError(self.endpoint.alias, self._storage.topic, cause)

    async def _catch_up(self, log: TopicLog) -> None:
        cluster = log.cluster
        await cluster.refresh_metadata({log.topic})
        was_made = False
        if not cluster.partitions_of(log.topic):
            was_made = await create(log, internal_topics.connectors(self._storage))
        elif not self.is_read:
            await report_expiry(cluster, log.topic, self._events)
        before, seen = self.connectors, cluster.topic_id(log.topic)
        is_other = is_other_topic(self._topic_id, seen) or (was_made and self.is_read)
        if is_other:
            self._topic, self._read_to, self._is_cut = ConnectorsTopic(), 0, False
            self._names |= before.keys()
        await self._take_new(log)
        if self._is_cut or (is_other and before and not self._topic.connectors):
            # It lost its end, or was deleted and nothing was written since.
            writer = await self._opened(log)
            await self._take_new(log)
            if self._is_cut or not self._topic.connectors:
                known = self._topic.connectors if self._is_cut else before
                await self._append(writer, log, _contents(known))
                await self._take_new(log)
                self._events.emit(ConnectorsRefilled(log.topic, cluster.alias, len(known)))
                self._is_cut = False
        self._topic_id = seen or self._topic_id
        self._settle(cluster)

    async def _take_new(self, log: TopicLog) -> None:
        """Take what was written since; if what was read before is not all there, what is left of it again."""
        read_to, has_read = self._read_to, False
        async for records in log.read_from({0: read_to}):
            has_read = True
            for record in records:
                offset = record.offset or 0
                is_again = offset < read_to
                self._read_to, self._is_cut = offset + 1, self._is_cut or is_again
                found = self._topic.take(record.key, record.value)
                if isinstance(found, UnreadableRecord):
                    self._events.emit(ConnectorRecordUnreadable(log.topic, offset, found.problem))
                elif isinstance(found, LoggerRequest):
                    self._requests += [] if is_again else [found]
                elif found is not None:
                    self._names.add(found)
        if read_to and not has_read:
            end = await end_of(log.cluster, TopicPartition(log.topic, 0))
            if end < read_to:  # nothing is left of it
                self._read_to, self._is_cut = end, bool(self._topic.connectors)

    def _settle(self, cluster: Cluster) -> None:
        """Use what was read."""
        is_first, self.is_read = not self.is_read, True
        names, requests, self._names, self._requests = frozenset(self._names), self._requests, set(), []
        self.cluster_id = cluster.metadata.cluster_id or self.cluster_id
        if names or is_first:
            self.connectors = self._topic.connectors
        if is_first:
            self._events.emit(ConnectorsRead(self._storage.topic, cluster.alias, tuple(self.connectors)))
        if names or is_first:
            self._on_change(names)
        for request in requests if not is_first else ():
            self._on_request(request)


def _contents(connectors: Mapping[str, StoredConnector]) -> list[KeyValue]:
    return [
        record
        for name, one in connectors.items()
        for record in (state_record(name, one.wanted), config_record(name, one.config, one.created_ms))
    ]
