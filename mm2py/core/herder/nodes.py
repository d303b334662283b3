"""What a node knows of the others that run the same flow, and concludes from their statuses: who answers, who has been
replaced or is long gone, and what all of them copy together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Final

import attrs

from mm2py.model.herder.node import Node, distinct_names
from mm2py.model.herder.node_status import NodeStatus
from mm2py.model.herder.share import NO_SHARE, Share, SharedFlow
from mm2py.model.state import FlowState


#: How often each node reports, and how often if nothing changes on any of them.
INTERVAL_S: Final = 5.0
IDLE_INTERVAL_S: Final = 10.0
#: A node that was not heard of for this long does not answer.
SILENT_S: Final = 3 * IDLE_INTERVAL_S
#: After this its record is removed.
GONE_S: Final = 3600.0
#: Clocks of machines may differ by this.
_CLOCKS_DIFFER_MS: Final = 10_000
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

    def has_stopped(self, connector: str, revision: int, since: float) -> bool:
        """Whether the node reported after *since* that a connector was stopped, under overrides of that *revision* or
        later. An older report may be of an earlier stop, and one under older overrides of a node about to resume.
        """
        if self.since < since or self.status.overrides_revision < revision:
            return False
        return all(it.state in _STOPPED for it in self.status.connectors if it.connector == connector)


def _replaces(later: Node, status: NodeStatus) -> bool:
    """Whether *later* is the next process in the place of the one that last reported *status*. Machines with one host
    name have the same place: what was still reported while *later* ran is of another machine.
    """
    earlier = status.node
    is_same_place = bool(later.rest) and (later.host, later.rest) == (earlier.host, earlier.rest)
    has_ended = status.at_ms <= later.started_ms + _CLOCKS_DIFFER_MS or earlier.shares_processes_with(later)
    is_same_instance = bool(later.instance) and later.instance == earlier.instance
    return ((is_same_place and has_ended) or is_same_instance) and later.started_ms > earlier.started_ms


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


class KnownNodes:
    """The nodes of one flow as one of them knows them: the members of its group, by the last assignment, and the last
    status of each other node. Each time is one of this node's monotonic clock.
    """

    def __init__(self, us: Callable[[], Node]) -> None:
        self._us = us
        #: The assignment that this node follows.
        self.shared: SharedFlow | None = None
        #: The shares of the nodes in the flow's group, by node, and which member this one is.
        self.members: Mapping[str, Share] = {}
        self.member_id = ""
        #: Since when a node is a member of the group; it may take an interval to report.
        self._member_since: dict[str, float] = {}
        self._heard: dict[str, Heard] = {}
        self._silent: set[str] = set()
        self._read_at = 0.0
        #: When the last read began: what was written before has been read.
        self._asked_at = -math.inf

    @cached_property
    def own_id(self) -> str:
        """This node's id."""
        return self._us().id

    # By the assignment.

    def assign(self, shared: SharedFlow | None, now: float) -> bool:
        """Follow the assignment *shared*, None without one; return whether anything is new."""
        if shared == self.shared:
            return False
        self.shared = shared
        nodes = {} if shared is None else {node.id: member for member, node in shared.nodes.items()}
        self.member_id = nodes.get(self.own_id, "")
        self.members = {} if shared is None else {it: shared.share_of(member) for it, member in nodes.items()}
        self._member_since = {node_id: self._member_since.get(node_id, now) for node_id in self.members}
        return True

    @property
    def own_share(self) -> Share:
        """What this node has of the flow."""
        return self.members.get(self.own_id, NO_SHARE)

    @property
    def is_shared(self) -> bool:
        """Whether another node is known: a member of the group, or one that vanished."""
        others = len(self.members) - (self.own_id in self.members)
        return bool(self._heard) or others > 0

    # By what was heard.

    def begin_read(self, asked_at: float, now: float, *, is_first: bool) -> float:
        """Record that statuses were read; return after what time they were certainly written."""
        since = -math.inf if is_first else self._asked_at
        self._asked_at, self._read_at = asked_at, now
        return since

    def hear(self, node_id: str, heard: Heard) -> None:
        """Take another node's status."""
        self._heard[node_id] = heard

    def forget(self, node_ids: Iterable[str]) -> None:
        """Forget nodes whose records are removed."""
        for node_id in node_ids:
            self._heard.pop(node_id, None)

    def heard(self, node_id: str) -> Heard | None:
        """Return what a node reported last; None if it never did."""
        return self._heard.get(node_id)

    @property
    def others(self) -> Mapping[str, NodeStatus]:
        """The last statuses of the other nodes, by node; also of one that vanished, for an hour."""
        return {node_id: heard.status for node_id, heard in self._heard.items()}

    def answers(self, node_id: str, now: float) -> bool:
        """Whether a node reported within half a minute, or joined the group since."""
        heard = self._heard.get(node_id)
        if heard is not None:
            return heard.answers(self._read_at)
        since = self._member_since.get(node_id)
        return since is not None and now - since <= SILENT_S

    def answering(self) -> list[NodeStatus]:
        """Return the last statuses of the other nodes that answer."""
        return [it.status for it in self._heard.values() if it.answers(self._read_at)]

    def last_heard_s(self, node_id: str, now: float) -> float | None:
        """Return how long ago a node reported; None if it never did."""
        heard = self._heard.get(node_id)
        return None if heard is None else max(0.0, now - heard.at)

    def obsolete(self, now: float) -> frozenset[str]:
        """Return which nodes' records are of no more use: those of processes that a later one at the same address, or
        with the same `group.instance.id`, has replaced, and of nodes that are long gone; no member that answers.
        """
        everyone = [self._us(), *(it.status.node for it in self._heard.values())]
        return frozenset(
            node_id
            for node_id, it in self._heard.items()
            if (self._read_at - it.at > GONE_S or any(_replaces(other, it.status) for other in everyone))
            and not (node_id in self.members and self.answers(node_id, now))
        )

    def turned(self) -> tuple[list[tuple[Node, float]], list[Node]]:
        """Return the nodes that no longer answer, each with the time since its report, and those that do again; each
        change once.
        """
        silent = {node_id for node_id, heard in self._heard.items() if not heard.answers(self._read_at)}
        gone, back = silent - self._silent, (self._silent & self._heard.keys()) - silent
        self._silent = silent
        heard = self._heard.items()
        return (
            [(it.status.node, self._read_at - it.at) for node_id, it in heard if node_id in gone],
            [it.status.node for node_id, it in heard if node_id in back],
        )

    # By both.

    def names(self) -> Mapping[str, str]:
        """Return the names of all nodes, this one included, by id."""
        assigned = self.shared.nodes.values() if self.shared is not None else ()
        return distinct_names([*assigned, *(it.status.node for it in self._heard.values()), self._us()])

    def name_of(self, node_id: str) -> str:
        """Return the name of a node."""
        return self.names().get(node_id, node_id)

    def not_stopped(self, connector: str, revision: int, since: float, now: float) -> tuple[str, ...]:
        """Return the names of other nodes that have not reported after *since* that a connector is stopped, under
        overrides of that *revision*. One that has left the flow's group writes nothing more.
        """
        others = set(self.members) or {node_id for node_id in self._heard if self.answers(node_id, now)}
        stopped = {it for it, heard in self._heard.items() if heard.has_stopped(connector, revision, since)}
        late = others - stopped - {self.own_id}
        return tuple(sorted(map(self.name_of, late)))
