"""Finding out what has arrived while a cluster is away, a log still grows, or a walk is interrupted."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.errors import BrokerConnectionError
from mm2py.model.epoch import Ended, Run, Runs
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.resume import Walked
from tests.support.batches import build_batch, flipped
from tests.support.model_cluster import ModelCluster
from tests.support.resuming import REMOTE, TOPIC, ResumeRig, assert_resumed, copy_of, record, rig_of


@pytest.fixture
def rig() -> ResumeRig:
    return rig_of()


async def test_target_that_keeps_growing_is_waited_for(rig: ResumeRig) -> None:
    """Nothing is concluded while records still arrive from a writer that was thought lost."""
    rig.write_source(range(100))
    rig.write_target(range(10))
    loop = asyncio.get_running_loop()
    for step in range(12):
        loop.call_later(0.2 * step, rig.write_target, [10 + step])
    copy = await rig.resume(10, 9)

    assert_resumed(rig, copy, position=22, downstream=21, records=12)
    assert loop.time() > 2.4


async def test_records_not_yet_replicated_are_waited_for(rig: ResumeRig) -> None:
    """What the leader holds beyond its high watermark may still become visible, so it is waited for."""
    rig.write_source(range(100))
    rig.write_target(range(15))
    rig.downstream.not_replicated = 3
    copy = await rig.resume(10, 9, within_s=3)

    assert not rig.resolved
    assert copy.retried_failure is not None
    assert "3 records of A.orders-0 are not on all replicas yet" in copy.retried_failure.message
    rig.downstream.not_replicated = 0
    copy = await rig.resume(10, 9)

    assert_resumed(rig, copy, position=15, downstream=14, records=5)


async def test_an_open_transaction_at_the_target_is_waited_for(rig: ResumeRig) -> None:
    """
    What an exactly-once mirror that was killed wrote last may yet be aborted.

    Java MirrorMaker dies with five records in an open transaction; they match the source. If copying went on
    after them, they would be lost to consumers of committed records once the brokers abort it.
    """
    rig.write_source(range(100))
    rig.write_target(range(15))
    rig.downstream.stable_end = 10
    copy = await rig.resume(10, None, within_s=3)

    assert not rig.resolved
    assert copy.retried_failure is not None
    assert "a transaction that is still open holds A.orders-0 at offset 10" in copy.retried_failure.message
    rig.downstream.stable_end = 15
    copy = await rig.resume(10, 9)

    assert_resumed(rig, copy, position=15, downstream=14, records=5)


@pytest.mark.parametrize("side", ["source", "target"])
async def test_cluster_that_goes_away_is_tried_again(rig: ResumeRig, side: str) -> None:
    """A cluster that cannot be reached while resuming is trouble, not the end of the epoch; it goes on afterwards."""
    rig.write_source(range(100))
    rig.write_target(range(15))
    cluster: ModelCluster = getattr(rig, side)
    loop = asyncio.get_running_loop()
    loop.call_later(0.3, setattr, cluster, "is_unreachable", True)
    cluster.down = {0}
    copy = await rig.resume(10, 9, within_s=3)

    assert copy.retried_failure is not None
    assert copy.retried_failure.error in {"ClusterUnreachableError", "BrokerConnectionError"}
    assert (copy.ended, copy.is_unsure) == (Ended.OK, True)
    cluster.down, cluster.is_unreachable = set(), False
    copy = await rig.resume(10, 9)

    assert_resumed(rig, copy, position=15, downstream=14, records=5)


async def test_partitions_do_not_wait_for_each_other() -> None:
    """A target leader that is away keeps its own partitions waiting; the others are handed over meanwhile."""
    rig = rig_of(4, brokers=2)
    rig.target.partitions[TopicPartition(REMOTE, 1)].leader = None
    copies = [copy_of(number, 0, -1) for number in range(4)]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await rig.resumer().resolve(copies, rig.resolved.append)

    assert sorted(copy.remote.partition for copy in rig.resolved) == [0, 2, 3]


async def test_long_walk_does_not_hold_others_up() -> None:
    """A partition that has far to walk is handed over when it is done, the others before."""
    rig = rig_of(2)
    rig.write_source(range(3_000), batch=1)
    rig.write_target(range(2_500))
    done: list[tuple[int, float]] = []
    loop = asyncio.get_running_loop()
    copies = [copy_of(0, 0, -1), copy_of(1, 0, -1)]
    await rig.resumer().resolve(copies, lambda copy: done.append((copy.remote.partition, loop.time())))

    assert [number for number, _ in done] == [1, 0]


async def test_walk_goes_on_where_the_last_epoch_left_it(rig: ResumeRig) -> None:
    """A walk that an epoch's end interrupted is not started again: what it has passed is not read again."""
    rig.write_source(range(40))
    rig.upstream.batches[3] = (9, 11, flipped(rig.upstream.batches[3][2]))
    rig.write_target(range(30))
    copy = copy_of(0, 5, 4)
    rig.walks["B", copy.plan] = Walked(24, 19, Runs([Run(5, 5, 19)]))
    await rig.resumer().resolve([copy], rig.resolved.append)

    assert_resumed(rig, copy, position=30, downstream=29, records=25)
    assert list(copy.runs) == [Run(5, 5, 25)]
    assert not rig.walks


async def test_corrupt_source_batch_ends_the_partition(rig: ResumeRig) -> None:
    """A source batch that does not match its checksum proves nothing about what arrived."""
    rig.write_source(range(6))
    rig.upstream.load(flipped(build_batch([record(6)], base_offset=6)))
    rig.write_source(range(7, 12))
    rig.write_target(range(10))
    copy = await rig.resume(3, 2)

    assert (copy.ended, copy.is_unsure) == (Ended.FAILED, True)
    assert copy.failure is not None
    assert (copy.failure.error, copy.failure.offset) == ("CorruptBatchError", 6)


async def test_moved_leader_is_looked_up_again(rig: ResumeRig) -> None:
    """A walk follows a source leader that moves meanwhile."""
    rig.write_source(range(40))
    rig.write_target(range(15))
    rig.source.known_leaders = {TopicPartition(TOPIC, 0): 0}
    rig.upstream.leader = 1
    copy = await rig.resume(10, 9)

    assert_resumed(rig, copy, position=15, downstream=14, records=5)
    assert rig.source.refreshes >= 1


async def test_silent_leader_gives_up_with_its_own_error(rig: ResumeRig) -> None:
    """A source broker that refuses every attempt is named in the trouble."""
    rig.write_source(range(40))
    rig.write_target(range(15))
    rig.source.down = {0}
    copy = await rig.resume(10, 9, within_s=5)

    assert copy.retried_failure is not None
    assert copy.retried_failure.error == BrokerConnectionError.__name__
    assert "connection refused" in copy.retried_failure.message
