"""Several nodes as processes: whichever is killed, frozen or stopped, no record is lost, repeated or reordered."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import time
from pathlib import Path

import pytest

from mm2py.devkit.broker import KafkaCluster
from tests.support.brokers import MakeCluster
from tests.support.node_runs import KINDS, NAMES, Scene, all_move_on, running_nodes
from tests.support.soaking import rounds


@pytest.mark.soak
async def test_nodes_are_killed_frozen_and_stopped(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """One node after the other; the others go on with its partitions, and it comes back."""
    scene = Scene(primary.bootstrap_servers, backup.bootstrap_servers, prefix)
    async with running_nodes(scene, tmp_path) as (nodes, _stream):
        for turn in range(rounds(1, soak=16)):
            for end in ("kill", "freeze", "stop")[: rounds(2, soak=3)]:
                name = NAMES[turn % 3] if end == "kill" else random.choice(NAMES)
                node = nodes.running[name]
                match end:
                    case "kill":
                        await node.kill()
                    case "freeze":
                        os.kill(node.pid, signal.SIGSTOP)
                    case "stop":
                        assert await node.sigterm() == 0
                took_s = await all_move_on(scene)
                await nodes.sharing(without=name)
                logging.getLogger(__name__).info("%s %s: every partition moved on after %.1f s", end, name, took_s)
                if end == "freeze":
                    os.kill(node.pid, signal.SIGCONT)
                else:
                    await nodes.start(name)
                await nodes.sharing()


@pytest.mark.soak(only="as above, with less left over")
@pytest.mark.parametrize("kind", KINDS)
async def test_all_nodes_are_killed_or_stopped_at_once(
    make_cluster: MakeCluster, prefix: str, tmp_path: Path, kind: str
) -> None:
    """What comes back first goes on exactly where the last ones were."""
    source, target = make_cluster("source"), make_cluster("target", brokers=3)
    scene = Scene(source.bootstrap_servers, target.bootstrap_servers, prefix, replication=3, kind=kind)
    async with running_nodes(scene, tmp_path) as (nodes, stream):
        turn = 0
        while turn < rounds(0, soak=6) or stream.sent < rounds(0, soak=200_000):
            begun = time.monotonic()
            if turn % 2:
                assert await asyncio.gather(*(node.sigterm() for node in nodes.running.values())) == [0, 0, 0]
                logging.getLogger(__name__).info("all nodes have ended after %.1f s", time.monotonic() - begun)
            else:
                await asyncio.gather(*(node.kill() for node in nodes.running.values()))
            for name in NAMES:
                await nodes.start(name)
            await nodes.sharing()
            turn += 1


@pytest.mark.soak(only="the decisions are tested in a process")
async def test_static_nodes_restart_and_one_is_lost(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Three restarts move no partition; a node that is killed and does not come back is replaced after its session."""
    session_s = 30
    scene = Scene(primary.bootstrap_servers, backup.bootstrap_servers, prefix)
    static = {"B.session.timeout.ms": session_s * 1000}
    settings = {name: scene.properties(**static, **{"B.group.instance.id": name}) for name in NAMES}
    async with running_nodes(scene, tmp_path, settings) as (nodes, _stream):
        before = {name: nodes.copied(name) for name in NAMES}
        for name in NAMES:
            begun = time.monotonic()
            assert await nodes.running[name].sigterm() == 0
            ended_s = time.monotonic() - begun
            await nodes.start(name)
            await nodes.running[name].wait_for_event("flow_shared", within_s=120)
            back_s = time.monotonic() - begun
            await nodes.sharing()
            await all_move_on(scene, within_s=120)
            copies_s = time.monotonic() - begun
            assert {it: nodes.copied(it) for it in NAMES} == before
            logging.getLogger(__name__).info(
                "%s: ended after %.1f s, is a member after %.1f s, copies after %.1f s", name, ended_s, back_s, copies_s
            )
        assert not [event for it in NAMES for event in nodes.running[it].events("flow_shared") if event["nodes"] < 3]
        await nodes.running["two"].kill()
        took_s = await all_move_on(scene, within_s=120)
        logging.getLogger(__name__).info("killed: every partition moved on after %.1f s", took_s)
        await nodes.sharing(without="two")

    assert took_s > session_s / 2
