"""Queries what copying does not report: the end of the source where nothing is read, and its retention. A paused or
stopped partition falls behind, and retention comes closer; monitoring needs correct figures just then, as for one whose
epoch does not return. So the start and end offsets of such logs are queried, in one request to each broker; and from
time to time the retention of all topics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from mm2py.connectors.context import BackgroundLoop, SourceContext
from mm2py.connectors.measures import FlowMeasures
from mm2py.connectors.source.group import SourceLife
from mm2py.core.lag import RETENTION_CONFIGS, Retention, lag_holds_s
from mm2py.core.source import progress
from mm2py.errors import BrokerAnsweredError
from mm2py.model.flow import TopicPartition
from mm2py.model.topic import is_other_topic
from mm2py.wire.requests import EARLIEST, LATEST
from mm2py.wire.topics.admin import Admin


_LOOK_EVERY_S = 5.0


class IdleSourceWatch(BackgroundLoop):
    """Watches the source of one flow, beside the copying."""

    name = "source-watch"

    def __init__(self, context: SourceContext, measures: FlowMeasures, life: SourceLife) -> None:
        self._source = context.flow.source
        self._interval_s = context.config.topics.refresh_interval_s
        self._begun_at = 0.0
        self._reach = context.reach
        self._clock = context.clock
        self._measures = measures
        config = context.config
        self._asked_after_s, measures.lag_holds_s = lag_holds_s(
            config.copying.epoch_ms, config.copying.drain_ms, look_every_s=_LOOK_EVERY_S
        )
        self._life = life
        self._admin = Admin(life.source)
        self._topics: frozenset[str] = frozenset()
        self._known: frozenset[str] = frozenset()
        life.topics.watch(self._adopt)

    def _adopt(self, remote_of: Mapping[str, str]) -> None:
        self._topics = frozenset(remote_of)

    async def run(self) -> None:
        """Look until cancelled."""
        read_at, self._begun_at = -math.inf, self._clock.monotonic()
        while True:
            now = self._clock.monotonic()
            # Without a query there is no answer: the source may be unreachable.
            if self._topics - self._known or (self._topics and now - read_at >= self._interval_s):
                await self._reach.done("read what source topics keep", [self._source], self._read_retention)
                read_at = now
            await self._clock.sleep(_LOOK_EVERY_S)
            if unread := self._unread():
                await self._reach.done("look at what is not read", [self._source], partial(self._look, unread))

    async def _read_retention(self) -> None:
        """Learn what topics keep; of those whose configs may not be read it stays unknown."""
        topics = self._topics
        described = await self._admin.topic_configs(topics, RETENTION_CONFIGS)
        found: dict[str, Retention] = {}
        for topic, configs in described.items():
            if not isinstance(configs, BrokerAnsweredError):
                retention = Retention.of({key: entry.value for key, entry in configs.items()})
                if retention is not None:
                    found[topic] = retention
        self._measures.retention, self._known = found, topics

    def _unread(self) -> list[TopicPartition]:
        """Return the partitions that are not being read, or that no epoch has reported for too long."""
        tasks, asked_s = self._life.tasks, self._measures.asked_s
        watched_s = self._clock.monotonic() - self._begun_at

        def is_untold(source: TopicPartition) -> bool:
            return not tasks.holders.is_held(source) or min(asked_s(source), watched_s) > self._asked_after_s

        resting = self._measures.at_rest(tasks.holders.held, self._asked_after_s)
        others = (it for it in tasks.ledger.states if it not in resting)
        return [it for it in others if it.topic in self._topics and is_untold(it)]

    async def _look(self, unread: Sequence[TopicPartition]) -> None:
        """Bring it up to date."""
        states, cluster = self._life.tasks.ledger.states, self._life.source
        begun = self._clock.monotonic()  # an answer may have waited for this process, which stood still
        starts = await cluster.list_offsets(unread, EARLIEST)
        ends = await cluster.list_offsets(unread, LATEST)
        for source in unread:
            start, end, state = starts[source], ends[source], states.get(source)
            if isinstance(start, BrokerAnsweredError) or isinstance(end, BrokerAnsweredError):
                continue
            # What another topic of the name holds would count as lost with the one that was copied.
            if state is not None and not is_other_topic(state.topic_id, cluster.topic_id(source.topic)):
                states[source] = progress.look(state, log_start_offset=start, high_watermark=end)
                is_held = self._life.tasks.holders.is_held(source)
                self._measures.look(states[source], at=begun, is_copied=is_held)
