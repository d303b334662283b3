"""
Batches of a copier that was killed, or lost in its first epoch, arrive after its successor has gone on.

They have the producer id and the sequences of the successor's batches, so the broker takes each once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import pytest

from mm2py.clock import SystemClock
from mm2py.config.settings import FlowSettings
from mm2py.core.source import progress
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import EpochOutcome, EpochPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position, encode_position
from mm2py.pipeline.copy_job import EpochLostError
from mm2py.telemetry.events import CopyTaskLost, ForeignRecordsFound, ResumeUnproven
from mm2py.wire.cluster import Cluster
from mm2py.wire.connection import BrokerConnection, Buffer, FrameHandler
from mm2py.wire.produce import API_KEY, PartitionAck, read_answer
from tests.support.eventually import eventually
from tests.support.flows import InProcessEpochs, RunningFlow, flow_settings, running_flow
from tests.support.producing import produce, producer
from tests.support.reading import read_batches, read_numbers
from tests.support.records import MIDDLE_MS, NewRecord, assert_numbers
from tests.support.topics import create_topic, end_offsets


COUNT = 1_000
FOREIGN = 999_999


@attrs.define
class HeldRequests:
    """The requests that were sent while the line held them back: each one's version and body."""

    bodies: list[tuple[int, bytes]] = attrs.field(factory=list)
    is_holding: bool = True

    async def arrive(self, bootstrap: str, tp: TopicPartition) -> list[PartitionAck]:
        """Have them arrive at the leader of *tp*, in order, and return its answers."""
        acks: list[PartitionAck] = []
        async with Cluster(ClusterEndpoint("B", tuple(bootstrap.split(","))), SystemClock()) as cluster:
            await cluster.refresh_metadata([tp.topic])
            leader = cluster.leader(tp)
            assert leader is not None
            connection = await cluster.connection(leader, "late")
            for version, body in self.bodies:
                told, _ = read_answer(await connection.request_raw(API_KEY, version, [body]), version)
                acks += told
        return acks


@contextmanager
def held_requests() -> Iterator[HeldRequests]:
    """Hold back all produce requests of copiers in this process; they stay on their way when their senders end."""
    held, send = HeldRequests(), BrokerConnection.send_raw

    def hold(
        self: Any, api_key: int, api_version: int, pieces: Sequence[Buffer], handler: FrameHandler, **more: Any
    ) -> None:
        if api_key != API_KEY or not held.is_holding:
            send(self, api_key, api_version, pieces, handler, **more)
            return
        held.bodies.append((api_version, b"".join(pieces)))
        self._waiting.append((self._next_correlation_id(), math.inf, handler))

    with mock.patch.object(BrokerConnection, "send_raw", hold):
        yield held


@attrs.frozen
class Scene:
    """A topic of one partition with numbered records, to be mirrored."""

    source: str
    target: str
    topic: str
    work_dir: Path

    @property
    def remote(self) -> str:
        return f"A.{self.topic}"

    @property
    def offsets(self) -> str:
        return f"{self.topic}-offsets"

    @property
    def settings(self) -> FlowSettings:
        keys = {"A->B.topics": self.topic, "B.offset.storage.topic": self.offsets, "copy.drain.ms": 500}
        return flow_settings(self.source, self.target, **keys)

    async def arrived(self, end: int) -> None:
        """Wait until the remote topic ends there."""

        async def is_there() -> bool:
            return (await end_offsets(self.target, self.remote)).get(0, 0) >= end

        await eventually(is_there, within_s=30, what=f"{self.remote} ends at {end}")

    async def kill_while_sending(self) -> tuple[HeldRequests, RunningFlow]:
        """Run the flow until a batch is on its way, and kill it then; the batch stays on its way."""
        with held_requests() as held:
            async with running_flow(self.settings, self.work_dir) as flow:
                await eventually(lambda: held.bodies, within_s=30, what="a batch is on its way")
                await flow.crash()
        return held, flow

    async def go_on(self, held: HeldRequests, end: int) -> RunningFlow:
        """Run the flow until its remote topic ends there, let arrive what was held, and copy a little more."""
        async with running_flow(self.settings, self.work_dir) as flow:
            await self.arrived(end)
            await held.arrive(self.target, TopicPartition(self.remote, 0))
            await write_numbers(self.source, self.topic, COUNT, 10)
            await self.arrived(end + 10)
            await flow.drain()

        assert held.bodies
        assert not flow.events.of(ForeignRecordsFound)
        return flow


async def write_numbers(bootstrap: str, topic: str, start: int, count: int) -> None:
    """Write so many numbered records to a topic of one partition."""
    records = [NewRecord(None, b"%012d" % number, (), MIDDLE_MS + number) for number in range(start, start + count)]
    await produce(bootstrap, topic, [records])


@pytest.fixture
async def scene(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> Scene:
    """A topic with records that have not been mirrored yet."""
    await create_topic(primary.bootstrap_servers, prefix)
    await write_numbers(primary.bootstrap_servers, prefix, 0, COUNT)
    return Scene(primary.bootstrap_servers, backup.bootstrap_servers, prefix, tmp_path)


async def test_a_batch_of_a_mirror_killed_in_its_first_epoch_arrives_late(scene: Scene) -> None:
    """The next mirror finds that nothing has arrived and copies all; then the batch comes, and is not appended."""
    held, _ = await scene.kill_while_sending()
    await scene.go_on(held, COUNT)

    assert_numbers(await read_numbers(scene.target, scene.remote), COUNT + 10)


async def test_a_batch_of_a_worker_lost_in_its_first_epoch_arrives_late(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition is planned again in another worker, which copies all; then the batch comes, and is not appended."""
    run = InProcessEpochs.run
    with held_requests() as held:

        async def lost(self: InProcessEpochs, plan: EpochPlan) -> EpochOutcome:
            working = asyncio.create_task(run(self, plan))
            await eventually(lambda: held.bodies, within_s=30, what="a batch is on its way")
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
            await self.close()
            held.is_holding = False
            monkeypatch.undo()
            raise EpochLostError(plan.name, "its worker was killed", may_still_write=False)

        monkeypatch.setattr(InProcessEpochs, "run", lost)
        flow = await scene.go_on(held, COUNT)

    assert len(flow.events.of(CopyTaskLost)) == 1
    assert_numbers(await read_numbers(scene.target, scene.remote), COUNT + 10)


async def test_a_batch_with_a_renewed_producer_arrives_late(scene: Scene) -> None:
    """
    What the target holds is not in the source, so the mirror goes on after it as a new producer, and is killed.

    The next one knows of both: it copies all after the foreign record; then the batch comes, and is not appended.
    """
    await create_topic(scene.target, scene.remote)
    await write_numbers(scene.target, scene.remote, FOREIGN, 1)
    held, killed = await scene.kill_while_sending()
    await scene.go_on(held, COUNT + 1)

    assert len(killed.events.of(ResumeUnproven)) == 1
    seen = (await read_numbers(scene.target, scene.remote))[0]
    assert seen == [FOREIGN, *range(COUNT + 10)]


async def test_a_batch_behind_what_java_copied_arrives_late(scene: Scene) -> None:
    """
    Java's position names no producer and is older than what it copied, so the mirror finds the place, and is killed.

    Its sequences count from the position that was stored: the next one's do, too, wherever the place is found.
    """
    await create_topic(scene.target, scene.remote)
    await write_numbers(scene.target, scene.remote, 0, 500)
    await create_topic(scene.target, scene.offsets, configs={"cleanup.policy": "compact"})
    key, value, _ = encode_position("A", Position(TopicPartition(scene.topic, 0), 300))
    async with producer(scene.target) as connected:
        await connected.send_and_wait(scene.offsets, value, key)
    held, killed = await scene.kill_while_sending()
    await scene.go_on(held, COUNT)

    assert not killed.events.of(ResumeUnproven)
    assert_numbers(await read_numbers(scene.target, scene.remote), COUNT + 10)


async def test_a_batch_of_a_producer_that_was_replaced_arrives_late(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A mirror is killed while a batch is on its way, and the next one replaces the producer before it copies the same.

    The batch has just the sequences that the broker expects next of the former epoch, and is rejected.
    """
    async with running_flow(scene.settings, scene.work_dir) as flow:
        await scene.arrived(COUNT)
        await flow.drain()
    await write_numbers(scene.source, scene.topic, COUNT, 10)
    held, _ = await scene.kill_while_sending()
    monkeypatch.setattr(progress, "PRODUCER_LIFE_MS", 1)
    await scene.go_on(held, COUNT + 10)

    numbers = (await read_numbers(scene.target, scene.remote))[0]
    batches = await read_batches(scene.target, scene.remote)
    assert numbers == [*range(COUNT + 10), *range(COUNT, COUNT + 10)]
    assert len({batch.producer_id for batch in batches}) == 1
    assert batches[0].producer_epoch < batches[-1].producer_epoch
