"""The partitions of a flow that this node does not copy, so that any node can be asked about any of them.

A node that copies a part of the flow knows all of its topics. One that stands by does not follow them: it looks at both
clusters when it is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from mm2py.config.connector import MirrorSourceConfig
from mm2py.connectors.context import HerderContext
from mm2py.connectors.plugins import selected_topics, transforms_of
from mm2py.connectors.source.group import SourceGroup, SourceLife
from mm2py.core.herder.nodes import KnownNodes
from mm2py.core.topics.topology import copyable
from mm2py.errors import Mm2Error, TopicsUnknownError
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.share import Elsewhere, slot_of
from mm2py.model.state import FlowState
from mm2py.policy.plugins import CustomClassError
from mm2py.wire.cluster import Cluster
from mm2py.wire.topics.admin import Admin


#: Time limit for a look at both clusters, and how long it is valid.
_LOOK_S: Final = 20.0
_HOLDS_S: Final = 10.0
#: States in which a node knows the flow's topics, once it has had a life.
_FOLLOWING: Final = (FlowState.RUNNING, FlowState.PAUSED, FlowState.DRAINING, FlowState.RESTARTING)


class PartsElsewhere:
    """What other nodes copy of one flow, by its assignment."""

    def __init__(self, context: HerderContext, nodes: KnownNodes, source: SourceGroup) -> None:
        self._context = context
        self._nodes = nodes
        self._source = source
        self._life: SourceLife | None = None
        self._turn = asyncio.Lock()
        self._seen: Mapping[TopicPartition, str] = {}
        self._seen_at: float | None = None

    def follow(self, life: SourceLife) -> None:
        """Follow the topics of a *life* of the source group."""
        self._life = life

    def _known(self) -> tuple[Mapping[TopicPartition, str] | None, Collection[TopicPartition]]:
        """Return the remote topics of all partitions that the flow mirrors, None while this node does not follow its
        topics; and which of them it copies.
        """
        life = self._life
        if life is None or self._source.state not in _FOLLOWING:
            return None, ()
        places = life.topics.latest.places
        return {it: place.remote_topic for it, place in places.items()}, life.tasks.ledger.states.keys()

    async def find(self, *, must_know: bool) -> Mapping[TopicPartition, Elsewhere]:
        """
        Return the partitions that the flow mirrors and this node does not copy.

        If this is the flow's only node, there are none, unless the caller *must_know* what it does not copy yet, or no
        more. Raise TopicsUnknownError if this node has to look at the clusters, and cannot.
        """
        if not must_know and not self._nodes.is_shared:
            return {}
        everything, ours = self._known()
        if everything is None:
            everything = await self._looked()
        node_of = self._assigned()
        return {it: Elsewhere(everything[it], node_of(it)) for it in everything.keys() - ours}

    def _assigned(self) -> Callable[[TopicPartition], str]:
        """Return what names the node of a partition."""
        transforms = transforms_of(self._source.config)
        of_slot: dict[int, str] = {}
        of_task: dict[int, str] = {}
        for node_id, share in self._nodes.members.items():
            name = self._nodes.name_of(node_id)
            of_slot |= dict.fromkeys(share.slots, name)
            of_task |= dict.fromkeys(share.tasks, name)

        def node_of(source: TopicPartition) -> str:
            task = transforms.task_of(source.topic)
            return of_slot.get(slot_of(source), "") if task is None else of_task.get(task, "")

        return node_of

    async def _looked(self) -> Mapping[TopicPartition, str]:
        """Return what the flow mirrors as the clusters show it, within seconds. Raise TopicsUnknownError,
        or CustomClassError.
        """
        async with self._turn:
            clock = self._context.clock
            if self._seen_at is None or clock.monotonic() - self._seen_at >= _HOLDS_S:
                try:
                    async with asyncio.timeout(_LOOK_S):
                        self._seen = await self._look(self._source.config)
                except CustomClassError:  # no other node can say it either
                    raise
                except (Mm2Error, TimeoutError) as error:
                    cause = str(error) or f"no answer in {_LOOK_S:g} s"
                    raise TopicsUnknownError(str(self._context.flow), cause) from error
                self._seen_at = clock.monotonic()
            return self._seen

    async def _look(self, config: MirrorSourceConfig) -> Mapping[TopicPartition, str]:
        counts = []
        for endpoint in (config.source, config.target):
            async with Cluster(endpoint, self._context.clock) as cluster:
                counts.append((await Admin(cluster).list_topics()).partition_counts())
        source, target = counts
        return copyable(selected_topics(config, source).remote_of, source, target)
