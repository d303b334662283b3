"""
Transactions by a producer of our own (KIP-98): what it writes becomes visible at once, or never.

One producer may write from several processes: those that have its id, epoch and a sequence for each partition. Which
producer that is, and which transaction is open, is kept by a coordinator among the brokers, under a *transactional id*.
Opening the id again ends what was left open under it and fences all who wrote with it, wherever they are and whatever
of theirs is still on its way: the coordinator writes a marker with a higher epoch into every partition concerned.

The versions spoken are the first ones, which every broker takes. With them an epoch lasts until the id is opened again,
or renewed: that takes a broker from Kafka 2.5 on (KIP-360).
"""

# aiokafka carries no types, so its base classes are Any to mypy.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar, Final

import attrs
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.api import Request, RequestStruct
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest_v0
from aiokafka.protocol.types import Int16, Int32, Int64, String

from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.model.epoch import ProducerMark
from mm2py.model.flow import TopicPartition
from mm2py.wire.batches.batch import batches, next_sequence, sign
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.groups.coordinator import Coordinator
from mm2py.wire.groups.requests import TRANSACTION_KEY
from mm2py.wire.patience import Patience
from mm2py.wire.requests import THROTTLE, answer, flexible


_PURPOSE: Final = "transactions"
#: The coordinator is writing the last transaction's markers, which takes milliseconds.
_MARKERS_PAUSE_S: Final = 0.01
#: Error code, and the partition that it is about.
_Answer = tuple[int, TopicPartition | None]
#: Another producer has opened the transactional id, or the coordinator has aborted the transaction.
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
#: What a coordinator answers to an abort if nothing is open under the id, or if it no longer knows the id.
_NOTHING_OPEN: Final = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
_NO_PRODUCER: Final = -1, -1


@attrs.define(eq=False)
class ProducerFencedError(Mm2Error):
    """A producer may not write any more: its transactional id was opened again, or its transaction lasted too long."""

    hint: ClassVar[str] = "two daemons run the same flow: stop one of them"

    cluster: str
    transactional_id: str

    def __str__(self) -> str:
        return f"another producer has taken over transactional id {self.transactional_id} at cluster {self.cluster}"


class InitProducerIdRequest_v3(RequestStruct):  # noqa: N801
    """The producer that is to be renewed (KIP-360)."""

    API_KEY = 22
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = answer(
        22, 3, flexible(THROTTLE, ("error_code", Int16), ("producer_id", Int64), ("producer_epoch", Int16))
    )
    SCHEMA = flexible(
        ("transactional_id", String()),
        ("transaction_timeout_ms", Int32),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
    )


class InitTransactionsRequest(Request[InitProducerIdRequest_v0 | InitProducerIdRequest_v3]):
    """Open a transactional id; if *producer* names an id and epoch, only if no other producer has opened it since."""

    API_KEY = 22

    def __init__(self, transactional_id: str, timeout_ms: int, producer: tuple[int, int] = _NO_PRODUCER) -> None:
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._producer = producer

    def build(self, request_struct_class: Any) -> Any:
        if request_struct_class.FLEXIBLE_VERSION:
            return request_struct_class(self._transactional_id, self._timeout_ms, *self._producer, {})
        if self._producer != _NO_PRODUCER:
            msg = "renewing a producer needs InitProducerId v3, which came with Kafka 2.5"
            raise IncompatibleBrokerVersion(msg)
        return request_struct_class(self._transactional_id, self._timeout_ms)


class TransactionalProducer:
    """
    The producer of one transactional id.

    a. Nothing of it may be written before `open`, nor after an error until it is opened again.
    b. A partition is added to the transaction before anything is written to it, so that its end reaches it.
    c. Sequences count on from one transaction to the next, and begin at 0 where it is opened.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
        """Make one whose transactions the brokers abort after *timeout_ms*."""
        self.transactional_id = transactional_id
        #: How long its coordinator is asked, and the leaders of its partitions: the brokers must not abort meanwhile.
        self.patience_ms = min(cluster.endpoint.request_timeout_ms, timeout_ms * 2 // 3)
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._coordinator = Coordinator(cluster, transactional_id, TRANSACTION_KEY, _PURPOSE)
        self._producer_id = self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()

    # Its transactions.

    async def open(self) -> None:
        """
        Become the only producer of this id, once what was open under it has ended.

        A transaction that was not committed is aborted by that; one whose commit was under way is committed.
        """
        await self._init(_NO_PRODUCER)

    async def renew(self) -> None:
        """
        Undo what may be open or in doubt, and go on with a higher epoch, as the only producer of this id still.

        Unlike `open` it takes nothing away from another producer: raise ProducerFencedError if there is one.
        """
        request = EndTxnRequest(self.transactional_id, self._producer_id, self._epoch, False)  # noqa: FBT003 - Kafka's
        try:
            await self._ask(request, "EndTxn", _code)
        except BrokerAnsweredError as error:
            if error.code not in _NOTHING_OPEN:
                raise
        await self._init((self._producer_id, self._epoch))

    async def _init(self, producer: tuple[int, int]) -> None:
        request = InitTransactionsRequest(self.transactional_id, self._timeout_ms, producer)
        answer = await self._ask(request, "InitTransactions", _code)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        self._added.clear()

    def use(self, cluster: Cluster) -> None:
        """Ask the coordinator by way of *cluster* from now on, which is the same one with other connections."""
        if cluster is not self._cluster:
            self._cluster = cluster
            self._coordinator = Coordinator(cluster, self.transactional_id, TRANSACTION_KEY, _PURPOSE)

    async def add(self, partitions: Collection[TopicPartition]) -> None:
        """Make *partitions* part of the transaction, which the first one begins."""
        fresh = sorted(set(partitions) - self._added)
        if not fresh:
            return
        by_topic: dict[str, list[int]] = {}
        for tp in fresh:
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        request = AddPartitionsToTxnRequest(
            self.transactional_id, self._producer_id, self._epoch, list(by_topic.items())
        )
        await self._ask(request, "AddPartitionsToTxn", _code_of_partitions)
        self._added.update(fresh)

    async def commit(self) -> None:
        """Commit the transaction. If this raises, the outcome is unknown."""
        request = EndTxnRequest(self.transactional_id, self._producer_id, self._epoch, True)  # noqa: FBT003 - Kafka's
        await self._ask(request, "EndTxn", _code)
        self._added.clear()

    # What is written in them.

    def mark(self, tp: TopicPartition) -> ProducerMark:
        """Return what the next batch of *tp* must carry."""
        return ProducerMark(self._producer_id, self._epoch, self._sequences.get(tp, 0))

    def wrote(self, tp: TopicPartition, sequence: int) -> None:
        """Note that the batch after what was written to *tp* carries *sequence*."""
        self._sequences[tp] = sequence

    def signed(self, tp: TopicPartition, batch: bytes) -> bytes:
        """Make *batch* the next one of *tp*."""
        mark, copied = self.mark(tp), memoryview(bytearray(batch))
        (view,) = batches(copied)
        sign(copied, mark.producer_id, mark.producer_epoch, mark.sequence, is_transactional=True)
        self._sequences[tp] = next_sequence(mark.sequence, view.record_count)
        return bytes(copied)

    # Its coordinator.

    async def _ask(self, request: Any, name: str, judge: Callable[[Any], _Answer]) -> Any:
        """Ask the coordinator until it knows; all these requests may be repeated where an answer was lost."""
        patience = Patience(self._cluster.clock, self.patience_ms / 1000)
        while True:
            answer = await self._coordinator.ask(request, name, lambda it: self._error(name, *judge(it)))
            if not isinstance(answer, BrokerAnsweredError):
                return answer
            if answer.code in FENCED:
                raise ProducerFencedError(self._cluster.alias, self.transactional_id)
            if patience.is_over_for(answer.code):
                raise answer
            if answer.code == ErrorCode.CONCURRENT_TRANSACTIONS:
                await self._cluster.clock.sleep(_MARKERS_PAUSE_S)
            else:
                await patience.pause()

    def _error(self, request: str, code: int, about: TopicPartition | None) -> BrokerAnsweredError | None:
        if not code:
            return None
        if about is not None and code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return error_of(code, self._cluster.alias, "Produce", str(about))
        detail = str(about or "")
        if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            detail = "lower producer.transaction.timeout.ms, or raise the brokers' transaction.max.timeout.ms"
        named = f"{self.transactional_id}: {detail}" if detail else self.transactional_id
        return error_of(code, self._cluster.alias, request, named)


def _code(response: Any) -> _Answer:
    return response.error_code, None


def _code_of_partitions(response: Any) -> _Answer:
    """Return one partition's error, if it can be one that says more than that another partition has one."""
    errors = [(code, TopicPartition(topic, number)) for topic, rows in response.errors for number, code in rows if code]
    errors.sort(key=lambda error: error[0] == ErrorCode.OPERATION_NOT_ATTEMPTED)
    return errors[0] if errors else (0, None)
