"""
What a transform gave back for one topic-partition, written to the target.

Nothing is sent before the last row is there: a transform that fails on one of them has sent none, so its range is
run again, or cut, without repeating anything.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable

from mm2py.clock import Clock
from mm2py.model.epoch import Ended, EpochPlan, PartitionPlan
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.pipeline.transform.delivery import Delivery, batches_of, put_all
from mm2py.pipeline.transform.record import Chunk
from mm2py.pipeline.transform.results import RangeOutcome
from mm2py.pipeline.transform.validation import Rows


class RangeWriter:
    """Writes one range."""

    def __init__(self, plan: EpochPlan, partition: PartitionPlan, hosted: WorkerState, clock: Clock) -> None:
        self._plan = plan
        self._partition = partition
        self._delivery = Delivery(plan, hosted, clock)

    async def write(self, chunks: Iterable[Chunk]) -> RangeOutcome:
        """Write the records of *chunks* and say what became of them."""
        cpu_started_s = _cpu_s()
        rows = Rows(self._plan, self._partition)
        copy = self._copied(rows, chunks)
        if copy.buffer.queue:
            await self._delivery.send(copy)
        outcome, sender = copy.outcome(), self._delivery.sender
        return RangeOutcome(
            outcome,
            left_out=tuple(bad for bad in rows.left_out if bad.offset < outcome.position),
            latency=sender.latency.histogram(),
            cpu_s=_cpu_s() - cpu_started_s,
            produces=sender.requests,
            retries=sender.retries,
            throttled_ms=sender.throttled_ms,
        )

    def _copied(self, rows: Rows, chunks: Iterable[Chunk]) -> PartitionCopy:
        """Queue what is to be written to the remote partition."""
        copy = PartitionCopy.of(self._partition)
        # Under which leader the records were written is not known here: it must not be taken for the one of before.
        copy.fetching.leaders.clear()
        batches = batches_of(self._plan, self._partition, rows.records(chunks))
        put_all(copy, batches.fitting)
        failure, done_until = batches.failure or rows.failure, rows.done_until
        if failure is not None:
            copy.end(Ended.FAILED, failure)
        if batches.failure is not None and batches.failure.offset is not None:
            done_until = batches.failure.offset
        # What was read and left out is done with as well.
        copy.pass_over(done_until)
        return copy


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
