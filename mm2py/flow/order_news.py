"""Tell what changed between a flow's orders and those before, topic by topic; task groups tell for themselves."""

from __future__ import annotations

from collections.abc import Iterator

from mm2py.model.flow import Flow
from mm2py.model.orders import NO_LIMIT, Orders
from mm2py.telemetry.events import (
    Event,
    PartitionPaused,
    PartitionResumed,
    RateLimited,
    RateLimitLifted,
    TopicPaused,
    TopicResumed,
)


def news_of(flow: Flow, before: Orders, after: Orders, by: str) -> Iterator[Event]:
    """Give an event for each topic, partition and limit about which something else is ordered than before."""
    for topic in sorted(after.topics - before.topics):
        yield TopicPaused(flow, topic, by)
    for partition in sorted(after.partitions - before.partitions):
        yield PartitionPaused(flow, partition, by)
    for topic in sorted(before.topics - after.topics):
        yield TopicResumed(flow, topic, by)
    for partition in sorted(before.partitions - after.partitions):
        if not after.is_paused(partition):
            yield PartitionResumed(flow, partition, by)
    was, now = {"": before.limit, **before.topic_limits}, {"": after.limit, **after.topic_limits}
    for topic in sorted({*was, *now}):
        limit = now.get(topic, NO_LIMIT)
        if limit == was.get(topic, NO_LIMIT):
            continue
        if limit.is_none:
            yield RateLimitLifted(flow, topic, by)
        else:
            yield RateLimited(flow, topic, limit.bytes_per_s, limit.records_per_s, by)
