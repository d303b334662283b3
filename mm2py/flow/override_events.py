"""Events for changed overrides of a flow, topic by topic; task groups report their own."""

from __future__ import annotations

from collections.abc import Iterator

from mm2py.model.flow import Flow
from mm2py.model.overrides import NO_LIMIT, Overrides
from mm2py.telemetry.events import (
    Event,
    PartitionPaused,
    PartitionResumed,
    RateLimited,
    RateLimitLifted,
    TopicPaused,
    TopicResumed,
)


def events_of(flow: Flow, before: Overrides, after: Overrides, by: str) -> Iterator[Event]:
    """Return an event for each topic, partition and limit whose override changed."""
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
