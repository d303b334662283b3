"""Offsets of a log: its ends, the first of a time, and where leader epochs ended (LeaderEpochFileCache)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.log_end import OffsetForLeaderEpochRequest_v3
from mm2py.wire.requests import ListOffsetsRequest_v4, ListOffsetsRequest_v8
from tests.simulated.requests.kind import Kind


if TYPE_CHECKING:
    from tests.simulated.broker import Broker, Line


_LATEST, _EARLIEST, _EARLIEST_LOCAL = -1, -2, -4


def _list_offsets(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    tags = ({},) if it.FLEXIBLE_VERSION else ()
    topics = []
    for name, wanted, *_ in it.topics:
        rows = []
        for number, epoch, when, *__ in wanted:
            partition = cluster.partition(name, number)
            code = broker.code(partition, epoch) if partition else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            offset, of_epoch = -1, -1
            if partition is not None and not code:
                of_epoch = partition.leader_epoch
                latest = partition.stable if it.isolation_level == 1 else partition.high_watermark
                start = when in (_EARLIEST, _EARLIEST_LOCAL)
                offset = latest if when == _LATEST else partition.start if start else partition.since(when)
            rows.append((number, code, -1, offset, of_epoch, *tags))
        topics.append((name, rows, *tags))
    return it.RESPONSE_TYPE(0, topics, *tags)


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
)
