"""
Topics that a flow has mirrored and that the source's listing lacks, although they are there: a listing leaves out what
the mirror may not see.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import attrs

from mm2py.connectors.reach import Reach
from mm2py.core.source.due import RemotePartition
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.topic import MissingTopic
from mm2py.telemetry.events import TopicRemoved
from mm2py.telemetry.journal import EventLog
from mm2py.wire.topics.admin import Admin


class HiddenTopics:
    """Those of one flow, as of its last refresh. *tell* reports that a cluster refuses a step for some topics."""

    def __init__(
        self,
        flow: Flow,
        source: Admin,
        reach: Reach,
        events: EventLog,
        tell: Callable[[str, list[str], Mm2Error], None],
    ) -> None:
        self._flow = flow
        self._source = source
        self._reach = reach
        self._events = events
        self._tell = tell
        self._known: dict[str, MissingTopic] = {}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._known)

    @property
    def are_settled(self) -> bool:
        """Whether none of them has come back since the listing."""
        return all(it.failure is not None for it in self._known.values())

    async def among(
        self, gone: Collection[str], places: Mapping[TopicPartition, RemotePartition], *, is_first: bool
    ) -> tuple[MissingTopic, ...]:
        """Return those of *gone* that are there; what was mirrored of them is in *places*. Each new refusal is
        reported, and that others are removed, unless it *is_first*: they may have been for long.
        """
        there = await self._source.unlisted(gone) if gone else {}
        before = self._known
        self._known = {
            topic: attrs.evolve(before.get(topic) or _mirrored(topic, places), failure=self._failure(refusal))
            for topic, refusal in there.items()
        }
        for topic in () if is_first else sorted(set(gone) - there.keys()):
            self._events.emit(TopicRemoved(self._flow, topic))
        news = {
            topic: refusal
            for topic, refusal in there.items()
            if refusal is not None and (topic not in before or before[topic].failure is None)
        }
        if news:
            self._tell("list topics", list(news), next(iter(news.values())))
        return tuple(self._known.values())

    def _failure(self, refusal: BrokerAnsweredError | None) -> PartitionFailure | None:
        if refusal is None:
            return None
        return PartitionFailure(str(refusal), self._reach.hint_for(refusal), refusal.name, cluster=self._flow.source)


def _mirrored(topic: str, places: Mapping[TopicPartition, RemotePartition]) -> MissingTopic:
    remotes = [place.remote_topic for source, place in places.items() if source.topic == topic]
    return MissingTopic(topic, next(iter(remotes), ""), 0, max(1, len(remotes)), is_hidden=True)
