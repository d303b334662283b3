"""The heartbeat task group: shows on the target cluster, every second or so, that its flow is alive. It needs only the
target: neither the source, which may be unreachable, nor Spark. Flows that are not enabled have this group too
(MirrorMaker's rule), because the heartbeats of A->B on B have no other origin, and other flows mirror them:
A.heartbeats on C proves that a mirror A->C works from end to end. Of the nodes that share a flow, one writes them, so
that their number is Java's; see `HeartbeatTurn`. A flow that only emits heartbeats has no group: each node does.
"""

from __future__ import annotations

from mm2py.config.connector import MirrorHeartbeatConfig
from mm2py.connectors.context import HeartbeatContext
from mm2py.connectors.plugins import policy_of
from mm2py.connectors.task_group import AnyGroup, FlowGroup
from mm2py.core import internal_topics
from mm2py.core.backoff import Backoff
from mm2py.errors import Mm2Error
from mm2py.model.heartbeat import Heartbeat, encode_heartbeat
from mm2py.model.herder.share import NO_SHARE, Share, SharedFlow
from mm2py.model.state import HeartbeatsView
from mm2py.storage.compacted_topic import CompactedTopic
from mm2py.telemetry.events import HeartbeatsResumed, HeartbeatsStarted
from mm2py.wire.topic_log import LogRecord


#: As in Java, regardless of the topic's number of partitions: all of a flow's heartbeats stay in order.
_PARTITION = 0
_RETRY_PAUSES = Backoff(1.0, 15.0)


class HeartbeatGroup(FlowGroup[MirrorHeartbeatConfig]):
    """Writes a flow's heartbeats. A refusal by the target is reported once, and retried."""

    connector = "MirrorHeartbeatConnector"
    name = "heartbeats"
    follows_source = False
    is_for_owner = True

    def __init__(self, context: HeartbeatContext) -> None:
        super().__init__(context)
        self._sent = 0
        self._last_ms: int | None = None

    def counted(self) -> HeartbeatsView:
        """Return how many heartbeats were written, and when the last one; None while another node writes them."""
        return HeartbeatsView(self._sent, self._last_ms if self.requests.is_admitted else None)

    async def _live(self) -> None:
        config = self.config
        topic = internal_topics.heartbeats(config, policy_of(config))
        async with self._connected(config.target) as (target,):
            log = CompactedTopic(self.flow, target, topic, self._events)
            while await self._goes_on():
                if not await self._first_beat(log):
                    continue
                self._came_up()
                self._events.emit(HeartbeatsStarted(self.flow, log.topic, config.interval_s))
                await self.requests.run_until_quiet(self.task, [("beat", self._beat_forever(log))])

    async def _first_beat(self, log: CompactedTopic) -> bool:
        """Write one, however long it takes; False if the group has to pause or end before that."""
        pauses = _RETRY_PAUSES.pauses(self._context.jitter)
        while not self.requests.is_quiet:
            if await self._beat(log, is_topic_sure=False):
                return True
            await self._clock.sleep(next(pauses))
        return False

    async def _beat_forever(self, log: CompactedTopic) -> None:
        interval_s = self.config.interval_s
        last = self._clock.monotonic()
        while True:
            # As in Java the interval begins once the last one is written. So heartbeats that could not be written in
            # time are skipped: a heartbeat is about now.
            await self._clock.sleep(interval_s)
            if not await self._beat(log, is_topic_sure=True):
                await self._first_beat(log)
                self._last_error = self._hint = ""
                self._events.emit(HeartbeatsResumed(self.flow, self._clock.monotonic() - last))
            last = self._clock.monotonic()

    async def _beat(self, log: CompactedTopic, *, is_topic_sure: bool) -> bool:
        """Write one heartbeat, into a topic that is created if it may be missing; return whether it exists."""

        async def attempt() -> None:
            try:
                if not is_topic_sure:
                    await log.ensure()
                await log.append([self._record()])
            except Mm2Error as error:
                self._waits_for(error)
                raise

        if not await self._reach.done("emit heartbeats", [self.flow.target], attempt):
            return False
        self._sent += 1
        self._last_ms = self._clock.wall_ms()
        return True

    def _record(self) -> LogRecord:
        now_ms = self._clock.wall_ms()
        key, value = encode_heartbeat(Heartbeat(self.flow.source, self.flow.target, now_ms))
        return LogRecord(key, value, partition=_PARTITION, timestamp_ms=now_ms)


class HeartbeatTurn:
    """
    Has heartbeats emitted while it is this node's turn: one of a shared flow's does, as Java's only task does.

    Two nodes that do so harm nothing, and monitoring relies on heartbeats. So they continue while the flow's group
    cannot be reached, and after all else of the flow has failed on this node; no one waits for their end.
    """

    def __init__(self) -> None:
        self._group: AnyGroup | None = None

    def begin(self, group: AnyGroup | None, *, is_held: bool) -> None:
        """Rule over the *group* that emits heartbeats, None if the flow has none; hold it back until its turn if it
        *is_held*.
        """
        self._group = group
        if is_held:
            self.leave()

    def follow(self, shared: SharedFlow, member_id: str, share: Share) -> None:
        """Emit as the owner by an assignment; if it names none, because all nodes are drained, as its first member."""
        owner = next((it for it in sorted(shared.nodes) if shared.share_of(it).is_owner), min(shared.nodes, default=""))
        if share.is_owner or owner == member_id:
            self.take()
        else:
            self.leave(f"{shared.nodes[owner]} emits heartbeats" if owner else "no node runs it")

    def take(self) -> None:
        """Emit."""
        if self._group is not None:
            self._group.requests.give(Share(is_owner=True))

    def leave(self, why: str = "", hint: str = "") -> None:
        """Leave it to another node: *why*."""
        if self._group is not None:
            self._group.requests.give(NO_SHARE, why, hint)
