"""
A story about Connect workers in virtual time, without chance: clusters of one broker, nodes by name, and what operators
ask these. Each story runs in a process of its own, like a run of the simulation.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.simulated.cluster import Cluster
from tests.simulated.http import Answer, ask
from tests.simulated.journal import Journal
from tests.simulated.loop import Host, SimClock, SimLoop
from tests.simulated.network import Network
from tests.simulated.node import SimNode
from tests.simulated.taming import tamed
from tests.support.batches import Content, build_batch
from tests.support.contents import decode


#: What is asked of a node is not answered before it has started, and asked again then.
_STARTS_S, _LOOKS_S = 30.0, 1.0
_UNAVAILABLE = 503


class Stage:
    """Clusters A, B and C, and the workers of a story."""

    def __init__(self) -> None:
        self.loop = SimLoop(1)
        self.clock = SimClock(self.loop)
        self.network = Network(self.loop, 1)
        self.journal = Journal(self.loop, keeps=False)
        self.clusters = {name: self._cluster(name) for name in "ABC"}
        self.nodes: dict[str, SimNode] = {}
        self._numbers = itertools.count()

    def _cluster(self, name: str) -> Cluster:
        cluster = Cluster(name, self.loop, self.network, 1, brokers=1, tell=self.journal.tell)
        cluster.wall_ms = self.clock.wall_ms
        return cluster

    def servers(self, cluster: str) -> str:
        """Return the bootstrap servers of a cluster."""
        return self.clusters[cluster].servers

    def named_again(self, cluster: str) -> str:
        """Return bootstrap servers that name the same cluster by another host."""
        name = f"also-{cluster.lower()}"
        self.network.listen(name, 9092, self.clusters[cluster].brokers[0])
        return f"{name}:9092"

    # Records and groups.

    def produce(self, topic: str, count: int) -> None:
        """Append so many records to the only partition of a topic at A, which is created."""
        cluster = self.clusters["A"]
        [partition] = (cluster.topics.get(topic) or cluster.create(topic, 1)).partitions
        records = [Content(delta, self.clock.wall_ms(), b"key", b"%d" % next(self._numbers)) for delta in range(count)]
        batch = build_batch(records, producer=(7, next(self._numbers), 0))
        cluster.appended(cluster.brokers[0], partition, partition.append(batch, "producer"))

    def count(self, cluster: str, topic: str) -> int | None:
        """Return how many records a topic has; None if it does not exist."""
        found = self.clusters[cluster].topics.get(topic)
        return None if found is None else sum(partition.end for partition in found.partitions)

    def values(self, cluster: str, topic: str) -> list[bytes | None]:
        """Return the values of the only partition of a topic, in their order."""
        [partition] = self.clusters[cluster].topics[topic].partitions
        return [record.value for batch in partition.batches for record in decode(batch.raw)]

    def last(self, cluster: str, topic: str) -> dict[bytes | None, bytes | None]:
        """Return the last value of each key of a topic."""
        batches = [batch for it in self.clusters[cluster].topics[topic].partitions for batch in it.batches]
        return {record.key: record.value for batch in batches for record in decode(batch.raw)}

    def commit(self, cluster: str, group: str, topic: str, offset: int) -> None:
        """Have a group without members stand at an offset of partition 0."""
        found = self.clusters[cluster].coordinator.group(group)
        found.protocol_type = "consumer"
        found.offsets[topic, 0] = offset, ""

    def committed(self, cluster: str, group: str, topic: str) -> int | None:
        """Return where a group stands in partition 0 of a topic."""
        found = self.clusters[cluster].coordinator.known(group).offsets.get((topic, 0))
        return None if found is None else found[0]

    # Nodes.

    def worker(self, name: str, target: str, *, group: str = "connect", **lines: str) -> None:
        """Start a node of a Connect worker, whose file names the cluster *target*."""
        kinds = ("config", "offset", "status")
        settings = {
            "bootstrap.servers": self.servers(target),
            "group.id": group,
            **{f"{kind}.storage.topic": f"{group}-{kind}" for kind in kinds},
            **{f"{kind}.storage.replication.factor": "1" for kind in kinds},
            **lines,
        }
        self.node(name, settings, is_worker=True)

    def standalone(self, name: str, target: str, connectors: Mapping[str, Mapping[str, str]]) -> None:
        """Start a standalone worker, whose file names the cluster *target*, with *connectors* by their names."""
        files = [_write(f"{name}-{one}", {**config, "name": one}) for one, config in connectors.items()]
        self.node(name, {"bootstrap.servers": self.servers(target)}, connectors=files)

    def node(
        self, name: str, settings: Mapping[str, str], *, is_worker: bool = False, connectors: Sequence[Path] = ()
    ) -> None:
        """Start a node with a file of its own, whose REST everyone may use."""
        listener = {"listeners": "http://127.0.0.1:8083", "rest.advertised.host.name": name}
        node = self.nodes[name] = SimNode(
            name,
            _write(name, {**settings, **listener}),
            self.loop,
            self.clock,
            is_worker=is_worker,
            network=self.network,
            tell=self.journal.tell,
            connectors=connectors,
        )
        node.start()

    async def ask(self, node: str, method: str, path: str, body: object = None) -> Answer:
        """Ask a node's REST, again while it starts."""
        until = self.loop.time() + _STARTS_S
        while True:
            answer = await ask(self.loop, node, method, path, body)
            if answer is not None and answer.status != _UNAVAILABLE:
                return answer
            if self.loop.time() > until:
                raise TimeoutError(f"{node} does not answer {method} {path}: {answer}")
            await asyncio.sleep(_LOOKS_S)

    async def put(self, node: str, name: str, config: Mapping[str, str]) -> int:
        """Create or change a connector, and return the status of the answer."""
        return (await self.ask(node, "PUT", f"/connectors/{name}/config", dict(config))).status

    async def state(self, node: str, name: str) -> str:
        """Return the state of a connector."""
        answer = await self.ask(node, "GET", f"/connectors/{name}/status")
        return str(answer.body["connector"]["state"]) if answer.is_ok else str(answer.status)

    async def until(self, is_so: Callable[[], object], *, within_s: float = 120.0) -> bool:
        """Wait until something is so; whether it has become so."""
        until = self.loop.time() + within_s
        while not is_so():
            if self.loop.time() > until:
                return False
            await asyncio.sleep(_LOOKS_S)
        return True


def _write(name: str, lines: Mapping[str, str]) -> Path:
    file = Path(f"{name}.properties")
    file.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
    return file


Story = Callable[[Stage], Awaitable[Any]]


def play(story: Story) -> Any:
    """Return what a story comes to. This process can do nothing else any more: its nodes are not cleaned up."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), tamed(1):
        stage = Stage()
        asyncio.set_event_loop(stage.loop)
        living = Host(stage.loop, "operator").start(_told(story, stage), "story")
        living.add_done_callback(lambda _: stage.loop.stop())
        stage.loop.run_forever()
        return living.result()


async def _told(story: Story, stage: Stage) -> Any:
    return await story(stage)


def in_json(name: str, result: Any) -> str:
    """Return a line of JSON for a test to read."""
    return json.dumps([name, result])


def play_apart(stories: Mapping[str, Story], shown: Callable[[str, Any], str] = in_json) -> None:
    """Print what each story comes to as it is *shown* with its name, unless it raises."""
    for name, story in stories.items():
        if not (child := os.fork()):
            try:
                print(shown(name, play(story)), flush=True)  # noqa: T201 - it is a tool, or a test reads it
            except BaseException:  # noqa: BLE001 - nothing may return into the parent's code
                traceback.print_exc()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
