"""What the nodes that run the same flow know of each other. Each one writes its status to a compacted topic on the
target every few seconds, and reads those of the others there; no node calls another. A node without others writes and
reads nothing. Nothing else depends on it: if the topic cannot be used, the flow runs on without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from mm2py.connectors.context import HerderContext
from mm2py.connectors.source.group import SourceLife
from mm2py.connectors.supervise import in_passing, until_set
from mm2py.connectors.topics.remote_topics import Topics
from mm2py.core.herder.nodes import IDLE_INTERVAL_S, INTERVAL_S, Heard, KnownNodes, owner_of, slot_loads
from mm2py.errors import Mm2Error
from mm2py.herder.node_context import NodeContext
from mm2py.herder.own_status import OwnStatus
from mm2py.model.herder.all_nodes import node_view
from mm2py.model.herder.node_status import NodeStatus, decode_status, encode_status, node_id_of
from mm2py.model.herder.share import SharedFlow
from mm2py.model.state import FlowState, FlowView, NodeView
from mm2py.storage.status_store import StatusStore
from mm2py.telemetry.events import NodeAnswersAgain, NodeSilent
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import LogRecord


_STEP: Final = "share the status of nodes"
_OVERRIDES: Final = "read overrides of another node"
#: A round of writing and reading may take this long.
_ROUND_MS: Final = 20_000
#: Changes are written at once, but no more often than this.
_LEAST_PAUSE_S: Final = 1.0
#: What the owner has and this node has not is asked for again after this time.
_REPEAT_S: Final = 60.0


#: Gets the topic of statuses, where it ended when it was opened, and what was read of it.
Listener: TypeAlias = Callable[[str, int, Sequence[LogRecord]], None]


class FlowNodes:
    """Writes this node's status of one flow, and follows those of the others."""

    def __init__(self, context: HerderContext, node: NodeContext, view: Callable[[], FlowView]) -> None:
        """Create it for a *node*; *view* returns what this node itself runs of the flow."""
        self._context = context
        self._node = node
        self._flow = context.flow
        self._clock = context.clock
        self.known = KnownNodes(node.us)
        self.own = OwnStatus(node, view, self.known, context.clock)
        self._listeners: list[Listener] = []
        #: The topics of the source group's life, once there is one.
        self._topics: Topics | None = None
        self._news = asyncio.Event()
        self._hands_over = False
        #: This node's own status, as it was last written or needed.
        self._written: Heard | None = None
        #: Whether no node has reported anything new.
        self._is_idle = False
        self._unreadable: set[str] = set()
        self._noted_mark = ""
        #: The marks of the other nodes' topics, as of the last round.
        self._marks: Mapping[str, str] = {}
        #: What was asked of this node last, and when.
        self._asked_topics = ("", 0.0)
        self._asked_overrides = (0, 0.0)

    # What the flow knows.

    def know(self, shared: SharedFlow | None) -> None:
        """Follow the assignment *shared*, None without one."""
        before = self.known.own_share
        if self.known.assign(shared, self._clock.monotonic()):
            self.own.note_share(before, self.known.own_share)
            self.wake()

    def follow(self, life: SourceLife) -> None:
        """Report the topics that a *life* of the source group knows; it refreshes them when other nodes know others."""
        topics = self._topics = life.topics
        self.own.follow(lambda: topics.latest.places)
        topics.watch(self._note_topics)
        self.wake()

    def listen(self, listener: Listener) -> None:
        """Have *listener* called with what is read of the topic of statuses."""
        self._listeners.append(listener)

    def _note_topics(self, _remote_of: Mapping[str, str]) -> None:
        """Report other topics at once: the other nodes wait for what the owner has created."""
        if self.own.topics_mark != self._noted_mark:
            self._noted_mark = self.own.topics_mark
            self.wake()

    def wake(self) -> None:
        """Write this node's status soon: something changed."""
        self._news.set()

    def hand_over(self) -> None:
        """Keep this node's record at the end: its next runner of the flow continues."""
        self._hands_over = True

    # What all nodes do.

    def not_stopped(self, connector: str, revision: int, since: float) -> tuple[str, ...]:
        """Return the names of other nodes that have not reported a stop, see `KnownNodes`; read their reports soon."""
        late = self.known.not_stopped(connector, revision, since, self._clock.monotonic())
        if late:
            self.wake()
        return late

    def loads(self) -> Mapping[int, float]:
        """Return the bytes per second of hash slots over all nodes, of those with noticeable ones, as of their last
        report.
        """
        own, now = self._written, self._clock.monotonic()
        if own is None or now - own.at >= IDLE_INTERVAL_S:
            own = self._written = Heard(self.own.now(), now)
        return slot_loads([own.status, *self.known.answering()])

    def views(self, view: FlowView) -> tuple[NodeView, ...]:
        """Return all nodes of the flow, this one first, whose own *view* is given; empty without others."""
        return self.all_views(view) if self.known.is_shared else ()

    def all_views(self, view: FlowView) -> tuple[NodeView, ...]:
        """Return all nodes of the flow, even if this is the only one."""
        known, now = self.known, self._clock.monotonic()
        shared = known.shared
        names = known.names()
        this = node_view(
            self.own.shown(view), shared, name=names[known.own_id], is_this=True, heard_s=0.0, answers=True
        )
        if shared is None and view.state is not FlowState.STANDBY:
            this = attrs.evolve(this, is_owner=True, assigned=tuple(task.task for task in view.tasks))
        found = [this]
        unheard = {} if shared is None else {node.id: NodeStatus(node, 0) for node in shared.nodes.values()}
        statuses = {**unheard, **known.others}
        statuses.pop(known.own_id, None)
        for node_id, status in sorted(statuses.items(), key=lambda it: (it[1].node.worker_id, it[1].node.host, it[0])):
            heard_s, answers = known.last_heard_s(node_id, now), known.answers(node_id, now)
            found.append(node_view(status, shared, name=names.get(node_id, ""), heard_s=heard_s, answers=answers))
        return tuple(found)

    async def append(self, record: LogRecord) -> None:
        """Append another record to the topic of statuses, for the other nodes to read. Raise the target's errors."""
        async with asyncio.timeout(_ROUND_MS / 1000), Cluster(self._context.config.target, self._clock) as cluster:
            await self._log(cluster).append(record)

    # Its loop.

    async def run(self) -> None:
        """Report and follow until cancelled, whenever another node is known; then remove this node's record."""
        await self._context.supervise(f"{self._flow}/nodes", self._live)

    async def _live(self) -> None:
        while True:
            while not self.known.is_shared:
                await self._news.wait()
                self._news.clear()
            cluster = Cluster(self._context.config.target, self._clock)
            log = self._log(cluster)
            try:
                while self.known.is_shared:
                    if await self._try(log):
                        await self._react()
                    await self._pause()
            finally:
                if not self._hands_over:
                    await in_passing(log.leave(self.known.own_id))
                await cluster.close()

    def _log(self, cluster: Cluster) -> StatusStore:
        return StatusStore(self._flow, self._context.worker.status_storage, cluster, self._context.events)

    async def _pause(self) -> None:
        await self._clock.sleep(_LEAST_PAUSE_S)
        interval_s = IDLE_INTERVAL_S if self._is_idle else INTERVAL_S
        await until_set(self._news, interval_s - _LEAST_PAUSE_S)
        self._news.clear()

    async def _try(self, log: StatusStore) -> bool:
        """Write and read once; what is missing for it is reported once."""
        is_done = await self._once(_STEP, lambda: self._round(log))
        if not is_done:
            log.is_open = False
        return is_done

    async def _once(self, step: str, attempt: Callable[[], Awaitable[object]]) -> bool:
        """Try a step; no failure of it, whatever it is, may end the flow."""
        try:
            done = await self._context.reach.once(step, [self._flow.target], attempt, within_ms=_ROUND_MS)
        except Mm2Error as error:
            self._context.reach.failed(step, error)
            return False
        return bool(done)

    async def _round(self, log: StatusStore) -> bool:
        is_late = not log.is_open
        status, before = self.own.now(), self._written
        self._written = Heard(status, self._clock.monotonic(), encode_status(self._flow, status))
        self._is_idle = before is not None and before.raw == self._written.raw
        if not await log.write(self.known.own_id, self._written.raw):
            return False
        asked_at = self._clock.monotonic()
        records = await log.read()
        self._take(log.topic, records, asked_at, is_late=is_late)
        for listener in self._listeners:
            listener(log.topic, log.opened_at, records)
        gone = sorted(self.known.obsolete(self._clock.monotonic()))
        await log.remove(gone)
        self.known.forget(gone)
        self._report()
        return True

    def _take(self, topic: str, records: Sequence[LogRecord], asked_at: float, *, is_late: bool) -> None:
        """Take what others wrote; if *is_late*, some time ago, by their clocks."""
        now, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        since = self.known.begin_read(asked_at, now, is_first=is_late)
        found = {node_id_of(self._flow, record.key): record for record in records}
        for node_id, record in found.items():
            if node_id is None or node_id == self.known.own_id:
                continue
            if record.value is None:
                self.known.forget([node_id])
                continue
            at_ms = wall_ms if record.timestamp_ms is None else record.timestamp_ms
            status = self._read(topic, node_id, record, at_ms)
            if status is not None:
                age_s = max(0, wall_ms - at_ms) / 1000 if is_late else 0.0
                self.known.hear(node_id, Heard(status, now - age_s, record.value, since))

    def _read(self, topic: str, node_id: str, record: LogRecord, at_ms: int) -> NodeStatus | None:
        """Return a node's status; None if it is invalid, which is reported once for each node."""
        before, value = self.known.heard(node_id), record.value or b""
        if before is not None and before.raw == value:
            return attrs.evolve(before.status, at_ms=at_ms)
        self._is_idle = False
        try:
            return decode_status(self._flow, value, at_ms)
        except ValueError as error:
            if node_id not in self._unreadable:  # it is written again every few seconds
                self._unreadable.add(node_id)
                self._context.passed_over.note(topic, [(record, str(error))])
            return None

    def _report(self) -> None:
        """Report each node that no longer answers, and each that does again."""
        silent, back = self.known.turned()
        for node, silent_s in silent:
            self._context.events.emit(NodeSilent(self._flow, str(node), node.rest, silent_s))
        for node in back:
            self._context.events.emit(NodeAnswersAgain(self._flow, str(node)))

    async def _react(self) -> None:
        """Follow the topics of other nodes, and overrides that were changed at one of them."""
        now, is_owner = self._clock.monotonic(), self.known.own_share.is_owner
        mark = self._found_by_others() if is_owner else self._owner_mark(now)
        if mark and self._topics is not None:
            self._topics.want_refresh()
        latest = max((it.overrides_revision for it in self.known.others.values()), default=0)
        if latest <= self._node.overrides_revision():
            self._context.reach.answered((), _OVERRIDES)  # what a node was kept from reading, it has read since
        elif self._is_due(self._asked_overrides, latest, now):
            self._asked_overrides = (latest, now)
            await self._once(_OVERRIDES, self._node.read_overrides)

    def _owner_mark(self, now: float) -> str:
        """Return the mark of the owner's topics if this node is to look for them; empty otherwise."""
        owner = owner_of(self.known.answering())
        mark = owner.topics_mark if owner is not None else ""
        if mark in ("", self.own.topics_mark) or not self._is_due(self._asked_topics, mark, now):
            return ""
        self._asked_topics = (mark, now)
        return mark

    def _found_by_others(self) -> str:
        """
        Return a mark that another node's topics have got since the last round, if the owner's are others; or empty.

        A node may miss a remote topic that only the owner creates, and of which the owner copies nothing. It looks once
        for each change: nodes that see different topics for longer would have each other look without end.
        """
        before, own = self._marks, self.own.topics_mark
        self._marks = {node_id: it.topics_mark for node_id, it in self.known.others.items()}
        return next((mark for it, mark in self._marks.items() if mark not in (own, before.get(it, mark))), "")

    @staticmethod
    def _is_due(last: tuple[object, float], what: object, now: float) -> bool:
        asked, at = last
        return asked != what or now - at >= _REPEAT_S
