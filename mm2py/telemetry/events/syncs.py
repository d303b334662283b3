"""Events of configs and ACLs of remote topics."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow
from mm2py.telemetry.events.base import Event, Level


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
