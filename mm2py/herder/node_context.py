"""What a node passes to the runner of one of its flows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import attrs

from mm2py.connectors.known_clusters import KnownClusters
from mm2py.connectors.pair import Pairs
from mm2py.herder.this_node import this_node
from mm2py.model.herder.node import Node
from mm2py.model.herder.node_settings import NodeSettings


async def _nothing() -> None:
    return


async def _follow_no_one(_values: Mapping[str, str | None]) -> bool:
    return True


@attrs.frozen
class NodeContext:
    """What a flow has of its node. By default it is the only flow of a node that runs alone."""

    #: Returns this node as others see it that would run the same flow.
    us: Callable[[], Node] = this_node
    #: Whether one node runs all of a flow, as the driver of a Spark cluster, and the others stand by.
    is_for_one_node: bool = False
    #: Runs, with retries, before the flow continues where another node left it.
    before_takeover: Callable[[], Awaitable[None]] = _nothing
    #: Gets the ids of the source's and of the target's cluster once they are reached; raises if they must not be used.
    on_clusters: Callable[[str | None, str | None], None] = lambda _source, _target: None
    #: Returns the bytes per second and the copy tasks of the node's other flows.
    elsewhere: Callable[[], tuple[float, int]] = lambda: (0.0, 0)
    #: Returns the revision of the overrides that apply, and reads later ones, which another node knows.
    overrides_revision: Callable[[], int] = lambda: 0
    read_overrides: Callable[[], Awaitable[None]] = _nothing
    #: Returns what the node's file says of the flow, for its nodes to compare.
    settings: Callable[[], NodeSettings] = NodeSettings
    #: Takes the values of the flow's owner where they are different. Returns whether they are in use; if not, the flow
    #: restarts with them. Raises the error if they cannot be used here.
    follow_owner: Callable[[Mapping[str, str | None]], Awaitable[bool]] = _follow_no_one
    #: What all flows of the node know of their clusters, and which source connectors there are.
    known: KnownClusters = attrs.field(factory=KnownClusters)
    pairs: Pairs = attrs.field(factory=Pairs)
