"""What a flow's nodes and a worker's have in common as members of their group at the target."""

from __future__ import annotations

from typing import Final

import attrs

from mm2py.core.herder.membership import Occupied, judge_members
from mm2py.errors import BrokerAnsweredError
from mm2py.herder.this_node import is_alive
from mm2py.model.herder.node import Node
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.membership import Membership
from mm2py.wire.security.access import NotAuthorizedError


#: Least number of heartbeats in a session, regardless of the settings.
_BEATS: Final = 3
#: Errors that a retry does not fix: work continues without membership.
_HOPELESS: Final = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_SESSION_TIMEOUT)


#: What an operator may do while others have the group.
STOP_ONE: Final = "stop one of the two; once it has ended, the other continues by itself"


def beat_interval_s(session_ms: int, heartbeat_ms: int) -> float:
    """Return the interval of heartbeats."""
    return min(heartbeat_ms, session_ms / _BEATS) / 1000


def is_hopeless(error: BrokerAnsweredError) -> bool:
    """Whether *error* keeps us out of a group until an operator changes something."""
    return isinstance(error, NotAuthorizedError) or error.code in _HOPELESS


def with_grant(error: BrokerAnsweredError, group: str) -> BrokerAnsweredError:
    """Return *error* with the permission that a member of *group* lacks, if it lacks one: READ implies all others."""
    return attrs.evolve(error, grant=f"READ on group {group}") if isinstance(error, NotAuthorizedError) else error


async def who_else(place: Membership, us: Node, *, shares: bool, is_fenced: bool = False) -> Occupied | None:
    """Return who has the group, if we cannot join; have members leave whose processes have ended."""
    found = judge_members(await place.look(), us, is_alive, shares=shares, is_fenced=is_fenced)
    for member_id in found.dead:
        await place.remove(member_id)
    return found if isinstance(found, Occupied) else None
