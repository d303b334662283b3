"""A flow shared by the nodes that run it: this node's place among them, from its start to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import attrs

from mm2py.config.settings import FlowSettings
from mm2py.connectors.context import HerderContext
from mm2py.connectors.source.group import SourceGroup, SourceLife
from mm2py.connectors.task_group import AnyGroup
from mm2py.core.herder.sharing import Work, flow_tasks
from mm2py.errors import Mm2Error
from mm2py.herder.elsewhere import PartsElsewhere
from mm2py.herder.membership import FlowMembership
from mm2py.herder.node_context import NodeContext
from mm2py.herder.nodes import FlowNodes
from mm2py.model.herder.share import Candidate, NodeLoad
from mm2py.model.state import FlowView
from mm2py.pipeline.epoch_jobs import EpochRunner


#: Pause between attempts to start Spark, and between looks whether other nodes have what this one had.
_SPARK_RETRY_S = 5.0
_PARTED_LOOK_S = 0.05


class FlowSharing:
    """What a flow does because other nodes may run it, too."""

    def __init__(
        self,
        context: HerderContext,
        source: SourceGroup | None,
        epochs: EpochRunner,
        node: NodeContext,
        view: Callable[[], FlowView],
        *,
        on_rebalanced: Callable[[float], None],
    ) -> None:
        """Create it for a *node*; *view* returns what it runs itself. *on_rebalanced*: see `FlowMembership`."""
        self.flow = context.flow
        self._settings = context.config
        self._clock = context.clock
        self._epochs = epochs
        # In a flow's group a node is known by its `group.instance.id`, too.
        us, instance = node.us, context.config.worker.instance
        self._node = node = attrs.evolve(node, us=lambda: attrs.evolve(us(), instance=instance))
        #: What this node and the others that run the flow know of each other.
        self.nodes = FlowNodes(context, node, view)
        self.membership = FlowMembership(
            context,
            node,
            work=self._work,
            load=self.nodes.own.load,
            load_of=self._load_of,
            on_assignment=self.nodes.know,
            on_rebalanced=on_rebalanced,
        )
        #: What other nodes copy; None where the flow has no source connector, and so needs no Spark.
        self.parts = None if source is None else PartsElsewhere(context, self.nodes.known, source)
        if source is not None:
            source.watch(self._follow)

    def _follow(self, life: SourceLife) -> None:
        self.nodes.follow(life)
        if self.parts is not None:
            self.parts.follow(life)

    def _work(self) -> Work:
        """Return what there is to share between the flow's nodes, as far as this one knows."""
        tasks, nodes = flow_tasks(self._settings.source_connector), self.nodes
        return Work(*tasks, nodes.own.slots(), nodes.loads(), is_for_one_node=self._node.is_for_one_node)

    def _load_of(self, member: Candidate) -> NodeLoad:
        """Return what another node does, by its last report; this one's own as it is now."""
        status = self.nodes.known.others.get(member.node.id)
        if status is not None:
            return status.load
        return self.nodes.own.load() if member.node.id == self._node.us().id else member.load

    # From one runner of the flow to the next on this node.

    def hand_over(self, after: FlowSettings) -> None:
        """Keep the flow's membership for this node's next runner, which has other settings; see `succeed`."""
        before = self._settings
        if (after.group_id, after.worker.instance) == (before.group_id, before.worker.instance):
            self.membership.hand_over()
        self.nodes.hand_over()

    def succeed(self, before: FlowSharing) -> None:
        """Continue with the membership of the runner *before*; joining again would take seconds."""
        self.membership.place = before.membership.place
        self.membership.share.agreement.succeed(before.membership.share.agreement)

    # While it runs.

    def begin(
        self, groups: Sequence[AnyGroup], heartbeats: AnyGroup | None, tasks: asyncio.TaskGroup
    ) -> list[asyncio.Task[None]]:
        """Let *groups* work only while this node runs the flow, and *heartbeats* while it is its turn; return what does
        so, to be cancelled.
        """
        self.membership.begin(groups, heartbeats)
        begun = [tasks.create_task(self.membership.run(), name=f"{self.flow}/membership")]
        if self.parts is not None and not self._node.is_for_one_node:
            self.membership.is_ready = False
            begun.append(tasks.create_task(self._await_spark(), name=f"{self.flow}/spark"))
        begun.append(tasks.create_task(self.nodes.run(), name=f"{self.flow}/nodes"))
        return begun

    async def _await_spark(self) -> None:
        """Leave the flow's tasks to other nodes until Spark has started here."""
        while True:
            try:
                await self._epochs.ready()
            except Mm2Error:  # a node that has tasks reports it
                await self._clock.sleep(_SPARK_RETRY_S)
            else:
                self.membership.note_ready()
                return

    def set_drained(self, *, is_drained: bool) -> None:
        """Have this node take no tasks of the flow, or take them again."""
        if self.nodes.own.is_drained is not is_drained:
            self.nodes.own.is_drained = is_drained
            self.membership.drain(is_drained=is_drained)
            self.nodes.wake()

    async def part(self, *, within_s: float) -> None:
        """Prepare the end of this node: a static member keeps its place; other nodes take over what any other one has,
        which it copies until they have noticed.
        """
        share = self.membership.share
        if self.membership.come_back():
            self.nodes.hand_over()
            return
        if share.has_given:
            return  # no other node takes over: this one writes the last checkpoints, once all is copied
        self.membership.drain(is_drained=True, is_ending=True)
        until = self._clock.monotonic() + within_s
        while not share.has_given and self._clock.monotonic() < until:
            await self._clock.sleep(_PARTED_LOOK_S)
