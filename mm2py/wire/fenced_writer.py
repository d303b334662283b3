"""
Writes to compacted topics by one writer at a time: each is a small transaction under a transactional id.

The next one to open the id takes over: what the former left open is undone, and the brokers refuse whatever it sends
from then on. So what is read from those topics after `open` is final, as far as writers of that id go: no node
that was frozen, or cut off, can put older values after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar, Final, Protocol

import attrs

from mm2py.errors import BrokerAnsweredError, Mm2Error, Verdict
from mm2py.model.flow import TopicPartition
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.security.access import NotAuthorizedError
from mm2py.wire.topic_log import LogRecord, TopicLog
from mm2py.wire.transactions import FENCED, ProducerFencedError, TransactionalProducer


#: A transaction takes milliseconds. One that its writer left open keeps readers waiting for this long, at most.
_TIMEOUT_MS: Final = 15_000
_LEAST_TIMEOUT_MS: Final = 1_000
_UNDO_S: Final = 5.0
#: Where brokers keep what they know of transactional ids; created by the first look-up of a coordinator.
_LOG: Final = "__transaction_state"
#: How long a cluster that has never had transactions is waited for.
_FIRST_S: Final = 3.0
#: Errors that a retry does not fix, or not soon: it is written without transactions.
_HOPELESS: Final = (
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
_HINTS: Final[Mapping[int, str]] = {
    ErrorCode.CONCURRENT_TRANSACTIONS: "a transaction under that id does not end: kafka-transactions.sh describe shows "
    "it, and a restart of the broker that coordinates it ends it",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "raise the brokers' transaction.max.timeout.ms to 1000 or more",
}
Append = Callable[[TransactionalProducer | None], Awaitable[None]]


class LogWriter(Protocol):
    """What writes to a log for others."""

    async def write(self, cluster: Cluster, places: Collection[TopicPartition], append: Append) -> None:
        """Have *append* write to *places*, all of it or nothing if it is given a producer."""
        ...


@attrs.define(eq=False)
class TakenOverError(Mm2Error):
    """A write was refused, because another writer has opened its transactional id, or its transaction took too long."""

    verdict: ClassVar[Verdict] = Verdict.STAND_BY

    cluster: str
    transactional_id: str

    def __str__(self) -> str:
        return f"another node writes at cluster {self.cluster} now, under transactional id {self.transactional_id}"


class FencedWriter:
    """
    The writer of one transactional id. It opens no connections of its own.

    a. One transaction at a time. b. Once fenced it writes nothing more: what its owner knows may be outdated, so
    another one is opened, and everything read again. c. Unless it is open, it writes without transactions, as anyone.
    """

    def __init__(self, transactional_id: str, on_fenced: Callable[[str], None] = lambda _: None) -> None:
        """Create one that calls *on_fenced* with its id, once, when another writer has taken over."""
        self.transactional_id = transactional_id
        self.is_fenced = False
        self._on_fenced = on_fenced
        self._turn = asyncio.Lock()
        self._producer: TransactionalProducer | None = None
        #: Whether it is unknown how a transaction ended.
        self._is_doubtful = False

    @property
    def is_open(self) -> bool:
        return self._producer is not None

    async def open(self, cluster: Cluster) -> None:
        """Become the only writer; raise the brokers' error if they do not allow it."""
        self._producer = await _opened(cluster, self.transactional_id)

    async def open_soon(self, cluster: Cluster) -> None:
        """As `open`, but a cluster that cannot create what transactions need is not awaited for long."""
        try:
            async with asyncio.timeout(_FIRST_S):
                await self.open(cluster)
        except TimeoutError:
            if not await has_transactions(cluster):
                code, request = ErrorCode.COORDINATOR_NOT_AVAILABLE, "FindTransactionCoordinator"
                raise error_of(code, cluster.alias, request, self.transactional_id) from None
            await self.open(cluster)

    async def try_open(self, cluster: Cluster) -> BrokerAnsweredError | None:
        """As `open_soon`; return the brokers' error if the id cannot be opened, however often that is tried."""
        try:
            await self.open_soon(cluster)
        except BrokerAnsweredError as error:
            if not is_hopeless(error):
                raise
            return error
        return None

    async def settle(self, cluster: Cluster) -> None:
        """Undo what was left open, once the last write has ended: it would keep readers waiting."""
        async with self._turn:
            if self._producer is not None and self._is_doubtful:
                await self._guarded(self._settle(self._producer, cluster), cluster)

    async def write(self, cluster: Cluster, places: Collection[TopicPartition], append: Append) -> None:
        """
        Have *append* write to *places*, all of it or nothing. If this raises, it is unknown which.

        Raise TakenOverError if another writer has taken over.
        """
        async with self._turn:
            if self._producer is None:
                await append(None)
            else:
                await self._guarded(self._write(self._producer, cluster, places, append), cluster)

    async def append(self, log: TopicLog, records: Sequence[LogRecord]) -> None:
        """Append *records* to *log*, as `write` does, and wait until they can be read."""

        async def append(producer: TransactionalProducer | None) -> None:
            await log.append(records, producer)

        await self.write(log.cluster, await log.places(records), append)
        await log.await_stable()

    async def _guarded(self, work: Awaitable[None], cluster: Cluster) -> None:
        try:
            await work
        except ProducerFencedError as error:
            raise self._fenced(cluster) from error
        except BrokerAnsweredError as error:
            if error.code in FENCED:
                raise self._fenced(cluster) from error
            raise

    async def _write(
        self,
        producer: TransactionalProducer,
        cluster: Cluster,
        places: Collection[TopicPartition],
        append: Callable[[TransactionalProducer], Awaitable[None]],
    ) -> None:
        await self._settle(producer, cluster)
        self._is_doubtful = True
        try:
            await self._add(producer, cluster, places)
            await append(producer)
            await producer.commit()
        except ProducerFencedError:
            raise
        except Mm2Error:
            # Left open it would keep readers waiting, and brokers that end it fence its writer.
            with suppress(Mm2Error, TimeoutError):
                async with asyncio.timeout(_UNDO_S):
                    await self._settle(producer, cluster)
            raise
        self._is_doubtful = False

    async def _settle(self, producer: TransactionalProducer, cluster: Cluster) -> None:
        if self.is_fenced:
            raise ProducerFencedError(cluster.alias, self.transactional_id)
        producer.use(cluster)
        if self._is_doubtful:
            await self._renew(producer, cluster)
            self._is_doubtful = False

    async def _add(self, producer: TransactionalProducer, cluster: Cluster, places: Collection[TopicPartition]) -> None:
        try:
            await producer.add(places)
        except BrokerAnsweredError as error:
            # Brokers forget an id that was not used for a week (transactional.id.expiration.ms).
            if error.code != ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                raise
            await self._renew(producer, cluster)
            await producer.add(places)

    async def _renew(self, producer: TransactionalProducer, cluster: Cluster) -> None:
        try:
            await producer.renew()
        except BrokerAnsweredError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            # Brokers before Kafka 2.5 cannot tell us from another writer: the id has to be opened again.
            raise ProducerFencedError(cluster.alias, self.transactional_id) from error

    def _fenced(self, cluster: Cluster) -> TakenOverError:
        if not self.is_fenced:
            self.is_fenced = True
            self._on_fenced(self.transactional_id)
        return TakenOverError(cluster.alias, self.transactional_id)


async def fence(cluster: Cluster, transactional_id: str) -> None:
    """Take *transactional_id* away from its writer, and undo what it left open. Nothing is written."""
    await _opened(cluster, transactional_id)


def is_hopeless(error: BrokerAnsweredError) -> bool:
    """Whether an id cannot be opened, however often that is tried."""
    return isinstance(error, NotAuthorizedError) or error.code in _HOPELESS


def hint_of(error: BrokerAnsweredError) -> str:
    """Return what to do about brokers that cannot open an id."""
    return _HINTS.get(error.code, "")


async def has_transactions(cluster: Cluster) -> bool:
    """Whether any transactional id was ever opened at *cluster*, as far as it shows that."""
    await cluster.refresh_metadata({_LOG})
    found = cluster.metadata.topics.get(_LOG)
    return found is None or found.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _opened(cluster: Cluster, transactional_id: str) -> TransactionalProducer:
    timeout_ms = _TIMEOUT_MS
    while True:
        producer = TransactionalProducer(cluster, transactional_id, timeout_ms)
        try:
            await producer.open()
        except BrokerAnsweredError as error:
            timeout_ms //= 2
            # The brokers' transaction.max.timeout.ms is not shown to everyone.
            if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT or timeout_ms < _LEAST_TIMEOUT_MS:
                raise
        else:
            return producer
