"""Connect's transforms as a Spark task: read a stretch, transform it, write it to the target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark import TaskContext

from mm2py.clock import SystemClock
from mm2py.model.epoch import EpochPlan
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.pipeline.spark.sealing import unseal
from mm2py.pipeline.spark.worker import refuse_repetition, this_worker, uncollected
from mm2py.pipeline.transform.mailbox import Mailbox
from mm2py.pipeline.transform.read import READ_WITHIN_S, RangeReader
from mm2py.pipeline.transform.record import Chunk
from mm2py.pipeline.transform.results import RangeOutcome
from mm2py.pipeline.transform.write import RangeWriter


def transform_ranges(folder: str, number: int, payloads: Iterable[bytes]) -> list[RangeOutcome]:
    """
    Send the stretches of the sealed plans in *payloads* through their steps, to the target.

    What becomes of each is noted in *folder* too, where this process can see that: it counts though the job may fail.
    """
    worker, spark_task = this_worker(), TaskContext.get()
    plans: list[EpochPlan] = [unseal(payload) for payload in payloads]
    for plan in plans:
        refuse_repetition(plan, spark_task)
    with uncollected():
        return worker.run(_transformed(plans, worker.state, Mailbox(folder), number))


async def _transformed(
    plans: Sequence[EpochPlan], state: WorkerState, mailbox: Mailbox, number: int
) -> list[RangeOutcome]:
    outcomes: list[RangeOutcome] = []
    clock = SystemClock()
    for plan in plans:
        (one,) = plan.partitions
        reader = RangeReader(state.cluster(plan.source, clock), plan.limits, clock, within_s=READ_WITHIN_S)
        chunks = [
            Chunk(columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers)
            async for columns in reader.read(one)
        ]
        outcome = await RangeWriter(plan, one, state, clock).write(chunks)
        mailbox.note(number, one.source, outcome)
        outcomes.append(outcome)
    return outcomes
