"""Partitions whose history is in doubt: raised by the copying, cleared after a check of both clusters. Until then they
are not planned. `flow.source.broken_history` checks them and decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import attrs

from mm2py.connectors.context import SourceContext
from mm2py.connectors.source.epoch_events import partition_news
from mm2py.connectors.source.holders import Holders
from mm2py.connectors.source.ledger import Ledger
from mm2py.core.source import progress
from mm2py.core.source.progress import Occurrence, PartitionState
from mm2py.model.epoch import RECREATED, Ended, PartitionFailure
from mm2py.model.flow import TopicPartition
from mm2py.model.state import PartitionStage
from mm2py.model.topic import is_other_topic


#: Called with a partition whose history broke, and its new position.
BreakListener = Callable[[PartitionState], None]
#: After this many interruptions in a row the topics' existence is checked.
_SUSPECT_FAILURES = 3
#: How long a remote topic that is to be created again waits for epochs to end; on a Spark cluster they may take longer.
_MISSING_S = 5.0


class Doubts:
    """The doubts of one flow. Partitions whose pause is over are planned again once they are among `Ledger.pausing`."""

    def __init__(
        self, context: SourceContext, ledger: Ledger, holders: Holders, *, poke: Callable[[TopicPartition], None]
    ) -> None:
        """*poke* has the copy task that holds a partition end its epoch."""
        #: Set when a partition is in question: see `questions`.
        self.has_questions = asyncio.Event()
        #: Called when earlier records are unrelated to what is copied now.
        self.break_listeners: list[BreakListener] = []
        self._flow = context.flow
        self._ledger = ledger
        self._holders = holders
        self._poke = poke
        self._clock = context.clock
        self._events = context.events
        self._jitter = context.jitter

    def questions(self) -> tuple[PartitionState, ...]:
        """Return partitions whose history is in doubt and that no task is copying."""
        now = self._clock.monotonic()
        found = [state for state in self._ledger.states.of_notable() if state.is_questioned and state.look_at <= now]
        free = (it for it in found if self._ledger.is_wanted(it.source) and not self._holders.is_held(it.source))
        return tuple(sorted(free, key=lambda state: state.source))

    def suspects(self) -> tuple[PartitionState, ...]:
        """Return those partitions that are interrupted again and again."""
        return tuple(
            state
            for state in self._ledger.notable()
            if (state.stage is PartitionStage.BACKING_OFF or state.ended is Ended.INTERRUPTED)
            and state.failures >= _SUSPECT_FAILURES
            and not state.is_questioned
        )

    def compare(self, state: PartitionState, topic_id: str | None, remote_topic_id: str | None) -> None:
        """Question a partition whose topic, or remote one, is another of its name by now."""
        if is_other_topic(state.topic_id, topic_id):
            self.question(state, Ended.RECREATED, RECREATED)
        elif is_other_topic(state.remote_topic_id, remote_topic_id):
            message = f"{state.remote_topic} at the target is another topic of that name"
            self.question(state, Ended.TARGET_REWOUND, PartitionFailure(message))

    async def miss(self, remote_topics: Collection[str]) -> None:
        """
        Question what was copied to *remote_topics*, which are gone, and wait until nothing of it is copied.

        They are created again now. A record that came to the source right after that would be the first in the new
        topic, before all that are copied again: its leader is known from the former one, and takes any sequence.
        """
        lost = [state for state in self._ledger.mirrored() if state.remote_topic in remote_topics]
        for state in lost:
            failure = PartitionFailure(f"{state.remote_topic} is missing at the target")
            self.question(state, Ended.TARGET_REWOUND, failure)
        until = self._clock.monotonic() + _MISSING_S
        while any(self._holders.is_held(state.source) for state in lost) and self._clock.monotonic() < until:
            await self._clock.sleep(_MISSING_S / 100)

    def question(self, state: PartitionState, ended: Ended, failure: PartitionFailure) -> None:
        """Request a check of both clusters before the partition is planned again."""
        if not state.is_questioned:
            self._ledger.states[state.source] = progress.question(state, ended, failure, now=self._clock.monotonic())
            self.has_questions.set()
            self._poke(state.source)

    def look_later(self, source: TopicPartition, pause_s: float) -> None:
        """Look again at a partition in question, after a pause."""
        states = self._ledger.states
        if source in states:  # another node may copy it by now
            states[source] = attrs.evolve(states[source], look_at=self._clock.monotonic() + pause_s)

    def clear(self, source: TopicPartition) -> None:
        """Go on with a partition: both clusters are what its position is about."""
        states, now = self._ledger.states, self._clock.monotonic()
        if source not in states:
            return
        states[source] = progress.clear_doubt(states[source], now=now, jitter=self._jitter())
        self._ledger.pausing.add(source)

    def stop(self, source: TopicPartition, failure: PartitionFailure) -> None:
        """Copy nothing of a partition while both clusters are as they are."""
        before, now = self._ledger.states.get(source), self._clock.monotonic()
        if before is None:
            return
        after = progress.stop(before, failure, now=now, jitter=self._jitter())
        self._ledger.states[source] = after
        if before.stage is not PartitionStage.STOPPED:
            event = partition_news(self._flow, Occurrence.STOPPED, before, after, now=now)
            if event is not None:
                self._events.emit(event)

    def reset(self, state: PartitionState, *, breaks_history: bool) -> None:
        """Go on from another position, which is stored already unless it is a guess."""
        if state.source not in self._ledger.states:
            return
        self._ledger.states[state.source] = state
        self._ledger.has_unfenced.set()
        self._ledger.pausing.add(state.source)
        for listener in self.break_listeners if breaks_history else ():
            listener(state)
