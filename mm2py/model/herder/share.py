"""What each node runs of a flow: which of its tasks, and which partitions these may copy.

The tasks of a flow are numbered as in Java MirrorMaker, up to ``tasks.max`` of them for all nodes together. A partition
belongs to one of `SLOTS` hash slots by its name alone, and each slot to one node. So a new topic needs no new
assignment, and an assignment has the same size for ten partitions and for ten thousand.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import attrs

from mm2py.model.flow import TopicPartition
from mm2py.model.foreign import mapping, read_json, write_json
from mm2py.model.herder.node import Node, decode_node, node_members, read_node
from mm2py.model.herder.node_settings import NodeSettings, node_settings_members, read_node_settings


SLOTS: Final = 1024
ALL_SLOTS: Final = frozenset(range(SLOTS))
#: The latest form of assignments that this version of mm2py writes. It reads all earlier ones, and tells its own as it
#: joins: the group's leader writes the latest form that all members read. So nodes are upgraded in any order. What a
#: member joins with has no such choice: fields are added to it, never changed.
VERSION: Final = 1
_DIGITS: Final = SLOTS // 4
#: 2**32 / golden ratio: multiplicative hashing, after Knuth.
_GOLDEN_RATIO: Final = 0x9E3779B1


@lru_cache(maxsize=65_536)
def slot_of(source: TopicPartition) -> int:
    """Return the hash slot of a source partition; it is the same on every node."""
    checksum = zlib.crc32(f"{source.topic}-{source.partition}".encode())
    # By their checksums alone the partitions of a topic lie close to each other: its numbers differ in a few bits.
    return (checksum * _GOLDEN_RATIO & 0xFFFFFFFF) * SLOTS >> 32


@attrs.frozen
class Share:
    """What one node runs of a flow. The flow's owner also does what is done once per flow: it creates remote topics,
    synchronises configs and ACLs, and writes checkpoints.
    """

    is_owner: bool = False
    tasks: frozenset[int] = frozenset()
    slots: frozenset[int] = frozenset()

    @property
    def is_empty(self) -> bool:
        return not self.is_owner and not self.tasks

    def has(self, source: TopicPartition) -> bool:
        """Whether a source partition is copied here, if a copy task does so."""
        return len(self.slots) == SLOTS or slot_of(source) in self.slots

    def __and__(self, other: Share) -> Share:
        return Share(self.is_owner and other.is_owner, self.tasks & other.tasks, self.slots & other.slots)

    def __or__(self, other: Share) -> Share:
        return Share(self.is_owner or other.is_owner, self.tasks | other.tasks, self.slots | other.slots)

    def __sub__(self, other: Share) -> Share:
        return Share(self.is_owner and not other.is_owner, self.tasks - other.tasks, self.slots - other.slots)

    def __str__(self) -> str:
        tasks = ", ".join(map(str, sorted(self.tasks)))
        return f"tasks {tasks}" if tasks else "no tasks"


NO_SHARE: Final = Share()


def whole_share(tasks: int) -> Share:
    """Return the share of a flow's only node; the flow has so many *tasks*."""
    return Share(is_owner=True, tasks=frozenset(range(tasks)), slots=ALL_SLOTS)


@attrs.frozen
class NodeLoad:
    """What a node measures, as the group's leader needs it: bytes per second of slots of this flow (at least
    noticeable ones), and bytes per second and tasks of all its other flows.
    """

    slots: Mapping[int, float] = attrs.field(factory=dict)
    elsewhere_bytes_per_s: float = 0.0
    elsewhere_tasks: int = 0


@attrs.frozen
class Candidate:
    """A member of a flow's group, as it joins: which node it is, what it holds until now, its load and its settings of
    the flow.
    """

    node: Node
    held: Share = NO_SHARE
    load: NodeLoad = attrs.field(factory=NodeLoad)
    settings: NodeSettings = attrs.field(factory=NodeSettings)
    #: Whether an operator drained the node, or it is being stopped: it takes no tasks.
    is_drained: bool = False
    #: Whether it is being stopped. If all nodes are, one of them has everything until the others have left.
    is_ending: bool = False
    #: Of the assignment that it follows.
    generation: int = -1
    #: Whether its Spark has started. Until then it takes no tasks from nodes that can copy.
    is_ready: bool = True
    #: The latest form of assignments that it reads.
    version: int = VERSION
    #: By its settings: how many tasks the flow has, and how many of them transform records.
    tasks: tuple[int, int] | None = None


@attrs.frozen
class SharedFlow:
    """An assignment of a flow to the members of its group, as every one of them receives it."""

    generation: int
    nodes: Mapping[str, Node]
    shares: Mapping[str, Share]
    #: Keys whose value is not the owner's, by member.
    differences: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    #: Those of them for which a member gets no share.
    conflicts: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    #: The owner's values of what is different on a node, None for a default.
    settings: Mapping[str, str | None] = attrs.field(factory=dict)

    def share_of(self, member_id: str) -> Share:
        return self.shares.get(member_id, NO_SHARE)

    def has_all(self, tasks: int) -> bool:
        """Whether each of the flow's *tasks* and slots has a node; what moves has none until it is released."""
        shares = self.shares.values()
        slots = frozenset().union(*(share.slots for share in shares))
        return len(slots) == SLOTS and len(frozenset().union(*(share.tasks for share in shares))) >= tasks

    def taken_by(self, member_id: str, node: Node) -> tuple[str, SharedFlow]:
        """Return as which member a node is in it, and the assignment with that node. A static member may have come
        back with another id, as another process.
        """
        if member_id not in self.nodes:
            former = (it for it, known in self.nodes.items() if node.instance and known.instance == node.instance)
            member_id = next(former, member_id)
        nodes = {**self.nodes, member_id: node} if member_id in self.nodes else self.nodes
        return member_id, attrs.evolve(self, nodes=nodes)

    @property
    def owner(self) -> Node | None:
        return next((self.nodes[it] for it, share in self.shares.items() if share.is_owner), None)


@attrs.frozen
class Elsewhere:
    """A partition that another node copies. `node` is the `worker_id` of that one by the flow's assignment; empty if it
    is unknown, or if the partition is moving.
    """

    remote_topic: str
    node: str = ""


def lasting_names(nodes: Mapping[str, Node]) -> frozenset[str]:
    """Return the members of a group by names that outlast a restart, as far as they have one."""
    return frozenset(node.instance or member_id for member_id, node in nodes.items())


def with_former_shares(members: Mapping[str, Candidate], before: SharedFlow | None) -> dict[str, Candidate]:
    """Return *members* with each static one that came back while all were joining again: what it had *before* was kept
    for it, unless another one holds it by now.
    """
    found = dict(members)
    former = {} if before is None else {node.instance: before.share_of(it) for it, node in before.nodes.items()}
    for member_id, who in members.items():
        if who.node.instance and who.node.instance in former and who.generation < 0:
            held = former[who.node.instance]
            for other in members.values():
                held -= other.held
            found[member_id] = attrs.evolve(who, held=held)
    return found


def encode_candidate(candidate: Candidate) -> bytes:
    """Return the member metadata, in which `decode_node` finds the node."""
    members = node_members(candidate.node)
    members["shared"] = {
        "version": candidate.version,
        "held": share_members(candidate.held),
        **load_members(candidate.load),
        "settings": node_settings_members(candidate.settings),
        "drained": candidate.is_drained,
        "ending": candidate.is_ending,
        "ready": candidate.is_ready,
        "generation": candidate.generation,
    }
    if candidate.tasks is not None:
        members["shared"]["tasks"] = list(candidate.tasks)
    return write_json(members)


def decode_candidate(raw: bytes) -> Candidate | None:
    """Parse the output of `encode_candidate`; None for anything else: it gets no share."""
    node = decode_node(raw)
    if node is None:
        return None
    try:
        members = mapping(mapping(read_json(raw)).get("shared"))
        return Candidate(
            node,
            read_share(members.get("held", {})),
            read_load(members),
            read_node_settings(mapping(members.get("settings", {}))),
            is_drained=bool(members.get("drained")),
            is_ending=bool(members.get("ending")),
            is_ready=bool(members.get("ready", True)),
            generation=int(members.get("generation", -1)),
            version=int(members.get("version", 1)),
            tasks=_counts(members.get("tasks")),
        )
    except (ValueError, TypeError, AttributeError):
        return None


def encode_shared_flow(shared: SharedFlow, version: int = VERSION) -> bytes:
    """Return what each member is sent, in the form of that *version*; there is one so far."""
    members = {
        "version": version,
        "generation": shared.generation,
        "members": {
            member_id: {
                "node": node_members(node),
                "share": share_members(shared.share_of(member_id)),
                "differs": list(shared.differences.get(member_id, ())),
                "conflicts": list(shared.conflicts.get(member_id, ())),
            }
            for member_id, node in sorted(shared.nodes.items())
        },
        "settings": dict(sorted(shared.settings.items())),
    }
    return write_json(members)


def decode_shared_flow(raw: bytes) -> SharedFlow:
    """Parse the output of `encode_shared_flow`. Raise ValueError with the problem."""
    try:
        content = mapping(read_json(raw))
        if content.get("version") not in range(1, VERSION + 1):
            raise ValueError(f"its version is {content.get('version')!r}, this program knows {VERSION}")
        nodes, shares, differences, conflicts = {}, {}, {}, {}
        for member_id, value in mapping(content["members"]).items():
            member = mapping(value)
            node = read_node(member["node"])
            if node is None:
                raise ValueError(f"member {member_id} is no node")
            nodes[member_id], shares[member_id] = node, read_share(member["share"])
            differences[member_id] = tuple(str(key) for key in member.get("differs", ()))
            conflicts[member_id] = tuple(str(key) for key in member.get("conflicts", ()))
        settings = {
            str(key): None if text is None else str(text) for key, text in mapping(content.get("settings", {})).items()
        }
        return SharedFlow(int(content["generation"]), nodes, shares, differences, conflicts, settings)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def share_members(share: Share) -> dict[str, Any]:
    """Return a share as JSON values."""
    return {"owner": share.is_owner, "tasks": sorted(share.tasks), "slots": _hex(share.slots)}


def read_share(value: object) -> Share:
    """Parse the output of `share_members`. Raise ValueError or TypeError for anything else."""
    members = mapping(value)
    tasks = frozenset(int(task) for task in members.get("tasks", ()))
    return Share(bool(members.get("owner")), tasks, _slots(str(members.get("slots", ""))))


def load_members(load: NodeLoad) -> dict[str, Any]:
    """Return a load as JSON values."""
    return {
        "slotRates": {str(slot): round(rate) for slot, rate in sorted(load.slots.items())},
        "elsewhereBytesPerS": round(load.elsewhere_bytes_per_s),
        "elsewhereTasks": load.elsewhere_tasks,
    }


def read_load(members: Mapping[str, Any]) -> NodeLoad:
    """Parse the output of `load_members`. Raise ValueError or TypeError for anything else."""
    rates = {int(slot): float(rate) for slot, rate in mapping(members.get("slotRates", {})).items()}
    return NodeLoad(rates, float(members.get("elsewhereBytesPerS", 0)), int(members.get("elsewhereTasks", 0)))


def _counts(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    tasks, record_tasks = value
    return int(tasks), int(record_tasks)


def _hex(slots: Iterable[int]) -> str:
    bits = sum(1 << slot for slot in slots)
    return f"{bits:x}"


def _slots(text: str) -> frozenset[int]:
    if len(text) > _DIGITS:
        raise ValueError(f"more than {SLOTS} slots")
    bits = int(text, 16) if text else 0
    return frozenset(slot for slot in range(bits.bit_length()) if bits >> slot & 1)
