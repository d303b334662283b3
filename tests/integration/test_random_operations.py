"""
Random operations on topics, records, groups and the node that mirrors them, and what must hold afterwards.

The seed decides what is done; how that coincides with what the mirror does is left to chance.
"""

from __future__ import annotations

import logging
import random
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import attrs
import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.group import CommittedOffset
from mm2py.model.state import PartitionStage
from mm2py.telemetry.events import ForeignRecordsFound, GroupFailed, PartitionStopped, TaskRestarted
from tests.support.damage import delete_records
from tests.support.eventually import eventually
from tests.support.flow_rest import SOURCE, FlowRest
from tests.support.groups import commit_as_admin, committed
from tests.support.mm2_file import mm2_properties
from tests.support.nodes import RunningNode, running_node, served
from tests.support.producing import CODECS, produce, produce_transactions
from tests.support.reading import read_topic
from tests.support.records import NewRecord, Record, as_written
from tests.support.soaking import rounds
from tests.support.topics import admin, create_topic, delete_topic, end_offsets, grow_topic, list_topics


_TOPICS = 4
_OPERATIONS = 40
#: What an operator may ask of a flow at any time, below its address; nothing of it fails.
_REQUESTS: tuple[tuple[str, str, object], ...] = (
    ("PUT", "/pause", None),
    ("PUT", "/resume", None),
    ("POST", f"{SOURCE}/restart?includeTasks=true", None),
    ("PUT", f"{SOURCE}/stop", None),
    ("PATCH", f"{SOURCE}/config", {"tasks.max": "3"}),
    ("PUT", "/limit", {"records_per_s": 1_000}),
    ("DELETE", "/limit", None),
    ("DELETE", "/overrides", None),
)


@attrs.define
class Topic:
    """A topic of the source. It `exists` while it has partitions, of which records were removed before some offsets."""

    name: str
    partitions: int = 0
    removed: dict[int, int] = attrs.field(factory=dict)

    @property
    def exists(self) -> bool:
        return self.partitions > 0


class Life(NamedTuple):
    """One run of the node."""

    node: RunningNode
    rest: FlowRest
    contexts: AsyncExitStack


@attrs.define
class Night:
    """Two clusters, a flow between them, and what was done."""

    source: str
    target: str
    prefix: str
    work_dir: Path
    chance: random.Random
    topics: list[Topic] = attrs.field(init=False)
    lives: list[Life] = attrs.field(factory=list)
    numbers: int = 0

    def __attrs_post_init__(self) -> None:
        self.topics = [Topic(f"{self.prefix}-{number}") for number in range(_TOPICS)]

    @property
    def flow(self) -> Flow:
        return Flow(self.prefix[-6:], "B")

    @property
    def group(self) -> str:
        return f"{self.prefix}-group"

    def remote(self, topic: Topic) -> str:
        return f"{self.flow.source}.{topic.name}"

    def _existing(self) -> Topic:
        return self.chance.choice([topic for topic in self.topics if topic.exists])

    async def start(self) -> None:
        settings = mm2_properties(
            self.source,
            self.target,
            aliases=(self.flow.source, "B"),
            topics=f"{self.prefix}-.*",
            groups=self.group,
            **{
                "tasks.max": 2,
                "copy.epoch.ms": 1_000,
                "copy.drain.ms": 2_000,
                "copy.on.source.recreated": "earliest",
                "B.offset.flush.interval.ms": 1_000,
                "emit.checkpoints.interval.seconds": 1,
                "sync.group.offsets.enabled": "true",
                "sync.group.offsets.interval.seconds": 1,
                "sync.group.offsets.rewind.enabled": "true",
            },
        )
        contexts = AsyncExitStack()
        node = await contexts.enter_async_context(running_node(settings, self.work_dir))
        rest = await contexts.enter_async_context(served(node, self.flow))
        self.lives.append(Life(node, rest, contexts))

    async def end(self, *, is_crash: bool) -> None:
        """End the node, in good order or on the spot."""
        node, _, contexts = self.lives[-1]
        await (node.crash() if is_crash else node.stop())
        await contexts.aclose()

    async def restart(self) -> str:
        await self.end(is_crash=self.chance.random() < 0.5)
        await self.start()
        return ""

    async def ask(self) -> str:
        method, path, body = self.chance.choice(_REQUESTS)
        return f"{path} {await self.lives[-1].rest.status(method, path, body)}"

    async def create(self) -> str:
        topic = self.chance.choice([topic for topic in self.topics if not topic.exists])
        topic.partitions, topic.removed = self.chance.randint(1, 3), {}
        await create_topic(self.source, topic.name, partitions=topic.partitions)
        return f"{topic.name} with {topic.partitions} partitions"

    async def delete(self) -> str:
        topic = self._existing()
        topic.partitions = 0
        await delete_topic(self.source, topic.name)
        return topic.name

    async def grow(self) -> str:
        topic = self._existing()
        topic.partitions += 1
        await grow_topic(self.source, topic.name, topic.partitions)
        return f"{topic.name} to {topic.partitions}"

    async def write(self) -> str:
        topic = self._existing()
        codec = self.chance.choice(CODECS)
        if self.chance.random() < 0.3:
            turns = [(self.chance.random() < 0.6, self._records(topic)) for _ in range(3)]
            await produce_transactions(self.source, topic.name, turns, transactional_id=topic.name, codec=codec)
        else:
            records, most = self._records(topic), self.chance.choice((1, 10, 1_000))
            await produce(self.source, topic.name, records, codec=codec, idempotent=True, batch_records=most)
        return f"{topic.name} up to {self.numbers}"

    def _records(self, topic: Topic) -> list[list[NewRecord]]:
        """Make records for each partition of a topic, with rising numbers in their headers."""
        written: list[list[NewRecord]] = [[] for _ in range(topic.partitions)]
        now_ms = time.time_ns() // 1_000_000
        for records in written:
            for _ in range(self.chance.choice((0, 1, 20, 500))):
                self.numbers += 1
                key, headers = b"k%d" % self.chance.randrange(20), (("number", b"%d" % self.numbers),)
                value = self.chance.choice((None, b"", self.chance.randbytes(self.chance.randrange(300))))
                records.append(NewRecord(key, value, headers, now_ms))
        return written

    async def lose_remote_topic(self) -> str:
        remote = self.remote(self._existing())
        if remote in await list_topics(self.target):
            async with admin(self.target) as connected:
                await connected.delete_topics([remote])  # the mirror may create it before it is seen to be gone
        return remote

    async def remove_records(self) -> str:
        topic, partition, end = await self._somewhere()
        before = self.chance.choice((end, self.chance.randint(0, end)))
        await delete_records(self.source, topic.name, before, partition=partition)
        topic.removed[partition] = max(before, topic.removed.get(partition, 0))
        return f"{topic.name}-{partition} before {before}"

    async def commit(self) -> str:
        topic, partition, end = await self._somewhere()
        place = TopicPartition(topic.name, partition)
        offset = self.chance.randint(topic.removed.get(partition, 0), end)
        await commit_as_admin(self.source, self.group, {place: CommittedOffset(offset)})
        return f"{place} at {offset}"

    async def _somewhere(self) -> tuple[Topic, int, int]:
        topic = self._existing()
        return topic, *self.chance.choice(sorted((await end_offsets(self.source, topic.name)).items()))

    async def do_something(self) -> None:
        often: dict[Callable[[], Awaitable[str]], int] = {self.ask: 5, self.restart: 2}
        if not all(topic.exists for topic in self.topics):
            often[self.create] = 4
        if any(topic.exists for topic in self.topics):
            often |= {self.write: 8, self.commit: 4, self.remove_records: 2, self.grow: 2}
            often |= {self.delete: 1, self.lose_remote_topic: 1}
        (do,) = self.chance.choices(list(often), list(often.values()))
        logging.getLogger(__name__).info("%s: %s", do.__name__, await do())

    async def calm(self) -> None:
        """Revert all that was asked; a node that was just started takes nothing before it knows what that is."""
        rest = self.lives[-1].rest

        async def is_taken() -> bool:
            return await rest.status("DELETE", "/overrides") == HTTPStatus.OK

        await eventually(is_taken, within_s=60, what="overrides are reverted")

    # What must hold.

    async def assert_level(self) -> None:
        """Wait until each remote partition ends with all that its source has, each record once and in order, and until
        the group has as many records left to read there.
        """
        for topic in (topic for topic in self.topics if topic.exists):

            async def is_level(topic: Topic = topic) -> bool:
                assert self.remote(topic) in await list_topics(self.target)
                wanted = await read_topic(self.source, topic.name)
                found = await read_topic(self.target, self.remote(topic))
                at, there = await committed(self.source, self.group), await committed(self.target, self.group)
                for partition, records in wanted.items():
                    _compare(records, found[partition], f"{self.remote(topic)}-{partition}")
                    offset = at.get(TopicPartition(topic.name, partition))
                    if offset is None or offset < topic.removed.get(partition, 0):
                        continue
                    translated = there.get(TopicPartition(self.remote(topic), partition))
                    assert translated is not None, f"{topic.name}-{partition} at {offset} is not translated"
                    left, there_left = _left(records, offset), _left(found[partition], translated)
                    assert there_left == left, f"{topic.name}-{partition}: {left} are left, {there_left} there"
                return True

            await eventually(is_level, within_s=90, what=f"{topic.name} is level", every_s=0.5)

    async def assert_healthy(self) -> None:
        """Wait until nothing is behind, paused or stopped; nothing may have failed."""

        def is_healthy() -> bool:
            view = self.lives[-1].node.view(self.flow)
            wrong = [it for it in view.partitions if it.stage is not PartitionStage.COPYING or it.lag != 0]
            assert not wrong, wrong
            return len({it.source.topic for it in view.partitions}) == sum(topic.exists for topic in self.topics)

        await eventually(is_healthy, within_s=60, what="the flow is healthy")
        for kind in (ForeignRecordsFound, GroupFailed, PartitionStopped, TaskRestarted):
            assert not [event for it in self.lives for event in it.node.events.of(kind)]


def _compare(wanted: list[Record], found: list[Record], where: str) -> None:
    numbers = [int(record.headers[0][1] or b"") for record in found]
    back = [(before, after) for before, after in pairwise(numbers) if after <= before]
    assert not back, f"{where} is not in order: {back[:3]}"
    copied = found[len(found) - len(wanted) :]
    assert [as_written(it) for it in copied] == [as_written(it) for it in wanted], f"{where} does not end as its source"


def _left(records: list[Record], offset: int) -> int:
    """Return how many records are left to read from an offset on."""
    return len(records) - bisect_left(records, offset, key=lambda record: record.offset)


@pytest.mark.soak(only="each of these operations is tested by itself")
@pytest.mark.parametrize("seed", range(rounds(1, soak=6)))
async def test_whatever_is_done_nothing_is_lost_or_repeated(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, seed: int
) -> None:
    """Topics, records, groups and the node itself come and go; then both clusters hold the same."""
    night = Night(primary.bootstrap_servers, backup.bootstrap_servers, prefix, tmp_path, random.Random(seed))
    await night.start()
    try:
        for _ in range(2):
            for _ in range(_OPERATIONS):
                await night.do_something()
            await night.calm()
            await night.assert_level()
            await night.assert_healthy()
    finally:
        await night.end(is_crash=True)
