"""
What a transform gave back for one topic-partition, written to the target.

Nothing is sent before the last row is there: a transform that fails on one of them has sent none, so its stretch is
run again, or cut, without repeating anything. From then on it is the copier's own way: `Dispatch` signs, sends, sends
again, and `PartitionCopy` accounts for what was acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import lt
from typing import Any, Final

from mm2py.clock import Clock
from mm2py.core.steps import StepChain, StepFailedError, StepRecord
from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError, RecordTooLargeError
from mm2py.model.epoch import Ended, EpochPlan, PartitionFailure, PartitionPlan, ProducerMark
from mm2py.model.transform import Errors
from mm2py.pipeline.copier import WorkerState
from mm2py.pipeline.partition import Parcel, PartitionCopy
from mm2py.pipeline.records.outcome import HINT_FAILED, BadRecord, StretchOutcome
from mm2py.pipeline.records.row import Chunk
from mm2py.pipeline.refusals import failure_of
from mm2py.pipeline.sending import Dispatch
from mm2py.wire.cluster import Cluster
from mm2py.wire.produce import init_producer_id
from mm2py.wire.record_columns import NewRecord, build


_UNREACHABLE: Final = (ClusterUnreachableError, BrokerConnectionError, BrokerAnsweredError)
_PAUSE_S: Final = 0.2
#: How long a target that does not answer is waited for; the daemon plans the stretch anew after that.
_SEND_WITHIN_S: Final = 20.0
_BATCH_BYTES: Final = 512 * 1024
_NO_CODEC: Final = 0
_HINT_SHAPE: Final = "a transform may drop and change records, one by one; see docs/transforms.md"


class StretchWriter:
    """Writes one stretch."""

    def __init__(self, plan: EpochPlan, partition: PartitionPlan, hosted: WorkerState, clock: Clock) -> None:
        self._plan = plan
        self._partition = partition
        self._copy = PartitionCopy.of(partition)
        # Under which leader the records were written is not known here: it must not be taken for the one of before.
        self._copy.leaders.clear()
        self._hosted = hosted
        self._clock = clock
        self._target: Cluster = hosted.cluster(plan.target, clock)
        transactional_id = plan.transactions.transactional_id if plan.transactions is not None else ""
        self._dispatch = Dispatch(self._target, plan.limits, clock, transactional_id)
        self._end = partition.until if partition.until is not None else partition.position
        self._last_offset = partition.position - 1
        transform = plan.transform
        self._steps = StepChain(transform.steps if transform is not None else ())
        self._errors = transform.errors if transform is not None else Errors()
        self._left_out: list[BadRecord] = []
        #: The position once all that was put is acknowledged.
        self._done_until = self._end

    async def write(self, chunks: Iterable[Chunk]) -> StretchOutcome:
        """Write the records of *chunks* and say what became of them."""
        copy, dispatch, cpu_started_s = self._copy, self._dispatch, _cpu_s()
        before = copy.buffered_bytes
        codec = self._plan.limits.codec or _NO_CODEC
        limit = min(_BATCH_BYTES, self._partition.max_message_bytes)
        for built in build(self._checked(chunks), codec=codec, limit_bytes=limit):
            if len(built.batch) > self._partition.max_message_bytes:
                self._end_too_large(built.first_upstream, len(built.batch))
                self._done_until = built.first_upstream
                break
            copy.put(
                Parcel(
                    built.batch,
                    built.record_count,
                    built.first_upstream,
                    built.last_upstream + 1,
                    built.max_timestamp,
                    built.runs,
                )
            )
        # What was read and left out is done with as well.
        copy.pass_over(self._done_until)
        self._dispatch.take(copy, before)
        if copy.queue:
            await self._send()
        return StretchOutcome(
            copy.outcome(),
            left_out=tuple(bad for bad in self._left_out if bad.offset < copy.position),
            latency=dispatch.latency.histogram(),
            cpu_s=_cpu_s() - cpu_started_s,
            produces=dispatch.requests,
            retries=dispatch.retries,
            throttled_ms=dispatch.throttled_ms,
        )

    def _checked(self, chunks: Iterable[Chunk]) -> Iterator[NewRecord]:
        """Give what is to be written; the first row that will not do ends the stretch before it."""
        for chunk in chunks:
            if self._copy.has_ended:
                continue  # Spark's input is read to its end, or its worker is lost
            sound = first_unsound(chunk, after=self._last_offset, before=self._end)
            columns = (chunk.offsets, chunk.timestamps, chunk.keys, chunk.values, chunk.headers)
            records: Iterator[Any] = islice(zip(*columns, strict=True), sound)
            if sound:
                self._last_offset = chunk.offsets[sound - 1] or 0
            yield from self._stepped(records) if self._steps else records
            if sound < len(chunk) and not self._copy.has_ended:
                self._refuse(chunk, sound)

    def _stepped(self, records: Iterable[NewRecord]) -> Iterator[NewRecord]:
        """Send records through the steps, as far as these take them; what they drop is left out."""
        source, apply = self._partition.source, self._steps.apply
        for offset, timestamp, key, value, headers in records:
            record = StepRecord(source.topic, source.partition, offset, timestamp, key, value, headers)
            try:
                if not apply(record):
                    yield offset, record.timestamp, record.key, record.value, record.headers
            except StepFailedError as failed:
                if not self._errors.are_tolerated:
                    self._fail(offset, failed)
                    return
                self._left_out.append(BadRecord(offset, failed.stage, failed.error, str(failed)))

    def _fail(self, offset: int, failed: StepFailedError) -> None:
        where = f"{self._plan.flow}, {self._partition.source}, offset {offset}, column {failed.column}"
        message = f"{where}: {failed.stage} fails: {failed.error}: {failed}"
        self._copy.end(Ended.FAILED, PartitionFailure(message, HINT_FAILED, "TransformFailed", offset))
        self._done_until = offset

    def _refuse(self, chunk: Chunk, at: int) -> None:
        """End the stretch before the row *at*."""
        offset, column = chunk.offsets[at], "offset"
        what = "the transform changes the column offset, or the order of the records"
        if chunk.stray is not None and chunk.stray[0] == at and self._is_next(offset):
            column = chunk.stray[1]
            what = f"the transform changes the column {column}"
        where = f"{self._plan.flow}, {self._partition.source}, offset {offset}, column {column}: {what}"
        self._copy.end(Ended.FAILED, PartitionFailure(where, _HINT_SHAPE, "TransformRefused", offset))
        self._done_until = self._last_offset + 1

    def _is_next(self, offset: int | None) -> bool:
        return offset is not None and self._last_offset < offset < self._end

    def _end_too_large(self, offset: int, size: int) -> None:
        source = self._partition.source
        error = RecordTooLargeError(source.topic, source.partition, offset, size, self._partition.max_message_bytes)
        self._copy.end(Ended.FAILED, PartitionFailure(str(error), error.hint, type(error).__name__, offset))

    async def _send(self) -> None:
        copy, dispatch = self._copy, self._dispatch
        try:
            async with asyncio.timeout(_SEND_WITHIN_S):
                await self._prepare()
        except TimeoutError:
            dispatch.discard(copy)
            return
        async with asyncio.TaskGroup() as tasks:
            dispatch.start(tasks)
            follow = tasks.create_task(self._follow_leaders(), name=f"follow the leader of {copy.remote}")
            dispatch.offer(copy)
            dispatch.pump()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SEND_WITHIN_S):
                    await dispatch.drained.wait()
            dispatch.stop()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._plan.drain_ms / 1000):
                    if dispatch.unanswered:
                        await dispatch.all_answered.wait()
            dispatch.discard(copy)
            follow.cancel()
        dispatch.close_unanswered()

    async def _prepare(self) -> None:
        """Learn the leader, and get a producer id where the partition has none."""
        copy = self._copy
        while True:
            try:
                await self._target.ensure_metadata([copy.remote.topic])
                if copy.producer_id < 0:
                    await self._identify()
            except _UNREACHABLE as error:
                copy.trouble = failure_of(error, (self._plan.source, self._plan.target))
            else:
                copy.trouble = None
                return
            await self._clock.sleep(_PAUSE_S)

    async def _identify(self) -> None:
        """Take a producer id that this partition has not had."""
        copy, hosted, target = self._copy, self._hosted, self._plan.target
        identity = hosted.identities.get(target)
        if identity is None or copy.remote in identity.given_to:
            identity = await init_producer_id(self._target, target.request_timeout_ms)
            hosted.identities[target] = identity
        identity.given_to.add(copy.remote)
        copy.write_as(ProducerMark(identity.producer_id, identity.epoch, 0))

    async def _follow_leaders(self) -> None:
        wanted = self._dispatch.wants_metadata
        while True:
            await wanted.wait()
            wanted.clear()
            try:
                await self._target.refresh_metadata([self._copy.remote.topic])
            except ClusterUnreachableError:
                await self._clock.sleep(_PAUSE_S)


def first_unsound(chunk: Chunk, *, after: int, before: int) -> int:
    """
    Say how many of the first rows are what they should be.

    These are of the stretch's topic and partition, and their offsets ascend between *after* and *before*.
    """
    offsets: Any = chunk.offsets
    sound = len(offsets) if chunk.stray is None else chunk.stray[0]
    if not sound:
        return 0
    # Row by row this took longer than all else that is done with a record here.
    if None not in offsets and after < offsets[0] and offsets[-1] < before and all(map(lt, offsets, offsets[1:])):
        return sound
    for at, offset in enumerate(offsets[:sound]):
        if offset is None or not after < offset < before:
            return at
        after = offset
    return sound


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
