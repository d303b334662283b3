"""What a look at the topics of both clusters reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

import attrs
import pytest

from mm2py.flow.topics.remote_topics import Topics
from mm2py.model.topic import TopicDescription, TopicsView
from mm2py.telemetry.events import TopicSkipped
from mm2py.telemetry.journal import EventLog
from mm2py.wire.topics.admin import Admin
from tests.support.clocks import LoopClock
from tests.support.flow_rig import SyncedMemoryDouble, flow_context


@attrs.define
class _Listed:
    """A cluster that has topics of one partition each, and takes all changes."""

    cluster_id: str
    topics: set[str]
    brokers: int = 1

    async def list_topics(self) -> TopicsView:
        return TopicsView({topic: TopicDescription(None, {0: 0}, 1) for topic in self.topics})

    async def topic_configs(self, topics: Collection[str], keys: Collection[str] = ()) -> dict[str, Mapping[str, Any]]:
        del keys
        return {topic: {} for topic in topics}

    async def grow_partitions(self, totals: Mapping[str, int]) -> dict[str, None]:
        return dict.fromkeys(totals)


def _topics(source: _Listed, target: _Listed, events: EventLog) -> Topics:
    ends = (cast("Admin", source), cast("Admin", target))
    topics = Topics(flow_context(LoopClock(), events), *ends, cast("Any", SyncedMemoryDouble()))
    topics.may_act = False
    return topics


async def test_a_topic_that_is_named_like_a_copy_is_reported_once(events: EventLog) -> None:
    """It may be the source's own, and Java before 4.4 mirrors it; only mirrors name a topic heartbeats."""
    source = _Listed("one", {"orders", "A.orders", "A.heartbeats"})
    topics = _topics(source, _Listed("other", set()), events)
    await topics.refresh_once()
    await topics.refresh_once()
    source.topics.add("C.A.bills")
    await topics.refresh_once()

    assert [event.topic for event in events.of(TopicSkipped)] == ["A.orders", "C.A.bills"]
    assert "A another alias" in events.of(TopicSkipped)[0].hint


@pytest.mark.parametrize(("other", "expected"), [("one", 0), ("two", 1)])
async def test_copies_beside_their_topics_are_not_reported(events: EventLog, other: str, expected: int) -> None:
    """If both aliases name one cluster, each of its copies has such a name."""
    await _topics(_Listed("one", {"orders", "A.orders"}), _Listed(other, set()), events).refresh_once()

    assert len(events.of(TopicSkipped)) == expected
