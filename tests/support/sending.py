"""A dispatch over a simulated cluster: what tests of sending put in, and what the target's log then holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs

from mm2py.model.epoch import CopyLimits, PartitionPlan, ProducerMark
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.metadata import follow_leaders
from mm2py.pipeline.copy.partition import BufferedBatch, PartitionCopy
from mm2py.pipeline.copy.sending import BatchSender
from tests.support.batches import START_MS, Content, build_batch
from tests.support.clocks import LoopClock
from tests.support.eventually import scaled
from tests.support.in_process import InProcessCluster, InProcessConnection


REMOTE = "A.orders"
LIMITS = CopyLimits()
PRODUCER = ProducerMark(7, 0, 0)


@attrs.define
class Sender:
    """A dispatch and the simulated cluster it sends to."""

    target: InProcessCluster
    sender: BatchSender
    copies: list[PartitionCopy]

    @property
    def line(self) -> InProcessConnection:
        """Return the open connection to the first broker that has one."""
        return next(c for c in self.target.connections if not c.is_closed)

    def put(self, copy: PartitionCopy, count: int = 1, *, offer: bool = True) -> BufferedBatch:
        """Queue the next *count* records as one batch, whose values are their upstream offsets."""
        first = copy.fetching.position.offset
        records = [Content(n, START_MS, b"k", b"%d" % (first + n)) for n in range(count)]
        batch = memoryview(bytearray(build_batch(records, base_offset=first)))
        buffered = BufferedBatch(batch, count, first, first + count, START_MS)
        before = copy.buffer.size_bytes
        copy.fetching.position.offset += count
        copy.buffer.put(buffered)
        self.sender.take(copy, before)
        if offer:
            self.sender.offer(copy)
            self.sender.pump()
        return buffered

    def answer(self, count: int = 1) -> None:
        """Let the broker take the oldest requests, and its answers arrive."""
        for _ in range(count):
            self.line.process()
            self.line.deliver()

    def values(self, number: int = 0) -> list[int]:
        """Return the upstream offsets of what the target holds."""
        return [int(r.value or b"") for r in self.target.partition(REMOTE, number).records()]


@asynccontextmanager
async def sender(*, partitions: int = 1, brokers: int = 1, limits: CopyLimits = LIMITS) -> AsyncIterator[Sender]:
    target = InProcessCluster.of("B", REMOTE, partitions, brokers=brokers)
    await target.refresh_metadata([REMOTE])
    target.sent.clear()
    sender = BatchSender(target, limits, LoopClock())
    copies = [
        PartitionCopy.of(PartitionPlan(TopicPartition("orders", n), REMOTE, 0, -1, is_unsure=False, producer=PRODUCER))
        for n in range(partitions)
    ]
    async with asyncio.TaskGroup() as tasks:
        sender.start(tasks)
        yield Sender(target, sender, copies)
        sender.stop()
        sender.close_unanswered()


@asynccontextmanager
async def following(sender: Sender) -> AsyncIterator[None]:
    """Have leaders looked up as an epoch does."""
    async with asyncio.TaskGroup() as tasks:
        loop = tasks.create_task(follow_leaders(sender.target, sender.sender.wants_metadata))
        yield
        loop.cancel()


async def drained(sender: BatchSender) -> None:
    async with asyncio.timeout(scaled(60)):
        await sender.drained.wait()


async def settle() -> None:
    """Let connections open and answers arrive."""
    await asyncio.sleep(0.01)
