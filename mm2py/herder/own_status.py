"""This node's own status of one flow: what it tells the other nodes that run it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

import attrs

from mm2py.clock import Clock
from mm2py.core.herder.nodes import KnownNodes
from mm2py.herder.node_context import NodeContext
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.node_status import NodeStatus, describe, noticeable_rates, topics_mark
from mm2py.model.herder.share import NodeLoad, Share, slot_of
from mm2py.model.state import FlowView


class OwnStatus:
    """Makes this node's status of a flow of what each part of the flow knows."""

    def __init__(self, node: NodeContext, view: Callable[[], FlowView], known: KnownNodes, clock: Clock) -> None:
        """Create it for a *node*; *view* returns what this node itself runs of the flow."""
        self._node = node
        self._view = view
        self._known = known
        self._clock = clock
        self._mirrored: Callable[[], Collection[TopicPartition]] = tuple
        self.is_drained = False
        #: Since when this node has had its tasks, and has owned the flow.
        self._tasks_since_ms: int | None = None
        self._owner_since_ms: int | None = None
        self._marked: tuple[Collection[TopicPartition], str] = ((), topics_mark(()))
        self._counted: tuple[Collection[TopicPartition], Counter[int]] = ((), Counter())

    def follow(self, mirrored: Callable[[], Collection[TopicPartition]]) -> None:
        """Have *mirrored* return what the flow mirrors, as far as this node knows, from now on."""
        self._mirrored = mirrored

    def note_share(self, before: Share, share: Share) -> None:
        """Note since when this node has *share*; it had *before*."""
        wall_ms = self._clock.wall_ms()
        if share.tasks != before.tasks:
            self._tasks_since_ms = wall_ms if share.tasks else None
        if share.is_owner != before.is_owner:
            self._owner_since_ms = wall_ms if share.is_owner else None

    @property
    def topics_mark(self) -> str:
        """The digest of the topics that this node knows."""
        mirrored = self._mirrored()
        if self._marked[0] is not mirrored:
            self._marked = (mirrored, topics_mark(mirrored))
        return self._marked[1]

    def slots(self) -> Counter[int]:
        """Return how many mirrored partitions each slot has."""
        mirrored = self._mirrored()
        if self._counted[0] is not mirrored:
            self._counted = (mirrored, Counter(map(slot_of, mirrored)))
        return self._counted[1]

    def load(self, view: FlowView | None = None) -> NodeLoad:
        """Return what this node does, by its *view* of the flow or as it is now."""
        view = view or self._view()
        return NodeLoad(noticeable_rates(view.partitions), *self._node.elsewhere())

    def now(self) -> NodeStatus:
        """Return this node's status as it is now, with its load."""
        view = self._view()
        return attrs.evolve(self.shown(view), load=self.load(view))

    def shown(self, view: FlowView) -> NodeStatus:
        """Return this node's status as its *view* of the flow shows it, without its load."""
        shared = self._known.shared
        status = NodeStatus(
            self._node.us(),
            self._clock.wall_ms(),
            generation=shared.generation if shared is not None else -1,
            share=self._known.own_share,
            tasks_since_ms=self._tasks_since_ms,
            owner_since_ms=self._owner_since_ms,
            topics_mark=self.topics_mark,
            overrides_revision=self._node.overrides_revision(),
            is_drained=self.is_drained,
            differs=shared.differences.get(self._known.member_id, ()) if shared is not None else (),
        )
        return describe(status, view)
