"""Consumer groups as the control plane sees them: their kind, members and committed offsets."""

from __future__ import annotations

import enum

import attrs


class GroupType(enum.Enum):
    """A group's type, in Kafka's terms (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, name: str) -> GroupType:
        """Parse Kafka's group type; brokers before 3.7 return none, and have classic groups only."""
        known = {kind.value: kind for kind in cls}
        return known.get(name.lower(), cls.UNKNOWN) if name else cls.CLASSIC


#: States of a group without members. A group that does not exist is described as dead.
_IDLE_STATES = frozenset({"empty", "dead"})


@attrs.frozen
class GroupListing:
    """A group as its coordinator lists it. `protocol_type` is empty for a group that only commits offsets."""

    group: str
    type: GroupType
    protocol_type: str
    state: str = ""


@attrs.frozen
class GroupDescription:
    """
    A group as its coordinator describes it.

    `exists` is False if the coordinator knows neither a classic nor a consumer group with that name.
    """

    group: str
    type: GroupType
    protocol_type: str
    state: str
    members: int = 0
    exists: bool = True

    @property
    def is_idle(self) -> bool:
        """Whether the group has no members. Consumers that only assign and commit are never members."""
        return self.members == 0 and self.state.lower() in _IDLE_STATES


@attrs.frozen
class GroupMember:
    """A member of a classic group. `metadata` is its own data, visible only in a stable group; `instance` is its
    `group.instance.id`, empty if it has none.
    """

    member_id: str
    client_host: str
    metadata: bytes = b""
    instance: str = ""


@attrs.frozen
class GroupMembers:
    """The members of a classic group. `protocol` is the agreed protocol, empty until there is one."""

    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[GroupMember, ...] = ()


@attrs.frozen
class CommittedOffset:
    """A group's committed offset for a partition. `topic_id` says of which topic of the name it is, None if unknown."""

    offset: int
    metadata: str = ""
    topic_id: str | None = attrs.field(default=None, eq=False)


class OffsetAtTarget(enum.Enum):
    """What a group has committed at the target for a partition, beside its translated offset."""

    COMMITTED = "it is the translated offset"
    UNCOMMITTED = "it is before the translated offset, or there is none"
    MOVED = "it is beyond the translated offset, or the group's own: it is not changed"
    IN_USE = "the group is in use there"
    UNKNOWN = "the target did not say"
