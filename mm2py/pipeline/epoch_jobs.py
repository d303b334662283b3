"""
Epochs of copy tasks in Spark jobs, awaited from asyncio.

An epoch is a Spark job with one Spark task. Where there are slots for all who need one, the task stays and runs the
next epoch, too: see `mm2py.pipeline.copy_job`. Each copy task has a thread of its own, because Spark ties job group and
description to the calling thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import attrs
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from mm2py.clock import Clock
from mm2py.model.epoch import EpochOutcome, EpochPlan
from mm2py.model.flow import Flow
from mm2py.model.state import SparkView
from mm2py.pipeline.copy.sent_plan import KeptPlan, SentPlan, difference
from mm2py.pipeline.copy.spark_task import name_file
from mm2py.pipeline.copy_job import CopyJob, EpochLostError, Payload, cancel, has_slot
from mm2py.pipeline.plan_server import PlanServer
from mm2py.pipeline.spark.patience import done_within
from mm2py.pipeline.spark.processes import kill_worker
from mm2py.pipeline.spark.sealing import seal
from mm2py.pipeline.spark.session import SparkHost, SparkSession, is_stopped
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
#: What an epoch may need past its own time before it is cancelled while its flow settles.
_SETTLE_SLACK_S = 2.0
_MEMORY: Final = "the kernel's count of processes that it killed for lack of memory has just grown"
#: How long a Spark task waits for the next plan of its copy task. One that has anything to do is planned at once.
_REST_S = 1.0
#: How long epochs may be lost and none come back: an executor whose work folder was removed fails for each one.
_NONE_BACK_FOR_S: Final = 120.0

_P = ParamSpec("_P")
_T = TypeVar("_T")


class LostEpochs:
    """
    Epochs of which no outcome came, flow by flow: a worker that is out of reach may go on to the end of its time.

    It outlives what planned them: a connector that restarts, or a flow that begins again with other settings, plans the
    same partitions.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_at: dict[Flow, float] = {}

    def note(self, flow: Flow, quiet_at: float) -> None:
        """Note that an epoch was lost which may write until *quiet_at*."""
        self._quiet_at[flow] = max(quiet_at, self._quiet_at.get(flow, quiet_at))

    async def until_quiet(self, flow: Flow) -> None:
        """Wait until none of a flow's lost epochs can write any more."""
        left_s = self._quiet_at.get(flow, 0.0) - self._clock.monotonic()
        if left_s > 0:
            await self._clock.sleep(left_s)


@attrs.define
class _Running:
    """An epoch on its way: the file that ends it early, its Spark job, and what becomes of it there."""

    plan: EpochPlan
    stop_file: Path
    job: CopyJob
    outcome: asyncio.Future[EpochOutcome]
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

    def __init__(self, host: SparkHost, clock: Clock, events: EventLog, *, plans_port: int = 0) -> None:
        """Create it; executors of a cluster get further plans at *plans_port*."""
        self._host = host
        self._clock = clock
        self._events = events
        self._threads: dict[tuple[Flow, int], ThreadPoolExecutor] = {}
        self._running: dict[tuple[Flow, int], _Running] = {}
        #: The last Spark job of each copy task.
        self._jobs: dict[tuple[Flow, int], CopyJob] = {}
        port = None if host.settings.is_embedded else plans_port
        self._plans = PlanServer(host.scratch, clock, events, port=port)
        self._numbers = itertools.count()
        #: The last plan of each copy task whose outcome came back.
        self._known: dict[tuple[Flow, int], KeptPlan] = {}
        #: When the first epoch was lost since one came back.
        self._lost_since = math.inf
        #: Runs the epochs of plans with a transform.
        self.records = RecordTasks(host, clock, events)
        #: What was lost and may still write.
        self.lost = LostEpochs(clock)

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
        key_file = self._host.secrets_key_file
        whole = functools.partial(seal, SentPlan(planned, number), key_file)
        job = await self._job_of(key, session, Payload(planned, seal(sent, key_file), whole))
        running = self._running[key] = _Running(planned, stop_file, job, job.outcome)
        running.outcome.add_done_callback(functools.partial(self._ended, key, running))
        # While the epoch runs: records wait for what follows it.
        kept = KeptPlan(number, plan.by_source, plan.partitions)
        try:
            await self._watch_slot(running)
            if not await done_within(running.outcome, _due_s(plan) + SLACK_S, self._clock):
                await self._end_late(running)
            outcome = await asyncio.shield(running.outcome)
        except EpochLostError as lost:
            await self._judge(session, plan)
            cause = f"it was late and was ended ({lost.cause})" if running.is_late else lost.cause
            if self._host.was_memory_short:
                cause = f"{cause}; {_MEMORY}"
            raise EpochLostError(plan.name, cause, lost.may_still_write, is_late=running.is_late) from lost.__cause__
        self._known[key], self._lost_since = kept, math.inf
        return outcome

    async def _judge(self, session: SparkSession, lost: EpochPlan) -> None:
        """Have Spark started again if it was stopped, or epochs are lost there and none comes back any more."""
        now = self._clock.monotonic()
        self._lost_since = min(self._lost_since, now)
        # Those of other flows may be longer than that, and are well.
        longest_s = max(_due_s(plan) for plan in (lost, *(it.plan for it in self._running.values())))
        within_s = max(_NONE_BACK_FOR_S, 2 * longest_s)
        if await self._ask(session, is_stopped, session):
            self._lost_since = math.inf  # of the next Spark nothing is known
            self._host.forget(session)
        elif now - self._lost_since >= within_s:
            self._lost_since = math.inf
            await self._host.replace(session, f"epochs were lost for {within_s:g} s, and none came back")

    async def _job_of(self, key: tuple[Flow, int], session: SparkSession, payload: Payload) -> CopyJob:
        """Have the copy task's Spark job run the epoch of *payload*, or a new one if it has ended."""
        job = self._jobs.get(key)
        if job is not None and job.session is session and job.is_open:
            job.go_on(payload)
            return job
        job = CopyJob(session)
        plans_from = await self._plans.expect(job)
        self._jobs[key] = job
        job.begin(payload, self._thread(key), plans_from).add_done_callback(lambda _: self._forget(key, job))
        return job

    def _forget(self, key: tuple[Flow, int], job: CopyJob) -> None:
        if self._jobs.get(key) is job:
            del self._jobs[key]

    def _may_stay(self) -> bool:
        """Whether a Spark task may keep its slot between two epochs: there is one more than anything here uses. On a
        cluster, whose slots come and go, none of ours waits for one, and no executor for the end of its tasks.
        """
        slots = self._host.settings.slots
        if slots is None:
            are_served = not self.records.running and all(it.job.has_connected for it in self._running.values())
            return are_served and not self._host.loses_executors
        used = self._running.keys() | {key for key, job in self._jobs.items() if job.is_open}
        return len(used) + self.records.running < slots

    async def _end_late(self, running: _Running) -> None:
        """End a late epoch by force; Spark then reports how it ended."""
        plan, session, running.is_late = running.plan, running.job.session, True
        due_s = _due_s(plan)
        worker_name = running.worker
        self._events.emit(CopyTaskLate(plan.flow, plan.task, plan.epoch, worker_name, due_s, SLACK_S))
        if await self._ask(session, is_stopped, session) is not None:
            if self._host.settings.is_on_this_machine and kill_worker(worker_name):
                await done_within(running.outcome, _NOTICES_WITHIN_S, self._clock)
            if running.outcome.done():
                return
        await self._end_job(running)

    async def _end_job(self, running: _Running) -> None:
        """Cancel an epoch's job, and end a Spark that does not do so."""
        if running.outcome.done():
            return
        session = running.job.session
        is_told = await self._ask(session, cancel, running.job) is not None
        if is_told and await done_within(running.outcome, _NOTICES_WITHIN_S, self._clock):
            return
        name = running.plan.name
        await self._host.end_hung(session, f"it does not end {name}" if is_told else "its JVM does not answer")
        if not await done_within(running.outcome, _NOTICES_WITHIN_S, self._clock):
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
            outcome = await self.records.run(plan)
        except MicroBatchLateError as error:
            raise EpochLostError(plan.name, str(error), is_late=True) from error
        except (Py4JError, PySparkException, OSError, EOFError) as error:
            if await self._ask(session, is_stopped, session):
                self._host.forget(session)
            cause = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            raise EpochLostError(plan.name, cause) from error
        begun = plan.by_source
        if any(it.position > begun[it.source].position for it in outcome.partitions):
            self._lost_since = math.inf  # Spark works, whatever has become of copy tasks
        return outcome

    def nudge(self, flow: Flow, task: int) -> bool:
        """End the running epoch of a copy task early, but cleanly. Return whether there was one."""
        running = self._running.get((flow, task))
        if running is None:
            return self.records.nudge(flow, task)
        _end_early(running)
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
        # It may be removed, and what its next life needs of both comes with its next epochs.
        for key in [key for key in self._threads if key[0] == flow]:
            self._threads.pop(key).shutdown(wait=False)
        for key in [key for key in self._known if key[0] == flow]:
            del self._known[key]
        left = [running for running in self._running.values() if running.plan.flow == flow]
        for running in left:
            _end_early(running)
        for job in [job for key, job in self._jobs.items() if key[0] == flow]:
            job.end()
        if not left:
            return
        longest_s = max(running.plan.drain_ms for running in left) / 1000 + _SETTLE_SLACK_S
        _, late = await asyncio.wait({running.outcome for running in left}, timeout=longest_s)
        if late:
            for running in left:
                with contextlib.suppress(EpochLostError):
                    await self._end_job(running)
            await self._clock.sleep(max(running.plan.longest_ms + running.plan.drain_ms for running in left) / 1000)

    def close(self) -> None:
        """Let go of the threads; epochs still running end with Spark."""
        for job in self._jobs.values():
            job.end()
        self._plans.close()
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)

    def _thread(self, key: tuple[Flow, int]) -> ThreadPoolExecutor:
        if key not in self._threads:
            flow, task = key
            self._threads[key] = ThreadPoolExecutor(1, thread_name_prefix=f"{flow}/source/{task}")
        return self._threads[key]

    def _ended(self, key: tuple[Flow, int], running: _Running, outcome: asyncio.Future[EpochOutcome]) -> None:
        if self._may_stay():
            running.job.rest(_REST_S)
        else:
            running.job.end()
        if self._running.get(key) is running:
            del self._running[key]
        with contextlib.suppress(OSError):  # the file system was made read-only, as after an error of its disk
            running.stop_file.unlink(missing_ok=True)
            running.worker_file.unlink(missing_ok=True)
        if not outcome.cancelled():
            outcome.exception()  # without an awaiter, the loss is irrelevant

    async def _watch_slot(self, running: _Running) -> None:
        """Report once when the epoch's job finds no slot; return when it has one or is over."""
        plan, job, begun = running.plan, running.job, self._clock.monotonic()
        while not running.outcome.done():
            await asyncio.wait({running.outcome}, timeout=SLOT_PATIENCE_S)
            # A hung epoch is distinguished from one without a slot by its duration.
            if running.outcome.done() or job.is_open or await self._ask(job.session, has_slot, job) is not False:
                running.is_waiting = False
                return
            if not running.is_waiting:
                running.is_waiting = True
                waited_s = self._clock.monotonic() - begun
                self._events.emit(WaitingForSlot(plan.flow, plan.task, plan.epoch, waited_s))


def _end_early(running: _Running) -> None:
    """Have an epoch end: a worker elsewhere cannot see the file, and one that has just started has not connected."""
    with contextlib.suppress(OSError):  # the disk is full: it ends in time
        running.stop_file.touch()
    running.job.end_epoch()


def _due_s(plan: EpochPlan) -> float:
    """Return how long an epoch may take by itself."""
    return (plan.longest_ms + plan.drain_ms) / 1000
