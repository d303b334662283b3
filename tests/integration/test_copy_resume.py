"""After a crash the copier finds out what has arrived and goes on exactly there, or reports that it cannot."""

from __future__ import annotations

import attrs
import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.epoch import Ended
from mm2py.model.flow import TopicPartition
from tests.support.copying import assert_exactly_once, copying
from tests.support.producing import numbered_stream, produce, produce_transactions
from tests.support.reading import read_numbers, read_topic
from tests.support.records import (
    MIDDLE_MS,
    NewRecord,
    assert_numbers,
    assert_same_records,
    plain_records,
    spread,
    strange_records,
)
from tests.support.topics import create_topic


PARTITIONS = 4


@pytest.mark.parametrize(
    "forget",
    [
        pytest.param({}, id="our position"),
        pytest.param({"downstream": None, "producer": None}, id="a position that Java wrote"),
        pytest.param({"producer": None}, id="a position without a producer"),
    ],
)
async def test_lost_epochs_repeat_nothing(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, forget: dict[str, object]
) -> None:
    """
    Again and again an epoch's outcome is lost with its worker, while records keep coming.

    The next one is planned from an old position and finds out what the lost ones had copied.
    """
    count = 15_000
    await create_topic(primary.bootstrap_servers, prefix, partitions=PARTITIONS)
    async with (
        copying(primary, backup, {prefix: f"A.{prefix}"}) as task,
        numbered_stream(primary.bootstrap_servers, prefix, count=count, partitions=PARTITIONS, rate=5_000) as stream,
    ):
        await task.epoch()
        for _ in range(3):
            await task.lost_epoch(epoch_ms=600)
            await task.new_worker()
            task.doubt(**forget)
            await task.epoch(epoch_ms=1_200)

            assert not task.stopped, task.describe()
        await stream.done()
        await task.catch_up()

    assert_numbers(await read_numbers(backup.bootstrap_servers, f"A.{prefix}"), count)
    assert task.total("resumed_records") > 0
    assert task.total("foreign_records") == 0


async def test_resuming_counts_what_consumers_see(primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> None:
    """A resume counts records, not offsets: markers, aborted transactions and merged batches lie in between."""
    remote = f"A.{prefix}"
    await create_topic(primary.bootstrap_servers, prefix, partitions=2)
    await produce(primary.bootstrap_servers, prefix, spread(strange_records(1_500), 2), batch_records=1)
    rounds = [(number % 3 != 1, spread(plain_records(200, start=number * 200), 2)) for number in range(6)]
    await produce_transactions(primary.bootstrap_servers, prefix, rounds, transactional_id=prefix, batch_records=30)
    async with copying(primary, backup, {prefix: remote}) as task:
        task.limits = attrs.evolve(task.limits, reads_committed=True)
        await task.lose(remote, 1_500 + 1 + 800)
        await task.new_worker()
        task.doubt(producer=None)
        await produce(primary.bootstrap_servers, prefix, spread(strange_records(500, seed=2), 2), codec="zstd")
        await task.catch_up()

        assert task.total("resumed_records") == 1_500 + 1 + 800
        assert_same_records(
            await read_topic(primary.bootstrap_servers, prefix, reads_committed=True),
            await read_topic(backup.bootstrap_servers, remote),
        )


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
