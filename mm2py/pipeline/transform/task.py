"""
Record tasks: who runs the epochs of topics with a transform, and what is kept between them.

The plan of an epoch names where its topic-partitions stand, as for a copy task. What becomes of it is a `MicroBatch`.
"""

from __future__ import annotations

import functools

from mm2py.clock import Clock
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import EpochOutcome, EpochPlan
from mm2py.model.flow import Flow
from mm2py.model.transform import Transform
from mm2py.pipeline.spark.patience import done_within
from mm2py.pipeline.spark.session import SparkHost, SparkSession
from mm2py.pipeline.transform.jobs import (
    MICRO_BATCH_SLACK_S,
    MicroBatchLateError,
    StepRows,
    TransformJobs,
    TransformRows,
)
from mm2py.pipeline.transform.micro_batch import QUIET_S, MicroBatch, RecordTask
from mm2py.pipeline.transform.sql.query import Query, Sql
from mm2py.pipeline.transform.transaction import Committer
from mm2py.pipeline.transform.transactional_micro_batch import TransactionalMicroBatch
from mm2py.telemetry.events import CopyTaskLate
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster


class RecordTasks:
    """All record tasks of a node."""

    def __init__(self, host: SparkHost, clock: Clock, events: EventLog) -> None:
        self._host = host
        self.clock = clock
        self.events = events
        self._tasks: dict[tuple[Flow, int], RecordTask] = {}
        self._clusters: dict[ClusterEndpoint, Cluster] = {}
        self._sql: Sql | None = None

    @property
    def running(self) -> int:
        """How many run an epoch."""
        return sum(task.is_running for task in self._tasks.values())

    async def run(self, plan: EpochPlan) -> EpochOutcome:
        """Run one epoch of a record task and give its outcome."""
        assert plan.transform is not None  # noqa: S101 - the caller has checked
        key = (plan.flow, plan.task)
        task = self._tasks.get(key)
        terms = task.committer.terms if task is not None and task.committer is not None else None
        if task is None or task.transform != plan.transform or terms != plan.transactions:
            if task is not None:
                await self._stop(task)
            task = self._tasks[key] = RecordTask(plan.transform, committer=self._committer(plan))
        task.nudged.clear()
        task.is_running = task.is_unsettled = True
        lates = task.lates
        try:
            outcome = await (MicroBatch if task.committer is None else TransactionalMicroBatch)(self, task, plan).run()
        except MicroBatchLateError:
            await self._stop(task)
            raise
        finally:
            task.is_running = False
        task.is_unsettled = False
        task.is_late = task.lates > lates
        return outcome

    def nudge(self, flow: Flow, task: int) -> bool:
        """End the wait of a record task for records. Return whether an epoch of it is running."""
        found = self._tasks.get((flow, task))
        if found is None or not found.is_running:
            return False
        found.nudged.set()
        return True

    def is_late(self, flow: Flow, task: int) -> bool:
        """Whether a record task's last micro-batch was not done in time."""
        found = self._tasks.get((flow, task))
        return found is not None and found.is_late

    def _late(self, task: RecordTask, plan: EpochPlan, due_s: float, slack_s: float) -> None:
        task.is_late, task.lates = True, task.lates + 1
        self.events.emit(CopyTaskLate(plan.flow, plan.task, plan.epoch, "", due_s, slack_s))

    async def settle(self, flow: Flow) -> None:
        """End the jobs of *flow*; return when none of their tasks can write any more."""
        keys = [key for key in self._tasks if key[0] == flow]
        may_write = any(self._tasks[key].is_unsettled for key in keys)
        for key in keys:
            await self._stop(self._tasks.pop(key))
        if not self._tasks:
            await self.close()  # what begins again may have another password
        if may_write:
            await self.clock.sleep(QUIET_S)

    async def close(self) -> None:
        """Close the connections; jobs end with Spark. A task that begins meanwhile has others."""
        clusters, self._clusters = self._clusters, {}
        for cluster in clusters.values():
            await cluster.close()

    def _committer(self, plan: EpochPlan) -> Committer | None:
        terms = plan.transactions
        return None if terms is None else Committer(self.cluster(plan.target), plan.flow.source, terms, self.clock)

    async def _stop(self, task: RecordTask) -> None:
        jobs, task.jobs = task.jobs, None
        if jobs is not None:
            await jobs.stop(self.clock)

    def cluster(self, endpoint: ClusterEndpoint) -> Cluster:
        if endpoint not in self._clusters:
            self._clusters[endpoint] = Cluster(endpoint, self.clock)
        return self._clusters[endpoint]

    async def jobs(self, task: RecordTask, plan: EpochPlan) -> TransformJobs:
        """Return the task's jobs, prepared where they are not. Raise `TransformRefusedError`, `MicroBatchLateError`."""
        session = await self._host.session()
        if task.jobs is not None and task.jobs.session is not session:
            task.jobs = None  # they ended with Spark's last life
        if task.jobs is None:
            jobs = self._made(task.transform, session, f"{plan.flow} {task.transform.name}")
            jobs.on_late = functools.partial(self._late, task)
            jobs.end_hung = functools.partial(self._host.end_hung, session)
            await self._prepare(jobs, plan)
            task.jobs = jobs
        return task.jobs

    async def _prepare(self, jobs: TransformJobs, plan: EpochPlan) -> None:
        """Prepare them. Where a function hangs, Spark goes on copying for others."""
        preparing = jobs.session.begin(jobs.prepare)
        if not await done_within(preparing, MICRO_BATCH_SLACK_S, self.clock):
            jobs.on_late(plan, MICRO_BATCH_SLACK_S, 0.0)
            self._sql = None  # it is held by whatever hangs
            raise MicroBatchLateError(f"the start of transform {jobs.transform.name}")
        preparing.result()

    def _made(self, transform: Transform, session: SparkSession, name: str) -> TransformJobs:
        rows: TransformRows
        if not transform.uses_spark:
            rows = StepRows(session)
        else:
            if self._sql is None or self._sql.session is not session:
                self._sql = Sql(session)
            rows = Query(self._sql, transform)
        return TransformJobs(session, transform, rows, self._host.secrets_key_file, name)
