"""What operators ask of one flow: overrides, and restarts of what this node or another one runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import attrs

from mm2py.connectors.context import HerderContext
from mm2py.connectors.source.group import SourceGroup
from mm2py.connectors.task_group import AnyGroup
from mm2py.errors import OverrideConflictError, UnknownConnectorError, UnknownTaskError
from mm2py.herder.nodes import FlowNodes
from mm2py.herder.shared_restarts import SharedRestarts
from mm2py.model.flow import Flow
from mm2py.model.herder.overrides import NO_LIMIT, NO_OVERRIDES, Overrides, Wanted
from mm2py.model.herder.restart import Restart
from mm2py.model.state import FlowState, FlowView
from mm2py.telemetry.events import (
    Event,
    PartitionPaused,
    PartitionResumed,
    RateLimited,
    RateLimitLifted,
    TopicPaused,
    TopicResumed,
)


_DOWN = (FlowState.FAILED, FlowState.RESTARTING)


class FlowRequests:
    """Applies the requests of operators to the groups of a flow, and shows those that last."""

    def __init__(
        self, context: HerderContext, source: SourceGroup | None, groups: Sequence[AnyGroup], nodes: FlowNodes | None
    ) -> None:
        """Create it for the *groups* of a flow, of which *source* is one; without *nodes* the flow is not shared."""
        self._flow = context.flow
        self._clock = context.clock
        self._events = context.events
        self._source = source
        self._groups = groups
        self._nodes = nodes
        #: The overrides that apply to the flow.
        self.overrides = NO_OVERRIDES
        #: Who changed them last, and the wall time.
        self._changed = ("", 0)
        #: Since when operators want each connector in its target state.
        self._wanted_since: dict[str, float] = {}
        self._restarts = SharedRestarts(context, nodes, self._named, self.restart_here) if nodes is not None else None

    def apply(self, overrides: Overrides, *, by: str = "", at_ms: int = 0, is_news: bool = True) -> None:
        """
        Apply *overrides* from now on: to task groups at once, pauses and limits from the next epoch on.

        May be called before the flow runs. *by* is who changed them last, *at_ms* the wall time of that. They are
        reported if that *is_news*.
        """
        before, self.overrides = self.overrides, overrides
        self._changed = (by, at_ms)
        for event in _events_of(self._flow, before, overrides, by) if is_news else ():
            self._events.emit(event)
        if self._source is not None:
            self._source.apply_overrides(overrides)
        for group in self._groups:
            if (wanted := overrides.wanted(group.connector)) is not group.requests.wanted:
                self._wanted_since[group.connector] = self._clock.monotonic()
            group.requests.want(wanted, by=by)
        if self._nodes is not None:
            self._nodes.wake()  # the other nodes read them, too

    def shown(self, view: FlowView) -> FlowView:
        """Return a *view* with the overrides that apply."""
        overrides, (by, at_ms) = self.overrides, self._changed
        first_ms = min((pause.at_ms for pause in overrides.pauses.values()), default=None)
        return attrs.evolve(
            view,
            paused_topics=tuple(sorted(overrides.topics)),
            paused_partitions=tuple(sorted(overrides.partitions)),
            limit=overrides.limit,
            topic_limits=overrides.topic_limits,
            overrides_by=by,
            overrides_ms=at_ms,
            pauses=overrides.pauses,
            paused_s=max(0, self._clock.wall_ms() - first_ms) / 1000 if first_ms is not None else None,
        )

    def not_stopped(self, connector: str, revision: int) -> tuple[str, ...]:
        """Return the names of other nodes that have not reported yet that they stopped a connector, which this one has:
        under overrides of that *revision*, and since operators want it.
        """
        since = self._wanted_since.get(connector, -math.inf)
        return () if self._nodes is None else self._nodes.not_stopped(connector, revision, since)

    async def restart(self, restart: Restart) -> None:
        """Restart a connector or a task on whichever node of the flow runs it; see `SharedRestarts.ask`."""
        if self._restarts is not None:
            await self._restarts.ask(restart)
        elif not self.restart_here(restart):
            raise UnknownTaskError(str(self._flow), restart.connector, restart.task or 0)

    async def refresh(self, *, by: str = "") -> None:
        """Have the flow's nodes look for new topics, partitions and groups. Raise OverrideConflictError if the flow is
        paused or stopped, or only emits heartbeats.
        """
        follow = [group for group in self._groups if group.follows_source and group.requests.wanted is Wanted.RUNNING]
        if not follow:
            raise OverrideConflictError(f"flow {self._flow} follows no topics now", "resume it: it looks for them then")
        for group in follow:
            await self.restart(Restart(group.connector, by=by, is_refresh=True))

    def restart_here(self, restart: Restart) -> bool:
        """
        Restart what this node runs of a connector or of a task; return whether it runs any of it.

        A refresh restarts nothing. A connector restarts as in Connect (KIP-745). Without `include_tasks` its copy tasks
        continue meanwhile; with `only_failed` working parts are left alone. A failed group restarts as a whole in any
        case. A copy task ends its epoch, cancels its back-off and plans again; other groups only have task 0.
        """
        group, by = self._named(restart.connector), restart.by
        if group.state is FlowState.STANDBY:
            return False
        if restart.is_refresh:
            group.refresh()
            return True
        if restart.task is not None:
            return group.restart_task(restart.task, by=by)
        if group.state in _DOWN:
            group.restart(by=by)
        elif restart.only_failed:
            for task in group.lost_tasks() if restart.include_tasks else ():
                group.restart_task(task, by=by)
        elif restart.include_tasks:
            group.restart(by=by)
        else:
            group.restart_alone(by=by)
        return True

    def _named(self, connector: str) -> AnyGroup:
        for group in self._groups:
            if group.connector == connector and group.requests.wanted is not Wanted.DELETED:
                if group.requests.wanted is Wanted.STOPPED:
                    raise OverrideConflictError(f"{connector} of {self._flow} is stopped", "resume it instead")
                return group
        raise UnknownConnectorError(str(self._flow), connector)


def _events_of(flow: Flow, before: Overrides, after: Overrides, by: str) -> Iterator[Event]:
    """Return an event for each topic, partition and limit whose override changed; task groups report their own."""
    for topic in sorted(after.topics - before.topics):
        yield TopicPaused(flow, topic, by)
    for partition in sorted(after.partitions - before.partitions):
        yield PartitionPaused(flow, partition, by)
    for topic in sorted(before.topics - after.topics):
        yield TopicResumed(flow, topic, by)
    for partition in sorted(before.partitions - after.partitions):
        if not after.is_paused(partition):
            yield PartitionResumed(flow, partition, by)
    was, now = {"": before.limit, **before.topic_limits}, {"": after.limit, **after.topic_limits}
    for topic in sorted({*was, *now}):
        limit = now.get(topic, NO_LIMIT)
        if limit == was.get(topic, NO_LIMIT):
            continue
        if limit.is_none:
            yield RateLimitLifted(flow, topic, by)
        else:
            yield RateLimited(flow, topic, limit.bytes_per_s, limit.records_per_s, by)
