"""
What it costs to share flows between nodes, and how soon a skewed load is even: ``python -m bench.sharing``.

The nodes' membership, reports and assignments are the product's own, against a real broker; all nodes are in this
process, and copy nothing: a partition has the load that this module says. First nothing happens, for the cost of being
a member. Then what one node has of each flow carries ten times as much as the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
from rich.console import Console
from rich.table import Table

from mm2py.clock import SystemClock
from mm2py.config.settings import FlowSettings, load_settings
from mm2py.core.sharing import TOLERATED_RATIO, Work, flow_tasks
from mm2py.devkit.broker import KafkaCluster
from mm2py.flow.membership import FlowMembership
from mm2py.flow.nodes import FlowNodes
from mm2py.flow.reach import Reach
from mm2py.flow.task_group import FlowContext, FlowGroup, GroupRequests
from mm2py.model.flow import TopicPartition
from mm2py.model.node import Node
from mm2py.model.node_status import noticeable_rates
from mm2py.model.share import Candidate, NodeLoad
from mm2py.model.state import FlowState, FlowView, PartitionStage, PartitionView
from mm2py.telemetry.journal import EventLog


TOPICS = 10
TASKS = 9
BASE_BYTES_PER_S = 20_000.0
SKEW = 10
SETTLE_S = 25.0
START_LIMIT_S = 120.0
EVEN_LIMIT_S = 120.0
LOOK_EVERY_S = 0.5
#: What an epoch takes to end.
RELEASE_S = 0.3


class MachineClock(SystemClock):
    """Counts from another moment on each machine: what one does for all flows at once, the others do at other times."""

    def __init__(self, since_s: float) -> None:
        self._since_s = since_s

    def monotonic(self) -> float:
        return super().monotonic() - self._since_s


class Copying(FlowGroup):
    """Stands for the source task group of a flow: it has a share, and copies nothing."""

    connector = "MirrorSourceConnector"
    name = "source"

    async def _live(self) -> None:
        raise NotImplementedError

    async def until_released(self) -> None:
        await asyncio.sleep(RELEASE_S)


@attrs.define(eq=False)
class Load:
    """What each partition carries, in bytes per second."""

    is_skewed: bool = False
    hot: dict[str, frozenset[TopicPartition]] = attrs.field(factory=dict)

    def of(self, flow: str, partition: TopicPartition) -> float:
        if not self.is_skewed:
            return 0.0
        return BASE_BYTES_PER_S * (SKEW if partition in self.hot[flow] else 1)


class FlowOnNode:
    """One flow on one node."""

    def __init__(self, settings: FlowSettings, node: Node, partitions: Sequence[TopicPartition], load: Load) -> None:
        clock = MachineClock(since_s=0.7 * node.pid)
        events = EventLog(clock)
        around = FlowContext(settings, Reach(settings.flow, clock, events, random.random), clock, events, random.random)
        self.flow, self._load = str(settings.flow), load
        self._node, self._partitions = node, partitions
        self._seen: tuple[object, FlowView] = (None, FlowView(settings.flow, FlowState.RUNNING))
        self._group = Copying(around)
        self.nodes = FlowNodes(around, lambda: node, self.view)
        self.nodes.mirrored = lambda: partitions
        self.membership = FlowMembership(around, lambda: node)
        self.membership.on_assignment = self.nodes.know
        self.membership.load = self._own_load
        self.membership.leader.work = lambda: Work(*flow_tasks(settings), self.nodes.slots(), self.nodes.loads())
        self.membership.leader.load_of = self._load_of
        self.membership.begin([self._group])

    @property
    def requests(self) -> GroupRequests:
        return self._group.requests

    def copied(self) -> list[TopicPartition]:
        """Return the partitions that this node has."""
        return [view.source for view in self.view().partitions]

    def carried(self) -> float:
        """Return the bytes per second that this node has."""
        return sum(self._load.of(self.flow, it) for it in self.copied())

    def view(self) -> FlowView:
        """Return what the flow shows on this node, made once for each share and load."""
        share = self.requests.share
        if self._seen[0] != (share, self._load.is_skewed):
            ours = [it for it in self._partitions if share.has(it)] if share.tasks else []
            views = tuple(
                PartitionView(
                    it, it.topic, 0, PartitionStage.COPYING, 0, 0, 0, 0, 0, 0.0, byte_rate=self._load.of(self.flow, it)
                )
                for it in ours
            )
            self._seen = (share, self._load.is_skewed), attrs.evolve(self._seen[1], partitions=views)
        return self._seen[1]

    def _own_load(self) -> NodeLoad:
        return NodeLoad(noticeable_rates(self.view().partitions), *self.nodes.elsewhere())

    def _load_of(self, member: Candidate) -> NodeLoad:
        status = self.nodes.others.get(member.node.id)
        if status is not None:
            return status.load
        return self._own_load() if member.node.id == self._node.id else member.load


@attrs.frozen
class Found:
    """The figures of one run."""

    cpu_s_per_minute: float
    even_s: tuple[float, ...]
    worst_ratio: float


@attrs.define(eq=False)
class Rig:
    """All flows on all nodes."""

    nodes: int
    partitions: int
    load: Load
    flows: list[list[FlowOnNode]]

    def is_whole(self) -> bool:
        """Whether each partition of each flow has one node."""
        copied = [Counter(it for one in flow for it in one.copied()) for flow in self.flows]
        return all(len(it) == it.total() == self.partitions for it in copied)

    def ratios(self) -> list[float]:
        """Return, for each flow, what its busiest node carries of an even share."""
        carried = [[one.carried() for one in flow] for flow in self.flows]
        return [max(it) * self.nodes / sum(it) for it in carried]


async def measure(rig: Rig, idle_s: float) -> Found:
    """Let the nodes find each other, stand idle, and become even."""
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(loop)
            for flow in rig.flows
            for one in flow
            for loop in (one.membership.run(), one.nodes.run())
        ]
        await _until(lambda: rig.is_whole() and all(one.copied() for flow in rig.flows for one in flow), START_LIMIT_S)
        await asyncio.sleep(SETTLE_S)
        before, begun = time.process_time(), time.monotonic()
        await asyncio.sleep(idle_s)
        cpu_s = (time.process_time() - before) / (time.monotonic() - begun) * 60 / rig.nodes
        rig.load.hot = {flow[0].flow: frozenset(flow[0].copied()) for flow in rig.flows}
        rig.load.is_skewed = True
        even: dict[int, float] = {}
        begun = time.monotonic()

        def are_even() -> bool:
            for number, ratio in enumerate(rig.ratios()):
                if ratio <= TOLERATED_RATIO and rig.is_whole():
                    even.setdefault(number, time.monotonic() - begun)
            return len(even) == len(rig.flows)

        with contextlib.suppress(TimeoutError):
            await _until(are_even, EVEN_LIMIT_S)
        found = Found(cpu_s, tuple(sorted(even.values())), max(rig.ratios()))
        for loop in running:
            loop.cancel()
    return found


async def _until(is_so: Callable[[], bool], within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110  # a clock sets no event
            await asyncio.sleep(LOOK_EVERY_S)


def _settings(target: str, flows: int, directory: Path) -> list[FlowSettings]:
    aliases = [f"a{number}" for number in range(flows)]
    lines = [
        f"clusters = {', '.join(aliases)}, B",
        f"B.bootstrap.servers = {target}",
        f"tasks.max = {TASKS}",
        "offset.storage.replication.factor = 1",
        "status.storage.replication.factor = 1",
        *(f"{alias}.bootstrap.servers = {target}" for alias in aliases),
        *(f"{alias}->B.enabled = true" for alias in aliases),
    ]
    file = directory / "mm2.properties"
    file.write_text("\n".join(lines))
    return [flow for flow in load_settings(file).flows if flow.is_enabled]


def main(argv: Sequence[str] | None = None) -> int:
    """Run as ``python -m bench.sharing``; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.sharing", description=__doc__)
    parser.add_argument("--nodes", type=int, default=3, metavar="N")
    parser.add_argument("--flows", type=int, default=20, metavar="N")
    parser.add_argument("--partitions", type=int, default=1_000, metavar="N", help="of each flow")
    parser.add_argument("--idle-s", type=float, default=60.0, metavar="S")
    order = parser.parse_args(argv)
    console = Console()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mm2py-bench-")))
        target = stack.enter_context(KafkaCluster("target", work_dir=directory / "target"))
        load = Load()
        nodes = [Node(f"host{it}", it + 1, f"machine{it}", "1", f"http://host{it}:8083") for it in range(order.nodes)]
        partitions = [TopicPartition(f"topic-{it % TOPICS}", it // TOPICS) for it in range(order.partitions)]
        settings = _settings(target.bootstrap_servers, order.flows, directory)
        flows = [[FlowOnNode(it, node, partitions, load) for node in nodes] for it in settings]
        found = asyncio.run(measure(Rig(order.nodes, order.partitions, load, flows), order.idle_s))
    table = Table("nodes", "flows", "partitions", "CPU-s a minute, a node", "even: median", "last", "worst ratio")
    even = found.even_s
    table.add_row(
        str(order.nodes),
        str(order.flows),
        f"{order.flows * order.partitions:,}",
        f"{found.cpu_s_per_minute:.2f}",
        f"{statistics.median(even):.1f} s" if even else "-",
        f"{even[-1]:.1f} s" if len(even) == order.flows else f"{order.flows - len(even)} are not",
        f"{found.worst_ratio:.2f}",
    )
    console.print(table)
    return 0 if len(even) == order.flows else 1


if __name__ == "__main__":
    sys.exit(main())
