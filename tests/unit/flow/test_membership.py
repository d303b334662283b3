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
from mm2py.core.sharing import Work
from mm2py.errors import ClusterUnreachableError
from mm2py.flow import membership
from mm2py.flow.leader import GroupLeader
from mm2py.flow.membership import FlowMembership
from mm2py.flow.task_group import FlowGroup
from mm2py.model.group import GroupMember, GroupMembers
from mm2py.model.node import Node
from mm2py.model.share import (
    ALL_SLOTS,
    NO_SHARE,
    Candidate,
    NodeLoad,
    Share,
    SharedFlow,
    decode_candidate,
    decode_shared_flow,
    encode_candidate,
    encode_shared_flow,
    whole_share,
)
from mm2py.telemetry.events import (
    ControlWritesUnguarded,
    FlowRunsElsewhere,
    FlowShared,
    FlowTakenOver,
    FlowUnguarded,
    InstanceFenced,
    StepFailed,
    TaskRestarted,
)
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.groups.membership import Assign, Heartbeat, MemberIdentity
from tests.support.clocks import LoopClock
from tests.support.coordinators import Coordinators
from tests.support.flow_rig import FLOW, SETTINGS, flow_context


US = Node("here", 1, "this machine", "1")
JAVA = GroupMembers("Stable", "connect", "sessioned", (GroupMember("m", "/10.0.0.1"),))
NOBODY = GroupMembers()
THERE = Node("elsewhere", 7, "another machine", "1")
TASKS = 2


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
    #: Set once the coordinator answers again.
    silent: asyncio.Event | None = None

    #: What our joins end with.
    failure: Exception | None = None
    #: Set once the coordinator answers our next join: it waits for other members.
    held_back: asyncio.Event | None = None
    #: Whether it still knows us meanwhile, if it answers that.
    is_still_known: bool | Exception = True

    its: Any = None
    #: Whether another process joined under our `group.instance.id`.
    is_fenced: bool = False

    async def look(self) -> GroupMembers:
        if isinstance(self.group, ErrorCode):
            raise error_of(self.group, "B", "DescribeGroups", "A-mm2")
        return self.group

    async def join(self, metadata: bytes, assign: Assign) -> bytes:
        if self.failure is not None:
            raise self.failure
        if self.held_back is not None:
            await self.held_back.wait()
        self.is_in = True
        self.generation += 1
        self.joins.append(decode_candidate(metadata))
        self.member_id = self.renamed or self.member_id
        self.assigned = (await assign(self.generation, {self.member_id: metadata, **self.others}))[self.member_id]
        return self.assigned if self.sent is None else self.sent

    async def beat(self) -> Heartbeat:
        if self.silent is not None:
            await self.silent.wait()
        if self.is_fenced:
            self.is_fenced = self.is_in = False
            raise error_of(ErrorCode.FENCED_INSTANCE_ID, "B", "Heartbeat", "A-mm2")
        answer, self.answer = self.answer, Heartbeat.OK
        self.is_in = self.is_in and answer is not Heartbeat.LOST
        return answer

    async def is_known(self) -> bool:
        if isinstance(self.is_still_known, Exception):
            raise self.is_still_known
        return self.is_still_known

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
    suspended: list[str] = attrs.field(factory=list)
    released: asyncio.Event = attrs.field(factory=asyncio.Event)
    membership: FlowMembership | None = None

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


class Target(Coordinators):
    """Stands for the cluster; its coordinators open every transactional id."""

    def __init__(self, *_: object) -> None:
        super().__init__()

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
        group: GroupMembers | ErrorCode, *, is_ready: bool = True, **changes: object
    ) -> AsyncIterator[tuple[Place, Group, EventLog]]:
        place, working, clock = Place(group), Group(), LoopClock()
        events = EventLog(clock)
        monkeypatch.setattr(membership, "Cluster", Target)
        monkeypatch.setattr(membership, "Membership", lambda *_: place)
        settings = attrs.evolve(
            SETTINGS,
            membership=attrs.evolve(SETTINGS.membership, **changes),
            copying=attrs.evolve(SETTINGS.copying, tasks_max=TASKS),
        )
        context = flow_context(clock, events, settings)

        async def take_over() -> None:
            if place.refusal is not None:
                raise place.refusal

        its = FlowMembership(context, lambda: attrs.evolve(US, instance=settings.membership.instance), take_over)
        place.its = its
        its.begin([cast("FlowGroup", working)])
        its.is_ready = is_ready
        working.membership = its
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(its.run())
            yield place, working, events
            task.cancel()

    return running


async def test_what_a_crash_may_have_left_behind_is_told_after_a_session(run: Run) -> None:
    """A node killed elsewhere stays in the group for a session; until then nothing is copied, nor reported."""
    async with run(JAVA) as (place, group, events):
        await asyncio.sleep(5)
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


async def test_a_node_that_was_thrown_out_writes_nothing_more_and_shares_with_who_came(run: Run) -> None:
    """It was frozen for a session, and another node has had what it had: its groups begin again."""
    async with run(NOBODY) as (place, group, events):
        await asyncio.sleep(4)
        before = (group.share, group.is_deposed)
        place.others = {"other": encode_candidate(Candidate(THERE, whole_share(TASKS)))}
        place.answer = Heartbeat.LOST
        await asyncio.sleep(4)
        after = (group.share, group.is_deposed, group.why)
        (shared,) = events.of(FlowShared)

    assert before == (whole_share(TASKS), False)
    assert after == (NO_SHARE, True, f"{THERE} runs {FLOW}")
    assert place.joins[-1] is not None
    assert place.joins[-1].held == NO_SHARE
    assert (shared.nodes, shared.tasks) == (2, "no tasks")


async def test_a_node_that_was_thrown_out_and_is_alone_goes_on(run: Run) -> None:
    """The coordinator forgot it, and nobody else came: nothing has to begin again."""
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        place.answer = Heartbeat.LOST
        await asyncio.sleep(4)

    assert len(place.joins) == 2
    assert (group.share, group.is_deposed) == (whole_share(TASKS), False)


async def test_what_another_node_gets_is_released_first(run: Run) -> None:
    """A node comes: ours works on its half at once, and joins again once nothing beyond that is held."""
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        place.others = {"other": encode_candidate(Candidate(THERE))}
        place.answer = Heartbeat.REBALANCE
        await asyncio.sleep(4)
        joined, share = len(place.joins), group.share
        group.released.set()
        await asyncio.sleep(4)

    assert joined == 2
    assert len(share.tasks) == 1
    assert [None if it is None else it.held for it in place.joins] == [NO_SHARE, whole_share(TASKS), share]
    assert not group.is_deposed


async def test_what_another_node_releases_is_waited_for_with_short_pauses(run: Run) -> None:
    """What moves is copied by no node until all have joined again; usually it takes two seconds to notice."""
    async with run(NOBODY) as (place, group, _events):
        place.others = {"other": encode_candidate(Candidate(THERE, whole_share(TASKS)))}
        await asyncio.sleep(0.5)
        before = group.share
        left = decode_shared_flow(place.assigned).share_of("other")
        place.others = {"other": encode_candidate(Candidate(THERE, left))}
        place.answer = Heartbeat.REBALANCE
        await asyncio.sleep(0.5)
        moved = group.share
        place.others, place.answer = {}, Heartbeat.REBALANCE
        await asyncio.sleep(0.5)
        joins = len(place.joins)

    assert (before, moved.tasks) == (NO_SHARE, {1})
    assert joins == 2  # nothing moves any more


async def test_a_node_says_so_once_it_is_ready(run: Run) -> None:
    """Others keep what they have until then; at once it joins again."""
    async with run(NOBODY) as (place, group, _events):
        place.others = {"other": encode_candidate(Candidate(THERE, Share(True, frozenset({0, 1}), ALL_SLOTS)))}
        place.its.is_ready = False
        await asyncio.sleep(1)
        before = group.share
        place.its.note_ready()
        await asyncio.sleep(0.1)

    assert before == NO_SHARE
    assert [None if it is None else it.is_ready for it in place.joins] == [False, True]


async def _after_a_has_left(**rates: dict[int, float]) -> tuple[dict[str, Share], SharedFlow]:
    """Return what three nodes had that measure these *rates*, and what two have without the first."""
    leader = GroupLeader(flow_context(LoopClock(), EventLog(LoopClock())))
    shares = {
        "a": Share(True, frozenset(), frozenset(range(4))),
        "b": Share(False, frozenset({0}), frozenset(range(4, 512))),
        "c": Share(False, frozenset({1}), frozenset(range(512, 1024))),
    }
    leader.work = lambda: Work(TASKS, partitions=dict.fromkeys(range(8), 1))
    members = {
        name: encode_candidate(Candidate(Node(name, 1), share, NodeLoad(rates.get(name, {}))))
        for name, share in shares.items()
    }
    before = SharedFlow(0, {name: Node(name, 1) for name in shares}, shares)
    target = cast("Cluster", Target())
    await leader.assign(target, 1, members, before)
    return shares, decode_shared_flow((await leader.assign(target, 2, {it: members[it] for it in "bc"}, before))["b"])


async def test_what_a_vanished_node_copied_is_shared_by_what_was_last_known() -> None:
    """Its slots are measured by no node any more."""
    busy = {0: 1e6, 2: 1e6}
    _, shared = await _after_a_has_left(a=busy | {1: 1e3, 3: 1e3}, b=dict.fromkeys(range(4, 8), 1.0))

    assert [len(busy.keys() & shared.share_of(name).slots) for name in "bc"] == [1, 1]


async def test_members_that_release_one_after_the_other_move_nothing_else() -> None:
    """What is to go where is decided once, when a node comes, by what all hold at that time."""
    leader = GroupLeader(flow_context(LoopClock(), EventLog(LoopClock())))
    leader.work = lambda: Work(3, partitions=dict.fromkeys(range(12), 1))
    evens = frozenset(range(0, 1024, 2))
    held = {
        "a": Share(True, frozenset({0}), evens),
        "b": Share(False, frozenset({1}), ALL_SLOTS - evens),
        "c": NO_SHARE,
    }
    nodes = {name: Node(name, 1) for name in held}
    shared = SharedFlow(0, {name: nodes[name] for name in "ab"}, {name: held[name] for name in "ab"})
    found = []
    for released in ("", "a", "b", ""):
        if released:
            held[released] = shared.share_of(released)
        members = {name: encode_candidate(Candidate(nodes[name], share)) for name, share in held.items()}
        shared = decode_shared_flow((await leader.assign(cast("Cluster", Target()), len(found), members, shared))["a"])
        held["c"] = shared.share_of("c")
        found.append({name: shared.share_of(name).slots for name in "abc"})

    assert all(shares[name] == found[0][name] for shares in found for name in "ab")
    assert [len(shares["c"]) for shares in found] == [
        0,
        len(evens - found[0]["a"]),
        *2 * [1024 - len(found[0]["a"] | found[0]["b"])],
    ]


async def test_when_a_node_starts_the_others_keep_what_they_have() -> None:
    """Nothing moves before its Spark has started."""
    leader = GroupLeader(flow_context(LoopClock(), EventLog(LoopClock())))
    leader.work = lambda: Work(TASKS, partitions=dict.fromkeys(range(8), 1))
    few = frozenset({0, *range(8, 516)})
    held = {"a": Share(True, frozenset({0}), few), "b": Share(False, frozenset({1}), ALL_SLOTS - few)}
    members = {name: encode_candidate(Candidate(Node(name, 1), share)) for name, share in held.items()}
    members["c"] = encode_candidate(Candidate(Node("c", 1), is_ready=False))
    before = SharedFlow(0, {name: Node(name, 1) for name in held}, held)
    shared = decode_shared_flow((await leader.assign(cast("Cluster", Target()), 1, members, before))["a"])

    assert shared.shares == {**held, "c": NO_SHARE}


async def test_when_a_node_has_left_the_others_keep_what_they_have() -> None:
    """What one of them has taken over from it is not measured yet, so it is too early to compare them."""
    before, shared = await _after_a_has_left(b=dict.fromkeys(range(4, 8), 1e6))

    assert all(before[name].slots <= shared.share_of(name).slots for name in "bc")


async def test_what_nobody_holds_is_fenced_before_it_is_given_away() -> None:
    """
    A node has vanished: its tasks go to others once the brokers refuse what it writes, even if that takes a while.

    If it takes too long, they go without, and that is reported.
    """
    clock = LoopClock()
    events = EventLog(clock)
    settings = attrs.evolve(SETTINGS, copying=attrs.evolve(SETTINGS.copying, tasks_max=TASKS))
    leader, target = GroupLeader(flow_context(clock, events, settings)), Target()
    held = {"a": Share(True, frozenset({0}), frozenset(range(512)))}

    async def assigned() -> Share:
        members = {name: encode_candidate(Candidate(Node(name, 1), share)) for name, share in held.items()}
        return decode_shared_flow((await leader.assign(cast("Any", target), 1, members))["a"]).share_of("a")

    target.answers = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 100
    begun, withheld = clock.monotonic(), await assigned()
    first = (leader.must_repeat, clock.monotonic() - begun)
    target.answers = []
    given, opened = await assigned(), set(target.opened)
    target.answers = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1_000
    rounds = 0
    while (share := await assigned()) == held["a"] and rounds < 100:
        rounds += 1
    (unguarded,) = events.of(ControlWritesUnguarded)

    assert (withheld, first[0]) == (held["a"], True)
    assert first[1] == pytest.approx(2.0, abs=0.1)
    assert given == share == whole_share(TASKS)
    assert opened == {"A-mm2-MirrorSourceConnector-1"}
    assert 5 < rounds < 15
    assert not leader.must_repeat
    assert unguarded.transactional_id == "A-mm2-MirrorSourceConnector-1"


async def test_without_heartbeats_nothing_is_begun_before_the_session_is_over(run: Run) -> None:
    """The group does not answer: before others may have our share we plan nothing, and go on once it answers."""
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        place.silent = asyncio.Event()
        await asyncio.sleep(2)
        certain = list(group.suspended)
        await asyncio.sleep(5)
        uncertain = list(group.suspended)
        place.silent.set()
        await asyncio.sleep(4)

    assert certain == []
    assert "A-mm2" in uncertain[-1]
    assert group.suspended[-1] == ""
    assert group.share == whole_share(TASKS)


async def test_a_join_that_is_held_back_suspends_nothing_while_the_group_knows_us(run: Run) -> None:
    """
    A static member is away, and another node comes: the coordinator waits for the former before it answers any join.

    It takes up to a session, more than two thirds of one, in which no member is assigned anything new.
    """
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        place.held_back, place.answer = asyncio.Event(), Heartbeat.REBALANCE
        await asyncio.sleep(30)
        meanwhile = list(group.suspended)
        certain = place.its._context.writers.is_certain()
        place.held_back.set()
        await asyncio.sleep(4)

    assert (meanwhile, certain) == ([], True)
    assert (len(place.joins), group.share) == (2, whole_share(TASKS))


@pytest.mark.parametrize("answer", [False, ClusterUnreachableError("B", "b:1", "gone")], ids=["unknown", "silent"])
async def test_a_join_that_is_held_back_suspends_all_where_the_group_may_not_know_us(
    run: Run, answer: bool | Exception
) -> None:
    """A request that was lost on its way looks the same as one that is held back: others may have our share soon."""
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        place.held_back, place.answer, place.is_still_known = asyncio.Event(), Heartbeat.REBALANCE, answer
        await asyncio.sleep(3)
        early = list(group.suspended)
        await asyncio.sleep(27)
        late, certain = list(group.suspended), place.its._context.writers.is_certain()
        place.held_back.set()
        await asyncio.sleep(4)

    assert early == []
    assert "A-mm2" in late[-1]
    assert not certain
    assert group.suspended[-1] == ""


async def test_attempts_to_join_are_no_answers(run: Run) -> None:
    """An assignment could not be taken, and is to be asked for again; then the target goes away for good."""
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        place.its._has_untaken = True
        place.failure = ClusterUnreachableError("B", "b:1", "gone")
        await asyncio.sleep(6)

    assert "A-mm2" in group.suspended[-1]


async def test_a_member_on_this_machine_whose_process_has_ended_is_removed(run: Run, monkeypatch: Any) -> None:
    """Its session need not be waited for."""
    neighbour = attrs.evolve(THERE, machine=US.machine)
    async with run(NOBODY) as (place, _group, _events):
        place.others = {"other": encode_candidate(Candidate(neighbour))}
        monkeypatch.setattr(membership, "is_alive", lambda _node: True)
        await asyncio.sleep(6)
        there = list(place.others)
        monkeypatch.setattr(membership, "is_alive", lambda _node: False)
        await asyncio.sleep(4)

    assert there == ["other"]
    assert place.others == {}


async def test_an_assignment_that_cannot_be_read_is_left_to_others(run: Run) -> None:
    """The group's leader is a node of a later version: what is assigned to us must not wait for us."""
    async with run(NOBODY) as (place, group, events):
        group.released.set()
        await asyncio.sleep(4)
        place.sent, place.answer = b'{"version": 2}', Heartbeat.REBALANCE
        await asyncio.sleep(20)
        refused = (group.is_admitted, group.why)
        takes_part = [None if it is None else not it.is_drained for it in place.joins]
        last = place.joins[-1]
        place.sent, place.answer = None, Heartbeat.REBALANCE
        place.others = {"other": encode_candidate(Candidate(THERE))}
        await asyncio.sleep(8)
        shared = group.share

    assert shared.tasks
    assert refused[0] is False
    assert "cannot be used" in refused[1]
    assert takes_part[:2] == [True, True]
    assert takes_part[2:]
    assert not any(takes_part[2:])
    assert last is not None
    assert last.held == NO_SHARE
    assert len(takes_part) < 6
    assert "another version" in events.of(StepFailed)[0].hint


async def test_what_could_not_be_taken_is_assigned_again(run: Run) -> None:
    """The overrides of another node could not be read: the share is not forgotten."""
    async with run(JAVA) as (place, group, events):
        await asyncio.sleep(4)
        place.refusal = error_of(ErrorCode.REQUEST_TIMED_OUT, "B", "Fetch", "overrides")
        place.group = NOBODY
        await asyncio.sleep(6)
        before = group.is_admitted
        place.refusal = None
        await asyncio.sleep(6)
        after = group.is_admitted

    assert (before, after) == (False, True)
    assert events.of(StepFailed)


async def test_a_member_that_was_forgotten_while_it_joined_begins_again(run: Run) -> None:
    """It said that it holds what others may have had meanwhile."""
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        place.renamed, place.answer = "us again", Heartbeat.REBALANCE
        place.others = {"other": encode_candidate(Candidate(THERE))}
        group.released.set()
        await asyncio.sleep(6)

    assert group.is_deposed
    held = [it.held for it in place.joins if it is not None]
    assert held[:2] == [NO_SHARE, whole_share(TASKS)]
    assert held[2] == group.share
    assert len(group.share.tasks) == 1


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


NAMESAKE = attrs.evolve(THERE, instance="node-1")


async def test_a_node_whose_instance_is_taken_steps_back_and_does_not_fight(run: Run) -> None:
    """Another process has its share from then on; it continues once that one's session is over."""
    namesake = GroupMember("node-1-7", "/10.0.0.7", encode_candidate(Candidate(NAMESAKE)), "node-1")
    async with run(NOBODY, instance="node-1") as (place, group, events):
        await asyncio.sleep(4)
        unseen = attrs.evolve(namesake, metadata=b"")
        place.is_fenced, place.group = True, GroupMembers("PreparingRebalance", PROTOCOL_TYPE, "", (unseen,))
        await asyncio.sleep(5)
        at_once = (group.is_deposed, group.is_admitted, group.why, len(events.of(InstanceFenced)))
        place.group = GroupMembers("Stable", PROTOCOL_TYPE, PROTOCOL, (namesake,))
        await asyncio.sleep(3_600)
        later = (group.is_admitted, group.why, len(place.joins))
        place.group = NOBODY
        await asyncio.sleep(4)
        back = group.share

    assert at_once == (True, False, "a node at 10.0.0.7 has the same group.instance.id, node-1", 0)
    assert later == (False, f"{NAMESAKE} has the same group.instance.id, node-1", 1)
    assert back == whole_share(TASKS)
    assert [(it.instance, it.node) for it in events.of(InstanceFenced)] == [("node-1", str(NAMESAKE))]
    assert not events.of(FlowRunsElsewhere)
    assert not events.of(FlowUnguarded)


async def test_a_static_member_that_came_back_shows_who_it_is(run: Run) -> None:
    """It takes its share without a rebalance, under the id that it had; then it joins again, once, and keeps that."""
    mine = Share(is_owner=True, tasks=frozenset({1}), slots=frozenset(range(7)))
    nodes = {"us before": NAMESAKE, "other": attrs.evolve(THERE, pid=8)}
    before = encode_shared_flow(SharedFlow(3, nodes, {"us before": mine}))
    async with run(NOBODY, instance="node-1") as (place, group, _events):
        place.sent = before
        await asyncio.sleep(1)
        at_once = group.share
        place.sent = None
        place.others = {"other": encode_candidate(Candidate(nodes["other"], whole_share(TASKS) - mine))}
        await asyncio.sleep(20)
        later = group.share

    assert at_once == later == mine
    assert [None if it is None else (it.held, it.generation) for it in place.joins] == [(NO_SHARE, -1), (mine, 3)]


@pytest.mark.parametrize(
    ("instance", "is_drained", "stays"), [("node-1", False, True), ("node-1", True, False), ("", False, False)]
)
async def test_who_is_to_come_back_stays(run: Run, instance: str, is_drained: bool, stays: bool) -> None:
    """A static member keeps its place while its node restarts, unless it has given its share up."""
    async with run(NOBODY, instance=instance) as (place, group, _events):
        await asyncio.sleep(4)
        group.membership.drain(is_drained=is_drained)
        await asyncio.sleep(4)
        said = group.membership.come_back()

    assert (said, place.is_in) == (stays, stays)


async def test_a_static_member_that_ends_for_good_leaves(run: Run) -> None:
    """Its flow was removed from the file, or it failed permanently: nothing will come back for its share."""
    async with run(NOBODY, instance="node-1") as (place, _group, _events):
        await asyncio.sleep(4)

    assert not place.is_in


async def test_a_static_member_that_came_back_tells_the_others_once_it_works(run: Run) -> None:
    """Its rebalance would see members that are still away: all nodes were restarted at once."""
    before = encode_shared_flow(SharedFlow(3, {"us before": NAMESAKE}, {"us before": whole_share(TASKS)}))
    async with run(NOBODY, instance="node-1", is_ready=False) as (place, group, _events):
        place.sent = before
        await asyncio.sleep(20)
        early = (group.share, len(place.joins))
        place.sent = None
        group.membership.note_ready()
        await asyncio.sleep(20)

    assert early == (whole_share(TASKS), 1)
    assert len(place.joins) == 2
