"""
The transactions of one record task: records, dead letters and positions become visible together, or never.

While one is open it is not known how it will end. So a committer that was begun and has not committed must be opened
again, which undoes whatever was not committed, and says which positions were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

from mm2py.clock import Clock
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.model.epoch import ProducerMark, Transactions
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position, encode_position, position_key
from mm2py.model.positions_topic import PositionsTopic
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import LogRecord, TopicLog
from mm2py.wire.transactions import FENCED, ProducerFencedError, TransactionalProducer


_ABORT_WITHIN_S: Final = 5.0


class Committer:
    """
    Writes the transactions of one record task.

    a. `is_open` only while nothing is in doubt: all that was begun is committed, and `positions` said what was.
    b. Between `begin` and `commit` it is not open, whatever happens.
    """

    def __init__(self, target: Cluster, source_alias: str, terms: Transactions, clock: Clock) -> None:
        self.terms = terms
        self.is_open = False
        #: Was something begun that is neither committed nor undone?
        self.is_begun = False
        self._begun_at = 0.0
        self._alias = source_alias
        self._clock = clock
        self._producer = TransactionalProducer(target, terms.transactional_id, terms.timeout_ms)
        self._log = TopicLog(target, terms.positions_topic)

    async def open(self) -> Mapping[TopicPartition, Position]:
        """Be the only writer from now on, abort what was not committed, and return the committed positions."""
        self.is_open = False
        await self._producer.open()
        self.is_begun = False
        positions = await self.committed()
        self.is_open = True
        return positions

    async def committed(self) -> Mapping[TopicPartition, Position]:
        """Return the committed positions, by whatever producer."""
        # The record tasks of a flow share the topic: another one's open transaction hides what follows it.
        await self._log.await_stable()
        stored = PositionsTopic(self._alias, self.terms.connector)
        for record in await self._log.read_all():
            stored.take(record)
        return stored.positions

    async def begin(self, remotes: Collection[TopicPartition], sources: Collection[TopicPartition]) -> None:
        """Begin a transaction of records in *remotes* and positions of *sources*."""
        assert self.is_open  # noqa: S101 - the caller has opened it
        self.is_open, self.is_begun = False, True
        self._begun_at = self._clock.monotonic()
        keys = [LogRecord(position_key(self._alias, source, self.terms.connector), None) for source in sources]
        await self._producer.add({*remotes, *await self._log.places(keys)})

    def mark(self, remote: TopicPartition) -> ProducerMark:
        """Return the producer id, epoch and sequence that the next record of *remote* must carry."""
        return self._producer.mark(remote)

    def wrote(self, remote: TopicPartition, mark: ProducerMark | None) -> None:
        """Note how far *remote* was written."""
        if mark is not None:
            self._producer.wrote(remote, mark.sequence)

    async def append(self, log: TopicLog, records: Sequence[LogRecord]) -> None:
        """Write *records* of another topic, as part of the transaction."""
        await self._producer.add(await log.places(records))
        try:
            await log.append(records, self._producer)
        except BrokerAnsweredError as error:
            if error.code in FENCED:
                raise ProducerFencedError(error.cluster, self.terms.transactional_id) from error
            raise

    async def commit(self, positions: Collection[Position]) -> None:
        """Write *positions*, and make all of the transaction visible. If this raises, it is not known whether it is."""
        name = self.terms.connector
        await self.append(self._log, [LogRecord(*encode_position(self._alias, it, name)) for it in positions])
        await self._producer.commit()
        self.is_open, self.is_begun = True, False

    async def undo(self) -> None:
        """Abort what was begun, as far as that is possible now; tasks that still write for it are fenced."""
        with suppress(Mm2Error, TimeoutError):
            async with asyncio.timeout(_ABORT_WITHIN_S):
                await self._producer.open()
                self.is_begun = False

    def give_way(self) -> None:
        """Leave what was begun, if anything, to another producer that has opened the transactional id."""
        self.is_open = self.is_begun = False

    @property
    def is_overdue(self) -> bool:
        """Whether the brokers have aborted what was begun, because it took too long."""
        return self.is_begun and self._clock.monotonic() - self._begun_at >= self.terms.timeout_ms / 1000
