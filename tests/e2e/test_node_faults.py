"""
Three nodes of a flow whose target has three brokers; in a soak, 200 000 numbered records arrive once each, in order.

Nodes are killed, cut off from either cluster, frozen until long after others have taken over, and thrown out of their
group; the broker that coordinates it is killed. They do not talk to each other, so there is nothing else to cut. All of
it also with records that a transform changes in exactly-once mode.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import pytest

from mm2py.core.herder.membership import PROTOCOL, PROTOCOL_TYPE
from mm2py.devkit.broker import KafkaCluster
from mm2py.wire.groups.membership import Membership
from mm2py.wire.groups.requests import GROUP_KEY, FindCoordinatorsRequest
from tests.support.brokers import MakeCluster
from tests.support.eventually import eventually
from tests.support.groups import throw_out
from tests.support.node_runs import KINDS, NAMES, OWNS_ALL, PARTITIONS, Scene, all_move_on, ends_watch, running_nodes
from tests.support.producing import NumberedStream
from tests.support.slow_link import SlowLink, slow_link
from tests.support.soaking import rounds
from tests.support.topics import looking_at


pytestmark = [pytest.mark.soak(only="four brokers and three daemons"), pytest.mark.parametrize("kind", KINDS)]

_RECORDS = rounds(0, soak=200_000)
_TURNS = rounds(0, soak=4)
_REBALANCES = rounds(0, soak=300)
_LONGEST_CUT_S = 25.0
_LONG_FREEZE_S = 60.0
_SPLIT_S = rounds(0, soak=120)
#: Longer than an epoch of a transform, and than a session.
_SHORT_FREEZE_S = 9.0
#: All that was acknowledged by two of three replicas stays.
_SAFE = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}

#: What happens to the nodes, in turn 0, 1 ...
Turn = Callable[[int], Awaitable[None]]


@attrs.frozen
class Network:
    """What lies between each node and the clusters: a line to each broker."""

    scene: Scene
    settings: Mapping[str, str]
    to_source: Mapping[str, Sequence[SlowLink]]
    to_target: Mapping[str, Sequence[SlowLink]]

    @asynccontextmanager
    async def cut(self, name: str, *, source: bool, target: bool) -> AsyncIterator[None]:
        """Cut a node off from a cluster, or from both, as long as the block lasts."""
        links = [*(self.to_source[name] if source else ()), *(self.to_target[name] if target else ())]
        for link in links:
            link.cut()
        try:
            yield
        finally:
            for link in links:
                link.release()


@asynccontextmanager
async def _network(make_cluster: MakeCluster, topic: str, kind: str) -> AsyncIterator[Network]:
    source = make_cluster("source", proxied=NAMES)
    target = make_cluster("target", brokers=3, properties=_SAFE, proxied=NAMES)
    scene = Scene(source.bootstrap_servers, target.bootstrap_servers, topic, replication=3, kind=kind)
    async with AsyncExitStack() as lines:

        async def lines_to(cluster: KafkaCluster, name: str) -> list[SlowLink]:
            ports = [(broker.proxy_ports[name], broker.ports[name]) for broker in cluster.nodes]
            return [await lines.enter_async_context(slow_link(front, behind)) for front, behind in ports]

        yield Network(
            scene,
            {it: scene.properties(source=source.servers(it), target=target.servers(it)) for it in NAMES},
            {it: await lines_to(source, it) for it in NAMES},
            {it: await lines_to(target, it) for it in NAMES},
        )


def _scene(make_cluster: MakeCluster, topic: str, kind: str) -> tuple[Scene, KafkaCluster]:
    """Return a scene, and its target."""
    source = make_cluster("source")
    target = make_cluster("target", brokers=3, properties=_SAFE)
    return Scene(source.bootstrap_servers, target.bootstrap_servers, topic, replication=3, kind=kind), target


async def _until_enough(stream: NumberedStream, turn: Turn, *, turns: int = _TURNS, lasts_s: float = 0.0) -> None:
    """Take one turn after the other, at least so many and for so long, until enough records were written."""
    taken, begun = 0, time.monotonic()
    while taken < turns or stream.sent < _RECORDS or time.monotonic() - begun < lasts_s:
        await turn(taken)
        taken += 1


def _note(what: str, *facts: object) -> None:
    logging.getLogger(__name__).info(what, *facts)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param(False, True, id="target"),
        pytest.param(True, False, id="source"),
        pytest.param(True, True, id="both"),
    ],
)
async def test_nodes_are_cut_off(
    make_cluster: MakeCluster, prefix: str, tmp_path: Path, kind: str, *, source: bool, target: bool
) -> None:
    """
    One without its target loses its tasks to the others; one without its source keeps them and catches up.

    What was on its way arrives when the line is back, long after others have taken over.
    """
    async with (
        _network(make_cluster, prefix, kind) as network,
        running_nodes(network.scene, tmp_path, network.settings) as (nodes, stream),
    ):

        async def turn(number: int) -> None:
            name = nodes.choose(number)
            was_owner = nodes.owner() == name
            others = [it for it in range(PARTITIONS) if it not in nodes.copied(name)]
            seconds = random.uniform(2.0, _LONGEST_CUT_S)
            async with network.cut(name, source=source, target=target):
                cut_at = time.monotonic()
                if target and seconds > _LONGEST_CUT_S / 2:
                    took_s = await all_move_on(network.scene)
                    await nodes.sharing(without=name)
                else:
                    took_s = await all_move_on(network.scene, others)
                await asyncio.sleep(seconds - (time.monotonic() - cut_at))
            back_s = await all_move_on(network.scene)
            await nodes.sharing()
            facts = _role(was_owner=was_owner), name, seconds, took_s, back_s
            _note("%s %s cut off for %.1f s: moved on after %.1f s, then %.1f s", *facts)

        await _until_enough(stream, turn)


async def test_the_group_s_coordinator_is_killed(
    make_cluster: MakeCluster, prefix: str, tmp_path: Path, kind: str
) -> None:
    """The broker leads partitions, coordinates the nodes' group and their transactions; it comes back later."""
    scene, target = _scene(make_cluster, prefix, kind)
    async with running_nodes(scene, tmp_path) as (nodes, stream), ends_watch(scene) as watch:

        async def turn(_number: int) -> None:
            broker = await _coordinator(scene)
            killed_at = time.monotonic()
            await asyncio.to_thread(target.kill, broker)
            await all_move_on(scene)
            pauses = [watch.pause(it, killed_at, time.monotonic()) for it in range(PARTITIONS)]
            await nodes.sharing()
            moved = await _coordinator(scene)
            await asyncio.sleep(random.uniform(0.0, 15.0))
            await asyncio.to_thread(target.start, broker)
            await all_move_on(scene)
            await nodes.sharing()
            longest_s = max(end - begun for begun, end in pauses)
            _note("coordinator moved from broker %d to %d: longest pause %.1f s", broker, moved, longest_s)
            assert moved != broker

        await _until_enough(stream, turn)
        assert not nodes.events("flow_unguarded")


async def _coordinator(scene: Scene) -> int:
    """Return the broker that coordinates the nodes' group."""
    async with looking_at(scene.target) as cluster:
        await cluster.refresh_metadata(())
        request = FindCoordinatorsRequest([f"{scene.alias}-mm2"], GROUP_KEY)
        answer = await cluster.send_to_any(request, "tests")
        ((_, broker, *_),) = answer.coordinators
        return int(broker)


async def test_nodes_are_frozen_long_after_they_were_replaced(
    make_cluster: MakeCluster, prefix: str, tmp_path: Path, kind: str
) -> None:
    """The flow's owner, then another node, each with all that it has started, as a virtual machine that is moved."""
    scene, _ = _scene(make_cluster, prefix, kind)
    async with running_nodes(scene, tmp_path) as (nodes, stream):

        async def turn(number: int) -> None:
            name = nodes.choose(number)
            was_owner = nodes.owner() == name
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(nodes.freeze(name, _LONG_FREEZE_S))
                took_s = await all_move_on(scene)
                await nodes.sharing(without=name)
                assert nodes.owner() != name
            await all_move_on(scene)
            await nodes.sharing()
            _note("%s %s frozen: every partition moved on after %.1f s", _role(was_owner=was_owner), name, took_s)

        await _until_enough(stream, turn)


async def test_nodes_are_killed(make_cluster: MakeCluster, prefix: str, tmp_path: Path, kind: str) -> None:
    """The flow's owner, then another node, each with all that it has started, as if its machine had been lost."""
    scene, _ = _scene(make_cluster, prefix, kind)
    async with running_nodes(scene, tmp_path) as (nodes, stream):

        async def turn(number: int) -> None:
            name = nodes.choose(number)
            was_owner = nodes.owner() == name
            nodes.lose(name)
            took_s = await all_move_on(scene)
            await nodes.sharing(without=name)
            _note("%s %s killed: every partition moved on after %.1f s", _role(was_owner=was_owner), name, took_s)
            await nodes.start(name)
            await nodes.sharing()

        await _until_enough(stream, turn)


async def test_forced_rebalances(make_cluster: MakeCluster, prefix: str, tmp_path: Path, kind: str) -> None:
    """Nodes are thrown out of the group, one or two at a time, while records arrive, or amid transactions."""
    scene, _ = _scene(make_cluster, prefix, kind)
    settings = dict.fromkeys(NAMES, scene.properties(**{"B.heartbeat.interval.ms": 300}))
    chance = random.Random(11)
    async with running_nodes(scene, tmp_path, settings) as (nodes, stream), looking_at(scene.target) as cluster:
        group = Membership(cluster, f"{scene.alias}-mm2", (PROTOCOL_TYPE, PROTOCOL), 6_000)

        async def turn(_number: int) -> None:
            await eventually(all_are_in, within_s=30, what="all nodes are in the group", every_s=0.05)
            await throw_out(group, chance, chance.choice((1, 1, 2)))
            await asyncio.sleep(1.5 * chance.random())

        async def all_are_in() -> bool:
            found = await group.look()
            return found.state == "Stable" and len(found.members) == len(NAMES)

        begun = time.monotonic()
        await _until_enough(stream, turn, turns=_REBALANCES)
        _note("at least %d forced rebalances in %.0f s", _REBALANCES, time.monotonic() - begun)
        await nodes.sharing()


async def test_each_node_is_told_that_it_owns_everything(
    make_cluster: MakeCluster, prefix: str, tmp_path: Path, kind: str
) -> None:
    """A forced split brain: all copy everything, and write positions, checkpoints and group offsets, amid freezes."""
    scene, _ = _scene(make_cluster, prefix, kind)
    async with running_nodes(scene, tmp_path, module=OWNS_ALL) as (nodes, stream):

        async def turn(number: int) -> None:
            name = random.choice(NAMES)
            if number % 4 == 3:
                nodes.lose(name)
                await nodes.start(name)
            else:
                await nodes.freeze(name, random.uniform(0.05, _SHORT_FREEZE_S))
            await asyncio.sleep(random.uniform(0.1, 1.5))

        await _until_enough(stream, turn, lasts_s=_SPLIT_S)
        for event in ("flow_fenced", "task_restarted", "transaction_fenced"):
            _note("%s: %d times", event, len(nodes.events(event)))
        await nodes.sharing()
        assert nodes.events("flow_fenced")


def _role(*, was_owner: bool) -> str:
    return "owner" if was_owner else "other"
