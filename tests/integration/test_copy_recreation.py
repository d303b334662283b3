"""
A source topic that is deleted and created again while an epoch reads it, and filled past the old position at once.

A reader by name cannot notice: the new topic answers a fetch at the old position. The moment is met for sure by
holding the fetchers between two fetches while the topic is exchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest

from mm2py.clock import SystemClock
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.epoch import CopyLimits, Ended, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.state import PartitionStage
from mm2py.pipeline.transform.failures import TransformFailedError, unreadable_in
from mm2py.pipeline.transform.read import RangeReader
from mm2py.telemetry.events import SourceTopicRecreated
from mm2py.wire import fetch
from mm2py.wire.cluster import Cluster
from mm2py.wire.fetch import FetchAnswer, FetchSession
from mm2py.wire.fetch_forms import FetchSizes
from tests.support.copying import copying, endpoint
from tests.support.damage import recreate_topic
from tests.support.eventually import eventually
from tests.support.flows import flow_settings, running_flow
from tests.support.producing import produce
from tests.support.reading import read_topic
from tests.support.records import MIDDLE_MS, NewRecord
from tests.support.topics import await_ends, create_topic, end_offsets


PARTITIONS = 16
OLD, NEW = 20, 60


@attrs.define
class Gate:
    """Holds every fetch session between an answer and its next request while it is closed."""

    is_open: asyncio.Event = attrs.field(factory=asyncio.Event)
    waiting: set[FetchSession] = attrs.field(factory=set)
    seen: set[FetchSession] = attrs.field(factory=set)

    @property
    def holds_all(self) -> bool:
        return bool(self.seen) and self.waiting >= self.seen

    def close(self) -> None:
        self.is_open.clear()

    def open(self) -> None:
        self.is_open.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    held, ask = Gate(), FetchSession.fetch
    held.open()

    async def fetch_when_open(session: FetchSession, sizes: FetchSizes, max_wait_ms: int) -> FetchAnswer:
        held.waiting.add(session)
        await held.is_open.wait()
        held.waiting.discard(session)
        held.seen.add(session)
        return await ask(session, sizes, max_wait_ms)

    monkeypatch.setattr(FetchSession, "fetch", fetch_when_open)
    return held


@pytest.fixture(params=["by id", "by name"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How sources are asked: as brokers from 3.1 on take it, or as older ones do."""
    if request.param == "by name":
        form = fetch._form
        monkeypatch.setattr(fetch, "_form", lambda connection, **_has_ids: form(connection, has_ids=False))
    return str(request.param)


async def fill(bootstrap: str, topic: str, what: str, count: int) -> None:
    records = [NewRecord(None, b"%s %d" % (what.encode(), at), (), MIDDLE_MS + at) for at in range(count)]
    await produce(bootstrap, topic, [records] * PARTITIONS)


async def kinds(bootstrap: str, topic: str) -> set[bytes]:
    """Return which source topics the remote topic has records of."""
    contents = await read_topic(bootstrap, topic)
    return {(record.value or b"").split()[0] for records in contents.values() for record in records}


async def refreshed(source: Cluster, topic: str) -> str:
    """Look the topic's id up."""
    await source.refresh_metadata([topic])
    found = source.topic_id(topic)
    assert found is not None
    return found


async def topic_id(cluster: KafkaCluster, topic: str) -> str:
    """Return the id of a topic, by a client that has not seen it yet."""
    async with Cluster(endpoint("A", cluster), SystemClock()) as looking:
        return await refreshed(looking, topic)


@asynccontextmanager
async def exchanged(gate: Gate, bootstrap: str, topic: str) -> AsyncIterator[None]:
    """Hold all fetchers, make the topic again and fill it past where it ended; let them go on in the block."""
    gate.close()
    await eventually(lambda: gate.holds_all, within_s=20, what="every fetcher is held")
    await recreate_topic(bootstrap, topic, partitions=PARTITIONS)
    await fill(bootstrap, topic, "new", NEW)
    gate.open()
    yield


async def test_not_one_record_of_the_new_topic_gets_behind_the_old_ones(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, *, gate: Gate, way: str, tmp_path: Path
) -> None:
    """Every partition stops as re-created where it stands, and what was copied of the old topic is counted."""
    source, remote, stop_file = primary.bootstrap_servers, f"A.{prefix}", tmp_path / "stop"
    await create_topic(source, prefix, partitions=PARTITIONS)
    await fill(source, prefix, "old", OLD)
    async with copying(primary, backup, {prefix: remote}, stop_file=str(stop_file)) as task:
        # As a daemon does: an epoch that is told none takes the topic that it finds.
        task.plan(topic_id=await topic_id(primary, prefix))
        epoch = asyncio.create_task(task.epoch(epoch_ms=300_000))
        everything = dict.fromkeys(range(PARTITIONS), OLD)
        await await_ends(backup.bootstrap_servers, remote, everything)
        async with exchanged(gate, source, prefix):
            left = task.worker.sessions.values()
            await eventually(lambda: all(it.is_empty for it in left), within_s=20, what="no partition is fetched")
        stop_file.touch()
        await epoch
        stop_file.unlink()  # partitions that were still looking their topic up do so in the next epoch
        await task.run(lambda: len(task.stopped) == PARTITIONS, within_s=20)

        assert await kinds(backup.bootstrap_servers, remote) == {b"old"}
        assert await end_offsets(backup.bootstrap_servers, remote) == everything
        assert {outcome.ended for outcome in task.stopped.values()} == {Ended.RECREATED}
        assert {plan.position for plan in task.plans.values()} == {OLD}
        assert task.total("records") == OLD * PARTITIONS
        assert {session._form.version for session in gate.seen} == {13 if way == "by id" else 11}


@pytest.mark.parametrize("policy", ["fail", "earliest"])
async def test_what_was_copied_before_is_accounted_for(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, *, gate: Gate, policy: str, tmp_path: Path
) -> None:
    """The event has how far the old topic was copied; then nothing of the new one is, or all of it once."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix, partitions=PARTITIONS)
    await fill(source, prefix, "old", OLD)
    keys = {
        "A->B.topics": prefix,
        "B.offset.storage.topic": f"{prefix}-offsets",
        "refresh.topics.interval.seconds": 600,
        # Whose epoch is over first tells of the topic, while those of the others, begun before, still last.
        "tasks.max": 4,
        "copy.epoch.ms": 8_000,
        "copy.on.source.recreated": policy,
    }
    expected = OLD if policy == "fail" else OLD + NEW
    async with running_flow(flow_settings(source, target, **keys), tmp_path) as flow:
        await await_ends(target, f"A.{prefix}", dict.fromkeys(range(PARTITIONS), OLD))
        async with exchanged(gate, source, prefix):
            told = flow.events.of
            await eventually(
                lambda: len(told(SourceTopicRecreated)) == PARTITIONS, within_s=30, what="all partitions are told of"
            )
            await await_ends(target, f"A.{prefix}", dict.fromkeys(range(PARTITIONS), expected))
        stages = {partition.stage for partition in flow.runner.view().partitions}
        await flow.drain()

    contents = await read_topic(target, f"A.{prefix}")
    values = [(record.value or b"") for record in contents[0]]
    assert {event.position for event in flow.events.of(SourceTopicRecreated)} == {OLD}
    assert values == [b"old %d" % at for at in range(OLD)] + [b"new %d" % at for at in range(expected - OLD)]
    assert (PartitionStage.STOPPED in stages) == (policy == "fail")


async def test_a_resume_reads_no_other_topic_of_the_name(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, way: str
) -> None:
    """After a crash the source is walked for what the target holds: not one that was created again meanwhile."""
    source, remote = primary.bootstrap_servers, f"A.{prefix}"
    await create_topic(source, prefix, partitions=PARTITIONS)
    await fill(source, prefix, "old", OLD)
    async with copying(primary, backup, {prefix: remote}) as task:
        old_id = await topic_id(primary, prefix)
        await task.catch_up()
        await await_ends(backup.bootstrap_servers, remote, dict.fromkeys(range(PARTITIONS), OLD))
        await recreate_topic(source, prefix, partitions=PARTITIONS)
        await fill(source, prefix, "new", NEW)
        task.doubt(topic_id=old_id, position=OLD // 2, downstream=OLD // 2 - 1)
        await task.run(lambda: len(task.stopped) == PARTITIONS, within_s=20)

        assert {outcome.ended for outcome in task.stopped.values()} == {Ended.RECREATED}
        assert await kinds(backup.bootstrap_servers, remote) == {b"old"}


async def test_a_transform_gets_no_records_of_another_topic_of_the_name(
    primary: KafkaCluster, prefix: str, way: str
) -> None:
    """An offset range that was planned of one topic is not read from a new one of its name."""
    source, clock = primary.bootstrap_servers, SystemClock()
    await create_topic(source, prefix, partitions=PARTITIONS)
    await fill(source, prefix, "old", OLD)
    async with Cluster(endpoint("A", primary), clock) as looking:
        plan = PartitionPlan(
            TopicPartition(prefix, 0), f"A.{prefix}", 0, -1, is_unsure=False,
            topic_id=await refreshed(looking, prefix), until=OLD,
        )  # fmt: skip
        reader = RangeReader(looking, CopyLimits(), clock, within_s=20)
        before = [columns async for columns in reader.read(plan)]
        await recreate_topic(source, prefix, partitions=PARTITIONS)
        await fill(source, prefix, "new", NEW)
        with pytest.raises(TransformFailedError) as raised:
            _ = [columns async for columns in reader.read(plan)]

    unreadable = unreadable_in(str(raised.value))
    assert sum(len(columns) for columns in before) == OLD
    assert unreadable is not None
    assert unreadable.ended is Ended.RECREATED


async def test_a_remote_topic_gets_no_record_from_the_middle_of_its_source(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """Once it was deleted and created again while nothing was sent to it, its broker knows the topic by another id."""
    target, remote = backup.bootstrap_servers, f"A.{prefix}"
    await create_topic(primary.bootstrap_servers, prefix, partitions=PARTITIONS)
    await fill(primary.bootstrap_servers, prefix, "old", OLD)
    async with copying(primary, backup, {prefix: remote}) as task:
        task.plan(remote_topic_id=await topic_id(backup, remote))
        await task.catch_up()
        await recreate_topic(target, remote, partitions=PARTITIONS)
        await fill(primary.bootstrap_servers, prefix, "new", NEW)
        await task.run(lambda: len(task.stopped) == PARTITIONS, within_s=60)

        assert {outcome.ended for outcome in task.stopped.values()} == {Ended.TARGET_REWOUND}
        assert await end_offsets(target, remote) == dict.fromkeys(range(PARTITIONS), 0)
