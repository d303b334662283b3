"""The topic of the statuses of a flow's nodes: opened when it is needed, and again after any failure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import attrs

from mm2py.config.worker import StorageSettings
from mm2py.core import internal_topics
from mm2py.errors import BrokerAnsweredError
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.herder.node_status import PARTITION, status_key
from mm2py.storage.compacted_topic import create, report_expiry
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.requests import EARLIEST, LATEST
from mm2py.wire.topic_log import LogRecord, TopicLog


#: So often a topic may be unknown right after it was created: nodes create it at once, and brokers may be busy.
_MISSES: Final = 3
#: The first read goes back so many records: a log that was not compacted for long may be large.
_FIRST_READ: Final = 2000


class StatusStore:
    """The topic of statuses: opened when it is needed, and again after any failure."""

    def __init__(self, flow: Flow, storage: StorageSettings, cluster: Cluster, events: EventLog) -> None:
        self._flow = flow
        self._storage = storage
        self._cluster = cluster
        self.topic = self._storage.topic
        self._log = TopicLog(cluster, self.topic)
        #: False after a failure: topic and leader are then looked up before the next use.
        self.is_open = False
        self._events, self._is_policy_known = events, False
        self._position = self._misses = 0
        #: Where the log ended when it was opened last.
        self.opened_at = 0
        self._has_written = False

    async def write(self, node_id: str, raw: bytes) -> bool:
        """
        Write a node's own status, as *raw* bytes.

        Return False if the topic has just been created, and the brokers do not know it yet.
        """
        if not self.is_open:
            try:
                await self._open()
            except BrokerAnsweredError as error:
                self._misses += 1
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or self._misses >= _MISSES:
                    raise
                return False
            self._misses = 0
        self._has_written = True
        await self._log.append([LogRecord(status_key(self._flow, node_id), raw, partition=PARTITION)])
        if not self._is_policy_known:
            self._is_policy_known = True
            await report_expiry(self._cluster, self.topic, self._events)
        return True

    async def _open(self) -> None:
        await self._cluster.connect()
        await create(self._log, internal_topics.statuses(self._storage))
        if self._log.refusal is not None:
            raise self._log.refusal
        self.opened_at = await self._offset(LATEST)
        self._position = max(await self._offset(EARLIEST), self.opened_at - _FIRST_READ)
        self.is_open = True

    async def _offset(self, when: int) -> int:
        place = TopicPartition(self.topic, PARTITION)
        answer = (await self._cluster.list_offsets([place], when))[place]
        if isinstance(answer, BrokerAnsweredError):
            raise answer
        return answer

    async def read(self) -> list[LogRecord]:
        """Return what was written since the last time."""
        records: list[LogRecord] = []
        while True:
            some, self._position = await self._log.read_on(PARTITION, self._position)
            records += some
            if not some or self._position >= self.opened_at:
                return records

    async def remove(self, nodes: Collection[str]) -> None:
        """Remove the records of *nodes*."""
        await self._log.append([LogRecord(status_key(self._flow, it), None, partition=PARTITION) for it in nodes])

    async def append(self, record: LogRecord) -> None:
        """Append a record that is not this node's status."""
        await self._log.append([attrs.evolve(record, partition=PARTITION)])

    async def leave(self, node_id: str) -> None:
        """Remove this node's own record, if there is one."""
        if self._has_written:
            await self.remove([node_id])
