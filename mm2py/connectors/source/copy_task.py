"""
One copy task: an unbroken sequence of epochs.

It runs what its source task group plans for it, waits where there is nothing to do, and sits out the time in which a
lost epoch might still write. It knows nothing of positions: it hands plans in and outcomes back.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Protocol

import attrs

from mm2py.connectors.context import SourceContext
from mm2py.connectors.source.outcomes import Outcomes
from mm2py.connectors.source.transactions import transactions_of
from mm2py.connectors.supervise import until_set
from mm2py.core.backoff import Backoff
from mm2py.errors import Mm2Error, Verdict
from mm2py.model.epoch import EpochOutcome, EpochPlan, PartitionPlan
from mm2py.model.rates import RateShare
from mm2py.model.state import TaskState, TaskView
from mm2py.model.transform import Transform
from mm2py.pipeline.copy_job import EpochLostError
from mm2py.pipeline.epoch_jobs import EpochRunner
from mm2py.telemetry.events import CopyTaskLost, CopyTaskRecovered


#: Far longer than an epoch takes, however clocks of machines differ, and far less than brokers remember producers.
_VOID_AFTER_MS = 4 * 3_600_000
#: Pauses before a lost epoch is planned again.
_PAUSES = Backoff(1.0, 60.0)


class Planner(Protocol):
    """Plans what a copy task does next."""

    @property
    def copy_tasks(self) -> int: ...

    def take_partitions(self, task: int) -> tuple[PartitionPlan, ...]:
        """Return what *task* may copy now; it holds these until they are put back."""
        ...

    def rates(self, task: int, partitions: tuple[PartitionPlan, ...]) -> tuple[RateShare, ...]:
        """Return what *task* may take of the limits that these partitions fall under."""
        ...

    def next_retry_at(self, task: int) -> float | None:
        """Return when something may be planned for *task* again that is pausing now."""
        ...

    def put_back(self, plan: EpochPlan) -> None:
        """Let others have the plan's partitions."""
        ...


@attrs.frozen
class _Numbers:
    """What a copy task shows of its last epoch."""

    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    boundary_ms: float = 0.0
    worker: str = ""


class CopyTask:
    """
    One copy task of a flow.

    a. At most one of its epochs runs at a time.
    b. After a lost epoch nothing of it runs before that epoch can no longer write.
    """

    def __init__(
        self,
        context: SourceContext,
        task: int,
        transform: Transform | None,
        *,
        planner: Planner,
        accounts: Outcomes,
        epochs: EpochRunner,
        name_by_policy: Callable[[str], str],
    ) -> None:
        self.task = task
        self._name_by_policy = name_by_policy
        #: What its records go through; None where it copies batches unopened.
        self._transform = transform
        self._config = context.config
        self._planner = planner
        self._accounts = accounts
        self._epochs = epochs
        self._clock = context.clock
        self._events = context.events
        self._jitter = context.jitter
        self._made_at = self._clock.monotonic()
        self._poked = asyncio.Event()
        self._epoch = 0
        self._lost_in_a_row = 0
        self._lost_in_all = 0
        self._last_error = ""
        self._numbers = _Numbers()
        self._state = TaskState.IDLE
        self._is_draining = False
        #: Ends the wait for Spark; None while there is none.
        self._starting: asyncio.Timeout | None = None
        self._quiet_until = 0.0
        self._is_hurried = False
        #: An epoch was not back in time, and none has come back since.
        self._was_late = False

    def poke(self) -> None:
        """Make the copy task look at its plan again: end its epoch, or its wait."""
        self._poked.set()
        self._epochs.nudge(self._config.flow, self.task)

    def restart(self) -> None:
        """End the epoch, or the pause after lost ones, and plan again at once; no lost epoch is overtaken."""
        self._is_hurried = True
        self.poke()

    def drain(self) -> None:
        """Run no further epoch."""
        self._is_draining = True
        if self._starting is not None:
            self._starting.reschedule(0.0)
            self._starting = None
        self.poke()

    def reopen(self) -> None:
        """Let `run` run epochs again that a drain had ended."""
        self._is_draining = False

    def view(self, partitions: int) -> TaskView:
        state, flow = self._state, self._config.flow
        if state is not TaskState.IDLE and (self._was_late or self._epochs.is_late(flow, self.task)):
            state = TaskState.LATE
        elif state is TaskState.RUNNING and self._epochs.is_waiting(flow, self.task):
            state = TaskState.WAITING_FOR_SLOT
        return TaskView(
            task=self.task,
            state=state,
            epoch=self._epoch,
            partitions=partitions,
            records_per_s=self._numbers.records_per_s,
            bytes_per_s=self._numbers.bytes_per_s,
            boundary_ms=self._numbers.boundary_ms,
            lost_epochs=self._lost_in_all,
            worker=self._numbers.worker,
            last_error=self._last_error,
        )

    async def run(self) -> None:
        """Run epoch after epoch until drained."""
        while not self._is_draining:
            if not await self._is_ready():
                continue
            # Cleared before planning: a later poke is seen by the wait, or by the epoch's end.
            self._poked.clear()
            partitions = self._planner.take_partitions(self.task)
            if partitions:
                await self._run_epoch(self._plan(partitions))
            else:
                await self._wait()
        self._rest()

    async def _is_ready(self) -> bool:
        """Wait until Spark accepts epochs, or until drained; if it cannot be started, pause and return False."""
        self._state = TaskState.WAITING_FOR_SLOT
        try:
            async with asyncio.timeout(None) as limit:
                self._starting = limit
                try:
                    await self._epochs.ready()
                finally:
                    self._starting = None
        except TimeoutError:
            if not self._is_draining:
                raise
            return False
        except Mm2Error as error:
            if error.verdict is Verdict.STOP_FLOW:
                raise
            self._lost_in_a_row += 1
            self._last_error = str(error)
            pause_s = _PAUSES.pause_s(self._lost_in_a_row, self._jitter())
            self._events.emit(CopyTaskLost(self._config.flow, self.task, self._epoch, str(error), pause_s))
            await self._back_off(pause_s)
            return False
        self._state = TaskState.IDLE
        return not self._is_draining

    def _plan(self, partitions: tuple[PartitionPlan, ...]) -> EpochPlan:
        config = self._config
        plan = EpochPlan(
            flow=config.flow,
            task=self.task,
            epoch=self._epoch,
            source=config.source,
            target=config.target,
            partitions=partitions,
            limits=config.limits,
            epoch_ms=self._epoch_ms(),
            drain_ms=config.copying.drain_ms,
            rates=self._planner.rates(self.task, partitions),
            transform=self._transform,
            names_by_policy=self._names_by_policy(partitions),
            transactions=transactions_of(config, self._transform),
            void_after_ms=self._clock.wall_ms() + _VOID_AFTER_MS,
        )
        self._epoch += 1
        return plan

    def _names_by_policy(self, partitions: tuple[PartitionPlan, ...]) -> Mapping[str, str]:
        """Return the topics' names as Connect's transforms see them; nothing if there are none."""
        if self._transform is None or not self._transform.steps:
            return {}
        return {topic: self._name_by_policy(topic) for topic in {one.source.topic for one in partitions}}

    def _epoch_ms(self) -> int:
        """
        Return how long the next epoch lasts: at most as long as is configured, and half of that at least.

        The epochs of copy tasks end in turn: with thousands of partitions, records would wait longer if several planned
        their next ones at a time. After one that ended early, shorter ones lead back to the task's turn.
        """
        full_ms = self._config.copying.epoch_ms
        turn_ms = full_ms * (self.task + 1) / max(1, self._planner.copy_tasks)
        passed_ms = (self._clock.monotonic() - self._made_at) * 1000
        left_ms = full_ms - (passed_ms - turn_ms) % full_ms
        return max(1, round(left_ms if left_ms >= full_ms / 2 else (left_ms + full_ms) / 2))

    async def _run_epoch(self, plan: EpochPlan) -> None:
        self._state = TaskState.RUNNING
        begun = self._clock.monotonic()
        pause_s = 0.0
        try:
            outcome = await self._epochs.run(plan)
        except EpochLostError as error:
            pause_s = self._lose(plan, error)
        else:
            await self._take(plan, outcome, took_s=self._clock.monotonic() - begun)
        finally:
            self._planner.put_back(plan)
            self._state = TaskState.IDLE
        if pause_s:
            await self._back_off(pause_s)

    async def _take(self, plan: EpochPlan, outcome: EpochOutcome, *, took_s: float) -> None:
        if self._lost_in_a_row:
            self._events.emit(CopyTaskRecovered(plan.flow, plan.task, plan.epoch, self._lost_in_a_row))
            self._lost_in_a_row = 0
        self._was_late = False
        self._numbers = _Numbers(
            records_per_s=outcome.records / took_s if took_s else 0.0,
            bytes_per_s=outcome.bytes / took_s if took_s else 0.0,
            boundary_ms=max(0.0, took_s - outcome.elapsed_s) * 1000,
            worker=outcome.worker,
        )
        await self._accounts.account(plan, outcome, took_s=took_s)

    def _lose(self, plan: EpochPlan, lost: EpochLostError) -> float:
        """Note the loss and give the pause until its partitions may be planned again."""
        self._lost_in_a_row += 1
        self._lost_in_all += 1
        self._numbers = _Numbers()
        self._last_error = lost.cause
        self._was_late = self._was_late or lost.is_late
        quiet_ms = plan.longest_ms + plan.drain_ms if lost.may_still_write else plan.drain_ms
        now = self._clock.monotonic()
        self._quiet_until = now + quiet_ms / 1000
        self._epochs.lost.note(plan.flow, self._quiet_until)
        pause_s = quiet_ms / 1000 + _PAUSES.pause_s(self._lost_in_a_row, self._jitter())
        self._events.emit(CopyTaskLost(plan.flow, plan.task, plan.epoch, lost.cause, pause_s))
        self._accounts.account_lost(plan, lost.cause, retry_at=now + pause_s, quiet_until=self._quiet_until)
        return pause_s

    async def _back_off(self, pause_s: float) -> None:
        """Wait for a pause to end; a poke does not shorten it, a drain does, and a restart as far as possible."""
        self._state = TaskState.BACKING_OFF
        self._is_hurried = False
        until = self._clock.monotonic() + pause_s
        while not self._is_draining and (left := until - self._clock.monotonic()) > 0:
            self._poked.clear()
            await until_set(self._poked, left)
            if self._is_hurried:
                self._lost_in_a_row = 0
                until = min(until, self._quiet_until)
        self._state = TaskState.IDLE

    def _rest(self) -> None:
        """Show no rate while nothing is copied."""
        self._numbers = attrs.evolve(self._numbers, records_per_s=0.0, bytes_per_s=0.0)

    async def _wait(self) -> None:
        self._rest()
        retry_at = self._planner.next_retry_at(self.task)
        if retry_at is None or math.isinf(retry_at):
            await self._poked.wait()
        else:
            await until_set(self._poked, max(0.0, retry_at - self._clock.monotonic()))
