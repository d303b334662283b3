"""When a flow's groups may work, by what its group at the target looks like; the protocol is `tests.unit.wire`'s."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import attrs
import pytest

from mm2py.core.herder.membership import PROTOCOL, PROTOCOL_TYPE
from mm2py.errors import ClusterUnreachableError
from mm2py.herder import membership
from mm2py.model.group import GroupMember, GroupMembers
from mm2py.model.herder.share import (
    NO_SHARE,
    Candidate,
    Share,
    encode_candidate,
    whole_share,
)
from mm2py.telemetry.events import (
    ClusterRecovered,
    FlowRunsElsewhere,
    FlowShared,
    FlowTakenOver,
    FlowUnguarded,
    StepFailed,
    TaskRestarted,
)
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.groups.membership import Heartbeat
from tests.support.flow_rig import FLOW
from tests.support.memberships import JAVA, NOBODY, TASKS, THERE, US, Group, Run


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


async def test_an_owner_that_was_fenced_goes_on_once_the_group_has_answered(run: Run) -> None:
    """Its transaction was aborted. The next heartbeat gets no answer, and one after it does."""
    async with run(NOBODY) as (place, group, _):
        await asyncio.sleep(4)
        group.is_for_owner = True
        place.failure = ClusterUnreachableError("B", "b:1", "connection refused")
        place.its.share.doubt()
        await asyncio.sleep(4)
        meanwhile = (group.is_deposed, group.is_admitted)
        place.failure = None
        await asyncio.sleep(20)

        assert meanwhile == (True, False)
        assert group.is_admitted


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


async def test_a_node_that_was_thrown_out_does_nothing_before_it_has_its_new_share(run: Run) -> None:
    """
    Another node has what it had, and it is to have what that one had. First it reads overrides, which takes a while.

    A group that is deposed begins again at once, and must not do so with what the other node has by now.
    """
    first, second = (Share(it, frozenset([int(not it)])) for it in (True, False))
    async with run(NOBODY) as (place, group, _events):
        place.others = {"other": encode_candidate(Candidate(THERE, second))}
        await asyncio.sleep(4)
        before = group.share.tasks
        place.others = {"third": encode_candidate(Candidate(THERE, first))}
        place.refusal = error_of(ErrorCode.REQUEST_TIMED_OUT, "B", "Fetch", "overrides")
        place.answer = Heartbeat.LOST
        await asyncio.sleep(4)
        meanwhile = (group.is_deposed, group.share)
        place.refusal = None
        await asyncio.sleep(4)

    assert before == {0}
    assert meanwhile == (True, NO_SHARE)
    assert group.share.tasks == {1}


async def test_a_node_that_was_thrown_out_does_not_go_on_until_it_has_its_owner_s_settings(run: Run) -> None:
    """Another node has what it had, and owns the flow; until it runs with that one's settings it takes no share."""
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        place.others = {"other": encode_candidate(Candidate(THERE, whole_share(TASKS)))}
        place.is_in_use, place.answer = False, Heartbeat.LOST
        await asyncio.sleep(4)

    assert (group.share, group.is_deposed) == (NO_SHARE, True)


async def test_a_node_that_was_thrown_out_and_is_alone_goes_on(run: Run) -> None:
    """The coordinator forgot it, and nobody else came: nothing has to begin again."""
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        place.answer = Heartbeat.LOST
        await asyncio.sleep(4)

    assert len(place.joins) == 2
    assert (group.share, group.is_deposed) == (whole_share(TASKS), False)


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


async def test_a_node_that_joins_others_learns_first_what_they_have_left(run: Run) -> None:
    """They may have released it just now, after this node read what there was at its start."""
    first, second = (Share(it, frozenset([int(not it)])) for it in (True, False))
    async with run(NOBODY) as (place, group, _events):
        place.others = {"other": encode_candidate(Candidate(THERE, second))}
        place.refusal = error_of(ErrorCode.REQUEST_TIMED_OUT, "B", "Fetch", "overrides")
        await asyncio.sleep(4)
        meanwhile = group.share
        place.refusal = None
        await asyncio.sleep(6)

    assert (meanwhile, group.share.tasks) == (NO_SHARE, first.tasks)


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


async def test_an_assignment_waits_for_the_owner_s_settings(run: Run) -> None:
    """
    The owner dies, and a node becomes it whose file says something else: first its connectors restart with that.

    Nothing joins the group again then: the share that was assigned meanwhile is taken all the same.
    """
    async with run(NOBODY) as (place, group, _events):
        place.is_in_use = False
        await asyncio.sleep(6)
        before, joins = group.share, len(place.joins)
        place.is_in_use = True
        await asyncio.sleep(6)

    assert (before, group.share) == (NO_SHARE, whole_share(TASKS))
    assert len(place.joins) == joins


async def test_an_assignment_that_waits_is_not_taken_after_a_later_one(run: Run) -> None:
    """A node of a later version leads the group by then, and has given this node's share to others."""
    async with run(NOBODY) as (place, group, _events):
        place.is_in_use = False
        await asyncio.sleep(6)
        place.sent, place.answer = b"\xff", Heartbeat.REBALANCE
        await asyncio.sleep(20)
        place.is_in_use = True
        await asyncio.sleep(20)

    assert group.share == NO_SHARE


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


async def test_a_flow_that_is_down_for_good_reports_no_recovery_of_the_target(run: Run) -> None:
    """It has left the flow's group and asks the target no more: other loops of it may see that the target is away."""
    async with run(NOBODY) as (place, group, events):
        await asyncio.sleep(4)
        group.has_failed = True
        await asyncio.sleep(4)
        place.its._context.reach.failed("report to the other nodes", ClusterUnreachableError("B", "b:9092", "refused"))
        await asyncio.sleep(60)

    assert not place.is_in
    assert events.of(ClusterRecovered) == ()


async def test_a_flow_whose_source_group_is_down_for_good_is_left_to_other_nodes(run: Run) -> None:
    """
    Its checkpoints could go on. Alone it keeps its place and they do; once another node is known, that gets all of it.

    It stays away although it knows no other member any more, and takes part again when the source group is restarted.
    """
    async with run(NOBODY) as (place, source, _events):
        checkpoints = Group()
        place.its.share.groups = [source, checkpoints]
        await asyncio.sleep(4)
        source.has_failed = True
        await asyncio.sleep(20)
        alone = (place.is_in, checkpoints.is_admitted)
        place.others, place.answer = {"other": encode_candidate(Candidate(THERE))}, Heartbeat.REBALANCE
        await asyncio.sleep(3_600)
        left = (place.is_in, checkpoints.is_admitted, checkpoints.is_deposed, len(place.joins))
        why = checkpoints.why
        source.has_failed = False
        await asyncio.sleep(4)
        again = (place.is_in, source.is_admitted)

    assert alone == (True, True)
    assert left == (False, False, True, 2)
    assert "failed on this node" in why
    assert again == (True, True)


async def test_a_member_that_was_refused_for_a_moment_has_its_share_again(run: Run) -> None:
    """
    Its right to the group is missing for less than a session, so that the group knows it still: meanwhile it copies
    all, and says so once, whatever it asks. Heartbeats that are answered again do not tell what it was assigned.
    """
    async with run(NOBODY) as (place, group, events):
        place.others = {"other": encode_candidate(Candidate(THERE))}
        await asyncio.sleep(4)
        before = group.share
        place.failure = error_of(ErrorCode.GROUP_AUTHORIZATION_FAILED, "B", "Heartbeat", "A-mm2")
        await asyncio.sleep(2)
        place.failure = error_of(ErrorCode.GROUP_AUTHORIZATION_FAILED, "B", "JoinGroup", "A-mm2")
        await asyncio.sleep(2)
        meanwhile = group.share
        place.failure = None
        await asyncio.sleep(4)
        after = group.share

    assert len(before.tasks) == 1
    assert meanwhile == whole_share(TASKS)
    assert after == before
    assert len(events.of(FlowUnguarded)) == 1


async def test_a_drained_node_that_was_forgotten_and_is_alone_holds_what_it_has_not_released(run: Run) -> None:
    """Its groups go on as nobody came, until they have ended what it is to give up; only then may others have it."""
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        place.answer, place.its._is_drained = Heartbeat.LOST, True
        await asyncio.sleep(4)
        place.answer = Heartbeat.REBALANCE
        await asyncio.sleep(4)
        group.released.set()
        await asyncio.sleep(4)

    assert not group.is_deposed
    assert [None if it is None else it.held for it in place.joins] == [
        NO_SHARE, NO_SHARE, whole_share(TASKS), NO_SHARE
    ]  # fmt: skip
