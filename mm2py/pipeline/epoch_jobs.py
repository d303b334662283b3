"""
One epoch as one Spark job of one Spark task, awaited from asyncio.

The plan travels inside the job's function, sealed where it carries secrets, and the outcome is its only row: measured
against `parallelize([plan])`, which writes a file and reads it back in the JVM, that halves the boundary. Each copy
task has a thread of its own, because Spark ties job group and description to the calling thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar, Final, ParamSpec, TypeVar

import attrs
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from mm2py.clock import Clock
from mm2py.errors import Mm2Error, Verdict, shortened
from mm2py.model.epoch import EpochOutcome, EpochPlan
from mm2py.model.flow import Flow
from mm2py.model.state import SparkView
from mm2py.pipeline.copy.sent_plan import KeptPlan, SentPlan, difference
from mm2py.pipeline.copy.spark_task import name_file, run_epochs
from mm2py.pipeline.spark.patience import done_within
from mm2py.pipeline.spark.processes import kill_worker
from mm2py.pipeline.spark.sealing import seal
from mm2py.pipeline.spark.session import JOB_FAILED, SparkHost, SparkSession, collected, is_stopped, message_of
from mm2py.pipeline.spark.worker import EpochRepeatedError
from mm2py.pipeline.transform.jobs import MicroBatchLateError
from mm2py.pipeline.transform.task import RecordTasks
from mm2py.telemetry.events import CopyTaskLate, WaitingForSlot
from mm2py.telemetry.journal import EventLog


#: How long an epoch may wait for a Spark slot before it is reported.
SLOT_PATIENCE_S = 3.0
#: What an epoch may need past its time and its drain, counted from when it has a slot: to unpack the plan, to start a
#: Python worker on a machine that has other things to do, to get the outcome back.
SLACK_S: Final = 15.0
#: What Spark may take to answer a question, and to notice that a worker is gone or a job is cancelled.
_ANSWERS_WITHIN_S: Final = 10.0
_NOTICES_WITHIN_S: Final = 5.0
_TRACEBACK = "Traceback (most recent call last):"
_WORKER_DIED = "Python worker exited unexpectedly"
#: What an epoch may need past its own time before it is cancelled while its flow settles.
_SETTLE_SLACK_S = 2.0

_P = ParamSpec("_P")
_T = TypeVar("_T")


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


@attrs.define
class _Running:
    """An epoch on its way: the file that ends it early, and the thread's result."""

    plan: EpochPlan
    stop_file: Path
    job: asyncio.Future[EpochOutcome]
    is_waiting: bool = False
    is_late: bool = False

    @property
    def worker_file(self) -> Path:
        return Path(name_file(str(self.stop_file)))

    @property
    def worker(self) -> str:
        """The Python worker as ``host:pid``, if it runs on this machine."""
        try:
            return self.worker_file.read_text()
        except OSError:
            return ""


class EpochRunner:
    """
    Runs epochs, at most one of each copy task at a time.

    An epoch whose awaiter is cancelled continues in Spark: `settle` waits for those of a flow.
    """

    def __init__(self, host: SparkHost, clock: Clock, events: EventLog) -> None:
        self._host = host
        self._clock = clock
        self._events = events
        self._threads: dict[tuple[Flow, int], ThreadPoolExecutor] = {}
        self._running: dict[tuple[Flow, int], _Running] = {}
        self._numbers = itertools.count()
        #: The last plan of each copy task whose outcome came back.
        self._known: dict[tuple[Flow, int], KeptPlan] = {}
        #: Runs the epochs of plans with a transform.
        self.records = RecordTasks(host, clock, events)

    async def ready(self) -> None:
        """Wait until Spark accepts epochs; start it if it is not running."""
        await self._host.session()

    async def run(self, plan: EpochPlan) -> EpochOutcome:
        """Run the epoch of *plan* on Spark and return its outcome; raise `EpochLostError` if there is none."""
        if plan.transform is not None:
            return await self._run_records(plan)
        key = (plan.flow, plan.task)
        session = await self._host.session()
        number = next(self._numbers)
        stop_file = self._host.scratch / f"epoch-{number}.stop"
        planned = attrs.evolve(plan, stop_file=str(stop_file))
        sent = difference(planned, number, self._known.pop(key, None))
        payload = seal(sent, self._host.secrets_key_file)
        whole = functools.partial(seal, SentPlan(planned, number), self._host.secrets_key_file)
        job = asyncio.get_running_loop().run_in_executor(self._thread(key), _run_job, session, planned, payload, whole)
        running = self._running[key] = _Running(planned, stop_file, job)
        job.add_done_callback(functools.partial(self._ended, key, running))
        try:
            await self._watch_slot(session, running)
            if not await done_within(job, _due_s(plan) + SLACK_S, self._clock):
                await self._end_late(session, running)
            outcome = await asyncio.shield(job)
        except EpochLostError as lost:
            if await self._ask(session, is_stopped, session):
                self._host.forget(session)
            if running.is_late:
                cause = f"it was late and was ended ({lost.cause})"
                raise EpochLostError(plan.name, cause, lost.may_still_write, is_late=True) from lost.__cause__
            raise lost.with_traceback(None) from lost.__cause__
        self._known[key] = KeptPlan(number, {it.source: it for it in plan.partitions})
        return outcome

    async def _end_late(self, session: SparkSession, running: _Running) -> None:
        """End a late epoch by force; Spark then reports how it ended."""
        plan, running.is_late = running.plan, True
        due_s = _due_s(plan)
        worker_name = running.worker
        self._events.emit(CopyTaskLate(plan.flow, plan.task, plan.epoch, worker_name, due_s, SLACK_S))
        if await self._ask(session, is_stopped, session) is not None:
            if self._host.settings.is_on_this_machine and kill_worker(worker_name):
                await done_within(running.job, _NOTICES_WITHIN_S, self._clock)
            if running.job.done():
                return
        await self._end_job(session, running)

    async def _end_job(self, session: SparkSession, running: _Running) -> None:
        """Cancel an epoch's job, and end a Spark that does not do so."""
        if running.job.done():
            return
        is_told = await self._ask(session, _cancel, session, running.plan) is not None
        if is_told and await done_within(running.job, _NOTICES_WITHIN_S, self._clock):
            return
        name = running.plan.name
        await self._host.end_hung(session, f"it does not end {name}" if is_told else "its JVM does not answer")
        if not await done_within(running.job, _NOTICES_WITHIN_S, self._clock):
            self._threads.pop((running.plan.flow, running.plan.task), None)  # it is never free again
            raise EpochLostError(name, "Spark hangs")

    async def _ask(
        self, session: SparkSession, question: Callable[_P, _T], *args: _P.args, **named: _P.kwargs
    ) -> _T | None:
        """Query Spark; None if it does not respond in time."""
        answer = session.begin(question, *args, **named)
        return answer.result() if await done_within(answer, _ANSWERS_WITHIN_S, self._clock) else None

    async def _run_records(self, plan: EpochPlan) -> EpochOutcome:
        session = await self._host.session()
        try:
            return await self.records.run(plan)
        except MicroBatchLateError as error:
            raise EpochLostError(plan.name, str(error), is_late=True) from error
        except (Py4JError, PySparkException, OSError, EOFError) as error:
            if await self._ask(session, is_stopped, session):
                self._host.forget(session)
            cause = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            raise EpochLostError(plan.name, cause) from error

    def nudge(self, flow: Flow, task: int) -> bool:
        """End the running epoch of a copy task early, but cleanly. Return whether there was one."""
        running = self._running.get((flow, task))
        if running is None:
            return self.records.nudge(flow, task)
        running.stop_file.touch()
        return True

    def is_waiting(self, flow: Flow, task: int) -> bool:
        """Whether the epoch of a copy task waits for a Spark slot."""
        running = self._running.get((flow, task))
        return running is not None and running.is_waiting

    def is_late(self, flow: Flow, task: int) -> bool:
        """Whether the epoch of a copy task is not back although its time is over."""
        running = self._running.get((flow, task))
        return running.is_late if running is not None else self.records.is_late(flow, task)

    def view(self) -> SparkView:
        """Return a view of Spark and its slots."""
        running = list(self._running.values())
        waiting, slots = sum(1 for it in running if it.is_waiting), self._host.settings.slots
        used = len(running) - waiting
        return SparkView(slots, used if slots is None else min(used, slots), waiting, self._host.is_up)

    async def settle(self, flow: Flow) -> None:
        """Wait until no epoch of *flow* can write any more; cancel those that take too long."""
        await self.records.settle(flow)
        left = [running for running in self._running.values() if running.plan.flow == flow]
        if not left:
            return
        for running in left:
            running.stop_file.touch()
        longest_s = max(running.plan.drain_ms for running in left) / 1000 + _SETTLE_SLACK_S
        _, late = await asyncio.wait({running.job for running in left}, timeout=longest_s)
        if late:
            session = await self._host.session()
            for running in left:
                with contextlib.suppress(EpochLostError):
                    await self._end_job(session, running)
            await self._clock.sleep(max(running.plan.longest_ms + running.plan.drain_ms for running in left) / 1000)

    def close(self) -> None:
        """Let go of the threads; epochs still running end with Spark."""
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)

    def _thread(self, key: tuple[Flow, int]) -> ThreadPoolExecutor:
        if key not in self._threads:
            flow, task = key
            self._threads[key] = ThreadPoolExecutor(1, thread_name_prefix=f"{flow}/source/{task}")
        return self._threads[key]

    def _ended(self, key: tuple[Flow, int], running: _Running, job: asyncio.Future[EpochOutcome]) -> None:
        if self._running.get(key) is running:
            del self._running[key]
        running.stop_file.unlink(missing_ok=True)
        running.worker_file.unlink(missing_ok=True)
        if not job.cancelled():
            job.exception()  # without an awaiter, the loss is irrelevant

    async def _watch_slot(self, session: SparkSession, running: _Running) -> None:
        """Report once when the epoch's job finds no slot; return when it has one or is over."""
        plan, begun = running.plan, self._clock.monotonic()
        while not running.job.done():
            await asyncio.wait({running.job}, timeout=SLOT_PATIENCE_S)
            # A hung epoch is distinguished from one without a slot by its duration.
            if running.job.done() or await self._ask(session, _has_slot, session, plan) is not False:
                running.is_waiting = False
                return
            if not running.is_waiting:
                running.is_waiting = True
                waited_s = self._clock.monotonic() - begun
                self._events.emit(WaitingForSlot(plan.flow, plan.task, plan.epoch, waited_s))


def _due_s(plan: EpochPlan) -> float:
    """Return how long an epoch may take by itself."""
    return (plan.longest_ms + plan.drain_ms) / 1000


def _group(plan: EpochPlan) -> str:
    return f"{plan.flow}/source/{plan.task}/{plan.epoch}"


def _run_job(session: SparkSession, plan: EpochPlan, payload: bytes, whole: Callable[[], bytes]) -> EpochOutcome:
    """Run an epoch; if the worker that gets *payload* cannot do with it, with the *whole* plan."""
    try:
        session.context.setJobGroup(_group(plan), plan.name)
        outcome = _outcome_of(session, payload) or _outcome_of(session, whole())
    except JOB_FAILED as error:
        cause, may_still_write = judge_failure(message_of(error))
        raise EpochLostError(plan.name, cause, may_still_write) from error
    except (Py4JError, OSError, EOFError, IndexError) as error:
        raise EpochLostError(plan.name, f"Spark is gone ({type(error).__name__})") from error
    if outcome is None:
        raise EpochLostError(plan.name, "its worker refused the whole plan", may_still_write=False)
    return outcome


def _outcome_of(session: SparkSession, payload: bytes) -> EpochOutcome | None:
    outcome: EpochOutcome | None = collected(session.one_row.mapPartitions(functools.partial(run_epochs, payload)))[0]
    return outcome


def judge_failure(message: str) -> tuple[str, bool]:
    """Return the useful line of Spark's message about a failed job, and whether its task may still be writing. A task
    that raised has ended by itself, and a worker whose socket closed is a dead process. For a lost executor, or a
    cancelled job, it is unknown; and for the first run if Spark's second one raised.
    """
    failure = message.split("most recent failure: ", 1)[-1]
    first = (failure.splitlines() or [""])[0]
    if _TRACEBACK in failure:
        tail = failure[failure.rindex(_TRACEBACK) :].splitlines()[1:]
        raised = [line for line in tail if line and not line[0].isspace()]
        cause = (raised[0] if raised else first).strip()
        return cause, EpochRepeatedError.__name__ in cause
    if _WORKER_DIED in failure:
        return "its Python worker was killed", False
    return first.split("Exception: ")[-1].strip(), True


def _has_slot(session: SparkSession, plan: EpochPlan) -> bool:
    try:
        tracker = session.context.statusTracker()
        for job in tracker.getJobIdsForGroup(_group(plan)):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                progress = tracker.getStageInfo(stage)
                if progress and progress.numActiveTasks + progress.numCompletedTasks + progress.numFailedTasks:
                    return True
    except (Py4JError, OSError):
        return True  # the job itself tells what happened to Spark
    return False


def _cancel(session: SparkSession, plan: EpochPlan) -> bool:
    with contextlib.suppress(Py4JError, OSError):
        session.context.cancelJobGroup(_group(plan))
    return True
