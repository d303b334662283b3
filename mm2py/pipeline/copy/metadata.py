"""
What an epoch takes from the metadata of its clusters: who leads, and whether a topic is still the one of the plan.

What is known of either may be old. So a topic that seems to be another one is looked up again before that counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from mm2py.errors import ClusterUnreachableError
from mm2py.model.epoch import Ended, PartitionFailure, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.topic import is_other_topic
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.wire.cluster import Cluster


#: About how many partitions are asked for at once while records are copied.
_PART_PARTITIONS: Final = 500
#: Pause after a cluster was unreachable.
UNREACHABLE_PAUSE_S: Final = 0.2

#: What an operator may do about a target that is shorter than it was.
HINT_REWOUND: Final = "the remote topic was truncated or re-created; copy.on.target.rewound defines what to do"


class WantedTopics:
    """The topics whose metadata is needed again."""

    def __init__(self) -> None:
        self._topics: set[str] = set()
        self._is_wanted = asyncio.Event()

    def add(self, topic: str) -> None:
        self._topics.add(topic)
        self._is_wanted.set()

    def is_set(self) -> bool:
        """Whether there are any."""
        return self._is_wanted.is_set()

    async def take(self) -> set[str]:
        """Wait until there are some; return them, and forget them."""
        await self._is_wanted.wait()
        self._is_wanted.clear()
        topics, self._topics = self._topics, set()
        return topics


async def follow_leaders(cluster: Cluster, wanted: WantedTopics) -> None:
    """Refresh the metadata of topics whenever it is *wanted*; partitions find their new leaders by themselves."""
    while True:
        topics = await wanted.take()
        try:
            await cluster.refresh_metadata(topics)
        except ClusterUnreachableError:
            # The code that needs it gets the same error, reports it, and retries.
            await cluster.clock.sleep(UNREACHABLE_PAUSE_S)


async def renew_aged(cluster: Cluster, topics: Iterable[str]) -> None:
    """
    Refresh what has aged of the metadata of *topics*, while records are copied, and where a broker is that was silent.

    It is read a part at a time: they would wait for as long as an answer about thousands of partitions takes to decode.
    """
    try:
        if cluster.may_have_moved:
            await cluster.refresh_metadata(())
        for some in _parts(cluster, cluster.aged(set(topics))):
            await cluster.ensure_metadata(some)
    except ClusterUnreachableError:
        return  # as above; the next epoch tries again


def _parts(cluster: Cluster, topics: Iterable[str]) -> Iterator[list[str]]:
    """Divide *topics* by the number of their partitions."""
    part: list[str] = []
    partitions = 0
    for topic in topics:
        part.append(topic)
        partitions += max(1, len(cluster.partitions_of(topic)))
        if partitions >= _PART_PARTITIONS:
            yield part
            part, partitions = [], 0
    if part:
        yield part


def is_recreated(source: Cluster, plan: PartitionPlan) -> bool:
    """Whether the source topic is, as far as is known here, another one than the position is about."""
    return is_other_topic(source.topic_id(plan.source.topic), plan.topic_id)


def is_remade(target: Cluster, copy: PartitionCopy) -> bool:
    """Whether the remote topic is, as far as is known here, another one than the position is about."""
    return is_other_topic(target.topic_id(copy.remote.topic), copy.plan.remote_topic_id)


def end_remade(copy: PartitionCopy) -> None:
    """End *copy*: what was copied before is not in the remote topic of that name."""
    copy.sending.forget_producer()
    copy.is_unsure = True
    message = f"{copy.remote.topic} was deleted and created again at the target since its position was written"
    copy.end(Ended.TARGET_REWOUND, PartitionFailure(message, HINT_REWOUND, "TargetRecreated"))


async def end_all_remade(target: Cluster, copies: Iterable[PartitionCopy]) -> None:
    """End those of *copies* whose remote topic is another one of its name, before anything is written to it."""
    suspects = [copy for copy in copies if is_remade(target, copy)]
    if suspects:
        await target.refresh_metadata({copy.remote.topic for copy in suspects})
    for copy in suspects:
        if is_remade(target, copy):
            end_remade(copy)


def too_short(remote: TopicPartition, end: int, downstream: int | None) -> PartitionFailure:
    """Return the failure of a target that ends before what was written to it."""
    written = "records were" if downstream is None else f"offset {downstream} was"
    message = f"{remote} ends at {end} at the target, but {written} written to it"
    return PartitionFailure(message, HINT_REWOUND, "TargetRewound")
