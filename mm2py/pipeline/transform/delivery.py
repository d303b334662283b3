"""
Batches of one range on their way to the target, sent as the copier sends them.

`BatchSender` signs, sends and sends again, and `PartitionCopy` accounts for what was acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from mm2py.clock import Clock
from mm2py.model.epoch import EpochPlan
from mm2py.pipeline.copy.metadata import UNREACHABLE_PAUSE_S, follow_leaders
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.pipeline.copy.refusals import UNREACHABLE, failure_of
from mm2py.pipeline.copy.sending import BatchSender
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.wire.cluster import Cluster
from mm2py.wire.produce import init_producer_id


#: How long to wait for a target that does not answer; the daemon plans the range again after that.
_SEND_WITHIN_S: Final = 20.0


class Delivery:
    """Sends what one range has queued."""

    def __init__(self, plan: EpochPlan, hosted: WorkerState, clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._target: Cluster = hosted.cluster(plan.target, clock)
        transactional_id = plan.transactions.transactional_id if plan.transactions is not None else ""
        self.sender = BatchSender(self._target, plan.limits, clock, transactional_id)

    async def send(self, copy: PartitionCopy) -> None:
        """Send all that *copy* has queued, as far as that is possible in time."""
        sender = self.sender
        sender.take(copy, 0)
        try:
            async with asyncio.timeout(_SEND_WITHIN_S):
                await self._prepare(copy)
        except TimeoutError:
            sender.discard(copy)
            return
        async with asyncio.TaskGroup() as tasks:
            sender.start(tasks)
            follow = tasks.create_task(
                follow_leaders(self._target, sender.wants_metadata),
                name=f"follow the leader of {copy.remote}",
            )
            sender.offer(copy)
            sender.pump()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SEND_WITHIN_S):
                    await sender.drained.wait()
            sender.stop()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._plan.drain_ms / 1000):
                    if sender.unanswered:
                        await sender.all_answered.wait()
            sender.discard(copy)
            follow.cancel()
        sender.close_unanswered()

    async def _prepare(self, copy: PartitionCopy) -> None:
        """Learn the leader, and get a producer id where the partition has none."""
        while True:
            try:
                await self._target.ensure_metadata({copy.remote.topic})
                if copy.sending.producer is None:
                    copy.sending.write_as(await init_producer_id(self._target))
            except UNREACHABLE as error:
                copy.retried_failure = failure_of(error, (self._plan.source, self._plan.target))
            else:
                copy.retried_failure = None
                return
            await self._clock.sleep(UNREACHABLE_PAUSE_S)
