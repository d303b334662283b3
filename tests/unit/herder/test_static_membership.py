"""A flow's members with a `group.instance.id`."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from mm2py.core.herder.membership import PROTOCOL, PROTOCOL_TYPE
from mm2py.model.group import GroupMember, GroupMembers
from mm2py.model.herder.share import (
    NO_SHARE,
    Candidate,
    Share,
    SharedFlow,
    encode_candidate,
    encode_shared_flow,
    whole_share,
)
from mm2py.telemetry.events import (
    FlowRunsElsewhere,
    FlowUnguarded,
    InstanceFenced,
)
from tests.support.memberships import NOBODY, TASKS, THERE, Run


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
