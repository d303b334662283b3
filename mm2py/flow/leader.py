"""What the leader of a flow's group does: it assigns the flow's tasks to the members, and compares what they carry."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from mm2py.core.sharing import Work, able_members, flow_tasks, needs_rebalance, share_work, wanted_shares
from mm2py.flow.task_group import FlowContext
from mm2py.model.share import (
    Candidate,
    NodeLoad,
    Share,
    SharedFlow,
    decode_candidate,
    encode_shared_flow,
    lasting_names,
)


#: How often the leader compares the nodes' loads.
_BALANCE_EVERY_S = 30.0


class GroupLeader:
    """This node as the leader of a flow's group, if it is; Kafka chooses one of the members."""

    def __init__(self, around: FlowContext) -> None:
        self._flow = str(around.flow)
        self._clock = around.clock
        #: What there is to share, as far as this node knows.
        self.work: Callable[[], Work] = lambda: Work(*flow_tasks(around.settings))
        #: What a member has to do, as far as this node knows.
        self.load_of: Callable[[Candidate], NodeLoad] = lambda member: member.load
        self._members: dict[str, Candidate] = {}
        self._balanced_at = 0.0
        self._round = 0
        #: What each member is to have once what moves is released, which members do one after the other; and who may
        #: have anything.
        self._wanted: Mapping[str, Share] = {}
        self._able: frozenset[str] = frozenset()
        #: Bytes per second of each slot, as of the last assignment.
        self._rates: dict[int, float] = {}
        #: Whether the next assignment is to relieve a node.
        self._is_due = False

    async def assign(
        self, generation: int, joined: Mapping[str, bytes], before: SharedFlow | None = None
    ) -> Mapping[str, bytes]:
        """Return what each member is sent, by what they *joined* with; *before* is the assignment until now."""
        members = {it: candidate for it, raw in joined.items() if (candidate := decode_candidate(raw)) is not None}
        work = self.work()
        rates = {**work.rates, **{slot: rate for it in members.values() for slot, rate in it.load.slots.items()}}
        # What moves is measured by no node.
        held = frozenset().union(*(it.held.slots for it in members.values()))
        self._rates = {**{slot: rate for slot, rate in self._rates.items() if slot not in held}, **rates}
        able = frozenset(able_members(members))
        # A node that still starts changes nothing. What one that left had is given out, without comparing: those that
        # got it have not measured it yet.
        names = lasting_names({it: members[it].node for it in able})
        is_compared = self._is_due or before is None or not names <= lasting_names(before.nodes)
        work = attrs.evolve(work, rates=self._rates, round=self._round, is_compared=is_compared)
        if self._is_due or before is None or (self._wanted.keys(), self._able) != (members.keys(), able):
            self._wanted, self._able = wanted_shares(self._flow, members, work), able
        shared = share_work(self._flow, generation, members, work, self._wanted)
        self._members = {it: attrs.evolve(who, held=shared.share_of(it)) for it, who in members.items()}
        self._balanced_at, self._is_due = self._clock.monotonic(), False
        raw = encode_shared_flow(shared)
        return dict.fromkeys(joined, raw)

    def forget(self) -> None:
        """Lead no more."""
        self._members, self._wanted = {}, {}

    def finds_imbalance(self, shared: SharedFlow | None) -> bool:
        """Whether a node carries clearly more than its part of what is *shared*, if we lead and a comparison is due."""
        now = self._clock.monotonic()
        is_leader = shared is not None and self._members.keys() == shared.nodes.keys() and len(self._members) > 1
        if not is_leader or now - self._balanced_at < _BALANCE_EVERY_S:
            return False
        self._balanced_at, self._round = now, self._round + 1
        members = {it: attrs.evolve(who, load=self.load_of(who)) for it, who in self._members.items()}
        self._is_due = needs_rebalance(self._flow, members, attrs.evolve(self.work(), round=self._round))
        return self._is_due
