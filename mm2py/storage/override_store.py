"""
The overrides of one flow, as its target cluster stores them in ``mm2-configs.<source>.internal``.

The topic has one partition, so all readers see its records in the same order. A record is effective if its revision is
greater than that of the one before. So when two daemons change the same revision at once, the first of them in the log
wins; the other notices when it reads its own record back.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import ClassVar, Final

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.core import internal_topics
from mm2py.errors import BrokerAnsweredError, ClusterUnreachableError, Mm2Error, OverrideConflictError, shortened
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.herder.overrides import Overrides, Pause
from mm2py.model.herder.stored_overrides import (
    NOTHING_STORED,
    StoredOverrides,
    decode_overrides,
    encode_overrides,
    overrides_key,
)
from mm2py.model.topic import is_other_topic
from mm2py.storage.compacted_topic import create, recreated, report_expiry
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.log_end import end_of
from mm2py.wire.security.access import NotAuthorizedError
from mm2py.wire.topic_log import LogRecord, TopicLog


#: Time limit for one read or write at the target.
_LIMIT_S: Final = 20.0
_REFUSED: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


@attrs.define(eq=False)
class OverridesUnreadableError(Mm2Error):
    """A flow has stored overrides that cannot be read, so what is to be paused is unknown."""

    hint: ClassVar[str] = (
        "run the version that wrote them, or remove all overrides of the flow with a record with this key and a null "
        "value; the flow then starts by itself"
    )

    cluster: str
    topic: str
    key: str
    offset: int
    cause: str = attrs.field(converter=shortened)

    def __str__(self) -> str:
        return (
            f"overrides, key {self.key} at offset {self.offset} of {self.topic} on cluster "
            f"{self.cluster}, cannot be read: {self.cause}"
        )


@attrs.define(eq=False)
class OverridesUnavailableError(Mm2Error):
    """The mirror is not authorized to read overrides on the target."""

    hint: ClassVar[str] = (
        "grant the mirror's principal CREATE, DESCRIBE, READ and WRITE on this topic; see mm2py docs security"
    )

    cluster: str
    topic: str
    cause: str

    def __str__(self) -> str:
        return f"cluster {self.cluster} does not let us use {self.topic}: {self.cause}"


@attrs.frozen
class SeenTopic:
    """The topic when it was last looked at: its id, None if unknown, and where it ended."""

    topic_id: str | None = None
    end: int = 0


NOT_SEEN: Final = SeenTopic()


class OverrideStore:
    """Reads and writes the overrides of one flow. Each call opens a connection to the target and closes it."""

    def __init__(self, settings: FlowSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    @property
    def topic(self) -> str:
        """Return the name of the topic."""
        return self._settings.worker.config_storage.topic

    @property
    def flow(self) -> Flow:
        return self._settings.flow

    async def read(self, *, events: EventLog | None = None) -> StoredOverrides:
        """Return the effective overrides; `NOTHING_STORED` if there is no topic or no record. With *events* it is
        reported if they would expire. Raise OverridesUnreadableError, OverridesUnavailableError, or the error of an
        unreachable target.
        """
        async with self._open() as cluster:
            winner = self._winner(await self._records(cluster))
            if events is not None and winner is not None:
                await report_expiry(cluster, self.topic, events)
            return NOTHING_STORED if winner is None else self._decoded(winner)

    async def write(self, overrides: Overrides, *, before: StoredOverrides, by: str) -> StoredOverrides:
        """Write *overrides*, a change of those *before*, and make sure that they are effective. The topic is created
        if missing. Raise OverrideConflictError if another daemon wrote first, and TooFewBrokersError if
        `config.storage.replication.factor` is too high.
        """
        now_ms = self._clock.wall_ms()
        dated = overrides.dated(before.overrides, Pause(by, now_ms))
        kept = StoredOverrides(dated, before.revision + 1, secrets.token_hex(4), by, now_ms)
        record = LogRecord(overrides_key(self.flow), encode_overrides(self.flow, kept), partition=0)
        async with self._open() as cluster:
            log = TopicLog(cluster, self.topic)
            await self._ensure(log)
            await log.append([record])
            winner = self._winner(await self._records(cluster))
            if winner is None or winner.value == record.value:
                return kept
            # Compaction keeps the last record of a key, which is ours: append the effective one again.
            await log.append([LogRecord(winner.key, winner.value, partition=0)])
            raise conflict(self.flow, self._decoded(winner))

    async def refill(self, kept: StoredOverrides, before: SeenTopic, events: EventLog) -> SeenTopic:
        """
        Write *kept* again if its topic was deleted, or if it has no overrides and is another one than *before*, or ends
        earlier: its broker lost its disk. Others may have written to it since.

        Return the topic as it was seen. A record that was removed from the topic stays removed.
        """
        async with self._open() as cluster:
            records = await self._records(cluster)
            is_there, topic_id = bool(cluster.partitions_of(self.topic)), cluster.topic_id(self.topic)
            end = await end_of(cluster, TopicPartition(self.topic, 0)) if is_there else 0
            is_lost = is_other_topic(before.topic_id, topic_id) or end == 0 or end < before.end
            if is_there and (records or not is_lost):
                return SeenTopic(topic_id, end)
            log = TopicLog(cluster, self.topic)
            was_made = await self._ensure(log)
            await log.append([LogRecord(overrides_key(self.flow), encode_overrides(self.flow, kept), partition=0)])
            events.emit(await recreated(self.flow, cluster, self.topic, 1, was_made=was_made))
            return SeenTopic(cluster.topic_id(self.topic), end)

    async def _ensure(self, log: TopicLog) -> bool:
        """Create the topic if it is missing; return whether it was."""
        return await create(log, internal_topics.overrides(self._settings.worker.config_storage))

    async def _records(self, cluster: Cluster) -> list[LogRecord]:
        """Return the flow's records in the topic, none if there is no topic."""
        if not await cluster.has_topic(self.topic):
            return []
        key = overrides_key(self.flow)
        return [record for record in await TopicLog(cluster, self.topic).read_all() if record.key == key]

    def _winner(self, records: Iterable[LogRecord]) -> LogRecord | None:
        """Return the effective record; an invalid one is effective unless a valid one follows."""
        winner, revision = None, 0
        for record in records:
            if record.value is None:
                winner, revision = None, 0
                continue
            try:
                kept = decode_overrides(self.flow, record.value)
            except ValueError:
                winner = record
                continue
            if kept.revision > revision:
                winner, revision = record, kept.revision
        return winner

    def _decoded(self, record: LogRecord) -> StoredOverrides:
        try:
            return decode_overrides(self.flow, record.value or b"")
        except ValueError as error:
            key = (record.key or b"").decode()
            offset = -1 if record.offset is None else record.offset
            raise OverridesUnreadableError(self._settings.target.alias, self.topic, key, offset, str(error)) from error

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Cluster]:
        cluster = Cluster(self._settings.target, self._clock)
        try:
            async with asyncio.timeout(_LIMIT_S):
                await cluster.connect()
                yield cluster
        except TimeoutError as error:
            endpoint = self._settings.target
            servers = ", ".join(endpoint.bootstrap_servers)
            raise ClusterUnreachableError(endpoint.alias, servers, f"no answer in {_LIMIT_S:g} s") from error
        except NotAuthorizedError as error:
            raise OverridesUnavailableError(cluster.alias, self.topic, str(error)) from error
        except BrokerAnsweredError as error:
            if error.code in _REFUSED:
                raise OverridesUnavailableError(cluster.alias, self.topic, str(error)) from error
            raise
        finally:
            await cluster.close()


def conflict(flow: Flow, kept: StoredOverrides) -> OverrideConflictError:
    """Return the error for overrides of *flow* that another node changed meanwhile; *kept* are the effective ones."""
    who = f" by {kept.by}" if kept.by else ""
    what = f"the overrides of flow {flow} were changed elsewhere{who}, and are revision {kept.revision} now"
    return OverrideConflictError(what, "read them, and try again")
