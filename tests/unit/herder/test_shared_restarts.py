"""Restarts of what other nodes of a flow run, over brokers that keep their records."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from mm2py.core.herder.overrides import CHECKPOINT, SOURCE
from mm2py.errors import BrokerConnectionError, OverrideConflictError, RestartNotPassedOnError, UnknownTaskError
from mm2py.herder.shared_restarts import SharedRestarts
from mm2py.model.herder.node_status import NodeStatus, encode_status
from mm2py.model.herder.restart import Restart, encode_restart, restart_key
from mm2py.telemetry.events import RecordPassedOver, RestartPassedOn
from mm2py.wire.topic_log import LogRecord
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import FakeBrokers
from tests.support.flow_nodes import ONE, OTHER, Running, plant, running, shared, together, use_brokers
from tests.support.flow_rig import FLOW, flow_context


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> FakeBrokers:
    """Return the target of all nodes of a test."""
    return use_brokers(monkeypatch)


@attrs.define(eq=False)
class Restarting:
    """The restarts of one node, and what it carried out itself."""

    asks: SharedRestarts
    done: list[Restart]


def restarting(node: Running, *, tasks: frozenset[int] = frozenset()) -> Restarting:
    """Have a node carry out restarts; of the flow's copy tasks it runs *tasks*."""
    done: list[Restart] = []

    def here(restart: Restart) -> bool:
        is_here = restart.task is None or restart.task in tasks
        done.extend([restart] * is_here)
        return is_here

    context = flow_context(LoopClock(), node.events)
    return Restarting(SharedRestarts(context, node.its, lambda _connector: None, here), done)


async def test_a_restart_of_a_task_reaches_the_node_that_has_it(brokers: FakeBrokers) -> None:
    """Nothing is restarted at the node that is asked, and once on the other, also if it reads the topic again."""
    restart = Restart(SOURCE, 1, by="ann")
    async with running(ONE, OTHER) as (one, other):
        asked, has_it = restarting(one, tasks=frozenset({0})), restarting(other, tasks=frozenset({1}))
        await together(one, other)
        await asked.asks.ask(restart)
        await asyncio.sleep(11)
        brokers.break_connections()
        await asyncio.sleep(40)

    assert (asked.done, has_it.done) == ([], [restart])
    assert [(it.task, it.nodes, it.by) for it in one.events.of(RestartPassedOn)] == [(1, "other:8083", "ann")]


async def test_a_restart_of_a_connector_reaches_all_nodes(brokers: FakeBrokers) -> None:
    """Each one restarts what it runs; a connector that only this node runs is not passed on."""
    restart = Restart(SOURCE, include_tasks=True, by="ann")
    async with running(ONE, OTHER) as (one, other):
        here, there = restarting(one), restarting(other)
        await together(one, other)
        await here.asks.ask(restart)
        await here.asks.ask(Restart(CHECKPOINT))
        await asyncio.sleep(11)

    assert (here.done, there.done) == ([restart, Restart(CHECKPOINT)], [restart])
    assert len(one.events.of(RestartPassedOn)) == 1


async def test_a_refresh_reaches_all_nodes(brokers: FakeBrokers) -> None:
    """Whichever node is asked; it stays a refresh."""
    refresh = Restart(SOURCE, by="ann", is_refresh=True)
    async with running(ONE, OTHER) as (one, other):
        here, there = restarting(one), restarting(other)
        await together(one, other)
        await here.asks.ask(refresh)
        await asyncio.sleep(11)

    assert (here.done, there.done) == ([refresh], [refresh])


async def test_a_node_that_comes_later_carries_out_no_earlier_restart(brokers: FakeBrokers) -> None:
    """What it runs has just started; until it has reported, the answer names it."""
    restart = Restart(SOURCE, 1)
    async with running(ONE, OTHER) as (one, other):
        here, there = restarting(one), restarting(other, tasks=frozenset({1}))
        one.its.know(shared(ONE, OTHER))
        await asyncio.sleep(7)
        await one.its.append(LogRecord(restart_key(FLOW, restart), encode_restart(restart, ONE.id)))
        with pytest.raises(OverrideConflictError, match="is on node other:8083, which has just come"):
            await here.asks.ask(restart)
        other.its.know(shared(ONE, OTHER))
        await asyncio.sleep(20)

    assert there.done == []


async def test_a_restart_that_reaches_no_node_is_refused(brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node to ask is named if it is silent or cannot be written to; an unknown task is no task."""
    async with running(ONE, OTHER) as (one, other):
        here = restarting(one, tasks=frozenset({0}))
        await together(one, other)
        with pytest.raises(UnknownTaskError, match="has no task 99"):
            await here.asks.ask(Restart(SOURCE, 99))
        with monkeypatch.context() as patched:

            async def fail(_record: LogRecord) -> None:
                raise BrokerConnectionError("B", "b:1", "gone")

            patched.setattr(one.its, "append", fail)
            with pytest.raises(RestartNotPassedOnError, match="passed on to other:8083"):
                await here.asks.ask(Restart(SOURCE, 1))
        await other.stop()
        await plant(brokers, OTHER.id, encode_status(FLOW, NodeStatus(OTHER, 1)))
        await asyncio.sleep(60)
        with pytest.raises(OverrideConflictError, match="on node other:8083, which does not answer"):
            await here.asks.ask(Restart(SOURCE, 1))
        one.its.know(None)
        with pytest.raises(OverrideConflictError, match="and knows no node that does"):
            await here.asks.ask(Restart(SOURCE, 1))

    assert not here.done
    assert not one.events.of(RestartPassedOn)


async def test_a_record_that_is_no_restart_is_reported_once(brokers: FakeBrokers) -> None:
    async with running(ONE, OTHER) as (one, other):
        there = restarting(other)
        await together(one, other)
        for value in (b'{"version":2}', b'{"version":1,"node":"x"}'):
            await one.its.append(LogRecord(restart_key(FLOW, Restart(SOURCE)), value))
        await asyncio.sleep(20)

    assert not there.done
    assert [it.problem for it in other.events.of(RecordPassedOver)] == [
        "its version is 2, this program knows 1",
        "it has no 'task'",
    ]
