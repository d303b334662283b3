"""
Comparing slices on Spark, as one job of as many Spark tasks as there are plans.

It only reads, so Spark may run a task again, and all of it is done again where Spark as a whole hangs. What a task
found is a row of the job's result; how many are done is what Spark's own status tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar

import attrs
from py4j.protocol import Py4JError

from mm2py.clock import Clock
from mm2py.errors import Mm2Error, shortened
from mm2py.pipeline.copy_job import judge_failure
from mm2py.pipeline.spark import processes, stillness
from mm2py.pipeline.spark.internals import collected
from mm2py.pipeline.spark.patience import Patience, done_within
from mm2py.pipeline.spark.sealing import seal
from mm2py.pipeline.spark.session import JOB_FAILED, SparkHost, SparkHungError, SparkSession, message_of
from mm2py.verify.spark_task import compare_slices
from mm2py.verify.values import SliceOutcome, VerifyPlan


_LOOK_EVERY_S = 0.3
_HINT = "check the memory of this host, and whether the process was stopped (SIGSTOP, a debugger)"
#: How long no Spark task may end on other machines, whose workers cannot be monitored, until it is reported.
_SILENT_FOR_S = 600.0
#: After giving up, a hung Spark is not awaited.
_CANCEL_WITHIN_S = 5.0


@attrs.define(eq=False)
class VerifyLostError(Mm2Error):
    """Spark's job failed, so there is no result."""

    hint: ClassVar[str] = "try again; look for the cause in the log of Spark's worker"

    cause: str = attrs.field(converter=shortened)

    def __str__(self) -> str:
        return f"the comparison's Spark job failed: {self.cause}"


class VerifyRunner:
    """Runs comparisons on *host*'s Spark; *notice* is called with what hangs, and what is done about it."""

    def __init__(self, host: SparkHost, clock: Clock, notice: Callable[[str], None] = lambda _text: None) -> None:
        self._host = host
        self._clock = clock
        self._notice = notice
        self._jobs = 0

    async def ready(self) -> None:
        """Start Spark where it is not there; raise what keeps it from starting."""
        await self._host.session()

    async def run(self, title: str, plans: Sequence[VerifyPlan], progress: Callable[[int], None]) -> list[SliceOutcome]:
        """Compare all slices of *plans*; *progress* is called with the number of completed Spark tasks. Raise
        `VerifyLostError`, `SparkHungError`, or the error of Spark's start.
        """
        try:
            return await self._compared(title, plans, progress)
        except SparkHungError as error:
            self._notice(f"{error}; it is started again, and the comparison with it")
        return await self._compared(title, plans, progress)

    async def _compared(
        self, title: str, plans: Sequence[VerifyPlan], progress: Callable[[int], None]
    ) -> list[SliceOutcome]:
        session = await self._host.session()
        payloads = [seal(plan, self._host.secrets_key_file) for plan in plans]
        self._jobs += 1
        group = f"{title}/verify/{self._jobs}"
        job = session.begin(_run_job, session, group, title, payloads)
        watch = _Watch(self._host, session, self._clock, self._notice)
        try:
            while not job.done():
                await asyncio.wait({job}, timeout=_LOOK_EVERY_S)
                if job.done():
                    progress(len(plans))
                    continue
                stand = await self._host.ask(session, _stand, session, group)
                progress(stand.done)
                await watch.look(stand)
            return await job
        except asyncio.CancelledError:
            await done_within(session.begin(_cancel, session, group), _CANCEL_WITHIN_S, self._clock)
            raise


@attrs.frozen
class _Stand:
    """How many Spark tasks of a job are done, and how many run."""

    done: int
    running: int


class _Watch:
    """Sees that a job's workers do something, and kills those that hang: Spark runs their tasks again."""

    def __init__(self, host: SparkHost, session: SparkSession, clock: Clock, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._clock = clock
        self._is_here = host.settings.is_on_this_machine
        self._stillness = stillness.Stillness(session.process.pid, clock)
        self._done = -1
        self._patience = Patience(_SILENT_FOR_S, clock)
        self._is_told = False

    async def look(self, stand: _Stand) -> None:
        if self._is_here:
            hung = await asyncio.to_thread(self._stillness.look, stand.running)
            if hung:
                await asyncio.to_thread(processes.kill, hung)
                who = ", ".join(str(process.pid) for process in hung)
                self._notice(
                    f"Spark's Python worker hangs: process {who} has not moved for {stillness.STILL_FOR_S:g} s; it is "
                    f"killed, and what it compared is compared again; {_HINT}"
                )
        elif stand.done != self._done:
            self._done, self._patience = stand.done, Patience(_SILENT_FOR_S, self._clock)
        elif self._patience.is_over() and not self._is_told:
            self._is_told = True
            self._notice(
                f"no Spark task has ended for {_SILENT_FOR_S / 60:g} minutes: large partitions take long, but a worker "
                f"that hangs looks the same from here; Spark's page shows which executor to look at"
            )


def _run_job(session: SparkSession, group: str, title: str, payloads: Sequence[bytes]) -> list[SliceOutcome]:
    try:
        session.context.setJobGroup(group, f"{title} verify")
        rows = session.context.parallelize(payloads, len(payloads))
        outcomes: list[SliceOutcome] = collected(rows.mapPartitions(compare_slices))
    except JOB_FAILED as error:
        raise VerifyLostError(judge_failure(message_of(error))[0]) from error
    except (Py4JError, OSError, EOFError) as error:
        raise VerifyLostError(f"Spark is gone ({type(error).__name__})") from error
    return outcomes


def _stand(session: SparkSession, group: str) -> _Stand:
    try:
        tracker = session.context.statusTracker()
        infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        found = [tracker.getStageInfo(stage) for info in infos if info for stage in info.stageIds]
    except (Py4JError, OSError):
        return _Stand(0, 0)
    stages = [stage for stage in found if stage]
    return _Stand(sum(it.numCompletedTasks for it in stages), sum(it.numActiveTasks for it in stages))


def _cancel(session: SparkSession, group: str) -> None:
    try:
        session.context.cancelJobGroup(group)
    except (Py4JError, OSError):
        return
