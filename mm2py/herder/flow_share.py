"""What a node has of a flow that several nodes share, and what follows for the flow's task groups: they are given their
share, end what another node may have had meanwhile, and release what is given to another one. While another node has
the flow, they stand by.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from mm2py.config.settings import FlowSettings
from mm2py.connectors.context import HerderContext
from mm2py.connectors.heartbeat import HeartbeatTurn
from mm2py.connectors.reach import Reach
from mm2py.connectors.task_group import AnyGroup
from mm2py.core.herder.membership import Occupied
from mm2py.core.herder.sharing import flow_tasks
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.herder.agreement import SettingsAgreement
from mm2py.herder.group_members import STOP_ONE, with_grant
from mm2py.herder.node_context import NodeContext
from mm2py.model.flow import Flow
from mm2py.model.herder.share import NO_SHARE, Share, SharedFlow, whole_share
from mm2py.telemetry.events import (
    Event,
    FlowRunsElsewhere,
    FlowShared,
    FlowTakenOver,
    FlowUnguarded,
    InstanceFenced,
)
from mm2py.wire.error_codes import ErrorCode


#: For how long at most something moves: it is copied once all have joined again.
_MOVING_S = 10.0
_HINTS: Final[dict[int, str]] = {
    ErrorCode.INVALID_SESSION_TIMEOUT: "set session.timeout.ms to what the brokers allow (group.*.timeout.ms)"
}
_NAMESAKE_HINT: Final = "give each node a group.instance.id of its own; this one continues when the other has gone"
_FAILED_HERE: Final = "the source connector has failed on this node, which leaves the flow to the others"
_FAILED_HINT: Final = "restart the source connector once the cause is removed"


class FlowShare:
    """This node's share of a flow, by the last assignment, and what the flow's groups still hold of a former one."""

    def __init__(
        self,
        context: HerderContext,
        node: NodeContext,
        *,
        on_assignment: Callable[[SharedFlow | None], None],
        join_again: Callable[[], None],
        spare_hint: Callable[[], str],
    ) -> None:
        """
        Create it for a *node*.

        *on_assignment* gets each new assignment, and None once there is none any more. *join_again* has the group
        assign the flow again, and *spare_hint* returns what an operator may do who wants this node to have a share.
        """
        self._context = context
        self._settings = context.config.worker
        self._writer = context.writers.tasks
        self._clock = context.clock
        self._tasks, _ = flow_tasks(context.config.source_connector)
        self._before_takeover = node.before_takeover
        self._on_assignment = on_assignment
        self._join_again = join_again
        self._spare_hint = spare_hint
        self.groups: Sequence[AnyGroup] = ()
        self.heartbeats = HeartbeatTurn()
        self.agreement = SettingsAgreement(context.flow, context.events, node)
        #: What we are to have, and what we may still hold of a former share.
        self._share = self.held = NO_SHARE
        self.shared: SharedFlow | None = None
        self._assigned_at = 0.0
        #: Set when groups hold something that is no longer in our share.
        self._must_release = asyncio.Event()
        #: Another node replaced us, which was not reported yet.
        self._was_ours = False
        #: Counts doubts; those up to the second number are settled. A question without an answer settles none.
        self._doubts = self._settled = 0
        self._taken_at: float | None = None
        self._told: Occupied | None = None
        self._unguarded_by = 0

    @property
    def is_empty(self) -> bool:
        """Whether this node has nothing to do for the flow."""
        return self._share.is_empty

    @property
    def has_given(self) -> bool:
        """Whether other nodes, if there are any, have what this one had."""
        if self.shared is None or len(self.shared.nodes) == 1 or not self._settings.refuses:
            return True
        return self.held.is_empty and self.shared.has_all(self._tasks)

    @property
    def is_moving(self) -> bool:
        """Whether a part of the flow is on its way from one node to another."""
        if self.shared is None or self._clock.monotonic() - self._assigned_at >= _MOVING_S:
            return False
        return not self.shared.has_all(self._tasks)

    def doubt(self) -> None:
        """Have what only the owner does wait until the group answers again: another node has written for it."""
        self._doubts += 1
        for group in self.groups:
            if group.is_for_owner:
                group.requests.depose()
                group.requests.give(NO_SHARE)

    def hold_back(self) -> None:
        """Have the groups do nothing until there is an assignment."""
        self._give(NO_SHARE)

    def ask(self) -> int:
        """Return up to which doubt an answer to what the group is asked now settles them."""
        return self._doubts

    def confirm(self, *, asked_at: int) -> None:
        """Go on: the group has answered. The owner's work, too, unless there is another doubt since it was asked."""
        self._writer.confirm()
        if self._settled < asked_at == self._doubts:
            self._settled = asked_at
            self._give(self._share, self.shared)

    def begin_again(self) -> None:
        """Hold nothing: others may have had what we had."""
        self._was_ours, self.held = True, NO_SHARE
        self._writer.lose()

    async def take(self, shared: SharedFlow, member_id: str) -> bool:
        """Work on our share from now on, and release what is not in it; return False while the flow does not run with
        its owner's settings.
        """
        is_alone = len(shared.nodes) == 1
        if self._was_ours and not is_alone:
            # We were thrown out: others may have had what we had. A group begins again at once, so not with that.
            for group in self.groups:
                group.requests.depose()
                group.requests.give(NO_SHARE)
        if self._settings.refuses and not await self._agree(shared, member_id):
            return False
        share = shared.share_of(member_id) & whole_share(self._tasks)
        if self._was_ours and is_alone:
            self.held |= self._share  # nobody came, so the groups go on with it until they have released it
        if not self._settings.refuses:
            share = whole_share(self._tasks)
        lost, gained = self.held - share, share - self._share
        has_more = not gained.is_empty or bool(gained.slots)
        if has_more and (self._taken_at is not None or self.shared is not None or not is_alone):
            await self._before_takeover()
        before, self.shared, self._assigned_at = self.shared, shared, self._clock.monotonic()
        self._share, self.held = share, self.held | share
        self._tell_shares(before, shared)
        self._was_ours, self._unguarded_by = False, 0
        self._context.writers.is_guarding = self._settings.refuses
        self._writer.hold(share.tasks or self.held.tasks)
        self._give(share, shared, member_id)
        self.heartbeats.follow(shared, member_id, share)
        self._on_assignment(shared)
        if lost.is_empty and not lost.slots:
            self.held = share
        else:
            self._must_release.set()
        return True

    async def _agree(self, shared: SharedFlow, member_id: str) -> bool:
        """Whether the owner's settings are in use. If they cannot be used here, give our share up, and raise."""
        was_apart = not self.agreement.takes_part
        try:
            is_in_use = await self.agreement.agree(shared, member_id)
        except Mm2Error as error:
            self.step_aside(error)
            raise
        if was_apart and self.agreement.takes_part:
            self._join_again()
        return is_in_use

    def step_aside(self, error: Mm2Error) -> None:
        """Give our share to others: *error* prevents us from working on it."""
        self._share, self._settled = NO_SHARE, self._doubts
        for group in self.groups:
            group.requests.give(NO_SHARE, str(error), error.hint)
        self.heartbeats.leave(str(error), error.hint)
        self._must_release.set()

    async def release_forever(self) -> None:
        """Join again once the groups hold nothing beyond their share, so that others get the rest."""
        while True:
            await self._must_release.wait()
            self._must_release.clear()
            share = self._share
            for group in self.groups:
                await group.until_released()
            await self._writer.until_moved()
            if share == self._share and self.held != share:
                self.held = share
                self._writer.hold(share.tasks)
                self._join_again()

    def _give(self, share: Share, shared: SharedFlow | None = None, member_id: str = "") -> None:
        why = hint = ""
        if shared is not None and share.is_empty:
            why, hint = self.agreement.why_not(shared, member_id)
            if not why:
                why = _who_runs(self._context.flow, shared)
                hint = self._spare_hint()
        elif shared is not None and not share.is_owner:  # it copies, and the owner does all else
            why = f"{shared.owner or 'no node'} does this for {self._context.flow}"
        for group in self.groups:
            group.requests.give(share, why, hint)

    def leave(self) -> None:
        """Have nothing but heartbeats, after the flow failed permanently here."""
        self._lose()
        self._taken_at = None
        if self._settings.refuses:
            for group in self.groups:
                if group.requests.is_admitted:
                    group.requests.depose()
                group.requests.give(NO_SHARE, _FAILED_HERE, _FAILED_HINT)
        self.heartbeats.take()

    def _lose(self) -> None:
        """Have nothing, and know no assignment."""
        self._share = self.held = NO_SHARE
        self.shared = None
        self._writer.lose()
        self._on_assignment(None)

    def replace_by_namesake(self) -> None:
        """Stand by for a process that has joined the group under our `group.instance.id`."""
        self._was_ours = True
        self.found(Occupied("another node", is_settling=True, is_namesake=True))

    def found(self, taken: Occupied) -> None:
        """Stand by for the current member, and report it once it is certain not to be left over from a crash."""
        now, was_ours = self._clock.monotonic(), self._was_ours
        self._lose()
        self._taken_at = now if self._taken_at is None else self._taken_at
        self._unguarded_by = 0
        if self._settings.refuses:
            why, hint = _why_elsewhere(self._context.config, taken)
            for group in self.groups:
                if was_ours and group.requests.is_admitted:
                    group.requests.depose()
                group.requests.give(NO_SHARE, why, hint)
            self.heartbeats.leave(why, hint)
        is_sure = was_ours or taken.is_certain or now - self._taken_at >= self._settings.session_ms / 1000
        is_told = self._told is not None and (taken.node is None or self._told.by == taken.by)
        if is_sure and not is_told and not taken.is_settling:
            self._told = taken
            self._context.events.emit(_runs_elsewhere(self._context.config, taken, was_ours=was_ours))
            self._was_ours = False

    def _tell_shares(self, before: SharedFlow | None, shared: SharedFlow) -> None:
        """Report who shares the flow where that has changed."""
        flow, emit = self._context.flow, self._context.events.emit
        if self._taken_at is not None and not self._share.is_empty:
            if self._told is not None:
                emit(FlowTakenOver(flow, self._told.by, self._clock.monotonic() - self._taken_at))
            self._taken_at, self._told = None, None
        if (event := _newly_shared(flow, before, shared, self._share)) is not None:
            emit(event)

    def go_unguarded(self, error: BrokerAnsweredError) -> None:
        """Work without membership, as no other member is known: report what is missing, and retry."""
        if self._unguarded_by != error.code:
            self._unguarded_by = error.code
            self._context.events.emit(_unguarded(self._context.config, self._context.reach, error))
        self._context.writers.is_guarding = False
        self._writer.unguard()
        if self._taken_at is None:
            self._give(whole_share(self._tasks))
            self.heartbeats.take()


def _newly_shared(flow: Flow, before: SharedFlow | None, shared: SharedFlow, ours: Share) -> FlowShared | None:
    """Report who shares the flow if that has changed, and several nodes do so or did."""
    shares, known = shared.shares, before.shares if before is not None else {}
    if shares == known or not (len(shares) > 1 or len(known) > 1):
        return None
    by_node = "; ".join(sorted(f"{node}: {shared.share_of(member)}" for member, node in shared.nodes.items()))
    return FlowShared(flow, len(shares), str(ours), str(shared.owner or "none"), by_node)


def _who_runs(flow: Flow, shared: SharedFlow) -> str:
    """Return why a node without a share stands by."""
    others = [str(node) for member, node in shared.nodes.items() if not shared.share_of(member).is_empty]
    return f"{' and '.join(sorted(others)) or 'no node'} runs {flow}"


def _why_elsewhere(settings: FlowSettings, taken: Occupied) -> tuple[str, str]:
    """Return why this node stands by, and a hint."""
    if taken.is_namesake:
        return f"{taken.by} has the same group.instance.id, {settings.worker.instance}", _NAMESAKE_HINT
    return f"{taken.by} runs {settings.flow}", STOP_ONE


def _unguarded(settings: FlowSettings, reach: Reach, error: BrokerAnsweredError) -> FlowUnguarded:
    """Report that the flow's group cannot be joined, and what is missing."""
    error = with_grant(error, settings.group_id)
    hint = reach.hint_for(error) or _HINTS.get(error.code, "")
    return FlowUnguarded(settings.flow, settings.group_id, str(error), hint)


def _runs_elsewhere(settings: FlowSettings, taken: Occupied, *, was_ours: bool) -> Event:
    """Report that another node has the flow's group, or our name in it."""
    then = "steps back and stands by" if was_ours else "stands by and copies nothing"
    if not settings.worker.refuses:
        then = "copies nevertheless: copy.on.second.node is warn"
    flow, group = settings.flow, settings.group_id
    if taken.is_namesake:
        return InstanceFenced(flow, group, settings.worker.instance, taken.by, then, _NAMESAKE_HINT)
    return FlowRunsElsewhere(flow, group, taken.by, taken.since, taken.rest, then, STOP_ONE)
