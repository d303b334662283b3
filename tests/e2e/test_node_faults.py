"""
Three nodes of a flow whose target has three brokers; in a soak, 200 000 numbered records arrive once each, in order.

Nodes are cut off from either cluster, the broker that coordinates their group is killed, and nodes are frozen until
long after others have taken over. They do not talk to each other, so there is nothing else to cut.
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

from mm2py.devkit.broker import KafkaCluster
from mm2py.wire.groups.requests import GROUP_KEY, FindCoordinatorsRequest
from tests.support.brokers import MakeCluster
from tests.support.node_runs import NAMES, PARTITIONS, Nodes, Scene, all_move_on, ends_watch, running_nodes
from tests.support.producing import NumberedStream
from tests.support.slow_link import SlowLink, slow_link
from tests.support.soaking import rounds
from tests.support.topics import looking_at


pytestmark = pytest.mark.soak(only="four brokers and three daemons")

_RECORDS = rounds(0, soak=200_000)
_TURNS = rounds(0, soak=3)
_LONGEST_CUT_S = 25.0
_LONG_FREEZE_S = 60.0
#: All that was acknowledged by two of three replicas stays.
_SAFE = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}

Turn = Callable[[Nodes], Awaitable[None]]


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
async def _network(make_cluster: MakeCluster, topic: str) -> AsyncIterator[Network]:
    source = make_cluster("source", proxied=NAMES)
    target = make_cluster("target", brokers=3, properties=_SAFE, proxied=NAMES)
    scene = Scene(source.bootstrap_servers, target.bootstrap_servers, topic, replication=3)
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


async def _until_enough(nodes: Nodes, stream: NumberedStream, turn: Turn) -> None:
    """Take one turn after the other, at least a few, until enough records were written."""
    turns = 0
    while turns < _TURNS or stream.sent < _RECORDS:
        await turn(nodes)
        turns += 1


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
    make_cluster: MakeCluster, prefix: str, tmp_path: Path, *, source: bool, target: bool
) -> None:
    """
    One without its target loses its tasks to the others; one without its source keeps them and catches up.

    What was on its way arrives when the line is back, long after others have taken over.
    """
    async with (
        _network(make_cluster, prefix) as network,
        running_nodes(network.scene, tmp_path, network.settings) as (nodes, stream),
    ):
        names = iter(NAMES * 1_000)

        async def turn(nodes: Nodes) -> None:
            name = next(names)
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
            facts = ("the owner " if was_owner else "") + name
            _note("%s cut off for %.1f s: moved on after %.1f s, then %.1f s", facts, seconds, took_s, back_s)

        await _until_enough(nodes, stream, turn)


async def test_the_group_s_coordinator_is_killed(make_cluster: MakeCluster, prefix: str, tmp_path: Path) -> None:
    """The broker leads partitions, coordinates the nodes' group and their transactions; it comes back later."""
    source = make_cluster("source")
    target = make_cluster("target", brokers=3, properties=_SAFE)
    scene = Scene(source.bootstrap_servers, target.bootstrap_servers, prefix, replication=3)
    async with running_nodes(scene, tmp_path) as (nodes, stream), ends_watch(scene) as watch:

        async def turn(nodes: Nodes) -> None:
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

        await _until_enough(nodes, stream, turn)
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
    make_cluster: MakeCluster, prefix: str, tmp_path: Path
) -> None:
    """The flow's owner, then another node, each with all that it has started, as a virtual machine that is moved."""
    source = make_cluster("source")
    target = make_cluster("target", brokers=3, properties=_SAFE)
    scene = Scene(source.bootstrap_servers, target.bootstrap_servers, prefix, replication=3)
    async with running_nodes(scene, tmp_path) as (nodes, stream):
        kinds = iter((True, False) * 1_000)

        async def turn(nodes: Nodes) -> None:
            owner, is_owner = nodes.owner(), next(kinds)
            name = owner if is_owner else random.choice([it for it in NAMES if it != owner])
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(nodes.freeze(name, _LONG_FREEZE_S))
                took_s = await all_move_on(scene)
                await nodes.sharing(without=name)
                assert nodes.owner() != name
            await all_move_on(scene)
            await nodes.sharing()
            _note("%s %s frozen: every partition moved on after %.1f s", "owner" if is_owner else "other", name, took_s)

        await _until_enough(nodes, stream, turn)
