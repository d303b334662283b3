"""
Producer ids and transactions.

After TransactionCoordinator and TransactionMarkerChannelManager: fencing by epoch, markers later than the answer, and
an EndTxn that is executed late like any other request.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from aiokafka.protocol.transaction import AddPartitionsToTxnRequest_v0, EndTxnRequest_v0, InitProducerIdRequest_v0

from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.transactions import InitProducerIdRequest_v3
from tests.simulated.coordination import Transaction
from tests.simulated.log import NOBODY
from tests.simulated.requests.kind import Kind
from tests.support.batches import control_batch, resigned


if TYPE_CHECKING:
    from tests.simulated.broker import Broker, Line
    from tests.simulated.cluster import Cluster


_PRODUCER_EPOCH_AT = 51
#: transaction.max.timeout.ms by default.
_LONGEST_MS = 900_000


def _init_producer(broker: Broker, line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    tags: tuple[Any, ...] = ({},) if it.FLEXIBLE_VERSION else ()
    name = it.transactional_id
    if name is None:
        cluster.producer_ids += 1
        return it.RESPONSE_TYPE(0, 0, cluster.producer_ids, 0, *tags)

    def say(code: int, producer_id: int = -1, epoch: int = -1) -> Any:
        return it.RESPONSE_TYPE(0, int(code), producer_id, epoch, *tags)

    if code := _refused(broker, it):
        return say(code)
    known = cluster.transactions.get(name)
    if known is None:
        cluster.producer_ids += 1
        known = cluster.transactions[name] = Transaction(name, cluster.producer_ids)
    expected = it.producer_epoch if it.FLEXIBLE_VERSION and it.producer_id >= 0 else None
    if code := _renewed(cluster, known, expected, it):
        return say(code)
    known.timeout_s = it.transaction_timeout_ms / 1000
    known.state = "Empty"
    cluster.tell(cluster.name, "opened", name, known.producer_id, known.epoch, line.client.machine)
    return say(0, known.producer_id, known.epoch)


def _refused(broker: Broker, it: Any) -> int:
    cluster = broker.cluster
    if not it.transactional_id:
        return int(ErrorCode.INVALID_REQUEST)
    if not 0 < it.transaction_timeout_ms <= _LONGEST_MS:
        return int(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    is_refused = cluster.refuses_ids_until > cluster.loop.time()
    refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if is_refused else 0
    return cluster.away(broker, it.transactional_id) or int(refusal)


def _renewed(cluster: Cluster, known: Transaction, expected: int | None, it: Any) -> int:
    """Raise the epoch of an id, after TransactionCoordinator.prepareInitProducerIdTransit; return an error code."""
    if expected is not None and known.epoch >= 0 and it.producer_id != known.producer_id:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    if known.state == "Ongoing":  # whatever epoch is expected
        _fence(cluster, known)
    if known.is_ending:
        return int(ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is None:
        known.epoch, known.last_epoch = known.epoch + 1, -1
    elif known.epoch < 0 or expected == known.epoch:
        known.epoch, known.last_epoch = known.epoch + 1, known.epoch
    elif expected != known.last_epoch:  # else its answer was lost
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return 0


def _fence(cluster: Cluster, known: Transaction) -> None:
    known.epoch, known.last_epoch = known.epoch + 1, known.epoch
    _end(cluster, known, commits=False)


def _judge(broker: Broker, it: Any) -> tuple[int, Transaction | None]:
    cluster = broker.cluster
    if code := cluster.away(broker, it.transactional_id):
        return code, None
    known = cluster.transactions.get(it.transactional_id)
    if known is None or known.producer_id != it.producer_id:
        return int(ErrorCode.INVALID_PRODUCER_ID_MAPPING), None
    if known.epoch != it.producer_epoch:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH), None
    return 0, known


def _add_partitions(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    code, known = _judge(broker, it)
    if known is not None and known.is_ending:
        code = int(ErrorCode.CONCURRENT_TRANSACTIONS)
    wrong = {
        (topic, number): ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if cluster.denies(topic)
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for topic, numbers in it.topics
        for number in numbers
        if cluster.denies(topic) or cluster.partition(topic, number) is None
    }
    if known is not None and not code and not wrong:
        if known.state != "Ongoing":
            known.state, known.begun_at, known.partitions = "Ongoing", cluster.loop.time(), {}
            cluster.host.call_later(known.timeout_s, _expire, cluster, known, known.epoch, known.begun_at)
        for topic, numbers in it.topics:
            known.partitions |= dict.fromkeys((topic, number) for number in numbers)
    rows = []
    for topic, numbers in it.topics:
        refused = ErrorCode.OPERATION_NOT_ATTEMPTED if wrong else 0
        rows.append((topic, [(number, code or int(wrong.get((topic, number), refused))) for number in numbers]))
    return it.RESPONSE_TYPE(0, rows)


def _end_transaction(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    code, known = _judge(broker, it)
    commits = it.transaction_result
    if known is not None:
        wanted = "Commit" if commits else "Abort"
        if known.state == "Ongoing":
            _end(broker.cluster, known, commits=commits)
        elif known.state == f"Prepare{wanted}":
            code = int(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif known.state != f"Complete{wanted}":
            code = int(ErrorCode.INVALID_TXN_STATE)
    return it.RESPONSE_TYPE(0, code)


def _expire(cluster: Cluster, known: Transaction, epoch: int, begun_at: float) -> None:
    if (known.state, known.epoch, known.begun_at) == ("Ongoing", epoch, begun_at):
        cluster.tell(cluster.name, "expired", known.name)
        _fence(cluster, known)


def _end(cluster: Cluster, known: Transaction, *, commits: bool) -> None:
    known.state = "PrepareCommit" if commits else "PrepareAbort"
    known.unmarked = dict(known.partitions)
    seconds = cluster.times.markers_s * (0.5 + cluster.random.random())
    cluster.host.call_later(seconds, _mark, cluster, known, commits)


def _mark(cluster: Cluster, known: Transaction, commits: bool) -> None:
    for topic, number in list(known.unmarked):
        partition = cluster.partition(topic, number)
        if partition is None:
            known.unmarked.pop((topic, number))
        elif partition.leader != NOBODY and cluster.brokers[partition.leader].is_up:
            known.unmarked.pop((topic, number))
            marker = bytearray(control_batch(0, known.producer_id, commits=commits))
            struct.pack_into(">h", marker, _PRODUCER_EPOCH_AT, known.epoch)
            batch = partition.append(resigned(marker), "coordinator")
            cluster.appended(cluster.brokers[partition.leader], partition, batch)
    if known.unmarked:
        cluster.host.call_later(0.05, _mark, cluster, known, commits)
    else:
        known.state = "CompleteCommit" if commits else "CompleteAbort"
        known.partitions = {}


KINDS = (
    Kind(_init_producer, (InitProducerIdRequest_v0, InitProducerIdRequest_v3)),
    Kind(_add_partitions, (AddPartitionsToTxnRequest_v0,)),
    Kind(_end_transaction, (EndTxnRequest_v0,)),
)
