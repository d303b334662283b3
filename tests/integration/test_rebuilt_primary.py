"""A primary that was rebuilt from its backup, on real clusters: the old flow goes on at the record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import attrs
import pytest
from aiokafka import AIOKafkaProducer

from mm2py.clock import SystemClock
from mm2py.config.settings import FlowSettings
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset
from mm2py.telemetry.events import PartitionStopped, SourceTopicRebuilt, SourceTopicRecreated
from tests.support.damage import delete_records
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, flow_settings, running_flow
from tests.support.groups import commit_as_admin, committed
from tests.support.producing import COMPACTED_CONFIGS, producer
from tests.support.reading import read_topic
from tests.support.topics import alter_topic, create_topic, delete_topic


#: When the test's first record was written.
_BEGUN_MS = 1_700_000_000_000


@attrs.frozen
class Pair:
    """Two clusters, a topic of two partitions, of which the second one stays empty, and a flow that keeps its name."""

    source: str
    target: str
    topic: str
    work_dir: Path

    async def write(
        self, numbers: Iterable[int], bootstrap: str = "", *, later_ms: int = 0, key: bytes = b"key"
    ) -> None:
        """Write numbers as records, each with a timestamp of its own."""
        async with producer(bootstrap or self.source) as connected:
            for number in numbers:
                await self._send(connected, b"%d" % number, _BEGUN_MS + number * 1000 + later_ms, key)

    async def _send(self, connected: AIOKafkaProducer, value: bytes, timestamp_ms: int, key: bytes = b"key") -> None:
        await connected.send_and_wait(self.topic, value, key, partition=0, timestamp_ms=timestamp_ms)

    async def values(self, bootstrap: str) -> list[int]:
        return [int(record.value or b"") for record in (await read_topic(bootstrap, self.topic))[0]]

    async def lose_primary(self) -> None:
        """Create the topic again at the source, as an empty one."""
        await delete_topic(self.source, self.topic)
        await create_topic(self.source, self.topic, partitions=2)

    async def rebuild(self, *, first: int = 0, last: int | None = None) -> None:
        """Fill the source's topic with what the backup holds, as a flow home or any other tool does."""
        async with producer(self.source) as connected:
            for record in (await read_topic(self.target, self.topic))[0][first:last]:
                await self._send(connected, record.value or b"", record.timestamp_ms)

    def settings(self, source: str, target: str, alias: str, to_alias: str, **keys: object) -> FlowSettings:
        identity = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
        ours = {
            f"{alias}->{to_alias}.topics": self.topic,
            "replication.policy.class": identity,
            "offset.storage.topic": f"{self.topic}-{alias}-offsets",
            "offset.flush.interval.ms": 500,
            "groups": f"{self.topic}.*",
        }
        return flow_settings(source, target, alias=alias, to_alias=to_alias, **{**ours, **keys})

    def running(self, **keys: object) -> AbstractAsyncContextManager[RunningFlow]:
        return running_flow(self.settings(self.source, self.target, "A", "B", **keys), self.work_dir)

    async def holds(self, numbers: Sequence[int]) -> None:
        async def is_so() -> bool:
            found = await self.values(self.target)
            assert found == list(numbers), f"{len(found)} records, {found[:5]} to {found[-5:]}"
            return True

        await eventually(is_so, within_s=60, what=f"the target holds {numbers}", every_s=0.3)


@pytest.fixture
async def pair(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> Pair:
    """Return a pair of which the target has 200 of the 210 records that the primary had when it was lost."""
    pair = Pair(primary.bootstrap_servers, backup.bootstrap_servers, prefix, tmp_path)
    await create_topic(pair.source, prefix, partitions=2)
    await pair.write(range(50))
    await delete_records(pair.source, prefix, 20)
    await pair.write(range(50, 220))
    async with pair.running() as flow:
        await pair.holds(range(20, 220))
        await flow.drain()
    await pair.write(range(220, 230))
    await pair.lose_primary()
    return pair


async def test_the_old_flow_goes_on_at_the_record(pair: Pair) -> None:
    """
    The flow home fills the new topic, whose offsets are other ones, from a target that was written to meanwhile; then
    the old flow copies what is new, nothing twice, and translates offsets of the new topic.
    """
    await pair.write(range(300, 320), pair.target)
    home = pair.settings(pair.target, pair.source, "B", "A")
    async with running_flow(home, pair.work_dir) as back:
        await back.copied(220)
        await back.drain()
    await pair.write(range(400, 410))
    group, place = f"{pair.topic}-group", TopicPartition(pair.topic, 0)
    await commit_as_admin(pair.source, group, {place: CommittedOffset(100)})
    syncs = {"sync.group.offsets.enabled": "true", "sync.group.offsets.interval.seconds": 1}
    async with pair.running(**syncs, **{"emit.checkpoints.interval.seconds": 1}) as flow:
        await pair.holds([*range(20, 220), *range(300, 320), *range(400, 410)])
        (event,) = await flow.told(SourceTopicRebuilt)

        async def is_translated() -> bool:
            return await committed(pair.target, group) == {place: 100}

        await eventually(is_translated, within_s=60, what="the group is at the same record")
        await pair.write(range(410, 420))
        await pair.holds([*range(20, 220), *range(300, 320), *range(400, 420)])
        await flow.drain()
    async with pair.running() as again:
        await pair.write(range(420, 430))
        await pair.holds([*range(20, 220), *range(300, 320), *range(400, 430)])
        await again.drain()

    assert (event.log_start, event.goes_on_at) == (0, 220)
    # The empty partition has nothing to compare: it goes on once the other one has.
    assert [it.source.partition for it in flow.events.of(SourceTopicRecreated)] == [1]
    assert not flow.events.of(PartitionStopped)
    assert not again.events.of(SourceTopicRebuilt)


async def _stops(pair: Pair, flow: RunningFlow, before: Sequence[int]) -> None:
    await flow.told(SourceTopicRecreated)
    await flow.told(PartitionStopped)
    assert await pair.values(pair.target) == list(before)
    assert not flow.events.of(SourceTopicRebuilt)


async def test_a_primary_that_is_still_being_filled_is_waited_for(pair: Pair) -> None:
    """Half of the records are there when the flow starts; it goes on once all are, without an operator."""
    await pair.rebuild(last=100)
    async with pair.running() as flow:
        await _stops(pair, flow, range(20, 220))
        await pair.rebuild(first=100)
        await pair.write(range(400, 410))
        await pair.holds([*range(20, 220), *range(400, 410)])
        await flow.drain()

    assert len(flow.events.of(SourceTopicRebuilt)) == 1


@pytest.mark.parametrize("case", ["new", "in front", "between", "again", "gap"])
async def test_what_is_not_proven_waits_for_an_operator(pair: Pair, case: str) -> None:
    """Records that the target does not have, before or between its own; or the same ones at another time, or twice."""
    if case == "new":
        await pair.write(range(20, 220), later_ms=86_400_000_000)
    elif case == "in front":
        await pair.write([1000])
        await pair.rebuild()
    elif case == "between":
        await pair.rebuild(last=100)
        await pair.write([1000])
        await pair.rebuild(first=100)
    elif case == "again":
        await pair.rebuild(last=100)
        await pair.rebuild(first=99)
    else:
        await pair.rebuild(last=199)
        await pair.write([1000])
    async with pair.running() as flow:
        await _stops(pair, flow, range(20, 220))
        await flow.drain()


#: The target's configs stay as the test sets them.
_UNSYNCED = {"sync.topic.configs.enabled": "false"}


@pytest.mark.parametrize("is_new_in_front", [False, True], ids=["expired", "a new record in front"])
async def test_what_has_expired_at_the_target_is_not_missing_there(pair: Pair, *, is_new_in_front: bool) -> None:
    """
    The target's retention has removed its first records since; the source, of other segments, still has them.

    All that is in front must be older than what the target keeps: a new record there was never copied.
    """
    if is_new_in_front:
        await pair.write([1000])
    await pair.rebuild()
    kept_ms = SystemClock().wall_ms() - _BEGUN_MS - 60_000
    await alter_topic(pair.target, pair.topic, {"retention.ms": str(kept_ms)})
    await delete_records(pair.target, pair.topic, 30)
    await pair.write(range(400, 410))
    async with pair.running(**_UNSYNCED) as flow:
        if is_new_in_front:
            await _stops(pair, flow, range(50, 220))
        else:
            await pair.holds([*range(50, 220), *range(400, 410)])
        await flow.drain()

    rebuilt, stopped = flow.events.of(SourceTopicRebuilt), flow.events.of(PartitionStopped)
    assert [(it.log_start, it.goes_on_at) for it in rebuilt] == ([] if is_new_in_front else [(0, 200)])
    assert bool(stopped) is is_new_in_front
    if stopped:
        why = f"upstream offset 0 of {pair.topic}-0 is not in {pair.topic}-0, which begins at offset 30: whether it had"
        assert f"it is not proven to be rebuilt from {pair.topic}: {why}" in stopped[0].message


@pytest.mark.parametrize("key", [b"key", b"another"], ids=["superseded", "not superseded"])
async def test_what_compaction_removed_at_the_target_is_not_missing_there(pair: Pair, key: bytes) -> None:
    """Each record that is not there any more must have a later one of its key which is: a new key was never copied."""
    await pair.rebuild(last=100)
    await pair.write([1000], key=key)
    await pair.rebuild(first=100)
    await alter_topic(pair.target, pair.topic, COMPACTED_CONFIGS)
    for bootstrap in (pair.source, pair.target):
        await pair.write([300], bootstrap)  # what is in the last segment is not compacted

    async def is_compacted() -> bool:
        return await pair.values(pair.target) == [219, 300]

    await eventually(is_compacted, within_s=60, what="the target is compacted", every_s=0.5)
    await pair.write([400])
    async with pair.running(**_UNSYNCED) as flow:
        if key == b"key":
            await flow.told(SourceTopicRebuilt)
        else:
            await _stops(pair, flow, [219, 300])

        async def is_copied() -> bool:
            return (await pair.values(pair.target))[-1] == (400 if key == b"key" else 300)

        await eventually(is_copied, within_s=60, what="copying goes on, or does not", every_s=0.3)
        await flow.drain()

    stopped = flow.events.of(PartitionStopped)
    if key == b"key":
        assert [it.goes_on_at for it in flow.events.of(SourceTopicRebuilt)] == [202]
        assert not stopped
    else:
        assert stopped[0].message.endswith(f"{pair.topic}-0 is not in {pair.topic}-0, nor is a later record of its key")
