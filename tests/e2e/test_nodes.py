"""Several nodes as processes: whichever is killed, frozen or stopped, no record is lost, repeated or reordered."""

from __future__ import annotations

import logging
import os
import random
import signal
from pathlib import Path

import pytest

from mm2py.devkit.broker import KafkaCluster
from tests.support.node_runs import NAMES, Scene, all_move_on, running_nodes
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
