"""
One range of one topic-partition, read from the source as columns.

A range ends where it was planned to end, whatever the source has by now: so it holds the same records whenever it is
read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from mm2py.clock import Clock
from mm2py.errors import CorruptBatchError
from mm2py.model.epoch import RECREATED, CopyLimits, Ended, PartitionFailure, PartitionPlan
from mm2py.pipeline.copy.fetcher import HINT_OUT_OF_RANGE
from mm2py.pipeline.copy.ingest import DataFilter
from mm2py.pipeline.copy.refusals import UNREACHABLE, failure_of, lacks
from mm2py.pipeline.transform.failures import TransformFailedError, UnreadableRange
from mm2py.wire.batches.batch import MAGIC_V2, MalformedRecordSetError, batches
from mm2py.wire.batches.rebuild import UnreadableBatchError
from mm2py.wire.batches.record_columns import RecordColumns
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, name_of, needs_metadata
from mm2py.wire.fetch import OtherTopicError, fetch_from_leader
from mm2py.wire.fetch_forms import FetchPosition, FetchSizes, PartitionAnswer
from mm2py.wire.requests import id_bytes


#: An Arrow batch of about a megabyte costs Spark least (it stays in the processor's cache).
_COLUMNS_BYTES: Final = 1024 * 1024
_COLUMNS_RECORDS: Final = 8192
_PAUSE_S: Final = 0.1
#: How long a moving leader is awaited before its error is noted.
_PATIENCE_S: Final = 1.0
#: How long to wait for a cluster that returns nothing; the range is planned again after that.
READ_WITHIN_S: Final = 20.0
_LEAST_FETCH_BYTES: Final = 4 * 1024 * 1024


class RangeReader:
    """Reads ranges of one source cluster, each within *within_s*."""

    def __init__(self, source: Cluster, limits: CopyLimits, clock: Clock, *, within_s: float) -> None:
        self._source = source
        self._clock = clock
        self._sizes = FetchSizes(
            1,
            limits.fetch_max_bytes,
            max(limits.fetch_partition_max_bytes, _LEAST_FETCH_BYTES),
            limits.reads_committed,
            limits.rack,
        )
        self._wait_ms = limits.fetch_max_wait_ms
        self._within_s = within_s

    async def read(self, plan: PartitionPlan) -> AsyncIterator[RecordColumns]:
        """Return the records of *plan* from its position to its end. Raise `TransformFailedError`."""
        source = plan.source
        topic_id = id_bytes(plan.topic_id)
        position = FetchPosition(source.topic.encode(), source.partition, plan.position, -1, None, topic_id=topic_id)
        end = plan.until if plan.until is not None else plan.position
        columns, size = RecordColumns(), 0
        moved_at = self._clock.monotonic()
        while position.offset < end:
            answer = await self._ask(plan, position)
            if answer.record_set:
                moved_at = self._clock.monotonic()
            elif self._clock.monotonic() - moved_at > self._within_s:
                message = f"the source has no records of {source} at offset {position.offset} any more"
                raise UnreadableRange(source, Ended.INTERRUPTED, PartitionFailure(message)).error()
            for whole, after in self._whole_batches(plan, position, answer):
                if whole:
                    self._add(plan, columns, whole, position.offset, end)
                    size += len(whole)
                position.offset = after
                if size >= _COLUMNS_BYTES or len(columns) >= _COLUMNS_RECORDS:
                    yield columns
                    columns, size = RecordColumns(), 0
                if position.offset >= end:
                    break
        if columns.offsets:
            yield columns

    def _whole_batches(
        self, plan: PartitionPlan, position: FetchPosition, answer: PartitionAnswer
    ) -> list[tuple[bytes, int]]:
        """Return the answer's batches, empty where they are not copied, each with the offset after it."""
        data = DataFilter(answer.aborted)
        found: list[tuple[bytes, int]] = []
        try:
            for batch in batches(answer.record_set):
                if batch.magic < MAGIC_V2:
                    found.append((bytes(batch.view), batch.base_offset + 1))
                    continue
                after = batch.last_offset + 1
                if after <= position.offset:
                    continue
                is_data = data.is_data(batch) and batch.record_count > 0
                found.append((bytes(batch.view) if is_data else b"", after))
        except MalformedRecordSetError as error:
            if not found:
                raise self._corrupt(plan, error.offset, error.detail) from error
        return found

    def _add(self, plan: PartitionPlan, columns: RecordColumns, record_set: bytes, position: int, end: int) -> None:
        try:
            columns.add(record_set, from_offset=position, before=end)
        except UnreadableBatchError as error:
            raise self._corrupt(plan, error.offset, error.detail) from error

    @staticmethod
    def _corrupt(plan: PartitionPlan, offset: int, detail: str) -> TransformFailedError:
        error = CorruptBatchError(plan.source.topic, plan.source.partition, offset, detail)
        failure = PartitionFailure(str(error), error.hint, type(error).__name__, offset)
        return UnreadableRange(plan.source, Ended.FAILED, failure).error()

    async def _ask(self, plan: PartitionPlan, position: FetchPosition) -> PartitionAnswer:
        """Return the next answer; ask again while the leader moves or the cluster is away."""
        failure = PartitionFailure(f"the source did not answer for {plan.source} in time")
        try:
            async with asyncio.timeout(self._within_s):
                while True:
                    try:
                        answer = await fetch_from_leader(
                            self._source,
                            position,
                            self._sizes,
                            "records",
                            wait_ms=self._wait_ms,
                            patience_s=_PATIENCE_S,
                            is_final=lambda answer: not needs_metadata(answer.error_code),
                        )
                    except OtherTopicError as error:
                        raise UnreadableRange(plan.source, Ended.RECREATED, RECREATED).error() from error
                    except UNREACHABLE as error:
                        failure = failure_of(error)
                        await self._clock.sleep(_PAUSE_S)
                        continue
                    if answer.error_code:
                        raise self._refused(plan, position, answer.error_code)
                    return answer
        except TimeoutError as error:
            raise UnreadableRange(plan.source, Ended.INTERRUPTED, failure).error() from error

    def _refused(self, plan: PartitionPlan, position: FetchPosition, code: int) -> TransformFailedError:
        message = f"source answered {name_of(code)} for {plan.source} at offset {position.offset}"
        hint, ended = "", Ended.FAILED
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            ended, hint = Ended.OUT_OF_RANGE, HINT_OUT_OF_RANGE
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            hint = lacks(self._source.endpoint, "READ", plan.source.topic)
        return UnreadableRange(
            plan.source, ended, PartitionFailure(message, hint, name_of(code), position.offset)
        ).error()
