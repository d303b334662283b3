"""What a node concludes from the statuses of the others that run the same flow: who answers, who has been replaced or
is long gone, and what all of them copy together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from mm2py.model.node import Node
from mm2py.model.node_status import NodeStatus
from mm2py.model.state import FlowState


#: How often each node reports, and how often if nothing changes on any of them.
INTERVAL_S: Final = 5.0
IDLE_INTERVAL_S: Final = 10.0
#: A node that was not heard of for this long does not answer.
SILENT_S: Final = 3 * IDLE_INTERVAL_S
#: After this its record is removed.
GONE_S: Final = 3600.0
_STOPPED: Final = (FlowState.STOPPED, FlowState.DRAINED)


@attrs.frozen
class Heard:
    """A node's last status, when it was written, by our own monotonic clock, and its bytes. It was certainly written
    after `since`: until then the log had been read.
    """

    status: NodeStatus
    at: float
    raw: bytes = b""
    since: float = -math.inf

    def answers(self, read_at: float) -> bool:
        """Whether the node was still heard of when the statuses were last read."""
        return read_at - self.at <= SILENT_S


def has_stopped(heard: Heard | None, connector: str, revision: int, since: float) -> bool:
    """Whether a node reported after *since* that a connector was stopped, under overrides of that *revision* or later.

    An older report may be of an earlier stop, and one under older overrides of a node that is about to resume.
    """
    if heard is None or heard.since < since or heard.status.overrides_revision < revision:
        return False
    return all(it.state in _STOPPED for it in heard.status.connectors if it.connector == connector)


def obsolete(heard: Mapping[str, Heard], us: Node, read_at: float) -> frozenset[str]:
    """Return which nodes' records are of no more use: those of processes that a later one at the same address, or with
    the same `group.instance.id`, has replaced, and of nodes that are long gone.
    """
    everyone = [us, *(it.status.node for it in heard.values())]
    return frozenset(
        node_id
        for node_id, it in heard.items()
        if read_at - it.at > GONE_S or any(_replaces(other, it.status.node) for other in everyone)
    )


def _replaces(later: Node, earlier: Node) -> bool:
    is_same_place = bool(later.rest) and (later.host, later.rest) == (earlier.host, earlier.rest)
    is_same_instance = bool(later.instance) and later.instance == earlier.instance
    return (is_same_place or is_same_instance) and later.started_ms > earlier.started_ms


def owner_of(statuses: Iterable[NodeStatus]) -> NodeStatus | None:
    """Return the status of the flow's owner, by the latest assignment if several believe that they are."""
    owners = [it for it in statuses if it.share.is_owner]
    return max(owners, key=lambda it: (it.generation, it.at_ms), default=None)


def slot_loads(statuses: Iterable[NodeStatus]) -> dict[int, float]:
    """Return the bytes per second of hash slots, of all nodes together."""
    loads: Counter[int] = Counter()
    for status in statuses:
        for slot, rate in status.load.slots.items():
            loads[slot] += rate  # type: ignore[assignment]
    return dict(loads)
