"""Nodes with a `group.instance.id` (KIP-345): a restart moves nothing, and of two with one id the later one works."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.herder.share import SLOTS, slot_of
from mm2py.model.state import FlowState, FlowView, TaskState
from mm2py.telemetry.events import FlowShared, FlowStarted, FlowTakenOver, InstanceFenced
from tests.support.eventually import eventually
from tests.support.groups import describe
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.nodes import RunningNode, running_node
from tests.support.producing import NumberedStream, numbered_stream
from tests.support.reading import read_numbers
from tests.support.records import assert_numbers
from tests.support.topics import create_topic


PARTITIONS = 16
TASKS = 4


@attrs.frozen
class Nodes:
    """Nodes of one flow, each started with a `group.instance.id`, beside a stream of numbered records."""

    source: str
    target: str
    topic: str
    work_dir: Path
    stream: NumberedStream
    session_ms: int

    @property
    def flow(self) -> Flow:
        return Flow(self.topic[-6:], "B")

    @property
    def remote_topic(self) -> str:
        return f"{self.flow.source}.{self.topic}"

    def node(self, instance: str, *, name: str = "") -> AbstractAsyncContextManager[RunningNode]:
        keys = {
            f"{self.flow}.topics": self.topic,
            "tasks.max": TASKS,
            "copy.epoch.ms": 1000,
            "B.group.instance.id": instance,
            "B.session.timeout.ms": self.session_ms,
            "B.heartbeat.interval.ms": 300,
        }
        properties = mm2_properties(self.source, self.target, aliases=(self.flow.source, "B"), **keys)
        return running_node(properties, self.work_dir, name or instance)

    def view(self, node: RunningNode) -> FlowView:
        return node.view(self.flow)

    def tasks(self, *nodes: RunningNode) -> list[list[int]]:
        return [[task.task for task in self.view(node).tasks] for node in nodes]

    def copied(self, *nodes: RunningNode) -> list[tuple[list[int], set[int]]]:
        """Return each node's tasks and partitions."""
        partitions = [{view.source.partition for view in self.view(node).partitions} for node in nodes]
        return list(zip(self.tasks(*nodes), partitions, strict=True))

    async def sharing(self, *nodes: RunningNode, within_s: float = 30) -> None:
        """Wait until the tasks are spread over these nodes, and each runs."""

        def shared() -> bool:
            tasks = self.tasks(*nodes)
            assert sorted(itertools.chain(*tasks)) == list(range(TASKS)), tasks
            assert all(tasks), tasks
            assert {self.view(node).state for node in nodes} == {FlowState.RUNNING}
            return True

        await eventually(shared, within_s=within_s, what=f"{len(nodes)} nodes share the tasks")

    async def moves_on(self) -> None:
        """Wait until all has arrived that is there now."""
        await await_arrived(self.target, self.remote_topic, self.stream.sent)

    async def complete(self) -> None:
        """End the stream; each of its records is to arrive once, in order."""
        written = await self.stream.done()
        await await_arrived(self.target, self.remote_topic, written)
        assert_numbers(await read_numbers(self.target, self.remote_topic), written)


@asynccontextmanager
async def _nodes(
    source: KafkaCluster, target: KafkaCluster, topic: str, work_dir: Path, *, session_ms: int = 60_000
) -> AsyncIterator[Nodes]:
    """
    Make a topic, into which records come: so few that a node which catches up seems to carry no more than another.

    Half of its partitions are in either half of the slots, so that nothing needs to move once loads are compared.
    """
    servers = source.bootstrap_servers
    topic = next(
        name
        for name in (f"{number}-{topic}" for number in itertools.count())
        if sum(slot_of(TopicPartition(name, it)) < SLOTS // 2 for it in range(PARTITIONS)) == PARTITIONS // 2
    )
    await create_topic(servers, topic, partitions=PARTITIONS)
    async with numbered_stream(servers, topic, count=1, partitions=PARTITIONS, rate=100, open_ended=True) as stream:
        yield Nodes(servers, target.bootstrap_servers, topic, work_dir, stream, session_ms)


async def test_a_static_member_that_restarts_finds_its_share(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Each of two nodes is stopped and started again: nothing moves, neither to the other one nor away from it. One
    that was drained leaves at once.
    """
    async with _nodes(primary, backup, prefix, tmp_path) as nodes, AsyncExitStack() as runs:
        running = [await runs.enter_async_context(nodes.node(name)) for name in ("one", "two")]
        await nodes.sharing(*running)
        before = nodes.copied(*running)
        first, second = running
        shown = second.events.of(FlowShared)[-1]
        for place, name in enumerate(("one", "two")):
            await running[place].stop()
            running[place] = await runs.enter_async_context(nodes.node(name))
            await nodes.sharing(*running)
        after = nodes.copied(*running)
        await nodes.complete()
        running[0].node.control.drain_node(is_drained=True)
        members = []
        for node in running:
            await node.stop()
            members.append((await describe(nodes.target, f"{nodes.flow.source}-mm2")).members)

    assert after == before
    assert members == [1, 1], "a drained node leaves, one that is to come back does not"
    (told,) = second.events.of(FlowShared)[second.events.of(FlowShared).index(shown) + 1 :]
    assert (told.nodes, told.tasks) == (2, shown.tasks)
    assert [len(node.events.of(FlowStarted)) for node in (first, second, *running)] == [1, 1, 1, 1]


async def test_of_two_nodes_with_one_instance_the_later_one_works(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    A second process joins under the id of one that runs: that one writes nothing more, says so, and does not fight.

    Once the second has been stopped for a session, the first continues.
    """
    async with (
        _nodes(primary, backup, prefix, tmp_path, session_ms=6_000) as nodes,
        nodes.node("one") as one,
        nodes.node("two") as two,
    ):
        await nodes.sharing(one, two)
        async with nodes.node("one", name="namesake") as namesake:
            await nodes.sharing(namesake, two)
            (fenced,) = await eventually(lambda: one.events.of(InstanceFenced), within_s=10, what="it is fenced")
            await nodes.moves_on()
            await asyncio.sleep(1)
            stood_back = nodes.view(one)
            rebalances = [len(node.events.of(FlowShared)) for node in (namesake, two)]
            await namesake.stop()
        await nodes.sharing(one, two)
        await nodes.complete()
        for node in (one, two):
            await node.stop()

    assert fenced.instance == "one"
    assert "process" in fenced.node
    assert stood_back.state is FlowState.STANDBY
    assert "has the same group.instance.id, one" in stood_back.last_error
    assert "of its own" in stood_back.hint
    assert {task.state for task in stood_back.tasks} <= {TaskState.IDLE}
    assert max(rebalances) < 4
    assert len(one.events.of(InstanceFenced)) == 1
    assert len(one.events.of(FlowTakenOver)) == 1
