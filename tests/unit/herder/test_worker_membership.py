"""When a worker's flows may run, by what its group at the target looks like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast

import attrs
import pytest

from mm2py.config.worker import WorkerConfig
from mm2py.errors import ClusterUnreachableError, Mm2Error
from mm2py.herder import worker_membership
from mm2py.herder.runner import FlowRunner
from mm2py.herder.worker_membership import WorkerMembership
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.model.flow import Flow
from mm2py.model.group import GroupMember, GroupMembers
from mm2py.model.herder.node import Node
from mm2py.model.herder.share import Candidate, encode_candidate
from mm2py.model.state import FlowState
from mm2py.telemetry.events import WorkerRunsElsewhere, WorkerTakenOver, WorkerUnguarded
from mm2py.telemetry.journal import EventLog
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.groups.membership import Assign, Heartbeat, MemberIdentity
from tests.support.clocks import LoopClock


NOBODY = GroupMembers()
JAVA = GroupMembers("Stable", "connect", "sessioned", (GroupMember("m", "/10.0.0.1"),))
THERE = encode_candidate(Candidate(Node("elsewhere", 7, "another machine", "1")))
OURS = GroupMembers("Stable", "connect", "mm2py-1", (GroupMember("m", "/10.0.0.2", THERE),))
SETTINGS = WorkerConfig(group_id="connect", session_ms=6_000, heartbeat_ms=2_000)
JAVA_RUNS = "Java MirrorMaker, at 10.0.0.1 runs A->B, as a worker of group connect"
ROUND_S = 5.0


@attrs.frozen
class Target:
    """Stands for the cluster: only its group is asked."""

    endpoint: ClusterEndpoint
    clock: LoopClock

    async def connect(self) -> None:
        return

    async def close(self) -> None:
        return


@attrs.define
class Place:
    """Stands for our place in the group; it answers with *error* if there is one."""

    group: GroupMembers
    error: Mm2Error | None = None
    is_in: bool = False
    #: What the next heartbeat is answered.
    answer: Heartbeat = Heartbeat.OK
    asked: int = 0
    removed: list[str] = attrs.field(factory=list)
    #: The security protocols of the clusters where it was or is.
    protocols: list[str] = attrs.field(factory=list)
    kept: list[MemberIdentity] = attrs.field(factory=list)

    def at(self, cluster: Target, *_: object) -> Place:
        self.protocols.append(cluster.endpoint.security.protocol)
        return self

    @property
    def place(self) -> MemberIdentity | None:
        return MemberIdentity("connect", "us", 1) if self.is_in else None

    def keep(self, known: MemberIdentity) -> None:
        self.kept.append(known)

    def _ask(self) -> None:
        self.asked += 1
        if isinstance(self.error, ClusterUnreachableError):
            raise attrs.evolve(self.error, cause=f"refused at attempt {self.asked}")
        if self.error is not None:
            raise self.error

    async def look(self) -> GroupMembers:
        self._ask()
        return self.group

    async def join(self, metadata: bytes, assign: Assign) -> bytes:
        self._ask()
        if self.group is JAVA:
            raise error_of(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "B", "JoinGroup", "connect")
        self.is_in = True
        return (await assign(1, {"us": metadata, "m": THERE}))["us"]

    async def beat(self) -> Heartbeat:
        self._ask()
        answer, self.answer = self.answer, Heartbeat.OK
        self.is_in = answer is not Heartbeat.LOST
        return answer

    async def remove(self, member_id: str) -> None:
        self.removed.append(member_id)

    async def leave(self) -> None:
        self.is_in = False


@attrs.define(eq=False)
class Held:
    """Stands for the runner of a flow that is to start: why it does not."""

    flow: Flow = attrs.field(factory=lambda: Flow("A", "B"))
    shown: tuple[FlowState | None, str] = (None, "")

    def hold(self, error: Mm2Error | None, state: FlowState | None = None) -> None:
        self.shown = (state, str(error)) if error is not None else (None, "")


@attrs.define
class Running:
    """A membership that runs, and what it reported."""

    its: WorkerMembership
    events: EventLog
    tasks: asyncio.TaskGroup

    def flow(self) -> tuple[Held, asyncio.Task[None]]:
        """Have a flow start."""
        held = Held()
        return held, self.tasks.create_task(self.its.admit(cast("FlowRunner", held)))


Run = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs a worker's membership."""

    @asynccontextmanager
    async def running(place: Place, settings: WorkerConfig = SETTINGS) -> AsyncIterator[Running]:
        monkeypatch.setattr(worker_membership, "Cluster", Target)
        monkeypatch.setattr(worker_membership, "Membership", place.at)
        clock = LoopClock()
        events = EventLog(clock)
        its = WorkerMembership(ClusterEndpoint("B", ("b:1",)), settings, clock=clock, events=events)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(its.run())
            yield Running(its, events, tasks)
            task.cancel()
        assert not place.is_in

    return running


async def test_flows_stand_by_for_java_s_workers_and_start_when_these_have_left(run: Run) -> None:
    """They show who runs them; it is reported once, and once that it is over."""
    place = Place(JAVA)
    async with run(place) as running:
        held, starting = running.flow()
        await asyncio.sleep(3_600)
        shown = held.shown
        place.group = NOBODY
        await asyncio.wait_for(starting, ROUND_S)
        [said], [over] = (running.events.of(kind) for kind in (WorkerRunsElsewhere, WorkerTakenOver))

    assert shown == (FlowState.STANDBY, JAVA_RUNS)
    assert held.shown == (None, "")
    assert (said.group, said.node, said.then) == (
        "connect",
        "Java MirrorMaker, at 10.0.0.1",
        "stands by and runs no connector",
    )
    assert over.waited_s == pytest.approx(3_600, abs=ROUND_S)


async def test_nodes_are_members_together(run: Run) -> None:
    """A node that comes, or makes the others join again, stops no flow; a new one starts at once."""
    place = Place(OURS)
    async with run(place) as running:
        _, starting = running.flow()
        await asyncio.wait_for(starting, ROUND_S)
        place.answer = Heartbeat.REBALANCE
        closed = running.tasks.create_task(running.its.until_closed())
        await asyncio.sleep(ROUND_S)
        _, later = running.flow()
        await asyncio.wait_for(later, 0.1)
        has_closed = closed.done()
        closed.cancel()

    assert not has_closed
    assert not running.events.of(WorkerRunsElsewhere)


async def test_a_node_that_lost_its_place_to_java_s_workers_steps_back(run: Run) -> None:
    """It was frozen for longer than its session; if none of them came, it goes on."""
    place = Place(NOBODY)
    async with run(place) as running:
        closed = running.tasks.create_task(running.its.until_closed())
        await asyncio.sleep(ROUND_S)
        place.answer = Heartbeat.LOST
        await asyncio.sleep(ROUND_S)
        alone = (closed.done(), place.is_in)
        place.answer, place.group = Heartbeat.LOST, JAVA
        await asyncio.wait_for(closed, ROUND_S)
        held, starting = running.flow()
        await asyncio.sleep(ROUND_S)
        shown = held.shown
        place.group = NOBODY
        await asyncio.wait_for(starting, ROUND_S)
        [said] = running.events.of(WorkerRunsElsewhere)

    assert alone == (False, True)
    assert shown == (FlowState.STANDBY, JAVA_RUNS)
    assert said.then == "steps back and stands by"


async def test_a_place_is_kept_by_another_login(run: Run) -> None:
    """The worker's file was read again: the group does not notice that the same member has another connection."""
    place = Place(NOBODY)
    async with run(place) as running:
        await asyncio.sleep(ROUND_S)
        running.its.endpoint = attrs.evolve(running.its.endpoint, security=Security("SSL"))
        await asyncio.sleep(ROUND_S)
        is_in = place.is_in

    assert place.protocols == ["PLAINTEXT", "SSL"]
    assert place.kept == [MemberIdentity("connect", "us", 1)]
    assert is_in


_AWAY = ClusterUnreachableError("B", "b:1", "refused")
_NO_COORDINATOR = error_of(ErrorCode.COORDINATOR_NOT_AVAILABLE, "B", "FindCoordinator", "connect")


@pytest.mark.parametrize("error", [_AWAY, _NO_COORDINATOR], ids=["cluster", "coordinator"])
async def test_a_coordinator_that_does_not_answer_stops_nothing_that_runs(run: Run, error: Mm2Error) -> None:
    """However long it takes; what starts before it has answered waits, and says why. Each is reported once."""
    place = Place(NOBODY)
    async with run(place) as running:
        await asyncio.sleep(ROUND_S)
        place.error = error
        closed = running.tasks.create_task(running.its.until_closed())
        await asyncio.sleep(3_600)
        _, later = running.flow()
        await asyncio.wait_for(later, 0.1)
        has_closed = closed.done()
        closed.cancel()
    async with run(Place(NOBODY, error)) as starting:
        held, waiting = starting.flow()
        await asyncio.sleep(3_600)
        state, why = held.shown
        has_started = waiting.done()
        waiting.cancel()

    assert (has_closed, has_started, state) == (False, False, FlowState.STARTING)
    assert "cluster B" in why
    assert [event.then for event in running.events.of(WorkerUnguarded)] == ["its flows run nevertheless"]
    assert [event.then for event in starting.events.of(WorkerUnguarded)] == ["its flows wait"]


async def test_without_the_right_to_join_flows_run_and_the_missing_one_is_named(run: Run) -> None:
    """As a flow does without a right to its group; but not while Java's workers are known to run them."""
    refused = error_of(ErrorCode.GROUP_AUTHORIZATION_FAILED, "B", "DescribeGroups", "connect")
    async with run(Place(NOBODY, refused)) as running:
        _, starting = running.flow()
        await asyncio.wait_for(starting, ROUND_S)
        [said] = running.events.of(WorkerUnguarded)
    place = Place(JAVA)
    async with run(place) as other:
        _, waiting = other.flow()
        await asyncio.sleep(ROUND_S)
        place.error = refused
        await asyncio.sleep(60)
        has_started = waiting.done()
        waiting.cancel()

    assert "READ on group connect" in said.hint
    assert not has_started


async def test_a_worker_that_only_warns_asks_no_group(run: Run) -> None:
    """`copy.on.second.node = warn` has every node copy all."""
    place = Place(JAVA)
    async with run(place, attrs.evolve(SETTINGS, refuses=False)) as running:
        _, starting = running.flow()
        await asyncio.wait_for(starting, 0.1)

    assert place.asked == 0
