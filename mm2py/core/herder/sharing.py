"""How a flow's work is shared by the nodes in its group: tasks by number, and the hash slots of partitions.

Shares are sticky: what a node has stays there unless it carries clearly more than its part. What is to move is first
released by the node that has it, and given to the other one in the next rebalance (as KIP-415 does for connectors):
everything else is copied without a pause.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import attrs

from mm2py.config.connector import MirrorSourceConfig
from mm2py.core.transform.matching import TopicTransforms
from mm2py.model.herder.share import ALL_SLOTS, NO_SHARE, SLOTS, Candidate, Share, SharedFlow


#: A node may carry this many times its part before slots move away from it.
TOLERATED_RATIO: Final = 1.25
#: Where slots move at all, they move until no node carries more than this.
_LEVEL_RATIO: Final = 1.05
#: Slots move only if the heaviest node then carries at most this share of its load: one hot slot cannot be divided.
_WORTH_MOVING: Final = 0.9
_ROUNDS: Final = 4
#: The load of other flows is ignored below this rate, in bytes per second.
_NOTICEABLE: Final = 1024.0 * 1024.0
#: Weight of a partition besides its bytes per second, and of a slot without any.
_PARTITION_WEIGHT: Final = 1024.0
_SLOT_WEIGHT: Final = 1.0


def flow_tasks(config: MirrorSourceConfig) -> tuple[int, int]:
    """
    Return how many tasks a flow has on all its nodes, and how many of them transform records; these come first.

    Without a source connector it has one, that of its checkpoint connector.
    """
    if not config.is_enabled:
        return 1, 0
    record_tasks = len(TopicTransforms(config.transforms).tasks)
    return record_tasks + config.copying.tasks_max, record_tasks


@attrs.frozen
class Work:
    """What there is to share: *tasks* in all, of which the first `record_tasks` transform records and have no slots;
    partitions and bytes per second of each slot, as far as known.
    """

    tasks: int
    record_tasks: int = 0
    partitions: Mapping[int, int] = attrs.field(factory=dict)
    rates: Mapping[int, float] = attrs.field(factory=dict)
    #: Whether one node runs all of it, as the driver of a Spark cluster, and the others stand by.
    is_for_one_node: bool = False
    #: Counts comparisons of the nodes: flows that find one of them too busy at the same time must not all leave it.
    round: int = 0
    #: Whether what the nodes carry is compared. They all keep what they have otherwise, as a node that has just started
    #: has measured nothing yet.
    is_compared: bool = True

    def of_owner(self, able: Mapping[str, Candidate]) -> Work:
        """Return it with as many tasks as the flow's owner has by its settings, or another of the *able* members while
        there is no owner: the group's leader may be a node with other settings, which has no share.
        """
        right = next((it for it in able.values() if it.held.is_owner), next(iter(able.values()), None))
        if right is None or right.tasks is None:
            return self
        tasks, record_tasks = right.tasks
        return attrs.evolve(self, tasks=tasks, record_tasks=record_tasks)

    def weights(self) -> dict[int, float]:
        """Return the weight of each slot."""
        return {
            slot: _SLOT_WEIGHT + _PARTITION_WEIGHT * self.partitions.get(slot, 0) + self.rates.get(slot, 0.0)
            for slot in range(SLOTS)
        }


def share_work(
    flow: str, generation: int, members: Mapping[str, Candidate], work: Work, wanted: Mapping[str, Share] | None = None
) -> SharedFlow:
    """
    Return what each of *members* has to do from now on; what another one still holds is not given away yet.

    *wanted* is what each is to have in the end, if that is decided already.
    """
    wanted = wanted_shares(flow, members, work) if wanted is None else wanted
    held = {member: candidate.held for member, candidate in members.items()}
    granted = {member: _granted(member, share, held) for member, share in wanted.items()}
    nodes = {member: candidate.node for member, candidate in members.items()}
    owner = next((member for member, share in wanted.items() if share.is_owner), None)
    if owner is None:
        return SharedFlow(generation, nodes, granted)
    right = members[owner].settings
    settings = {member: candidate.settings for member, candidate in members.items()}
    return SharedFlow(
        generation,
        nodes,
        granted,
        {member: some.differing(right) for member, some in settings.items()},
        {member: some.conflicting(right) for member, some in settings.items()},
        {key: text for some in settings.values() for key, text in some.to_take(right).items()},
    )


def without_gains(shared: SharedFlow, members: Mapping[str, Candidate]) -> SharedFlow:
    """Return an assignment in which no member gets what it does not have yet."""
    shares = {member: share & members[member].held for member, share in shared.shares.items()}
    return attrs.evolve(shared, shares=shares)


def needs_rebalance(flow: str, members: Mapping[str, Candidate], work: Work) -> bool:
    """Whether *members*, who hold their shares and nothing is moving, would get other ones now."""
    return any(members[member].held != share for member, share in wanted_shares(flow, members, work).items())


def _granted(member: str, wanted: Share, held: Mapping[str, Share]) -> Share:
    for other, share in held.items():
        if other != member:
            wanted -= share
    return wanted


def wanted_shares(flow: str, members: Mapping[str, Candidate], work: Work) -> dict[str, Share]:
    """Return the shares that *members* would have if nothing had to be released first."""
    able = able_members(members)
    if not able:
        return dict.fromkeys(members, NO_SHARE)
    if work.is_for_one_node:
        one = next((it for it in able if able[it].held.is_owner), None)
        one = one or min(able, key=lambda it: _preference(flow, it, able[it], 0))
        able = {one: able[one]}
    tasks = _tasks(flow, able, work)
    copying = [member for member in sorted(able) if any(task >= work.record_tasks for task in tasks[member])]
    held = {member: able[member].held.slots for member in copying}
    slots = _slots(held, work.weights(), is_compared=work.is_compared)
    owners = [member for member in able if able[member].held.is_owner and tasks[member]]
    owner = owners[0] if owners else next(member for member, some in tasks.items() if 0 in some)
    shares = {
        member: Share(member == owner, frozenset(tasks[member]), slots.get(member, frozenset())) for member in able
    }
    return {member: shares.get(member, NO_SHARE) for member in members}


def _last_one(members: Mapping[str, Candidate]) -> dict[str, Candidate]:
    ending = [member for member, candidate in sorted(members.items()) if candidate.is_ending]
    ending.sort(key=lambda it: (not members[it].held.is_owner, members[it].held.is_empty))
    return {member: members[member] for member in ending[:1]}


def able_members(members: Mapping[str, Candidate]) -> dict[str, Candidate]:
    """Return those of *members* that may take part: settings that nodes cannot take from each other must be the same as
    the owner's, or as those of most nodes if there is no owner yet. One that still starts takes nothing from others. If
    all nodes are being stopped, the last one writes the last checkpoints, which take what all others have written.
    """
    able = {member: candidate for member, candidate in sorted(members.items()) if not candidate.is_drained}
    able = able or _last_one(members)
    able = {member: who for member, who in able.items() if who.is_ready or not who.held.is_empty} or able
    if not able:
        return able
    right = next((who.settings for who in able.values() if who.held.is_owner), None)
    if right is None:
        like = {
            member: sum(not other.settings.conflicting(who.settings) for other in able.values())
            for member, who in able.items()
        }
        right = able[max(able, key=lambda it: like[it])].settings
    return {member: who for member, who in able.items() if not who.settings.conflicting(right)}


def _tasks(flow: str, members: Mapping[str, Candidate], work: Work) -> dict[str, list[int]]:
    """Return each member's tasks, about as many each; members keep those that they have, unless they are too busy."""
    tasks = work.tasks
    most = -(-tasks // len(members))
    #: How many members have one task more than the others.
    larger = tasks - (most - 1) * len(members)
    left = set(range(tasks))
    chosen: dict[str, list[int]] = {member: [] for member in members}
    leaving = _leaving(flow, members, work) if tasks < len(members) and work.is_compared else {}
    for member in sorted(members, key=lambda it: (-len(members[it].held.tasks), it)):
        own = [] if member in leaving else sorted(members[member].held.tasks & left)
        limit = most if larger > 0 else most - 1
        chosen[member] = own[:limit]
        larger -= len(chosen[member]) == most
        left -= set(chosen[member])
    for member, taker in leaving.items():
        moved = sorted(members[member].held.tasks & left) if not chosen[taker] else []
        chosen[taker] += moved[:1]
        left -= set(moved[:1])
    for task in sorted(left):
        member = min(members, key=lambda it: _preference(flow, it, members[it], len(chosen[it])))
        chosen[member].append(task)
    return chosen


def _leaving(flow: str, members: Mapping[str, Candidate], work: Work) -> dict[str, str]:
    """
    Return which members give a task of a flow with fewer tasks than members to another one, which is less busy.

    Each flow decides for itself, and by chance: as many leave a busy node together as it has too many, and as many go
    to each other node as that has too few.
    """
    flow_rate = sum(work.rates.values()) / work.tasks
    loads = {it: who.load.elsewhere_bytes_per_s + flow_rate * len(who.held.tasks) for it, who in members.items()}
    of_a_task = flow_rate
    if sum(loads.values()) < _NOTICEABLE * len(loads):
        loads = {it: float(who.load.elsewhere_tasks + len(who.held.tasks)) for it, who in members.items()}
        of_a_task = 1.0
    mean = sum(loads.values()) / len(loads)
    found = {}
    for member, load in loads.items():
        is_too_busy = members[member].held.tasks and load > TOLERATED_RATIO * mean
        if not is_too_busy or _chance(f"{flow}/{work.round}/leave") >= (load - mean) / load:
            continue
        room = {it: mean - other for it, other in sorted(loads.items()) if other < mean and other + of_a_task < load}
        drawn = _chance(f"{flow}/{work.round}/go") * sum(room.values())
        for it, free in room.items():
            found[member] = it
            drawn -= free
            if drawn < 0:
                break
    return found


def _chance(what: str) -> float:
    """Return a number from 0 to 1 that follows from *what*."""
    return int.from_bytes(hashlib.sha256(what.encode()).digest()[:4]) / 2**32


def _preference(flow: str, member: str, candidate: Candidate, tasks: int) -> tuple[float, ...]:
    """Order members for one more task: with few tasks here first, then with little to do for other flows."""
    load = candidate.load
    chance = _chance(f"{flow}/{candidate.node.host}/{candidate.node.pid}/{member}")
    elsewhere = load.elsewhere_bytes_per_s if load.elsewhere_bytes_per_s > _NOTICEABLE else 0.0
    return (tasks, elsewhere, load.elsewhere_tasks, chance)


def _slots(
    held: Mapping[str, Collection[int]], weights: Mapping[int, float], *, is_compared: bool
) -> dict[str, frozenset[int]]:
    """Spread all slots over the members of *held*, those without partitions too: new topics will use them."""
    if len(held) <= 1:
        return dict.fromkeys(held, ALL_SLOTS)
    used = {slot: weight for slot, weight in weights.items() if weight > _SLOT_WEIGHT}
    unused = {slot: weight for slot, weight in weights.items() if slot not in used}
    for must_level in (is_compared, True):
        spread = [_spread(held, some, must_level=must_level) for some in (used, unused)]
        found = {member: frozenset().union(*(some[member] for some in spread)) for member in held}
        # Of either kind one may seem to have nothing: right after a start it is not known which slots have partitions.
        if all(found.values()):
            break
    return found


def _spread(
    held: Mapping[str, Collection[int]], weights: Mapping[int, float], *, must_level: bool
) -> Mapping[str, Collection[int]]:
    """Spread the slots of *weights* over the members of *held*, who keep theirs unless one carries clearly more than
    its part, and they *must_level* that.
    """
    loads: dict[str, set[int]] = {}
    homeless = set(weights)
    for member in sorted(held):
        loads[member] = homeless & set(held[member])
        homeless -= loads[member]
    totals = {member: sum(weights[slot] for slot in some) for member, some in loads.items()}
    for slot in sorted(homeless, key=lambda it: (-weights[it], it)):
        lightest = min(totals, key=lambda it: (totals[it], it))
        loads[lightest].add(slot)
        totals[lightest] += weights[slot]
    is_uneven = max(totals.values()) > TOLERATED_RATIO * sum(totals.values()) / len(totals)
    if is_uneven and must_level:
        levelled = _levelled(loads, totals, weights)
        most = max(sum(weights[slot] for slot in some) for some in levelled.values())
        if most <= _WORTH_MOVING * max(totals.values()):
            loads = levelled
    return loads


def _levelled(
    before: Mapping[str, set[int]], totals: Mapping[str, float], weights: Mapping[int, float]
) -> dict[str, set[int]]:
    """Move slots from the heaviest to the lightest member until each carries its part, as far as that is possible."""
    loads, now = {member: set(some) for member, some in before.items()}, dict(totals)
    mean = sum(now.values()) / len(now)
    for _ in range(_ROUNDS * len(now)):
        heaviest = max(now, key=lambda it: (now[it], it))
        lightest = min(now, key=lambda it: (now[it], it))
        if now[heaviest] <= mean * _LEVEL_RATIO:
            break
        room = min(now[heaviest] - mean, mean - now[lightest])
        moved: list[int] = []
        for slot in sorted(loads[heaviest], key=lambda it: (-weights[it], it)):
            if weights[slot] <= room:
                moved.append(slot)
                room -= weights[slot]
        if not moved:
            # All are heavier than the gap to the mean; one that is lighter than the gap between the two still helps.
            gap = now[heaviest] - now[lightest]
            moved = sorted((it for it in loads[heaviest] if weights[it] < gap), key=lambda it: (weights[it], it))[:1]
        if not moved:
            break
        weight = sum(weights[slot] for slot in moved)
        loads[heaviest] -= set(moved)
        loads[lightest] |= set(moved)
        now[heaviest] -= weight
        now[lightest] += weight
    return loads


def tasks_without_holder(tasks: int, members: Iterable[Candidate]) -> tuple[int, ...]:
    """Return the tasks that no member holds: their former node may have vanished, and may still write."""
    held = frozenset[int]().union(*(candidate.held.tasks for candidate in members))
    return tuple(task for task in range(tasks) if task not in held)
