"""Consumer groups as the control plane sees them: their kind, whether anybody is in them, what they committed."""

from __future__ import annotations

import enum

import attrs


class GroupType(enum.Enum):
    """Which protocol a group speaks, in Kafka's words (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, name: str) -> GroupType:
        """Read Kafka's word; brokers before 3.7 give none, and have classic groups only."""
        known = {kind.value: kind for kind in cls}
        return known.get(name.lower(), cls.UNKNOWN) if name else cls.CLASSIC


#: States of a group that nobody is in. A group that does not exist is described as dead.
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

    `exists` is False where the coordinator knows no classic and no consumer group of that name.
    """

    group: str
    type: GroupType
    protocol_type: str
    state: str
    members: int = 0
    exists: bool = True

    @property
    def is_idle(self) -> bool:
        """Whether nobody is in the group. Consumers that only assign and commit are never in theirs."""
        return self.members == 0 and self.state.lower() in _IDLE_STATES


@attrs.frozen
class GroupMember:
    """A member of a classic group. `metadata` is its own bytes; a coordinator shows them only of a stable group."""

    member_id: str
    client_host: str
    metadata: bytes = b""


@attrs.frozen
class GroupMembers:
    """Who is in a classic group. `protocol` is what the members have agreed on, empty while they have not."""

    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[GroupMember, ...] = ()


@attrs.frozen
class CommittedOffset:
    """What a group committed for a partition."""

    offset: int
    metadata: str = ""
