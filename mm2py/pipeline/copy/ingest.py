"""
From a fetched record set to batches.

Decides for each batch how it travels: unopened, on the record path, or not at all. Nothing is sent here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from mm2py.errors import CorruptBatchError, HeaderNameError, RecordTooLargeError
from mm2py.model.epoch import CopyLimits, Ended, PartitionFailure, PartitionPlan
from mm2py.pipeline.copy.partition import BufferedBatch, PartitionCopy
from mm2py.wire.batches import merging
from mm2py.wire.batches.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    MalformedRecordSetError,
    RecordBatchView,
    batches,
)
from mm2py.wire.batches.codecs import BAD_CHECKSUM
from mm2py.wire.batches.native import Rebuilt
from mm2py.wire.batches.rebuild import Rebuilder, TooLargeTogetherError, UnreadableBatchError, UnreadableNameError
from mm2py.wire.fetch_forms import PartitionAnswer


#: length, leader epoch, magic, attributes; they start after the base offset
_GLANCE: Final = struct.Struct(">iib4xh")
_GLANCE_AT: Final = 8
_BASE_OFFSET: Final = struct.Struct(">q")
#: base offset, last offset delta
_OFFSETS: Final = struct.Struct(">q15xi")
_COALESCE_AT_LEAST: Final = 4
#: What is not coalesced, where a codec's number stands for batches that are.
_OTHER: Final = -1
_NEEDS_OPENING: Final = LOG_APPEND_TIME | DELETE_HORIZON
#: Without aborted transactions in the answer, transactional data is data like any other.
_NOT_COALESCED: Final = CONTROL | _NEEDS_OPENING


class DataFilter:
    """
    Distinguishes data batches from those that are not copied: control batches and, with read_committed, aborted ones.

    The broker lists the aborted transactions of an answer's range by producer id and first offset; a transaction
    ends with the next control batch of its producer id. Fetch answers are complete in this, so each gets a new filter.
    """

    def __init__(self, aborted: tuple[tuple[int, int], ...]) -> None:
        self._upcoming = sorted((first_offset, producer_id) for producer_id, first_offset in aborted)
        self._aborted: set[int] = set()

    def is_data(self, batch: RecordBatchView) -> bool:
        """Whether *batch* must be copied; call once for each batch, in order."""
        while self._upcoming and self._upcoming[0][0] <= batch.last_offset:
            self._aborted.add(self._upcoming.pop(0)[1])
        if batch.is_control:
            self._aborted.discard(batch.producer_id)
            return False
        return not (batch.is_transactional and batch.producer_id in self._aborted)


def ingest(copy: PartitionCopy, answer: PartitionAnswer, limits: CopyLimits) -> None:
    """Queue the batches of *answer* for *copy*, and advance its fetch position. Invalid data ends the partition at
    that offset; batches before it are queued.
    """
    record_set = answer.record_set
    if len(record_set) == 0:
        return
    try:
        if not answer.aborted and _is_backlog_of_small(record_set, copy.fetching.position.offset, limits):
            _ingest_small(copy, record_set, limits)
        else:
            data = DataFilter(answer.aborted)
            for batch in batches(record_set):
                if not _ingest_batch(copy, batch, data, limits):
                    return
    except MalformedRecordSetError as error:
        end_corrupt(copy, error)


def _is_backlog_of_small(record_set: memoryview, position: int, limits: CopyLimits) -> bool:
    if len(record_set) < HEADER_BYTES:
        return False
    (base_offset,) = _BASE_OFFSET.unpack_from(record_set)
    length, _, magic, _ = _GLANCE.unpack_from(record_set, _GLANCE_AT)
    size = length + LOG_OVERHEAD_BYTES
    return bool(
        magic == MAGIC_V2
        and base_offset >= position
        and size < limits.coalesce_below_bytes
        and len(record_set) >= size * _COALESCE_AT_LEAST
    )


def _ingest_batch(copy: PartitionCopy, batch: RecordBatchView, data: DataFilter, limits: CopyLimits) -> bool:
    """Queue one batch, or pass it over; False once the partition has ended."""
    fetching = copy.fetching
    fetch = fetching.position
    position = fetch.offset
    if batch.magic < MAGIC_V2:
        return _rebuild(copy, batch.view, position, codec=limits.codec)
    after = batch.last_offset + 1
    if after <= position:
        data.is_data(batch)  # it may end an aborted transaction
        return True
    fetching.read_under(batch.leader_epoch, batch.base_offset)
    if not batch.matches_crc():
        return end_corrupt(copy, UnreadableBatchError(batch.base_offset, BAD_CHECKSUM))
    if not data.is_data(batch) or batch.record_count == 0:
        copy.batches_dropped += 1
        copy.pass_over(after)
        fetch.offset = after
        return True
    if (
        batch.attributes & _NEEDS_OPENING
        or batch.base_offset < position
        or batch.has_holes
        or batch.size_bytes > copy.plan.max_message_bytes
        or limits.codec not in (None, batch.codec)
    ):
        return _rebuild(copy, batch.view, position, after, codec=limits.codec)
    copy.buffer.put(BufferedBatch(batch.view, batch.record_count, batch.base_offset, after, batch.max_timestamp))
    fetch.offset = after
    return True


def _ingest_small(copy: PartitionCopy, record_set: memoryview, limits: CopyLimits) -> None:
    """Put the small plain batches of a backlog together; everything between them goes the ordinary way."""
    data = DataFilter(())
    limit = min(limits.coalesce_batch_bytes, copy.plan.max_message_bytes)
    fetch = copy.fetching.position
    for offset_range, after in _offset_ranges(record_set, limits.coalesce_below_bytes):
        if after is not None:
            # A range was written under one leader.
            _, leader_epoch, _, _ = _GLANCE.unpack_from(offset_range, _GLANCE_AT)
            copy.fetching.read_under(leader_epoch, fetch.offset)
            try:
                if not _rebuild(copy, offset_range, fetch.offset, after, limit_bytes=limit, codec=limits.codec):
                    return
            except TooLargeTogetherError:
                pass
            else:
                continue
        for batch in batches(offset_range):
            if not _ingest_batch(copy, batch, data, limits):
                return


def _offset_ranges(record_set: memoryview, below_bytes: int) -> Iterator[tuple[memoryview, int | None]]:
    """Split a record set into ranges of small plain batches of one codec and one leader, and others. Each of the
    former has the offset after it.
    """
    found, at = merging.ranges(record_set, below_bytes), 0
    for end, after in _ranges(record_set, below_bytes) if found is None else found:
        yield record_set[at:end], after
        at = end
    if at < len(record_set):
        # Truncated, older than magic 2, or invalid: the normal path determines which.
        yield record_set[at:], None


def _ranges(record_set: memoryview, below_bytes: int) -> Iterator[tuple[int, int | None]]:
    """Return the end of each range, as `merging.ranges` does in compiled code."""
    glance = _GLANCE.unpack_from
    at = start = last = count = 0
    end = len(record_set) - HEADER_BYTES
    kind = _OTHER
    led_by = -1
    while at <= end:
        length, leader_epoch, magic, attributes = glance(record_set, at + _GLANCE_AT)
        size = length + LOG_OVERHEAD_BYTES
        if size < HEADER_BYTES or at + size > len(record_set):
            break
        is_small = size < below_bytes and magic == MAGIC_V2 and not attributes & _NOT_COALESCED
        this = attributes & CODEC_MASK if is_small else _OTHER
        if this != kind or leader_epoch != led_by:
            if at > start:
                yield at, _offset_behind(record_set, last) if kind != _OTHER and count > 1 else None
            start, count, kind, led_by = at, 0, this, leader_epoch
        count += 1
        last = at
        at += size
    if at > start:
        yield at, _offset_behind(record_set, last) if kind != _OTHER and count > 1 else None


def _offset_behind(record_set: memoryview, at: int) -> int:
    base_offset, last_offset_delta = _OFFSETS.unpack_from(record_set, at)
    return int(base_offset + last_offset_delta + 1)


def _rebuild(
    copy: PartitionCopy,
    record_set: memoryview,
    position: int,
    after: int | None = None,
    *,
    limit_bytes: int | None = None,
    codec: int | None = None,
) -> bool:
    """Send *record_set*, whole data batches, down the record path; False once the partition has ended."""
    rebuilder = Rebuilder(limit_bytes or copy.plan.max_message_bytes, codec)
    unreadable: UnreadableBatchError | None = None
    try:
        rebuilder.add(record_set, from_offset=position)
    except UnreadableBatchError as error:
        unreadable = error
    for rebuilt in rebuilder.finish():
        if not _put_rebuilt(copy, rebuilt):
            return False
    if unreadable is not None:
        return end_corrupt(copy, unreadable)
    if after is not None:
        copy.pass_over(after)
        copy.fetching.position.offset = after
    return True


def _put_rebuilt(copy: PartitionCopy, rebuilt: Rebuilt) -> bool:
    failure = too_large(copy.plan, rebuilt)
    if failure is not None:
        copy.end(Ended.FAILED, failure)
        return False
    copy.buffer.put_rebuilt(rebuilt)
    copy.fetching.position.offset = rebuilt.last_upstream + 1
    return True


def too_large(plan: PartitionPlan, rebuilt: Rebuilt) -> PartitionFailure | None:
    """Return why the remote topic of *plan* does not take a batch; None if it does."""
    size_bytes, limit = len(rebuilt.batch), plan.max_message_bytes
    if size_bytes <= limit:
        return None
    # The builder lets only a batch's first record exceed its limit, so this one is alone in its batch.
    offset = rebuilt.first_upstream
    error = RecordTooLargeError(plan.source.topic, plan.source.partition, offset, size_bytes, limit)
    return PartitionFailure(str(error), error.hint, type(error).__name__, offset)


def end_corrupt(copy: PartitionCopy, error: MalformedRecordSetError | UnreadableBatchError) -> bool:
    """End *copy* at a batch of the source that cannot be read; False, for the caller to pass on."""
    copy.end(Ended.FAILED, failure_at(copy.plan, error))
    return False


def failure_at(plan: PartitionPlan, error: MalformedRecordSetError | UnreadableBatchError) -> PartitionFailure:
    """Return the failure of a partition at a batch of the source that cannot be read."""
    kind = HeaderNameError if isinstance(error, UnreadableNameError) else CorruptBatchError
    ours = kind(plan.source.topic, plan.source.partition, error.offset, error.detail)
    return PartitionFailure(str(ours), ours.hint, kind.__name__, error.offset)
