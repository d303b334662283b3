"""What came of the epochs of a flow's copy tasks: the new states of their partitions, what is measured, and what is
reported.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterator

import attrs

from mm2py.connectors.context import SourceContext
from mm2py.connectors.measures import FlowMeasures
from mm2py.connectors.source.doubts import Doubts
from mm2py.connectors.source.epoch_events import epoch_ended, partition_news
from mm2py.connectors.source.ledger import Ledger
from mm2py.connectors.source.rates import RateShares
from mm2py.core.lag import tells_end
from mm2py.core.source import progress
from mm2py.core.source.progress import Occurrence, PartitionState
from mm2py.model.epoch import EpochOutcome, EpochPlan, PartitionFailure, PartitionOutcome, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.topic import is_other_topic


#: Outcomes that are accounted for in one turn of the event loop.
_ACCOUNTED_A_TURN = 500

#: Called with an epoch's outcome for a partition, and its first upstream offset.
Listener = Callable[[PartitionOutcome, int], None]


@attrs.frozen
class _EndedEpoch:
    """An epoch that has come back, and when."""

    plan: EpochPlan
    outcome: EpochOutcome
    took_s: float
    at: float
    wall_ms: int
    jitter: float
    #: What it learnt of the source is no older than this: if it was due long ago, it stood still, or waited for a slot.
    told_at: float

    @property
    def telling_fetches(self) -> int:
        """Return its fetches whose answers leave out only what has nothing new; those that a quota delays are empty."""
        return self.outcome.fetches if self.outcome.is_complete and not self.outcome.throttled_ms else 0


@attrs.frozen
class _Unmeasured:
    """The outcome of a partition in an epoch with so many fetches, and its states before and after."""

    outcome: PartitionOutcome
    fetches: int
    told_at: float
    before: PartitionState
    after: PartitionState


class Outcomes:
    """Accounts for the epochs of one flow, in its ledger, its rate *limits* and its *measures*."""

    def __init__(
        self, context: SourceContext, ledger: Ledger, doubts: Doubts, *, limits: RateShares, measures: FlowMeasures
    ) -> None:
        #: Set when a partition was interrupted.
        self.is_interrupted = asyncio.Event()
        #: New refusals of clusters to copy tasks, one of each kind.
        self.refusals: dict[tuple[str, str], PartitionFailure] = {}
        #: Called for each outcome of a partition, once it is accounted for.
        self.listeners: list[Listener] = []
        self._flow = context.flow
        self._ledger = ledger
        self._doubts = doubts
        self._limits = limits
        self._measures = measures
        self._clock = context.clock
        self._events = context.events
        self._jitter = context.jitter
        self._due_s = (context.config.copying.epoch_ms + context.config.copying.drain_ms) / 1000
        #: What `measure` is still to do.
        self._ended: deque[_EndedEpoch] = deque()
        self._unmeasured: deque[_Unmeasured] = deque()

    async def account(self, plan: EpochPlan, outcome: EpochOutcome, *, took_s: float) -> None:
        """
        Take over an epoch's outcome, all of it even if cancelled.

        Records wait for the next plan. What no plan depends on follows in later turns of the event loop: see `measure`,
        and the partitions of which the outcome tells nothing. Of very many, that is most.
        """
        # One moment for all: what failed together comes back together.
        now, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        told_at = now - max(0.0, took_s - self._due_s)
        ended = _EndedEpoch(plan, outcome, took_s, now, wall_ms, self._jitter(), told_at)
        self._ended.append(ended)
        self._limits.account(plan, outcome, took_s)
        planned, left = plan.by_source, iter(outcome.partitions)
        try:
            # Others have a turn of the event loop now and then: these partitions are held until they are put back.
            for _ in range(len(outcome.partitions) // _ACCOUNTED_A_TURN):
                for partition in itertools.islice(left, _ACCOUNTED_A_TURN):
                    self._account(ended, planned[partition.source], partition)
                await self._clock.sleep(0)
                self.measure()
        finally:
            for partition in left:
                self._account(ended, planned[partition.source], partition)
            asyncio.get_running_loop().call_soon(self._rest, ended)

    def measure(self) -> None:
        """Measure what is accounted for, and pass it on to the listeners; to be called before positions are written."""
        while self._ended:
            ended = self._ended.popleft()
            self._measures.account(ended.plan, ended.outcome, ended.took_s)
        while self._unmeasured:
            it = self._unmeasured.popleft()
            if tells_end(it.outcome, it.after, fetches=it.fetches):
                self._measures.look(it.after, at=it.told_at)
            for listener in self.listeners:
                listener(it.outcome, it.before.position)

    def _rest(self, ended: _EndedEpoch) -> None:
        """Note that the ends of those that rest, most of very many, are where they were; then go on with the others."""
        self.measure()
        planned = ended.plan.by_source
        told = {partition.source for partition in ended.outcome.partitions}
        moving = dict.fromkeys([*self._moving(ended.plan), *self._measures.were_behind(planned)])
        others = [source for source in moving if source not in told]
        if ended.telling_fetches:
            self._measures.rest(ended.plan, told.union(others), at=ended.told_at)
        self._account_others(ended, iter(others))

    def _account_others(self, ended: _EndedEpoch, left: Iterator[TopicPartition]) -> None:
        """Take over what became of those that do not rest, some at a time, and report the epoch."""
        states, planned = self._ledger.states, ended.plan.by_source
        some = list(itertools.islice(left, _ACCOUNTED_A_TURN))
        for source in some:
            if source in states:
                self._measures.know(planned[source])
                self._account(ended, planned[source], None)
        if some:
            asyncio.get_running_loop().call_soon(self._account_others, ended, left)
            return
        lag = sum(states[source].lag or 0 for source in self._moving(ended.plan))
        self._events.emit(epoch_ended(ended.plan, ended.outcome, ended.took_s, lag))

    def _moving(self, plan: EpochPlan) -> list[TopicPartition]:
        """Return the partitions of *plan* that do not rest, after a look at these or at all that do not."""
        moving, planned = self._ledger.states.moving, plan.by_source
        fewer, others = (moving, planned) if len(moving) < len(planned) else (planned, moving)
        return [source for source in fewer if source in others]

    def _account(self, ended: _EndedEpoch, planned: PartitionPlan, partition: PartitionOutcome | None) -> None:
        """Take over what became of one partition; None if nothing was learnt but that the end is where it was."""
        ledger, fetches = self._ledger, ended.telling_fetches
        before = ledger.states[planned.source]
        if is_other_topic(planned.topic_id, before.topic_id):
            return  # its outcome belongs to an earlier topic with the name
        accounted = progress.account(
            before,
            partition,
            elapsed_s=ended.took_s,
            now=ended.at,
            wall_ms=ended.wall_ms,
            jitter=ended.jitter,
            is_told=fetches > 0,
        )
        after = ledger.states[planned.source] = self._with_newest_end(accounted.state, before, ended)
        if ended.plan.transactions is not None and after.position > before.position:
            ledger.note_committed(after)
        if partition is not None:
            self._unmeasured.append(_Unmeasured(partition, fetches, ended.told_at, before, after))
        elif tells_end(None, after, fetches=fetches):
            self._measures.look(after, at=ended.told_at)
        if after.retry_at > ended.at:
            ledger.pausing.add(planned.source)
        for occurrence in accounted.occurrences:
            self._tell(occurrence, before, after)

    def _with_newest_end(self, after: PartitionState, before: PartitionState, ended: _EndedEpoch) -> PartitionState:
        """Return *after*, with the end that *before* has of the source if an epoch that stood still has an older."""
        if ended.told_at == ended.at or after.log.high_watermark >= before.log.high_watermark:
            return after
        is_older = ended.told_at < ended.at - self._measures.asked_s(after.source)
        return attrs.evolve(after, log=before.log) if is_older else after

    def account_lost(self, plan: EpochPlan, cause: str, *, retry_at: float, quiet_until: float) -> None:
        """Note that an epoch brought no outcome; before *quiet_until* it may still write."""
        self._measures.lose(plan, cause)
        states = self._ledger.states
        for source in (planned.source for planned in plan.partitions):
            states[source] = progress.lose(states[source], retry_at=retry_at, cause=cause, quiet_until=quiet_until)

    def _tell(self, occurrence: Occurrence, before: PartitionState, after: PartitionState) -> None:
        event = partition_news(self._flow, occurrence, before, after, now=self._clock.monotonic())
        if event is not None:
            self._events.emit(event)
        if occurrence is Occurrence.INTERRUPTED:
            if after.failure is not None and after.failure.cluster:
                self.refusals[after.failure.cluster, after.failure.hint] = after.failure
            self.is_interrupted.set()
        elif occurrence is Occurrence.QUESTIONED:
            self._doubts.has_questions.set()
