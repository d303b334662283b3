"""When a flow's groups may work, by what its group at the target looks like; the protocol is `tests.unit.wire`'s."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
import pytest

from mm2py.core.membership import PROTOCOL, PROTOCOL_TYPE
from mm2py.flow import membership
from mm2py.flow.membership import FlowMembership
from mm2py.flow.task_group import FlowGroup
from mm2py.model.group import GroupMember, GroupMembers
from mm2py.model.node import Node, encode_node
from mm2py.telemetry.events import FlowRunsElsewhere, FlowTakenOver, FlowUnguarded, StepFailed, TaskRestarted
from mm2py.telemetry.journal import EventLog
from mm2py.wire.error_codes import ErrorCode, error_of
from tests.support.clocks import LoopClock
from tests.support.flow_rig import FLOW, SETTINGS, flow_context


US = Node("here", 1, "this machine", "1")
JAVA = GroupMembers("Stable", "connect", "sessioned", (GroupMember("m", "/10.0.0.1"),))
NOBODY = GroupMembers()


@attrs.define
class Place:
    """Stands for our place in the group, which is as *group* says, or answers with an error of that code."""

    group: GroupMembers | ErrorCode
    is_in: bool = False
    place: None = None

    async def look(self) -> GroupMembers:
        if isinstance(self.group, ErrorCode):
            raise error_of(self.group, "B", "DescribeGroups", "A-mm2")
        return self.group

    async def join(self, _metadata: bytes) -> bool:
        self.is_in = True
        return True

    async def beat(self, _metadata: bytes) -> bool:
        return self.is_in

    async def leave(self) -> None:
        self.is_in = False


@attrs.define
class Group:
    """Stands for a task group of the flow: may it work, and if not, why?"""

    is_admitted: bool = True
    why: str = ""
    has_failed: bool = False

    @property
    def requests(self) -> Group:
        return self

    def admit(self) -> None:
        self.is_admitted, self.why = True, ""

    def keep_out(self, why: str, _hint: str) -> None:
        self.is_admitted, self.why = False, why


class Target:
    """Stands for the cluster."""

    def __init__(self, *_: object) -> None:
        return

    async def connect(self) -> None:
        return

    async def close(self) -> None:
        return


Run = Callable[..., Any]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs a membership whose group at the target is as said, with the settings changed as said."""

    @asynccontextmanager
    async def running(
        group: GroupMembers | ErrorCode, **changes: object
    ) -> AsyncIterator[tuple[Place, Group, EventLog]]:
        place, working, clock = Place(group), Group(), LoopClock()
        events = EventLog(clock)
        monkeypatch.setattr(membership, "Cluster", Target)
        monkeypatch.setattr(membership, "Membership", lambda *_: place)
        settings = attrs.evolve(SETTINGS, membership=attrs.evolve(SETTINGS.membership, **changes))
        around = flow_context(clock, events, settings)
        its = FlowMembership(around, lambda: US)
        its.begin([cast("FlowGroup", working)])
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(its.run())
            yield place, working, events
            task.cancel()

    return running


async def test_what_a_crash_may_have_left_behind_is_told_after_a_session(run: Run) -> None:
    """A node killed elsewhere stays in the group for a session; until then nothing is copied, nor reported."""
    async with run(JAVA) as (place, group, events):
        await asyncio.sleep(9)
        early = (group.is_admitted, group.why, len(events.of(FlowRunsElsewhere)))
        await asyncio.sleep(4)
        (said,) = events.of(FlowRunsElsewhere)
        await asyncio.sleep(3_600)
        place.group = NOBODY
        await asyncio.sleep(4)
        late = (group.is_admitted, group.why)

    assert early == (False, f"Java MirrorMaker, at 10.0.0.1 runs {FLOW}", 0)
    assert said.then == "stands by and copies nothing"
    assert late == (True, "")
    assert len(events.of(FlowRunsElsewhere)) == len(events.of(FlowTakenOver)) == 1


async def test_who_took_a_place_is_told_once_the_group_shows_it(run: Run) -> None:
    """A node is thrown out while another joins: the flow stands by at once, and its event waits for a name."""
    other = GroupMember("m", "/10.0.0.1", encode_node(Node("elsewhere", 7, "another machine", "1")))
    async with run(NOBODY) as (place, group, events):
        await asyncio.sleep(4)
        place.is_in, place.group = False, GroupMembers("CompletingRebalance", "connect", "", (GroupMember("m", ""),))
        await asyncio.sleep(4)
        settling = (group.is_admitted, len(events.of(FlowRunsElsewhere)))
        place.group = GroupMembers("Stable", "connect", PROTOCOL, (other,))
        await asyncio.sleep(60)

    assert settling == (False, 0)
    assert [(it.node, it.then) for it in events.of(FlowRunsElsewhere)] == [
        ("mm2py on elsewhere, process 7", "steps back and stands by")
    ]


async def test_a_crash_that_is_over_within_a_session_is_not_told(run: Run) -> None:
    """The flow is taken over without an event."""
    async with run(JAVA) as (place, group, events):
        await asyncio.sleep(5)
        place.group = NOBODY
        await asyncio.sleep(4)
        is_admitted = group.is_admitted

    assert is_admitted
    assert not events.of(FlowRunsElsewhere)
    assert not events.of(FlowTakenOver)


async def test_a_node_that_only_warns_works_from_the_start(run: Run) -> None:
    """With `warn` the flow does not wait for another node to leave."""
    async with run(JAVA, refuses=False) as (_place, group, events):
        at_once = group.is_admitted
        await asyncio.sleep(20)
        later = group.is_admitted

    assert at_once
    assert later
    assert events.of(FlowRunsElsewhere)[0].then.startswith("copies nevertheless")


@pytest.mark.parametrize("started_ms", [2**53 - 1, 253_402_300_800_000, -1])
async def test_whatever_a_member_says_of_itself_the_flow_stands_by_for_it(run: Run, started_ms: int) -> None:
    """A client that may join the group can write anything: an impossible year, an impossible process id."""
    said = {"host": "x\n" * 1_000, "pid": 2**52, "machine": US.machine, "rest": ["x"], "started_ms": started_ms}
    member = GroupMember("m", "/10.0.0.1", json.dumps(said).encode())
    async with run(GroupMembers("Stable", PROTOCOL_TYPE, PROTOCOL, (member,))) as (_place, group, events):
        await asyncio.sleep(60)
        told, failed, is_admitted = events.of(FlowRunsElsewhere), events.of(TaskRestarted), group.is_admitted

    assert (len(told), len(failed), is_admitted) == (1, 0, False)


async def test_without_a_coordinator_the_flow_waits_and_says_what_to_look_at(run: Run) -> None:
    """Without a coordinator it is unknown which node runs the flow, so it waits until there is one."""
    async with run(ErrorCode.COORDINATOR_NOT_AVAILABLE) as (place, group, events):
        await asyncio.sleep(60)
        waits = not group.is_admitted
        place.group = NOBODY
        await asyncio.sleep(4)
        is_admitted = group.is_admitted

    assert waits
    assert is_admitted
    assert ["__consumer_offsets" in event.hint for event in events.of(StepFailed)] == [True]


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_SESSION_TIMEOUT])
async def test_where_no_place_can_be_had_the_flow_runs_unguarded(run: Run, code: ErrorCode) -> None:
    """It is said once, with what to do; a node that is known to run the flow is not run beside for that."""
    async with run(code) as (place, group, events):
        await asyncio.sleep(60)
        unguarded = group.is_admitted
        place.group = JAVA
        await asyncio.sleep(4)
        place.group = code
        await asyncio.sleep(60)
        is_admitted = group.is_admitted

    assert unguarded
    assert not is_admitted
    assert events.of(FlowUnguarded)[0].hint


async def test_a_flow_that_is_down_for_good_gives_its_place_up(run: Run) -> None:
    """What keeps it from running here may not do so at another node."""
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        before = place.is_in
        group.has_failed = True
        await asyncio.sleep(4)
        after = place.is_in

    assert (before, after) == (True, False)
