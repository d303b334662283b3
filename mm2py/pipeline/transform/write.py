"""
What a transform gave back for one topic-partition, written to the target.

Nothing is sent before the last row is there: a transform that fails on one of them has sent none, so its range is
run again, or cut, without repeating anything.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from mm2py.clock import Clock
from mm2py.core.transform.steps import added_headers
from mm2py.model.epoch import Ended, EpochPlan, PartitionFailure, PartitionPlan
from mm2py.pipeline.copy.ingest import too_large
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.pipeline.transform.columns import chunk_of, pack_arrow, stray
from mm2py.pipeline.transform.delivery import Delivery
from mm2py.pipeline.transform.results import BadRecord, RangeOutcome
from mm2py.pipeline.transform.validation import Rows, end_of
from mm2py.wire.batches.native import Rebuilt
from mm2py.wire.batches.packed_records import pack
from mm2py.wire.batches.record_columns import build


_BATCH_BYTES: Final = 512 * 1024
_NO_CODEC: Final = 0


class RangeWriter:
    """Writes one range."""

    def __init__(self, plan: EpochPlan, partition: PartitionPlan, hosted: WorkerState, clock: Clock) -> None:
        self._plan = plan
        self._partition = partition
        self._steps = plan.transform.steps if plan.transform is not None else ()
        self._codec = plan.limits.codec or _NO_CODEC
        self._limit_bytes = min(_BATCH_BYTES, partition.max_message_bytes)
        self._delivery = Delivery(plan, hosted, clock)

    async def write(self, rows: Sequence[pa.RecordBatch]) -> RangeOutcome:
        """Write *rows*, which are what the transform made of the range, and say what became of them."""
        cpu_started_s = _cpu_s()
        copy = PartitionCopy.of(self._partition)
        # Under which leader the records were written is not known here: it must not be taken for the one of before.
        copy.fetching.leaders.clear()
        left_out = () if self._queue_packed(copy, rows) else self._queue(copy, rows)
        if copy.buffer.queue:
            await self._delivery.send(copy)
        outcome, sender = copy.outcome(), self._delivery.sender
        return RangeOutcome(
            outcome,
            left_out=tuple(bad for bad in left_out if bad.offset < outcome.position),
            latency=sender.latency.histogram(),
            cpu_s=_cpu_s() - cpu_started_s,
            produces=sender.requests,
            retries=sender.retries,
            throttled_ms=sender.throttled_ms,
        )

    def _queue_packed(self, copy: PartitionCopy, rows: Sequence[pa.RecordBatch]) -> bool:
        """Whether all of *rows* are queued: none has to be looked at by itself."""
        one = self._partition
        headers = added_headers(self._steps)
        if headers is None or not rows or any(stray(batch, one.source) for batch in rows):
            return False
        first, last = rows[0].column("offset")[0].as_py(), rows[-1].column("offset")[-1].as_py()
        if first is None or last is None or not (one.position <= first and last < end_of(one)):
            return False
        packed = pack_arrow(rows)
        built = packed and pack(packed, codec=self._codec, limit_bytes=self._limit_bytes, headers=headers)
        if not built:
            return False
        self._put(copy, built, None, end_of(one))
        return True

    def _queue(self, copy: PartitionCopy, batches: Sequence[pa.RecordBatch]) -> list[BadRecord]:
        """Queue what is to be written, record by record; return what is left out."""
        one = self._partition
        rows = Rows(self._plan, one)
        records = rows.records(chunk_of(batch, one.source) for batch in batches)
        built = build(records, codec=self._codec, limit_bytes=self._limit_bytes)
        self._put(copy, built, rows.failure, rows.done_until)
        return rows.left_out

    def _put(
        self, copy: PartitionCopy, built: Iterable[Rebuilt], failure: PartitionFailure | None, done_until: int
    ) -> None:
        """Queue the batches *built*, up to one that the remote topic does not take."""
        for batch in built:
            unfit = too_large(self._partition, batch)
            if unfit is not None:
                failure, done_until = unfit, batch.first_upstream
                break
            copy.buffer.put_rebuilt(batch)
        if failure is not None:
            copy.end(Ended.FAILED, failure)
        # What was read and left out is done with as well.
        copy.pass_over(done_until)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
