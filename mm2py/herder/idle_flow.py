"""
A flow that no node runs, so that a command may write its positions.

Who runs it is known by the flow's group at the target, as nodes know it of each other. While the command writes, it is
the group's member itself: a node that starts meanwhile stands by, and reads the positions after they are written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import ClassVar, Final

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.connectors.supervise import in_passing
from mm2py.core.herder.membership import PROTOCOL, PROTOCOL_TYPE, Occupied, judge_members
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.herder.this_node import is_alive, this_node
from mm2py.model.herder.node import encode_node
from mm2py.model.herder.share import SharedFlow, encode_shared_flow
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.membership import Membership


#: The command's session in the group: it sends no heartbeats, so its work must be done before.
_SESSION_S: Final = 45.0
_WORK_S: Final = 40.0


@attrs.define(eq=False)
class FlowRunsError(Mm2Error):
    """A node runs the flow, so its positions must not be written."""

    hint: ClassVar[str] = (
        "stop that node first; or, while it runs, stop the connector and use REST's PATCH /connectors/…/offsets"
    )

    flow: str
    by: str
    group: str
    rest: str = ""

    def __str__(self) -> str:
        rest = f", REST at {self.rest}" if self.rest else ""
        member = f" (group {self.group})" if self.group else ""
        return f"flow {self.flow} is run by {self.by}{rest}{member}"


@attrs.define(eq=False)
class TookTooLongError(Mm2Error):
    """Writing positions took longer than the command may keep nodes from starting the flow."""

    hint: ClassVar[str] = "some may have been written: look with mm2py offsets describe, and try again"

    flow: str

    def __str__(self) -> str:
        return f"the positions of flow {self.flow} could not be written within {_WORK_S:.0f} s"


async def find_runner(settings: FlowSettings, clock: Clock, *, of_java: bool = False) -> FlowRunsError | None:
    """Return who runs the flow; None if no node does, or, *of_java*, none but those of mm2py."""
    async with Cluster(settings.target, clock) as target:
        found = judge_members(await _membership(settings, target).look(), this_node(), is_alive, shares=of_java)
    return _taken(settings, found) if isinstance(found, Occupied) else None


@asynccontextmanager
async def kept_idle(settings: FlowSettings, clock: Clock) -> AsyncIterator[None]:
    """Keep nodes from running the flow until the end of the block. Raise `FlowRunsError` if one does."""
    us = this_node()
    async with Cluster(settings.target, clock) as target:
        place = _membership(settings, target)
        found = judge_members(await place.look(), us, is_alive)
        if isinstance(found, Occupied):
            raise _taken(settings, found)
        for member_id in found.dead:
            await place.remove(member_id)
        if not await _join(place, encode_node(us)):
            raise FlowRunsError(str(settings.flow), "a node that started just now", settings.group_id)
        try:
            async with asyncio.timeout(_WORK_S) as limit:
                yield
        except TimeoutError:
            if limit.expired():
                raise TookTooLongError(str(settings.flow)) from None
            raise
        finally:
            # Without it, nodes wait for the session to expire.
            await in_passing(place.leave())


def _membership(settings: FlowSettings, target: Cluster) -> Membership:
    return Membership(target, settings.group_id, (PROTOCOL_TYPE, PROTOCOL), round(_SESSION_S * 1000))


async def _join(place: Membership, metadata: bytes) -> bool:
    """Join as the leader, who assigns nothing to anyone; False if a node came first."""
    is_leader = False

    async def assign(generation: int, joined: Mapping[str, bytes]) -> Mapping[str, bytes]:
        nonlocal is_leader
        is_leader = True
        return dict.fromkeys(joined, encode_shared_flow(SharedFlow(generation, {}, {})))

    try:
        has_joined = await place.join(metadata, assign) is not None
    except BrokerAnsweredError as error:
        if error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return False
        raise
    if has_joined and not is_leader:
        await place.leave()
    return has_joined and is_leader


def _taken(settings: FlowSettings, found: Occupied) -> FlowRunsError:
    return FlowRunsError(str(settings.flow), found.by, settings.group_id, found.rest)
