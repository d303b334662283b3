"""A node's flows, and what they know of each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import attrs
import pytest

from mm2py.config.settings import FlowSettings
from mm2py.connectors.pair import Pairs
from mm2py.core.herder.reload import FlowChanges
from mm2py.herder.fleet import Fleet
from mm2py.herder.node_context import NodeContext
from mm2py.herder.runner import FlowRunner
from mm2py.model.flow import Flow
from mm2py.model.herder.overrides import Wanted
from mm2py.model.herder.share import NO_SHARE, whole_share
from mm2py.pipeline.epoch_jobs import EpochRunner
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock
from tests.support.flow_rig import SETTINGS, changed


BACK = Flow("B", "A")


async def _prepare(_runner: FlowRunner) -> None:
    return


def _fleet(
    prepare: Callable[[FlowRunner], Coroutine[Any, Any, None]] = _prepare,
    desired: Callable[[Flow], FlowSettings] = lambda flow: changed(SETTINGS, flow=flow),
) -> Fleet:
    clock = LoopClock()
    epochs, pairs = cast("EpochRunner", None), Pairs()

    def make(settings: FlowSettings) -> FlowRunner:
        return FlowRunner(
            settings, epochs, clock=clock, events=EventLog(clock), jitter=lambda: 0.5, node=NodeContext(pairs=pairs)
        )

    return Fleet(make, lambda _: 1.0, slack_s=1.0, prepare=prepare, desired=desired, pairs=pairs)


def _of_pair(fleet: Fleet, flow: Flow) -> list[tuple[object, object]]:
    """Return what a flow of *fleet* knows of the other direction: translations in memory, and the config."""
    runner = fleet.runner(flow)
    assert runner is not None
    return [(one.live(), one.config) for one in runner.pairs.sources_of(flow.reverse)]


async def test_a_flow_knows_the_other_direction_by_the_file_or_by_its_runner() -> None:
    """What this node runs it knows best; of another node's flow it knows what the file, as read last, says."""
    fleet = _fleet()
    back, other = (
        changed(SETTINGS, flow=BACK, copying=attrs.evolve(SETTINGS.source_connector.copying, tasks_max=number))
        for number in (3, 4)
    )
    fleet.add([SETTINGS])
    found = [_of_pair(fleet, SETTINGS.flow)]
    for elsewhere in ([back], [other], []):
        fleet.know(elsewhere)
        found.append(_of_pair(fleet, SETTINGS.flow))
    fleet.add([back])
    here = fleet.runner(BACK)

    assert found == [[], [(None, back.source_connector)], [(None, other.source_connector)], []]
    assert here is not None
    assert here.live_translations() is not None
    assert _of_pair(fleet, SETTINGS.flow) == [(here.live_translations(), back.source_connector)]


async def test_a_flow_that_this_node_does_not_follow_lends_no_translations() -> None:
    """
    Two nodes run both directions, each flow with one task: this one owns B->A and stands by for A->B, which it takes
    over later, paused. What the other node stores counts until this one copies.
    """
    fleet = _fleet()
    fleet.add([SETTINGS, changed(SETTINGS, flow=BACK)])
    there = fleet.runner(SETTINGS.flow)
    assert there is not None
    assert there._source is not None
    is_lent = []
    for share, wanted in (
        (NO_SHARE, Wanted.RUNNING),
        (NO_SHARE, Wanted.PAUSED),
        (whole_share(2), Wanted.PAUSED),
        (whole_share(2), Wanted.RUNNING),
    ):
        there._source.requests.want(wanted)
        there._source.requests.give(share)
        [(lent, _)] = _of_pair(fleet, BACK)
        is_lent.append(lent is not None)

    assert is_lent == [False, False, False, True]


async def test_flows_are_listed_by_name() -> None:
    """Whichever was made last, or again because its settings changed, stands where people look for it."""
    fleet = _fleet()
    flows = [Flow("C", "A"), Flow("A", "C"), Flow("A", "B")]
    fleet.add(changed(SETTINGS, flow=flow) for flow in flows)

    assert [str(runner.flow) for runner in fleet.runners] == ["A->B", "A->C", "C->A"]


async def test_a_drained_node_takes_no_tasks_of_later_flows_either() -> None:
    """Each flow reports it to the other nodes, also one that is made again for new settings, until it is resumed."""
    fleet = _fleet()
    fleet.add([SETTINGS])
    fleet.set_drained(is_drained=True)
    fleet.add([changed(SETTINGS, flow=BACK)])
    drained = [runner.sharing is not None and runner.sharing.nodes.own.is_drained for runner in fleet.runners]
    fleet.set_drained(is_drained=False)

    assert drained == [True, True]
    assert not any(runner.sharing is not None and runner.sharing.nodes.own.is_drained for runner in fleet.runners)


@pytest.mark.parametrize("has_lost", [False, True])
async def test_a_drain_that_lost_an_epoch_is_not_clean(monkeypatch: pytest.MonkeyPatch, has_lost: bool) -> None:
    """Though all flows ended in time: their positions may be behind what the targets hold."""
    fleet = _fleet()
    fleet.add([SETTINGS])
    monkeypatch.setattr(FlowRunner, "run", lambda runner, _on_end: runner.draining.wait())
    monkeypatch.setattr(FlowRunner, "has_lost", has_lost)
    async with asyncio.TaskGroup() as tasks:
        fleet.start(tasks)
        is_drained = await fleet.drain([SETTINGS.flow])

    assert is_drained is not has_lost


async def test_a_node_drains_while_a_flow_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the settings that is under way forgets the flow while the drain of the node still waits for it."""
    fleet = _fleet()
    fleet.add([SETTINGS])
    monkeypatch.setattr(FlowRunner, "run", lambda runner, _on_end: runner.draining.wait())
    async with asyncio.TaskGroup() as tasks:
        fleet.start(tasks)
        changing = tasks.create_task(fleet.change(FlowChanges(removed=(SETTINGS.flow,)), tasks))
        await asyncio.sleep(0)
        is_drained = await fleet.drain()

    assert is_drained
    assert changing.result()
    assert fleet.runners == ()


async def test_what_changes_while_a_flow_is_prepared_is_not_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An operator changes a setting while a worker still looks where a connector stood before.

    The flow, which does not run yet, has that setting then, and keeps it when the look is over.
    """
    later = changed(SETTINGS, copying=attrs.evolve(SETTINGS.source_connector.copying, auto_offset_reset="latest"))
    wanted, has_looked, ran = [SETTINGS], asyncio.Event(), list[FlowSettings]()

    async def prepare(_runner: FlowRunner) -> None:
        await has_looked.wait()

    async def run(runner: FlowRunner, _on_end: object) -> None:
        ran.append(runner.settings)

    monkeypatch.setattr(FlowRunner, "run", run)
    fleet = _fleet(prepare, lambda _: wanted[-1])
    fleet.add([SETTINGS])
    async with asyncio.TaskGroup() as tasks:
        fleet.start(tasks)
        await asyncio.sleep(0)
        wanted.append(later)
        await fleet.change(FlowChanges(changed=(later,)), tasks)
        has_looked.set()

    assert ran == [later]
    assert [runner.settings for runner in fleet.runners] == [later]
