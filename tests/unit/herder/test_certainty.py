"""For how long a node is certain that its share of a flow is its own."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from mm2py.errors import ClusterUnreachableError
from mm2py.herder.certainty import Certainty
from mm2py.model.herder.share import (
    whole_share,
)
from mm2py.telemetry.journal import EventLog
from mm2py.wire.groups.membership import Heartbeat
from tests.support.clocks import ManualClock
from tests.support.flow_rig import SETTINGS, changed, flow_context
from tests.support.memberships import NOBODY, TASKS, Run


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
    assert len(set(uncertain)) == 1
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


async def test_who_joins_anew_is_certain_of_nothing(run: Run) -> None:
    """
    We were thrown out. The group knows us again as soon as we join, long before it has assigned anything: what we had
    before is another node's meanwhile.
    """
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        place.held_back, place.answer = asyncio.Event(), Heartbeat.LOST
        await asyncio.sleep(30)
        meanwhile, certain = list(group.suspended), place.its._context.writers.is_certain()
        place.held_back.set()
        await asyncio.sleep(4)

    assert "A-mm2" in meanwhile[-1]
    assert not certain
    assert group.suspended[-1] == ""


async def test_a_takeover_that_takes_long_does_not_cost_the_membership(run: Run) -> None:
    """Before it takes tasks over, a node reads from the target. It is asked about beside that, as in a long join."""
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        place.taking_over = asyncio.Event()
        place.its.drain(is_drained=True)
        await asyncio.sleep(4)
        place.its.drain(is_drained=False)
        await asyncio.sleep(30)
        meanwhile, certain = list(group.suspended), place.its._context.writers.is_certain()
        asked = place.asked_about
        place.taking_over.set()
        await asyncio.sleep(4)

    assert (meanwhile, certain) == ([], True)
    assert asked >= 3
    assert group.share == whole_share(TASKS)


async def test_a_takeover_does_not_outlast_a_rebalance_with_what_it_had(run: Run) -> None:
    """
    The group rebalances while a node takes its last assignment. It has not joined again, so once the others have waited
    for a session they are assigned what it has. To be known still, just before that, makes nothing certain.
    """
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        place.taking_over, place.rebalances_beside = asyncio.Event(), True
        place.its.drain(is_drained=True)
        await asyncio.sleep(4)
        place.its.drain(is_drained=False)
        await asyncio.sleep(9)
        meanwhile, certain = list(group.suspended), place.its._context.writers.is_certain()
        place.taking_over.set()
        await asyncio.sleep(4)

    assert "A-mm2" in meanwhile[-1]
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


class _TurningClock(ManualClock):
    """Lets others run during a sleep."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        await asyncio.sleep(0)


async def test_a_wait_that_rounding_left_moves_the_clock() -> None:
    """What is left of a wait may be so short that it moves no clock: such sleeps would follow without end."""
    clock = _TurningClock(now_s=1_000_000.1)
    settings = changed(SETTINGS, worker=attrs.evolve(SETTINGS.worker, session_ms=10_000))
    certainty = Certainty(flow_context(clock, EventLog(clock), settings), 3.0)
    certainty.note(clock.monotonic())
    watching = asyncio.create_task(certainty.watch(()))
    for _ in range(10):
        await asyncio.sleep(0)
    watching.cancel()

    assert not certainty.is_certain


def test_a_late_answer_is_as_old_as_its_question() -> None:
    """The network held the answer to a join back for longer than a session: others have had the share since."""
    clock = ManualClock(now_s=1_000.0)
    certainty = Certainty(flow_context(clock, EventLog(clock)), 3.0)
    asked_at = clock.monotonic()
    certainty.note(asked_at)
    at_once = certainty.is_certain
    clock.now_s += 20
    certainty.note(asked_at)

    assert (at_once, certainty.is_certain) == (True, False)
