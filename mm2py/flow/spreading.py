"""
Remote topics that records of spread topics need: made when the first record that needs one is met.

A partition whose next record needs a remote topic that is not there waits, without an epoch, until it is; others go on.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from mm2py.flow.group import Surroundings
from mm2py.flow.source_group import SourceLife
from mm2py.model.epoch import Ended, PartitionOutcome, WantedLane
from mm2py.model.flow import TopicPartition


#: A step that failed because a cluster was away is repeated after this; and it is looked that nobody is forgotten.
_RETRY_S = 1.0
_LOOK_EVERY_S = 5.0


class Spreading:
    """Makes remote topics of one flow's spread topics."""

    name = "spread-topics"

    def __init__(self, around: Surroundings, life: SourceLife) -> None:
        self._reach = around.reach
        self._clock = around.clock
        self._life = life
        # The source is not asked, or only for the configs of what is made.
        self._target = around.flow.target
        self._wanted: dict[TopicPartition, tuple[WantedLane, ...]] = {}
        self._has_news = asyncio.Event()
        life.tasks.listeners.append(self._take)

    def _take(self, outcome: PartitionOutcome, _begun_at: int) -> None:
        state = self._life.tasks.states[outcome.source]
        if outcome.wanted:
            self._wanted[outcome.source] = outcome.wanted
            self._has_news.set()
        elif state.is_spread and outcome.ended is Ended.INTERRUPTED:
            # A remote topic may have been deleted: then it is made anew for whoever needs it.
            self._life.topics.want_refresh()

    async def run(self) -> None:
        """Make what is wanted until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._has_news.wait()
            self._has_news.clear()
            for state in self._life.tasks.wanting():
                if state.wanted is not None:
                    self._wanted.setdefault(state.source, (state.wanted,))
            if self._wanted and not await self._reach.once(
                "make remote topics that records need", [self._target], self._make
            ):
                await self._clock.sleep(_RETRY_S)
                self._has_news.set()

    async def finish(self) -> None:
        """Leave what is wanted to the next start, whose first epoch wants it anew."""

    async def _make(self) -> bool:
        tasks, wanted = self._life.tasks, dict(self._wanted)
        opened = await self._life.topics.open_lanes(wanted)
        for source, lanes in wanted.items():
            if self._wanted.get(source) is lanes:
                del self._wanted[source]
        tasks.adopt(self._life.topics.latest, {})
        for state in tasks.wanting():
            lane = state.wanted
            if lane is None or lane not in wanted.get(state.source, ()):
                continue
            refusal = opened.refused.get((state.source.topic, lane.key))
            if refusal is None:
                tasks.grant(state.source)
            else:
                tasks.deny(state.source, refusal)
        return True
