"""A flow's record of the configs and ACLs that it set on the target. It is stored in a compacted topic on the target
cluster (see `mm2py.model.synced`) and read once by each owner of the flow. Changes are recorded before they are sent,
so that after a crash all of them are known as the mirror's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

import attrs

from mm2py.connectors.context import SourceContext
from mm2py.connectors.control_writers import NotOpenError
from mm2py.core import internal_topics
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.model.acl import TopicAcl
from mm2py.model.foreign import UnreadableRecord
from mm2py.model.synced import (
    ForgottenAcl,
    ForgottenConfig,
    Synced,
    SyncedAcl,
    SyncedConfig,
    decode_synced,
    encode_synced,
)
from mm2py.storage.compacted_topic import CompactedTopic
from mm2py.wire.cluster import Cluster
from mm2py.wire.patience import may_last
from mm2py.wire.topic_log import LogRecord


@attrs.define(eq=False)
class NoMemoryError(Mm2Error):
    """The target refuses access to the topic in which a flow records what it set."""

    hint: ClassVar[str] = (
        "grant the mirror's principal CREATE, WRITE, READ and DESCRIBE on this topic; until then configs and ACLs of "
        "remote topics are not synchronised"
    )

    cluster: str
    topic: str
    cause: str

    def __str__(self) -> str:
        return f"cluster {self.cluster} does not let us use {self.topic}: {self.cause}"


class SyncedMemory:
    """The record of one flow. It must not be used before `load` has succeeded. Each entry has one writer at a time:
    topic creation and config sync take turns, ACLs have their own.
    """

    def __init__(self, context: SourceContext, target: Cluster) -> None:
        self._passed_over = context.passed_over
        self._cluster, self._group = target.alias, context.worker.group_id
        self._writer = context.writers.tasks
        topic = internal_topics.synced(context.config)
        self.log = CompactedTopic(context.flow, target, topic, context.events, self._contents, writer=self._writer)
        #: The term of the writer in which the topic was read.
        self._term = 0
        self._loading = asyncio.Lock()
        self._is_loaded = False
        self._configs: dict[str, dict[str, tuple[str, ...]]] = {}
        self._acls: set[TopicAcl] = set()

    async def load(self) -> None:
        """Read the topic, once in each term of its writer; create it if it is missing."""
        async with self._loading:
            term = await self._writer.ready()
            if self._is_loaded and term == self._term:
                return
            self.forget()
            self._term = term
            with self._explained():
                await self.log.ensure()
                await self.log.await_stable()
                records = await self.log.read_all()
            strange: list[tuple[LogRecord, str]] = []
            for record in records:
                match decode_synced(record.key, record.value):
                    case UnreadableRecord(problem):
                        strange.append((record, problem))
                    case None:
                        continue
                    case entry:
                        self._take(entry)
            self._passed_over.note(self.log.topic, strange)
            self._is_loaded = True

    def forget(self) -> None:
        """Have the topic read again before the next use: another node may have written it."""
        self._is_loaded, self._configs, self._acls = False, {}, set()

    def configs_of(self, remote_topic: str) -> Mapping[str, tuple[str, ...]]:
        """Return the values by key that the mirror set on a remote topic."""
        return self._configs.get(remote_topic, {})

    @property
    def configured(self) -> frozenset[str]:
        """The remote topics on which the mirror set values."""
        return frozenset(self._configs)

    @property
    def acls(self) -> frozenset[TopicAcl]:
        """The ACLs that the mirror created."""
        return frozenset(self._acls)

    async def write(self, entries: Sequence[Synced]) -> None:
        """
        Record *entries* and wait until they are stored.

        Raise `NotOpenError` if they follow from what another node may have written over.
        """
        if self._writer.term != self._term:
            raise NotOpenError(self._cluster, self._group)
        with self._explained():
            await self.log.append([LogRecord(*encode_synced(entry)) for entry in entries])
        for entry in entries:
            self._take(entry)

    async def _contents(self) -> Sequence[LogRecord]:
        entries: list[Synced] = [
            SyncedConfig(topic, key, values)
            for topic, by_key in self._configs.items()
            for key, values in by_key.items()
        ]
        entries += map(SyncedAcl, self._acls)
        return [LogRecord(*encode_synced(entry)) for entry in entries]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Return the error for a refusal: the broker's message does not name the missing permission. Brokers that are
        away refuse nothing.
        """
        try:
            yield
        except BrokerAnsweredError as error:
            if may_last(error.code):
                raise
            raise NoMemoryError(self._cluster, self.log.topic, str(error)) from error

    def _take(self, entry: Synced) -> None:
        match entry:
            case SyncedConfig(topic, key, values):
                self._configs.setdefault(topic, {})[key] = values
            case ForgottenConfig(topic, key):
                self._configs.get(topic, {}).pop(key, None)
                if not self.configs_of(topic):
                    self._configs.pop(topic, None)
            case SyncedAcl(acl):
                self._acls.add(acl)
            case ForgottenAcl(acl):
                self._acls.discard(acl)
