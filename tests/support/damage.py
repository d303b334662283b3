"""
What goes wrong with topics themselves: created again, cut from the front, and logs that lose their end with a broker.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Collection

from aiokafka import TopicPartition
from aiokafka.admin import NewTopic, RecordsToDelete

from mm2py.devkit.broker import BrokerNode, KafkaCluster
from mm2py.wire.batches.batch import batches
from tests.support.eventually import eventually
from tests.support.topics import admin, create_topic, delete_topic


async def recreate_topic(bootstrap: str, topic: str, *, partitions: int = 1) -> None:
    """Delete a topic and create another one of its name."""
    await delete_topic(bootstrap, topic)
    await create_topic(bootstrap, topic, partitions=partitions)


async def vanish(bootstrap: str, topic: str, *, is_replaced: bool) -> None:
    """Delete a topic in use, whose clients may create it again at once; or put another one there before they do."""
    async with admin(bootstrap) as connected:

        async def is_done() -> bool:
            gone = await connected.delete_topics([topic])
            if not is_replaced:
                return all(code == 0 for _, code in gone.topic_error_codes)
            answer = await connected.create_topics([NewTopic(topic, 1, 1)])
            return all(code == 0 for _, code, _ in answer.topic_errors)

        await eventually(is_done, within_s=30, what=f"{topic} has vanished", every_s=0.0)


async def delete_records(bootstrap: str, topic: str, before: int, *, partition: int = 0) -> None:
    """Remove all records of a partition before that offset, as retention does."""
    async with admin(bootstrap) as connected:
        await connected.delete_records({TopicPartition(topic, partition): RecordsToDelete(before)})


async def wipe(cluster: KafkaCluster) -> None:
    """Kill all brokers of *cluster* and empty their disks: at their addresses there is another cluster then."""
    for node in cluster.nodes:
        cluster.kill(node.broker_id)
        shutil.rmtree(node.data)
    await asyncio.to_thread(cluster.start_all)


async def lose_ends(cluster: KafkaCluster, topics: Collection[str], keep_batches: int) -> set[int]:
    """
    Kill the only broker of *cluster*, cut the topics' logs after their first batches, start it; return their ends.

    This is what an unclean election leaves: a leader under a new epoch whose log is shorter than what was read.
    """
    cluster.kill(0)
    ends = {_cut(cluster.nodes[0], f"{topic}-0", keep_batches) for topic in topics}
    await asyncio.to_thread(cluster.start, 0)
    return ends


def _cut(node: BrokerNode, folder: str, keep_batches: int) -> int:
    (segment,) = (node.data / folder).glob("*.log")
    kept = list(batches(memoryview(segment.read_bytes())))[:keep_batches]
    with segment.open("r+b") as log:
        log.truncate(sum(batch.size_bytes for batch in kept))
    return kept[-1].last_offset + 1 if kept else 0
