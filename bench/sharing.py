"""
What it costs to share flows between nodes, and how soon a skewed load is even: ``python -m bench.sharing``.

The nodes' membership, reports, assignments and rates are the product's own, against a real broker; all nodes are in
this process, and copy nothing: this module says how much each of their epochs has copied. First nothing happens, for
the cost of being a member. Then all partitions carry the same, until the rates have settled. Then what one node has of
each flow carries ten times as much as the rest.
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
from mm2py.config.connector import MirrorSourceConfig
from mm2py.config.settings import FlowSettings, load_settings
from mm2py.connectors.context import flow_context
from mm2py.connectors.reach import Reach
from mm2py.connectors.task_group import FlowGroup, GroupRequests
from mm2py.core.herder.sharing import TOLERATED_RATIO, Work, flow_tasks
from mm2py.core.source.progress import followed
from mm2py.devkit.broker import KafkaCluster
from mm2py.herder.membership import FlowMembership
from mm2py.herder.node_context import NodeContext
from mm2py.herder.nodes import FlowNodes
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.node import Node
from mm2py.model.herder.share import Candidate, NodeLoad
from mm2py.model.state import FlowState, FlowView, PartitionStage, PartitionView
from mm2py.telemetry.journal import EventLog


TOPICS = 10
TASKS = 9
BASE_BYTES_PER_S = 20_000.0
SKEW = 10
SETTLE_S = 25.0
START_LIMIT_S = 120.0
#: How long all partitions carry the same: some epochs.
EVENLY_S = 45.0
#: What is required, and how long it is watched: flows become even for good.
EVEN_WITHIN_S = 60.0
WATCHED_S = 120.0
LOOK_EVERY_S = 0.5
#: What an epoch takes to end.
RELEASE_S = 0.3
#: `copy.epoch.ms`: what was copied is known at the end of an epoch.
EPOCH_S = 10.0


class MachineClock(SystemClock):
    """Counts from another moment on each machine: what one does for all flows at once, the others do at other times."""

    def __init__(self, since_s: float) -> None:
        self._since_s = since_s

    def monotonic(self) -> float:
        return super().monotonic() - self._since_s


class Copying(FlowGroup[MirrorSourceConfig]):
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

    base: float = 0.0
    hot: dict[str, frozenset[TopicPartition]] = attrs.field(factory=dict)

    def of(self, flow: str, partition: TopicPartition) -> float:
        return self.base * (SKEW if partition in self.hot.get(flow, ()) else 1)


class FlowOnNode:
    """One flow on one node."""

    def __init__(self, settings: FlowSettings, node: Node, partitions: Sequence[TopicPartition], load: Load) -> None:
        clock = MachineClock(since_s=0.7 * node.pid)
        events = EventLog(clock)
        reach = Reach(settings.flow, clock, events, random.random)
        around = flow_context(settings, reach, clock=clock, events=events, jitter=random.random)
        self.flow, self._load = str(settings.flow), load
        self._node, self._partitions = node, partitions
        self._clock = clock
        self._held: tuple[object, tuple[TopicPartition, ...]] = (None, ())
        self._rates: dict[TopicPartition, float] = {}
        self._accounted_at = clock.monotonic()
        self._seen: tuple[object, FlowView] = (None, FlowView(settings.flow, FlowState.RUNNING))
        self._group = Copying(around.of(settings.source_connector))
        us, tasks = NodeContext(lambda: node), flow_tasks(settings.source_connector)
        self.nodes = FlowNodes(around, us, self.view)
        self.nodes.own.follow(lambda: partitions)
        self.membership = FlowMembership(
            around,
            us,
            work=lambda: Work(*tasks, self.nodes.own.slots(), self.nodes.loads()),
            load=self.nodes.own.load,
            load_of=self._load_of,
            on_assignment=self.nodes.know,
            on_rebalanced=lambda _took_s: None,
        )
        self.membership.begin([self._group])

    @property
    def requests(self) -> GroupRequests:
        return self._group.requests

    def copied(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that this node has; what it had until now is accounted for first."""
        share = self.requests.share
        if self._held[0] != share:
            self.end_epoch()
            ours = tuple(it for it in self._partitions if share.has(it)) if share.tasks else ()
            self._held = share, ours
            self._rates = {it: rate for it in ours if (rate := self._rates.get(it)) is not None}
        return self._held[1]

    def carried(self) -> float:
        """Return the bytes per second that this node has."""
        return sum(self._load.of(self.flow, it) for it in self.copied())

    def end_epoch(self) -> None:
        """Note what was copied since the last epoch."""
        now = self._clock.monotonic()
        took_s, self._accounted_at = now - self._accounted_at, now
        if took_s > 0 and self._load.base:
            for it in self._held[1]:
                self._rates[it] = followed(self._load.of(self.flow, it), self._rates.get(it))

    def view(self) -> FlowView:
        """Return what the flow shows on this node, with the rates that it has measured."""
        ours = self.copied()
        if self._clock.monotonic() - self._accounted_at >= EPOCH_S:
            self.end_epoch()
        key = ours, self._accounted_at if self._load.base else None
        if self._seen[0] != key:
            rates, copying = self._rates, PartitionStage.COPYING
            views = tuple(PartitionView(it, it.topic, 0, copying, 0, 0, 0, 0, 0, rates.get(it, 0.0)) for it in ours)
            self._seen = key, attrs.evolve(self._seen[1], partitions=views)
        return self._seen[1]

    def _load_of(self, member: Candidate) -> NodeLoad:
        status = self.nodes.known.others.get(member.node.id)
        if status is not None:
            return status.load
        return self.nodes.own.load() if member.node.id == self._node.id else member.load


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

    def is_whole(self, flow: list[FlowOnNode]) -> bool:
        """Whether each partition of a flow has one node."""
        copied = Counter(it for one in flow for it in one.copied())
        return len(copied) == copied.total() == self.partitions

    def ratio(self, flow: list[FlowOnNode]) -> float:
        """Return what a flow's busiest node carries of an even share."""
        hot = len(self.load.hot[flow[0].flow])
        total = self.load.base * (self.partitions + (SKEW - 1) * hot)
        return max(one.carried() for one in flow) * self.nodes / total

    def change_load(self, base: float, *, is_skewed: bool) -> None:
        """Have all partitions carry that from now on; if *is_skewed*, one node of each flow ten times as much."""
        for flow in self.flows:
            for one in flow:
                one.end_epoch()
        self.load.base = base
        if is_skewed:
            self.load.hot = {flow[0].flow: frozenset(flow[0].copied()) for flow in self.flows}


async def measure(rig: Rig, idle_s: float) -> Found:
    """Let the nodes find each other, stand idle, carry the same, and become even."""
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(loop)
            for flow in rig.flows
            for one in flow
            for loop in (one.membership.run(), one.nodes.run())
        ]
        await _until(lambda: all(rig.is_whole(flow) and all(it.copied() for it in flow) for flow in rig.flows))
        await asyncio.sleep(SETTLE_S)
        before, begun = time.process_time(), time.monotonic()
        await asyncio.sleep(idle_s)
        cpu_s = (time.process_time() - before) / (time.monotonic() - begun) * 60 / rig.nodes
        rig.change_load(BASE_BYTES_PER_S, is_skewed=False)
        await asyncio.sleep(EVENLY_S)
        rig.change_load(BASE_BYTES_PER_S, is_skewed=True)
        even = await _become_even(rig)
        found = Found(cpu_s, tuple(sorted(even.values())), max(map(rig.ratio, rig.flows)))
        for loop in running:
            loop.cancel()
    return found


async def _become_even(rig: Rig) -> dict[int, float]:
    """Return when each flow became even for good, as far as it is watched; those that did not are left out."""
    even: dict[int, float] = {}
    begun = time.monotonic()
    while (passed_s := time.monotonic() - begun) < WATCHED_S:
        for number, flow in enumerate(rig.flows):
            if rig.ratio(flow) > TOLERATED_RATIO:
                even.pop(number, None)
            elif rig.is_whole(flow):
                even.setdefault(number, passed_s)
        await asyncio.sleep(LOOK_EVERY_S)
    return even


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(START_LIMIT_S):
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
    table = Table("nodes", "flows", "partitions", "CPU-s a minute, a node", "even: median", "last", "required", "ratio")
    even = found.even_s
    table.add_row(
        str(order.nodes),
        str(order.flows),
        f"{order.flows * order.partitions:,}",
        f"{found.cpu_s_per_minute:.2f}",
        f"{statistics.median(even):.1f} s" if even else "-",
        f"{even[-1]:.1f} s" if len(even) == order.flows else f"{order.flows - len(even)} are not",
        f"{EVEN_WITHIN_S:.0f} s",
        f"{found.worst_ratio:.2f}",
    )
    console.print(table)
    return 0 if len(even) == order.flows and even[-1] <= EVEN_WITHIN_S else 1


if __name__ == "__main__":
    sys.exit(main())
