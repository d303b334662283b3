"""A flow's membership in a group that is made up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
import pytest

from mm2py.connectors.context import HerderContext
from mm2py.connectors.task_group import FlowGroup
from mm2py.core.herder.sharing import Work, flow_tasks
from mm2py.herder import membership
from mm2py.herder.leader import GroupLeader
from mm2py.herder.membership import FlowMembership
from mm2py.herder.node_context import NodeContext
from mm2py.model.group import GroupMember, GroupMembers
from mm2py.model.herder.node import Node
from mm2py.model.herder.share import (
    Candidate,
    NodeLoad,
    Share,
    decode_candidate,
    whole_share,
)
from mm2py.telemetry.journal import EventLog
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.groups.membership import Assign, Heartbeat, MemberIdentity
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import FakeBrokers
from tests.support.flow_rig import SETTINGS, changed, flow_context


US = Node("here", 1, "this machine", "1")
JAVA = GroupMembers("Stable", "connect", "sessioned", (GroupMember("m", "/10.0.0.1"),))
NOBODY = GroupMembers()
THERE = Node("elsewhere", 7, "another machine", "1")
TASKS = 2


def leads(context: HerderContext, work: Work | None = None) -> GroupLeader:
    """Return a leader of a flow's group that knows of *work*, by default of no partition."""
    known = work or Work(*flow_tasks(context.config.source_connector))
    return GroupLeader(context, lambda: known, lambda member: member.load)


def alone(context: HerderContext, node: NodeContext) -> FlowMembership:
    """Return the membership of a *node* that knows of no load, and of no other node."""
    work = Work(*flow_tasks(context.config.source_connector))
    return FlowMembership(
        context,
        node,
        work=lambda: work,
        load=NodeLoad,
        load_of=lambda member: member.load,
        on_assignment=lambda _shared: None,
        on_rebalanced=lambda _took_s: None,
    )


@attrs.define
class Place:
    """Stands for our place in the group, which is as *group* says, or answers with an error of that code. We are its
    leader, and *others* join with us, as the bytes say.
    """

    group: GroupMembers | ErrorCode
    is_in: bool = False
    place: MemberIdentity | None = None
    member_id: str = "us"
    others: dict[str, bytes] = attrs.field(factory=dict)
    #: What the coordinator calls us from the next time on that we join.
    renamed: str = ""
    #: What the next heartbeat is answered.
    answer: Heartbeat = Heartbeat.OK
    joins: list[Candidate | None] = attrs.field(factory=list)
    generation: int = 0
    assigned: bytes = b""
    #: What the coordinator sends us instead of what we assign.
    sent: bytes | None = None
    #: What keeps this node from taking over.
    refusal: Exception | None = None
    #: Set once what comes before a takeover is done.
    taking_over: asyncio.Event | None = None
    #: Whether the flow runs with the settings of its owner.
    is_in_use: bool = True
    #: Set once the coordinator answers again.
    silent: asyncio.Event | None = None

    #: What our joins and heartbeats end with.
    failure: Exception | None = None
    #: Set once the coordinator answers our next join: it waits for other members.
    held_back: asyncio.Event | None = None
    #: Whether it still knows us meanwhile, if it answers that.
    is_still_known: bool | Exception = True
    #: Whether the group rebalances while something else is done than joining it.
    rebalances_beside: bool = False
    #: How often it was asked that.
    asked_about: int = 0

    its: Any = None
    #: Whether another process joined under our `group.instance.id`.
    is_fenced: bool = False

    @property
    def asked_at(self) -> float:
        return asyncio.get_running_loop().time()

    async def look(self) -> GroupMembers:
        if isinstance(self.group, ErrorCode):
            raise error_of(self.group, "B", "DescribeGroups", "A-mm2")
        return self.group

    async def join(self, metadata: bytes, assign: Assign) -> bytes:
        if self.failure is not None:
            raise self.failure
        self.is_in = True
        if self.held_back is not None:
            await self.held_back.wait()
        self.generation += 1
        self.joins.append(decode_candidate(metadata))
        self.member_id = self.renamed or self.member_id
        self.assigned = (await assign(self.generation, {self.member_id: metadata, **self.others}))[self.member_id]
        return self.assigned if self.sent is None else self.sent

    async def beat(self) -> Heartbeat:
        if self.silent is not None:
            await self.silent.wait()
        if self.failure is not None:
            raise self.failure
        if self.is_fenced:
            self.is_fenced = self.is_in = False
            raise error_of(ErrorCode.FENCED_INSTANCE_ID, "B", "Heartbeat", "A-mm2")
        answer, self.answer = self.answer, Heartbeat.OK
        self.is_in = self.is_in and answer is not Heartbeat.LOST
        return answer

    async def is_known(self, *, has_joined: bool) -> bool:
        self.asked_about += 1
        if isinstance(self.is_still_known, Exception):
            raise self.is_still_known
        return self.is_still_known and (has_joined or not self.rebalances_beside)

    async def remove(self, member_id: str) -> None:
        self.others.pop(member_id, None)

    async def leave(self) -> None:
        self.is_in = False


@attrs.define(eq=False)
class Group:
    """Stands for a task group of the flow: what is its share, and if that is nothing, why?"""

    share: Share = attrs.field(factory=lambda: whole_share(TASKS))
    why: str = ""
    has_failed: bool = False
    is_deposed: bool = False
    #: Whether it works on one node of the flow only.
    is_for_owner: bool = False
    suspended: list[str] = attrs.field(factory=list)
    released: asyncio.Event = attrs.field(factory=asyncio.Event)
    membership: FlowMembership | None = None
    #: What emits the flow's heartbeats.
    heartbeats: Group | None = None

    @property
    def requests(self) -> Group:
        return self

    @property
    def is_admitted(self) -> bool:
        return not self.share.is_empty

    def give(self, share: Share, why: str = "", _hint: str = "") -> None:
        self.share, self.why = share, why

    def depose(self) -> None:
        self.is_deposed = True

    async def until_released(self) -> None:
        await self.released.wait()

    def suspend(self, why: str) -> None:
        if why or self.suspended:
            self.suspended.append(why)


Run = Callable[..., Any]


def runner(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs a membership whose group at the target is as said, with the settings changed as said."""

    @asynccontextmanager
    async def running(
        group: GroupMembers | ErrorCode, *, is_ready: bool = True, **changes: object
    ) -> AsyncIterator[tuple[Place, Group, EventLog]]:
        place, working, clock = Place(group), Group(), LoopClock()
        events = EventLog(clock)
        monkeypatch.setattr(membership, "Cluster", FakeBrokers().cluster)
        monkeypatch.setattr(membership, "Membership", lambda *_: place)
        settings = changed(
            SETTINGS,
            worker=attrs.evolve(SETTINGS.worker, **changes),
            copying=attrs.evolve(SETTINGS.source_connector.copying, tasks_max=TASKS),
        )
        context = flow_context(clock, events, settings)

        async def take_over() -> None:
            if place.refusal is not None:
                raise place.refusal
            if place.taking_over is not None:
                await place.taking_over.wait()

        async def follow_owner(_values: object) -> bool:
            return place.is_in_use

        us = attrs.evolve(US, instance=settings.worker.instance)
        its = alone(context, NodeContext(lambda: us, before_takeover=take_over, follow_owner=follow_owner))
        place.its = its
        working.heartbeats = Group()
        its.begin([cast("FlowGroup", working)], cast("FlowGroup", working.heartbeats))
        its.is_ready = is_ready
        working.membership = its
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(its.run())
            yield place, working, events
            task.cancel()

    return running
