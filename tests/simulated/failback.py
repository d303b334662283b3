"""
A group that goes to the target for a while, and comes back, where flows lead both ways: wherever it goes on, it skips
nothing that it has not read here or there, and it is not set back behind what it has committed itself.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.simulated.cluster import Cluster
from tests.simulated.copied import Copied


if TYPE_CHECKING:
    from tests.simulated.world import World


_NAME = "movers"
#: How long it stays, on average, and how often it commits meanwhile.
_STAYS_S, _COMMITS_S = 60.0, 2.0


class Failback:
    """Moves the group, and looks at where it is put."""

    def __init__(self, world: World) -> None:
        self._world, self._draw = world, random.Random(f"failback {world.options.seed}")
        #: How many records of each partition it has read, and where it has committed last at the source.
        self._read: dict[tuple[str, int], int] = {}
        self._stood: dict[tuple[str, int], int] = {}

    async def live(self) -> None:
        """Read at the source, then at the target, and again."""
        draw, world = self._draw, self._world
        is_away = False
        while True:
            until = world.loop.time() + draw.uniform(0.5, 1.5) * _STAYS_S
            at, left = (world.target, world.source) if is_away else (world.source, world.target)
            world.journal.tell("run", "group", _NAME, "is at", at.name)
            kind = world.options.groups
            left.coordinator.use(_NAME, members=0, kind=kind)
            at.coordinator.use(_NAME, members=1, kind=kind)
            while world.loop.time() < until:
                await asyncio.sleep(draw.expovariate(1 / _COMMITS_S))
                if world.rests_until > world.loop.time():
                    await asyncio.sleep(world.rests_until - world.loop.time())
                self._commit(is_away=is_away)
            is_away = not is_away

    def _commit(self, *, is_away: bool) -> None:
        world = self._world
        source = self._draw.choice(world.source.partitions_of(world.topics))
        name = source.topic
        there = world.target.partition(world.topics[name], source.number)
        if there is None:
            return
        cluster, partition = (world.target, there) if is_away else (world.source, source)
        copied = world.checker.copied(there)
        world.checker.read_source(copied)
        at = max(self._at(cluster, partition.topic, partition.number), partition.start)
        offset = self._draw.randint(at, max(at, partition.stable))
        cluster.coordinator.group(_NAME).offsets[partition.topic, partition.number] = offset, ""
        key = name, source.number
        read = copied.read_by(offset) if is_away else copied.before(offset)
        self._read[key] = max(read, self._read.get(key, 0))
        if not is_away:
            self._stood[key] = offset

    def forget(self, topic: str) -> None:
        """Note that a source topic is deleted, and with it what the group has read and committed."""
        for known in (self._read, self._stood):
            for key in [key for key in known if key[0] == topic]:
                del known[key]

    def look(self) -> Iterator[str]:
        """Return where it would skip something, or read again what it has committed."""
        world = self._world
        for (name, number), read in self._read.items():
            there = world.target.partition(world.topics[name], number)
            if there is None:
                continue
            copied = world.checker.copied(there)
            here_at, there_at = self._at(world.source, name, number), self._at(world.target, there.topic, number)
            if here_at < self._stood.get((name, number), 0):
                yield f"group {_NAME} went back to {here_at} of {copied.source}; it has committed {self._stood}"
            for cluster, at, skipped in (
                (world.source, here_at, self._before(copied, here_at)),
                (world.target, there_at, copied.upto(there_at)),
            ):
                if skipped > read:
                    yield f"group {_NAME} skips {skipped - read} records of {copied.source}: {cluster.name} has {at}"

    def _before(self, copied: Copied, offset: int) -> int:
        """Return how many records that a group at *offset* of the source does not read are there still."""
        self._world.checker.read_source(copied)
        return copied.before(offset) if offset > copied.source.start else 0

    @staticmethod
    def _at(cluster: Cluster, topic: str, number: int) -> int:
        group = cluster.coordinator.groups.get(_NAME)
        return group.offsets.get((topic, number), (0, ""))[0] if group is not None else 0
