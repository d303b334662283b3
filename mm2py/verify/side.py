"""
One side of a slice that is compared: its data batches in order, fetched ahead.

While the records of one answer are compared, the broker works on the next. At most two answers are held.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Final, TypeGuard

import attrs

from mm2py.clock import Clock
from mm2py.errors import Mm2Error, shortened
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.ingest import DataFilter
from mm2py.verify.terms import Content
from mm2py.wire.batches.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC_V2,
    RecordBatchView,
)
from mm2py.wire.batches.payloads import Payloads, Singles, pieces, read
from mm2py.wire.batches.rebuild import UnreadableBatchError
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.fetch import OtherTopicError, fetch_from_leader
from mm2py.wire.fetch_forms import FetchPosition, FetchSizes, PartitionAnswer
from mm2py.wire.requests import id_bytes


#: Small batches are read together, up to this many bytes.
_TOGETHER_BYTES: Final = 64 * 1024
#: The bits of a batch's attributes that determine how its records are read.
_MEANT: Final = CODEC_MASK | DELETE_HORIZON | LOG_APPEND_TIME


@attrs.define(eq=False)
class SliceLostError(Mm2Error):
    """A slice cannot be compared to its end, because records that were to be compared are not there any more."""

    hint: ClassVar[str] = "compare again; --from skips records that retention is about to remove"

    partition: str
    cluster: str
    problem: str = attrs.field(converter=shortened)

    def __str__(self) -> str:
        return f"{self.partition} of cluster {self.cluster}: {self.problem}"


class PartitionReader:
    """
    The records of one partition from offset *start* up to *end*.

    Its fetches are tasks of *tasks*, which it leaves with `close`. `holes` counts the offsets that no record has and no
    batch covers, as compaction leaves them; `is_stamped` says that brokers stamped records (LogAppendTime).
    """

    def __init__(
        self,
        cluster: Cluster,
        tp: TopicPartition,
        purpose: str,
        bounds: tuple[int, int],
        *,
        sizes: FetchSizes,
        tasks: asyncio.TaskGroup,
        topic_id: str | None = None,
    ) -> None:
        self.start, self.end = bounds
        self.position = self.start
        self.holes = 0
        self.bytes = 0
        self.is_stamped = False
        self._cluster = cluster
        self._tp = tp
        self._purpose = purpose
        self._sizes = sizes
        self._tasks = tasks
        self._topic_id = topic_id
        self._waiting: deque[RecordBatchView | Singles] = deque()
        self._coming: asyncio.Task[PartitionAnswer] | None = None

    @property
    def clock(self) -> Clock:
        return self._cluster.clock

    @property
    def next_offset(self) -> int:
        """Return the offset of the next record, or one after it."""
        return max(self._waiting[0].base_offset, self.start) if self._waiting else self.position

    async def peek(self) -> RecordBatchView | Singles | None:
        """Return the next batch, or the next ones of one record each, which stays; None at the end."""
        while not self._waiting:
            if self.position >= self.end:
                return None
            self._take(await self._answer())
        return self._waiting[0]

    def drop(self) -> None:
        """Pass the batch over that `peek` gave."""
        self._waiting.popleft()

    def is_whole(self, batch: RecordBatchView | Singles) -> TypeGuard[RecordBatchView]:
        """Whether this is a batch, not opened yet, all records of which lie between start and end."""
        if isinstance(batch, Singles):
            return False
        return batch.magic >= MAGIC_V2 and batch.base_offset >= self.start and batch.last_offset < self.end

    async def rows(self) -> tuple[Sequence[int], Sequence[Content], int]:
        """
        Read the next records: offsets, contents (timestamp and payload), and how many batches they come from.

        None come at the end. Raise `UnreadableBatchError` for an invalid batch, which is skipped.
        """
        if await self.peek() is None:
            return (), (), 0
        found, count, size = Payloads(), 0, 0
        while self._waiting and (not count or size + self._waiting[0].size_bytes <= _TOGETHER_BYTES):
            batch = self._waiting[0]
            try:
                found.extend(batch if isinstance(batch, Singles) else read(batch).between(self.start, self.end))
            except UnreadableBatchError:
                if count:
                    break
                self._waiting.popleft()
                raise
            self._waiting.popleft()
            size += batch.size_bytes
            count += len(batch.offsets) if isinstance(batch, Singles) else 1
        return found.offsets, found.contents, count

    def close(self) -> None:
        """Give up what is being fetched."""
        if self._coming is not None:
            self._coming.cancel()
        self._waiting.clear()
        self.position = self.end

    async def _answer(self) -> PartitionAnswer:
        """Return what comes next, and ask for what follows it."""
        if self._coming is None:
            self._coming = self._ask_ahead()
        coming, self._coming = self._coming, None
        answer = await coming
        # The fetching task must get its turn between two answers.
        await self.clock.sleep(0)
        return answer

    def _ask_ahead(self) -> asyncio.Task[PartitionAnswer]:
        return self._tasks.create_task(self._ask(self.position), name=f"fetch {self._tp} from {self.position}")

    def _take(self, answer: PartitionAnswer) -> None:
        data = DataFilter(answer.aborted)
        for piece in pieces(answer.record_set, self.end):
            if isinstance(piece, Singles):
                self._take_singles(piece)
            else:
                self._take_batch(piece, data)
            if self.position >= self.end:
                return
        self._coming = self._ask_ahead()

    def _take_singles(self, singles: Singles) -> None:
        kept = singles.between(self.position, self.end)
        if kept.offsets:
            after = kept.last_offset + 1
            self.holes += after - self.position - len(kept.offsets)
            self.position = after
            self._waiting.append(kept)
        self.bytes += singles.size_bytes

    def _take_batch(self, batch: RecordBatchView, data: DataFilter) -> None:
        after = batch.last_offset + 1
        if after <= self.position:
            return
        if batch.base_offset >= self.end and batch.magic >= MAGIC_V2:
            self._count_hole(self.end)
            self.position = self.end
            return
        if batch.magic >= MAGIC_V2:
            self._count_hole(batch.base_offset)
            if batch.record_count < batch.offset_count:
                self.holes += batch.offset_count - batch.record_count
        self.position = after
        self.bytes += batch.size_bytes
        self.is_stamped = self.is_stamped or bool(batch.attributes & LOG_APPEND_TIME)
        if batch.magic < MAGIC_V2 or (data.is_data(batch) and batch.record_count):
            self._waiting.append(batch)

    def _count_hole(self, until: int) -> None:
        self.holes += max(0, until - self.position)

    async def _ask(self, offset: int) -> PartitionAnswer:
        """Fetch from *offset* until a whole batch comes. What lies up to the end was there a moment ago."""
        topic, number = self._tp.topic, self._tp.partition
        try:
            answer = await fetch_from_leader(
                self._cluster,
                FetchPosition(topic.encode(), number, offset, -1, None, topic_id=id_bytes(self._topic_id)),
                self._sizes,
                self._purpose,
                patience_s=self._cluster.endpoint.request_timeout_ms / 1000,
                is_final=lambda answer: answer.record_set or answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        except OtherTopicError as error:
            raise self._lost("the topic was deleted and created again while it was compared") from error
        if answer.error_code:
            raise self._lost(f"records from offset {offset} on were removed while they were compared")
        return answer

    def _lost(self, problem: str) -> SliceLostError:
        return SliceLostError(str(self._tp), self._cluster.alias, problem)


def are_same(ours: RecordBatchView, theirs: RecordBatchView, *, ignore_timestamps: bool = False) -> bool:
    """
    Whether two batches hold the same records, without opening either: True is certain, False is inconclusive.

    Their checksums differ, because the mirror's producer id is in it; so what follows the header is compared.
    """
    if ours.size_bytes != theirs.size_bytes or ours.record_count != theirs.record_count:
        return False
    meant = _MEANT & ~LOG_APPEND_TIME if ignore_timestamps else _MEANT
    if (ours.attributes ^ theirs.attributes) & meant or ours.offset_count != theirs.offset_count:
        return False
    if not ignore_timestamps and (ours.base_timestamp, ours.max_timestamp) != (
        theirs.base_timestamp,
        theirs.max_timestamp,
    ):
        return False
    # A memoryview compares byte by byte; a bytearray has the C library do it.
    return bytearray(ours.view[HEADER_BYTES:]) == theirs.view[HEADER_BYTES:]
