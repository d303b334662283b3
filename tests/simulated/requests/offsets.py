"""Offsets of a log: its ends, the first of a time, where leader epochs ended, and up to where it is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.protocol.admin import DeleteRecordsRequest_v1

from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.log_end import OffsetForLeaderEpochRequest_v3
from mm2py.wire.requests import ListOffsetsRequest_v4, ListOffsetsRequest_v8
from tests.simulated.log import Partition
from tests.simulated.requests.kind import Kind


if TYPE_CHECKING:
    from tests.simulated.broker import Broker, Line


_LATEST, _EARLIEST, _GREATEST, _EARLIEST_LOCAL = -1, -2, -3, -4
#: Since which version such a question may be asked.
_SINCE = {_EARLIEST: 0, _GREATEST: 7, _EARLIEST_LOCAL: 8}
_NEVER = 99
_TO_THE_END = -1


def _list_offsets(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    tags: tuple[Any, ...] = ({},) if it.FLEXIBLE_VERSION else ()
    topics = []
    for name, wanted, *_ in it.topics:
        rows = []
        for number, epoch, when, *__ in wanted:
            partition = cluster.partition(name, number)
            code = broker.code(partition, epoch) if partition else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if when < -1 and _SINCE.get(when, _NEVER) > it.API_VERSION:
                code = int(ErrorCode.UNSUPPORTED_VERSION)
            is_committed = it.isolation_level == 1
            found = (-1, -1, -1) if code or partition is None else _found(partition, when, is_committed=is_committed)
            rows.append((number, code, *found, *tags))
        topics.append((name, rows, *tags))
    return it.RESPONSE_TYPE(0, topics, *tags)


def _found(partition: Partition, when: int, *, is_committed: bool) -> tuple[int, int, int]:
    """Return timestamp, offset and leader epoch."""
    if when == _LATEST:
        return -1, partition.stable if is_committed else partition.high_watermark, partition.leader_epoch
    if when in (_EARLIEST, _EARLIEST_LOCAL):
        epoch = partition.epochs[0][0] if partition.epochs else -1
        return -1, max(partition.start, partition.local_start) if when == _EARLIEST_LOCAL else partition.start, epoch
    return partition.latest() if when == _GREATEST else partition.since(when)


def _delete_records(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    topics = []
    for name, wanted in it.topics:
        rows = []
        for number, offset in wanted:
            partition = cluster.partition(name, number)
            code = broker.code(partition, -1) if partition else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if partition is None or code:
                rows.append((number, -1, code))
                continue
            to = partition.high_watermark if offset == _TO_THE_END else offset
            if "delete" not in cluster.topics[name].configs.get("cleanup.policy", "delete"):
                code = int(ErrorCode.POLICY_VIOLATION)
            elif not 0 <= to <= partition.high_watermark:
                code = int(ErrorCode.OFFSET_OUT_OF_RANGE)
            elif to > partition.start:
                partition.delete_before(to)
            rows.append((number, -1 if code else partition.start, code))
        topics.append((name, rows))
    return it.RESPONSE_TYPE(0, topics)


def _epoch_ends(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    topics = []
    for name, wanted in it.topics:
        rows = []
        for number, current, epoch in wanted:
            partition = cluster.partition(name, number)
            code = broker.code(partition, current) if partition else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            found = (-1, -1) if code or partition is None else partition.epoch_end(epoch)
            rows.append((code, number, *found))
        topics.append((name, rows))
    return it.RESPONSE_TYPE(0, topics)


KINDS = (
    Kind(_list_offsets, (ListOffsetsRequest_v4, ListOffsetsRequest_v8)),
    Kind(_epoch_ends, (OffsetForLeaderEpochRequest_v3,)),
    Kind(_delete_records, (DeleteRecordsRequest_v1,)),
)
