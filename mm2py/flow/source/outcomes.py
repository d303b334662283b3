"""What came of the epochs of a flow's copy tasks: the new states of their partitions, what is measured, and what is
reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mm2py.clock import Clock
from mm2py.core.lag import tells_end
from mm2py.core.source import progress
from mm2py.core.source.progress import Occurrence, PartitionState, RetryPauses
from mm2py.flow.measures import FlowMeasures
from mm2py.flow.source.doubts import Doubts
from mm2py.flow.source.epoch_events import epoch_ended, partition_news
from mm2py.flow.source.ledger import Ledger
from mm2py.flow.source.rates import RateShares
from mm2py.model.epoch import EpochOutcome, EpochPlan, PartitionFailure, PartitionOutcome
from mm2py.model.flow import Flow
from mm2py.model.topic import is_other_topic
from mm2py.telemetry.journal import EventLog


#: Called with an epoch's outcome for a partition, and its first upstream offset.
Listener = Callable[[PartitionOutcome, int], None]


class Outcomes:
    """Accounts for the epochs of one flow, in its ledger, its rate *limits* and its *measures*."""

    def __init__(
        self,
        flow: Flow,
        ledger: Ledger,
        doubts: Doubts,
        *,
        limits: RateShares,
        measures: FlowMeasures,
        clock: Clock,
        events: EventLog,
        jitter: Callable[[], float],
    ) -> None:
        #: Set when a partition was interrupted.
        self.is_interrupted = asyncio.Event()
        #: New refusals of clusters to copy tasks, one of each kind.
        self.refusals: dict[tuple[str, str], PartitionFailure] = {}
        #: Called for each outcome of a partition, once it is accounted for.
        self.listeners: list[Listener] = []
        self._flow = flow
        self._ledger = ledger
        self._doubts = doubts
        self._limits = limits
        self._measures = measures
        self._clock = clock
        self._events = events
        self._jitter = jitter
        self._pauses = RetryPauses()

    def account(self, plan: EpochPlan, outcome: EpochOutcome, *, took_s: float) -> None:
        """Take over an epoch's outcome."""
        now, jitter = self._clock.monotonic(), self._jitter()  # one for all: what failed together comes back together
        ledger, states = self._ledger, self._ledger.states
        self._measures.account(plan, outcome, took_s)
        self._limits.account(plan, outcome, took_s)
        outcomes = {partition.source: partition for partition in outcome.partitions}
        for planned in plan.partitions:
            before, partition = states[planned.source], outcomes.get(planned.source)
            if is_other_topic(planned.topic_id, before.topic_id):
                continue  # its outcome belongs to an earlier topic with the name
            accounted = progress.account(
                before,
                partition,
                elapsed_s=took_s,
                now=now,
                jitter=jitter,
                pauses=self._pauses,
            )
            states[planned.source] = accounted.state
            if partition is not None and partition.records:
                ledger.note_produced(planned.source)
            if plan.transactions is not None and accounted.state.position > before.position:
                ledger.note_committed(accounted.state)
            if tells_end(partition, accounted.state, fetches=outcome.fetches):
                self._measures.look(accounted.state)
            if accounted.state.retry_at > now:
                ledger.pausing.add(planned.source)
            for occurrence in accounted.occurrences:
                self._tell(occurrence, before, accounted.state)
            if partition is not None:
                for listener in self.listeners:
                    listener(partition, before.position)
        lag = sum(states[planned.source].lag or 0 for planned in plan.partitions)
        self._events.emit(epoch_ended(plan, outcome, took_s, lag))

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
