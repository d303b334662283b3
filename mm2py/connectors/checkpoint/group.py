"""
The checkpoint task group: follows consumer groups at the source, writes their checkpoints, syncs their offsets.

Three parallel loops: listing groups, rounds of checkpoints, and the groups' offsets at the target. It drains after the
source group, so that the last round includes everything copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import attrs

from mm2py.config.connector import MirrorCheckpointConfig
from mm2py.connectors.checkpoint.checkpoints import Checkpoints, Round
from mm2py.connectors.checkpoint.group_offsets import GroupOffsets, Standing, Synced
from mm2py.connectors.checkpoint.latencies import CheckpointLatencies
from mm2py.connectors.context import CheckpointContext
from mm2py.connectors.offsets.offset_sync_store import OffsetSyncStore
from mm2py.connectors.plugins import group_filter_of, policy_of
from mm2py.connectors.supervise import until_set
from mm2py.connectors.task_group import FlowGroup
from mm2py.core.checkpoint.checkpoints import AtTarget, judge_committed
from mm2py.model.state import GroupOffsetsView, GroupOffsetView
from mm2py.policy.replication import ReplicationPolicy
from mm2py.policy.selection import GroupSelection, judge_group
from mm2py.telemetry.events import GroupNotTranslated, GroupsChanged
from mm2py.wire.cluster import Cluster
from mm2py.wire.groups.consumer_groups import Groups


#: The interval between two rounds, if the setting is 0.
_SHORTEST_S = 0.5
#: First retry interval of a round that came before translations were ready; it doubles each time.
_UNREADY_S = 1.0
#: Time limit of the last round in a drain.
_LAST_ROUND_S = 2.5


class CheckpointGroup(FlowGroup[MirrorCheckpointConfig]):
    """Translates the offsets of a flow's consumer groups."""

    connector = "MirrorCheckpointConnector"
    name = "checkpoints"
    is_for_owner = True

    def __init__(
        self,
        context: CheckpointContext,
        *,
        forward: Callable[[CheckpointContext, Cluster, Cluster], OffsetSyncStore],
        way_back: Callable[[Cluster, ReplicationPolicy], OffsetSyncStore],
        latencies: CheckpointLatencies | None = None,
    ) -> None:
        """Create a group. *forward* returns the translations for `Checkpoints` that the source or the target cluster
        may have to be asked for, *way_back* those that the source cluster may have to be asked for.
        """
        super().__init__(context)
        self._forward = forward
        self._way_back = way_back
        self._latencies = latencies or CheckpointLatencies(context.clock)
        self._followed: tuple[str, ...] = ()
        self._left_out: dict[str, GroupSelection] = {}
        self._round = Round({}, {})
        self._offsets: GroupOffsets | None = None
        self._shown: tuple[GroupOffsetsView, ...] = ()
        #: Set when an operator has groups listed at once.
        self._refreshing = asyncio.Event()
        self._sync_due_ms: int | None = None

    def consumer_groups(self) -> tuple[GroupOffsetsView, ...]:
        """Return the groups as the last round found them."""
        return self._shown

    def refresh(self) -> None:
        """List the groups of the source at once."""
        self._refreshing.set()

    async def _live(self) -> None:
        try:
            await self._live_as_owner()
        finally:
            # What another node has written since is newer than what is known here.
            if self.requests.is_deposed or not self.requests.is_admitted:
                self._forget()

    def _forget(self) -> None:
        self._round, self._offsets, self._shown = Round({}, {}), None, ()

    async def _live_as_owner(self) -> None:
        config, flow = self.config, self.config.flow
        async with self._connected(config.source, config.target) as (source, target):
            if not await self._goes_on():
                return
            checkpoints = await self._insist(
                "open transactional ids", [flow.target], lambda: self._open(source, target)
            )
            offsets = GroupOffsets(
                self._context,
                Groups(target),
                last_of=checkpoints.last_of,
                ends_of=checkpoints.ends_of,
                may_write=lambda: not self.requests.is_deposed and self._context.writers.is_certain(),
            )
            self._round, self._offsets = Round({}, {}), offsets
            groups = Groups(source)
            await self._insist("read checkpoints", [flow.target], checkpoints.read)
            await self._insist("list consumer groups", [flow.source], lambda: self._refresh(groups))
            while await self._goes_on():
                self._came_up()
                loops = [("refresh", self._refresh_forever(groups)), ("emit", self._emit_forever(checkpoints))]
                if config.is_synced:
                    loops.append(("sync", self._sync_forever(offsets, checkpoints)))
                await self.requests.run_until_quiet(self.task, loops)
            # If another node took over, its checkpoints are newer.
            if not self.requests.is_deposed and not self.requests.is_paused:
                await self._finish(checkpoints, offsets)

    async def _open(self, source: Cluster, target: Cluster) -> Checkpoints:
        """Keep former nodes of the flow from writing, so that what is read from now on is final."""
        return Checkpoints(
            self._context,
            source,
            target,
            forward=self._forward(self._context, source, target),
            back=self._way_back(source, policy_of(self.config)),
            latencies=self._latencies,
            writer=await self._context.writers.for_owner(target),
        )

    async def _finish(self, checkpoints: Checkpoints, offsets: GroupOffsets) -> None:
        """Write a last round, now that nothing is copied any more."""
        try:
            async with asyncio.timeout(_LAST_ROUND_S):
                await self._emit(checkpoints)
                if self.config.is_synced:
                    await self._sync(offsets, checkpoints)
        except TimeoutError:
            return

    # The groups.

    async def _refresh_forever(self, groups: Groups) -> None:
        chosen = self.config
        while True:
            await until_set(self._refreshing, chosen.refresh_interval_s if chosen.refresh_enabled else None)
            self._refreshing.clear()
            await self._reach.done(
                "list consumer groups",
                [self.flow.source],
                lambda: self._refresh(groups),
                within_ms=self.config.admin_timeout_ms,
            )

    async def _refresh(self, groups: Groups) -> None:
        """List and select the groups of the source; groups of unreachable brokers are kept."""
        group_filter = group_filter_of(self.config)
        listed = await groups.list_groups()
        judged = {group: judge_group(listing, group_filter) for group, listing in listed.groups.items()}
        followed = {group for group, selection in judged.items() if selection is GroupSelection.TRANSLATED}
        if listed.failures:
            followed |= set(self._followed) - judged.keys()
        left_out = {group: selection for group, selection in judged.items() if selection.is_worth_telling}
        for group, selection in sorted(left_out.items()):
            if self._left_out.get(group) is not selection:
                self._events.emit(GroupNotTranslated(self.flow, group, selection.value))
        before = set(self._followed)
        if followed != before:
            added, gone = len(followed - before), len(before - followed)
            self._events.emit(GroupsChanged(self.flow, len(followed), added, gone))
        self._followed, self._left_out = tuple(sorted(followed)), left_out
        for error in list(listed.failures.values())[:1]:
            self._reach.failed("list the consumer groups of every broker", error)
        if not listed.failures:
            self._reach.answered((), "list the consumer groups of every broker")

    # Checkpoints.

    async def _emit_forever(self, checkpoints: Checkpoints) -> None:
        interval_s = max(_SHORTEST_S, self.config.emit_interval_s)
        retry_s = _UNREADY_S
        while True:
            await self._emit(checkpoints)
            if self._round.is_ready:
                pause_s, retry_s = interval_s, _UNREADY_S
            else:
                pause_s, retry_s = min(interval_s, retry_s), retry_s * 2
            await self._clock.sleep(pause_s)

    async def _emit(self, checkpoints: Checkpoints) -> None:
        followed = self._followed
        if followed:
            clusters = (self.flow.source, self.flow.target)
            done = await self._reach.once("write checkpoints", clusters, lambda: checkpoints.emit_once(followed))
            if done is not None:
                self._round = done
                await self._look()
        else:
            self._round = Round({}, {})
            if checkpoints.log.is_look_due:
                await self._reach.done("write checkpoints", [self.flow.target], checkpoints.log.look)
            else:
                self._reach.succeeded("write checkpoints")
        self._show()

    # Group offsets at the target.

    async def _look(self) -> None:
        """Read what groups have committed at the target, except those that the sync reads anyway."""
        offsets = self._offsets
        if offsets is None:
            return
        offsets.follow(self._round.views)
        is_synced = self.config.is_synced
        synced = self._round.wanted.keys() & offsets.standing if is_synced else frozenset()
        if groups := self._round.views.keys() - synced:
            is_read = await self._reach.done(
                "read the offsets of groups at the target",
                [self.flow.target],
                lambda: offsets.look(groups),
                within_ms=self.config.admin_timeout_ms,
            )
            if not is_read:
                offsets.follow(synced)

    async def _sync_forever(self, offsets: GroupOffsets, checkpoints: Checkpoints) -> None:
        interval_s = self.config.sync_interval_s
        try:
            while True:
                self._sync_due_ms = self._clock.wall_ms() + round(interval_s * 1000)
                self._show()
                await self._clock.sleep(interval_s)
                await self._sync(offsets, checkpoints)
        finally:
            self._sync_due_ms = None
            self._show()

    async def _sync(self, offsets: GroupOffsets, checkpoints: Checkpoints) -> None:
        found = self._round
        if found.wanted:
            settled = await self._reach.once(
                "sync group offsets",
                [self.flow.target],
                lambda: offsets.sync_once(found.wanted),
                within_ms=self.config.admin_timeout_ms,
            )
            checkpoints.note_settled(found, settled or ())
            if settled is None:
                offsets.follow(())
        self._show()

    # Views.

    def _show(self) -> None:
        shown = [GroupOffsetsView(group, why=selection.value) for group, selection in self._left_out.items()]
        shown += map(self._shown_group, self._followed)
        self._shown = tuple(sorted(shown, key=lambda view: view.group))

    def _shown_group(self, group: str) -> GroupOffsetsView:
        synced = self._offsets.states.get(group) if self._offsets is not None else None
        standing = self._offsets.standing.get(group) if self._offsets is not None else None
        why = self._unsynced_why(synced)
        offsets = self._round.views.get(group, ())
        return GroupOffsetsView(
            group,
            offsets if standing is None else self._compared(group, offsets, standing),
            at_target=synced.state.name.lower() if synced else "",
            at_target_why=(synced.detail or synced.state.value) if synced else "",
            synced_ms=synced.written_ms if synced else None,
            sync_due_ms=None if why else self._sync_due_ms,
            unsynced_why=why or (standing.error if standing is not None else ""),
        )

    def _unsynced_why(self, synced: Synced | None) -> str:
        """Return why a group's offsets will not be written at the target, empty if they may be."""
        if not self.config.is_synced:
            return "sync.group.offsets.enabled is false"
        if synced is not None and synced.state not in (AtTarget.IDLE, AtTarget.WATCHED):
            return synced.detail or synced.state.value
        return "" if self._sync_due_ms is not None else f"{self.connector} does not run"

    def _compared(
        self, group: str, offsets: tuple[GroupOffsetView, ...], standing: Standing
    ) -> tuple[GroupOffsetView, ...]:
        """Compare translated offsets with those that the group has committed at the target."""
        chosen, wanted = self.config, self._round.wanted.get(group, {})
        found = []
        for offset in offsets:
            at, committed = offset.downstream, standing.offsets.get(offset.remote)
            if at is not None:
                verdict = judge_committed(
                    at,
                    committed,
                    state=standing.state,
                    is_carried=offset.remote in wanted,
                    may_rewind=chosen.is_synced and chosen.sync_rewinds,
                    end=at + offset.distance if chosen.is_synced and offset.distance is not None else None,
                )
                offset = attrs.evolve(offset, committed=committed, at_target=verdict)  # noqa: PLW2901
            found.append(offset)
        return tuple(found)
