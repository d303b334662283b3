"""
What coordinators keep: transactional ids, groups by the classic protocol, and groups that something else uses.

After TransactionCoordinator / TransactionStateManager (states, fencing by epoch, markers later than the answer) and
GroupMetadataManager's classic groups (members, static ones, generations, rebalances, sessions). What a coordinator has
stored outlives it; what it only has in memory, as a join that it holds back, does not.
"""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable
from typing import Any

import attrs

from mm2py.wire.error_codes import ErrorCode


#: group.min.session.timeout.ms and group.max.session.timeout.ms.
_SHORTEST_S, _LONGEST_S = 6.0, 1_800.0


@attrs.define(eq=False)
class Transaction:
    """A transactional id."""

    name: str
    producer_id: int
    epoch: int = -1
    #: The epoch before, if a producer that named itself, or the coordinator, has raised it (KIP-360).
    last_epoch: int = -1
    timeout_s: float = 60.0
    state: str = "Empty"
    begun_at: float = 0.0
    partitions: dict[tuple[str, int], None] = attrs.field(factory=dict)
    #: Where markers are still missing.
    unmarked: dict[tuple[str, int], None] = attrs.field(factory=dict)

    @property
    def is_ending(self) -> bool:
        return self.state.startswith("Prepare")


class GroupState(enum.Enum):
    """Where a group is between two generations."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


Reply = Callable[[Any], None]
#: Between a group's name and a machine's: what the members there are told of, who are kept apart from all others.
ALONE = "@"


@attrs.frozen
class Joining:
    """What a member says of itself when it joins."""

    member_id: str
    instance: str | None
    protocol_type: str
    #: What it supports, best first, and what it says to the leader by each.
    protocols: dict[str, bytes]
    session_s: float
    rebalance_s: float
    client: str
    client_id: str


@attrs.frozen
class Caller:
    """Who a member says it is."""

    generation: int
    member_id: str
    instance: str | None


@attrs.define(eq=False)
class Member:
    """A member of a group."""

    member_id: str
    instance: str | None
    session_s: float
    rebalance_s: float
    protocols: dict[str, bytes] = attrs.field(factory=dict)
    assignment: bytes = b""
    heard_at: float = 0.0
    client: str = ""
    client_id: str = ""
    #: Answers that are held back.
    joining: Reply | None = None
    syncing: Reply | None = None


@attrs.define(eq=False)
class Group:
    """A group; one of another protocol than the classic one is only there to be found, see `GroupCoordinator.use`."""

    name: str
    #: As brokers list it: classic, consumer (KIP-848), share.
    kind: str = "classic"
    protocol_type: str = ""
    protocol: str = ""
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    leader: str = ""
    members: dict[str, Member] = attrs.field(factory=dict)
    #: Members that were given an id and have not joined with it yet.
    pending: dict[str, None] = attrs.field(factory=dict)
    statics: dict[str, str] = attrs.field(factory=dict)
    offsets: dict[tuple[str, int], tuple[int, str]] = attrs.field(factory=dict)
    #: What another coordinator would find: generation, leader, and the members by id.
    stored: tuple[int, str, dict[str, Member]] = (0, "", {})
    #: Counts rebalances, so that timers of former ones are void.
    round: int = 0


class GroupCoordinator:
    """Decides for the groups of a cluster; its caller knows which broker coordinates which."""

    def __init__(self, now: Callable[[], float], later: Callable[..., Any], tell: Callable[..., None]) -> None:
        self.groups: dict[str, Group] = {}
        self.first_delay_s = 3.0
        self._now, self._later, self._tell = now, later, tell
        self._numbers = 0

    def group(self, name: str) -> Group:
        """Return a group, which is made by its name."""
        return self.groups.setdefault(name, Group(name))

    def known(self, name: str) -> Group:
        """Return a group, or what one is that does not exist."""
        return self.groups.get(name) or Group(name)

    def writers(self, name: str) -> set[str] | None:
        """Return the machines of a group's members, together or apart; None if there are none."""
        groups = [group for known, group in self.groups.items() if known.partition(ALONE)[0] == name]
        return {it.client for group in groups for it in group.stored[2].values()} or None

    def use(self, name: str, *, members: int, kind: str = "classic", protocol: str = "consumer") -> Group:
        """Have something else use a group, by whatever protocol: it has so many members, whose sessions never end."""
        group = self.group(name)
        group.kind, group.protocol_type, group.protocol = kind, protocol, "range"
        made = [Member(f"{name}-{number}", None, 0.0, 0.0, {"range": b""}) for number in range(members)]
        group.members = {it.member_id: it for it in made}
        group.state = GroupState.STABLE if members else GroupState.EMPTY
        self._store(group)
        return group

    def moved(self, name: str) -> None:
        """Another broker coordinates the group: it knows what was stored."""
        group = self.groups.get(name)
        if group is None:
            return
        for member in group.members.values():
            for reply in (member.joining, member.syncing):
                if reply is not None:
                    reply(ErrorCode.NOT_COORDINATOR)
        generation, leader, members = group.stored
        group.generation, group.leader = generation, leader
        group.members = {name: attrs.evolve(it, joining=None, syncing=None) for name, it in members.items()}
        group.statics = {it.instance: it.member_id for it in group.members.values() if it.instance}
        group.pending = {}
        group.round += 1
        group.state = GroupState.STABLE if group.members else GroupState.EMPTY
        for member in group.members.values():
            self._hear(group, member)

    # Requests. Each is answered through *reply*: an error code, or what the answer says.

    def join(self, group: Group, asked: Joining, reply: Reply) -> None:
        """Take a member in, or back in."""
        if not _SHORTEST_S <= asked.session_s <= _LONGEST_S:
            reply(ErrorCode.INVALID_SESSION_TIMEOUT)
        elif not self._suits(group, asked):
            reply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif asked.instance is not None:
            self._join_static(group, asked, reply)
        elif not asked.member_id:
            self._numbers += 1
            member_id = f"{asked.client_id}-{self._numbers:06d}"
            group.pending[member_id] = None
            reply((ErrorCode.MEMBER_ID_REQUIRED, member_id))
        elif asked.member_id not in group.members and asked.member_id not in group.pending:
            reply(ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            self._admit(group, asked, reply)

    @staticmethod
    def _suits(group: Group, asked: Joining) -> bool:
        """Whether all that are members could agree on one of the protocols."""
        others = list(group.members.values())
        is_of_the_type = not others or group.protocol_type == asked.protocol_type
        shared = [name for name in asked.protocols if all(name in it.protocols for it in others)]
        return is_of_the_type and bool(asked.protocol_type) and bool(shared)

    def _join_static(self, group: Group, asked: Joining, reply: Reply) -> None:
        instance = asked.instance or ""
        current = group.statics.get(instance)
        if not asked.member_id:
            self._numbers += 1
            asked = attrs.evolve(asked, member_id=f"{instance}-{self._numbers:06d}")
            if current is not None:
                self._replace(group, current, asked, reply)
                return
        elif current != asked.member_id:
            reply(ErrorCode.UNKNOWN_MEMBER_ID if current is None else ErrorCode.FENCED_INSTANCE_ID)
            return
        group.statics[instance] = asked.member_id
        self._admit(group, asked, reply)

    def _admit(self, group: Group, asked: Joining, reply: Reply) -> None:
        member_id = asked.member_id
        group.pending.pop(member_id, None)
        group.protocol_type = asked.protocol_type
        member = group.members.get(member_id)
        is_new = member is None
        if member is None:
            member = group.members[member_id] = Member(
                member_id, asked.instance, asked.session_s, asked.rebalance_s, client=asked.client,
                client_id=asked.client_id,
            )  # fmt: skip
        is_changed = is_new or member.protocols != asked.protocols
        member.protocols = asked.protocols
        self._hear(group, member)
        is_follower = group.state is GroupState.STABLE and member_id != group.leader
        if not is_changed and (is_follower or group.state is GroupState.COMPLETING):
            reply(self._joined(group, member))  # it joins again, and learns of the same generation
            return
        if member.joining is not None:
            member.joining(ErrorCode.UNKNOWN_MEMBER_ID)
        member.joining = reply
        self._rebalance(group)
        self._complete_if_all(group)

    def _replace(self, group: Group, current: str, asked: Joining, reply: Reply) -> None:
        """A static member is back (KIP-345): its former self is fenced."""
        member = group.members.pop(current)
        for held in (member.joining, member.syncing):
            if held is not None:
                held(ErrorCode.FENCED_INSTANCE_ID)
        member.joining = member.syncing = None
        member_id = asked.member_id
        is_changed = member.protocols != asked.protocols
        member.member_id, member.protocols = member_id, asked.protocols
        group.members[member_id] = member
        group.statics[member.instance or ""] = member_id
        leader = group.leader
        if leader == current:
            group.leader = member_id
        self._hear(group, member)
        if group.state is GroupState.STABLE and not is_changed:
            self._store(group)
            # By its former id a leader does not know itself, and assigns nothing.
            reply(self._joined(group, member) | {"leader": leader, "members": []})
            return
        member.joining = reply
        self._rebalance(group)
        self._complete_if_all(group)

    def _rebalance(self, group: Group) -> None:
        if group.state is GroupState.PREPARING:
            return
        was_empty = group.state is GroupState.EMPTY
        for member in group.members.values():
            member.assignment = b"" if group.state is GroupState.COMPLETING else member.assignment
            if member.syncing is not None:
                reply, member.syncing = member.syncing, None
                reply(ErrorCode.REBALANCE_IN_PROGRESS)
        group.state = GroupState.PREPARING
        group.round += 1
        number = group.round
        within_s = self.first_delay_s if was_empty else max(it.rebalance_s for it in group.members.values())
        self._later(within_s, lambda: self._expire_round(group, number))

    def _expire_round(self, group: Group, number: int) -> None:
        if group.round == number and group.state is GroupState.PREPARING:
            self._complete(group)

    def _complete_if_all(self, group: Group) -> None:
        waits_for_first = group.generation == 0 or not group.stored[2]
        is_complete = not group.pending and all(it.joining is not None for it in group.members.values())
        if group.state is GroupState.PREPARING and not waits_for_first and is_complete:
            self._complete(group)

    def _complete(self, group: Group) -> None:
        for member in [it for it in group.members.values() if it.joining is None and it.instance is None]:
            self._forget(group, member)
        group.generation += 1
        if not group.members:
            group.state, group.leader = GroupState.EMPTY, ""
            self._store(group)
            return
        group.state = GroupState.COMPLETING
        group.protocol = self._elected(group)
        if group.leader not in group.members or group.members[group.leader].joining is None:
            able = [it for it in group.members.values() if it.joining is not None]
            if not able:
                group.state, number = GroupState.PREPARING, group.round
                self._later(1.0, lambda: self._expire_round(group, number))
                return
            group.leader = able[0].member_id
        for member in list(group.members.values()):
            if member.joining is not None:
                reply, member.joining = member.joining, None
                self._hear(group, member)
                reply(self._joined(group, member))
        number = group.round
        patience = max(it.rebalance_s for it in group.members.values())
        self._later(patience, lambda: self._expire_sync(group, number))

    @staticmethod
    def _elected(group: Group) -> str:
        """Return the protocol that most members like best of those that all of them support."""
        members = list(group.members.values())
        shared = [name for name in members[0].protocols if all(name in it.protocols for it in members)]
        votes = collections.Counter(next(name for name in it.protocols if name in shared) for it in members)
        return max(shared, key=lambda name: votes[name])

    def _expire_sync(self, group: Group, number: int) -> None:
        if group.round == number and group.state is GroupState.COMPLETING:
            self._rebalance(group)

    def _joined(self, group: Group, member: Member) -> dict[str, Any]:
        leads = member.member_id == group.leader
        rows = [(it.member_id, it.instance, it.protocols[group.protocol]) for it in group.members.values()]
        rows = rows if leads else []
        return {
            "protocol": group.protocol,
            "generation": group.generation,
            "leader": group.leader,
            "member": member.member_id,
            "members": rows,
        }

    def sync(self, group: Group, caller: Caller, shares: dict[str, bytes], reply: Reply) -> None:
        """Store the leader's assignment, or hold the answer back until it is here."""
        code = self._check(group, caller)
        if code:
            reply(code)
            return
        member = group.members[caller.member_id]
        self._hear(group, member)
        if group.state is GroupState.PREPARING:
            reply(ErrorCode.REBALANCE_IN_PROGRESS)
        elif group.state is GroupState.STABLE:
            reply(member.assignment)
        else:
            member.syncing = reply
            if caller.member_id == group.leader:
                for it in group.members.values():
                    it.assignment = shares.get(it.member_id, b"")
                group.state = GroupState.STABLE
                self._store(group)
                self._tell("group", group.name, group.generation, sorted(group.members))
                for it in list(group.members.values()):
                    if it.syncing is not None:
                        answer, it.syncing = it.syncing, None
                        self._hear(group, it)
                        answer(it.assignment)

    def heartbeat(self, group: Group, caller: Caller) -> int:
        """Hear of a member."""
        code = self._check(group, caller)
        if code:
            return code
        self._hear(group, group.members[caller.member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING else 0

    def leave(self, group: Group, member_id: str) -> int:
        """Let a member go."""
        if member_id in group.pending:
            group.pending.pop(member_id)
            self._complete_if_all(group)
            return 0
        member = group.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._remove(group, member)
        return 0

    def commit(self, group: Group, caller: Caller) -> int:
        """Return why a caller may not commit offsets, as ClassicGroup.validateOffsetCommit does."""
        is_member = caller.generation >= 0 or bool(caller.member_id)
        if caller.generation < 0 and group.state is GroupState.EMPTY:
            return 0
        if is_member and group.name not in self.groups:
            return ErrorCode.ILLEGAL_GENERATION
        code = self._check(group, caller) if is_member else ErrorCode.UNKNOWN_MEMBER_ID
        return code or (ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.COMPLETING else 0)

    @staticmethod
    def _check(group: Group, caller: Caller) -> int:
        if caller.instance is not None:
            current = group.statics.get(caller.instance)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != caller.member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if caller.member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.ILLEGAL_GENERATION if caller.generation != group.generation else 0

    def _hear(self, group: Group, member: Member) -> None:
        member.heard_at = at = self._now()
        self._later(member.session_s, lambda: self._expire(group, member, at))

    def _expire(self, group: Group, member: Member, at: float) -> None:
        if group.members.get(member.member_id) is not member or member.heard_at != at:
            return
        if member.joining is not None or member.syncing is not None:
            self._hear(group, member)  # it waits for us
            return
        self._tell("expired", group.name, member.member_id)
        self._remove(group, member)

    def _remove(self, group: Group, member: Member) -> None:
        self._forget(group, member)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING):
            if group.members:
                self._rebalance(group)
            else:
                group.state, group.leader = GroupState.EMPTY, ""
                group.generation += 1
                group.round += 1
                self._store(group)
        self._complete_if_all(group)

    def _forget(self, group: Group, member: Member) -> None:
        for reply in (member.joining, member.syncing):
            if reply is not None:
                reply(ErrorCode.UNKNOWN_MEMBER_ID)
        group.members.pop(member.member_id, None)
        if member.instance:
            group.statics.pop(member.instance, None)
        if group.leader == member.member_id:
            group.leader = ""

    def _store(self, group: Group) -> None:
        members = {name: attrs.evolve(it, joining=None, syncing=None) for name, it in group.members.items()}
        group.stored = group.generation, group.leader, members
