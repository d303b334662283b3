"""Records or positions are removed between a crash and the restart: nothing is repeated, skipped or miscounted."""

from __future__ import annotations

from pathlib import Path

from mm2py.devkit.broker import KafkaCluster
from mm2py.telemetry.events import ForeignRecordsFound, RecordsSkipped, ResumedExactly, ResumeUnproven
from tests.support.damage import delete_records
from tests.support.eventually import eventually
from tests.support.flows import flow_settings, running_flow
from tests.support.producing import COMPACTED_CONFIGS, produce
from tests.support.reading import read_topic
from tests.support.records import MIDDLE_MS, NewRecord
from tests.support.topics import alter_topic, create_topic, delete_topic


COUNT = 2_000


def numbered(numbers: range, *, keys: int = 400) -> list[NewRecord]:
    """Make records whose values are their numbers, with keys that come again."""
    return [NewRecord(b"k%d" % (number % keys), b"%d" % number, (), MIDDLE_MS + number) for number in numbers]


async def values(cluster: KafkaCluster, topic: str) -> list[bytes | None]:
    return [record.value for record in (await read_topic(cluster.bootstrap_servers, topic)).get(0, [])]


async def test_compaction_between_a_crash_and_the_restart(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    The source no longer holds as many records as arrived since the position was written.

    Only the start position is written when the mirror is killed; most of what it has copied is compacted then.
    """
    source = primary.bootstrap_servers
    await create_topic(source, prefix)
    await produce(source, prefix, [numbered(range(COUNT))], batch_records=100)
    settings = flow_settings(source, backup.bootstrap_servers, alias=prefix, **{f"{prefix}->B.topics": prefix})
    remote = f"{prefix}.{prefix}"
    async with running_flow(settings, tmp_path) as flow:
        await flow.copied(COUNT)
        await flow.crash()
    await alter_topic(source, prefix, COMPACTED_CONFIGS)
    late = 0

    async def is_compacted() -> bool:
        nonlocal late
        await produce(source, prefix, [[NewRecord(b"late", b"late %d" % late, (), MIDDLE_MS + 60_000 + late)]])
        late += 1
        return len(await values(primary, prefix)) < COUNT // 2

    await eventually(is_compacted, within_s=60, what="the source is compacted", every_s=0.5)
    await alter_topic(source, prefix, {"cleanup.policy": "delete", "retention.ms": "-1"})
    fresh = numbered(range(COUNT, COUNT + 500))
    await produce(source, prefix, [fresh])
    left = [value for value in await values(primary, prefix) if value is not None and value.startswith(b"late")]
    async with running_flow(settings, tmp_path) as flow:
        await flow.copied(len(left) + len(fresh))
        await flow.drain()

        expected = [record.value for record in numbered(range(COUNT))] + left + [record.value for record in fresh]
        assert await values(backup, remote) == expected
        assert [event.records for event in flow.events.of(ResumedExactly)] == [COUNT]
        assert not flow.events.of(ResumeUnproven)
        assert not flow.events.of(ForeignRecordsFound)


async def test_records_deleted_at_the_target_are_not_foreign(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    All that arrived since the position was written is deleted at the target: there is nothing to compare it with.

    It is copied again, as it must be, and the mirror's own earlier records do not count as another writer's.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix)
    await produce(source, prefix, [numbered(range(COUNT))], batch_records=100)
    settings = flow_settings(source, target, alias=prefix, **{f"{prefix}->B.topics": prefix})
    remote = f"{prefix}.{prefix}"
    async with running_flow(settings, tmp_path) as flow:
        await flow.copied(COUNT)
        await flow.crash()
    await delete_records(target, remote, COUNT)
    async with running_flow(settings, tmp_path) as flow:
        await flow.copied(COUNT)
        await flow.drain()

        assert await values(backup, remote) == [record.value for record in numbered(range(COUNT))]
        assert len(flow.events.of(ResumeUnproven)) == 1
        assert not flow.events.of(ForeignRecordsFound)


async def test_positions_are_lost_and_the_start_is_the_end(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    The positions topic is deleted, and the source goes on meanwhile.

    By its setting the mirror would begin at the source's end; it begins after what the target holds.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix)
    await produce(source, prefix, [numbered(range(COUNT))], batch_records=100)
    keys = {f"{prefix}->B.topics": prefix}
    async with running_flow(flow_settings(source, target, alias=prefix, **keys), tmp_path) as flow:
        await flow.copied(COUNT)
        await flow.drain()
    await delete_topic(target, f"mm2-offsets.{prefix}.internal")
    await produce(source, prefix, [numbered(range(COUNT, 3 * COUNT))], batch_records=100)
    settings = flow_settings(source, target, alias=prefix, **keys, **{f"{prefix}.consumer.auto.offset.reset": "latest"})
    async with running_flow(settings, tmp_path) as flow:
        await flow.copied(2 * COUNT)
        await flow.drain()

        assert await values(backup, f"{prefix}.{prefix}") == [record.value for record in numbered(range(3 * COUNT))]
        assert [event.position for event in flow.events.of(ResumedExactly)] == [COUNT]
        assert not flow.events.of(RecordsSkipped)
        assert not flow.events.of(ResumeUnproven)


async def test_what_is_left_out_is_told(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """If a remote topic ends with another writer's records, the setting counts and skipped offsets are reported."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    remote = f"{prefix}.{prefix}"
    await create_topic(source, prefix)
    await create_topic(target, remote)
    await produce(source, prefix, [numbered(range(300))], batch_records=100)
    await produce(target, remote, [numbered(range(5_000, 5_010))])
    keys = {f"{prefix}->B.topics": prefix, f"{prefix}.consumer.auto.offset.reset": "latest"}
    async with running_flow(flow_settings(source, target, alias=prefix, **keys), tmp_path) as flow:
        await eventually(lambda: flow.events.of(RecordsSkipped), within_s=30, what="what is skipped is told")
        await produce(source, prefix, [numbered(range(300, 400))])
        await flow.copied(100)
        await flow.drain()

        (event,) = flow.events.of(RecordsSkipped)
        assert (event.skipped_from, event.position) == (0, 300)
        assert "is not in the source" in event.message
        assert not flow.events.of(ResumeUnproven)
        assert not flow.events.of(ForeignRecordsFound)
    written = [*range(5_000, 5_010), *range(300, 400)]
    assert await values(backup, remote) == [b"%d" % number for number in written]
