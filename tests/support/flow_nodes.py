"""Nodes of one flow in one process, on brokers that keep their records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from mm2py.connectors.source.group import SourceLife
from mm2py.core.herder.overrides import SOURCE
from mm2py.herder import nodes
from mm2py.herder.node_context import NodeContext
from mm2py.herder.nodes import FlowNodes
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.node import Node
from mm2py.model.herder.node_status import status_key, status_topic
from mm2py.model.herder.share import Share, SharedFlow
from mm2py.model.state import (
    FlowState,
    FlowView,
    GroupView,
    PartitionStage,
    PartitionView,
    TaskState,
    TaskView,
)
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import LogRecord, TopicLog
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import FakeBrokers
from tests.support.flow_rig import FLOW, SETTINGS, changed, flow_context


ONE = Node("one", 1, "m1", "1", "http://one:8083", 1_000)
OTHER = Node("other", 2, "m2", "2", "http://other:8083", 1_000)
TOPIC = status_topic("A")
BUSY = TopicPartition("busy", 0)
ONE_BROKER = changed(SETTINGS, status_storage=attrs.evolve(SETTINGS.worker.status_storage, replication_factor=1))


def use_brokers(monkeypatch: pytest.MonkeyPatch) -> FakeBrokers:
    """Return the target of all nodes of a test."""
    target = FakeBrokers(1)
    monkeypatch.setattr(
        nodes,
        "Cluster",
        lambda _, clock: Cluster(target.endpoint, clock, opener=target.open),  # type: ignore[arg-type]
    )
    return target


@attrs.define(eq=False)
class Running:
    """A node that runs the flow."""

    node: Node
    its: FlowNodes
    events: EventLog
    task: asyncio.Task[None]
    #: What it was asked to do: to look for topics, and to read overrides.
    asked: list[str]
    mirrored: tuple[TopicPartition, ...] = ()
    revision: int = 0
    #: Why overrides cannot be read.
    failure: Exception | None = None

    @property
    def latest(self) -> Any:
        return SimpleNamespace(places=self.mirrored)

    def want_refresh(self) -> None:
        self.asked.append("topics")

    def watch(self, _watcher: object) -> None:
        return

    async def read_overrides(self) -> None:
        self.asked.append("overrides")
        if self.failure is not None:
            raise self.failure

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


def flow_view() -> FlowView:
    partition = PartitionView(BUSY, "A.busy", 0, PartitionStage.COPYING, 5, 5, 0, 5, 50, 7_000.0)
    tasks, groups = (TaskView(0, TaskState.RUNNING, 1, 1),), (GroupView(SOURCE, FlowState.RUNNING),)
    return FlowView(FLOW, FlowState.RUNNING, partitions=(partition,), tasks=tasks, groups=groups)


@asynccontextmanager
async def running(*places: Node) -> AsyncIterator[list[Running]]:
    """Run nodes of one flow, in one process."""
    clock = LoopClock()
    async with asyncio.TaskGroup() as tasks:
        found = [_running(node, clock, tasks) for node in places]
        yield found
        for one in found:
            one.task.cancel()


def _running(node: Node, clock: LoopClock, tasks: asyncio.TaskGroup) -> Running:
    events = EventLog(clock)

    async def read_overrides() -> None:
        await running.read_overrides()

    own = NodeContext(lambda: node, overrides_revision=lambda: running.revision, read_overrides=read_overrides)
    its = FlowNodes(flow_context(clock, events, ONE_BROKER), own, flow_view)
    running = Running(node, its, events, tasks.create_task(its.run()), [])
    its.follow(cast("SourceLife", SimpleNamespace(topics=running)))
    return running


def shared(*places: Node, owner: Node = ONE, generation: int = 3) -> SharedFlow:
    """Return an assignment to *places*, task by task."""
    shares = {it.id: Share(it is owner, frozenset({number})) for number, it in enumerate(places)}
    return SharedFlow(generation, {it.id: it for it in places}, shares, {OTHER.id: ("tasks.max",)})


async def together(one: Running, other: Running) -> None:
    """Have both know that they share the flow, and hear of each other."""
    for it in (one, other):
        it.its.know(shared(ONE, OTHER))
    await asyncio.sleep(7)


async def plant(brokers: FakeBrokers, node_id: str, value: bytes) -> None:
    """Write a status of a node as another program might."""
    async with Cluster(brokers.endpoint, LoopClock(), opener=brokers.open) as cluster:  # type: ignore[arg-type]
        await TopicLog(cluster, TOPIC).append([LogRecord(status_key(FLOW, node_id), value, partition=0)])
