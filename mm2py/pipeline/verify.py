"""
Comparing slices on Spark, as one job of as many Spark tasks as there are plans.

It only reads, so Spark may run a task again. What a task found is a row of the job's result; how many are done is what
Spark's own status tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar

import attrs
from py4j.protocol import Py4JError

from mm2py.clock import Clock
from mm2py.errors import Mm2Error, shortened
from mm2py.model.verify import SliceOutcome, VerifyPlan
from mm2py.pipeline import worker
from mm2py.pipeline.epoch import judge_failure
from mm2py.pipeline.patience import done_within
from mm2py.pipeline.sealing import seal
from mm2py.pipeline.session import JOB_FAILED, SILENT_FOR_S, SparkHost, SparkSession, collected, message_of


_LOOK_EVERY_S = 0.3
#: Whoever gives up does not wait for a Spark that hangs.
_CANCEL_WITHIN_S = 5.0


@attrs.define(eq=False)
class VerifyLostError(Mm2Error):
    """Spark's job failed, so that nobody knows what was found."""

    hint: ClassVar[str] = "try again; look for the cause in the log of Spark's worker"

    cause: str = attrs.field(converter=shortened)

    def __str__(self) -> str:
        return f"the comparison's Spark job failed: {self.cause}"


class VerifyRunner:
    """Runs comparisons on *host*'s Spark."""

    def __init__(self, host: SparkHost, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._jobs = 0

    async def ready(self) -> None:
        """Start Spark where it is not there; raise what keeps it from starting."""
        await self._host.session()

    async def run(self, title: str, plans: Sequence[VerifyPlan], progress: Callable[[int], None]) -> list[SliceOutcome]:
        """
        Compare all slices of *plans*; *progress* is told how many Spark tasks are done, now and then.

        Raise `VerifyLostError`, or what kept Spark from starting.
        """
        session = await self._host.session()
        payloads = [seal(plan, self._host.secrets_key_file) for plan in plans]
        self._jobs += 1
        group = f"{title}/verify/{self._jobs}"
        job = session.begin(_run_job, session, group, title, payloads)
        try:
            while not job.done():
                await asyncio.wait({job}, timeout=_LOOK_EVERY_S)
                if job.done():
                    progress(len(plans))
                    continue
                asked = session.begin(_done, session, group)
                if await done_within(asked, SILENT_FOR_S, self._clock):
                    progress(asked.result())
                else:
                    await self._host.end_hung(session, f"its JVM has not answered for {SILENT_FOR_S:g} s")
            return await job
        except asyncio.CancelledError:
            await done_within(session.begin(_cancel, session, group), _CANCEL_WITHIN_S, self._clock)
            raise


def _run_job(session: SparkSession, group: str, title: str, payloads: Sequence[bytes]) -> list[SliceOutcome]:
    try:
        session.context.setJobGroup(group, f"{title} verify")
        rows = session.context.parallelize(payloads, len(payloads))
        outcomes: list[SliceOutcome] = collected(rows.mapPartitions(worker.compare_slices))
    except JOB_FAILED as error:
        raise VerifyLostError(judge_failure(message_of(error))[0]) from error
    except (Py4JError, OSError, EOFError) as error:
        raise VerifyLostError(f"Spark is gone ({type(error).__name__})") from error
    return outcomes


def _done(session: SparkSession, group: str) -> int:
    try:
        tracker = session.context.statusTracker()
        infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for info in infos if info for stage in info.stageIds]
        return sum(stage.numCompletedTasks for stage in stages if stage)
    except (Py4JError, OSError):
        return 0


def _cancel(session: SparkSession, group: str) -> None:
    try:
        session.context.cancelJobGroup(group)
    except (Py4JError, OSError):
        return
