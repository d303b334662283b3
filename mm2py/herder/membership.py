"""The nodes that run a flow are the members of its group at the target cluster, and share its tasks: the group's leader
assigns them. A flow's task groups do nothing at either cluster before this node has a share. While Java MirrorMaker has
the group, they stand by: the group is described every few seconds, and joined once it is empty. A node that finds
itself replaced, after a freeze or a long outage of the target, ends its work without another write, and joins again.
Correctness does not depend on time but on sequences and transactions: two nodes that both copy a partition, for a
session at most, only waste work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import attrs

from mm2py.connectors.context import HerderContext
from mm2py.connectors.supervise import in_passing, until_set
from mm2py.connectors.task_group import AnyGroup
from mm2py.core.herder.membership import (
    PROTOCOL,
    PROTOCOL_TYPE,
    NoCoordinatorError,
    UnknownAssignmentError,
    has_ended,
)
from mm2py.core.herder.sharing import Work, flow_tasks
from mm2py.errors import BrokerAnsweredError
from mm2py.herder.certainty import Certainty
from mm2py.herder.flow_share import FlowShare
from mm2py.herder.group_members import beat_interval_s, is_hopeless, who_else
from mm2py.herder.leader import GroupLeader
from mm2py.herder.node_context import NodeContext
from mm2py.herder.this_node import is_alive
from mm2py.model.herder.share import (
    Candidate,
    NodeLoad,
    Share,
    SharedFlow,
    decode_shared_flow,
    encode_candidate,
)
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.membership import Heartbeat, MemberIdentity, Membership


_STEP = "find out who runs the flow"
#: Interval of heartbeats while something moves.
_MOVING_BEAT_S = 0.25
_SPARE_HINT = "it takes over when a node ends; for more nodes to copy, raise tasks.max"


@attrs.frozen
class Place:
    """A membership as one runner of the flow leaves it to the next on this node, with what it holds."""

    identity: MemberIdentity
    share: Share


class FlowMembership:
    """Keeps a flow's membership, or waits for it; `FlowShare` has what follows for the flow's groups."""

    def __init__(
        self,
        context: HerderContext,
        node: NodeContext,
        *,
        work: Callable[[], Work],
        load: Callable[[], NodeLoad],
        load_of: Callable[[Candidate], NodeLoad],
        on_assignment: Callable[[SharedFlow | None], None],
        on_rebalanced: Callable[[float], None],
    ) -> None:
        """
        Create one for a flow of a *node*.

        *work* returns what there is to share, *load* what this node has to do, and *load_of* what another member has.
        *on_assignment*: see `FlowShare`; *on_rebalanced* gets how long it took until this node had an assignment.
        """
        self._context, self._us = context, node.us
        self._settings = context.config.worker
        self._writer = context.writers.tasks
        self._group = context.config.group_id
        self._clock = context.clock
        self._interval_s = beat_interval_s(self._settings.session_ms, self._settings.heartbeat_ms)
        self._certainty = Certainty(context, self._interval_s)
        self._tasks, self._record_tasks = flow_tasks(context.config.source_connector)
        #: What this node has of the flow.
        self.share = FlowShare(
            context,
            node,
            on_assignment=on_assignment,
            join_again=self._join_again,
            spare_hint=self._spare_hint,
        )
        #: What this node does where it leads the group.
        self.leader = GroupLeader(context, work, load_of)
        self._load = load
        self._is_drained = self._is_ending = False
        #: The source group has failed permanently here, and other nodes have what this one had.
        self._is_left_to_others = False
        #: The group's leader assigns work in a form that this version does not know.
        self._is_unfit = False
        #: An assignment could not be taken: the group is to be joined again at the next heartbeat.
        self._has_untaken = False
        #: One that waits until the flow runs with its owner's settings, and who this node is in it.
        self._waiting: tuple[SharedFlow, str] | None = None
        #: What a runner of the flow leaves to the next one on this node.
        self.place: Place | None = None
        #: Whether Spark has started here.
        self.is_ready = True
        self._hands_over = self._comes_back = self._came_back = False
        #: Another process has joined under our `group.instance.id`.
        self._is_fenced = False
        self._on_rebalanced = on_rebalanced
        self._is_joining = False
        #: The group is to be joined again.
        self._must_join = False
        #: Set when the group is to be asked at once.
        self._has_news = asyncio.Event()

    def hand_over(self) -> None:
        """Do not leave the group at the end: the flow continues on this node, with a successor that has our `place`."""
        self._hands_over = True

    def come_back(self) -> bool:
        """Stay in the group at the end, as a static member: this node is about to restart. Return whether it does."""
        self._comes_back = bool(self._settings.instance) and not self._is_drained
        return self._comes_back

    def note_ready(self) -> None:
        """Take tasks of other nodes from now on."""
        self.is_ready = True
        if self.share.is_empty or self._came_back:
            self._join_again()

    def drain(self, *, is_drained: bool, is_ending: bool = False) -> None:
        """Give this node's share to others, for maintenance or because it ends, or take part again."""
        if (is_drained, is_ending) != (self._is_drained, self._is_ending):
            self._is_drained, self._is_ending = is_drained, is_ending
            self._join_again()

    def compare_settings(self) -> None:
        """Have the nodes compare their settings again, if this node's are others than they know."""
        if self.share.agreement.is_outdated:
            self._join_again()

    def begin(self, groups: Sequence[AnyGroup], heartbeats: AnyGroup | None = None) -> None:
        """Hold *groups* and *heartbeats* back until `run` has determined who runs the flow."""
        self.share.groups = groups
        self.share.heartbeats.begin(heartbeats, is_held=self._settings.refuses)
        if self._settings.refuses:
            if self._context.config.is_enabled:  # without copy tasks nothing is written as one of them
                self._writer.guard(self._has_news.set)
            self._context.writers.follow(is_certain=lambda: self._certainty.is_certain, on_fenced=self.share.doubt)
            self.share.hold_back()

    def _join_again(self) -> None:
        self._must_join = True
        self._has_news.set()

    async def run(self) -> None:
        """Decide, until cancelled, what the flow's groups may do; leave the group at the end."""
        await self._context.supervise(f"{self._context.flow}/membership", self._live)

    async def _live(self) -> None:
        cluster = Cluster(self._context.config.target, self._clock)
        protocol = PROTOCOL_TYPE, PROTOCOL
        place = Membership(cluster, self._group, protocol, self._settings.session_ms, self._settings.instance)
        self._assign = partial(self.leader.assign, cluster)
        if self.place is not None:
            place.keep(self.place.identity)
            if place.is_in:
                self.share.held = self.place.share
                self._join_again()
        reach, aliases = self._context.reach, [self._context.flow.target]
        try:
            await reach.insist(_STEP, aliases, cluster.connect)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._certainty.watch(self.share.groups), name=f"{self._context.flow}/certainty")
                tasks.create_task(self._certainty.ask_beside(place), name=f"{self._context.flow}/beside")
                tasks.create_task(self.share.release_forever(), name=f"{self._context.flow}/release")
                tasks.create_task(self._writer.run(cluster), name=f"{self._context.flow}/writer")
                while True:
                    self._has_news.clear()
                    self._writer.begin_asking()
                    if self._gives_up():
                        await reach.done(_STEP, (), lambda: self._rest(place))  # the target is asked once at most
                    else:
                        await reach.done(_STEP, aliases, lambda: self._tend(place))
                    await until_set(self._has_news, self._pause_s())
        finally:
            # The flow ends, or is being cancelled: other nodes must not have to wait for the session to expire.
            self.place = Place(place.place, self.share.held) if place.place is not None else None
            if not self._hands_over and not self._comes_back:
                await in_passing(place.leave())
            await cluster.close()

    def _pause_s(self) -> float:
        """Return when to send the next heartbeat: at the same moments for all flows, which saves wakeups."""
        now, interval_s = self._clock.monotonic(), self._interval_s
        return min(interval_s, _MOVING_BEAT_S) if self.share.is_moving else interval_s - now % interval_s

    async def _tend(self, place: Membership) -> None:
        """Keep the membership or join, if possible, and inform the groups."""
        try:
            await self._decide(place)
        except BrokerAnsweredError as error:
            if error.code == ErrorCode.FENCED_INSTANCE_ID:
                self._is_fenced = True
                self._forget()
                self.share.replace_by_namesake()
                return
            if error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                raise NoCoordinatorError(error.cluster, self._group) from error
            if not is_hopeless(error):
                raise
            self._certainty.forget()
            self.share.go_unguarded(error)
            self._must_join = True  # an answer to a heartbeat would not bring back what we were assigned

    def _gives_up(self) -> bool:
        """Whether the flow has failed permanently here. If only its source group has, checkpoints continue while this
        is the only node. Others have the flow for good: by joining again, this node would take tasks back.
        """
        source, *_ = groups = self.share.groups
        shared = self.share.shared
        has_others = shared is not None and len(shared.nodes) > 1
        self._is_left_to_others = source.has_failed and (has_others or self._is_left_to_others)
        return self._is_left_to_others or all(group.has_failed for group in groups)

    async def _decide(self, place: Membership) -> None:
        if place.is_in:
            asked_at = self.share.ask()
            beat = await self._beat(place)
            if beat is Heartbeat.OK:
                await self._go_on(place, asked_at=asked_at)
                return
            if beat is Heartbeat.REBALANCE:
                await self._join(place)
                return
            self.share.begin_again()
        self._must_join = False
        while True:
            shares, is_fenced = self._settings.refuses, self._is_fenced
            taken = await who_else(place, self._us(), shares=shares, is_fenced=is_fenced)
            if taken is not None:
                self._forget()
                self.share.found(taken)
                return
            self._is_fenced = False
            try:
                if await self._join(place):
                    return
            except BrokerAnsweredError as error:
                if error.code != ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                    raise
            # Another node came first; the group shows which once it has rebalanced.
            await self._clock.sleep(min(1.0, self._interval_s))

    async def _beat(self, place: Membership) -> Heartbeat:
        """Send a heartbeat, unless the group is to be joined again anyway."""
        if self._must_join or self._has_untaken:
            return Heartbeat.REBALANCE
        beat = await place.beat()
        if beat is not Heartbeat.LOST:
            self._certainty.note(place.asked_at)
        return beat

    async def _go_on(self, place: Membership, *, asked_at: int) -> None:
        """Continue as the member that the group knows."""
        if self._waiting is not None:
            await self._take(place, *self._waiting)
        self.share.confirm(asked_at=asked_at)
        await self._remove_dead(place)
        if self.leader.finds_imbalance(self.share.shared):
            self._join_again()

    @property
    def is_rebalancing(self) -> bool:
        """Whether it is being decided who runs what of the flow, or a part of it is on its way to another node."""
        return self._is_joining or self.share.is_moving

    async def _join(self, place: Membership) -> bool:
        """Join the group, and note how long it took; False if that did not come to an end."""
        begun, self._is_joining = self._clock.monotonic(), True
        try:
            is_in = await self._take_part(place)
        finally:
            self._is_joining = False
        if is_in:
            self._on_rebalanced(self._clock.monotonic() - begun)
        return is_in

    async def _take_part(self, place: Membership) -> bool:
        """Join with what we hold, and take what we are assigned; False if that did not come to an end."""
        self._must_join, self._waiting = False, None
        before, agreement = self.share.shared, self.share.agreement
        takes_part = not self._is_drained and not self._is_unfit and agreement.takes_part
        known = before.generation if before is not None else -1
        ours = self._us(), self.share.held, self._load(), agreement.told(), not takes_part, self._is_ending
        candidate = Candidate(*ours, known, self.is_ready, tasks=(self._tasks, self._record_tasks))
        known_as = place.member_id if place.is_in else ""
        with self._certainty.asked_beside(known_as, has_joined=True):
            raw = await place.join(encode_candidate(candidate), partial(self._assign, before=before))
        if raw is None:
            return False
        self._certainty.note(place.asked_at)
        if known_as and place.member_id != known_as:
            # The coordinator had forgotten us: others may have had what we said that we hold.
            self.share.begin_again()
            self._join_again()
        shared = self._decoded(raw)
        self.leader.follow(shared)
        # A static member comes back without a rebalance. Others learn of it once it works: more may be on their way.
        self._came_back = self._settings.instance != "" and not known_as and place.member_id not in shared.nodes
        if self._came_back and self.is_ready:
            self._join_again()
        name, shared = shared.taken_by(place.member_id, self._us())
        await self._take(place, shared, name)
        self._writer.confirm()
        if self.leader.must_repeat:
            self._join_again()
        return True

    async def _take(self, place: Membership, shared: SharedFlow, name: str) -> None:
        """Take an assignment, or have it wait for the settings of its owner: connectors may restart alone with them."""
        self._has_untaken = True
        with self._certainty.asked_beside(place.member_id, has_joined=False):
            is_taken = await self.share.take(shared, name)
        self._has_untaken, self._waiting = False, None if is_taken else (shared, name)

    def _decoded(self, raw: bytes) -> SharedFlow:
        """Return an assignment. If it is none that this version knows, have others run our share, and raise."""
        try:
            shared = decode_shared_flow(raw)
        except ValueError as error:
            unknown = UnknownAssignmentError(self._context.flow.target, self._group, str(error))
            self._has_untaken, self._is_unfit = not self._is_unfit, True
            self.share.step_aside(unknown)
            raise unknown from error
        if self._is_unfit:
            self._is_unfit = False
            self._join_again()  # to take part
        return shared

    async def _remove_dead(self, place: Membership) -> None:
        """Have members leave whose processes on this machine have ended: the session need not be waited for."""
        us, shared = self._us(), self.share.shared
        for member_id, node in shared.nodes.items() if shared is not None else ():
            if node != us and not node.instance and has_ended(node, us, is_alive):
                await place.remove(member_id)

    async def _rest(self, place: Membership) -> None:
        """Leave the group after the flow failed permanently here: it may work elsewhere."""
        self.share.leave()  # before others have the share: a group that works still must write nothing more
        if place.is_in:
            await place.leave()
        self._forget()

    def _forget(self) -> None:
        """Know of no member that could get what we have, and lead none."""
        self._certainty.forget()
        self.leader.forget()

    def _spare_hint(self) -> str:
        return "mm2py node undrain" if self._is_drained else _SPARE_HINT if self.is_ready else ""
