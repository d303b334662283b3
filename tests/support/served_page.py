"""The status page before a daemon that shows whatever a test wants it to show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from mm2py.clock import SystemClock
from mm2py.core.herder.overrides import CHECKPOINT, HEARTBEAT, SOURCE
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.state import (
    ClusterView,
    FlowState,
    FlowView,
    GroupView,
    PartitionStage,
    PartitionView,
    SparkView,
)
from mm2py.rest.server import RestServer
from mm2py.telemetry.events import RestListening
from tests.support.eventually import eventually
from tests.support.rest_asking import PlainMetrics
from tests.support.rest_node import NodeDouble, node_double, some_view


@attrs.define
class Served:
    """A node and where its page is; it can be stopped and served again at the same address."""

    node: NodeDouble
    server: RestServer
    url: str
    serving: asyncio.Task[None]

    def show(self, **facts: object) -> None:
        """Have the flow's view look different from now on."""
        (flow, *others) = self.node.shown.flows
        self.node.shown = attrs.evolve(self.node.shown, flows=(attrs.evolve(flow, **facts), *others))


@asynccontextmanager
async def serving(folder: Path, *lines: str, listener: str = "http://127.0.0.1:0") -> AsyncIterator[Served]:
    """Serve a node that is only shown, for the block."""
    node = node_double(folder, SystemClock(), f"listeners = {listener}", *lines)
    node.shown = attrs.evolve(some_view(), spark=SparkView(2, 2, 0, is_up=True))
    async with asyncio.TaskGroup() as tasks:
        server = RestServer(node, clock=SystemClock(), events=node.events, metrics=PlainMetrics())
        running = tasks.create_task(server.run(), name="rest")
        url = await eventually(lambda: listening(node), within_s=10, what="the server listens")
        try:
            yield Served(node, server, url, running)
        finally:
            running.cancel()


def listening(node: NodeDouble) -> str | None:
    found = node.events.of(RestListening)
    return found[-1].url if found else None


def partitions(topics: int, each: int) -> tuple[PartitionView, ...]:
    """Return partitions of topics ``topic-0000`` and so on, whose lag falls with their number."""
    return tuple(
        PartitionView(
            TopicPartition(f"topic-{number:04}", one), f"A.topic-{number:04}", 0, PartitionStage.COPYING,
            position=1000 + one, downstream=1000, lag=topics - number, records=9, bytes=900, bytes_per_s=10.0,
        )
        for number in range(topics)
        for one in range(each)
    )  # fmt: skip


def flow_between(source: str, target: str, *, copies: bool = True) -> FlowView:
    """Return a running flow, or a direction that only has heartbeats."""
    connectors = (SOURCE, CHECKPOINT, HEARTBEAT) if copies else (HEARTBEAT,)
    return FlowView(
        Flow(source, target),
        FlowState.RUNNING,
        lag=4 if copies else None,
        records_per_s=12_345.0 if copies else 0.0,
        groups=tuple(GroupView(it, FlowState.RUNNING) for it in connectors),
        clusters=(ClusterView(source, is_reachable=True), ClusterView(target, is_reachable=True)),
    )
