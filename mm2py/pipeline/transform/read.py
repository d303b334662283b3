"""
One range of one topic-partition, read from the source as columns.

A range ends where it was planned to end, whatever the source has by now: so it holds the same records whenever it is
read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

import attrs
import pyarrow as pa

from mm2py.clock import Clock
from mm2py.model.epoch import RECREATED, CopyLimits, Ended, PartitionFailure, PartitionPlan
from mm2py.pipeline.copy.fetcher import HINT_OUT_OF_RANGE
from mm2py.pipeline.copy.ingest import DataFilter, failure_at
from mm2py.pipeline.copy.refusals import UNREACHABLE, failure_of, hint_at_fetch
from mm2py.pipeline.transform.columns import NAMES, to_arrow
from mm2py.pipeline.transform.failures import TransformFailedError, UnreadableRange
from mm2py.pipeline.transform.validation import end_of
from mm2py.wire.batches.batch import MAGIC_V2, MalformedRecordSetError, batches
from mm2py.wire.batches.packed_records import unpack
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
PATIENCE_S: Final = 1.0
#: How long to wait for a cluster that returns nothing; the range is planned again after that.
READ_WITHIN_S: Final = 20.0
_LEAST_FETCH_BYTES: Final = 4 * 1024 * 1024


class _Batch(NamedTuple):
    """A batch of an answer, empty where its records are not copied, and the offset after it."""

    content: bytes
    record_count: int
    after: int


@attrs.define
class _Part:
    """Batches that are decoded together."""

    from_offset: int
    batches: list[bytes] = attrs.field(factory=list)
    size_bytes: int = 0
    record_count: int = 0

    def add(self, batch: _Batch) -> None:
        if batch.content:
            self.batches.append(batch.content)
            self.size_bytes += len(batch.content)
            self.record_count += batch.record_count

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= _COLUMNS_BYTES or self.record_count >= _COLUMNS_RECORDS


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
        async for part in self._parts(plan):
            if len(columns := self._columns(plan, part)):
                yield columns

    async def read_arrow(
        self, plan: PartitionPlan, names: Sequence[str] = NAMES, *, is_for_spark: bool = True
    ) -> AsyncIterator[pa.RecordBatch]:
        """
        Return the columns *names* of the same records, without a Python object for each where that is possible.

        Raise `TimestampTooLargeError` if it *is_for_spark*.
        """
        async for part in self._parts(plan):
            packed = unpack(part.batches, from_offset=part.from_offset, before=end_of(plan))
            records = self._columns(plan, part) if packed is None else packed
            if len(records):
                yield to_arrow(plan.source, records, names, is_for_spark=is_for_spark)

    async def _parts(self, plan: PartitionPlan) -> AsyncIterator[_Part]:
        """Fetch the batches of *plan*, those of each part from the offset on where the one before ended."""
        source, end = plan.source, end_of(plan)
        topic_id = id_bytes(plan.topic_id)
        position = FetchPosition(source.topic.encode(), source.partition, plan.position, -1, None, topic_id=topic_id)
        part = _Part(position.offset)
        moved_at = self._clock.monotonic()
        while position.offset < end:
            answer = await self._ask(plan, position)
            if answer.record_set:
                moved_at = self._clock.monotonic()
            elif self._clock.monotonic() - moved_at > self._within_s:
                message = f"the source has no records of {source} at offset {position.offset} any more"
                raise UnreadableRange(source, Ended.INTERRUPTED, PartitionFailure(message)).error()
            for batch in self._whole_batches(plan, position, answer):
                part.add(batch)
                position.offset = batch.after
                if part.is_full:
                    yield part
                    part = _Part(position.offset)
                if position.offset >= end:
                    break
        if part.batches:
            yield part

    def _columns(self, plan: PartitionPlan, part: _Part) -> RecordColumns:
        columns = RecordColumns()
        try:
            for batch in part.batches:
                columns.add(batch, from_offset=part.from_offset, before=end_of(plan))
        except UnreadableBatchError as error:
            raise self._corrupt(plan, error) from error
        return columns

    def _whole_batches(self, plan: PartitionPlan, position: FetchPosition, answer: PartitionAnswer) -> list[_Batch]:
        data = DataFilter(answer.aborted)
        found: list[_Batch] = []
        try:
            for batch in batches(answer.record_set):
                if batch.magic < MAGIC_V2:
                    found.append(_Batch(bytes(batch.view), 1, batch.base_offset + 1))
                    continue
                after = batch.last_offset + 1
                if after <= position.offset:
                    continue
                is_data = data.is_data(batch) and batch.record_count > 0
                found.append(_Batch(bytes(batch.view) if is_data else b"", batch.record_count, after))
        except MalformedRecordSetError as error:
            if not found:
                raise self._corrupt(plan, error) from error
        return found

    @staticmethod
    def _corrupt(plan: PartitionPlan, error: MalformedRecordSetError | UnreadableBatchError) -> TransformFailedError:
        return UnreadableRange(plan.source, Ended.FAILED, failure_at(plan, error)).error()

    async def _ask(self, plan: PartitionPlan, position: FetchPosition) -> PartitionAnswer:
        """Return the next answer; ask again while the leader moves or the cluster is away."""
        failure = PartitionFailure(f"the source did not answer for {plan.source} in time", waits_for=self._source.alias)
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
                            patience_s=PATIENCE_S,
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
        hint, ended = hint_at_fetch(code, self._source.endpoint, plan.source.topic), Ended.FAILED
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            ended, hint = Ended.OUT_OF_RANGE, HINT_OUT_OF_RANGE
        elif hint is None:
            ended, hint = Ended.INTERRUPTED, ""
        return UnreadableRange(
            plan.source, ended, PartitionFailure(message, hint, name_of(code), position.offset)
        ).error()
