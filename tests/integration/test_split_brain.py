"""Two nodes that both copy a flow (`copy.on.second.node = warn`): every record is there once, in order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import attrs
import pytest

from mm2py.core.source import progress
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.epoch import CopyLimits
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.overrides import NO_OVERRIDES, Overrides
from mm2py.model.state import PartitionStage
from mm2py.telemetry.events import ForeignRecordsFound, ResumeUnproven
from tests.support.brokers import MakeCluster
from tests.support.copying import Copying, copying
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, flow_settings, running_flow
from tests.support.producing import produce, produce_numbers
from tests.support.reading import read_batches, read_numbers, read_topic
from tests.support.records import MIDDLE_MS, NewRecord, assert_same_records, plain_records, spread
from tests.support.topics import create_topic


_PARTITIONS = 3
_BURST = 300


def _stands_at(flow: RunningFlow, position: int) -> bool:
    views = flow.runner.view().partitions
    return len(views) == _PARTITIONS and all(view.position == position for view in views)


async def test_two_nodes_that_copy_from_the_first_record_on(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    Each finds no position and claims a producer, and both copy as the one whose claim came first.

    Records come in bursts, so that neither waits for the other to stand still: they race for every record, with
    batches that begin and end at different records.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    keys = {"topics": prefix, "B.offset.storage.topic": f"{prefix}-offsets", "B.group.id": prefix}
    settings = flow_settings(source, target, **keys, **{"copy.on.second.node": "warn"})
    await create_topic(source, prefix, partitions=_PARTITIONS)
    await create_topic(target, f"A.{prefix}", partitions=_PARTITIONS)
    async with running_flow(settings, tmp_path) as one, running_flow(settings, tmp_path) as other:
        for burst in range(5):
            records = spread(plain_records(_BURST, start=burst * _BURST), _PARTITIONS)
            await produce(source, prefix, records, batch_records=(1, 40)[burst % 2])
            done = (burst + 1) * _BURST // _PARTITIONS
            for flow in (one, other):
                await eventually(lambda f=flow, at=done: _stands_at(f, at), within_s=30, what=f"both stand at {done}")  # type: ignore[misc]
        await one.drain()
        await other.drain()

    assert_same_records(await read_topic(source, prefix), await read_topic(target, f"A.{prefix}"))
    for flow in (one, other):
        assert not flow.events.of(ForeignRecordsFound)
        assert not flow.events.of(ResumeUnproven)


def _numbered(*numbers: int) -> list[NewRecord]:
    return [NewRecord(None, b"%012d" % number, (), MIDDLE_MS + number) for number in numbers]


async def _take(task: Copying, other: Copying) -> None:
    """Plan what *task* copies as the producer that *other* copies as, from the same position."""
    await other.lost_epoch(epoch_ms=1)
    (mark,) = {plan.producer for plan in other.plans.values()}
    task.plans = {tp: attrs.evolve(plan, producer=mark) for tp, plan in task.plans.items()}


async def test_batches_merged_at_other_records(primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> None:
    """
    One node merges seven one-record batches at a time, the other one five, and they take turns in the middle.

    What overlaps is rejected, and whoever comes second finds in the target what the other one copied.
    """
    await create_topic(primary.bootstrap_servers, prefix)
    remote = f"A.{prefix}"
    topics = {prefix: remote}
    small = {
        "coalesce_below_bytes": 2_048,
        "partition_buffer_bytes": 4_096,
        "produce_max_in_flight": 1,
    }
    async with (
        copying(primary, backup, topics, limits=CopyLimits(coalesce_batch_bytes=700, **small)) as one,
        copying(primary, backup, topics, limits=CopyLimits(coalesce_batch_bytes=400, **small)) as other,
    ):
        await _take(other, one)
        for start in range(0, 1_500, 300):
            written = _numbered(*range(start, start + 300))
            await produce(primary.bootstrap_servers, prefix, [written], batch_records=1)
            async with asyncio.TaskGroup() as both:
                both.create_task(one.catch_up())
                both.create_task(other.catch_up())

    numbers = (await read_numbers(backup.bootstrap_servers, remote))[0]
    sizes = {batch.count for batch in await read_batches(backup.bootstrap_servers, remote)}
    assert numbers == list(range(1_500))
    assert len(sizes) > 1
    assert one.total("resumed_records") + other.total("resumed_records") > 0


async def test_the_same_sequence_with_other_records(primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> None:
    """
    A node read the source before a compaction, and the other one after it; the latter was faster.

    The broker takes the slow one's batches for repetitions, by their sequences, although they have other records.
    That one notices it by the timestamps, finds out what was copied, and goes on after it.
    """
    remote, compacted = f"A.{prefix}", f"{prefix}-compacted"
    limits = CopyLimits(coalesce_below_bytes=0)
    for topic, numbers in ((prefix, range(12)), (compacted, (0, 2, 4, 6))):
        await create_topic(primary.bootstrap_servers, topic)
        await produce(primary.bootstrap_servers, topic, [_numbered(*numbers)], batch_records=1)
    async with (
        copying(primary, backup, {prefix: remote}, limits=limits) as slow,
        copying(primary, backup, {compacted: remote}, limits=limits) as fast,
    ):
        await _take(slow, fast)
        await fast.catch_up()
        await slow.run(lambda: any(it.failure for outcome in slow.outcomes for it in outcome.partitions))
        outcome = slow.outcomes[-1]

    assert (await read_numbers(backup.bootstrap_servers, remote))[0] == [0, 2, 4, 6]
    (partition,) = outcome.partitions
    assert partition.failure is not None
    assert partition.failure.error == "Overtaken"
    assert slow.plans[TopicPartition(prefix, 0)].is_unsure


async def test_a_node_that_slept_for_longer_than_brokers_remember(
    primary: KafkaCluster, make_cluster: MakeCluster, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A node copies nothing for long, and is sure of its position, while another one goes on from there, and ends.

    The broker forgets their producer, and would take any sequence of it. The first node renews it, and finds what
    the other one has copied.
    """
    life_ms = 1_500
    monkeypatch.setattr(progress, "PRODUCER_LIFE_MS", life_ms)
    expiry = {"producer.id.expiration.ms": life_ms, "producer.id.expiration.check.interval.ms": 100}
    target = make_cluster("forgetful", properties={key: str(value) for key, value in expiry.items()}).bootstrap_servers
    source = primary.bootstrap_servers
    settings = flow_settings(source, target, topics=prefix, **{"copy.on.second.node": "warn"})
    await create_topic(source, prefix, partitions=_PARTITIONS)
    asleep = Overrides(topics=frozenset({prefix}))

    async def copied(flow: RunningFlow, written: int) -> None:
        await produce_numbers(source, prefix, count=100 * _PARTITIONS, partitions=_PARTITIONS)
        await eventually(lambda: _stands_at(flow, written), within_s=30, what=f"it stands at {written}")

    async with running_flow(settings, tmp_path) as one:
        await copied(one, 100)
        one.runner.requests.apply(asleep)
        await eventually(
            lambda: {view.stage for view in one.runner.view().partitions} == {PartitionStage.PAUSED},
            within_s=10,
            what="no epoch reads it",
        )
        async with running_flow(settings, tmp_path) as other:
            await copied(other, 200)
            await other.drain()
        await asyncio.sleep(2 * life_ms / 1_000)  # nothing shows what a broker remembers
        one.runner.requests.apply(NO_OVERRIDES)
        await copied(one, 300)
        await one.drain()

    assert_same_records(await read_topic(source, prefix), await read_topic(target, f"A.{prefix}"))
    assert not one.events.of(ForeignRecordsFound)
