"""Sources and targets that were deleted, re-created or truncated, on real clusters. Epochs run in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

import attrs
import pytest
from aiokafka import AIOKafkaProducer

from mm2py.core.offsets.translation import Translated
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import position_key
from mm2py.model.state import FlowState, PartitionStage
from mm2py.telemetry.events import (
    Event,
    InternalTopicRecreated,
    PartitionStopped,
    PositionsRead,
    RemoteTopicDeleted,
    RemoteTopicRecreated,
    RemoteTopicRewound,
    ResumeUnproven,
    SourceRecordsExpired,
    SourceRecordsPurged,
    SourceTopicRecreated,
    SourceTruncated,
    StepFailed,
    TopicRemoved,
)
from tests.support.brokers import MakeCluster
from tests.support.damage import delete_records, lose_ends, recreate_topic, vanish, wipe
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, flow_settings, running_flow
from tests.support.producing import producer
from tests.support.reading import read_topic
from tests.support.topics import create_topic, delete_topic, end_offsets, list_topics


T = TypeVar("T", bound=Event)
#: Brokers forget producers whose last record is a day old.
_OLD_S = 1_000_000.0


@attrs.frozen
class Mirror:
    """Two topics, one that is damaged and one that is not, and the settings of their flow."""

    source: str
    target: str
    prefix: str
    work_dir: Path

    @property
    def topic(self) -> str:
        return f"{self.prefix}-a"

    @property
    def other(self) -> str:
        return f"{self.prefix}-b"

    async def create(self, *, retention_ms: int = 2_592_000_000) -> None:
        """Create both topics; the test's brokers have no retention of their own."""
        for topic in (self.topic, self.other):
            await create_topic(self.source, topic, configs={"retention.ms": str(retention_ms)})

    async def write(self, topic: str, first: int, count: int, *, age_s: float = 0.0) -> None:
        """Write numbers from *first* on, ten records to a batch, with timestamps of that age."""
        stamp = round((time.time() - age_s) * 1000)
        async with producer(self.source) as connected:
            for start in range(first, first + count, 10):
                batch = connected.create_batch()
                for number in range(start, min(start + 10, first + count)):
                    batch.append(key=None, value=b"%d" % number, timestamp=stamp)
                batch.close()
                await (await connected.send_batch(batch, topic, partition=0))

    def running(self, **keys: object) -> AbstractAsyncContextManager[RunningFlow]:
        settings = flow_settings(
            self.source,
            self.target,
            **{
                "A->B.topics": f"{self.prefix}.*",
                "B.offset.storage.topic": f"{self.prefix}-offsets",
                "offset.flush.interval.ms": 500,
                **keys,
            },
        )
        return running_flow(settings, self.work_dir)

    async def mirrored_once(self, count: int = 100, *, retention_ms: int = 2_592_000_000) -> None:
        """Mirror *count* records of both topics and stop in good order."""
        await self.create(retention_ms=retention_ms)
        for topic in (self.topic, self.other):
            await self.write(topic, 0, count)
        async with self.running() as flow:
            for topic in (self.topic, self.other):
                await self.holds(topic, range(count))
            await flow.drain()

    async def values(self, topic: str) -> list[int]:
        """Return the numbers that the remote topic of *topic* holds."""
        if f"A.{topic}" not in await list_topics(self.target):
            return []
        records = await read_topic(self.target, f"A.{topic}")
        return [int(record.value or b"") for record in records[0]]

    async def holds(self, topic: str, numbers: Sequence[int]) -> None:
        """Wait until the remote topic of *topic* holds exactly *numbers*, in that order."""

        async def is_so() -> bool:
            found = await self.values(topic)
            assert found == list(numbers), f"{len(found)} records, {found[:5]} to {found[-5:]}"
            return True

        await eventually(is_so, within_s=60, what=f"A.{topic} holds {numbers}", every_s=0.3)


@pytest.fixture
def mirror(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> Mirror:
    return Mirror(primary.bootstrap_servers, backup.bootstrap_servers, prefix, tmp_path)


def stages(flow: RunningFlow) -> list[PartitionStage]:
    return [partition.stage for partition in flow.runner.view().partitions]


# A source topic that was deleted and created again.


async def test_a_recreated_source_topic_is_copied_behind_the_old_one(mirror: Mirror) -> None:
    """With `earliest` the new topic's records follow the old one's, none left out."""
    await mirror.mirrored_once()
    await recreate_topic(mirror.source, mirror.topic)
    await mirror.write(mirror.topic, 1000, 150)
    await mirror.write(mirror.other, 100, 20)
    async with mirror.running(**{"A->B.copy.on.source.recreated": "earliest"}) as flow:
        await mirror.holds(mirror.topic, [*range(100), *range(1000, 1150)])
        await mirror.holds(mirror.other, range(120))
        (event,) = await flow.told(SourceTopicRecreated)
        await flow.drain()
    async with mirror.running() as again:
        await mirror.write(mirror.topic, 1150, 10)
        await mirror.holds(mirror.topic, [*range(100), *range(1000, 1160)])
        await again.drain()

    assert (event.source, event.goes_on_at, event.policy) == (TopicPartition(mirror.topic, 0), 0, "earliest")
    assert not again.events.of(SourceTopicRecreated)
    assert not again.events.of(ResumeUnproven)


async def test_a_recreated_source_topic_gets_a_new_remote_topic(mirror: Mirror) -> None:
    """With `re-create` the remote topic holds the new topic and nothing else, partition by partition; others go on."""
    await mirror.create()
    await mirror.write(mirror.topic, 0, 100)
    async with mirror.running(**{"A->B.copy.on.source.recreated": "re-create"}) as flow:
        await mirror.holds(mirror.topic, range(100))
        await recreate_topic(mirror.source, mirror.topic, partitions=2)
        await mirror.write(mirror.topic, 1000, 50)
        await mirror.holds(mirror.topic, range(1000, 1050))
        await mirror.write(mirror.other, 0, 20)
        await mirror.holds(mirror.other, range(20))
        (deleted,) = await flow.told(RemoteTopicDeleted)
        await flow.drain()

    assert deleted.remote_topic == f"A.{mirror.topic}"
    assert set(await end_offsets(mirror.target, f"A.{mirror.topic}")) == {0, 1}
    assert not flow.events.of(PartitionStopped)


async def test_a_topic_that_is_recreated_before_its_first_record(mirror: Mirror) -> None:
    """There is nothing that the new topic's records could be mixed with, so that nothing stops; other topics go on."""
    await mirror.create()
    await mirror.write(mirror.other, 0, 10)
    async with mirror.running() as flow:
        await mirror.holds(mirror.other, range(10))
        await recreate_topic(mirror.source, mirror.topic, partitions=2)
        await mirror.write(mirror.topic, 0, 50)
        await mirror.holds(mirror.topic, range(50))
        (event,) = await flow.told(SourceTopicRecreated)
        await flow.drain()

    assert (event.source, event.policy, event.goes_on_at, event.lost) == (TopicPartition(mirror.topic, 0), "fail", 0, 0)
    assert flow.events.of(PartitionStopped) == ()


async def test_a_topic_that_is_deleted_on_both_sides_and_created_again(mirror: Mirror) -> None:
    """As test environments do each night: there is nothing left to mix the new records with, so that nothing stops."""
    await mirror.create()
    await mirror.write(mirror.topic, 0, 100)
    async with mirror.running() as flow:
        await flow.copied(100)
        await delete_topic(mirror.source, mirror.topic)
        await flow.told(TopicRemoved)
        await delete_topic(mirror.target, f"A.{mirror.topic}")
        await create_topic(mirror.source, mirror.topic)
        await mirror.write(mirror.topic, 1000, 50)
        await mirror.holds(mirror.topic, range(1000, 1050))
        (event,) = await flow.told(SourceTopicRecreated)
        await flow.drain()

    assert (event.source, event.policy, event.goes_on_at, event.lost) == (TopicPartition(mirror.topic, 0), "fail", 0, 0)
    assert flow.events.of(PartitionStopped) == ()


async def test_an_operator_removes_the_position_of_a_recreated_topic(mirror: Mirror) -> None:
    """After the flow stopped, removing the position has the new topic copied after the old one; it stops once."""
    await mirror.mirrored_once()
    await recreate_topic(mirror.source, mirror.topic)
    await mirror.write(mirror.topic, 1000, 20)
    async with mirror.running() as stopped:
        await stopped.told(SourceTopicRecreated)
        await mirror.write(mirror.other, 100, 20)
        await mirror.holds(mirror.other, range(120))
        await stopped.told(PartitionStopped)
        seen = stages(stopped)
        await stopped.drain()
    async with producer(mirror.target) as connected:
        await _remove_position(connected, mirror)
    async with mirror.running() as flow:
        await mirror.holds(mirror.topic, [*range(100), *range(1000, 1020)])
        await flow.drain()

    assert seen == [PartitionStage.STOPPED, PartitionStage.COPYING]


async def _remove_position(connected: AIOKafkaProducer, mirror: Mirror) -> None:
    key = position_key("A", TopicPartition(mirror.topic, 0))
    await connected.send_and_wait(f"{mirror.prefix}-offsets", value=None, key=key)


# Retention that overtook the mirror.


async def test_records_that_kafka_streams_deletes_are_no_loss(mirror: Mirror) -> None:
    """A repartition topic has no retention; its owner deletes what it has read, here while the mirror is away."""
    await _expire(mirror, retention_ms=-1)
    async with mirror.running(**{"copy.on.source.expired": "fail"}) as flow:
        await mirror.holds(mirror.topic, [*range(100), *range(150, 200)])
        (event,) = await flow.told(SourceRecordsPurged)
        await flow.drain()

    assert (event.records, event.lost, event.position, event.goes_on_at) == (50, 0, 100, 150)
    assert not flow.events.of(SourceRecordsExpired)
    assert not flow.events.of(PartitionStopped)


async def _expire(mirror: Mirror, *, retention_ms: int = 2_592_000_000) -> None:
    await mirror.mirrored_once(retention_ms=retention_ms)
    for topic in (mirror.topic, mirror.other):
        await mirror.write(topic, 100, 100)
    await delete_records(mirror.source, mirror.topic, 150)


async def test_expired_records_are_counted_and_the_rest_is_copied(mirror: Mirror) -> None:
    """The number of records that expired before they were copied is reported; copying goes on at what is left."""
    await _expire(mirror)
    async with mirror.running() as flow:
        await mirror.holds(mirror.topic, [*range(100), *range(150, 200)])
        await mirror.holds(mirror.other, range(200))
        (event,) = await flow.told(SourceRecordsExpired)
        await flow.drain()

    assert (event.records, event.lost, event.position, event.goes_on_at) == (50, 50, 100, 150)
    assert not flow.events.of(PartitionStopped)


async def test_expired_records_stop_their_partition_alone_if_told_to(mirror: Mirror) -> None:
    """With `fail` the partition stops, once and visibly; the next start with `latest` leaves the rest out."""
    await _expire(mirror)
    async with mirror.running(**{"copy.on.source.expired": "fail"}) as stopped:
        await mirror.holds(mirror.other, range(200))
        (event,) = await stopped.told(SourceRecordsExpired)
        await stopped.told(PartitionStopped)
        seen = stages(stopped)
        await stopped.drain()
    async with mirror.running(**{"copy.on.source.expired": "latest"}) as flow:
        (skipped,) = await flow.told(SourceRecordsExpired)
        await mirror.write(mirror.topic, 200, 10)
        await mirror.holds(mirror.topic, [*range(100), *range(200, 210)])
        await flow.drain()

    assert (event.lost, event.goes_on_at, seen) == (None, None, [PartitionStage.STOPPED, PartitionStage.COPYING])
    assert (skipped.records, skipped.lost) == (50, 100)


# A source that lost what was copied.


async def test_a_source_that_lost_its_end_and_grew_past_it(
    make_cluster: MakeCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    Records that took the offsets of copied ones are noticed by their leader epoch and all copied; nothing is left out.

    The source loses records 60 to 99 and gets 90 others in their place, while no mirror runs.
    """
    source = make_cluster("shortened", is_killed=True)
    mirror = Mirror(source.bootstrap_servers, backup.bootstrap_servers, prefix, tmp_path)
    await mirror.mirrored_once()
    ends = await lose_ends(source, [mirror.topic], keep_batches=6)
    await mirror.write(mirror.topic, 1000, 90)
    await mirror.write(mirror.other, 100, 20)
    async with mirror.running(**{"copy.on.source.truncated": "fail"}) as stopped:
        await stopped.told(PartitionStopped)
        await mirror.holds(mirror.other, range(120))
        before = await mirror.values(mirror.topic)
        await stopped.drain()
    async with mirror.running() as flow:
        await mirror.holds(mirror.topic, [*range(100), *range(1000, 1090)])
        (event,) = await flow.told(SourceTruncated)
        await flow.drain()
    partition = TopicPartition(mirror.topic, 0)
    translated = [flow.runner._translations.downstream(partition, at) for at in (30, 60, 149)]

    assert translated == [Translated(30), Translated(100), Translated(189)]
    assert (ends, before) == ({60}, list(range(100)))
    assert (event.records, event.position, event.goes_on_at, event.lost) == (40, 100, 60, 0)


# A target that lost what was copied.


async def test_a_deleted_remote_topic_is_filled_again(mirror: Mirror) -> None:
    """A remote topic that is deleted is filled again with all that the source has, and the loss is reported."""
    await mirror.create()
    await mirror.write(mirror.topic, 0, 100)
    async with mirror.running() as flow:
        await mirror.holds(mirror.topic, range(100))
        await delete_topic(mirror.target, f"A.{mirror.topic}")
        (event,) = await flow.told(RemoteTopicRecreated)
        await mirror.write(mirror.topic, 100, 20)
        await mirror.holds(mirror.topic, range(120))
        await mirror.write(mirror.other, 0, 20)
        await mirror.holds(mirror.other, range(20))
        await flow.drain()

    assert (event.records, event.lost, event.repeated, event.goes_on_at) == (100, 0, 100, 0)


async def test_a_remote_topic_that_is_empty_under_java_s_positions_is_filled_again(mirror: Mirror) -> None:
    """
    It was deleted, or has another name since: Java would go on at its position, and leave out all records before that.
    The mirror that takes over copies these too; if all that was copied has expired, it goes on as Java would.
    """
    await mirror.create()
    for topic in (mirror.topic, mirror.other):
        await mirror.write(topic, 0, 100)
    await delete_records(mirror.source, mirror.other, 80)
    offsets = f"{mirror.prefix}-offsets"
    await create_topic(mirror.target, offsets, configs={"cleanup.policy": "compact"})
    async with producer(mirror.target) as connected:
        for topic in (mirror.topic, mirror.other):
            key = position_key("A", TopicPartition(topic, 0))
            await connected.send_and_wait(offsets, key=key, value=b'{"offset":79}')
    async with mirror.running() as flow:
        await mirror.holds(mirror.topic, range(100))
        await mirror.holds(mirror.other, range(80, 100))
        await flow.drain()

    (event,) = flow.events.of(RemoteTopicRewound)
    assert (event.source.topic, event.records, event.goes_on_at, event.lost) == (mirror.topic, 80, 0, 0)


async def test_a_remote_topic_and_the_positions_vanish_together(mirror: Mirror) -> None:
    """The policy is applied although the position's topic is gone as well, and both losses are reported once."""
    await mirror.create()
    for topic in (mirror.topic, mirror.other):
        await mirror.write(topic, 0, 100)
    async with mirror.running() as flow:
        for topic in (mirror.topic, mirror.other):
            await mirror.holds(topic, range(100))
        for vanishing in (f"{mirror.prefix}-offsets", f"A.{mirror.topic}"):
            await vanish(mirror.target, vanishing, is_replaced=False)
        await flow.told(RemoteTopicRecreated)
        await mirror.holds(mirror.topic, range(100))
        await flow.told(InternalTopicRecreated)
        await mirror.write(mirror.topic, 100, 20)
        await mirror.holds(mirror.topic, range(120))
        await mirror.holds(mirror.other, range(100))
        await flow.crash()
    async with mirror.running() as again:
        await mirror.write(mirror.topic, 120, 20)
        await mirror.holds(mirror.topic, range(140))
        await again.drain()

    assert [event.topic for event in flow.events.of(InternalTopicRecreated)] == [f"{mirror.prefix}-offsets"]
    assert [event.source.topic for event in flow.events.of(RemoteTopicRecreated)] == [mirror.topic]
    assert not flow.events.of(StepFailed)
    assert not again.events.of(RemoteTopicRecreated)
    assert [event.fresh for event in again.events.of(PositionsRead)] == [0]


async def test_a_target_whose_disk_was_wiped_is_filled_again(
    primary: KafkaCluster, make_cluster: MakeCluster, prefix: str, tmp_path: Path
) -> None:
    """An empty cluster in the target's place gets all that the source has; each loss is reported once."""
    target = make_cluster("wiped", is_killed=True)
    mirror = Mirror(primary.bootstrap_servers, target.bootstrap_servers, prefix, tmp_path)
    await mirror.create()
    for topic in (mirror.topic, mirror.other):
        await mirror.write(topic, 0, 100)
    keys = {"emit.heartbeats.enabled": "true", "emit.checkpoints.interval.seconds": 1}
    internal = {f"{prefix}-offsets", "mm2-synced.A.internal", "A.checkpoints.internal", "heartbeats"}
    async with mirror.running(**keys) as flow:
        for topic in (mirror.topic, mirror.other):
            await mirror.holds(topic, range(100))

        async def are_there() -> bool:
            return internal <= await list_topics(mirror.target)

        await eventually(are_there, within_s=30, what="every internal topic is there")
        await eventually(
            lambda: {it.state for it in flow.runner.view().groups} == {FlowState.RUNNING}, within_s=30, what="all runs"
        )
        await wipe(target)
        await mirror.write(mirror.topic, 100, 20)
        await mirror.holds(mirror.topic, range(120))
        await mirror.holds(mirror.other, range(100))
        # If the group has to join again first, it starts with what the topic of synchronised configs holds by then.
        written = internal - {"mm2-synced.A.internal"}
        await eventually(
            lambda: written <= {event.topic for event in flow.events.of(InternalTopicRecreated)},
            within_s=30,
            what="it is told of every internal topic that is written",
        )
        await flow.drain()

    told = [event.topic for event in flow.events.of(InternalTopicRecreated)]
    assert internal >= set(told)
    assert len(told) == len(set(told))
    assert {event.source.topic for event in flow.events.of(RemoteTopicRecreated)} == {mirror.topic, mirror.other}
    assert len(flow.events.of(RemoteTopicRecreated)) == 2
    # Nothing is set on these topics that has to be remembered: the other one comes with the next look at their configs.
    assert written <= await list_topics(mirror.target)


async def test_records_deleted_at_the_target_are_not_a_truncation(mirror: Mirror) -> None:
    """What retention removes at the target stays removed: its end is where it was."""
    await mirror.mirrored_once()
    await delete_records(mirror.target, f"A.{mirror.topic}", 100)
    async with mirror.running() as flow:
        await mirror.write(mirror.topic, 100, 20)
        await mirror.holds(mirror.topic, range(100, 120))
        await flow.drain()

    assert not [event for kind in (RemoteTopicRewound, RemoteTopicRecreated) for event in flow.events.of(kind)]


async def test_a_target_that_lost_its_end_gets_it_again(
    primary: KafkaCluster, make_cluster: MakeCluster, prefix: str, tmp_path: Path
) -> None:
    """
    A target that lost records 60 to 99 while copying went on gets just these again, and is its source's copy.

    If the records are so old that the broker does not know the producer any more, it accepts a later batch before the
    loss is noticed. Then all are copied again, that batch twice. A topic that is quiet gets them without a new record.
    """
    target = make_cluster("shortened", is_killed=True)
    mirror, quiet = Mirror(primary.bootstrap_servers, target.bootstrap_servers, prefix, tmp_path), f"{prefix}-quiet"
    await mirror.create()
    await create_topic(mirror.source, quiet)
    await mirror.write(quiet, 0, 100)
    await mirror.write(mirror.topic, 0, 100)
    await mirror.write(mirror.other, 0, 100, age_s=_OLD_S)
    async with mirror.running(**{"copy.coalesce.below.bytes": 0}) as flow:
        for topic in (mirror.topic, mirror.other, quiet):
            await mirror.holds(topic, range(100))
        await lose_ends(target, [f"A.{topic}" for topic in (mirror.topic, mirror.other, quiet)], keep_batches=6)
        await mirror.write(mirror.topic, 100, 20)
        await mirror.write(mirror.other, 100, 20, age_s=_OLD_S)
        await mirror.holds(mirror.topic, range(120))
        await mirror.holds(quiet, range(100))

        async def all_there() -> bool:
            return (await mirror.values(mirror.other))[-60:] == [*range(60, 120)]

        await eventually(all_there, within_s=60, what="the older records are copied again")
        old = await mirror.values(mirror.other)
        await flow.drain()

    assert {(event.source.topic, event.records) for event in flow.events.of(RemoteTopicRewound)} == {
        (mirror.topic, 40),
        (mirror.other, 40),
        (quiet, 40),
    }
    assert old[:60] == list(range(60))
    assert set(old[60:-60]) <= set(range(100, 120))
    assert not flow.events.of(PartitionStopped)
