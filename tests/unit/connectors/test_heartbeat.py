"""Which of a flow's nodes emits heartbeats, and what the group shows while the target refuses them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import attrs
import pytest

from mm2py.connectors.heartbeat import HeartbeatGroup
from mm2py.model.herder.share import NO_SHARE, Candidate, SharedFlow, encode_candidate, encode_shared_flow, whole_share
from mm2py.telemetry.events import StepFailed
from mm2py.telemetry.journal import EventLog
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.membership import Heartbeat
from mm2py.wire.security.access import NotAuthorizedError
from mm2py.wire.topic_log import LogRecord
from tests.support.clocks import LoopClock
from tests.support.flow_rig import heartbeat_context
from tests.support.memberships import JAVA, NOBODY, TASKS, THERE, US, Place, Run


class RefusingLog:
    """A heartbeats topic that the mirror may not write."""

    async def append(self, _records: Sequence[LogRecord]) -> None:
        raise NotAuthorizedError(
            "B", "Produce", 29, "TOPIC_AUTHORIZATION_FAILED", "heartbeats-0", "WRITE on topic heartbeats"
        )


async def test_what_to_grant_is_shown_as_it_is_logged() -> None:
    """The state of the group has the hint of the event: to whom what is missing is to be granted."""
    clock = LoopClock()
    events = EventLog(clock)
    group = HeartbeatGroup(heartbeat_context(clock, events))
    is_written = await group._beat(RefusingLog(), is_topic_sure=True)  # type: ignore[arg-type]

    (told,) = events.of(StepFailed)
    assert not is_written
    assert "grant the mirror's principal WRITE on topic heartbeats of cluster B" in told.hint
    assert group.view().hint == told.hint


def _assign(place: Place, shared: SharedFlow) -> None:
    """Have our next join end with an assignment, in which we are what *place* says."""
    place.sent, place.answer = encode_shared_flow(shared), Heartbeat.REBALANCE


async def test_only_the_owner_emits(run: Run) -> None:
    """Another node owns the flow and this one copies a part: it emits nothing, and does again as the owner."""
    async with run(NOBODY) as (place, group, _events):
        early = group.heartbeats.is_admitted
        await asyncio.sleep(4)
        alone = group.heartbeats.is_admitted
        ours, whole = place.member_id, whole_share(TASKS)
        nodes = {ours: US, "other": THERE}
        rest = attrs.evolve(whole, is_owner=False, tasks=frozenset({1}))
        _assign(place, SharedFlow(2, nodes, {ours: rest, "other": attrs.evolve(whole, tasks=frozenset({0}))}))
        await asyncio.sleep(4)
        copying = (group.share.tasks, group.heartbeats.is_admitted, group.heartbeats.why)
        _assign(place, SharedFlow(3, {ours: US}, {ours: whole}))
        await asyncio.sleep(4)
        again = group.heartbeats.is_admitted

    assert (early, alone, again) == (False, True, True)
    assert copying == ({1}, False, f"{THERE} emits heartbeats")
    assert not group.heartbeats.is_deposed


@pytest.mark.parametrize(("other", "emits"), [("zzz", True), ("", False)])
async def test_one_emits_while_no_node_owns_the_flow(run: Run, other: str, emits: bool) -> None:
    """All nodes are drained: the group's first member emits, so that monitoring has what it relies on."""
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        ours = place.member_id
        _assign(place, SharedFlow(2, {ours: US, other: THERE}, {ours: NO_SHARE, other: NO_SHARE}))
        await asyncio.sleep(4)

        assert not group.is_admitted
        assert group.heartbeats.is_admitted is emits


async def test_they_continue_while_the_group_is_silent(run: Run) -> None:
    """Nothing new is copied then, because another node may have the share soon; two that emit harm nothing."""
    async with run(NOBODY) as (place, group, _events):
        place.others = {"other": encode_candidate(Candidate(THERE, is_drained=True))}
        await asyncio.sleep(4)
        place.silent = asyncio.Event()
        await asyncio.sleep(60)

        assert group.suspended
        assert group.heartbeats.is_admitted


async def test_they_outlive_a_flow_that_failed(run: Run) -> None:
    """The node leaves the group, and it may be that no other one is there."""
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        group.has_failed = True
        await asyncio.sleep(60)

        assert not place.is_in
        assert group.heartbeats.is_admitted


async def test_java_s_workers_emit_them_while_they_run_the_flow(run: Run) -> None:
    """Java MirrorMaker's task of the flow writes them."""
    async with run(JAVA) as (_place, group, _events):
        await asyncio.sleep(60)

        assert not group.heartbeats.is_admitted


async def test_without_membership_each_node_emits(run: Run) -> None:
    """The principal may not read the group, or operators switched it off: no node knows of another one."""
    async with run(ErrorCode.GROUP_AUTHORIZATION_FAILED) as (_place, group, _events):
        await asyncio.sleep(4)
        unguarded = group.heartbeats.is_admitted
    async with run(JAVA, refuses=False) as (_place, group, _events):
        await asyncio.sleep(60)
        is_unshared = group.heartbeats.is_admitted

    assert (unguarded, is_unshared) == (True, True)
