"""Several nodes as processes: whichever is killed, frozen or stopped, no record is lost, repeated or reordered."""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import pytest

from mm2py.devkit.broker import KafkaCluster
from tests.support.daemon import Daemon, daemon
from tests.support.eventually import eventually
from tests.support.mirrored import assert_mirrored
from tests.support.mm2_file import mm2_properties
from tests.support.producing import NumberedStream, numbered_stream
from tests.support.soaking import rounds
from tests.support.topics import create_topic, ends_of, looking_at


NAMES = ("one", "two", "three")
PARTITIONS = 12
RATE = 2_000


@attrs.define
class Nodes:
    """Nodes of one flow by name. A node can be ended and started again under its name."""

    work_dir: Path
    settings: str
    runs: AsyncExitStack
    running: dict[str, Daemon] = attrs.field(factory=dict)

    async def start(self, name: str) -> None:
        """Start a node; it may not have a share yet."""
        self.running[name] = await self.runs.enter_async_context(daemon(self.work_dir, self.settings, name=name))

    def copied(self, name: str) -> set[int]:
        """Return the partitions that a node copies, by its status file."""
        views = self.running[name].flow_view().get("partitions", ())
        return {view["source"]["partition"] for view in views}

    async def sharing(self, *, without: str = "") -> None:
        """Wait until each node copies something, and all of them everything, each partition once."""

        def shared() -> bool:
            copied = {name: self.copied(name) for name in self.running if name != without}
            everything = sorted(number for numbers in copied.values() for number in numbers)
            assert everything == list(range(PARTITIONS)), copied
            assert all(copied.values()), copied
            return True

        await eventually(shared, within_s=60, what="all nodes share the partitions")

    def events(self, name: str) -> list[object]:
        return [event for run in self.running.values() for event in run.events(name)]


@asynccontextmanager
async def _nodes(
    source: KafkaCluster, target: KafkaCluster, topic: str, work_dir: Path
) -> AsyncIterator[tuple[Nodes, NumberedStream]]:
    """Run three nodes beside a stream of numbered records, and check at the end that each has arrived once."""
    settings = mm2_properties(
        source.bootstrap_servers,
        target.bootstrap_servers,
        **{"A->B.topics": topic, "tasks.max": 3, "listeners": "", "B->A.enabled": "false"},
    )
    await create_topic(source.bootstrap_servers, topic, partitions=PARTITIONS)
    async with (
        numbered_stream(
            source.bootstrap_servers, topic, count=1, partitions=PARTITIONS, rate=RATE, codec="lz4", open_ended=True
        ) as stream,
        AsyncExitStack() as runs,
    ):
        nodes = Nodes(work_dir, settings, runs)
        for name in NAMES:
            await nodes.start(name)
        await nodes.sharing()
        yield nodes, stream
        count = await stream.done()
        await assert_mirrored(source.bootstrap_servers, topic, target.bootstrap_servers, f"A.{topic}", count)
        assert not nodes.events("resume_unproven")


async def _all_move_on(target: KafkaCluster, remote_topic: str) -> float:
    """Wait until every partition of a remote topic has more records than now; return the seconds until then."""
    begun = time.monotonic()
    async with looking_at(target.bootstrap_servers) as cluster:
        before = await ends_of(cluster, remote_topic)

        async def have_more() -> bool:
            now = await ends_of(cluster, remote_topic)
            assert all(now[number] > end + 2 * RATE // PARTITIONS // 10 for number, end in before.items())
            return True

        await eventually(have_more, within_s=40, what=f"every partition of {remote_topic} moves on")
    return time.monotonic() - begun


@pytest.mark.soak
async def test_nodes_are_killed_frozen_and_stopped(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """One node after the other; the others go on with its partitions, and it comes back."""
    async with _nodes(primary, backup, prefix, tmp_path) as (nodes, _stream):
        for turn in range(rounds(1, soak=16)):
            for end in ("kill", "freeze", "stop"):
                name = NAMES[turn % 3] if end == "kill" else random.choice(NAMES)
                node = nodes.running[name]
                match end:
                    case "kill":
                        await node.kill()
                    case "freeze":
                        os.kill(node.pid, signal.SIGSTOP)
                    case "stop":
                        assert await node.sigterm() == 0
                took_s = await _all_move_on(backup, f"A.{prefix}")
                await nodes.sharing(without=name)
                logging.getLogger(__name__).info("%s %s: every partition moved on after %.1f s", end, name, took_s)
                if end == "freeze":
                    os.kill(node.pid, signal.SIGCONT)
                else:
                    await nodes.start(name)
                await nodes.sharing()


@pytest.mark.soak
@pytest.mark.skipif(not rounds(0, soak=1), reason="as above, with less left over: for scripts/soak alone")
async def test_all_nodes_are_killed_at_once(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """What comes back first goes on exactly where the last ones were."""
    async with _nodes(primary, backup, prefix, tmp_path) as (nodes, _stream):
        for _ in range(rounds(0, soak=6)):
            for name in NAMES:
                await nodes.running[name].kill()
            for name in NAMES:
                await nodes.start(name)
            await nodes.sharing()
