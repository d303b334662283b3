"""
A Spark job that runs epochs of a copy task, one after another, in one Spark task.

The first plan travels inside the job's function, sealed where it carries secrets: measured against
`parallelize([plan])`, which writes a file and reads it back in the JVM, that halves what the start of a job takes. The
task then stays for as long as it is given further plans: see `mm2py.pipeline.plan_server`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import pickle
import re
from collections.abc import Callable
from concurrent.futures import Executor
from typing import ClassVar

import attrs
from py4j.protocol import Py4JError

from mm2py.errors import Mm2Error, Verdict, shortened
from mm2py.model.epoch import EpochOutcome, EpochPlan
from mm2py.pipeline.copy.next_plans import NOTHING, Messages, PlansFrom
from mm2py.pipeline.copy.spark_task import run_epochs
from mm2py.pipeline.spark.internals import collected
from mm2py.pipeline.spark.session import JOB_FAILED, SparkSession, message_of, why_gone
from mm2py.pipeline.spark.worker import EpochRepeatedError


_TRACEBACK = "Traceback (most recent call last):"
_WORKER_DIED = "Python worker exited unexpectedly"
#: What comes before the last exception that Spark names, and its package.
_RAISED_IN_JAVA = re.compile(r"^.*\b(\w+Exception: )")
#: Longer outcomes, of tens of thousands of partitions, are read in a thread.
_READ_HERE_BYTES = 256 * 1024


@attrs.define(eq=False)
class EpochLostError(Mm2Error):
    """
    An epoch's job failed: its worker was killed, its task raised, or it was cancelled.

    `may_still_write` is False if its Python worker is known to have ended, or to have ended the task by itself.
    `is_late` is True if it was killed because it did not return in time.
    """

    verdict: ClassVar[Verdict] = Verdict.RESTART_TASK
    hint: ClassVar[str] = "its topic-partitions are planned again by themselves; look for the cause in the worker's log"

    epoch: str
    cause: str = attrs.field(converter=shortened)
    may_still_write: bool = True
    is_late: bool = False

    def __str__(self) -> str:
        return f"{self.epoch} was lost: {self.cause}"


@attrs.frozen
class Payload:
    """A sealed plan for a worker that may have the one before, and how to make one for a worker that has not."""

    plan: EpochPlan
    content: bytes
    whole: Callable[[], bytes]


class CopyJob:
    """
    One Spark job of a copy task.

    It runs the epoch of one plan at a time, whose outcome, or loss, is in `outcome`.
    """

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self.group = ""
        self.outcome: asyncio.Future[EpochOutcome] = asyncio.get_running_loop().create_future()
        self._payload: Payload | None = None
        self._ended: asyncio.Future[EpochOutcome] | None = None
        #: To the worker that has the Spark task, once it has connected.
        self._worker: Messages | None = None
        #: Whether it ever has.
        self.has_connected = False
        self._is_ending = False
        #: The epoch is to end early, once its worker has connected.
        self._ends_early = False
        self._rest: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether its Spark task waits for further plans."""
        is_connected = self._worker is not None and not self._worker.is_closing and not self._is_ending
        return is_connected and self._ended is not None and not self._ended.done()

    @property
    def has_ended(self) -> bool:
        return self._ended is not None and self._ended.done()

    @property
    def unconnected_worker(self) -> str | None:
        """The worker that ran it to its end without having connected; None if there is none."""
        if self.has_connected or self._ended is None or not self._ended.done() or self._ended.cancelled():
            return None
        return self._ended.result().worker if self._ended.exception() is None else None

    def begin(self, payload: Payload, thread: Executor, plans_from: PlansFrom | None) -> asyncio.Future[EpochOutcome]:
        """Submit the job from *thread*; return its end. *plans_from* is where its task may get further plans."""
        self._payload, plan = payload, payload.plan
        self.group = f"{plan.flow}/source/{plan.task}/{plan.epoch}"
        loop = asyncio.get_running_loop()
        self._ended = loop.run_in_executor(thread, _run_job, self.session, self.group, payload, plans_from)
        self._ended.add_done_callback(self._has_ended)
        return self._ended

    def go_on(self, payload: Payload) -> None:
        """Have the task run another epoch; to be called while the job `is_open` and none runs."""
        assert self._worker is not None  # noqa: S101 - it is open
        self._wake()
        self._payload = payload
        self.outcome = asyncio.get_running_loop().create_future()
        self._worker.write(payload.content)

    def end_epoch(self) -> None:
        """Have the epoch under way end early, as soon as its worker has connected."""
        self._ends_early = self._worker is None
        if self._worker is not None and not self.outcome.done():
            self._worker.write(NOTHING)

    def rest(self, seconds: float) -> None:
        """End the job unless another plan comes within *seconds*."""
        self._wake()
        self._rest = asyncio.get_running_loop().call_later(seconds, self.end)

    def end(self) -> None:
        """Send the task no further plans; an epoch under way runs to its end."""
        self._wake()
        self._is_ending = True
        if self._worker is not None:
            self._worker.close()

    async def serve(self, worker: Messages) -> None:
        """Take outcomes from the worker that has connected until it leaves."""
        self._worker, self.has_connected = worker, True
        if self._ends_early and not self.outcome.done():
            worker.write(NOTHING)
        if self._is_ending:
            worker.close()
        while (message := await worker.read()) is not None:
            read = functools.partial(pickle.loads, message)
            outcome: EpochOutcome | None = read() if len(message) <= _READ_HERE_BYTES else await asyncio.to_thread(read)
            if outcome is None and self._payload is not None:
                worker.write(self._payload.whole())
            elif outcome is not None:
                self._take(outcome)
        self._worker = None

    def _wake(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def _take(self, outcome: EpochOutcome) -> None:
        if not self.outcome.done() and self._payload is not None and outcome.epoch == self._payload.plan.epoch:
            self.outcome.set_result(outcome)

    def _has_ended(self, job: asyncio.Future[EpochOutcome]) -> None:
        self._wake()
        if job.cancelled():
            return
        error = job.exception()
        if error is None:
            self._take(job.result())
        if self.outcome.done() or self._payload is None:
            return
        name = self._payload.plan.name
        if error is None:
            error = EpochLostError(name, "its Spark task ended before it", may_still_write=False)
        elif isinstance(error, EpochLostError) and error.epoch != name:
            error = attrs.evolve(error, epoch=name).with_traceback(None)
        self.outcome.set_exception(error)


def _run_job(session: SparkSession, group: str, payload: Payload, plans_from: PlansFrom | None) -> EpochOutcome:
    """Run the job to its end; if its worker cannot do with the plan that it got, with the whole one."""
    plan, name = payload.plan, payload.plan.name
    description = name if plans_from is None else f"{plan.flow} source {plan.task}, from epoch {plan.epoch}"
    try:
        session.context.setJobGroup(group, description)
        outcome = _outcome_of(session, payload.content, plans_from) or _outcome_of(session, payload.whole(), plans_from)
    except JOB_FAILED as error:
        cause, may_still_write = judge_failure(message_of(error))
        raise EpochLostError(name, cause, may_still_write) from error
    except (Py4JError, OSError, EOFError, IndexError) as error:
        raise EpochLostError(name, why_gone(session, error)) from error
    if outcome is None:
        raise EpochLostError(name, "its worker refused the whole plan", may_still_write=False)
    return outcome


def _outcome_of(session: SparkSession, payload: bytes, plans_from: PlansFrom | None) -> EpochOutcome | None:
    rows = session.one_row.mapPartitions(functools.partial(run_epochs, payload, plans_from))
    outcome: EpochOutcome | None = collected(rows)[0]
    return outcome


def judge_failure(message: str) -> tuple[str, bool]:
    """Return the useful line of Spark's message about a failed job, and whether its task may still be writing. A task
    that raised has ended by itself, and a worker whose socket closed is a dead process. For a lost executor, or a
    cancelled job, it is unknown; and for the first run if Spark's second one raised.
    """
    failure = message.split("most recent failure: ", 1)[-1]
    first = (failure.splitlines() or [""])[0]
    if _TRACEBACK in failure:
        start = failure.rindex(_TRACEBACK)
        margin = failure[:start].rpartition("\n")[2]  # within a group of exceptions
        tail = [line.removeprefix(margin) for line in failure[start:].splitlines()[1:]]
        raised = [line for line in tail if line and not line[0].isspace()]
        cause = (raised[0] if raised else first).strip()
        return cause, EpochRepeatedError.__name__ in cause
    if _WORKER_DIED in failure:
        return "its Python worker was killed", False
    return _RAISED_IN_JAVA.sub(r"\1", first).strip(), True


def has_slot(job: CopyJob) -> bool:
    """Whether Spark has started the task of *job*. It blocks while the JVM does not answer."""
    try:
        tracker = job.session.context.statusTracker()
        for number in tracker.getJobIdsForGroup(job.group):
            info = tracker.getJobInfo(number)
            for stage in info.stageIds if info else ():
                progress = tracker.getStageInfo(stage)
                if progress and progress.numActiveTasks + progress.numCompletedTasks + progress.numFailedTasks:
                    return True
    except (Py4JError, OSError):
        return True  # the job itself tells what happened to Spark
    return False


def cancel(job: CopyJob) -> bool:
    """Have Spark cancel *job*. It blocks while the JVM does not answer."""
    with contextlib.suppress(Py4JError, OSError):
        job.session.context.cancelJobGroup(job.group)
    return True
