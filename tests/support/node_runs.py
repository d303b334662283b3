"""Several nodes of one flow as processes, beside a stream of numbered records, and what becomes of both."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path

import attrs

from tests.support.control_topics import ControlTopics
from tests.support.daemon import Daemon, Event, command, daemon
from tests.support.eventually import eventually
from tests.support.mirrored import assert_records_mirrored
from tests.support.mm2_file import MARK, marking_exactly_once, mm2_properties
from tests.support.producing import NumberedStream, numbered_stream
from tests.support.topics import create_topic, ends_of, looking_at


NAMES = ("one", "two", "three")
PARTITIONS = 12
RATE = 2_000
#: Runs a node that others take for one on another machine.
OTHER_MACHINE = "tests.support.other_machine"
#: Runs a node that is told, as all others are, that it owns everything.
OWNS_ALL = "tests.support.owns_all"

#: What becomes of records on their way: nothing, or a header in exactly-once mode. One node at a time transforms.
KINDS = ("plain", "transformed")

_LOOK_EVERY_S = 0.05


@attrs.frozen
class Scene:
    """A topic that nodes mirror, from *source* to *target*, given by their bootstrap servers."""

    source: str
    target: str
    topic: str
    #: Copies of each topic at the target.
    replication: int = 1
    kind: str = "plain"

    @property
    def is_transformed(self) -> bool:
        return self.kind == "transformed"

    @property
    def alias(self) -> str:
        """The source's alias: its own, so that the flow's internal topics and group are, too."""
        return self.topic[-6:]

    @property
    def flow(self) -> str:
        return f"{self.alias}->B"

    @property
    def remote_topic(self) -> str:
        return f"{self.alias}.{self.topic}"

    def properties(self, *, source: str = "", target: str = "", **keys: object) -> str:
        """Return a node's settings; it may reach the clusters by other addresses."""
        factors = {f"{name}.replication.factor": self.replication for name in ("offset.storage", "checkpoints.topic")}
        return mm2_properties(
            source or self.source,
            target or self.target,
            aliases=(self.alias, "B"),
            **{
                f"{self.alias}->B.topics": self.topic,
                "tasks.max": 3,
                "listeners": "",
                f"B->{self.alias}.enabled": "false",
                "replication.factor": self.replication,
                "status.storage.replication.factor": self.replication,
                "config.storage.replication.factor": self.replication,
                "emit.checkpoints.interval.seconds": 1,
                "sync.group.offsets.enabled": "true",
                "sync.group.offsets.interval.seconds": 1,
                "B.offset.flush.interval.ms": 5_000,
                **factors,
                **({**marking_exactly_once(self.alias), "copy.epoch.ms": 1_000} if self.is_transformed else {}),
                **keys,
            },
        )


@attrs.define
class Nodes:
    """Nodes of one flow by name. A node can be ended and started again under its name."""

    scene: Scene
    work_dir: Path
    settings: Mapping[str, str]
    runs: AsyncExitStack
    #: The module that is run in place of ``connect-mirror-maker.py``.
    module: str = ""
    running: dict[str, Daemon] = attrs.field(factory=dict)
    ended: list[Daemon] = attrs.field(factory=list)

    async def start(self, name: str) -> None:
        """Start a node; it may not have a share yet."""
        if name in self.running:
            self.ended.append(self.running[name])
        settings = self.settings[name]
        if self.module:
            file = self.work_dir / f"{name}.properties"
            file.write_text(settings)
            run = command(self.work_dir, self.module, str(file), name=name)
        else:
            run = daemon(self.work_dir, settings, name=name)
        self.running[name] = await self.runs.enter_async_context(run)

    def copied(self, name: str) -> set[int]:
        """Return the partitions that a node copies, by its status file."""
        views = self.running[name].flow_view(self.scene.flow).get("partitions", ())
        return {view["source"]["partition"] for view in views}

    def positions(self) -> list[int]:
        """Return how far each partition is copied by any node that runs, by their status files."""
        found = [0] * PARTITIONS
        for run in self.running.values():
            for number, view in run.partition_views(self.scene.topic, self.scene.flow).items():
                found[number] = max(found[number], view["position"])
        return found

    def choose(self, turn: int) -> str:
        """Return the flow's owner in even turns, which mostly transforms the records too, else another node."""
        owner = self.owner()
        others = [name for name in self.running if name != owner]
        return owner if owner and turn % 2 == 0 else random.choice(others)

    def owner(self) -> str:
        """Return the node that owns the flow, by the last assignment that any of them reported."""
        last = max(self.events("flow_shared"), key=lambda event: str(event["timestamp"]))
        by_pid = {f"process {run.pid}": name for name, run in self.running.items()}
        return next((name for pid, name in by_pid.items() if str(last["owner"]).endswith(pid)), "")

    async def sharing(self, *, without: str = "", within_s: float = 60.0) -> None:
        """
        Wait until each node copies something, and all of them everything, each partition once.

        If records are transformed, one node has all partitions, and each a part. In a split brain each has all.
        """

        def shared() -> bool:
            names = [name for name in self.running if name != without]
            copied = {name: self.copied(name) for name in names}
            everything = sorted(number for numbers in copied.values() for number in numbers)
            times = len(names) if self.module == OWNS_ALL else 1
            assert everything == sorted([*range(PARTITIONS)] * times), copied
            busy = [name for name in names if copied[name] or self._has_a_part(name)]
            assert busy == names, f"{busy} have something to do: {copied}"
            return True

        await eventually(shared, within_s=within_s, what="all nodes share the partitions")

    def _has_a_part(self, name: str) -> bool:
        """Whether a node has tasks, be it such as have no partitions because all records are transformed."""
        return self.scene.is_transformed and self.running[name].flow_view(self.scene.flow).get("state") == "running"

    def events(self, name: str) -> list[Event]:
        """Return the events of that name that any node has logged, also in earlier runs."""
        return [event for run in (*self.ended, *self.running.values()) for event in run.events(name)]

    def lose(self, name: str) -> None:
        """Kill a node with all that it has started, at once, as if its machine had been lost."""
        for process in self.running[name].tree():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)

    async def freeze(self, name: str, seconds: float) -> None:
        """Freeze a node with all that it has started."""
        frozen = self.running[name].tree()
        try:
            for process in frozen:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGSTOP)
            await asyncio.sleep(seconds)
        finally:
            for process in reversed(frozen):
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)


@attrs.define
class EndsWatch:
    """When each partition of the remote topic was seen to have more records than before."""

    moved_at: dict[int, list[float]] = attrs.field(factory=dict)
    _ends: dict[int, int] = attrs.field(factory=dict)

    def take(self, ends: Mapping[int, int], now: float) -> None:
        for number, end in ends.items():
            if end > self._ends.get(number, 0):
                self._ends[number] = end
                self.moved_at.setdefault(number, []).append(now)

    def pause(self, partition: int, since: float, until: float) -> tuple[float, float]:
        """Return the longest time in which a partition did not move: when it began, and when it ended."""
        times = self.moved_at[partition]
        begun = max((at for at in times if at < since), default=since)
        inside = [begun, *(at for at in times if since <= at <= until)]
        return max(pairwise([*inside, until] if len(inside) == 1 else inside), key=lambda pair: pair[1] - pair[0])


@asynccontextmanager
async def ends_watch(scene: Scene) -> AsyncIterator[EndsWatch]:
    """Watch the ends of the remote topic's partitions, 20 times a second."""
    watch = EndsWatch()

    async def look_forever() -> None:
        async with looking_at(scene.target) as cluster:
            while True:
                with suppress(AssertionError):  # a partition has no leader at the moment
                    watch.take(await ends_of(cluster, scene.remote_topic), time.monotonic())
                await asyncio.sleep(_LOOK_EVERY_S)

    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(look_forever())
        try:
            yield watch
        finally:
            looking.cancel()


async def all_move_on(scene: Scene, partitions: Sequence[int] = range(PARTITIONS), *, within_s: float = 40.0) -> float:
    """Wait until these partitions of the remote topic have a second more of records; return the seconds until then."""
    begun = time.monotonic()
    async with looking_at(scene.target) as cluster:
        before = await ends_of(cluster, scene.remote_topic)

        async def have_more() -> bool:
            now = await ends_of(cluster, scene.remote_topic)
            assert all(now[number] > before[number] + RATE // PARTITIONS for number in partitions)
            return True

        what = f"partitions {list(partitions)} of {scene.remote_topic} move on"
        await eventually(have_more, within_s=within_s, what=what)
    return time.monotonic() - begun


@asynccontextmanager
async def running_nodes(
    scene: Scene, work_dir: Path, settings: Mapping[str, str] | None = None, *, module: str = ""
) -> AsyncIterator[tuple[Nodes, NumberedStream]]:
    """
    Run three nodes beside a stream of numbered records; check at the end that each has arrived once, in order.

    Consumer groups at the source read along: see `ControlTopics` for what is checked of their offsets at the target.
    """
    await create_topic(scene.source, scene.topic, partitions=PARTITIONS)
    control = ControlTopics(scene.source, scene.target, scene.topic, scene.alias, scene.remote_topic)
    await control.create(scene.replication)
    settings = settings or dict.fromkeys(NAMES, scene.properties())
    async with (
        numbered_stream(
            scene.source,
            scene.topic,
            count=1,
            partitions=PARTITIONS,
            rate=RATE,
            codec="lz4",
            with_keys=True,
            open_ended=True,
        ) as stream,
        AsyncExitStack() as runs,
    ):
        nodes = Nodes(scene, work_dir, settings, runs, module)
        for name in settings:
            await nodes.start(name)
        await nodes.sharing(within_s=120)
        await all_move_on(scene, within_s=120)  # Spark runs on each of them
        async with control.groups_read_along():
            yield nodes, stream
        count = await stream.done()
        ends = [len(range(number, count, PARTITIONS)) for number in range(PARTITIONS)]

        def is_done() -> bool:
            assert (found := nodes.positions()) == ends, f"positions are {found}, the ends {ends}"
            return True

        await eventually(is_done, within_s=120, what=f"{count} records are copied")
        offsets = await assert_records_mirrored(
            scene.source,
            scene.topic,
            scene.target,
            scene.remote_topic,
            count,
            mark=MARK if scene.is_transformed else None,
        )
        await control.assert_up_to_date(offsets if scene.is_transformed else None)
        assert not nodes.events("resume_unproven")
        assert not nodes.events("foreign_records_found")
    await control.assert_never_back(offsets)
    logging.getLogger(__name__).info("%d records are as at their source", count)
