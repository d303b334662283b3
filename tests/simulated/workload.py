"""Producers at the source, and groups that read there."""

from __future__ import annotations

import asyncio
import collections
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.simulated.log import NOBODY, Partition
from tests.support.batches import TRANSACTIONAL, Content, build_batch, control_batch


if TYPE_CHECKING:
    from tests.simulated.cluster import Cluster
    from tests.simulated.world import World


class Workload:
    """What goes on at the source by itself."""

    def __init__(self, world: World, cluster: Cluster, seed: object) -> None:
        self._world, self._cluster = world, cluster
        #: Where groups stand, which nobody but them may change.
        self.stand: dict[tuple[str, tuple[str, int]], int] = {}
        self._work, self._reads = random.Random(f"work {seed}"), random.Random(f"reads {seed}")
        self._numbers: collections.Counter[tuple[str, int]] = collections.Counter()

    def _partitions(self) -> list[Partition]:
        return self._cluster.partitions_of(self._world.topics)

    def forget(self, topic: str) -> None:
        """Note that a topic is deleted, and with it where groups stood."""
        self.stand = {key: at for key, at in self.stand.items() if key[1][0] != topic}

    async def produce(self) -> None:
        """Produce to all partitions, but while all sleep."""
        draw, world = self._work, self._world
        while True:
            partitions = self._partitions()
            await asyncio.sleep(draw.expovariate(world.options.rate * len(partitions)))
            if world.rests_until > world.loop.time():
                await asyncio.sleep(world.rests_until - world.loop.time() - 20 * draw.random())
            partition = draw.choice(partitions)
            self.append_to(partition, draw.choice((1, 1, 2, 5, 20)))

    def append_to(self, partition: Partition, count: int = 1) -> None:
        """Append a batch to a partition, if its leader is up."""
        if partition.leader != NOBODY and self._cluster.brokers[partition.leader].is_up:
            self._append(partition, count)

    def append_to_all(self) -> None:
        """Append a batch to each partition."""
        for partition in self._partitions():
            self._append(partition, 1)

    def _append(self, partition: Partition, count: int) -> None:
        key, now = (partition.topic, partition.number), self._world.clock.wall_ms()
        first = self._numbers[key]
        self._numbers[key] += count
        name = b"%s-%d" % (partition.topic.encode(), partition.number)
        records = [Content(n, now, b"k%d" % (first + n), b"%s:%d" % (name, first + n)) for n in range(count)]
        if not self._world.options.transactions or self._work.random() >= 0.3:
            self._put(partition, build_batch(records, producer=(7, 0, first & 0xFFFFFF)), "producer")
            return
        producer, commits = 50 + partition.number, self._work.random() < 0.7
        batch = build_batch(records, producer=(producer, 0, first & 0xFFFF), attributes=TRANSACTIONAL)
        self._put(partition, batch, "producer")
        self._put(partition, control_batch(0, producer, commits=commits), "coordinator")

    def _put(self, partition: Partition, raw: bytes, writer: str) -> None:
        cluster = self._cluster
        cluster.appended(cluster.brokers[partition.leader], partition, partition.append(raw, writer))

    async def consume(self) -> None:
        """Have groups at the source read on, and now and then be reset."""
        draw, world = self._reads, self._world
        while True:
            await asyncio.sleep(draw.expovariate(0.5))
            if world.rests_until > world.loop.time():
                await asyncio.sleep(world.rests_until - world.loop.time())
            name = draw.choice(("readers", "loaders"))
            group = self._cluster.coordinator.group(name)
            group.kind, group.protocol_type = world.options.groups, "consumer"
            partition = draw.choice(self._partitions())
            key = partition.topic, partition.number
            before = group.offsets.get(key, (0, ""))[0]
            offset = draw.randint(before, max(before, partition.stable)) if draw.random() < 0.95 else 0
            group.offsets[key] = offset, ""
            self.stand[name, key] = offset
            world.checker.commits(name, partition, offset)

    def moved(self) -> Iterator[str]:
        """Return which groups have been put elsewhere than where they have committed."""
        for (name, key), offset in self.stand.items():
            at, _ = self._cluster.coordinator.groups[name].offsets[key]
            if at != offset:
                yield f"group {name} was put to {at} of {key}, and has committed {offset}"
