"""Reading from the replica in the copier's own rack (KIP-392)."""

from __future__ import annotations

import asyncio

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.epoch import CopyLimits
from tests.support.brokers import MakeCluster
from tests.support.copying import Copying, assert_exactly_once
from tests.support.producing import produce_numbers
from tests.support.reading import read_numbers
from tests.support.records import assert_numbers
from tests.support.topics import create_topic


_SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
_COUNT = 20_000


def _read_brokers(task: Copying) -> set[int]:
    """Return the brokers from which partitions are fetched at present."""
    sessions = task.worker.sessions.items()
    return {node for (_, node, _), it in sessions if not it.is_empty and not it.connection.is_closed}


async def test_a_replica_in_the_reader_s_rack_is_read(
    make_cluster: MakeCluster, backup: KafkaCluster, prefix: str
) -> None:
    """
    The leader names the replica in the reader's rack, which is read from then on; if it dies, the leader is again.

    Nothing is missing and nothing comes twice on the way there and back.
    """
    source = await asyncio.to_thread(make_cluster, "racks", brokers=3, properties=_SELECTOR)
    await create_topic(source.bootstrap_servers, prefix, replicas={0: [0, 2], 1: [1, 2]})
    await produce_numbers(source.bootstrap_servers, prefix, count=_COUNT, partitions=2)
    limits = CopyLimits(rack="rack-2")
    async with await Copying.of(source, backup, {prefix: f"A.{prefix}"}, limits=limits) as task:
        await task.catch_up()
        # Between an error and the next fetch a partition is in no session, so one look may find none.
        await task.run(lambda: _read_brokers(task) == {2})
        source.kill(2)
        await produce_numbers(source.bootstrap_servers, prefix, count=_COUNT, partitions=2)
        await task.catch_up()
        await task.run(lambda: _read_brokers(task) == {0, 1})
    numbers = await read_numbers(backup.bootstrap_servers, f"A.{prefix}")

    assert_exactly_once(task)
    for copied in numbers.values():
        half = len(copied) // 2

        assert copied[:half] == copied[half:] == sorted(copied[:half])
    assert_numbers({partition: copied[: len(copied) // 2] for partition, copied in numbers.items()}, _COUNT)
