"""
Produce: a batch is appended by the leader, and acknowledged once all in-sync replicas have it.

After ReplicaManager and DelayedProduce; what a leader refuses is in `Partition.judge`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiokafka.protocol.produce import ProduceRequest_v7, ProduceRequest_v8

from mm2py.wire.batches.batch import TRANSACTIONAL, batches
from mm2py.wire.error_codes import ErrorCode
from tests.simulated.log import Partition
from tests.simulated.requests.kind import Kind
from tests.support.contents import decode
from tests.support.produce_v13 import ProduceRequest_v13, told_by_id


if TYPE_CHECKING:
    from tests.simulated.broker import Broker, Line
    from tests.simulated.cluster import Topic


_BY_ID = 13
#: Base offset, size of what follows, leader epoch, magic; the attributes; producer id and epoch.
_PREFIX, _ATTRIBUTES, _PRODUCER = struct.Struct(">qiib"), struct.Struct(">h"), struct.Struct(">qh")
_SIZE_ENDS_AT, _LEAST_BYTES, _MAGIC = 12, 14, 2


def produce(broker: Broker, line: Line, request: Any, reply: Callable[[Any], None]) -> None:
    """Append what is fit, and answer when it is on all replicas, or the client's time is over."""
    delayed = DelayedProduce(broker, request, reply)
    known = broker.cluster.by_id if delayed.by_id else broker.cluster.topics
    for named, rows, *_ in request.topics:
        topic = known.get(named)
        delayed.results.append((named, [_append(delayed, line, topic, number, raw) for number, raw, *_ in rows]))
    delayed.begin()


def _refused_by(broker: Broker, partition: Partition) -> int:
    """Return the error of a broker that takes nothing for a partition, whatever it is."""
    cluster = broker.cluster
    if cluster.denies(partition.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if partition.leader != broker.node:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if cluster.full_until.get(broker.node, 0.0) > cluster.loop.time():
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NOT_ENOUGH_REPLICAS if len(partition.isr) < cluster.min_isr else 0


def _append(delayed: DelayedProduce, line: Line, topic: Topic | None, number: int, raw: bytes) -> list[Any]:
    broker = delayed.broker
    cluster = broker.cluster
    row = [number, 0, -1, -1, -1, [], None]
    row[1], row[6] = delayed.refusal(raw)
    if row[1]:
        return row
    if topic is None or number >= len(topic.partitions):
        is_unknown = delayed.by_id and topic is None
        row[1] = int(ErrorCode.UNKNOWN_TOPIC_ID if is_unknown else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return row
    partition = topic.partitions[number]
    if code := _refused_by(broker, partition):
        row[1] = int(code)
    elif code := delayed.verify(partition, raw):
        row[1], row[6] = code, "Partition was not in the transaction" if code == ErrorCode.INVALID_TXN_STATE else None
    elif errors := _without_key(topic, number, raw):
        row[1], row[4:] = int(ErrorCode.INVALID_RECORD), (partition.start, errors, "records were rejected")
    else:
        code, batch = partition.judge(raw)
        row[1] = int(code)
        row[4] = -1 if code == ErrorCode.CORRUPT_MESSAGE else partition.start
        if not code:
            if batch is None:
                batch, cluster.sender = partition.append(raw, line.client.machine), line.client
                cluster.appended(broker, partition, batch)
            else:  # it is here already
                row[3] = batch.max_timestamp
            row[2] = batch.base
            delayed.waits.append((partition, batch.last + 1, partition.leader_epoch, row))
    return row


def _refusal(raw: bytes) -> tuple[int, str | None]:
    """Return what a broker refuses before it looks for the partition (ProduceRequest.validateRecords)."""
    if len(raw) >= _PREFIX.size:
        _, size, _, magic = _PREFIX.unpack_from(raw)
        if size < _LEAST_BYTES or magic > _MAGIC:
            return int(ErrorCode.CORRUPT_MESSAGE), "Record is corrupt"
        if magic == _MAGIC and len(raw) == size + _SIZE_ENDS_AT:
            return 0, None
    return int(ErrorCode.INVALID_RECORD), None


def _without_key(topic: Topic, number: int, raw: bytes) -> list[tuple[int, str]]:
    """Return which records a compacted topic does not take (LogValidator.validateKey)."""
    if "compact" not in topic.configs.get("cleanup.policy", ""):
        return []
    (view,) = batches(memoryview(raw))
    if view.is_control or not view.matches_crc():
        return []
    text = f"Compacted topic cannot accept message without key in topic partition {topic.name}-{number}"
    return [(at, text) for at, record in enumerate(decode(raw)) if record.key is None]


def _is_transactional(raw: bytes) -> bool:
    return bool(_ATTRIBUTES.unpack_from(raw, 21)[0] & TRANSACTIONAL)


class DelayedProduce:
    """An answer that waits for replicas."""

    def __init__(self, broker: Broker, request: Any, reply: Callable[[Any], None]) -> None:
        self.broker = broker
        self.results: list[tuple[Any, list[list[Any]]]] = []
        #: Partition, the end that all replicas must have, the epoch in which it was appended, the answer's row.
        self.waits: list[tuple[Partition, int, int, list[Any]]] = []
        self.by_id = request.API_VERSION >= _BY_ID
        self._request = request
        self._reply = reply
        self._is_over = False
        self._timer: Any = None

    def refusal(self, raw: bytes) -> tuple[int, str | None]:
        """Return the error of a batch that no partition is asked about."""
        if self._request.required_acks not in (-1, 0, 1):
            return int(ErrorCode.INVALID_REQUIRED_ACKS), None
        code, text = _refusal(raw)
        if not code and _is_transactional(raw) and self._request.transactional_id is None:
            code = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return code, text

    def verify(self, partition: Partition, raw: bytes) -> int:
        """Ask the coordinator of a transaction that begins in this partition whether it does."""
        producer_id, epoch = _PRODUCER.unpack_from(raw, 43)
        if not _is_transactional(raw) or partition.is_open(producer_id, epoch):
            return 0
        return self.broker.cluster.verify(partition, self._request.transactional_id, producer_id, epoch)

    def begin(self) -> None:
        """Wait as long as the client allows."""
        for partition, *_ in self.waits:
            partition.waiters[self.check] = None
        self._timer = self.broker.host.call_later(self._request.timeout / 1000, self._expire)
        self.check()

    def check(self) -> None:
        """Answer if nothing is waited for any more."""
        if self._is_over:
            return
        left = 0
        for partition, end, epoch, row in self.waits:
            if (partition.leader, partition.leader_epoch) != (self.broker.node, epoch):
                row[1] = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif partition.high_watermark < end:
                left += 1
        if not left:
            self._finish()

    def _expire(self) -> None:
        if not self._is_over:
            for partition, end, _, row in self.waits:
                if not row[1] and partition.high_watermark < end:
                    row[1] = int(ErrorCode.REQUEST_TIMED_OUT)
            self._finish()

    def _finish(self) -> None:
        self._is_over = True
        self._timer.cancel()
        for partition, *_ in self.waits:
            partition.waiters.pop(self.check, None)
        for _, rows in self.results:
            self.broker.cluster.codes.update(row[1] for row in rows)
            for row in rows:
                row[2] = -1 if row[1] else row[2]
        version, answer = self._request.API_VERSION, self._request.RESPONSE_TYPE
        if self.by_id:
            topics = [(named, [tuple(row) for row in rows]) for named, rows in self.results]
            self._reply(told_by_id(topics, self.broker.cluster.throttle_ms))
            return
        columns = 7 if version >= ProduceRequest_v8.API_VERSION else 5
        topics = [(named, [tuple(row[:columns]) for row in rows]) for named, rows in self.results]
        self._reply(answer(topics, self.broker.cluster.throttle_ms))


KINDS = (Kind(produce, (ProduceRequest_v7, ProduceRequest_v8, ProduceRequest_v13), with_header=(ProduceRequest_v13,)),)
