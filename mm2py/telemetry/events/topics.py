"""Events of topics, their configs and ACLs, and their assignment."""

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
    """A topic that the flow's filter selects is not mirrored, because of its name or that of its remote topic. Reported
    once.
    """

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


@attrs.frozen
class TopicConfigsChanged(Event):
    """A remote topic's configs were brought in line with its source's."""

    flow: Flow
    remote_topic: str
    set: tuple[str, ...]
    deleted: tuple[str, ...]


@attrs.frozen
class TopicConfigsKept(Event):
    """A remote topic has configs that an operator set by hand; they stay. Reported when the list changes."""

    flow: Flow
    remote_topic: str
    kept: tuple[str, ...]
    hint: str = "a key deleted at the remote topic follows the source again"


@attrs.frozen
class TopicLimitsRaised(Event):
    """
    Remote topics would have rejected records that their sources accepted, so their limits were raised to the sources'.

    `topics` names some of them, `count` tells how many there are; `limits` is what is set on each.
    """

    flow: Flow
    topics: tuple[str, ...]
    count: int
    limits: tuple[str, ...]
    hint: str = "to keep the target brokers' limit, name the key in config.properties.exclude"


@attrs.frozen
class TopicAclsChanged(Event):
    """ACLs of remote topics were brought in line with the source's."""

    flow: Flow
    created: tuple[str, ...]
    deleted: tuple[str, ...]


@attrs.frozen
class AclSyncIdle(Event):
    """A cluster has no authorizer, so there are no ACLs to copy; reported once."""

    flow: Flow
    cluster: str
    hint: str = "nothing to do; sync.topic.acls.enabled = false skips the check"


@attrs.frozen
class TopicSyncFailed(Event):
    """A cluster refused to read or change topics' configs or ACLs; copying continues. Reported once."""

    level = Level.WARN

    flow: Flow
    step: str
    topics: tuple[str, ...]
    count: int
    error: str
    hint: str


@attrs.frozen
class TopicSyncRecovered(Event):
    """Configs or ACLs that a cluster refused before now work."""

    flow: Flow
    step: str
    topics: tuple[str, ...]
    count: int
