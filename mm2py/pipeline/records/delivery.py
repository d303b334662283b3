"""
Batches of one stretch on their way to the target, the copier's own way.

`Dispatch` signs, sends and sends again, and `PartitionCopy` accounts for what was acknowledged. A stretch of most
topics goes to one remote partition, that of a spread topic to several.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from mm2py.clock import Clock
from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError, RecordTooLargeError
from mm2py.model.epoch import EpochPlan, PartitionFailure, PartitionPlan
from mm2py.pipeline.copier import WorkerState
from mm2py.pipeline.partition import Parcel, PartitionCopy
from mm2py.pipeline.refusals import failure_of
from mm2py.pipeline.sending import Dispatch
from mm2py.wire.cluster import Cluster
from mm2py.wire.produce import init_producer_id
from mm2py.wire.rebuild import Rebuilt
from mm2py.wire.record_columns import NewRecord, build


_UNREACHABLE: Final = (ClusterUnreachableError, BrokerConnectionError, BrokerAnsweredError)
_PAUSE_S: Final = 0.2
#: How long a target that does not answer is waited for; the daemon plans the stretch anew after that.
_SEND_WITHIN_S: Final = 20.0
_BATCH_BYTES: Final = 512 * 1024
_NO_CODEC: Final = 0


class Delivery:
    """Sends what the copies of one stretch have queued."""

    def __init__(self, plan: EpochPlan, hosted: WorkerState, clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._target: Cluster = hosted.cluster(plan.target, clock)
        transactional_id = plan.transactions.transactional_id if plan.transactions is not None else ""
        self.dispatch = Dispatch(self._target, plan.limits, clock, transactional_id)

    async def send(self, copies: Sequence[PartitionCopy]) -> None:
        """Send all that *copies* have queued, as far as that is possible in time."""
        dispatch = self.dispatch
        for copy in copies:
            dispatch.take(copy, 0)
        if not copies:
            return
        try:
            async with asyncio.timeout(_SEND_WITHIN_S):
                await self._prepare(copies)
        except TimeoutError:
            for copy in copies:
                dispatch.discard(copy)
            return
        async with asyncio.TaskGroup() as tasks:
            dispatch.start(tasks)
            follow = tasks.create_task(self._follow_leaders(copies), name="follow the leaders of a stretch")
            for copy in copies:
                dispatch.offer(copy)
            dispatch.pump()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SEND_WITHIN_S):
                    await dispatch.drained.wait()
            dispatch.stop()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._plan.drain_ms / 1000):
                    if dispatch.unanswered:
                        await dispatch.all_answered.wait()
            for copy in copies:
                dispatch.discard(copy)
            follow.cancel()
        dispatch.close_unanswered()

    async def _prepare(self, copies: Sequence[PartitionCopy]) -> None:
        """Learn the leaders, and get producer ids where partitions have none."""
        while True:
            try:
                await self._target.ensure_metadata({copy.remote.topic for copy in copies})
                nameless = [copy for copy in copies if copy.producer is None]
                if nameless:
                    mark = await init_producer_id(self._target)
                    for copy in nameless:
                        copy.write_as(mark)
            except _UNREACHABLE as error:
                for copy in copies:
                    copy.trouble = failure_of(error, (self._plan.source, self._plan.target))
            else:
                for copy in copies:
                    copy.trouble = None
                return
            await self._clock.sleep(_PAUSE_S)

    async def _follow_leaders(self, copies: Sequence[PartitionCopy]) -> None:
        wanted = self.dispatch.wants_metadata
        while True:
            await wanted.wait()
            wanted.clear()
            try:
                await self._target.refresh_metadata({copy.remote.topic for copy in copies})
            except ClusterUnreachableError:
                await self._clock.sleep(_PAUSE_S)


@attrs.frozen
class Batches:
    """The batches of one remote partition up to the first that is too large for it, and the failure that this is."""

    fitting: tuple[Rebuilt, ...]
    failure: PartitionFailure | None = None


def batches_of(plan: EpochPlan, one: PartitionPlan, records: Iterable[NewRecord]) -> Batches:
    """Put *records* into batches that the remote topic of *one* takes."""
    limit = min(_BATCH_BYTES, one.max_message_bytes)
    built = build(records, codec=plan.limits.codec or _NO_CODEC, limit_bytes=limit)
    for at, batch in enumerate(built):
        if len(batch.batch) > one.max_message_bytes:
            source, offset = one.source, batch.first_upstream
            error = RecordTooLargeError(source.topic, source.partition, offset, len(batch.batch), one.max_message_bytes)
            return Batches(tuple(built[:at]), PartitionFailure(str(error), error.hint, type(error).__name__, offset))
    return Batches(tuple(built))


def put_all(copy: PartitionCopy, batches: Iterable[Rebuilt]) -> list[Parcel]:
    """Queue *batches*, and give them as they wait."""
    parcels = [
        Parcel(
            built.batch,
            built.record_count,
            built.first_upstream,
            built.last_upstream + 1,
            built.max_timestamp,
            built.runs,
        )
        for built in batches
    ]
    for parcel in parcels:
        copy.put(parcel)
    return parcels
