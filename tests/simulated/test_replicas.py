"""Which replica leads once others are gone, and what is lost by it, as ReplicationControlManager decides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.simulated.cluster import Cluster
from tests.simulated.log import NOBODY, Partition
from tests.simulated.loop import SimLoop
from tests.simulated.network import Network
from tests.support.batches import TRANSACTIONAL, Content, build_batch, control_batch


def _all_but_one_gone(cluster: Cluster, **configs: str) -> Partition:
    """Have the leader alone write two of three batches, then be gone as well; another replica comes back."""

    async def live() -> Partition:
        partition = cluster.create("t", 1, {key.replace("_", "."): value for key, value in configs.items()}).partitions[
            0
        ]
        first, second, leader = partition.replicas[1], partition.replicas[2], partition.leader
        for gone in ((), (first, second), ()):
            for node in gone:
                cluster.crash(node)
            await asyncio.sleep(20)
            batch = partition.append(build_batch(1), "")
            cluster.appended(cluster.brokers[leader], partition, batch)
            await asyncio.sleep(1)
        assert (partition.high_watermark, partition.isr) == (3, [leader])
        cluster.crash(leader)
        await asyncio.sleep(20)
        cluster.restart(first)
        await asyncio.sleep(20)
        return partition

    return cluster.loop.run_until_complete(live())


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    loop = SimLoop()
    yield Cluster("B", loop, Network(loop, 0), 0)
    loop.close()


def test_a_replica_that_was_not_in_sync_does_not_lead(cluster: Cluster) -> None:
    """The partition waits for the one that has all; then the others follow it."""
    partition = _all_but_one_gone(cluster)
    (last,) = partition.isr
    assert partition.leader == NOBODY

    async def comes_back() -> None:
        cluster.restart(last)
        await asyncio.sleep(20)

    cluster.loop.run_until_complete(comes_back())

    assert (partition.leader, partition.end, len(partition.isr)) == (last, 3, 2)


def test_an_unclean_election_loses_what_the_replica_lacks(cluster: Cluster) -> None:
    """It goes on where it left off, acknowledged or not; where the former epoch ended tells."""
    lost = []
    cluster.on_loss = lambda _, batches: lost.extend(batches)
    partition = _all_but_one_gone(cluster, unclean_leader_election_enable="true")

    assert [batch.base for batch in lost] == [1, 2]
    assert (partition.leader, partition.end, partition.high_watermark) == (partition.replicas[1], 1, 1)
    assert partition.epoch_end(0) == (0, 1)


def test_a_marker_that_only_the_leader_had_is_written_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what is open would stay so, and nothing behind it could be read."""
    partition = cluster.create("t", 1).partitions[0]
    batch = build_batch([Content(0, 0, b"k", b"v")], producer=(7, 0, 0), attributes=TRANSACTIONAL)
    partition.append(batch, "n0")
    partition.raise_watermark(1)
    partition.append(control_batch(0, 7, commits=True), "coordinator")
    monkeypatch.setattr(cluster.random, "choice", min)

    cluster.elect(partition, partition.replicas[1])

    assert [it.is_control for it in partition.batches] == [False, True]
    assert not partition.open
