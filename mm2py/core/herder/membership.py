"""Who runs a flow, by the members of its group at the target cluster. The group is that of Java MirrorMaker's workers
of the flow, with the same protocol type, but our own protocol: so Kafka itself keeps the two apart. Nodes of ours are
members together, and share the flow. A member on this machine whose process has ended need not be waited for, unless it
is a static one (KIP-345): it may come back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

import attrs

from mm2py.errors import Mm2Error
from mm2py.model.group import GroupMember, GroupMembers
from mm2py.model.herder.node import Node, decode_node
from mm2py.model.herder.share import decode_candidate


#: Kafka Connect's; a group with another type does not belong to a mirror.
PROTOCOL_TYPE: Final = "connect"
#: Its members write nodes as JSON (see `mm2py.model.herder.node`).
_PROTOCOLS: Final = "mm2py-"
PROTOCOL: Final = f"{_PROTOCOLS}1"
_HOSTS_SHOWN: Final = 3


@attrs.define(eq=False)
class NoCoordinatorError(Mm2Error):
    """No broker coordinates a flow's group, so it is unknown who runs the flow."""

    hint: ClassVar[str] = (
        "check that __consumer_offsets of that cluster has its partitions online, with as many replicas in sync as its "
        "min.insync.replicas; it cannot be created with fewer brokers than offsets.topic.replication.factor"
    )

    cluster: str
    group: str

    def __str__(self) -> str:
        return f"no broker of cluster {self.cluster} coordinates group {self.group}"


@attrs.define(eq=False)
class UnknownAssignmentError(Mm2Error):
    """The leader of a flow's group assigned its work in a form that this version does not know."""

    hint: ClassVar[str] = "the leader is a node of another version: run one version of mm2py on all nodes of a flow"

    cluster: str
    group: str
    problem: str

    def __str__(self) -> str:
        return f"the assignment of group {self.group} at {self.cluster} cannot be used: {self.problem}"


@attrs.frozen
class Vacant:
    """We may join the group; *dead* are members whose processes have ended, which are to be removed first."""

    dead: tuple[str, ...] = ()


@attrs.frozen
class Occupied:
    """Another node is in the group, *by* in words; `node` if it is one of ours that identifies itself. `is_certain`
    means that its process runs; otherwise it may have ended on another machine, and will then disappear with its
    session. `dead` members are to be removed nevertheless. While the group rebalances, which takes a session at most,
    its members are not visible. A namesake has joined with our `group.instance.id`.
    """

    by: str
    node: Node | None = None
    is_certain: bool = False
    dead: tuple[str, ...] = ()
    is_settling: bool = False
    is_namesake: bool = False

    @property
    def since(self) -> str:
        """When the node started, if known."""
        return self.node.started_at if self.node is not None else ""

    @property
    def rest(self) -> str:
        """Where its REST interface is, if known."""
        return self.node.rest if self.node is not None else ""


def judge_members(
    found: GroupMembers, us: Node, is_alive: Callable[[Node], bool], *, shares: bool = False, is_fenced: bool = False
) -> Vacant | Occupied:
    """Return who runs a flow whose group is as *found*; *is_alive* checks whether a node on our machine runs. One that
    *shares* the flow can join nodes of ours, and lets static ones come back. One that *is_fenced* waits until its
    namesake has left.
    """
    if not found.members:
        return Vacant()
    other = _others(found) or (_namesake(found, us) if is_fenced else None)
    if other is not None:
        return other
    nodes = {member: decode_node(member.metadata) for member in found.members}
    dead = tuple(
        member.member_id
        for member, node in nodes.items()
        if node is not None and not (shares and node.instance) and has_ended(node, us, is_alive)
    )
    # While a group rebalances, it does not show who its members are; Kafka refuses us if it is Java's.
    left = [member for member in found.members if member.member_id not in dead]
    can_share = not found.protocol or all(decode_candidate(member.metadata) is not None for member in left)
    if not left or (shares and can_share):
        return Vacant(dead)
    node = next((node for member in left if (node := nodes[member]) is not None), None)
    if node is not None:
        return Occupied(str(node), node, is_certain=node.shares_processes_with(us), dead=dead)
    return Occupied(f"another mirror, {_hosts(found)}", dead=dead, is_settling=not found.protocol)


def has_ended(node: Node, us: Node, is_alive: Callable[[Node], bool]) -> bool:
    """Whether *node* is known to have ended: it ran on our machine."""
    return node.shares_processes_with(us) and not is_alive(node)


def _others(found: GroupMembers) -> Occupied | None:
    """Return who the members are if they are not of our protocol."""
    if found.protocol_type != PROTOCOL_TYPE:
        return Occupied(f"a group of protocol type {found.protocol_type or 'unknown'}, {_hosts(found)}")
    if found.protocol in ("", PROTOCOL):
        return None
    who = "another version of mm2py" if found.protocol.startswith(_PROTOCOLS) else "Java MirrorMaker"
    return Occupied(f"{who}, {_hosts(found)}")


def _namesake(found: GroupMembers, us: Node) -> Occupied | None:
    """Return which other node of the group has our `group.instance.id`, if any."""
    member = next((member for member in found.members if member.instance == us.instance), None)
    node = decode_node(member.metadata) if member is not None else None
    if member is None or (node is not None and node.id == us.id):
        return None
    by = str(node) if node is not None else f"a node at {_host(member)}"
    return Occupied(by, node, is_certain=True, is_settling=node is None, is_namesake=True)


def _hosts(found: GroupMembers) -> str:
    """Return where the members are, the first few of them."""
    hosts = sorted({_host(member) for member in found.members})
    more = len(hosts) - _HOSTS_SHOWN
    return "at " + ", ".join(hosts[:_HOSTS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _host(member: GroupMember) -> str:
    return member.client_host.lstrip("/") or "an unknown host"
