"""What the leader of a flow's group does: it assigns the flow's tasks to the members, and compares what they carry.
Before tasks that no member has are given to one, the brokers refuse what a node that vanished may still write for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import ClassVar

import attrs

from mm2py.connectors.context import HerderContext
from mm2py.core.herder.sharing import (
    Work,
    able_members,
    needs_rebalance,
    share_work,
    tasks_without_holder,
    wanted_shares,
    without_gains,
)
from mm2py.errors import Mm2Error, Verdict
from mm2py.model.herder.share import (
    VERSION,
    Candidate,
    NodeLoad,
    Share,
    SharedFlow,
    decode_candidate,
    encode_shared_flow,
    lasting_names,
    with_former_shares,
)
from mm2py.wire.cluster import Cluster
from mm2py.wire.fenced_writer import has_transactions


#: How often the leader compares the nodes' loads.
_BALANCE_EVERY_S = 20.0
#: Part of a session in which fencing must succeed: the other members wait for their assignment meanwhile.
_FENCE_SHARE = 1 / 3
#: After this, tasks are given away although their former node may still write: failed brokers are replaced by then.
_FENCE_FOR_S = 20.0


@attrs.define(eq=False)
class NotFencedError(Mm2Error):
    """The brokers did not refuse in time what a node may still write that had a task before."""

    verdict: ClassVar[Verdict] = Verdict.RETRY
    hint: ClassVar[str] = (
        "check that __transaction_state of that cluster has its partitions online, with as many replicas in sync as "
        "its min.insync.replicas asks for"
    )

    cluster: str
    limit_ms: int

    def __str__(self) -> str:
        return f"no coordinator of cluster {self.cluster} had opened it after {self.limit_ms / 1000:g} s"


class GroupLeader:
    """This node as the leader of a flow's group, if it is; Kafka chooses one of the members."""

    def __init__(
        self, context: HerderContext, work: Callable[[], Work], load_of: Callable[[Candidate], NodeLoad]
    ) -> None:
        """Create it. *work* returns what there is to share, and *load_of* what a member has to do, both as far as this
        node knows.
        """
        self._flow = str(context.flow)
        self._writers = context.writers
        self._source = context.config.source_connector
        self._worker = context.worker
        self._clock = context.clock
        self._work = work
        self._load_of = load_of
        self._members: dict[str, Candidate] = {}
        #: The generation of the last assignment.
        self._generation = -1
        self._balanced_at = 0.0
        self._round = 0
        #: The assignment as it will be once all that moves is released, one member after the other, and the inputs that
        #: it was computed from.
        self._wanted: Mapping[str, Share] = {}
        self._decided_for: tuple[object, ...] = ()
        #: Bytes per second of each slot, as of the last assignment.
        self._rates: dict[int, float] = {}
        #: Whether the next assignment is to relieve a node.
        self._is_due = False
        self._unfenced_since: float | None = None

    @property
    def must_repeat(self) -> bool:
        """Whether the last assignment left something out that is to be tried again."""
        return self._unfenced_since is not None

    async def assign(
        self, cluster: Cluster, generation: int, joined: Mapping[str, bytes], before: SharedFlow | None = None
    ) -> Mapping[str, bytes]:
        """
        Return what each member is sent, by what they *joined* with; *before* is the assignment until now, *cluster* the
        target.
        """
        members = {it: candidate for it, raw in joined.items() if (candidate := decode_candidate(raw)) is not None}
        members = with_former_shares(members, before)
        able = able_members(members)
        work = self._work().of_owner(able)
        rates = {**work.rates, **{slot: rate for it in members.values() for slot, rate in it.load.slots.items()}}
        # What moves is measured by no node.
        held = frozenset().union(*(it.held.slots for it in members.values()))
        self._rates = {**{slot: rate for slot, rate in self._rates.items() if slot not in held}, **rates}
        # A node that still starts changes nothing. What one that left had is given out, without comparing: those that
        # got it have not measured it yet. Neither has a leader that has just started measured anything.
        names = lasting_names({it: who.node for it, who in able.items()})
        is_compared = self._is_due or (before is not None and not names <= lasting_names(before.nodes))
        work = attrs.evolve(work, rates=self._rates, round=self._round, is_compared=is_compared)
        decided_for = frozenset(members), frozenset(able), work.tasks, work.record_tasks
        if self._is_due or before is None or self._decided_for != decided_for:
            self._wanted, self._decided_for = wanted_shares(self._flow, members, work), decided_for
        shared = share_work(self._flow, generation, members, work, self._wanted)
        if not await self._fence(cluster, tasks_without_holder(work.tasks, members.values())):
            shared = without_gains(shared, members)
        self._members = {it: attrs.evolve(who, held=shared.share_of(it)) for it, who in members.items()}
        self._generation = generation
        self._balanced_at, self._is_due = self._clock.monotonic(), False
        raw = encode_shared_flow(shared, min([VERSION, *(who.version for who in members.values())]))
        return dict.fromkeys(joined, raw)

    async def _fence(self, cluster: Cluster, tasks: Collection[int]) -> bool:
        """Have the brokers refuse the former nodes of *tasks*; False if that is to be tried again first."""
        since, self._unfenced_since = self._unfenced_since, None
        if not tasks or not self._worker.refuses or not self._source.is_enabled:
            return True
        failed: Mm2Error | None = None
        within_ms = round(self._worker.session_ms * _FENCE_SHARE)
        try:
            async with asyncio.timeout(within_ms / 1000):
                await self._writers.fence_tasks(self._source, cluster, tasks)
        except TimeoutError:
            failed = NotFencedError(cluster.alias, within_ms)
        except Mm2Error as error:
            failed = error
        if failed is None or not await has_transactions(cluster):
            return True
        now = self._clock.monotonic()
        since = now if since is None else since
        if now - since < _FENCE_FOR_S:
            self._unfenced_since = since
            return False
        self._writers.give_up_fencing(tasks, failed)
        return True

    def follow(self, shared: SharedFlow) -> None:
        """Lead no more if another member has assigned what is *shared*."""
        if shared.generation != self._generation:
            self.forget()

    def forget(self) -> None:
        """Lead no more."""
        self._members, self._wanted, self._decided_for, self._unfenced_since = {}, {}, (), None

    def finds_imbalance(self, shared: SharedFlow | None) -> bool:
        """Whether a node carries clearly more than its part of what is *shared*, if we lead and a comparison is due."""
        now = self._clock.monotonic()
        is_leader = shared is not None and self._members.keys() == shared.nodes.keys() and len(self._members) > 1
        if not is_leader or now - self._balanced_at < _BALANCE_EVERY_S:
            return False
        self._balanced_at, self._round = now, self._round + 1
        members = {it: attrs.evolve(who, load=self._load_of(who)) for it, who in self._members.items()}
        work = self._work().of_owner(able_members(members))
        self._is_due = needs_rebalance(self._flow, members, attrs.evolve(work, round=self._round))
        return self._is_due
