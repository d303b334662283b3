"""
What a node says of itself, by the view that page, REST, health and metrics are made of: it must not be a lie.

Asked at random moments, and whenever a cluster has not answered for long: a lag that is shown as exact is not older
than the product's own bound, and none is while the source is away; nothing is running then, nor healthy. At peace: all
runs, nothing is left, nothing needs attention.
"""

from __future__ import annotations

import bisect
import math
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mm2py.core.lag import lag_holds_s
from mm2py.model.behind import Behind
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.health import IssueCode, all_issues, reasons_unhealthy, shown
from mm2py.model.herder.all_nodes import of_all_nodes
from mm2py.model.state import FlowState, FlowView, MirrorView, PartitionStage
from mm2py.telemetry.events.base import Level
from tests.simulated import settings
from tests.simulated.cluster import Cluster
from tests.simulated.log import Partition
from tests.simulated.loop import Host
from tests.simulated.node import SimNode


if TYPE_CHECKING:
    from tests.simulated.world import World


#: `copy.drain.ms` by default, and how often a flow looks at what no epoch reports.
_DRAIN_MS, _LOOK_EVERY_S = 5_000, 5.0
#: What an answer may take on its way, beyond what the product allows for.
_ON_THE_WAY_S = 30.0
#: Of the others a node shows what they have reported; one that has not for half a minute is said to be silent.
_OTHERS_REPORT_S = 45.0
#: A node shows the lag of a stopped partition by the position that it knows for so long.
_ALTERED_S = 30.0
#: A cluster is asked every two seconds, and is unreachable after five without an answer.
_UNREACHABLE_AFTER_S = 10.0
#: A flow that begins again finds out by its first connections, and forgets what the one before it knew.
_UNREACHABLE_AT_START_S = 90.0
#: How often a node is asked at least that gets no answer of a cluster for so long.
_ASKED_EVERY_S = 4.0
#: No session of a node that has been awake for so long can have expired.
_IN_TOUCH_S = 60.0
_LOUD = (Level.WARN, Level.ERROR)
#: Notes that stay: what the settings of the simulation bring about, and that a node was here an hour ago.
_EXPECTED = (IssueCode.SETTINGS_NOTED, IssueCode.NODE_SILENT)


class Views:
    """Asks nodes, and compares what they say with the world."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: Up to where a source partition could be read, and when.
        self._ends: dict[Partition, list[tuple[float, int]]] = {}
        #: Since when a node gets no answer of a cluster.
        self._mute: dict[tuple[str, str], float] = {}
        #: When a node's flow was starting last: a life watches its clusters once it has connected to both.
        self._starting_at: dict[tuple[str, Flow], float] = {}
        self._asked_at = 0.0
        #: Since when a node has been running: of what it slept through it has no news.
        self._awake: dict[str, float] = {}
        #: Since when all nodes are awake and reach all of the target.
        self.calm_since = 0.0
        #: When a node was frozen last.
        self._frozen_at: dict[str, float] = {}
        #: Since when all of the target is up, and the network is as it should be.
        self._clear_since = 0.0
        holds_s = lag_holds_s(world.options.epoch_ms, _DRAIN_MS, look_every_s=_LOOK_EVERY_S)[1]
        self._holds_s = holds_s + _ON_THE_WAY_S

    # At any time.

    def note(self) -> None:
        """Note how the world is now: what nodes say may be as old."""
        now = self._world.loop.time()
        sources = (self._world.source_of(Flow(alias, "")) for alias in self._world.checkers)
        for partition in (it for source in sources for it in source.partitions_of(self._world.topics)):
            self._ends.setdefault(partition, []).append((now, partition.stable))
        if not self._is_clear():
            self._clear_since = now
        if not (self._is_clear() and all(node.is_able for node in self._world.nodes.values())):
            self.calm_since = now
        for node in self._world.nodes.values():
            if node.is_able:
                self._awake.setdefault(node.name, now)
            else:
                self._awake.pop(node.name, None)
            if node.is_running and not node.is_able:
                self._frozen_at[node.name] = now
            for cluster in (self._world.source, self._world.target):
                key = node.name, cluster.name
                if not node.is_able or self._answers(node, cluster):
                    self._mute.pop(key, None)
                else:
                    self._mute.setdefault(key, now)

    @property
    def is_telling(self) -> bool:
        """Whether what a node says now is worth more than at most times: it must know that a cluster is away."""
        now = self._world.loop.time()
        is_known = any(now - since >= _UNREACHABLE_AFTER_S for since in self._mute.values())
        return is_known and now - self._asked_at >= _ASKED_EVERY_S

    def look(self) -> None:
        """Ask all nodes that can be asked."""
        self._asked_at = self._world.loop.time()
        for node in self._world.nodes.values():
            if node.is_able and node.node is not None:
                view = node.view()
                for lie in self._lies(node, view):
                    self._world.checker.fail(f"{node.name} says {lie}")
                for lost in self._world.operators.forgotten(node, view, self.calm_since):
                    self._world.checker.fail(f"at {node.name} {lost}")

    def _lies(self, node: SimNode, view: MirrorView) -> Iterator[str]:
        for flow in map(shown, of_all_nodes(view).flows):
            yield from self._old_lags(flow)
            if self._has_been_awake([*self._world.nodes.values()], self._holds_s + _OTHERS_REPORT_S):
                yield from self._old_total(flow)
            yield from self._unnoticed(node, view, flow)

    def _has_been_awake(self, nodes: list[SimNode], seconds: float) -> bool:
        since = self._world.loop.time() - seconds
        return all(self._awake.get(node.name, since + 1) <= since for node in nodes)

    def _old_lags(self, flow: FlowView) -> Iterator[str]:
        for partition in flow.partitions:
            source = self._world.source_of(flow.flow).partition(*partition.source)
            end = self._end(source, self._holds_s) if source is not None else None
            if end is None or not Behind.of(partition).is_known or partition.lag is None:
                continue
            if partition.position + partition.lag < end:
                what = f"{partition.source} is at {partition.position} and lacks {partition.lag}"
                yield f"{what}: the source had {end} already {self._holds_s:g} s ago"

    def _old_total(self, flow: FlowView) -> Iterator[str]:
        # A node reads what another one has altered once it copies again, and reports it then.
        if self._world.loop.time() - self._world.operators.altered_at < _ALTERED_S:
            return
        topics = settings.topics_of(self._world.options, flow.flow)
        waiting = self._world.source_of(flow.flow).partitions_of(topics)
        left = sum(self._left(flow.flow, it, self._holds_s + _OTHERS_REPORT_S) for it in waiting)
        if flow.lag is not None and Behind.of(flow).is_known and flow.lag < left:
            yield f"the flow lacks {flow.lag} records, and {left} have waited for long"

    def _unnoticed(self, node: SimNode, view: MirrorView, flow: FlowView) -> Iterator[str]:
        now, is_starting = self._world.loop.time(), flow.state is FlowState.STARTING
        if any(own.flow == flow.flow and own.state is FlowState.STARTING for own in view.flows):
            self._starting_at[node.name, flow.flow] = now
        started_s = now - self._starting_at.get((node.name, flow.flow), 0.0)
        for alias in flow.flow.aliases:
            mute_s = now - self._mute.get((node.name, alias), now)
            if (mute_s if is_starting else min(mute_s, started_s)) < (
                _UNREACHABLE_AT_START_S if is_starting else _UNREACHABLE_AFTER_S
            ):
                continue
            if flow.state is FlowState.RUNNING:
                yield f"the flow {flow.flow} is running; {alias} has not answered for {mute_s:.0f} s"
            # What an operator has stopped asks no cluster, and knows what it was answered last.
            if flow.state is not FlowState.STOPPED and not reasons_unhealthy(view):
                yield f"it is healthy; {alias} has not answered for {mute_s:.0f} s"
            if alias == flow.flow.source:
                exact = [it for it in flow.partitions if Behind.of(it).is_known]
                yield from (f"{it.source} lacks {it.lag}; {alias} has not answered for {mute_s:.0f} s" for it in exact)

    def _left(self, flow: Flow, source: Partition, ago_s: float) -> int:
        """Return how many records are not at the target that could be read *ago_s* ago."""
        end, checker = self._end(source, ago_s), self._world.checkers[flow.source]
        there = checker.remote_of(TopicPartition(source.topic, source.number))
        if end is None or there is None or checker.is_younger(there, ago_s):
            return 0
        copied = checker.copied(there)
        return max(0, copied.before(end) - copied.proven(there.end))

    def _end(self, source: Partition, ago_s: float) -> int | None:
        """Return up to where a partition could be read *ago_s* ago, None if it was not there."""
        ends = self._ends.get(source, [])
        at = bisect.bisect_right(ends, self._world.loop.time() - ago_s, key=operator.itemgetter(0))
        return ends[at - 1][1] if at else None

    def is_in_touch(self, host: Host) -> bool:
        """Whether the target cannot have lost the daemon on *host*, which has been awake for long."""
        since = self._world.loop.time() - _IN_TOUCH_S
        return not host.is_dead and max(self._awake.get(host.name, math.inf), self._clear_since) <= since

    def is_in_the_know(self, node: SimNode) -> bool:
        """Whether a node cannot take for its own what it had before it slept: that lasts for a session at most."""
        return self._world.loop.time() - self._frozen_at.get(node.name, -math.inf) >= _IN_TOUCH_S

    def _is_clear(self) -> bool:
        world, target = self._world, self._world.target
        are_up = all(it.is_up and it.stale is None for it in target.brokers.values()) and not target.fenced
        is_clear = not (world.network.blocked or world.network.qualities or target.full_until or target.apart)
        return are_up and is_clear

    def _answers(self, node: SimNode, cluster: Cluster) -> bool:
        blocked = self._world.network.is_blocked
        return any(
            broker.is_up and not blocked((node.name, broker.address)) and not blocked((broker.address, node.name))
            for broker in cluster.brokers.values()
        )

    def unwell(self) -> list[str]:
        """Return what a node says that is not so when all is well."""
        found = []
        for node in self._world.nodes.values():
            if not node.is_able or node.node is None:
                found.append(f"{node.name} does not run")
                continue
            found += [f"{node.name}: {it}" for it in self._unwell(node.view(), copies=not settings.is_apart(node.name))]
        return found or [*self._shared(), *self._unowned()]

    def _unowned(self) -> Iterator[str]:
        """Return whether none of the nodes that only have the checkpoint connector runs it."""
        apart = [node for node in self._world.nodes.values() if settings.is_apart(node.name)]
        states = [flow.state for node in apart for flow in node.view().flows]
        if states and FlowState.RUNNING not in states:
            yield "no node runs the checkpoint connector"

    def _shared(self) -> Iterator[str]:
        """Return which partitions several nodes say that they copy themselves."""
        copied_by: dict[str, list[str]] = {}
        for node in self._world.nodes.values():
            for flow in node.view().flows:
                for partition in flow.partitions:
                    copied_by.setdefault(f"{partition.source} of {flow.flow}", []).append(node.name)
        yield from (f"{it} is copied by {' and '.join(by)}" for it, by in copied_by.items() if len(by) > 1)

    def _unwell(self, view: MirrorView, *, copies: bool) -> Iterator[str]:
        yield from (str(it.sentence) for it in all_issues(view) if not (it.is_note and it.code in _EXPECTED))
        if not view.flows:
            yield "it has no flow"
        for flow in map(shown, of_all_nodes(view).flows):
            if flow.state is not FlowState.RUNNING and (copies or flow.state is not FlowState.STANDBY):
                yield f"the flow is {flow.state.name.lower()}"
            if flow.lag != (0 if copies else None) or flow.lag_is_least:
                yield f"the flow lacks {flow.lag} records"
            for partition in flow.partitions:
                source = self._world.source_of(flow.flow).partition(*partition.source)
                end = source.stable if source is not None else None
                if (partition.stage, partition.position, partition.lag) != (PartitionStage.COPYING, end, 0):
                    what = f"{partition.stage.name.lower()} at {partition.position}, with {partition.lag} left"
                    yield f"{partition.source} is {what}; the source ends at {end}"

    def loud_since(self, begun: float) -> list[str]:
        """Return the warnings and errors that nodes have logged since then."""
        said = self._world.journal.said
        at = bisect.bisect_left(said, begun, key=operator.itemgetter(0))
        return [f"{node}: {event}" for _, node, event in said[at:] if event.severity in _LOUD]
