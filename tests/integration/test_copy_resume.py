"""Records of another writer in a remote topic: what they make unprovable after a crash, and how they are counted."""

from __future__ import annotations

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.epoch import Ended
from mm2py.model.flow import TopicPartition
from tests.support.copying import assert_exactly_once, copying
from tests.support.producing import produce
from tests.support.records import (
    MIDDLE_MS,
    NewRecord,
    plain_records,
    spread,
)
from tests.support.topics import create_topic


PARTITIONS = 4


async def test_foreign_record_makes_it_unprovable(primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> None:
    """With another producer's record in a remote partition its resume is unproven; the others resume exactly."""
    remote = f"A.{prefix}"
    await create_topic(primary.bootstrap_servers, prefix, partitions=2)
    await produce(primary.bootstrap_servers, prefix, spread(plain_records(2_000), 2))
    async with copying(primary, backup, {prefix: remote}) as task:
        await task.catch_up()
        await produce(primary.bootstrap_servers, prefix, spread(plain_records(2_000), 2))
        await produce(backup.bootstrap_servers, remote, [[NewRecord(b"not", b"ours", (), MIDDLE_MS)]])
        await task.lose(remote, 4_001)
        await task.new_worker()
        await produce(primary.bootstrap_servers, prefix, spread(plain_records(500), 2))
        task.doubt()
        await task.catch_up()
        sick = TopicPartition(prefix, 0)

        assert set(task.stopped) == {sick}
        assert task.stopped[sick].ended is Ended.UNPROVEN
        assert "another writer" in task.failure(sick).hint
        assert task.plans[TopicPartition(prefix, 1)].position == 2_250


async def test_foreign_records_are_counted_while_copying(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """Records that another producer writes between our batches are counted in the outcome."""
    remote = f"A.{prefix}"
    await create_topic(primary.bootstrap_servers, prefix)
    async with copying(primary, backup, {prefix: remote}) as task:
        await produce(primary.bootstrap_servers, prefix, [plain_records(10)])
        await task.catch_up()
        await produce(backup.bootstrap_servers, remote, [plain_records(3)])
        await produce(primary.bootstrap_servers, prefix, [plain_records(10, start=10)])
        await task.catch_up()

        assert task.total("foreign_records") == 3
    assert_exactly_once(task)
