"""
What the target holds after the last record that was accounted for.

Offsets there need not be records: each transaction leaves a marker, and what it wrote in vain if it was aborted. Only
records that a consumer of committed ones would see count.
"""

from __future__ import annotations

from typing import Final

from mm2py.clock import Clock
from mm2py.errors import BrokerAnsweredError
from mm2py.model.epoch import CopyLimits, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.transform.failures import TransformFailedError, unreadable_in
from mm2py.pipeline.transform.read import READ_WITHIN_S, RangeReader
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.requests import EARLIEST, LATEST


_COMMITTED: Final = CopyLimits(reads_committed=True)


async def records_behind(target: Cluster, remote: TopicPartition, *, after: int, end: int, clock: Clock) -> int:
    """
    Count the committed records of *remote* that lie past offset *after* and before *end*.

    Where they may not be read, every offset is taken for one. Raise `BrokerAnsweredError` where they cannot be told
    now, such as while a transaction is open there.
    """
    stable = (await target.list_offsets([remote], LATEST, reads_committed=True))[remote]
    start = (await target.list_offsets([remote], EARLIEST))[remote]
    for answer in (stable, start):
        if isinstance(answer, BrokerAnsweredError):
            raise answer
    if isinstance(stable, int) and stable < end:
        detail = f"a transaction that is still open holds {remote} at offset {stable}"
        raise error_of(ErrorCode.CONCURRENT_TRANSACTIONS, target.alias, "ListOffsets", detail)
    begin = max(after + 1, start if isinstance(start, int) else 0)
    offset_range = PartitionPlan(remote, remote.topic, begin, None, is_unsure=False, until=end)
    count = 0
    try:
        async for columns in RangeReader(target, _COMMITTED, clock, within_s=READ_WITHIN_S).read(offset_range):
            count += len(columns)
    except TransformFailedError as error:
        unreadable = unreadable_in(str(error))
        if unreadable is not None and unreadable.failure.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED.name:
            return end - after - 1
        detail = unreadable.failure.message if unreadable is not None else str(error)
        raise error_of(ErrorCode.OFFSET_NOT_AVAILABLE, target.alias, "Fetch", detail) from error
    return count
