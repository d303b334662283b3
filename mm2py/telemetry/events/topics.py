"""Events of topics and their assignment."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class TopicCreated(Event):
    """A remote topic was created."""

    flow: Flow
    topic: str
    remote_topic: str
    partitions: int
    reason: str


@attrs.frozen
class PartitionsGrown(Event):
    """A remote topic got as many partitions as its source."""

    flow: Flow
    remote_topic: str
    before: int
    after: int
    reason: str


@attrs.frozen
class TopicRemoved(Event):
    """A topic is no longer mirrored: deleted at the source, or no longer selected. Its remote topic stays as it is."""

    flow: Flow
    topic: str


@attrs.frozen
class TopicSkipped(Event):
    """A topic that the flow's filter selects is not mirrored, because its name is that of a copy. Reported once."""

    level = Level.WARN

    flow: Flow
    topic: str
    reason: str
    hint: str


@attrs.frozen
class NoTopicsMatched(Event):
    """A flow mirrors no topic except heartbeats. Reported once, and again after there was one."""

    level = Level.WARN

    flow: Flow
    topics_at_source: int
    hint: str


@attrs.frozen
class TopicsRefreshed(Event):
    """The topics of both clusters were refreshed."""

    level = Level.DEBUG

    flow: Flow
    topics: int
    partitions: int
    actions: int
    took_ms: float


@attrs.frozen
class InternalTopicRecreated(Event):
    """An internal topic was deleted or replaced while in use. It was recreated with everything the flow knows."""

    level = Level.WARN

    flow: Flow
    cluster: str
    topic: str
    cause: str
    records: int
    hint: str


@attrs.frozen
class InternalTopicExpires(Event):
    """What an internal topic holds is deleted some day, by its cleanup policy; Connect refuses to start with it."""

    level = Level.WARN

    cluster: str
    topic: str
    policy: str
    hint: str = "set its cleanup.policy to compact"


@attrs.frozen
class AssignmentChanged(Event):
    """Topic-partitions were reassigned to copy tasks."""

    flow: Flow
    copy_tasks: int
    partitions: int
    moves: int
    reason: str
