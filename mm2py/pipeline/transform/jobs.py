"""
The micro-batches of a record task as Spark jobs: one for each offset range, or a few for many.

All jobs of a task run the same plan of Spark's: one Spark task that reads the ranges that a property of the job names,
transforms them and writes them. What became of them is the job's only row. A job that fails does not affect others; if
it has written nothing, its ranges are run again in smaller jobs, until the one that fails is alone.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import pickle
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import attrs
from py4j.protocol import Py4JError
from pyspark import RDD
from pyspark.errors import PySparkException

from mm2py.clock import Clock
from mm2py.errors import Mm2Error, shortened
from mm2py.model.epoch import EpochPlan, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.transform import Transform
from mm2py.pipeline.spark.internals import collected
from mm2py.pipeline.spark.patience import Patience, done_within
from mm2py.pipeline.spark.sealing import seal
from mm2py.pipeline.spark.session import JOB_FAILED, SparkSession, is_stopped, message_of
from mm2py.pipeline.transform.failures import is_raised
from mm2py.pipeline.transform.results import MicroBatchResult, RangeOutcome
from mm2py.pipeline.transform.spark_task import PLAN, transform_ranges


#: Twice as many as a record task has slots for: the next job is queued while one ends.
_JOBS_AT_ONCE: Final = 4
#: As many as a record task has slots for. A job for each range would cost Connect's transforms a third more.
_STEP_JOBS: Final = 2
_TICK_S: Final = 1.0
_STOP_WITHIN_S: Final = 60.0
#: What a micro-batch may take beyond an epoch: while a broker is away, a range waits half a minute to be read and as
#: long to be written, and a transform is the user's own code.
MICRO_BATCH_SLACK_S: Final = 300.0
#: The failure of the ranges of a micro-batch that was given up.
LATE: Final = "the micro-batch was not done in time and was stopped"

#: Of each range its outcome, or why it failed.
_Outcomes = dict[TopicPartition, RangeOutcome | str]

_sequence = itertools.count()


def allowed_s(plan: EpochPlan) -> float:
    """Return how long a micro-batch may take: once its transaction has been aborted, nothing of it can be committed."""
    terms = plan.transactions
    slack_s = MICRO_BATCH_SLACK_S if terms is None else min(MICRO_BATCH_SLACK_S, terms.timeout_ms / 1000)
    return _due_s(plan) + slack_s


def _due_s(plan: EpochPlan) -> float:
    """Return the time by which a micro-batch should be done."""
    return (plan.epoch_ms + plan.drain_ms) / 1000


@attrs.define(eq=False)
class MicroBatchLateError(Mm2Error):
    """Spark, or a transform's own code, did not finish in time what a micro-batch needs."""

    what: str

    def __str__(self) -> str:
        return f"{self.what} was not done in time"


async def _end_nothing(_reason: str) -> None:
    return


class TransformRows(Protocol):
    """What a transform's jobs run in one life of Spark; its methods block."""

    #: Whether a job writes nothing before all of its ranges are transformed. Writing one of them fails for itself.
    writes_last: bool

    @property
    def reads_timestamps(self) -> bool:
        """Whether records are read with their timestamps as Spark has them."""

    def prepare(self) -> None:
        """Get ready. Raise `TransformRefusedError`."""

    def jobs(self, ranges: Sequence[PartitionPlan]) -> int:
        """Return how many jobs these ranges have."""

    def rows(self, ranges: int) -> Callable[[], RDD[Any]]:
        """
        Plan a micro-batch of that many ranges; return what yields the only row of one of its jobs.

        It holds the job's outcomes, pickled: of each range its `RangeOutcome`, or why it failed.
        """

    def dry_run(self, records: Any) -> None:
        """Transform *records* and write them nowhere. Raise what Spark raises."""


class StepRows:
    """
    Connect's transforms alone.

    They are Python of ours: through Spark SQL a record would cost three times as much, for nothing.
    """

    writes_last = False
    reads_timestamps = False

    def __init__(self, session: SparkSession) -> None:
        self._rows = session.one_row.mapPartitions(transform_ranges)

    def prepare(self) -> None:
        """Do nothing: the rows are ready."""

    def jobs(self, ranges: Sequence[PartitionPlan]) -> int:
        return min(len(ranges), _STEP_JOBS)

    def rows(self, _ranges: int) -> Callable[[], RDD[Any]]:
        return lambda: self._rows

    def dry_run(self, _records: Any) -> None:
        """Do nothing: a step names the record that it cannot take."""


class TransformJobs:
    """Runs the micro-batches of one transform in one life of Spark, one at a time."""

    def __init__(
        self, session: SparkSession, transform: Transform, rows: TransformRows, key_file: str | None, name: str
    ) -> None:
        self.session = session
        self.transform = transform
        #: Called with the time after which a late micro-batch was due, and how much more it had.
        self.on_late: Callable[[EpochPlan, float, float], None] = lambda _plan, _due_s, _slack_s: None
        #: Ends a Spark that does not stop what runs here.
        self.end_hung: Callable[[str], Awaitable[None]] = _end_nothing
        self._rows = rows
        self._key_file = key_file
        self._name = name
        self._group = f"transform-{next(_sequence)}"

    @property
    def reads_timestamps(self) -> bool:
        """Whether records are read with their timestamps as Spark has them."""
        return self._rows.reads_timestamps

    def prepare(self) -> None:
        """Get ready; blocks. Raise `TransformRefusedError`."""
        self._rows.prepare()

    async def run(
        self, plan: EpochPlan, clock: Clock, alone: Collection[TopicPartition] = frozenset()
    ) -> MicroBatchResult:
        """Have *plan* done; the ranges of *alone* in jobs of their own."""
        running: dict[asyncio.Future[_Outcomes | str], EpochPlan] = {}
        outcomes: _Outcomes = {}
        patience = Patience(allowed_s(plan), clock)
        ready = self.session.begin(self._rows.rows, len(plan.partitions))
        waiting = deque(self._of_jobs(plan, alone))
        while waiting or running:
            if ready.done():
                while waiting and len(running) < _JOBS_AT_ONCE:
                    one = waiting.popleft()
                    job = self.session.begin(self._outcomes, ready, one)
                    running[job] = one
            done, _ = await asyncio.wait(
                running or {ready}, timeout=min(_TICK_S, patience.left_s), return_when=asyncio.FIRST_COMPLETED
            )
            for job in done & running.keys():
                one, found = running.pop(job), job.result()
                if not isinstance(found, str):
                    outcomes |= found
                elif len(one.partitions) > 1 and self._rows.writes_last and is_raised(found):
                    waiting.extendleft(_parts(one, one.partitions, 2))
                else:
                    outcomes |= {it.source: found for it in one.partitions}
            if patience.is_over() and (waiting or running):
                due_s = _due_s(plan)
                self.on_late(plan, due_s, allowed_s(plan) - due_s)
                late: _Outcomes = {it.source: LATE for one in (*running.values(), *waiting) for it in one.partitions}
                return _result(outcomes | late, is_late=True)
        return _result(outcomes)

    def _of_jobs(self, plan: EpochPlan, alone: Collection[TopicPartition]) -> Iterator[EpochPlan]:
        """Return the plan of each job."""
        alone = alone if self._rows.writes_last else ()
        apart = tuple(one for one in plan.partitions if one.source in alone)
        others = tuple(one for one in plan.partitions if one.source not in alone)
        yield from _parts(plan, apart, len(apart))
        yield from _parts(plan, others, self._rows.jobs(others))

    def _outcomes(self, ready: asyncio.Future[Callable[[], RDD[Any]]], plan: EpochPlan) -> _Outcomes | str:
        """Run the job of *plan*; return the outcomes of its ranges, or Spark's message if it failed; blocks."""
        try:
            found = self._collected(ready.result()(), plan)
            return dict(zip((one.source for one in plan.partitions), found, strict=True))
        except JOB_FAILED as error:
            return _gone(error) if is_stopped(self.session) else message_of(error)
        except (Py4JError, OSError, EOFError) as error:
            return _gone(error)

    def _collected(self, rows: RDD[Any], plan: EpochPlan) -> list[RangeOutcome | str]:
        context = self.session.context
        names = ", ".join(str(one.source) for one in plan.partitions)
        self._set_group(names)
        context.setLocalProperty(PLAN, base64.b64encode(seal(plan, self._key_file)).decode())
        try:
            # With a job, Spark fails all others whose RDDs contain the job's last one (DAGScheduler.stageDependsOn):
            # they would go on writing, and their outcomes would be lost. So each job has a last RDD of its own.
            row: tuple[bytes] = collected(rows.coalesce(1))[0]
        finally:
            context.setLocalProperty(PLAN, None)
        outcomes: list[RangeOutcome | str] = pickle.loads(row[0])  # noqa: S301 - our own task made it
        return outcomes

    def _set_group(self, what: str) -> None:
        """Have this thread's next jobs be among those that `stop` ends, whatever ran on it before."""
        description = shortened(f"{self._name}, {what}")
        self.session.context.setJobGroup(self._group, description, interruptOnCancel=False)

    async def stop(self, clock: Clock) -> None:
        """Stop all jobs, by ending Spark if need be, so that none keeps writing."""
        ending = self.session.begin(self._try_end)
        if not await done_within(ending, _STOP_WITHIN_S, clock):
            await self.end_hung(f"it does not end a micro-batch of {self.transform.name}")

    def _try_end(self) -> None:
        with suppress(Py4JError, OSError, PySparkException):
            self.session.context.cancelJobGroup(self._group)

    async def tried(self, records: Any, clock: Clock) -> str | None:
        """
        Transform *records* and write them nowhere; return Spark's words if that failed, whatever the reason.

        Raise `MicroBatchLateError`.
        """
        job = self.session.begin(self._try, records)
        if not await done_within(job, MICRO_BATCH_SLACK_S, clock):
            await self.stop(clock)  # else it would keep its slot
            if not await done_within(job, _STOP_WITHIN_S, clock):
                await self.end_hung(f"it does not end a trial of {self.transform.name}")
            raise MicroBatchLateError(f"trying transform {self.transform.name}")
        return job.result()

    def _try(self, records: Any) -> str | None:
        try:
            self._set_group("without writing")
            self._rows.dry_run(records)
        except JOB_FAILED as error:
            # Of a context that was stopped Spark says anything, an error of its own in a statement for example.
            return _gone(error) if is_stopped(self.session) else str(error)
        except (Py4JError, OSError, EOFError) as error:
            return _gone(error)
        return None


def _gone(error: Exception) -> str:
    return f"Spark is gone ({type(error).__name__})"


def _parts(plan: EpochPlan, ranges: tuple[PartitionPlan, ...], count: int) -> Iterator[EpochPlan]:
    """Deal *ranges* out to *count* jobs."""
    return (attrs.evolve(plan, partitions=ranges[number::count]) for number in range(count))


def _result(outcomes: _Outcomes, *, is_late: bool = False) -> MicroBatchResult:
    done = tuple(outcome for outcome in outcomes.values() if isinstance(outcome, RangeOutcome))
    failed = {source: words for source, words in outcomes.items() if isinstance(words, str)}
    return MicroBatchResult(done, failed, is_late)
