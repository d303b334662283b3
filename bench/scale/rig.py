"""What all parts of the benchmark share: clusters, topics, the mirror and its start, the load, the mirror's cost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import attrs

from bench.candidates import Candidate
from bench.cluster import Cluster, Place, connected_to
from bench.mirror import Mirror, running_on
from bench.scale import arrivals, probes
from bench.scale.arrivals import Arrivals, Window
from bench.scale.order import Order, places, remote
from bench.tree import ProcessTree, Strangers
from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.java import SERVER_FLAGS, JvmOptions
from mm2py.devkit.ports import free_ports
from mm2py.devkit.process import LoggedProcess, start_process


CHECKOUT = Path(__file__).parents[2]
GRACE_S = 30.0
FIRST_POLL_S, POLL_S = 0.1, 0.5
MEMORY_EVERY_S, SCRAPE_EVERY_S = 2.0, 15.0
PROBE_LIMIT_S = 120.0


@attrs.frozen
class Start:
    """Seconds from the mirror's start; None is what did not come within the limit."""

    first_record_s: float | None = None
    all_topics_s: float | None = None
    all_copied_s: float | None = None


@attrs.frozen(eq=False)
class Rig:
    """A mirror that runs between two clusters."""

    order: Order
    candidate: Candidate
    mirror: Mirror
    source: Cluster
    target: Cluster
    clusters: Sequence[KafkaCluster]
    directory: Path
    #: Of mm2py's REST server.
    port: int

    async def ask(self, method: str, path: str = "") -> Any:
        """Ask mm2py about the flow, or change it."""
        url = f"http://127.0.0.1:{self.port}/from:A/to:B{path}"
        async with aiohttp.ClientSession(raise_for_status=True) as http, http.request(method, url) as response:
            return await response.json() if method == "GET" else None

    @property
    def log(self) -> Path:
        return self.directory / "mirror" / "log"

    async def start(self) -> Start:
        """Wait until the records that the topics began with are at the target, or the limit is over."""
        order, found = self.order, Start()
        deadline = self.mirror.started + order.limit_s
        firsts = {remote((topic, 0)) for topic in order.topics}
        unseen, left = set(firsts), {remote(place) for place in places(order.topics)}
        while left and time.monotonic() < deadline:
            self.mirror.check()
            ends = await self.target.ends(firsts if found.all_topics_s is None else left)
            since_s = time.monotonic() - self.mirror.started
            if found.first_record_s is None and any(ends.values()):
                found = attrs.evolve(found, first_record_s=since_s)
            unseen -= ends.keys()
            if found.all_topics_s is None and not unseen:
                found = attrs.evolve(found, all_topics_s=since_s)
            left -= {place for place, end in ends.items() if end}
            await asyncio.sleep(FIRST_POLL_S if found.all_topics_s is None else POLL_S)
        if not left:
            found = attrs.evolve(found, all_copied_s=since_s)
        return found

    async def sow(self, where: Sequence[Place]) -> None:
        """Write one record to each of *where* at the source."""
        await self.source.refresh({topic for topic, _ in where})
        batch = probes.seed()
        await self.source.produce(dict.fromkeys(where, batch))

    async def until_grown(self, before: Mapping[Place, int], within_s: float) -> float | None:
        """Wait until each place of the target has more than *before*; return when that was, or None."""
        deadline, left = time.monotonic() + within_s, dict(before)
        while time.monotonic() < deadline:
            self.mirror.check()
            ends = await self.target.ends(left)
            left = {place: end for place, end in left.items() if ends.get(place, end) <= end}
            if not left:
                return time.monotonic()
            await asyncio.sleep(FIRST_POLL_S)
        return None

    def broker_trees(self) -> list[ProcessTree]:
        return [ProcessTree(cluster.pid(node.broker_id)) for cluster in self.clusters for node in cluster.nodes]


@contextlib.asynccontextmanager
async def rig(
    order: Order, candidate: Candidate, clusters: Sequence[KafkaCluster], directory: Path
) -> AsyncIterator[Rig]:
    """Create the topics, with a record in each partition, and start the mirror."""
    source, target = (cluster.bootstrap_servers for cluster in clusters)
    (port,) = free_ports(1)
    async with connected_to(source) as at_source, connected_to(target) as at_target:
        # A third broker of a cluster votes, and no partition that is measured lies there.
        only = [0, 1] if order.nodes > order.brokers else []
        await at_source.create_topics(order.topics, replicas=order.replicas, assigned_to=only)
        await at_source.refresh(order.topics)
        every, batch = places(order.topics), probes.seed()
        await at_source.produce(dict.fromkeys(every, batch))
        settings = order.settings(candidate, source, target, port)
        profile = directory / "mirror.cprofile" if order.is_profiled else None
        async with (
            running_on(candidate, settings, directory / "mirror", grace_s=GRACE_S, profile=profile) as mirror,
            asyncio.TaskGroup() as tasks,
        ):
            watchers = [tasks.create_task(_scrape(port), name="scrape")] if candidate.is_ours else []
            yield Rig(order, candidate, mirror, at_source, at_target, clusters, directory, port)
            for watcher in watchers:
                watcher.cancel()


@contextlib.asynccontextmanager
async def sampled(mirror: Mirror) -> AsyncIterator[None]:
    """
    Look at the memory of the mirror now and then, and once at the end.

    Not while latencies are measured: the kernel stops a process that it counts the pages of.
    """

    async def sample() -> None:
        while True:
            await asyncio.to_thread(mirror.tree.sample_memory)
            await asyncio.sleep(MEMORY_EVERY_S)

    async with asyncio.TaskGroup() as tasks:
        sampler = tasks.create_task(sample(), name="memory")
        yield
        sampler.cancel()
    mirror.tree.sample_memory()


async def _scrape(port: int) -> None:
    """Ask for the metrics as Prometheus does."""
    async with aiohttp.ClientSession() as http:
        while True:
            await asyncio.sleep(SCRAPE_EVERY_S)
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with http.get(f"http://127.0.0.1:{port}/metrics") as response:
                    await response.read()


@attrs.define(eq=False)
class Load:
    """Records that flow into the busy topics, and who receives them."""

    rig: Rig
    _producer: LoggedProcess
    _consumer: LoggedProcess
    _strangers: Strangers = attrs.Factory(Strangers)
    strangers_cores: float = 0.0
    #: From when records were due until the source had them: the part of the latency that is not the mirror's.
    acknowledged: Window | None = None

    def check(self) -> None:
        """Raise when the mirror or a probe is gone."""
        self.rig.mirror.check()
        for probe in (self._producer, self._consumer):
            if not probe.is_running:
                raise self.rig.mirror.failed(f"the {probe.name} probe ended: {probe.log_tail()}")

    async def run_for(self, seconds: float) -> None:
        """Let records flow."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.check()
            await asyncio.sleep(min(left, 1.0))

    async def end(self) -> Arrivals:
        """Stop sending, wait for what is under way, and return what was received."""
        directory = self.rig.directory
        self.check()
        self.strangers_cores = self._strangers.cores()
        await asyncio.to_thread(self._producer.terminate, PROBE_LIMIT_S)
        sent = int(said(self._producer, probes.SENT) or -1)
        if sent < 0:
            raise self.rig.mirror.failed(f"the producer did not end well: {self._producer.log_tail()}")
        self.acknowledged = Window(**json.loads(said(self._producer, probes.ACKNOWLEDGED) or ""))
        (directory / "sent.unfinished").write_text(str(sent))
        (directory / "sent.unfinished").rename(directory / "sent")
        if await asyncio.to_thread(self._consumer.wait, PROBE_LIMIT_S):
            raise self.rig.mirror.failed(f"the receiver did not end well: {self._consumer.log_tail()}")
        count = sum(self.rig.order.busy.values())
        return arrivals.read(directory / "arrivals", sent=sent, places=count)

    def kill(self) -> None:
        """End both probes."""
        for probe in (self._producer, self._consumer):
            probe.kill()


def said(probe: LoggedProcess, word: str) -> str | None:
    """Return what a probe printed after *word*, or None."""
    for line in probe.log_text().splitlines():
        if line.split(" ")[0] == word:
            return line[len(word) :]
    return None


@contextlib.asynccontextmanager
async def load(rig: Rig) -> AsyncIterator[Load]:
    """Send records to the busy topics from the moment on that someone receives them."""
    order, directory = rig.order, rig.directory
    where = places(order.busy)
    source, target = (cluster.bootstrap_servers for cluster in rig.clusters)
    for name, those in (("busy", where), ("remote", [remote(place) for place in where])):
        (directory / name).write_text(json.dumps(those))
    consumer = _probe(directory, "consume", target, "remote", "arrivals", "sent")
    try:
        await _until_ready(rig, consumer)
        producer = _probe(directory, "produce", source, "busy", str(order.rate))
    except BaseException:
        consumer.kill()
        raise
    running = Load(rig, producer, consumer)
    try:
        yield running
    finally:
        await asyncio.to_thread(running.kill)


@attrs.define(eq=False)
class Bystander:
    """A producer at the target that has nothing to do with the mirror."""

    rig: Rig
    _producer: LoggedProcess

    async def end(self) -> Arrivals:
        """Stop sending; return when the records were acknowledged."""
        await asyncio.to_thread(self._producer.terminate, PROBE_LIMIT_S)
        sent = int(said(self._producer, probes.SENT) or -1)
        if sent < 0:
            raise self.rig.mirror.failed(f"the bystander did not end well: {self._producer.log_tail()}")
        return arrivals.read(self.rig.directory / "acknowledged", sent=sent, places=sum(self.rig.order.others.values()))

    def kill(self) -> None:
        self._producer.kill()


@contextlib.asynccontextmanager
async def bystander(rig: Rig) -> AsyncIterator[Bystander]:
    """Send records to topics of the target's own."""
    order, directory = rig.order, rig.directory
    await rig.target.create_topics(order.others, replicas=order.replicas)
    (directory / "others").write_text(json.dumps(places(order.others)))
    target = rig.clusters[1].bootstrap_servers
    running = Bystander(
        rig, _probe(directory, "produce", target, "others", str(order.rate), "acknowledged", name="bystander")
    )
    try:
        yield running
    finally:
        await asyncio.to_thread(running.kill)


async def _until_ready(rig: Rig, consumer: LoggedProcess) -> None:
    async with asyncio.timeout(PROBE_LIMIT_S):
        while said(consumer, probes.READY) is None:
            rig.mirror.check()
            if not consumer.is_running:
                raise rig.mirror.failed(f"the consume probe ended: {consumer.log_tail()}")
            await asyncio.sleep(0.1)


def _probe(directory: Path, role: str, *arguments: str, name: str = "") -> LoggedProcess:
    command = [sys.executable, "-m", "bench.scale.probes", role, *arguments]
    name = name or role
    return start_process(
        name, command, log_file=directory / f"{name}.log", cwd=directory, env={"PYTHONPATH": str(CHECKOUT)}
    )


def clusters_of(order: Order, scratch: Path, logs: Path) -> list[KafkaCluster]:
    """Return both clusters, not started."""
    found = []
    for name in ("source", "target"):
        flags: tuple[str, ...] = ("-Xms1g", *SERVER_FLAGS)
        if order.is_profiled:
            # A folder: each broker makes a file of its own there, when it ends.
            recordings = logs / f"{name}-recordings"
            recordings.mkdir()
            flags += (f"-XX:StartFlightRecording=filename={recordings},settings=profile,dumponexit=true",)
        found.append(KafkaCluster(name, brokers=order.nodes, jvm=JvmOptions(2048, flags), work_dir=scratch / name))
    return found
