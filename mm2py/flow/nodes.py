"""What the nodes that run the same flow know of each other. Each one writes its status to a compacted topic on the
target every few seconds, and reads those of the others there; no node calls another. A node without others writes and
reads nothing. Nothing else depends on it: if the topic cannot be used, the flow runs on without it.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

import attrs

from mm2py.core.nodes import IDLE_INTERVAL_S, INTERVAL_S, SILENT_S, Heard, has_stopped, obsolete, owner_of, slot_loads
from mm2py.errors import Mm2Error
from mm2py.flow.source.group import SourceLife
from mm2py.flow.status_log import StatusLog
from mm2py.flow.supervise import supervise
from mm2py.flow.task_group import RESTART_PAUSES, FlowContext
from mm2py.model.all_nodes import node_view
from mm2py.model.flow import TopicPartition
from mm2py.model.node import Node
from mm2py.model.node_status import (
    NodeStatus,
    decode_status,
    describe,
    encode_status,
    node_id_of,
    noticeable_rates,
    topics_mark,
)
from mm2py.model.share import NO_SHARE, NodeLoad, Share, SharedFlow, slot_of
from mm2py.model.state import FlowState, FlowView, NodeView
from mm2py.telemetry.events import NodeAnswersAgain, NodeSilent
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import LogRecord


_STEP: Final = "share the status of nodes"
#: A round of writing and reading may take this long.
_ROUND_MS: Final = 20_000
#: Changes are written at once, but no more often than this.
_LEAST_PAUSE_S: Final = 1.0
#: What the owner has and this node has not is asked for again after this time.
_REPEAT_S: Final = 60.0


async def _nothing(_revision: int) -> None:
    return


class FlowNodes:
    """Writes this node's status of one flow, and follows those of the others."""

    def __init__(self, context: FlowContext, us: Callable[[], Node], view: Callable[[], FlowView]) -> None:
        """Create it for the node *us*; *view* returns what this node itself runs of the flow."""
        self._context = context
        self._flow = context.flow
        self._clock = context.clock
        self._us = us
        self._known_id = ""
        self._view = view
        #: What else belongs to a status, from where it is known.
        self.mirrored: Callable[[], Collection[TopicPartition]] = tuple
        self.overrides_revision: Callable[[], int] = lambda: 0
        self.elsewhere: Callable[[], tuple[float, int]] = lambda: (0.0, 0)
        self.is_drained = False
        #: Called when the owner mirrors other topics or partitions than this node knows.
        self.on_owner_topics: Callable[[str], None] = lambda _mark: None
        #: Awaited when another node knows later overrides.
        self.on_overrides: Callable[[int], Awaitable[None]] = _nothing
        #: Called with the topic, where it ended when it was opened, and what was read of it.
        self.on_records: Callable[[str, int, Sequence[LogRecord]], None] = lambda _topic, _opened_at, _records: None
        self._shared: SharedFlow | None = None
        #: The shares of the nodes in the flow's group, by node, and which member this one is.
        self.members: Mapping[str, Share] = {}
        self._member_id = ""
        #: Since when this node has had its tasks, and has owned the flow.
        self._tasks_since_ms: int | None = None
        self._owner_since_ms: int | None = None
        self._is_standby = False
        self._news = asyncio.Event()
        self._hands_over = False
        self._heard: dict[str, Heard] = {}
        #: This node's own status, as it was last written or needed.
        self._own: Heard | None = None
        #: Whether no node has reported anything new.
        self._is_idle = False
        #: Since when a node is a member of the group; it may take an interval to report.
        self._member_since: dict[str, float] = {}
        self._silent: set[str] = set()
        self._unreadable: set[str] = set()
        self._read_at = 0.0
        #: When the last read began: what was written before has been read.
        self._asked_at = -math.inf
        self._marked: tuple[Collection[TopicPartition], str] = ((), topics_mark(()))
        self._counted: tuple[Collection[TopicPartition], Counter[int]] = ((), Counter())
        self._noted_mark = ""
        #: What was asked of this node last, and when.
        self._asked_topics = ("", 0.0)
        self._asked_overrides = (0, 0.0)

    # What the flow knows.

    def know(self, shared: SharedFlow | None, *, is_standby: bool = False) -> None:
        """Follow the assignment *shared*, None without one; *is_standby* if this node waits for another one."""
        if (shared, is_standby) == (self._shared, self._is_standby):
            return
        before, self._shared, self._is_standby = self._own_share(), shared, is_standby
        nodes = {} if shared is None else {node.id: member for member, node in shared.nodes.items()}
        self._member_id = nodes.get(self.own_id, "")
        self.members = {} if shared is None else {it: shared.share_of(member) for it, member in nodes.items()}
        share, now, wall_ms = self._own_share(), self._clock.monotonic(), self._clock.wall_ms()
        if share.tasks != before.tasks:
            self._tasks_since_ms = wall_ms if share.tasks else None
        if share.is_owner != before.is_owner:
            self._owner_since_ms = wall_ms if share.is_owner else None
        self._member_since = {node_id: self._member_since.get(node_id, now) for node_id in self.members}
        self.wake()

    def follow(self, life: SourceLife) -> None:
        """Report the topics that a *life* of the source group knows; it refreshes them when the owner knows others."""
        topics = life.topics
        self.mirrored = lambda: topics.latest.places
        self.on_owner_topics = lambda _mark: topics.want_refresh()
        topics.watch(self._note_topics)
        self.wake()

    def _note_topics(self, _remote_of: Mapping[str, str]) -> None:
        """Report other topics at once: the other nodes wait for what the owner has created."""
        if self.topics_mark != self._noted_mark:
            self._noted_mark = self.topics_mark
            self.wake()

    def wake(self) -> None:
        """Write this node's status soon: something changed."""
        self._news.set()

    def hand_over(self) -> None:
        """Keep this node's record at the end: its next runner of the flow continues."""
        self._hands_over = True

    @property
    def own_id(self) -> str:
        """This node's id."""
        if not self._known_id:
            self._known_id = self._us().id
        return self._known_id

    @property
    def is_shared(self) -> bool:
        """Whether another node is known: a member of the group, one that we wait for, or one that vanished."""
        others = len(self.members) - (self.own_id in self.members)
        return self._is_standby or bool(self._heard) or others > 0

    # What it knows of others.

    @property
    def others(self) -> Mapping[str, NodeStatus]:
        """The last statuses of the other nodes, by node; also of one that vanished, for an hour."""
        return {node_id: heard.status for node_id, heard in self._heard.items()}

    def answers(self, node_id: str) -> bool:
        """Whether a node reported within half a minute, or joined the group since."""
        heard = self._heard.get(node_id)
        if heard is not None:
            return heard.answers(self._read_at)
        since = self._member_since.get(node_id)
        return since is not None and self._clock.monotonic() - since <= SILENT_S

    def name_of(self, node_id: str) -> str:
        """Return the `worker_id` of a node."""
        known = [it.status.node for it in self._heard.values()]
        known += self._shared.nodes.values() if self._shared is not None else ()
        return next((node.worker_id for node in known if node.id == node_id), node_id)

    def not_stopped(self, connector: str, revision: int, since: float) -> tuple[str, ...]:
        """Return the names of other nodes that have not reported after *since* that a connector is stopped, under
        overrides of that *revision*. One that has left the flow's group writes nothing more.
        """
        others = set(self.members) or {node_id for node_id in self._heard if self.answers(node_id)}
        late = [it for it in others - {self.own_id} if not has_stopped(self._heard.get(it), connector, revision, since)]
        if late:
            self.wake()  # to read their reports soon
        return tuple(sorted(map(self.name_of, late)))

    def last_heard_s(self, node_id: str) -> float | None:
        """Return how long ago a node reported; None if it never did."""
        heard = self._heard.get(node_id)
        return None if heard is None else max(0.0, self._clock.monotonic() - heard.at)

    def loads(self) -> Mapping[int, float]:
        """Return the bytes per second of hash slots over all nodes, of those with noticeable ones, as of their last
        report.
        """
        own, now = self._own, self._clock.monotonic()
        if own is None or now - own.at >= IDLE_INTERVAL_S:
            own = self._own = Heard(self.own(), now)
        return slot_loads([own.status, *(it.status for it in self._heard.values() if it.answers(self._read_at))])

    @property
    def owner_topics_mark(self) -> str:
        """The digest of the topics that the flow's owner mirrors; empty if no owner answers."""
        if self._own_share().is_owner:
            return self.topics_mark
        owner = self._owner()
        return owner.topics_mark if owner is not None else ""

    @property
    def topics_mark(self) -> str:
        """The digest of the topics that this node knows."""
        mirrored = self.mirrored()
        if self._marked[0] is not mirrored:
            self._marked = (mirrored, topics_mark(mirrored))
        return self._marked[1]

    def slots(self) -> Counter[int]:
        """Return how many mirrored partitions each slot has."""
        mirrored = self.mirrored()
        if self._counted[0] is not mirrored:
            self._counted = (mirrored, Counter(map(slot_of, mirrored)))
        return self._counted[1]

    def views(self, view: FlowView) -> tuple[NodeView, ...]:
        """Return all nodes of the flow, this one first, whose own *view* is given; empty without others."""
        return self.all_views(view) if self.is_shared else ()

    def all_views(self, view: FlowView) -> tuple[NodeView, ...]:
        """Return all nodes of the flow, even if this is the only one."""
        shared = self._shared
        this = node_view(self._status_of(view), shared, is_this=True, heard_s=0.0, answers=True)
        if shared is None and not self._is_standby and view.state is not FlowState.STANDBY:
            this = attrs.evolve(this, is_owner=True, assigned=tuple(task.task for task in view.tasks))
        found = [this]
        unheard = {} if shared is None else {node.id: NodeStatus(node, 0) for node in shared.nodes.values()}
        statuses = {**unheard, **self.others}
        statuses.pop(self.own_id, None)
        for node_id, status in sorted(statuses.items(), key=lambda it: (it[1].node.worker_id, it[0])):
            heard_s, answers = self.last_heard_s(node_id), self.answers(node_id)
            found.append(node_view(status, shared, heard_s=heard_s, answers=answers))
        return tuple(found)

    def own(self) -> NodeStatus:
        """Return this node's status as it is now, with its load."""
        view = self._view()
        load = NodeLoad(noticeable_rates(view.partitions), *self.elsewhere())
        return attrs.evolve(self._status_of(view), load=load)

    def _status_of(self, view: FlowView) -> NodeStatus:
        us, shared = self._us(), self._shared
        status = NodeStatus(
            us,
            self._clock.wall_ms(),
            generation=shared.generation if shared is not None else -1,
            share=self._own_share(),
            tasks_since_ms=self._tasks_since_ms,
            owner_since_ms=self._owner_since_ms,
            topics_mark=self.topics_mark,
            overrides_revision=self.overrides_revision(),
            is_drained=self.is_drained,
            differs=shared.differences.get(self._member_id, ()) if shared is not None else (),
        )
        return describe(status, view)

    def _own_share(self) -> Share:
        return self.members.get(self.own_id, NO_SHARE)

    def _owner(self) -> NodeStatus | None:
        return owner_of(it.status for it in self._heard.values() if it.answers(self._read_at))

    async def append(self, record: LogRecord) -> None:
        """Append another record to the topic of statuses, for the other nodes to read. Raise the target's errors."""
        async with asyncio.timeout(_ROUND_MS / 1000):
            cluster = Cluster(self._context.settings.target, self._clock)
            try:
                await cluster.connect()
                await StatusLog(self._context, cluster).append(record)
            finally:
                await cluster.close()

    # Its loop.

    async def run(self) -> None:
        """Report and follow until cancelled, whenever another node is known; then remove this node's record."""
        await supervise(
            f"{self._flow}/nodes",
            self._live,
            clock=self._clock,
            backoff=RESTART_PAUSES,
            jitter=self._context.jitter,
            report=self._context.events.emit,
        )

    async def _live(self) -> None:
        while True:
            while not self.is_shared:
                await self._news.wait()
                self._news.clear()
            cluster = Cluster(self._context.settings.target, self._clock)
            log = StatusLog(self._context, cluster)
            try:
                while self.is_shared:
                    if await self._try(log):
                        await self._react()
                    await self._pause()
            finally:
                if not self._hands_over:
                    await log.leave(self.own_id)
                await cluster.close()

    async def _pause(self) -> None:
        await self._clock.sleep(_LEAST_PAUSE_S)
        interval_s = IDLE_INTERVAL_S if self._is_idle else INTERVAL_S
        with suppress(TimeoutError):
            async with asyncio.timeout(interval_s - _LEAST_PAUSE_S):
                await self._news.wait()
        self._news.clear()

    async def _try(self, log: StatusLog) -> bool:
        """Write and read once; what is missing for it is reported once."""
        is_done = await self._once(_STEP, lambda: self._round(log))
        if not is_done:
            log.is_open = False
        return is_done

    async def _once(self, step: str, attempt: Callable[[], Awaitable[bool]]) -> bool:
        """Try a step; no failure of it, whatever it is, may end the flow."""
        try:
            done = await self._context.reach.once(step, [self._flow.target], attempt, within_ms=_ROUND_MS)
        except Mm2Error as error:
            self._context.reach.failed(step, error)
            return False
        return bool(done)

    async def _round(self, log: StatusLog) -> bool:
        is_late = not log.is_open
        status, before = self.own(), self._own
        self._own = Heard(status, self._clock.monotonic(), encode_status(self._flow, status))
        self._is_idle = before is not None and before.raw == self._own.raw
        if not await log.write(self.own_id, self._own.raw):
            return False
        asked_at = self._clock.monotonic()
        records = await log.read()
        self._take(log.topic, records, is_late=is_late)
        self._asked_at = asked_at
        self.on_records(log.topic, log.opened_at, records)
        gone = obsolete(self._heard, self._us(), self._read_at) - {
            node_id for node_id in self.members if self.answers(node_id)
        }
        await log.remove(gone)
        for node_id in gone:
            del self._heard[node_id]
        self._report()
        return True

    def _take(self, topic: str, records: Sequence[LogRecord], *, is_late: bool) -> None:
        """Take what others wrote; if *is_late*, some time ago, by their clocks."""
        now, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        since, self._read_at = -math.inf if is_late else self._asked_at, now
        found = {node_id_of(self._flow, record.key): record for record in records}
        for node_id, record in found.items():
            if node_id is None or node_id == self.own_id:
                continue
            if record.value is None:
                self._heard.pop(node_id, None)
                continue
            at_ms = wall_ms if record.timestamp_ms is None else record.timestamp_ms
            status = self._read(topic, node_id, record, at_ms)
            if status is not None:
                age_s = max(0, wall_ms - at_ms) / 1000 if is_late else 0.0
                self._heard[node_id] = Heard(status, now - age_s, record.value, since)

    def _read(self, topic: str, node_id: str, record: LogRecord, at_ms: int) -> NodeStatus | None:
        """Return a node's status; None if it is invalid, which is reported once for each node."""
        before, value = self._heard.get(node_id), record.value or b""
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
        for node_id in self._silent - self._heard.keys():
            self._silent.discard(node_id)
        for node_id, heard in self._heard.items():
            is_silent, node = not heard.answers(self._read_at), heard.status.node
            if is_silent and node_id not in self._silent:
                self._silent.add(node_id)
                self._context.events.emit(NodeSilent(self._flow, str(node), node.rest, self._read_at - heard.at))
            elif not is_silent and node_id in self._silent:
                self._silent.discard(node_id)
                self._context.events.emit(NodeAnswersAgain(self._flow, str(node)))

    async def _react(self) -> None:
        """Follow the owner's topics, and overrides that were changed at another node."""
        now, owner = self._clock.monotonic(), self._owner()
        mark = owner.topics_mark if owner is not None and not self._own_share().is_owner else ""
        if mark and mark != self.topics_mark and self._is_due(self._asked_topics, mark, now):
            self._asked_topics = (mark, now)
            self.on_owner_topics(mark)
        latest = max((it.status.overrides_revision for it in self._heard.values()), default=0)
        if latest > self.overrides_revision() and self._is_due(self._asked_overrides, latest, now):
            self._asked_overrides = (latest, now)

            async def catch_up() -> bool:
                await self.on_overrides(latest)
                return True

            await self._once("read overrides of another node", catch_up)

    @staticmethod
    def _is_due(last: tuple[object, float], what: object, now: float) -> bool:
        asked, at = last
        return asked != what or now - at >= _REPEAT_S
