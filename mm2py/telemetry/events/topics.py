"""Topics: their configs and ACLs, and who copies them."""

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
    """A topic was deleted at the source, or is no longer selected. Its remote topic stays as it is."""

    flow: Flow
    topic: str


@attrs.frozen
class TopicSkipped(Event):
    """
    A topic that the flow's filter selects is not mirrored, because of its name or that of its remote topic. Logged once
    for each topic.

    Either its name begins with the source's own alias (`A.orders` on A), so it may be a copy that went round; or its
    records would get into a wrong remote topic, because another one [holds those copied so
    far](transforms.md#a-remote-topic-that-gets-another-name) or another topic goes there too. The flow's issues name it
    as well.

    What to do: rename a topic that is the source's own, list copies in `topics.exclude`, and do what `hint` says about
    a remote topic. The topic is mirrored once that is settled.
    """

    level = Level.WARN

    flow: Flow
    topic: str
    reason: str
    hint: str


@attrs.frozen
class NoTopicsMatched(Event):
    """
    A flow mirrors no topic except heartbeats: the source has none yet, or the settings exclude all of them. Logged
    once, and again after there was one.

    The settings are `topics`, `topics.exclude` and the policy. It stays an issue of the flow. A name in `topics`
    without a topic is an issue as well.

    What to do: see `hint`, which has similar names.
    """

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
    """
    An internal topic was deleted or replaced while the flow used it. It was created again with everything that the flow
    knows of its content.

    `cause` says what happened: it was deleted, another topic now has its name, or (overrides) its only broker lost its
    disk.

    What to do: find out who deletes topics there. With a `hint`, another program created the topic with a cleanup
    policy that lets its records expire: set it to `compact`.
    """

    level = Level.WARN

    flow: Flow
    cluster: str
    topic: str
    cause: str
    records: int
    hint: str


@attrs.frozen
class InternalTopicExpires(Event):
    """
    The cleanup policy of an internal topic deletes old records: what the topic holds will be lost some day, and missed
    at the next start. Kafka Connect refuses to start with such a topic.

    The topic existed before. With `policy` it loses positions of idle partitions, checkpoints, offset syncs, overrides
    or a worker's connectors, even if it also compacts. Reported for every topic that MirrorMaker 2 and Connect create
    compacted.

    What to do: set its `cleanup.policy` to `compact`.
    """

    level = Level.WARN

    cluster: str
    topic: str
    policy: str
    hint: str = "set its cleanup.policy to compact"


@attrs.frozen
class AssignmentChanged(Event):
    """
    Topic-partitions were reassigned to copy tasks.

    `moves` of them changed tasks.
    """

    flow: Flow
    copy_tasks: int
    partitions: int
    moves: int
    reason: str


@attrs.frozen
class TopicConfigsChanged(Event):
    """
    A remote topic's configs were brought in line with its source's.

    `set` and `deleted` name them.
    """

    flow: Flow
    remote_topic: str
    set: tuple[str, ...]
    deleted: tuple[str, ...]


@attrs.frozen
class TopicConfigsKept(Event):
    """
    A remote topic has configs that were set by hand. They stay. Logged when the list changes.

    What to do: nothing, if they are meant. A key that you delete on the remote topic follows the source again. See
    [remote topics](remote-topics.md#configs).
    """

    flow: Flow
    remote_topic: str
    kept: tuple[str, ...]
    hint: str = "a key deleted at the remote topic follows the source again"


@attrs.frozen
class TopicLimitsRaised(Event):
    """
    Remote topics would have rejected records that their sources accepted, so their limits were raised to the sources'.

    `topics` names some of them, `count` tells how many there are, and `limits` is what is set on each. See [remote
    topics](remote-topics.md#configs).

    What to do: nothing. To keep the limit of the target's brokers, name the key in `config.properties.exclude`.
    """

    flow: Flow
    topics: tuple[str, ...]
    count: int
    limits: tuple[str, ...]
    hint: str = "to keep the target brokers' limit, name the key in config.properties.exclude"


@attrs.frozen
class TopicAclsChanged(Event):
    """ACLs of remote topics were created or deleted to follow the source's."""

    flow: Flow
    created: tuple[str, ...]
    deleted: tuple[str, ...]


@attrs.frozen
class AclSyncIdle(Event):
    """
    A cluster has no authorizer, so there are no ACLs to copy. Logged once.

    What to do: nothing; `sync.topic.acls.enabled = false` skips the check.
    """

    flow: Flow
    cluster: str
    hint: str = "nothing to do; sync.topic.acls.enabled = false skips the check"


@attrs.frozen
class TopicSyncFailed(Event):
    """
    A cluster refused to read or change configs or ACLs of topics. Copying continues. Logged once for each reason.

    `count` says how many topics; ten of them are named.

    What to do: grant the permission that `hint` names.
    """

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
