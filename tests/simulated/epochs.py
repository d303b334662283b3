"""
Copy epochs in worker processes of their own, and no Spark.

A worker is a host beside its node's: it can be killed alone, and it can outlive its node, as an executor of a Spark
cluster does.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import attrs

from mm2py.model.epoch import EpochOutcome, EpochPlan
from mm2py.model.flow import Flow, TopicPartition
from mm2py.pipeline.copy import epoch as copying
from mm2py.pipeline.copy import worker_state
from mm2py.pipeline.copy_job import EpochLostError
from mm2py.pipeline.epoch_jobs import LostEpochs
from mm2py.telemetry.journal import EventLog
from tests.simulated.loop import HOST, Host, SimClock
from tests.simulated.network import Network
from tests.simulated.record_jobs import SimRecordTasks


#: What a worker is to do, with what it keeps.
Job = Callable[[worker_state.WorkerState], Awaitable[Any]]
#: What passes between a daemon and its workers takes so long.
_PIPE_S = 0.001
_SPARK_STARTS_S = 6.0
#: Spark kills the Python worker of a job that it has given up.
_KILLED_WITHIN_S = 3.0


#: Until when an epoch may send that runs in a worker; a process has one run.
SENDS_UNTIL: dict[Host, float] = {}


class NoSpark:
    """Stands for `SparkHost`: it takes its time to start, and that is all."""

    def __init__(self, _settings: object, *, copy_tasks: int, clock: SimClock, **_: object) -> None:
        self.copy_tasks = copy_tasks
        self.settings = SimpleNamespace(is_on_this_machine=True, is_embedded=True, slots=copy_tasks + 1)
        self.is_up = False
        self.loses_executors = False
        self._clock = clock

    def expect(self, copy_tasks: int) -> None:
        """Note how many tasks there will be."""
        self.copy_tasks = copy_tasks

    async def session(self) -> None:
        """Start, once."""
        if not self.is_up:
            await self._clock.sleep(_SPARK_STARTS_S)
            self.is_up = True

    async def watch(self) -> None:
        """Wait for nothing: no JVM can go away."""
        await asyncio.Event().wait()

    async def stop(self, **_: object) -> None:
        """End at once."""
        self.is_up = False


@attrs.define(eq=False)
class _Running:
    plan: EpochPlan
    node: Host
    host: Host
    outcome: asyncio.Future[Any]
    asked_to_end: asyncio.Event
    #: When it can write nothing any more.
    writes_until: float = 0.0


#: The last epoch that each partition was in, on any node.
WRITING: dict[tuple[Flow, TopicPartition], _Running] = {}


class SimEpochs:
    """Stands for `EpochRunner`: each copy task has a worker process, which is started again when it is lost."""

    def __init__(self, spark: NoSpark, clock: SimClock, events: EventLog, **_: object) -> None:
        host = HOST.get()
        assert host is not None
        self.node = host
        self.records = SimRecordTasks(self, spark, clock, events)
        self.lost = LostEpochs(clock)
        self.running: dict[tuple[Flow, int], _Running] = {}
        #: Workers by task, and what each keeps between epochs.
        self.workers: dict[tuple[Flow, int], tuple[Host, worker_state.WorkerState]] = {}
        #: What was planned while another epoch might still write the same partition: the daemon of that, and what.
        self.clashes: list[tuple[Host, str]] = []
        self._spark = spark
        self._clock = clock
        self._numbers = itertools.count()
        host.epochs = self

    async def ready(self) -> None:
        """Wait for Spark."""
        await self._spark.session()

    async def run(self, plan: EpochPlan) -> EpochOutcome:
        """Run an epoch in its task's worker; of records that are transformed only its jobs run there."""
        if plan.transform is not None:
            return await self.records.run(plan)
        await self.ready()
        outcome: EpochOutcome = await self.work(plan)
        return outcome

    async def work(self, plan: EpochPlan, job: Job | None = None) -> Any:
        """Run an epoch of copying in its task's worker, or a *job* of another one."""
        key = (plan.flow, plan.task)
        host, state = self._worker(key)
        loop = asyncio.get_running_loop()
        running = self.running[key] = _Running(plan, self.node, host, loop.create_future(), asyncio.Event())
        running.outcome.add_done_callback(lambda it: None if it.cancelled() else it.exception())
        if job is None:
            self._note(running, loop.time())
        host.start(self._work(running, state, job), name=plan.name)
        try:
            return await asyncio.shield(running.outcome)
        finally:
            if running.outcome.done() and self.running.get(key) is running:
                del self.running[key]

    def _note(self, running: _Running, now: float) -> None:
        """An epoch is planned again only once it has ended, or can no longer write."""
        plan = running.plan
        for source in plan.by_source:
            other = WRITING.get((plan.flow, source))
            if other is not None and not other.host.is_dead and other.writes_until > now:
                self.clashes.append((other.node, f"plans {source} in {running.host}; {other.host} may still write it"))
            WRITING[plan.flow, source] = running
        running.writes_until = SENDS_UNTIL[running.host] = now + (plan.longest_ms + plan.drain_ms) / 1000

    def _worker(self, key: tuple[Flow, int]) -> tuple[Host, worker_state.WorkerState]:
        found = self.workers.get(key)
        if found is None or found[0].is_dead:
            name = f"{self.node.name}/w{key[1]}.{next(self._numbers)}"
            host = Host(self.node.loop, name, self.node.machine)
            found = self.workers[key] = host, worker_state.WorkerState()
        return found

    async def _work(self, running: _Running, state: worker_state.WorkerState, job: Job | None) -> None:
        await self._clock.sleep(_PIPE_S)
        try:
            whole = copying.copy_epoch  # mutants replace it
            copied = whole(running.plan, self._clock, state, running.asked_to_end) if job is None else job(state)
            outcome = await copied
            self.node.call_later(_PIPE_S, self._end, running, outcome)
        except Exception as error:  # noqa: BLE001 - a Spark task that raises is a lost epoch
            lost = EpochLostError(running.plan.name, f"{type(error).__name__}: {error}", may_still_write=False)
            self.node.call_later(_PIPE_S, self._lose, running, lost)
        if job is None:
            running.writes_until = SENDS_UNTIL[running.host] = self.node.loop.time()
        if self.node.is_dead:
            running.host.kill()
            self.node.loop.network.drop_host(running.host)

    def idle_workers(self) -> list[Host]:
        """Return the workers that run no epoch: they end with their daemon at once."""
        busy = {running.host for running in self.running.values() if not running.outcome.done()}
        return [host for host, _ in self.workers.values() if host not in busy]

    @staticmethod
    def _end(running: _Running, outcome: Any) -> None:
        if not running.outcome.done():
            running.outcome.set_result(outcome)

    @staticmethod
    def _lose(running: _Running, error: EpochLostError) -> None:
        if not running.outcome.done():
            running.outcome.set_exception(error)

    def kill_worker(self, key: tuple[Flow, int], network: Network) -> None:
        """End a worker at once; the daemon is told as by Spark."""
        host, _ = self.workers.pop(key)
        host.kill()
        network.drop_host(host)
        running = self.running.get(key)
        if running is not None:
            error = EpochLostError(running.plan.name, "its Python worker was killed", may_still_write=False)
            self.node.call_later(0.2, self._lose, running, error)

    def lose_contact(self, key: tuple[Flow, int]) -> Host:
        """Have the daemon lose a worker that goes on to the end of its epoch, as an executor elsewhere may."""
        host, _ = self.workers.pop(key)
        running = self.running.get(key)
        if running is not None:
            error = EpochLostError(running.plan.name, "its executor is out of reach", may_still_write=True)
            self.node.call_later(0.2, self._lose, running, error)
            if running.plan.transform is not None:
                self.node.loop.call_later(_KILLED_WITHIN_S, self._kill, host)
        return host

    def _kill(self, host: Host) -> None:
        host.kill()
        self.node.loop.network.drop_host(host)

    def nudge(self, flow: Flow, task: int) -> bool:
        """Ask an epoch to end early."""
        running = self.running.get((flow, task))
        if running is not None:
            running.host.call_later(_PIPE_S, running.asked_to_end.set)
        return self.records.nudge(flow, task) or running is not None

    def is_waiting(self, _flow: Flow, _task: int) -> bool:
        """Whether an epoch waits for a slot."""
        return False

    def is_late(self, flow: Flow, task: int) -> bool:
        """Whether an epoch is overdue."""
        return self.records.is_late(flow, task)

    def view(self) -> None:
        """Return nothing of Spark."""

    async def settle(self, flow: Flow) -> None:
        """Have the flow's epochs end, and wait for them."""
        await self.records.settle(flow)
        left = [it for it in self.running.values() if it.plan.flow == flow and not it.outcome.done()]
        for it in left:
            self.nudge(flow, it.plan.task)
        if left:
            await asyncio.wait({it.outcome for it in left})
        for key in [key for key, it in self.running.items() if it.outcome.done()]:
            del self.running[key]

    def close(self) -> None:
        """Do nothing."""
